//! Natural language inference: whether a premise entails a hypothesis, contradicts it, or neither.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::path::Path;

use maverl_answers::{marked_answer, whole_reply};
use maverl_macros::environment;
use serde_json::{Map, Value, json};

use crate::builtin::facts;
use crate::env::{EnvError, Environment, Session};
use crate::task::{Action, Observation, Score, Task, TaskList};

pub use crate::builtin::nli::Label;

/// Judges an answer by the label of a premise and a hypothesis.
#[environment(name = "nli")]
pub struct NliEnvironment;

impl Environment for NliEnvironment {
    fn unsuited(data: &str) -> Option<&'static str> {
        facts::subject_of(data)
    }

    fn validate(&self, _: &Path, tasks: &TaskList) -> Result<Vec<String>, EnvError> {
        labeled(tasks.iter()).map(|()| Vec::new())
    }

    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        labeled(tasks).map(|()| None)
    }

    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        Ok(Observation::new("there is nothing to be done here; answer with a label"))
    }

    fn measure(&self) -> &'static str {
        "accuracy"
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        labeled(std::slice::from_ref(&session.task))?;
        let said = answer.and_then(label);
        let answered = f64::from(said.is_some());
        let metrics = Map::from_iter([("answered".to_owned(), json!(answered))]);
        Ok(Score { metrics, ..Score::binary(said.is_some() && said == truth(&session.task)) })
    }
}

/// Returns the label of a task.
fn truth(task: &Task) -> Option<Label> {
    Label::read(task.data.get("answers")?.get(0)?)
}

/// Checks that every task has a label.
fn labeled(tasks: impl IntoIterator<Item = impl Borrow<Task>>) -> Result<(), EnvError> {
    let found = tasks.into_iter().find(|task| truth(task.borrow()).is_none());
    let Some(task) = found else { return Ok(()) };
    let Task { id, source, .. }: &Task = task.borrow();
    Err(EnvError(format!(
        "the task `{id}` of `{source}` has no label; give its row a `premise`, a `hypothesis`, and a `label`: \
         entailment, neutral or contradiction"
    )))
}

/// Words that negate a label after them in their clause.
const NEGATIONS: &str = "not no non isnt arent wasnt werent aint doesnt dont didnt cannot cant couldnt wont wouldnt \
    shouldnt hasnt havent never neither nor none nothing without than instead unlikely improbable impossible hardly \
    scarcely barely rarely seldom fail fails failed lack lacks lacking except exclude excludes excluded excluding \
    reject rejects rejected dismiss dismisses deny denies denied unable";
/// Pairs of words that negate like [`NEGATIONS`].
const PAIRS: [(&str, &str); 5] =
    [("far", "from"), ("rule", "out"), ("rules", "out"), ("ruled", "out"), ("ruling", "out")];
/// Verbs that begin a statement about the label before them.
const VERBS: &str = "is was are does did do can could would has seems looks appears";
/// Words that reject the label before them, in addition to [`NEGATIONS`].
const WRONG: &str = "wrong false incorrect mistaken out";
/// Words that mark a statement as uncertain.
const HEDGES: &str = "maybe perhaps possibly might may could";
/// First words of a question.
const QUESTIONS: &str =
    "is are was does do did can could would should what which whether has have maybe perhaps";

/// Words that introduce a reason; a label after them does not count as given.
const REASONS: [&str; 2] = [" because ", " since "];

/// Number of words after a negation that it negates.
const REACH: usize = 4;

/// Returns the label that a reply gives: in its marked text (`\boxed{..}`, `####`, "answer is"), else in the whole
/// reply. A label that is negated ("not entailment but neutral", "unlikely to be neutral") or asked for ("entailment?")
/// does not count. An uncertain label ("maybe entailment") counts only if no other is given. A reply that gives two
/// labels, or asks for two, gives none; "neither .. nor .." with two labels gives the third. Marked text ends where a reason
/// begins. A text of one letter, `e`, `n` or `c`, is that label.
///
/// ```
/// use maverl::env::nli::{Label, label};
///
/// assert_eq!(label("It is not a contradiction, so: neutral."), Some(Label::Neutral));
/// assert_eq!(label("The answer is neutral, because nothing contradicts it."), Some(Label::Neutral));
/// assert_eq!(label("Maybe entailment? No, contradiction."), Some(Label::Contradiction));
/// assert_eq!(label("It is neither entailed nor contradicted."), Some(Label::Neutral));
/// assert_eq!(label("entailment or neutral"), None);
/// ```
#[doc(hidden)]
pub fn label(reply: &str) -> Option<Label> {
    let text = marked_answer(reply).map(claim).or_else(|| whole_reply(reply))?;
    if let Some(label) = lettered(text) {
        return Some(label);
    }
    let text = text.to_lowercase().replace(['\'', '’'], "");
    let (mut firm, mut open) = (BTreeSet::new(), BTreeSet::new());
    let sentences: Vec<&str> = text.split_inclusive(['.', '!', '?', '\n']).collect();
    for (i, sentence) in sentences.iter().enumerate() {
        let affirmed = sentences.get(i + 1).is_some_and(|next| words(next).first() == Some(&"yes"));
        // A question with several labels repeats the task: the labels count, so that none is given.
        let is_question = sentence.ends_with('?') && !affirmed;
        let asked = is_question && mentioned(sentence) < 2;
        let all = asked && words(sentence).first().is_some_and(|first| is_one_of(first, QUESTIONS));
        let clauses: Vec<&str> = sentence.split([',', ';', ':']).collect();
        let last = if asked { clauses.len() - 1 } else { clauses.len() };
        for clause in &clauses[..if all { 0 } else { last }] {
            let hedged = words(clause).iter().any(|word| is_one_of(word, HEDGES));
            let labels = if hedged { &mut open } else { &mut firm };
            labels.extend(given(clause));
        }
        firm.extend(left_over(sentence).filter(|_| !is_question));
    }
    let given = if firm.is_empty() { open } else { firm };
    match given.len() {
        1 => given.into_iter().next(),
        _ => None,
    }
}

/// Returns the label that a text of one letter stands for, as in SNLI: `e`, `(N)`, `**c**`.
fn lettered(text: &str) -> Option<Label> {
    let text = text.to_lowercase();
    let mut words = words(&text).into_iter().filter(|word| *word != "text");
    let letter = words.next().filter(|_| words.next().is_none())?;
    Label::ALL.into_iter().find(|label| label.word()[..1] == *letter)
}

/// Returns the third label after "neither .. nor .." with the two others.
fn left_over(sentence: &str) -> Option<Label> {
    let words = words(sentence);
    let at = words.iter().position(|word| *word == "neither")?;
    let denied = (0..at).any(|before| denies(&words, before));
    let scope = words[at..].split(|word| *word == "but").next()?;
    if denied || !scope.contains(&"nor") {
        return None;
    }
    let excluded: BTreeSet<Label> = scope.iter().filter_map(|word| named(word)).collect();
    let mut left = Label::ALL.into_iter().filter(|label| !excluded.contains(label));
    left.next().filter(|_| left.next().is_none())
}

/// Returns the text before the reason.
fn claim(marked: &str) -> &str {
    let lower = marked.to_ascii_lowercase();
    let reason = REASONS.iter().filter_map(|word| lower.find(word)).min();
    reason.map_or(marked, |at| &marked[..at])
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

/// Returns the number of different labels that a text names.
fn mentioned(text: &str) -> usize {
    words(text).into_iter().filter_map(named).collect::<BTreeSet<Label>>().len()
}

fn is_one_of(word: &str, words: &str) -> bool {
    words.split_whitespace().any(|other| other == word)
}

/// Returns the labels that a clause gives.
fn given(clause: &str) -> Vec<Label> {
    let words = words(clause);
    let named = words.iter().enumerate().filter_map(|(i, word)| Some((i, named(word)?)));
    let given =
        named.filter(|(i, _)| !denied_before(&words[..*i]) && !denied_after(&words[i + 1..]));
    given.map(|(_, label)| label).collect()
}

/// Returns true if the word at a position negates.
fn denies(words: &[&str], at: usize) -> bool {
    let next = words.get(at + 1).copied().unwrap_or_default();
    is_one_of(words[at], NEGATIONS) || PAIRS.contains(&(words[at], next))
}

/// Returns true if the words before a label negate it.
fn denied_before(words: &[&str]) -> bool {
    for at in (0..words.len()).rev().take(REACH) {
        // "but" ends the scope of a negation, except in "anything but".
        if words[at] == "but" {
            return words[..at].last() == Some(&"anything");
        }
        let mut after = words[at + 1..].iter().take(2);
        let certain = after.any(|word| matches!(*word, "doubt" | "question"));
        if denies(words, at) && !certain {
            return true;
        }
    }
    false
}

/// Returns true if the words after a label reject it: "entailment does not hold". A negation directly before another
/// label negates that one.
fn denied_after(words: &[&str]) -> bool {
    let next = words.iter().position(|word| named(word).is_some());
    let said = &words[..next.unwrap_or(words.len())];
    let Some(first) = said.first().filter(|_| said.len() > 1 || next.is_none()) else {
        return false;
    };
    let mut reach = 0..said.len().min(REACH);
    let Some(at) = reach.find(|at| denies(said, *at) || is_one_of(said[*at], WRONG)) else {
        return false;
    };
    let of_next = next.is_some_and(|next| next - at <= REACH);
    let rejects = match at {
        0 => !matches!(*first, "not" | "than" | "nor" | "without" | "instead"),
        _ => is_one_of(first, VERBS),
    };
    rejects && !of_next
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

/// Returns true if a reply gives the true label, as in `maverl grade nli`. `None` if the truth is not a label.
#[doc(hidden)]
pub fn grade(reply: &str, truth: &str) -> Option<bool> {
    let truth = Label::read(&Value::from(truth))?;
    Some(label(reply) == Some(truth))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt;

    use super::*;
    use crate::builtin::nli;

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
            ("Maybe entailment? No, contradiction.", Contradiction),
            ("hardly a contradiction; entailment", Entailment),
            ("Perhaps neutral. No: entailment.", Entailment),
            ("Is the hypothesis entailed? Yes.", Entailment),
            ("Entailment is unlikely, so it is neutral", Neutral),
            ("Entailment does not hold. Neutral.", Neutral),
            ("Contradiction can be ruled out: entailment", Entailment),
            ("It rules out neutral: contradiction", Contradiction),
            ("anything but neutral, a contradiction", Contradiction),
            ("No doubt neutral", Neutral),
            ("Maybe entailment", Entailment),
            ("It might be entailment, but it is neutral", Neutral),
            ("The premise entails the hypothesis and does not contradict it", Entailment),
            ("neutral is the answer, not entailment", Neutral),
            ("entailment not neutral", Entailment),
            ("Neutral, right?", Neutral),
            ("The rule entails it", Entailment),
            ("So far neutral", Neutral),
            ("e", Entailment),
            ("N", Neutral),
            ("c.", Contradiction),
            ("(e)", Entailment),
            ("**n**", Neutral),
            ("\\boxed{c}", Contradiction),
            ("\\boxed{\\text{n}}", Neutral),
            ("\\boxed{\\text{Entailment}}", Entailment),
            ("The answer is: N", Neutral),
            ("<answer>e</answer>", Entailment),
            ("<think>e or n?</think> c", Contradiction),
            ("n<|im_end|>", Neutral),
            ("neutral</s>", Neutral),
            ("it is neither entailment nor contradiction", Neutral),
            ("It is neither entailed nor contradicted by the premise.", Neutral),
            ("The premise neither entails, nor contradicts the hypothesis.", Neutral),
            ("Neither neutral nor a contradiction", Entailment),
            ("It can be neither entailment nor neutral.", Contradiction),
            ("It is neither entailment nor contradiction but neutral", Neutral),
            ("Neither entailment nor contradiction holds: it is neutral.", Neutral),
            ("Is it neither entailment nor contradiction? Yes.", Neutral),
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
            "it is neither entailment nor neutral nor contradiction",
            "neither entailment nor yes",
            "neither entailment or contradiction",
            "It is not true that it is neither entailment nor contradiction",
            "Is it neither entailment nor contradiction?",
            "neither entailment nor contradiction; entailment",
            "\\boxed{entailment, contradiction}",
            "<think>entailment</think>",
            "The answer is entailment, neutral, because nothing contradicts it.",
            "The answer is not entailment because nothing contradicts it.",
            "The answer is:\nentailment\nneutral",
            "The answer is entailment\u{a0}because of a contradiction",
            "entailmentneutral",
            "unlikely to be neutral",
            "The answer is unlikely to be neutral.",
            "It is hardly a contradiction",
            "entailment?",
            "Is it entailment? No.",
            "Is it entailment, neutral or contradiction? Neutral.",
            "far from neutral",
            "It fails to entail the hypothesis",
            "anything but a contradiction",
            "maybe entailment, maybe neutral",
            "neutral is wrong",
            "Entailment is not the case",
            "entailment cannot be shown",
            "The premise could not be said to entail the hypothesis",
            "0",
            "a",
            "x",
            "e n",
            "e or c",
            "en",
            "\\boxed{e, n}",
            "<think>e</think>",
            "E = mc",
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
            let reward = |reply: Option<&str>| {
                let scored = Environment::score(&NliEnvironment, &session, reply);
                scored.now_or_never().unwrap().unwrap().reward
            };
            for label in Label::ALL {
                assert_eq!(reward(Some(label.word())), f64::from(label == truth));
                assert_eq!(reward(Some(&format!("not {}", label.word()))), 0.0);
            }
            assert_eq!(reward(None), 0.0);
            // The question contains all three labels.
            assert_eq!(reward(Some(&session.task.question)), 0.0);
        }
    }

    #[test]
    fn a_task_without_a_label_is_refused() {
        let (_, mut tasks) = nli::questions().swap_remove(1);
        assert!(NliEnvironment.report(&tasks).is_ok());
        tasks[3].data.insert("answers".to_owned(), json!(["maybe"]));
        let error = NliEnvironment.report(&tasks).unwrap_err().to_string();
        assert!(error.contains("`validation-0003` of `nli/level_2` has no label"), "{error}");
    }
}
