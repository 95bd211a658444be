//! Environments that block their thread delay only their own episode.

use std::future::{Future, poll_fn};
use std::pin::pin;

use tokio::runtime::{Handle, RuntimeFlavor};

/// Awaits an environment. A poll that blocks its thread delays only this task: other tasks of the thread move to
/// another thread.
pub(super) async fn poll_blocking<F: Future>(environment: F) -> F::Output {
    let mut environment = pin!(environment);
    poll_fn(|context| block_in_place(|| environment.as_mut().poll(context))).await
}

/// Runs work that may block its thread. In a single-threaded runtime it blocks the only thread.
pub(crate) fn block_in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
