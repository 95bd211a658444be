//! Followers of a run: processes of this program that report it to trackers while it runs, as `maverl track` does.
//!
//! They read the files of the run alone. Nothing that they do, or that a tracker does, can slow or end the run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::check::missing_part;
use crate::cli::failure::Failure;
use crate::cli::terminal::tell;
use crate::config::{TrackConfig, TrackTarget};
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::{RunLocation, TRACK, tracked_url, tracker_log};
use crate::train::{self, Options, Progress, Report, StepLine, TrainError};
use crate::trajectory::Episode;

/// Pause between two looks at followers that are waited for.
const LOOK: Duration = Duration::from_millis(50);
/// Time of waiting for followers after which the user is told.
const QUIET: Duration = Duration::from_secs(1);

/// Trains as [`train::train`] does, with a follower for each tracker of the plan. Those that the run does not need to wait for
/// are left to themselves.
pub(super) async fn train_tracked(
    plan: &Plan,
    registry: &Registry,
    options: Options,
) -> Result<Report, TrainError> {
    let config = &plan.config.track;
    let leads = options.launch.as_ref().is_none_or(|launch| launch.rank == 0);
    if config.to.is_empty() || !leads {
        return Box::pin(train::train(plan, registry, options)).await;
    }
    let inner = Arc::clone(&options.progress);
    let followed = Arc::new(Followed { inner, config: config.clone(), started: Mutex::default() });
    let progress: Arc<dyn Progress> = Arc::clone(&followed) as Arc<dyn Progress>;
    let options = Options { progress, ..options };
    let report = Box::pin(train::train(plan, registry, options)).await;
    if report.is_ok() {
        followed.wait().await;
    }
    report
}

/// Refuses a new run whose trackers need a package or an address that is not there; of a resumed one, it is a warning.
pub(super) fn check_packages(config: &TrackConfig, place: &RunLocation) -> Result<(), Failure> {
    for missing in config.to.iter().filter_map(|target| missing_part(config, target)) {
        match place {
            RunLocation::Resume(_) => tell(format_args!("warning: {missing}")),
            _ => return Err(Failure(missing)),
        }
    }
    Ok(())
}

/// Progress of a run that is followed.
struct Followed {
    inner: Arc<dyn Progress>,
    config: TrackConfig,
    started: Mutex<Vec<Follower>>,
}

/// A process that reports the run to a tracker.
struct Follower {
    target: TrackTarget,
    dir: PathBuf,
    child: Child,
}

impl Followed {
    fn started(&self) -> MutexGuard<'_, Vec<Follower>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a follower, whose output is in `track/NAME.log`.
    fn start(&self, target: &TrackTarget, dir: &Path) -> std::io::Result<Follower> {
        let folder = dir.join(TRACK);
        fs::create_dir_all(&folder)?;
        let name = target.tracker.name();
        let log = File::options().create(true).append(true).open(tracker_log(dir, name))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("track").arg(dir).args(["--to", &target.to_string()]);
        command.args(["--follow", &std::process::id().to_string()]);
        command.args(["--track-python", &self.config.python]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt as _;
            // A terminal's signals are for the run; what it wrote until then is still sent.
            command.process_group(0);
        }
        Ok(Follower { target: target.clone(), dir: dir.to_owned(), child: command.spawn()? })
    }

    /// Says once which followers have ended before the run.
    fn report_ended(&self) {
        self.started().retain_mut(|follower| {
            let ended = matches!(follower.child.try_wait(), Ok(Some(_)));
            if ended {
                self.warn_missing(follower);
            }
            !ended
        });
    }

    /// Says that a tracker lacks rows, and what sends them.
    fn warn_missing(&self, Follower { target, dir, .. }: &Follower) {
        let (name, dir) = (target.tracker.name(), dir.display());
        self.inner.warn(&format!(
            "{name} has not all rows of the run (`{dir}/track/{name}.log`): `maverl track {dir} --to {target}` sends what is \
             missing"
        ));
    }

    /// Says where the run's page at a tracker is.
    fn note_page(&self, Follower { target, dir, .. }: &Follower) {
        let name = target.tracker.name();
        if let Some(url) = tracked_url(dir, name) {
            self.inner.note(&format!("{name} has the run: {url}"));
        }
    }

    /// Waits for the followers, as long as the configuration says.
    async fn wait(&self) {
        let (begun, wait_s) = (Instant::now(), self.config.wait_s.clamp(0.0, 1e9));
        let end = begun + Duration::from_secs_f64(wait_s);
        let followers = std::mem::take(&mut *self.started());
        let mut is_told = false;
        for mut follower in followers {
            let sent = loop {
                match follower.child.try_wait() {
                    Ok(Some(status)) => break status.success(),
                    Ok(None) if Instant::now() < end => tokio::time::sleep(LOOK).await,
                    Ok(None) | Err(_) => break false,
                }
                if !is_told && begun.elapsed() > QUIET {
                    is_told = true;
                    let name = follower.target.tracker.name();
                    self.inner
                        .note(&format!("{name} gets the last rows; `track.wait_s` is {wait_s} s"));
                }
            };
            if sent {
                self.note_page(&follower);
            } else {
                self.warn_missing(&follower);
            }
        }
    }
}

impl Progress for Followed {
    fn opened(&self, dir: &Path) {
        for target in &self.config.to {
            match self.start(target, dir) {
                Ok(follower) => self.started().push(follower),
                Err(error) => self.inner.warn(&format!(
                    "the run is not reported to {}: {error}",
                    target.tracker.name()
                )),
            }
        }
        self.inner.opened(dir);
    }

    fn begin(&self, done: u64, steps: u64) {
        self.inner.begin(done, steps);
    }

    fn play(&self, what: &str, episodes: u64) {
        self.inner.play(what, episodes);
    }

    fn played(&self, ended: u64, tokens: u64) {
        self.inner.played(ended, tokens);
    }

    fn on_episode(&self, episode: &Episode) {
        self.inner.on_episode(episode);
    }

    fn work(&self, what: &str) {
        self.inner.work(what);
    }

    fn step(&self, line: &StepLine) {
        self.inner.step(line);
        self.report_ended();
    }

    fn note(&self, text: &str) {
        self.inner.note(text);
    }

    fn warn(&self, text: &str) {
        self.inner.warn(text);
    }

    fn end(&self) {
        self.inner.end();
    }
}
