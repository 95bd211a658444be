//! Natural language inference (does a premise entail a hypothesis, contradict it, or neither?), with generated premises
//! about owners of things.
//!
//! The hypotheses of the three labels have the same form, so the label cannot be inferred without the premise. The
//! level is the number of facts in the premise.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::splits::number_splits;
use crate::rng::SplitMix64;
use crate::task::Task;

/// Name of the data source in a configuration.
pub const NAME: &str = "builtin:nli";
/// Splits of the shipped questions, with the number of questions of each level and label.
pub const SPLITS: [(&str, usize); 3] = [("train", 200), ("validation", 20), ("test", 40)];
/// Numbers of facts in a premise.
pub const LEVELS: [usize; 3] = [1, 2, 3];

const SEED: u64 = 17;
const NAMES: [&str; 8] = ["Ada", "Ben", "Eva", "Ivo", "Leo", "Mia", "Noa", "Sam"];
const THINGS: [&str; 8] = ["bag", "bike", "boat", "cup", "door", "hat", "lamp", "pen"];
const COLORS: [&str; 6] = ["black", "blue", "green", "red", "white", "yellow"];

/// Relation of a hypothesis to a premise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Label {
    /// The premise implies the hypothesis.
    Entailment,
    /// The premise implies neither the hypothesis nor its negation.
    Neutral,
    /// The premise implies the negation of the hypothesis.
    Contradiction,
}

impl Label {
    /// All labels; ANLI's numbers are indices of this array.
    pub const ALL: [Self; 3] = [Self::Entailment, Self::Neutral, Self::Contradiction];

    /// Returns the word of the label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Entailment => "entailment",
            Self::Neutral => "neutral",
            Self::Contradiction => "contradiction",
        }
    }

    /// Reads a label of a data set: its word, ANLI's letter, or its number.
    pub fn read(label: &Value) -> Option<Self> {
        match label {
            Value::Number(number) => {
                Self::ALL.get(usize::try_from(number.as_u64()?).ok()?).copied()
            }
            Value::String(text) => {
                let text = text.trim().to_ascii_lowercase();
                Self::ALL.into_iter().find(|label| {
                    let number = (*label as usize).to_string();
                    text == label.word() || text == label.word()[..1] || text == number
                })
            }
            _ => None,
        }
    }
}

/// Formats the question about a premise and a hypothesis.
pub fn question(premise: &str, hypothesis: &str) -> String {
    format!(
        "Premise: {premise}\nHypothesis: {hypothesis}\nIs this entailment, neutral or contradiction?"
    )
}

/// Returns the data of a task beside its question.
pub fn data(premise: &str, hypothesis: &str, label: Label) -> Map<String, Value> {
    Map::from_iter([
        ("premise".to_owned(), json!(premise)),
        ("hypothesis".to_owned(), json!(hypothesis)),
        ("answers".to_owned(), json!([label.word()])),
        ("choices".to_owned(), json!(Label::ALL.map(Label::word))),
    ])
}

/// Returns the shipped questions by split.
pub fn questions() -> Vec<(&'static str, Vec<Task>)> {
    invent(SEED)
}

/// Generates questions from a seed, by split, with levels and labels mixed.
pub fn invent(seed: u64) -> Vec<(&'static str, Vec<Task>)> {
    let mut draw = SplitMix64::new(seed);
    let mut asked = BTreeSet::new();
    number_splits(&SPLITS, || {
        let kinds = LEVELS.iter().flat_map(|&level| Label::ALL.map(|label| (level, label)));
        kinds.map(|(level, label)| fresh(level, label, &mut asked, &mut draw)).collect()
    })
}

/// Generates a question that has not been asked.
fn fresh(level: usize, label: Label, asked: &mut BTreeSet<String>, draw: &mut SplitMix64) -> Task {
    loop {
        let (premise, hypothesis) = pair(level, label, draw);
        let question = question(&premise, &hypothesis);
        if asked.insert(question.clone()) {
            let mut data = data(&premise, &hypothesis, label);
            data.insert("level".to_owned(), json!(level));
            let id = String::new();
            return Task { id, source: format!("nli/level_{level}"), question, data };
        }
    }
}

/// Samples a premise of a number of facts about different things, and a hypothesis with the given label.
fn pair(level: usize, label: Label, draw: &mut SplitMix64) -> (String, String) {
    let mut things = THINGS;
    draw.shuffle(&mut things);
    let facts: Vec<[&str; 3]> = things[..level]
        .iter()
        .map(|thing| [*thing, draw.pick(&NAMES), draw.pick(&COLORS)])
        .collect();
    let [thing, name, color] = draw.pick(&facts);
    let about = match label {
        Label::Entailment => [thing, name, color],
        Label::Contradiction => [thing, name, pick_other(color, &COLORS, draw)],
        // The premise says nothing about the thing of another person.
        Label::Neutral => [thing, pick_other(name, &NAMES, draw), draw.pick(&COLORS)],
    };
    let premise: Vec<String> = facts.into_iter().map(say_fact).collect();
    (premise.join(" "), say_fact(about))
}

fn pick_other<'w>(of: &str, all: &[&'w str], draw: &mut SplitMix64) -> &'w str {
    let others: Vec<&str> = all.iter().copied().filter(|item| *item != of).collect();
    draw.pick(&others)
}

fn say_fact([thing, name, color]: [&str; 3]) -> String {
    format!("The {thing} of {name} is {color}.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn labels_are_read_as_data_sets_write_them() {
        for (value, label) in [
            (json!(0), Label::Entailment),
            (json!("n"), Label::Neutral),
            (json!("Contradiction"), Label::Contradiction),
        ] {
            assert_eq!(Label::read(&value), Some(label));
        }
        for value in [json!(3), json!(-1), json!("x"), json!(""), json!(null)] {
            assert_eq!(Label::read(&value), None, "{value}");
        }
    }

    #[test]
    fn a_label_is_what_the_premise_says_of_the_hypothesis() {
        for task in questions().into_iter().flat_map(|(_, tasks)| tasks) {
            let text = |key: &str| task.data[key].as_str().unwrap().to_owned();
            let (premise, hypothesis) = (text("premise"), text("hypothesis"));
            let (subject, _) = hypothesis.split_once(" is ").unwrap();
            let expected = match (premise.contains(&hypothesis), premise.contains(subject)) {
                (true, _) => "entailment",
                (false, true) => "contradiction",
                (false, false) => "neutral",
            };
            assert_eq!(task.data["answers"][0], expected, "{}", task.question);
            assert_eq!(premise.matches('.').count() as u64, task.data["level"].as_u64().unwrap());
        }
    }

    #[test]
    fn the_hypothesis_alone_does_not_tell_the_label() {
        let (_, train) = questions().swap_remove(0);
        assert_eq!(questions()[0].1, train, "the same each time");
        let mut colors: BTreeMap<String, [u32; 3]> = BTreeMap::new();
        for task in &train {
            let color = task.data["hypothesis"].as_str().unwrap().rsplit(' ').next().unwrap();
            let label = Label::read(&task.data["answers"][0]).unwrap();
            colors.entry(color.to_owned()).or_default()[label as usize] += 1;
        }
        for (color, counts) in colors {
            let n: u32 = counts.iter().sum();
            assert!(
                counts.iter().all(|count| (n / 5..n / 2).contains(count)),
                "{color}: {counts:?}"
            );
        }
    }
}
