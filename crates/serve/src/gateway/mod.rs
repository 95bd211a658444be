//! The gateway: a program that speaks OpenAI's protocol plays as an orchestra, and is trained.
//!
//! Each episode has a process and a key. The program's requests are calls of the run's seats: they are sampled by the run's
//! engine, and recorded as turns with exactly their token ids and log-probs.
//!
//! A request is passed to the async task of its episode, which generates the reply, records the turn and answers. So
//! RO-1, RO-2 and the time limit hold as for an orchestra. An episode has a process of its own, or a long-lived one
//! *claims* it (`workers`): the time limit then begins with the claim, and a process that is silent for
//! `orchestra.lease_s` seconds loses the episode.

mod answer;
mod call;
mod course;
mod dialect;
mod episodes;
mod history;
mod log;
mod mcp;
mod options;
mod order;
mod player;
mod process;
mod report;
mod routes;
#[cfg(test)]
mod tests;
mod workers;

pub use options::{Mode, OnCrash, ProgramOptions, Structure};

use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::Uri;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::base::{Health, Ready, base};
use crate::guard::Guard;
use crate::listener::{Limits, Listener};
use crate::metrics::{Family, Kind, Metrics};
use crate::openai::{Fields, now};
use crate::refusal::Refusal;
use course::{Course, End, Exit};
use episodes::{Entered, Episodes};
use log::Log;
use maverl::agent::AskError;
use maverl::orchestra::{EpisodePlayer, EpisodeState};
use maverl::trajectory::{Fault, FaultKind, Seat};
use player::{Ended, Player};
use process::{Left, Process};
use report::Finish;
use workers::Workers;

/// Number of requests of an episode that wait to be handled.
const WAITING: usize = 64;
/// Exit code of a program that a reply of the policy ended (`EX_DATAERR`).
const BY_POLICY: i32 = 65;
/// Exit code of a program that failed for a passing reason (`EX_TEMPFAIL`).
const BY_PROGRAM: i32 = 75;

const FAMILIES: [Family; 3] = [
    Family {
        name: "maverl_gateway_calls_total",
        kind: Kind::Counter,
        help: "Calls of programs by their answer.",
        labels: &["seat", "code"],
    },
    Family {
        name: "maverl_gateway_episodes",
        kind: Kind::Gauge,
        help: "Open episodes.",
        labels: &[],
    },
    Family {
        name: "maverl_disconnects_total",
        kind: Kind::Counter,
        help: "Streamed answers whose client left before the end.",
        labels: &[],
    },
];

/// Server of the programs of a run.
pub struct Gateway {
    shared: Arc<Shared>,
    socket: TcpListener,
    server: Mutex<Option<Server>>,
}

/// A running server; dropping it stops it.
struct Server {
    task: JoinHandle<()>,
    /// Workers that the run starts.
    _workers: JoinSet<()>,
    _stop: oneshot::Sender<()>,
}

/// State that the episodes and the routes share.
struct Shared {
    options: ProgramOptions,
    /// Directory of relative paths.
    base: PathBuf,
    /// Address that programs are told.
    url: String,
    episodes: Episodes,
    workers: Workers,
    metrics: Metrics,
    created: u64,
    /// True once it was told that sampling of requests has no effect.
    warned: AtomicBool,
}

impl Gateway {
    /// Binds the address of the options. Relative paths are relative to `base`.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn bind(options: ProgramOptions, base: &Path) -> Result<Self, String> {
        let address = &options.address;
        let failed = |error: std::io::Error| {
            format!("`address` is {address:?}, which cannot be used: {error}")
        };
        let found = address.to_socket_addrs().map_err(failed)?.next();
        let found =
            found.ok_or_else(|| format!("`address` is {address:?}, which is no address"))?;
        let socket = TcpListener::bind(found).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        let url = match options.public_url.trim_end_matches('/') {
            "" => format!("http://{bound}"),
            url => url.to_owned(),
        };
        let workers = Workers::default();
        if !options.key_env.is_empty() {
            let name = &options.key_env;
            let key = std::env::var(name).map_err(|_| format!("`key_env`: `{name}` is not set"))?;
            workers.admit(&key);
        }
        let shared = Arc::new(Shared {
            options,
            base: base.to_owned(),
            url,
            episodes: Episodes::default(),
            workers,
            metrics: Metrics::new(&FAMILIES),
            created: now(),
            warned: AtomicBool::new(false),
        });
        let of = Arc::downgrade(&shared);
        shared.metrics.gauge("maverl_gateway_episodes", move || {
            let open = of.upgrade().map_or(0, |shared| shared.episodes.count());
            vec![(Vec::new(), open as f64)]
        });
        Ok(Self { shared, socket, server: Mutex::default() })
    }

    /// Returns the address that programs are told.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Lets programs with this key claim episodes.
    pub fn admit(&self, key: &str) {
        self.shared.workers.admit(key);
    }

    /// Serves the bound socket, unless it is served already by a runtime that still runs.
    fn serve(&self) -> std::io::Result<()> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if server.as_ref().is_some_and(|server| !server.task.is_finished()) {
            return Ok(());
        }
        let socket = tokio::net::TcpListener::from_std(self.socket.try_clone()?)?;
        let health = Health::default();
        health.enter(Ready::Yes);
        let shared = &self.shared;
        let host = shared.url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let guard = Guard { hosts: host.into_iter().collect(), ..Guard::default() };
        let router = routes::router(Arc::clone(shared));
        let router = guard.protect(base(router, "gateway", health, shared.metrics.clone()));
        let limits =
            Limits { connections: 4096, drain: Duration::from_secs(1), ..Limits::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(Listener::new(socket, limits).serve(router, async move {
            let _ = stopped.await;
        }));
        let mut workers = JoinSet::new();
        for _ in 0..shared.options.workers() {
            let shared = Arc::clone(shared);
            workers.spawn(async move {
                shared.workers.run(&shared.options, &shared.base, &shared.url).await;
            });
        }
        *server = Some(Server { task, _workers: workers, _stop: stop });
        if !shared.options.key_env.is_empty() {
            maverl::output::tell(format_args!("gateway: programs attach at {}", shared.url));
        }
        Ok(())
    }

    /// Waits until an episode can be played: for a worker that can take it.
    pub async fn ready(&self) {
        // The episode reports a server that does not start.
        if self.serve().is_ok() && self.shared.options.mode == Mode::Worker {
            self.shared.workers.ready().await;
        }
    }
}

impl EpisodePlayer for Gateway {
    /// Plays an episode: starts the program, or gives the episode to a worker, and serves its calls until one of both ends
    /// it. `seats` are those of the options' models.
    async fn play(
        &self,
        state: &Arc<EpisodeState>,
        seats: Vec<Seat>,
    ) -> Result<Option<String>, AskError> {
        let program = |message: String| state.fail(Fault::new(FaultKind::Program, message));
        self.serve().map_err(|error| program(format!("the gateway does not start: {error}")))?;
        let shared = &*self.shared;
        let (sender, mut commands) = mpsc::channel(WAITING);
        let entered = shared.episodes.enter(sender).map_err(program)?;
        let told = shared.told(state, &entered.open.id);
        let player = shared.player(state, &entered, &told).await;
        let mut player = player.map_err(program)?;
        let finished = &entered.open.finished;
        let mut course = Course::new(&shared.options, Arc::clone(state), seats, &told, finished);
        let end = loop {
            let ended = tokio::select! {
                biased;
                Some(done) = course.jobs.next() => {
                    course.done(done);
                    None
                }
                Some(command) = commands.recv() => {
                    player.renew();
                    course.handle(command).await;
                    None
                }
                ended = player.ended() => Some(ended),
            };
            if let Some(end) = course.end.take() {
                player.finished();
                break end;
            }
            let message = match ended {
                None => continue,
                // The worker waits for an answer.
                Some(Ended::Silent(_)) if !course.jobs.is_empty() => {
                    player.renew();
                    continue;
                }
                Some(Ended::Silent(message) | Ended::Gone(message)) => message,
                Some(Ended::Exited(Err(error))) => error.to_string(),
                Some(Ended::Exited(Ok(status))) => match player {
                    Player::Process(process, _) => {
                        let left = process.left(status, &entered.key).await;
                        break shared.ended(&mut course, left).await;
                    }
                    Player::Worker(_) => status.to_string(),
                },
            };
            break shared.lost(&mut course, message);
        };
        shared.warn(course.ignored);
        match course.close(end) {
            End::Answer(answer) => Ok(answer),
            End::Fault(fault) => Err(state.fail(fault)),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.workers.close();
    }
}

impl Shared {
    /// Starts the program of an episode, or waits until a worker claims it. It gets the description with the key.
    async fn player(
        &self,
        state: &EpisodeState,
        entered: &Entered<'_>,
        told: &Value,
    ) -> Result<Player, String> {
        let mut told = told.clone();
        told["api_key"] = entered.key.as_str().into();
        let player = match self.options.mode {
            Mode::Episode => self.start(state, entered, &told)?,
            Mode::Worker => Player::Worker(self.workers.offer(told, self.options.lease()).await?),
        };
        let log = player.log();
        state.log_from(move || log.take());
        Ok(player)
    }

    /// Returns what a program is told of its episode. References of the task are told only where the options name them.
    fn told(&self, state: &EpisodeState, id: &str) -> Value {
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

    /// Starts the program of an episode with its description as input.
    fn start(
        &self,
        state: &EpisodeState,
        entered: &Entered<'_>,
        told: &Value,
    ) -> Result<Player, String> {
        let episode = format!("{}/episodes/{}", self.url, entered.open.id);
        let api = format!("{episode}/v1");
        let host = self.url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let variables = vec![
            ("OPENAI_BASE_URL", api.clone()),
            ("OPENAI_API_BASE", api),
            ("OPENAI_API_KEY", entered.key.clone()),
            ("MAVERL_EPISODE_URL", episode),
            ("MAVERL_SEED", state.seed().to_string()),
            ("NO_PROXY", host.unwrap_or_else(|| "127.0.0.1".to_owned())),
        ];
        let (log, input) = (Log::default(), format!("{told}\n"));
        let process = Process::start(&self.options, &self.base, variables, input, log.clone())?;
        Ok(Player::Process(process, log))
    }

    /// Returns the end of an episode whose program has ended.
    async fn ended(&self, course: &mut Course<'_>, left: Left) -> End {
        if let Some(end) = course.end.take() {
            return end;
        }
        let fault = |message: String| End::Fault(Fault::new(FaultKind::Program, message));
        match left.status.code() {
            Some(0) => {
                let Some(report) = left.report else {
                    course.exit = Some(Exit::Unreported);
                    return End::Answer(None);
                };
                let read = Fields::parse(report.to_string().as_bytes()).and_then(Finish::read);
                let finished = match read {
                    Ok(finish) => course.finish(finish).await,
                    Err(refusal) => Err(refusal),
                };
                match finished {
                    Ok(()) => course.end.take().unwrap_or(End::Answer(None)),
                    Err(Refusal { message, .. }) => {
                        fault(format!("the program's report: {message}"))
                    }
                }
            }
            Some(BY_POLICY) => End::Answer(None),
            Some(BY_PROGRAM) => fault(left.message()),
            _ => self.lost(course, left.message()),
        }
    }

    /// Returns the end of an episode whose program crashed, or whose worker is gone.
    fn lost(&self, course: &mut Course<'_>, message: String) -> End {
        // Clients raise refusals, so most programs end with them.
        if course.limited() {
            return End::Answer(None);
        }
        course.exit = Some(Exit::Crashed);
        match self.options.on_crash {
            OnCrash::Score => End::Answer(None),
            OnCrash::Unscored => End::Fault(Fault::new(FaultKind::Crash, message)),
        }
    }

    /// Tells once that fields of sampling have no effect.
    fn warn(&self, ignored: Option<&str>) {
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
