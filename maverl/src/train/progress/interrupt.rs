//! Stopping a run without losing completed work.
//!
//! The first SIGINT or SIGTERM finishes the step, writes checkpoint and summary, and exits with 130. The second ends
//! the process at once.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::train::progress::Progress;

/// A request to stop after the current step. Clones share it.
#[derive(Clone)]
pub struct Interrupt(Arc<SharedInterrupt>);

struct SharedInterrupt {
    raised: watch::Sender<bool>,
    under_way: Mutex<UnderWay>,
}

/// Messages for the user when the run is asked to stop.
#[derive(Default)]
struct UnderWay {
    progress: Option<Arc<dyn Progress>>,
    /// Description of the work that is finished before the run stops.
    stopping: String,
    /// Command that resumes the run.
    resume: String,
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt").field(&self.is_raised()).finish()
    }
}

impl Default for Interrupt {
    fn default() -> Self {
        let (raised, under_way) = (watch::Sender::new(false), Mutex::default());
        Self(Arc::new(SharedInterrupt { raised, under_way }))
    }
}

impl Interrupt {
    /// Returns an interrupt that the first SIGINT or SIGTERM raises. A second one ends the process at once, with exit
    /// code 130; written files stay valid. Must be called inside a tokio runtime.
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
            raised.say_resume();
            std::process::exit(130);
        });
        Ok(interrupt)
    }

    /// Sets the progress display that reports a request to stop.
    pub fn tell(&self, progress: Arc<dyn Progress>) {
        self.under_way().progress = Some(progress);
    }

    /// Sets the description of the work that is finished before the run stops, as "finishing step 8".
    pub fn stopping_means(&self, what: impl Into<String>) {
        self.under_way().stopping = what.into();
    }

    /// Sets the command that resumes the run.
    pub fn goes_on_with(&self, command: impl Into<String>) {
        self.under_way().resume = command.into();
    }

    /// Forgets the work and the run of the messages: the run has ended, and another may follow.
    pub(crate) fn end_run(&self) {
        let UnderWay { stopping, resume, .. } = &mut *self.under_way();
        stopping.clear();
        resume.clear();
    }

    /// Asks the run to stop, and reports the work that is still to be finished.
    pub fn raise(&self) {
        self.raise_by("", "; again to stop now");
    }

    /// Asks the run to stop because another rank was asked to.
    pub(crate) fn raise_for(&self, rank: usize) {
        self.raise_by(&format!("rank {rank} was asked to stop: "), "");
    }

    fn raise_by(&self, before: &str, after: &str) {
        if self.0.raised.send_replace(true) {
            return;
        }
        let UnderWay { progress, stopping, .. } = &*self.under_way();
        if let Some(progress) = progress {
            let what = if stopping.is_empty() { "stopping" } else { stopping };
            progress.note(&format!("{before}{what}{after}"));
        }
    }

    /// Reports the command that resumes the run.
    fn say_resume(&self) {
        let UnderWay { progress, resume, .. } = &*self.under_way();
        if let Some(progress) = progress.as_ref().filter(|_| !resume.is_empty()) {
            progress.note(&format!("stopped; go on with `{resume}`"));
        }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the run was asked to stop.
    pub fn is_raised(&self) -> bool {
        *self.0.raised.borrow()
    }

    /// Awaits a future, and returns its output, or `None` if the run is asked to stop first.
    pub async fn or<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut raised = self.0.raised.subscribe();
        tokio::select! {
            biased;
            // The sender is `self`, so waiting cannot fail.
            _ = raised.wait_for(|raised| *raised) => None,
            output = future => Some(output),
        }
    }
}

#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) {
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
        assert!(interrupt.is_raised());
    }
}
