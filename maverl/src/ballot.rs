//! Vote counting, for teams that vote and for baselines.

use maverl_answers::{AnswerVerdict, compare_answers};
use serde::{Deserialize, Serialize};

use crate::env::search::{exact_match, normalize};
use crate::rng::SplitMix64;

/// Choice among tied answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// The answer that was named first.
    #[default]
    First,
    /// An answer sampled with the episode's seed.
    Random,
    /// No answer.
    None,
}

/// Votes by answer, in the order in which the answers were first named.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ballot(Vec<(String, f64)>);

impl Ballot {
    /// Adds a weighted vote; equivalent answers are counted together.
    pub fn cast(&mut self, answer: &str, weight: f64) {
        match self.0.iter_mut().find(|(other, _)| alike(other, answer)) {
            Some((_, votes)) => *votes += weight,
            None => self.0.push((answer.to_owned(), weight)),
        }
    }

    /// Returns the answers with the most votes.
    pub fn leaders(&self) -> Vec<&str> {
        let most = self.0.iter().map(|(_, votes)| *votes).fold(f64::NEG_INFINITY, f64::max);
        self.0.iter().filter(|(_, n)| *n >= most).map(|(answer, _)| answer.as_str()).collect()
    }

    /// Returns the winning answer, if any was named.
    pub fn winner(&self, ties: Ties, seed: u64) -> Option<String> {
        let leaders = self.leaders();
        let winner = match (ties, leaders.as_slice()) {
            (_, []) => None,
            (Ties::None, [_, _, ..]) => None,
            (Ties::Random, leaders) => Some(SplitMix64::new(seed).pick(leaders)),
            (_, [first, ..]) => Some(*first),
        };
        winner.map(str::to_owned)
    }
}

impl<'a> FromIterator<&'a str> for Ballot {
    /// Adds a vote of weight 1 for each answer.
    fn from_iter<I: IntoIterator<Item = &'a str>>(answers: I) -> Self {
        answers.into_iter().fold(Self::default(), |mut ballot, answer| {
            ballot.cast(answer, 1.0);
            ballot
        })
    }
}

/// Returns true if two answers are equivalent: word for word after the usual normalization, or as mathematics.
pub fn alike(a: &str, b: &str) -> bool {
    // Texts that normalize to nothing, such as signs, are not equivalent.
    exact_match(a, b) && !normalize(a).is_empty() || compare_answers(a, b) == AnswerVerdict::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_say_the_same_are_counted_together() {
        let ballot: Ballot =
            ["1/2", "The tower", "0.5", "tower", "\\frac{2}{4}"].into_iter().collect();
        assert_eq!(ballot.leaders(), ["1/2"]);
        assert_eq!(ballot.winner(Ties::None, 0).as_deref(), Some("1/2"));
    }

    #[test]
    fn ties_are_broken_as_the_policy_says() {
        let ballot: Ballot = ["a wolf", "a fox"].into_iter().collect();
        assert_eq!(ballot.winner(Ties::First, 1).as_deref(), Some("a wolf"));
        assert_eq!(ballot.winner(Ties::None, 1), None);
        let drawn = |seed| ballot.winner(Ties::Random, seed).unwrap_or_default();
        assert!(
            (0..32).any(|seed| drawn(seed) == "a fox") && (0..32).any(|s| drawn(s) == "a wolf")
        );
        assert_eq!(drawn(5), drawn(5));
        assert_eq!(Ballot::default().winner(Ties::First, 0), None);
    }

    #[test]
    fn weights_count() {
        let mut ballot: Ballot = ["4", "4"].into_iter().collect();
        ballot.cast("5", 2.5);
        assert_eq!(ballot.leaders(), ["5"]);
    }
}
