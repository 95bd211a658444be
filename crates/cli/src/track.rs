//! `maverl track`: reports a run to a tracker, from its files.
//!
//! The run directory is the truth and the spool. This process reads it and writes into its folder `track` alone, so that it can
//! neither slow nor change a run, and what a tracker lacks can be sent at any time.

mod child;
mod cursor;
mod follow;
mod mlflow;
mod reader;
mod server;
mod spool;
mod trackio;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use maverl::config::{TrackConfig, TrackTarget, Tracker};
use maverl::run_dir::{TRACK, tracker_lags};

use self::child::PythonClient;
use self::cursor::Cursor;
use self::follow::{TrainerProcess, follow};
use self::mlflow::Mlflow;
use self::server::SendResult;
use self::spool::{RunState, Spool, SpoolRow};
use self::trackio::{Trackio, trackio_server};
use super::{Failure, number, paths, tell};

/// Project of runs, unless something names one.
const PROJECT: &str = "maverl";

/// Arguments of `maverl track`.
#[derive(Args)]
pub(crate) struct TrackArgs {
    /// Run directory.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Tracker: `mlflow`, `trackio`, `wandb` or `swanlab`; `mlflow=URL` and `trackio=URL` name a server.
    #[arg(long, value_name = "NAME")]
    to: TrackTarget,
    /// Send rows as they are written, until this process, which trains the run, has ended.
    #[arg(long, value_name = "PID", value_parser = number::small)]
    follow: Option<u32>,
    /// Join the run with this id at the tracker, if the run was never sent to it.
    #[arg(long, value_name = "ID")]
    track_id: Option<String>,
    /// Python that has the package of the tracker. [default: `track.python`]
    #[arg(long, value_name = "PYTHON")]
    track_python: Option<String>,
}

/// A run, as trackers see it.
struct TrackedRun {
    tracker: Tracker,
    server: Option<String>,
    project: String,
    name: String,
    group: String,
    /// Id of a run at the tracker that is joined.
    joins: Option<String>,
    settings: BTreeMap<String, String>,
    episodes: usize,
    python: String,
    /// Maximum time for which a server may fail after the end of the run.
    wait: Duration,
    /// Folder of the cursors.
    folder: PathBuf,
    start_ms: u64,
}

/// Client of a tracker.
trait TrackerClient {
    /// Returns the maximum number of rows that are sent at once.
    fn batch(&self) -> usize {
        50
    }

    /// Sends rows, all of which the tracker has afterwards.
    fn send(&mut self, rows: &[SpoolRow]) -> SendResult;

    /// Says how the run has ended.
    fn finish(&mut self, state: RunState, end_ms: u64) -> SendResult;
}

impl TrackedRun {
    fn new(args: &TrackArgs, dir: &Path) -> Result<Self, Failure> {
        let config = track_config(dir)?;
        let own = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let spool = Spool::new(dir, config.episodes);
        let configured = config.to.iter().find(|target| target.tracker == args.to.tracker);
        let server = args.to.server.clone().or_else(|| configured?.server.clone());
        let or =
            |text: String, other: &dyn Fn() -> String| if text.is_empty() { other() } else { text };
        Ok(Self {
            tracker: args.to.tracker,
            server,
            project: or(config.project, &project),
            name: or(config.name, &|| own.clone().unwrap_or_else(|| PROJECT.to_owned())),
            group: config.group,
            joins: args.track_id.clone(),
            settings: spool.settings(),
            episodes: config.episodes,
            python: args.track_python.clone().unwrap_or(config.python),
            wait: Duration::from_secs_f64(config.wait_s.clamp(0.0, 1e9)),
            folder: dir.join(TRACK),
            start_ms: spool.start_ms(),
        })
    }

    fn warn(&self, message: &str) {
        tell(format_args!("warning: {}: {message}", self.tracker.name()));
    }
}

/// Sends a run to a tracker.
pub(crate) fn track(args: &TrackArgs) -> Result<ExitCode, Failure> {
    let dir = std::path::absolute(paths::run(&args.run)?.path())?;
    let run = TrackedRun::new(args, &dir)?;
    fs::create_dir_all(&run.folder)?;
    // Two processes do not send the same rows: this one waits for another.
    let mut lock = File::options()
        .create(true)
        .append(true)
        .open(run.folder.join(format!("{}.lock", run.tracker.name())))?;
    lock.lock()?;
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())?;
    let process = args.follow.and_then(|id| i32::try_from(id).ok());
    let trainer = process.map_or(TrainerProcess::Nobody, TrainerProcess::process);
    if process.is_some() {
        yield_processor();
    }
    match follow(&run, &dir, trainer) {
        Ok(()) => {
            tell_sent(&run, &dir);
            Ok(ExitCode::SUCCESS)
        }
        Err(message) => Err(Failure(format!("{}: {message}", run.tracker.name()))),
    }
}

/// Says what the tracker has of the run, and where.
fn tell_sent(run: &TrackedRun, dir: &Path) {
    let name = run.tracker.name();
    let lags = tracker_lags(dir);
    lags.iter().filter(|lag| lag.tracker == name).for_each(|lag| tell(format_args!("{lag}")));
}

/// Lets other processes, such as that which trains, have the processor first.
fn yield_processor() {
    #[cfg(unix)]
    let _ = rustix::process::nice(10);
}

/// Returns what sends rows to the tracker of a run.
fn connect(run: &TrackedRun, cursor: &mut Cursor) -> SendResult<Box<dyn TrackerClient>> {
    Ok(match (run.tracker, trackio_server(run)) {
        (Tracker::Mlflow, _) => Box::new(Mlflow::open(run, cursor)?),
        (Tracker::Trackio, Some(server)) => Box::new(Trackio::open(run, server, cursor)?),
        (tracker, _) => Box::new(PythonClient::open(run, tracker.name(), cursor)?),
    })
}

/// Reads `[track]` of the configuration of a run.
fn track_config(dir: &Path) -> Result<TrackConfig, Failure> {
    let path = dir.join("resolved.toml");
    let text = fs::read_to_string(&path)?;
    let table = text.parse::<toml::Table>();
    let table = table.map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    match table.get("track") {
        None => Ok(TrackConfig::default()),
        Some(track) => track
            .clone()
            .try_into()
            .map_err(|error| Failure(format!("{}: `track`: {error}", path.display()))),
    }
}

/// Returns the project that the environment names.
fn project() -> String {
    let named = ["MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT"].into_iter().find_map(variable);
    named.unwrap_or_else(|| PROJECT.to_owned())
}

/// Returns the value of an environment variable; `None` if it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
