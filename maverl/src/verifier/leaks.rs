//! Tasks of the training data among the held-out ones.

use std::collections::{BTreeMap, BTreeSet};

/// Words of a sequence that two questions of different tasks rarely share.
const WORDS: usize = 13;
/// Tasks of one split from which on a sequence belongs to a common prompt.
const COMMON: usize = 3;
/// A task of a split, and the text that its agents were given.
pub(crate) type Given = (String, String);

/// Held-out tasks that the training data may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Leaks {
    /// Those that are in both splits.
    pub(crate) same: Vec<String>,
    /// Those whose text shares a sequence of 13 words with that of a training task. Sequences of three or more training tasks
    /// belong to a common prompt, and do not count.
    pub(crate) near: Vec<String>,
}

/// Returns the held-out tasks that the training data may have, each with a description.
pub(crate) fn leaks(train: &[Given], test: &[Given]) -> Leaks {
    let known: BTreeSet<&str> = train.iter().map(|(task, _)| task.as_str()).collect();
    let mut owners: BTreeMap<Vec<String>, BTreeSet<&str>> = BTreeMap::new();
    for (task, text) in train {
        for sequence in sequences(text) {
            let owners = owners.entry(sequence).or_default();
            if owners.len() < COMMON {
                owners.insert(task);
            }
        }
    }
    owners.retain(|_, owners| owners.len() < COMMON);
    let (mut found, mut seen) = (Leaks::default(), BTreeSet::new());
    for (task, text) in test {
        if !seen.insert((task, text)) {
            continue;
        }
        if known.contains(task.as_str()) {
            found.same.push(format!("`{task}`"));
        } else if let Some((sequence, owners)) =
            sequences(text).iter().find_map(|sequence| owners.get_key_value(sequence))
            && let Some(other) = owners.first()
        {
            found.near.push(format!("`{task}` and `{other}` share \"{}\"", sequence.join(" ")));
        }
    }
    found
}

/// Returns the sequences of words of a text, in lower case and without signs.
fn sequences(text: &str) -> BTreeSet<Vec<String>> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    words.windows(WORDS).map(<[String]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str =
        "Solve the following task and put the answer into the tag that is called answer.";
    const STORY: &str =
        "A train leaves at nine and arrives at noon with forty five people who paid two coins each";

    #[test]
    fn a_task_in_both_splits_or_nearly_the_same_question_is_a_leak_and_a_common_prompt_is_none() {
        let texts: Vec<String> = (0..5).map(|i| format!("{PROMPT} What is {i} + 2?")).collect();
        let given = |task: &str, text: &str| (task.to_owned(), text.to_owned());
        let names = ["a", "b", "c", "d", "e"];
        let train: Vec<Given> = names.iter().zip(&texts).map(|(a, b)| given(a, b)).collect();
        let fresh = given("f", &format!("{PROMPT} What is 9 + 9?"));
        assert_eq!(leaks(&train, std::slice::from_ref(&fresh)), Leaks::default());
        let found = leaks(&train, &[fresh, given("b", &texts[1])]);
        assert_eq!((found.same, found.near), (vec!["`b`".to_owned()], Vec::new()));
        let story = [train, vec![given("s", STORY)]].concat();
        let again = given("t", &format!("{}!", STORY.to_uppercase()));
        let found = leaks(&story, &[again.clone(), again]);
        assert_eq!((found.same.len(), found.near.len()), (0, 1));
        let near = &found.near[0];
        assert!(near.starts_with("`t` and `s` share \"a train leaves at nine"), "{near}");
    }
}
