//! Versions of the weights that sample the turns of an episode (`rollout.advance_turns`).
//!
//! ```text
//! version of turn j = min(first + ⌊j / m⌋, last)        j asks and branches were called before it
//! ```
//!
//! *First* is the version with which the episodes of a step begin, and *last* the one that the step trains. The version
//! follows from the path of the turn, and not from time: a turn waits until its version exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::plan::Plan;
use crate::runtime::Policy;
use crate::trajectory::{Fault, FaultKind, Seat, TurnPath};

/// Policies of a run by version, those of one version in the plan's order.
pub(crate) type PolicyVersions = BTreeMap<u64, Vec<Policy>>;

/// Clock of waits: the time since any moment before.
pub(crate) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Versions of the turns of a step's episodes, as a function of the paths of the turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnSchedule {
    /// Version with which episodes begin.
    pub(crate) first: u64,
    /// Newest version with which they go on.
    pub(crate) last: u64,
    /// Number of turns after which an episode goes on with the next version; 0 if it has one version.
    pub(crate) turns: u64,
}

impl TurnSchedule {
    /// Returns the version that samples the turn of a path.
    pub(crate) fn version(self, path: &TurnPath) -> u64 {
        let number: u64 = path.0.iter().map(|&called| u64::from(called)).sum();
        let later = number.checked_div(self.turns).unwrap_or(0);
        self.first.saturating_add(later).min(self.last)
    }
}

/// Versions of the turns of a step's episodes, and the policies of those that exist.
#[derive(Clone)]
pub(crate) struct TurnVersions {
    schedule: TurnSchedule,
    /// Seats whose policies are updated.
    seats: BTreeSet<Seat>,
    existing: watch::Receiver<PolicyVersions>,
    /// Measures waits, which are no part of the time of an episode.
    clock: Clock,
}

impl TurnVersions {
    /// Creates the versions of a step's episodes. `existing` gets each version when it exists.
    pub(crate) fn new(
        plan: &Plan,
        schedule: TurnSchedule,
        existing: watch::Receiver<PolicyVersions>,
        clock: Clock,
    ) -> Self {
        Self { schedule, seats: updated_seats(plan), existing, clock }
    }

    /// Returns the time of the clock.
    pub(super) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Returns true if the policy of a seat is updated, so that its turns have versions.
    pub(super) fn contains(&self, seat: &Seat) -> bool {
        self.seats.contains(seat)
    }

    /// Returns the version that the turn of a seat waits for; `None` if it waits for none.
    pub(super) fn awaited(&self, seat: &Seat, path: &TurnPath) -> Option<u64> {
        let version = self.schedule.version(path);
        let exists = || self.existing.borrow().contains_key(&version);
        (self.contains(seat) && !exists()).then_some(version)
    }

    /// Waits until a version exists.
    pub(super) async fn wait_for(&self, version: u64) -> Result<(), Fault> {
        let mut existing = self.existing.clone();
        let found = existing.wait_for(|versions| versions.contains_key(&version)).await;
        found.map(drop).map_err(|_| missing(version))
    }

    /// Returns the policy of an index with the weights that sample the turn of a path.
    pub(crate) fn policy(&self, path: &TurnPath, index: usize) -> Result<Policy, Fault> {
        let version = self.schedule.version(path);
        let existing = self.existing.borrow();
        let policies = existing.get(&version).ok_or_else(|| missing(version))?;
        Ok(policies[index].clone())
    }
}

/// Returns the seats whose policies are updated.
pub(crate) fn updated_seats(plan: &Plan) -> BTreeSet<Seat> {
    let updated = plan.seats.iter().filter(|seat| plan.policies[seat.policy].trained);
    updated.map(|seat| seat.seat.clone()).collect()
}

fn missing(version: u64) -> Fault {
    let message =
        format!("the weights after {version} steps, which sample this turn, do not exist");
    Fault::new(FaultKind::Worker, message)
}

#[cfg(test)]
mod tests;
