//! The gateway: a program that speaks OpenAI's protocol plays as an orchestra, and is trained.
//!
//! Each episode has a process and a key. The program's requests are calls of the run's seats: they are sampled by the run's
//! engine, and recorded as turns with exactly their token ids and log-probs.
//!
//! A request is passed to the async task of its episode, which generates the reply, records the turn and answers. So
//! RO-1, RO-2 and the time limit hold as for an orchestra. An episode has a process of its own, or a long-lived one
//! *claims* it (`workers`): the time limit then begins with the claim, and a process that is silent for
//! `orchestra.lease_s` seconds loses the episode.

mod access;
mod answer;
mod call;
#[cfg(unix)]
mod cleanup;
mod course;
mod dialect;
mod directory;
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
mod shared;
#[cfg(test)]
mod tests;
mod workers;

pub use options::{Confine, Mode, OnCrash, ProgramOptions, Structure, WorkDirectory};

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::base::{Health, Ready, with_common_routes};
use crate::guard::Guard;
use crate::listener::{Limits, Listener};
use crate::metrics::{Family, ServerMetrics};
use crate::openai::now;
use course::{End, EpisodeCourse, program_fault};
use episodes::Episodes;
use maverl::agent::AskError;
use maverl::orchestra::{EpisodePlayer, EpisodeState};
use maverl::trajectory::Seat;
use player::GatewayPlayer;
use process::PlayerEnd;
use shared::GatewayState;
use workers::Workers;

/// Number of requests of an episode that wait to be handled.
const WAITING: usize = 64;
const FAMILIES: [Family; 3] = [
    Family::counter(
        "maverl_gateway_calls_total",
        "Calls of programs by their answer.",
        &["seat", "code"],
    ),
    Family::gauge("maverl_gateway_episodes", "Open episodes.", &[]),
    Family::counter(
        "maverl_disconnects_total",
        "Streamed answers whose client left before the end.",
        &[],
    ),
];

/// Server of the programs of a run.
pub struct Gateway {
    shared: Arc<GatewayState>,
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

impl Gateway {
    /// Binds the address of the options. Relative paths are relative to `base`.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn bind(options: ProgramOptions, base: &Path) -> Result<Self, String> {
        let address = &options.address;
        let bound = bind_first(address)
            .map_err(|error| format!("`address` is {address:?}, which cannot be used: {error}"))?;
        let (socket, bound) =
            bound.ok_or_else(|| format!("`address` is {address:?}, which is no address"))?;
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
        let shared = Arc::new(GatewayState {
            options,
            base: base.to_owned(),
            url,
            episodes: Episodes::default(),
            workers,
            metrics: ServerMetrics::new(&FAMILIES),
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

    /// Returns the files that episodes depend on: those of `sources`, and those that are copied into the directory of each
    /// episode. Paths are relative to the directory of the configuration.
    pub fn sources(&self) -> Vec<String> {
        let GatewayState { options, base, .. } = &*self.shared;
        let mut sources = options.sources.clone();
        if options.files.is_empty() {
            return sources;
        }
        // A directory that cannot be read fails where it is copied.
        let files = Path::new(&options.files).components();
        let files: PathBuf = files.filter(|part| *part != Component::CurDir).collect();
        for path in directory::files_below(&base.join(files)).unwrap_or_default() {
            let name = path.strip_prefix(base).unwrap_or(&path).display().to_string();
            if !sources.contains(&name) {
                sources.push(name);
            }
        }
        sources
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
        let guard = Guard { hosts: shared.host().into_iter().collect(), ..Guard::default() };
        let router = routes::router(Arc::clone(shared));
        let router =
            guard.protect(with_common_routes(router, "gateway", health, shared.metrics.clone()));
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
        self.serve().map_err(|error| {
            state.fail(program_fault(format!("the gateway does not start: {error}")))
        })?;
        let shared = &*self.shared;
        let (sender, mut commands) = mpsc::channel(WAITING);
        let entered = shared.episodes.enter(sender);
        let entered = entered.map_err(|message| state.fail(program_fault(message)))?;
        let told = shared.describe_episode(state, &entered.open.id);
        let player = shared.player(state, &entered, &told).await;
        let mut player = player.map_err(|message| state.fail(program_fault(message)))?;
        let finished = &entered.open.finished;
        let mut course =
            EpisodeCourse::new(&shared.options, Arc::clone(state), seats, &told, finished);
        let end = loop {
            let ended = tokio::select! {
                biased;
                Some(done) = course.jobs.next() => {
                    course.process_done(done);
                    None
                }
                Some(command) = commands.recv() => {
                    player.renew();
                    course.handle(command).await;
                    None
                }
                ended = player.wait_for_end() => Some(ended),
            };
            if let Some(end) = course.end.take() {
                player.let_finish();
                break end;
            }
            let message = match ended {
                None => continue,
                Some(PlayerEnd::Silent(_)) if !course.jobs.is_empty() => {
                    player.renew(); // the worker waits for an answer
                    continue;
                }
                Some(PlayerEnd::Silent(message) | PlayerEnd::Gone(message)) => message,
                Some(PlayerEnd::Exited(Err(error))) => error.to_string(),
                Some(PlayerEnd::Exited(Ok(status))) => match player {
                    GatewayPlayer::Process(process, _) => {
                        let left = process.end_group(status, &entered.key).await;
                        break shared.end_after_program(&mut course, left).await;
                    }
                    GatewayPlayer::Worker(_) => status.to_string(),
                },
            };
            break shared.end_after_loss(&mut course, message);
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

/// Listens at the first address of `HOST:PORT`, and returns that with the socket; `None` if it has none.
fn bind_first(address: &str) -> io::Result<Option<(TcpListener, SocketAddr)>> {
    let Some(found) = address.to_socket_addrs()?.next() else { return Ok(None) };
    let socket = TcpListener::bind(found)?;
    socket.set_nonblocking(true)?;
    let bound = socket.local_addr()?;
    Ok(Some((socket, bound)))
}
