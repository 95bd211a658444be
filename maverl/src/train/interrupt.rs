//! Stopping a run without losing any of it.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

/// A request to stop after the current step. Clones share it.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<watch::Sender<bool>>);

impl Default for Interrupt {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Interrupt {
    /// Raised by the first SIGINT or SIGTERM. A second one ends the process at once, with exit code 130; nothing written
    /// is damaged by that. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the system refuses a handler.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        let mut signals = Signals::listen()?;
        let raised = interrupt.clone();
        tokio::spawn(async move {
            signals.next().await;
            raised.raise();
            signals.next().await;
            std::process::exit(130);
        });
        Ok(interrupt)
    }

    /// Asks the run to stop.
    pub fn raise(&self) {
        self.0.send_replace(true);
    }

    /// Whether the run was asked to stop.
    pub fn raised(&self) -> bool {
        *self.0.borrow()
    }

    /// The output of a future, or `None` if the run is asked to stop before there is one.
    pub async fn or<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut raised = self.0.subscribe();
        tokio::select! {
            biased;
            // The sender is `self`, so waiting cannot fail.
            _ = raised.wait_for(|raised| *raised) => None,
            output = future => Some(output),
        }
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_under_way_is_dropped_when_the_run_is_asked_to_stop() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.or(async { 7 }).await, Some(7));
        let other = interrupt.clone();
        let stop = async move { other.raise() };
        let (output, ()) = tokio::join!(interrupt.or(std::future::pending::<u8>()), stop);
        assert_eq!(output, None);
        assert!(interrupt.raised());
    }
}
