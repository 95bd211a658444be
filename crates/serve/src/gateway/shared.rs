//! State that the episodes and the routes share: how a program starts, and what its end means.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Uri;
use serde_json::{Value, json};

use super::course::{End, EpisodeCourse, Exit, program_fault};
use super::directory::EpisodeDirectory;
use super::episodes::{Entered, Episodes};
use super::log::Log;
use super::options::{Mode, OnCrash, ProgramOptions, WorkDirectory};
use super::player::GatewayPlayer;
use super::process::{Left, Process};
use super::report::EpisodeFinish;
use super::workers::Workers;
use crate::metrics::ServerMetrics;
use crate::openai::Fields;
use crate::refusal::Refusal;
use maverl::orchestra::EpisodeState;
use maverl::trajectory::{Fault, FaultKind};

/// Exit code of a program that a reply of the policy ended (`EX_DATAERR`).
const BY_POLICY: i32 = 65;
/// Exit code of a program that failed for a passing reason (`EX_TEMPFAIL`).
const BY_PROGRAM: i32 = 75;

/// State that the episodes and the routes share.
pub(super) struct GatewayState {
    pub(super) options: ProgramOptions,
    /// Directory of relative paths.
    pub(super) base: PathBuf,
    /// Address that programs are told.
    pub(super) url: String,
    pub(super) episodes: Episodes,
    pub(super) workers: Workers,
    pub(super) metrics: ServerMetrics,
    pub(super) created: u64,
    /// True once it was told that sampling of requests has no effect.
    pub(super) warned: AtomicBool,
}

impl GatewayState {
    /// Returns the host of the address that programs are told.
    pub(super) fn host(&self) -> Option<String> {
        self.url.parse::<Uri>().ok()?.host().map(str::to_owned)
    }

    /// Starts the program of an episode, or waits until a worker claims it. It gets the description with the key.
    pub(super) async fn player(
        &self,
        state: &EpisodeState,
        entered: &Entered<'_>,
        told: &Value,
    ) -> Result<GatewayPlayer, String> {
        let mut told = told.clone();
        told["api_key"] = entered.key.as_str().into();
        let player = match self.options.mode {
            Mode::Episode => {
                let directory = self.directory(state.seed()).await?;
                self.start(state, entered, &told, directory)?
            }
            Mode::Worker => {
                GatewayPlayer::Worker(self.workers.offer(told, self.options.lease()).await?)
            }
        };
        let log = player.log();
        state.log_from(move || log.take());
        Ok(player)
    }

    /// Returns what a program is told of its episode. References of the task are told only where the options name them.
    pub(super) fn describe_episode(&self, state: &EpisodeState, id: &str) -> Value {
        let task = state.task();
        let data = self.options.data.iter();
        let data = data.filter_map(|key| Some((key.clone(), task.data.get(key)?.clone())));
        json!({
            "protocol": 1,
            "id": id,
            "seed": state.seed().to_string(),
            "task": {
                "id": task.id,
                "source": task.source,
                "question": task.question,
                "data": data.collect::<serde_json::Map<_, _>>(),
            },
            "models": self.options.models,
            "base_url": format!("{}/episodes/{id}/v1", self.url),
            "turns": 0,
        })
    }

    /// Creates the directory of an episode, if the options ask for one.
    async fn directory(&self, seed: u64) -> Result<Option<EpisodeDirectory>, String> {
        if self.options.workdir == WorkDirectory::Config {
            return Ok(None);
        }
        let files = Some(&self.options.files).filter(|files| !files.is_empty());
        let files = files.map(|files| self.base.join(files));
        let made =
            tokio::task::spawn_blocking(move || EpisodeDirectory::create(seed, files.as_deref()));
        made.await.map_err(|error| error.to_string())?.map(Some)
    }

    /// Starts the program of an episode with its description as input.
    fn start(
        &self,
        state: &EpisodeState,
        entered: &Entered<'_>,
        told: &Value,
        directory: Option<EpisodeDirectory>,
    ) -> Result<GatewayPlayer, String> {
        let episode = format!("{}/episodes/{}", self.url, entered.open.id);
        let (api, models) = (format!("{episode}/v1"), &self.options.models);
        let [first, last] =
            [models.first(), models.last()].map(|name| name.cloned().unwrap_or_default());
        let variables = vec![
            ("OPENAI_BASE_URL", api.clone()),
            ("OPENAI_API_BASE", api),
            ("OPENAI_API_KEY", entered.key.clone()),
            // Clients of Anthropic's append the whole path.
            ("ANTHROPIC_BASE_URL", episode.clone()),
            ("ANTHROPIC_AUTH_TOKEN", entered.key.clone()),
            ("ANTHROPIC_API_KEY", String::new()),
            ("ANTHROPIC_MODEL", first.clone()),
            ("ANTHROPIC_DEFAULT_OPUS_MODEL", first.clone()),
            ("ANTHROPIC_DEFAULT_SONNET_MODEL", first),
            ("ANTHROPIC_DEFAULT_HAIKU_MODEL", last),
            ("MAVERL_EPISODE_URL", episode),
            ("MAVERL_SEED", state.seed().to_string()),
            ("NO_PROXY", self.host().unwrap_or_else(|| "127.0.0.1".to_owned())),
        ];
        let (log, input) = (Log::default(), format!("{told}\n"));
        let output = log.clone();
        let process =
            Process::start(&self.options, &self.base, directory, variables, input, output)?;
        Ok(GatewayPlayer::Process(Box::new(process), log))
    }

    /// Returns the end of an episode whose program has ended.
    pub(super) async fn end_after_program(
        &self,
        course: &mut EpisodeCourse<'_>,
        left: Left,
    ) -> End {
        if let Some(end) = course.end.take() {
            return end;
        }
        match left.status.code() {
            Some(0) => {
                let Some(report) = left.report else {
                    course.exit = Some(Exit::Unreported);
                    return End::Answer(None);
                };
                let read =
                    Fields::parse(report.to_string().as_bytes()).and_then(EpisodeFinish::read);
                let finished = match read {
                    Ok(finish) => course.finish(finish).await,
                    Err(refusal) => Err(refusal),
                };
                match finished {
                    Ok(()) => course.end.take().unwrap_or(End::Answer(None)),
                    Err(Refusal { message, .. }) => {
                        End::Fault(program_fault(format!("the program's report: {message}")))
                    }
                }
            }
            Some(BY_POLICY) => End::Answer(None),
            Some(BY_PROGRAM) => End::Fault(program_fault(left.message())),
            _ => self.end_after_loss(course, left.message()),
        }
    }

    /// Returns the end of an episode whose program crashed, or whose worker is gone.
    pub(super) fn end_after_loss(&self, course: &mut EpisodeCourse<'_>, message: String) -> End {
        // Clients raise refusals, so most programs end with them.
        if course.was_limited() {
            return End::Answer(None);
        }
        course.exit = Some(Exit::Crashed);
        match self.options.on_crash {
            OnCrash::Score => End::Answer(None),
            OnCrash::Unscored => End::Fault(Fault::new(FaultKind::Crash, message)),
        }
    }

    /// Tells once that fields of sampling have no effect.
    pub(super) fn warn(&self, ignored: Option<&str>) {
        if let Some(name) = ignored
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            maverl::output::tell(format_args!(
                "warning: the program sends `{name}`; sampling of its requests has no effect, that of the run has \
                 (`[sampling]`)"
            ));
        }
    }
}
