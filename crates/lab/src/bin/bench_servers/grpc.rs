//! Steps of sessions over gRPC, in an environment that answers at once.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Map, json};

use crate::pace::measure_pace;
use crate::server::LocalServer;
use maverl::cli::Failure;
use maverl::env::grpc::GrpcEnvironment;
use maverl::env::{DynEnvironment, EnvError, Environment, Session};
use maverl::task::{Action, Observation, Score, Task};
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;
use maverl_serve::Health;
use maverl_serve::environments::{
    EnvironmentServer, EnvironmentSettings, ServedEnvironment, TaskSet,
};

/// Number of steps of a session.
const STEPS: usize = 200;
/// Number of sessions that are played at once.
const SESSIONS: usize = 64;
/// Text of a step, and that of its observation.
const ACTION: &str = "Who wrote the second book about the island, and when?";
const SEEN: &str =
    "The second book about the island was written by the brother of its first author.";

/// Measures the milliseconds of a step of one session, and the steps per second of 64 sessions at once. The environment takes no
/// time, so they are those of client and server, which share the machine.
pub(crate) async fn measure_grpc(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let sessions = PlayedSessions::start().await?;
    let pace = measure_pace(setup.repeats, SESSIONS, async |clients| {
        sessions.play_sessions(clients).await
    })
    .await?;
    Ok(vec![
        Figure::new("a step, p50", "ms", pace.p50),
        Figure::new("a step, p99", "ms", pace.p99),
        Figure::new(format!("{SESSIONS} sessions"), "steps/s", pace.rates),
    ])
}

/// A server, and the environment that plays in it as a run does.
struct PlayedSessions {
    remote: Box<dyn DynEnvironment>,
    task: Task,
    _server: LocalServer,
}

impl PlayedSessions {
    async fn start() -> Result<Self, Failure> {
        let task = Task {
            id: "0".to_owned(),
            source: "bench".to_owned(),
            question: "Who wrote it?".to_owned(),
            data: Map::new(),
        };
        let sessions = NonZeroUsize::MIN.saturating_add(SESSIONS);
        let settings = EnvironmentSettings { sessions, timeout: Duration::from_secs(60) };
        let server = EnvironmentServer::new(settings, Health::default());
        server.open(ServedEnvironment {
            name: "bench".to_owned(),
            environment: Arc::new(ImmediateEnvironment),
            acts: true,
            actions: vec!["act".to_owned()],
            tasks: TaskSet(vec![("train".to_owned(), vec![task.clone()])]),
        });
        let running = LocalServer::start(server.router()?).await?;
        let options = json!({"url": running.url});
        let mut remote: GrpcEnvironment = serde_json::from_value(options)?;
        let started = tokio::task::spawn_blocking(move || {
            Environment::start(&mut remote, Path::new("")).map(|()| remote)
        });
        Ok(Self { remote: Box::new(started.await??), task, _server: running })
    }

    /// Plays so many sessions at once. Returns the milliseconds of every step, ascending.
    async fn play_sessions(&self, sessions: usize) -> Result<Vec<f64>, Failure> {
        let steps = try_join_all((0..sessions as u64).map(|seed| self.play_session(seed))).await?;
        let mut steps = steps.concat();
        steps.sort_by(f64::total_cmp);
        Ok(steps)
    }

    async fn play_session(&self, seed: u64) -> Result<Vec<f64>, Failure> {
        let mut session = self.remote.open(&self.task, seed).await?;
        let mut latencies = Vec::with_capacity(STEPS);
        for _ in 0..STEPS {
            let action = Action::Text(ACTION.to_owned());
            let begin = Instant::now();
            let seen = self.remote.act(&mut session, action).await?;
            latencies.push(begin.elapsed().as_secs_f64() * 1e3);
            if seen.text != SEEN {
                return Err(Failure(format!("a step was answered with {:?}", seen.text)));
            }
        }
        self.remote.close(session).await?;
        Ok(latencies)
    }
}

/// An environment that takes no time.
struct ImmediateEnvironment;

impl Environment for ImmediateEnvironment {
    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        Ok(Observation::new(SEEN))
    }

    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        Ok(Score::binary(answer.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::once;

    /// Prints the figures.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_step_of_every_session_is_answered() {
        let figures = measure_grpc(&once()).await.unwrap_or_else(|Failure(text)| panic!("{text}"));
        for Figure { what, unit, median, .. } in &figures {
            println!("{what}: {median:.2} {unit}");
        }
        assert!(figures[0].median <= figures[1].median);
    }
}
