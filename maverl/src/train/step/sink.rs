//! Receivers of episodes as they end.
//!
//! A program registers an [`EpisodeSink`] in its options. A sink gets each episode as soon as it ends, in any order.
//! The files of a run have one order: by task, then by the episode's index among those of its task. Episodes of
//! replaced tasks (`resample`), greedy episodes (ReMax) and branches come after the others, in the same order. An episode is
//! written when all before it have ended.

use std::error::Error;
use std::sync::Arc;

use serde::Serialize;

use crate::train::error::TrainError;
use crate::train::progress::{Progress, StepLine};
use crate::trajectory::Episode;

/// Error of a sink. It ends the run.
pub type SinkError = Box<dyn Error + Send + Sync>;

/// An episode that has just ended.
#[derive(Debug, Clone, Copy, Serialize)]
#[non_exhaustive]
pub struct EndedEpisode<'e> {
    /// `train`, or `eval/` and the name of the split.
    pub stage: &'e str,
    /// Number of the step, from 1; 0 for evaluations, whose episodes do not depend on the step.
    pub step: u64,
    /// The episode. Rewards that need the whole step, such as a KL penalty, are not in it yet.
    pub episode: &'e Episode,
}

/// Receiver of the episodes of a run, each as soon as it ends: to watch them, to store them elsewhere, or to stream them
/// to another process. Registered with [`Options::sink`](crate::train::Options::sink).
///
/// Episodes arrive in the order in which they end, which depends on timing; their task and index identify them. A
/// resumed run sends the episodes of a repeated step again. Nothing that a sink does changes the numbers of the run.
///
/// ```
/// use std::io::Write;
/// use std::net::TcpStream;
/// use std::sync::{Mutex, PoisonError};
///
/// use maverl::run_dir::RunLocation;
/// use maverl::train::{EndedEpisode, EpisodeSink, Options, SinkError};
///
/// /// Sends each episode as a line of JSON.
/// struct Stream(Mutex<TcpStream>);
///
/// impl EpisodeSink for Stream {
///     fn on_episode(&self, ended: &EndedEpisode<'_>) -> Result<(), SinkError> {
///         let mut line = serde_json::to_vec(ended)?;
///         line.push(b'\n');
///         let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         Ok(stream.write_all(&line)?)
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// let stream = Stream(Mutex::new(TcpStream::connect(address)?));
/// let options = Options::new(RunLocation::New("runs/mine".into())).sink(stream);
/// # let _ = options;
/// # Ok(())
/// # }
/// ```
pub trait EpisodeSink: Send + Sync {
    /// Receives an episode. Called between two polls of the rollout: a sink that waits for a slow receiver delays the
    /// start of further episodes, so it should hand them to a thread.
    ///
    /// # Errors
    ///
    /// An error ends the run. A sink that may lose episodes returns `Ok`.
    fn on_episode(&self, ended: &EndedEpisode<'_>) -> Result<(), SinkError>;
}

impl<S: EpisodeSink + ?Sized> EpisodeSink for Arc<S> {
    fn on_episode(&self, ended: &EndedEpisode<'_>) -> Result<(), SinkError> {
        (**self).on_episode(ended)
    }
}

/// Receivers of the events of a run: the progress display and the sinks.
#[derive(Clone)]
pub(crate) struct Observers {
    /// Receiver of progress.
    pub(crate) progress: Arc<dyn Progress>,
    /// Receivers of episodes.
    pub(crate) sinks: Vec<Arc<dyn EpisodeSink>>,
    /// Purpose of the episodes of a held-out split, for the progress display.
    pub(crate) held_out: HeldOutSink,
}

/// Purpose of the episodes of a held-out split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldOutSink {
    /// Evaluation of the team.
    Evaluation,
    /// A data set.
    Data,
}

impl Observers {
    /// Returns observers of evaluations, without sinks.
    pub(crate) fn new(progress: &Arc<dyn Progress>) -> Self {
        let (progress, held_out) = (Arc::clone(progress), HeldOutSink::Evaluation);
        Self { progress, sinks: Vec::new(), held_out }
    }

    /// Returns observers of the same episodes that show no progress otherwise.
    pub(crate) fn without_display(&self) -> Self {
        let progress = Arc::new(EpisodesAlone(Arc::clone(&self.progress)));
        Self { progress, ..self.clone() }
    }

    /// Reports an episode that has just ended.
    pub(crate) fn on_episode(&self, ended: &EndedEpisode<'_>) -> Result<(), TrainError> {
        self.progress.on_episode(ended.episode);
        let sent = self.sinks.iter().try_for_each(|sink| sink.on_episode(ended));
        sent.map_err(|source| TrainError::Sink { step: ended.step, source })
    }
}

/// Progress of episodes that are played while the display shows other work.
struct EpisodesAlone(Arc<dyn Progress>);

impl Progress for EpisodesAlone {
    fn on_episode(&self, episode: &Episode) {
        self.0.on_episode(episode);
    }
    fn begin(&self, _: u64, _: u64) {}
    fn step(&self, _: &StepLine) {}
    fn note(&self, text: &str) {
        self.0.note(text);
    }
    fn warn(&self, text: &str) {
        self.0.warn(text);
    }
    fn end(&self) {}
}
