//! Natural language inference: whether a premise entails a hypothesis, contradicts it, or neither.

use std::collections::BTreeSet;
use std::path::Path;

use maverl_macros::environment;
use serde_json::{Map, Value, json};

use crate::env::math::extract;
use crate::env::{EnvError, Environment, Session};
use crate::task::{Action, Observation, Score, Task};

pub use crate::world::nli::Label;

/// Judges whether an answer is the label of a premise and a hypothesis.
#[environment(name = "nli")]
pub struct NliEnvironment;

impl Environment for NliEnvironment {
    fn look(&self, _: &Path, tasks: &[Task]) -> Result<Vec<String>, EnvError> {
        labeled(tasks).map(|()| Vec::new())
    }

    fn note(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        labeled(tasks).map(|()| None)
    }

    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        Ok(Observation::new("there is nothing to be done here; answer with a label"))
    }

    fn measure(&self) -> &'static str {
        "accuracy"
    }

    fn score(&self, session: &Session, answer: Option<&str>) -> Score {
        let said = answer.and_then(label);
        let answered = if said.is_some() { 1.0 } else { 0.0 };
        let metrics = Map::from_iter([("answered".to_owned(), json!(answered))]);
        Score { metrics, ..Score::binary(said.is_some() && said == truth(&session.task)) }
    }
}

/// The label of a task.
fn truth(task: &Task) -> Option<Label> {
    Label::read(task.data.get("answers")?.get(0)?)
}

/// Every task must have a label to compare with.
fn labeled(tasks: &[Task]) -> Result<(), EnvError> {
    match tasks.iter().find(|task| truth(task).is_none()) {
        Some(Task { id, source, .. }) => Err(EnvError::new(format!(
            "the task `{id}` of `{source}` has no label; give its row a `premise`, a `hypothesis`, and a `label`: \
             entailment, neutral or contradiction"
        ))),
        None => Ok(()),
    }
}

/// Words that turn around what follows them in their clause.
const NEGATIONS: [&str; 14] = [
    "not", "no", "non", "isnt", "doesnt", "cannot", "cant", "wont", "never", "neither", "nor",
    "without", "than", "instead",
];

/// Words after which a reply says why; a label there is not given.
const REASONS: [&str; 2] = [" because ", " since "];

/// How many words after a negation are turned around.
const REACH: usize = 4;

/// The label that a reply gives: in what it marks (`\boxed{..}`, `####`, "answer is"), or else in the whole of it. A label
/// that is denied is not given ("not entailment but neutral"), and a reply that gives two gives none. What is marked ends where it
/// says why.
///
/// ```
/// use maverl::env::nli::{Label, label};
///
/// assert_eq!(label("It is not a contradiction, so: neutral."), Some(Label::Neutral));
/// assert_eq!(label("The answer is neutral, because nothing contradicts it."), Some(Label::Neutral));
/// assert_eq!(label("entailment or neutral"), None);
/// ```
pub fn label(reply: &str) -> Option<Label> {
    let text = extract(reply).map_or(reply, claim);
    // What was thought aloud is no answer, marked or not.
    let text = text.rsplit_once("</think>").map_or(text, |(_, said)| said);
    let text = text.to_lowercase().replace(['\'', '’'], "");
    let clauses = text.split(['.', ',', ';', ':', '!', '?', '\n']);
    let given: BTreeSet<Label> = clauses.flat_map(given).collect();
    match given.len() {
        1 => given.into_iter().next(),
        _ => None,
    }
}

/// What is said before the reason for it.
fn claim(marked: &str) -> &str {
    let lower = marked.to_ascii_lowercase();
    let reason = REASONS.iter().filter_map(|word| lower.find(word)).min();
    reason.map_or(marked, |at| &marked[..at])
}

/// The labels that a clause gives.
fn given(clause: &str) -> Vec<Label> {
    let words: Vec<&str> =
        clause.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let named = words.iter().enumerate().filter_map(|(i, word)| Some((i, named(word)?)));
    let denied = |i: usize| {
        // "but" ends what a negation reaches.
        let before = words[..i].iter().rev().take(REACH).take_while(|word| **word != "but");
        before.into_iter().any(|word| NEGATIONS.contains(word))
    };
    named.filter(|(i, _)| !denied(*i)).map(|(_, label)| label).collect()
}

fn named(word: &str) -> Option<Label> {
    Some(match word {
        "entail" | "entails" | "entailed" | "entailment" => Label::Entailment,
        "neutral" => Label::Neutral,
        "contradict" | "contradicts" | "contradicted" | "contradiction" | "contradictory" => {
            Label::Contradiction
        }
        _ => return None,
    })
}

/// Whether a reply gives the label that is the truth, as `maverl grade nli` has it. `None` if the truth is no label.
pub fn grade(reply: &str, truth: &str) -> Option<bool> {
    let truth = Label::read(&Value::from(truth))?;
    Some(label(reply) == Some(truth))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::world::nli;

    #[test]
    fn a_label_is_found_however_it_is_said() {
        use Label::{Contradiction, Entailment, Neutral};
        for (reply, expected) in [
            ("entailment", Entailment),
            ("\\boxed{\\text{Neutral}}", Neutral),
            (
                "Options: entailment, neutral, contradiction. The answer is contradiction.",
                Contradiction,
            ),
            ("The premise entails the hypothesis.", Entailment),
            ("This is not entailment but neutral", Neutral),
            ("It isn't a contradiction; it is entailed.", Entailment),
            ("contradiction rather than neutral", Contradiction),
            ("Neither entailment nor contradiction: neutral", Neutral),
            ("<think>entailment? contradiction?</think> neutral", Neutral),
            ("NEUTRAL!\n", Neutral),
            ("The answer is entailment, because nothing contradicts it.", Entailment),
            ("Answer: neutral, since it neither entails it nor is a contradiction", Neutral),
            ("**Answer:**\n\nneutral", Neutral),
            ("The answer is **contradiction**.", Contradiction),
        ] {
            assert_eq!(label(reply), Some(expected), "{reply}");
        }
    }

    #[test]
    fn a_reply_that_hedges_gives_no_label() {
        for reply in [
            "",
            "yes",
            "entailment neutral contradiction",
            "entailment or neutral",
            "not neutral",
            "it is neither entailment nor contradiction",
            "\\boxed{entailment, contradiction}",
            "<think>entailment</think>",
            "The answer is entailment, neutral, because nothing contradicts it.",
            "The answer is not entailment because nothing contradicts it.",
            "The answer is:\nentailment\nneutral",
            "The answer is entailment\u{a0}because of a contradiction",
            "entailmentneutral",
            "0",
            "e",
        ] {
            assert_eq!(label(reply), None, "{reply}");
        }
    }

    #[test]
    fn the_label_alone_is_paid_for() {
        let (_, tasks) = nli::questions().swap_remove(2);
        for task in tasks.into_iter().take(30) {
            let truth = truth(&task).unwrap();
            let session = Session { task, seed: 0, actions: 0, state: Value::Null };
            let reward = |reply: Option<&str>| NliEnvironment.score(&session, reply).reward;
            for label in Label::ALL {
                assert_eq!(reward(Some(label.word())), f64::from(u8::from(label == truth)));
                assert_eq!(reward(Some(&format!("not {}", label.word()))), 0.0);
            }
            assert_eq!(reward(None), 0.0);
            // The question has all three words.
            assert_eq!(reward(Some(&session.task.question)), 0.0);
        }
    }

    #[test]
    fn a_task_without_a_label_is_refused() {
        let (_, mut tasks) = nli::questions().swap_remove(1);
        assert!(NliEnvironment.note(&tasks).is_ok());
        tasks[3].data.insert("answers".to_owned(), json!(["maybe"]));
        let error = NliEnvironment.note(&tasks).unwrap_err().to_string();
        assert!(error.contains("`validation-0003` of `nli/level_2` has no label"), "{error}");
    }
}
