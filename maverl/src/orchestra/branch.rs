//! Where turns stand: numbers taken in the order in which asks are written, and the notice of those that are not.
//!
//! An ask takes its number when it is called. Concurrent parts that go on after an await would take theirs in the order
//! of completion: that is so exactly if something of the branch has ended while something else of it is under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::trajectory::TurnPath;

/// The message of the fault that a raced ask ends with.
pub(super) const RACED: &str = "concurrent parts of the orchestra ask or act more than once \
    each, so the order of completion would decide their turns; give each part a `team.branch()`";

/// Numbers the asks of one branch, and notices when completion would decide their order.
#[derive(Default)]
pub(super) struct Branch {
    path: TurnPath,
    /// The branch itself was taken in an order that completion decided.
    raced: bool,
    state: Mutex<BranchState>,
}

#[derive(Default)]
struct BranchState {
    next: u32,
    in_flight: usize,
    /// An ask or act ended while another was in flight: whoever asks now may owe its turn to the order of completion.
    raced: bool,
}

impl Branch {
    /// A branch at `path`; `raced` if completion decided that it was taken there.
    pub(super) fn new(path: TurnPath, raced: bool) -> Self {
        Self { path, raced, state: Mutex::default() }
    }

    /// Where it stands.
    pub(super) fn path(&self) -> &TurnPath {
        &self.path
    }

    /// The next place, and whether its number depends on which concurrent ask or act ended first.
    pub(super) fn next(&self) -> (TurnPath, bool) {
        let mut state = lock(&self.state);
        let mut path = self.path.clone();
        path.0.push(state.next);
        state.next += 1;
        (path, self.raced || state.raced)
    }
}

/// An ask or act under way in a branch, until it ends or is dropped.
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

/// Turns are pushed whole, so a panic elsewhere leaves nothing half-written behind a poisoned lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
