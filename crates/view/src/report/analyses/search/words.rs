//! The words of a search: the pattern by which lines are parsed, and their first occurrence in the texts of a line.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fancy_regex::{Regex, escape};
use serde_json::{Value, json};

use maverl::run_dir::Texts;

/// Number of characters on either side of what was found.
const AROUND: usize = 60;
/// Number of characters of the words in the pattern: a longer text cannot be found without its start.
const PATTERN: usize = 64;

/// Words to look for, without regard to case.
pub(crate) struct Words {
    /// In lower case.
    text: String,
    /// Matches each line that may have them; `None` if every line is parsed.
    pattern: Option<Regex>,
}

/// The first occurrence of words in an episode.
#[derive(Debug, PartialEq)]
pub(crate) struct WordHit {
    /// Rank of the text: question, replies and errors by turn, observations, prompts by turn, answer.
    rank: (u8, usize, u8),
    name: &'static str,
    turn: Option<usize>,
    snippet: String,
}

impl WordHit {
    /// Returns true if this occurrence is shown instead of another one.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.rank < other.rank
    }

    /// Returns the line of the answer.
    pub(crate) fn json(&self, row: &Value) -> Value {
        json!({ "row": row, "where": self.name, "turn": self.turn, "snippet": self.snippet })
    }
}

impl Words {
    pub(crate) fn new(words: &str) -> Self {
        let text = words.to_lowercase();
        let pattern = Regex::new(&words_pattern(&text)).ok();
        Self { text, pattern }
    }

    /// Returns false if no text of a line has the words. Keys and ids may have them, too.
    pub(crate) fn may_be_in(&self, line: &[u8]) -> bool {
        let (Some(pattern), Ok(line)) = (&self.pattern, std::str::from_utf8(line)) else {
            return true;
        };
        pattern.is_match(line).unwrap_or(true)
    }

    /// Returns the first occurrence of the words in the texts of a line.
    pub(crate) fn find_first(&self, texts: &Texts) -> Option<WordHit> {
        match texts {
            Texts::Episode { question, observations, answer, rewards: _ } => {
                let mut observed = observations.iter();
                self.find_in((0, 0, 0), "question", None, question)
                    .or_else(|| {
                        observed.find_map(|text| self.find_in((2, 0, 0), "observation", None, text))
                    })
                    .or_else(|| self.find_in((4, 0, 0), "answer", None, answer.as_deref()?))
            }
            Texts::Turn { turn, prompt, reply, error, seat: _ } => {
                let (i, turn) = (*turn, Some(*turn));
                let mut asked = prompt.iter();
                self.find_in((1, i, 0), "reply", turn, reply)
                    .or_else(|| self.find_in((1, i, 1), "error", turn, error.as_deref()?))
                    .or_else(|| {
                        asked.find_map(|text| self.find_in((3, i, 0), "prompt", turn, text))
                    })
            }
        }
    }

    /// Returns the first occurrence of the words in a text.
    fn find_in(
        &self,
        rank: (u8, usize, u8),
        name: &'static str,
        turn: Option<usize>,
        text: &str,
    ) -> Option<WordHit> {
        let snippet = text_around(text, &self.text)?;
        Some(WordHit { rank, name, turn, snippet })
    }
}

/// Characters whose lower case has a character, by that character. A capital sigma is `ς` at the end of a word.
static CAPITALS: LazyLock<BTreeMap<char, String>> = LazyLock::new(|| {
    let mut capitals: BTreeMap<char, String> = BTreeMap::new();
    capitals.insert('ς', "Σ".to_owned());
    for c in '\0'..=char::MAX {
        for lower in c.to_lowercase().filter(|lower| *lower != c) {
            capitals.entry(lower).or_default().push(c);
        }
    }
    capitals
});

/// Returns a pattern that matches every line of JSON with a text that has words in lower case.
fn words_pattern(words: &str) -> String {
    let mut pattern = String::new();
    for c in words.chars().take(PATTERN) {
        match (c, CAPITALS.get(&c)) {
            // `İ` is the only character whose lower case has two: `i` and this dot.
            ('\u{307}', _) => pattern.push_str("\u{307}?"),
            (_, Some(capitals)) => pattern.push_str(&format!("[{c}{capitals}]")),
            (_, None) => {
                // Escaped as in the files. A character is always valid JSON.
                let json = serde_json::to_string(&c).unwrap_or_default();
                let json = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
                pattern.push_str(&escape(json.unwrap_or_default()));
            }
        }
    }
    pattern
}

/// Returns the text around the first occurrence of words.
pub(crate) fn text_around(text: &str, words: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let at = lower[..lower.find(words)?].chars().count();
    let start = at.saturating_sub(AROUND);
    let length = at - start + words.chars().count() + AROUND;
    Some(text.chars().skip(start).take(length).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_pattern_matches_the_json_of_every_character_whose_lower_case_is_looked_for() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let lower = c.to_lowercase().collect::<String>();
            let is_escaped = c.is_control() || matches!(c, '"' | '\\');
            if lower != c.to_string() || is_escaped {
                let line = serde_json::to_vec(&format!("a{c}b")).unwrap();
                assert!(Words::new(&format!("A{c}B")).may_be_in(&line), "{c:?}");
                assert!(Words::new(&lower).may_be_in(&line), "{c:?}");
                assert!(!Words::new(&format!("A{c}C")).may_be_in(&line), "{c:?}");
            }
        }
    }

    #[test]
    fn words_are_found_with_the_text_around_them() {
        let reply = format!("{}QUITO is it{}", "ä".repeat(100), "b".repeat(100));
        let snippet = text_around(&reply, "quito").unwrap();
        assert!(snippet.contains("QUITO") && snippet.chars().count() == 60 + 5 + 60, "{snippet}");
        assert_eq!(text_around(&reply, "nowhere"), None);
    }
}
