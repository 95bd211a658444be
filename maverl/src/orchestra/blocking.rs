//! Environments that block their thread: what they hold up is their own episode.

use std::future::{Future, poll_fn};
use std::pin::pin;

use tokio::runtime::{Handle, RuntimeFlavor};

/// Waits for an environment. A poll that blocks its thread blocks this task alone: the thread's other tasks go on in
/// another one.
pub(super) async fn poll_blocking<F: Future>(environment: F) -> F::Output {
    let mut environment = pin!(environment);
    poll_fn(|context| block_in_place(|| environment.as_mut().poll(context))).await
}

/// Does work that may block its thread. A runtime of one thread has no other one.
pub(crate) fn block_in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
