//! Conditions of the turns that become rows.

use std::fmt;
use std::str::FromStr;

use fancy_regex::Regex;

use crate::collect::example::CollectedExample;
use crate::collect::kind::Kind;
use crate::trajectory::Seat;

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Regex::new(text).map(Self).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl Pattern {
    /// Returns true if the expression matches a part of a text. One that takes too long does not.
    fn matches(&self, text: &str) -> bool {
        self.0.is_match(text).unwrap_or(false)
    }
}

/// Conditions of rows. A turn that the orchestra masked is never a row.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// Replies of solved episodes only; for supervised training.
    pub solved: bool,
    /// Minimum reward of the turn; for supervised training.
    pub min_reward: Option<f64>,
    /// Seats whose replies become rows, each as `search/verifier`, or `debate/debater#2`; empty for all.
    pub seats: Vec<Seat>,
    /// No replies that were truncated.
    pub no_truncated: bool,
    /// No replies that were malformed.
    pub no_errors: bool,
    /// Maximum number of sampled tokens of a reply.
    pub max_tokens: Option<usize>,
    /// Expressions, each of which must match the reply.
    pub matches: Vec<Pattern>,
    /// Expressions, none of which may match the reply.
    pub no_matches: Vec<Pattern>,
}

impl Filters {
    /// Returns the reason that a turn gives no row; `None` if it gives one.
    pub(super) fn reason(
        &self,
        kind: Kind,
        example: &CollectedExample<'_>,
    ) -> Option<&'static str> {
        let turn = example.turn;
        let sampled = turn.tokens.as_ref().map_or(0, |tokens| tokens.completion.len());
        let sft = kind == Kind::Sft;
        let checks = [
            ("masked", turn.masked),
            ("empty", turn.reply.trim().is_empty()),
            (
                "seat",
                !self.seats.is_empty() && !self.seats.iter().any(|seat| seat.covers(&turn.seat)),
            ),
            ("solved", sft && self.solved && !example.solved),
            ("min_reward", sft && self.min_reward.is_some_and(|least| example.reward < least)),
            ("truncated", self.no_truncated && turn.truncated),
            ("errors", self.no_errors && turn.error.is_some()),
            ("max_tokens", self.max_tokens.is_some_and(|most| sampled > most)),
            ("match", !self.matches.iter().all(|pattern| pattern.matches(&turn.reply))),
            ("no_match", self.no_matches.iter().any(|pattern| pattern.matches(&turn.reply))),
        ];
        checks.into_iter().find(|(_, removed)| *removed).map(|(reason, _)| reason)
    }
}
