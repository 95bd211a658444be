//! Reward parts and metrics of a running episode.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::trajectory::{RewardOf, RewardPart, Seat, Turn, TurnPath};

/// Reward parts and metrics of a running episode.
#[derive(Default)]
pub(super) struct RewardParts {
    pay: Vec<(Recipient, Cow<'static, str>, f64)>,
    notes: BTreeMap<Cow<'static, str>, Vec<f64>>,
}

impl RewardParts {
    /// Adds a part.
    pub(super) fn add(&mut self, recipient: Recipient, name: Cow<'static, str>, value: f64) {
        self.pay.push((recipient, name, value));
    }

    /// Adds a value of a metric.
    pub(super) fn log(&mut self, name: Cow<'static, str>, value: f64) {
        self.notes.entry(name).or_default().push(value);
    }

    /// Returns the parts for an episode of these turns. Their order does not depend on the order in which they were added.
    pub(super) fn of_turns(&self, turns: &[Turn]) -> Vec<RewardPart> {
        let mut pay = self.pay.clone();
        pay.sort_by(|(a, x, v), (b, y, w)| (a, x).cmp(&(b, y)).then(v.total_cmp(w)));
        let parts = pay.into_iter().filter_map(|(payee, name, value)| {
            Some(RewardPart { name: name.into_owned(), value, of: payee.resolve(turns)? })
        });
        parts.collect()
    }

    /// Returns the mean of each logged metric.
    pub(super) fn metric_means(&self) -> Map<String, Value> {
        let means = self.notes.iter().map(|(name, values)| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (name.to_string(), mean.into())
        });
        means.collect()
    }
}

/// Recipient of a reward part. A turn has no index before the episode ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recipient {
    /// Every turn of the episode.
    Episode,
    /// Every turn of a seat.
    Seat(Seat),
    /// One turn.
    Turn(TurnPath),
}

impl Recipient {
    /// Returns the recipient in an episode of these turns; `None` for a turn that is not one of them.
    fn resolve(self, turns: &[Turn]) -> Option<RewardOf> {
        match self {
            Self::Episode => Some(RewardOf::Episode),
            Self::Seat(seat) => Some(RewardOf::Seat(seat)),
            Self::Turn(path) => turns.iter().position(|t| t.path == path).map(RewardOf::Turn),
        }
    }
}
