//! Paths of turns: numbers in call order, and detection of numbers that depend on the order of completion.
//!
//! An ask gets its number when it is called. Concurrent parts that continue after an await would get numbers in the
//! order of completion. This happens exactly if an ask or action of the branch has ended while another one of it is
//! running.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::trajectory::TurnPath;

/// Message of the fault of an ask with a race.
pub(super) const RACED: &str = "concurrent parts of the orchestra ask or act more than once \
    each, so the order of completion would decide their turns; give each part a `team.branch()`";

/// Numbers the asks of one branch, and detects an order that depends on completion.
#[derive(Default)]
pub(super) struct Branch {
    path: TurnPath,
    /// True if the path of the branch itself depends on the order of completion.
    raced: bool,
    state: Mutex<BranchState>,
}

#[derive(Default)]
struct BranchState {
    next: u32,
    /// Number of actions since the last ask.
    acts: u32,
    in_flight: usize,
    /// True if an ask or action ended while another was running, so that the next path may depend on the order of
    /// completion.
    raced: bool,
}

impl Branch {
    /// Creates a branch at `path`; `raced` if that path depends on the order of completion.
    pub(super) fn new(path: TurnPath, raced: bool) -> Self {
        Self { path, raced, state: Mutex::default() }
    }

    /// Returns the path of the branch.
    pub(super) fn path(&self) -> &TurnPath {
        &self.path
    }

    /// Returns the next path, and true if it depends on which concurrent ask or action ended first.
    pub(super) fn next(&self) -> (TurnPath, bool) {
        let mut state = lock(&self.state);
        let mut path = self.path.clone();
        path.0.push(state.next);
        state.next += 1;
        state.acts = 0;
        (path, self.raced || state.raced)
    }

    /// Returns the place of an action that is called now: the path of the next ask, and the number of the action
    /// before it.
    pub(super) fn next_act(&self) -> (TurnPath, u32) {
        let mut state = lock(&self.state);
        let (mut path, nth) = (self.path.clone(), state.acts);
        path.0.push(state.next);
        state.acts += 1;
        (path, nth)
    }
}

/// A running ask or action of a branch, until it ends or is dropped.
pub(super) struct Flight(Arc<Branch>);

impl Flight {
    pub(super) fn start(branch: &Arc<Branch>) -> Self {
        lock(&branch.state).in_flight += 1;
        Self(Arc::clone(branch))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.in_flight -= 1;
        state.raced = state.in_flight > 0;
    }
}

/// Locks a mutex and ignores poisoning: turns are pushed whole, so a panic elsewhere leaves no partial state.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
