//! Recorded turns and actions that an episode begins with.

use std::collections::BTreeMap;

use crate::task::{Action, Observation};
use crate::trajectory::{
    Act, BranchPoint, Episode, Fault, FaultKind, Turn, TurnPath, request_seed,
};

/// Recorded turns and actions that an episode begins with, and the place at which it leaves them.
///
/// A recorded reply is given after its prompt was rendered again and compared with the recorded one. A recorded action is
/// executed again, so that the session of the environment has its state, and its observation is compared. A turn after that
/// place whose seat has the recorded random numbers there has the recorded reply if its prompt is the recorded one.
#[derive(Debug, Clone, PartialEq)]
pub struct Prefix {
    branch: BranchPoint,
    turns: BTreeMap<TurnPath, Turn>,
    acts: BTreeMap<(TurnPath, u32), Act>,
}

impl Prefix {
    /// Creates the beginning that a branch shares with an episode.
    pub fn new(episode: &Episode, branch: BranchPoint) -> Self {
        let seed = |point: Option<&BranchPoint>, turn: &Turn| {
            request_seed(episode.seed, point, &turn.path, &turn.seat)
        };
        let same = |turn: &&Turn| seed(episode.branch.as_ref(), turn) == seed(Some(&branch), turn);
        let turns = episode.turns.iter().filter(same);
        let turns = turns.map(|turn| (turn.path.clone(), turn.clone())).collect();
        let acts = episode.acts.iter().filter(|act| act.path <= branch.at);
        let acts = acts.map(|act| ((act.path.clone(), act.nth), act.clone())).collect();
        Self { branch, turns, acts }
    }

    /// Creates a beginning without records: every turn is sampled again, with the random numbers that it has in the branch.
    pub fn sampled(branch: BranchPoint) -> Self {
        Self { branch, turns: BTreeMap::new(), acts: BTreeMap::new() }
    }

    /// Returns the place at which the episode leaves the recorded one.
    pub fn branch(&self) -> &BranchPoint {
        &self.branch
    }

    /// Returns the recorded turn of a path.
    pub(super) fn turn(&self, path: &TurnPath) -> Option<&Turn> {
        self.turns.get(path)
    }

    /// Returns true if the turn of a path must have its recorded prompt.
    pub(super) fn binds(&self, path: &TurnPath) -> bool {
        self.branch.recalls(path)
    }

    /// Compares an action that was executed, and its observation, with the recorded ones.
    pub(super) fn check_act(
        &self,
        place: &(TurnPath, u32),
        (action, seen): (&Action, &Observation),
    ) -> Result<(), Fault> {
        let Some(recorded) = self.acts.get(place) else { return Ok(()) };
        let (path, nth) = (&place.0, place.1);
        let difference = if recorded.action != *action {
            format!("the action was {:?}, now {action:?}", recorded.action)
        } else if recorded.observation != seen.text || recorded.done != seen.done {
            format!("the observation was {:?}, now {:?}", recorded.observation, seen.text)
        } else {
            return Ok(());
        };
        let message = format!(
            "action {nth} before turn {path} differs from the recorded one, so that the episode has no branches: {difference}"
        );
        Err(Fault::new(FaultKind::Environment, message))
    }
}

/// Returns the fault of a recorded turn whose prompt is another one now.
pub(crate) fn other_prompt(recorded: &Turn) -> Fault {
    let message = format!(
        "the prompt of turn {} of `{}` differs from the recorded one, so that the episode has no branches: an orchestra may \
         depend on the task, the seed, replies and observations alone",
        recorded.path, recorded.seat
    );
    Fault::new(FaultKind::Orchestra, message)
}

#[cfg(test)]
mod tests;
