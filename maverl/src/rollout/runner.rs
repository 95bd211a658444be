//! Episodes that run concurrently, and the run of one episode from start to score.

mod playing;

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinSet;

use crate::IntoMap;
use crate::agent::AskError;
use crate::env::{DynEnvironment, EnvError};
use crate::orchestra::{
    DynOrchestra, EpisodeState, Member, Prefix, RequestOptions, RequestTimes, TurnGate,
};
use crate::rollout::admission::Admission;
use crate::rollout::endpoint::{EndpointUsage, Endpoints};
use crate::rollout::episode_rewards::EpisodeRewards;
use crate::rollout::fault::{bounded_reward, panic_fault, timeout_fault};
use crate::rollout::gate::{EpisodeGate, Queue};
use crate::rollout::teachers::EndpointTeachers;
use crate::rollout::versions::TurnVersions;
use crate::task::{Score, Task};
use crate::trajectory::{Episode, Fault, FaultKind, Outcome, Seat};

#[doc(hidden)]
pub use playing::Playing;

/// A team that plays many episodes concurrently. Cheap to clone.
#[derive(Clone)]
#[doc(hidden)]
pub struct Rollout {
    runner: Arc<EpisodeRunner>,
    endpoints: Arc<Endpoints>,
    /// Teachers behind endpoints, which score ended episodes.
    teachers: Option<Arc<EndpointTeachers>>,
    max_episodes: NonZeroUsize,
    /// Permits that rollouts share which are played at once, and the rank of this one.
    admission: Option<Queue>,
    /// Versions of the weights of turns, if an episode goes on with newer ones.
    versions: Option<Arc<TurnVersions>>,
}

impl Rollout {
    /// Creates a rollout with a maximum number of concurrent episodes.
    pub fn new(runner: EpisodeRunner, max_episodes: NonZeroUsize) -> Self {
        let (runner, endpoints) = (Arc::new(runner), Arc::default());
        let (teachers, admission, versions) = (None, None, None);
        Self { runner, endpoints, teachers, max_episodes, admission, versions }
    }

    /// Creates a rollout of a team with endpoints.
    pub(super) fn with_endpoints(
        runner: EpisodeRunner,
        endpoints: Endpoints,
        max_episodes: NonZeroUsize,
    ) -> Self {
        Self { endpoints: Arc::new(endpoints), ..Self::new(runner, max_episodes) }
    }

    /// Returns the rollout of a changed team.
    pub(super) fn with_runner(&self, runner: EpisodeRunner) -> Self {
        Self { runner: Arc::new(runner), ..self.clone() }
    }

    /// Returns the same team, with an instruction as the last line of every prompt.
    #[must_use]
    pub fn with_instruction(&self, instruction: &str) -> Self {
        let mut runner = (*self.runner).clone();
        runner.requests.instruction = Some(instruction.into());
        self.with_runner(runner)
    }

    /// Returns the same team, whose ended episodes are scored by teachers.
    #[must_use]
    pub(crate) fn with_teachers(&self, teachers: Option<&Arc<EndpointTeachers>>) -> Self {
        Self { teachers: teachers.cloned(), ..self.clone() }
    }

    /// Returns the same team, whose requests are timed.
    #[must_use]
    pub fn with_times(&self, times: &Arc<RequestTimes>) -> Self {
        let mut runner = (*self.runner).clone();
        runner.requests.times = Some(Arc::clone(times));
        self.with_runner(runner)
    }

    /// Returns the same team, which shares a maximum number of concurrent episodes with its clones; its rank is 0.
    #[must_use]
    pub(crate) fn with_admission(&self, max_episodes: NonZeroUsize) -> Self {
        Self { admission: Some((Arc::new(Admission::new(max_episodes)), 0)), ..self.clone() }
    }

    /// Returns the same team with another rank: its episodes begin after those of lower ranks that wait with them.
    #[must_use]
    pub(crate) fn with_rank(&self, rank: u64) -> Self {
        let admission = self.admission.as_ref();
        let admission = admission.map(|(admission, _)| (Arc::clone(admission), rank));
        Self { admission, ..self.clone() }
    }

    /// Returns the same team, whose episodes go on with newer weights. Policies that it gets later are of these versions.
    #[must_use]
    pub(crate) fn with_versions(&self, versions: Option<TurnVersions>) -> Self {
        Self { versions: versions.map(Arc::new), ..self.clone() }
    }

    /// Returns the versions of the weights of turns, if an episode goes on with newer ones.
    pub(super) fn versions(&self) -> Option<&Arc<TurnVersions>> {
        self.versions.as_ref()
    }

    /// Returns the requests to each endpoint so far, and their cost.
    pub fn usage(&self) -> BTreeMap<String, EndpointUsage> {
        self.endpoints.iter().map(|(name, endpoint)| (name.clone(), endpoint.usage())).into_map()
    }

    /// Returns the runner of the team.
    pub fn runner(&self) -> &EpisodeRunner {
        &self.runner
    }
}

/// Request for one episode, and the recorded turns that it begins with.
pub type BegunRequest = (EpisodeRequest, Option<Arc<Prefix>>);

/// Request for one episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeRequest {
    /// Task of the episode.
    pub task: Task,
    /// Index of the episode in the group of its task, from 0.
    pub index: u32,
    /// See [`crate::rollout::episode_seed`].
    pub seed: u64,
}

impl EpisodeRequest {
    /// Returns an episode that ended with an outcome before its first turn.
    pub(crate) fn end_before_turns(self, outcome: Outcome) -> Episode {
        let Self { task, index, seed } = self;
        let (turns, acts, rewards, log) = Default::default();
        Episode {
            task,
            index,
            seed,
            branch: None,
            turns,
            acts,
            answer: None,
            outcome,
            rewards,
            log,
        }
    }
}

/// A team ready to play: its members, orchestra, environment and rewards. All episodes of a run share it.
#[derive(Clone)]
pub struct EpisodeRunner {
    /// Members by seat.
    pub members: Arc<BTreeMap<Seat, Member>>,
    /// Control flow.
    pub orchestra: Arc<dyn DynOrchestra>,
    /// Environment of the task.
    pub environment: Arc<dyn DynEnvironment>,
    /// Further environments to act in, by name.
    pub environments: Arc<BTreeMap<String, Arc<dyn DynEnvironment>>>,
    /// Parts of the reward in addition to the environment's score.
    pub rewards: EpisodeRewards,
    /// Options of the requests to the members.
    pub requests: RequestOptions,
    /// Time limit of an episode, and again of opening, scoring and closing its environments.
    pub timeout: Duration,
}

impl EpisodeRunner {
    /// Plays one episode. Never fails and never panics: a failure is recorded as its [`Outcome`].
    ///
    /// - **Scored**: the orchestra returned, or propagated a malformed reply (which scores as an episode without an
    ///   answer).
    /// - **Unscored**: a fault, even one that the orchestra swallowed; a timeout; a panic of the orchestra, an agent,
    ///   the environment or a reward; a score or reward beyond [`Score::LIMIT`]. The turns so far are recorded.
    pub async fn play(&self, request: EpisodeRequest) -> Episode {
        self.play_from(request, None).await
    }

    /// Plays one episode as [`EpisodeRunner::play`] does, from the recorded turns that it begins with, if there are any. It is
    /// unscored if the prompt of a recorded turn, or the observation of a recorded action, is another one now.
    pub async fn play_from(&self, request: EpisodeRequest, prefix: Option<Arc<Prefix>>) -> Episode {
        self.play_through(request, prefix, None).await
    }

    /// Plays one episode as [`EpisodeRunner::play_from`] does, with turns that wait at a gate, if there is one.
    async fn play_through(
        &self,
        request: EpisodeRequest,
        prefix: Option<Arc<Prefix>>,
        gate: Option<&Arc<EpisodeGate>>,
    ) -> Episode {
        let branch = prefix.as_ref().map(|prefix| prefix.branch().clone());
        Episode { branch, ..self.play_turns(request, prefix, gate).await }
    }

    async fn play_turns(
        &self,
        request: EpisodeRequest,
        prefix: Option<Arc<Prefix>>,
        gate: Option<&Arc<EpisodeGate>>,
    ) -> Episode {
        if let Err(panic) = AssertUnwindSafe(self.orchestra.ready()).catch_unwind().await {
            let fault = panic_fault("the orchestra", &*panic);
            return request.end_before_turns(Outcome::Unscored(fault));
        }
        let table = self.state(&request, prefix, gate);
        let (answer, outcome) = self.run_orchestra(&table, gate).await;
        let closed = self.run_isolated("the environment", close(Arc::clone(&table)), None).await;
        let outcome = match (outcome, closed) {
            (Outcome::Scored(_), Err(fault)) => Outcome::Unscored(fault),
            (outcome, _) => outcome,
        };
        let (turns, acts, log) = (table.take_turns(), table.take_acts(), table.take_log());
        let mut episode = Episode { answer, turns, acts, log, ..request.end_before_turns(outcome) };
        if episode.score().is_some()
            && let Err(fault) = self.rewards.add(&mut episode, &table, self.timeout).await
        {
            episode.rewards.clear();
            episode.outcome = Outcome::Unscored(fault);
        }
        episode
    }

    fn state(
        &self,
        request: &EpisodeRequest,
        prefix: Option<Arc<Prefix>>,
        gate: Option<&Arc<EpisodeGate>>,
    ) -> Arc<EpisodeState> {
        let (task, seed) = (request.task.clone(), request.seed);
        let (members, environment) = (Arc::clone(&self.members), Arc::clone(&self.environment));
        let state = EpisodeState::new(task, seed, members, environment).with_prefix(prefix);
        let gate = gate.map(|gate| Arc::clone(gate) as Arc<dyn TurnGate>);
        let requests = RequestOptions { gate, ..self.requests.clone() };
        Arc::new(state.with_environments(&self.environments).with_requests(requests))
    }

    /// Opens the environments, runs the orchestra, then scores its answer.
    async fn run_orchestra(
        &self,
        table: &Arc<EpisodeState>,
        gate: Option<&Arc<EpisodeGate>>,
    ) -> (Option<String>, Outcome) {
        let open = open(Arc::clone(table));
        if let Err(fault) = self.run_isolated("the environment", open, None).await {
            return (None, Outcome::Unscored(fault));
        }
        let run = run(Arc::clone(&self.orchestra), Arc::clone(table));
        let answer = match self.run_isolated("the orchestra or an agent", run, gate).await {
            Ok(answer) => answer,
            Err(fault) => return (None, Outcome::Unscored(fault)),
        };
        let score = score(Arc::clone(table), answer.clone());
        match self.run_isolated("the environment's score", score, None).await {
            Ok(score) => (answer, Outcome::Scored(score)),
            Err(fault) => (answer, Outcome::Unscored(fault)),
        }
    }

    /// Runs a part of an episode in a task of its own. Its panic becomes a fault. It is abandoned after the time limit,
    /// even if it blocks its thread. Waits at a gate do not count.
    async fn run_isolated<T: Send + 'static>(
        &self,
        what: &str,
        part: impl Future<Output = Result<T, Fault>> + Send + 'static,
        gate: Option<&Arc<EpisodeGate>>,
    ) -> Result<T, Fault> {
        let mut task = JoinSet::new();
        task.spawn(part);
        let mut limit = self.timeout;
        let joined = loop {
            match tokio::time::timeout(limit, task.join_next()).await {
                Ok(joined) => break joined,
                Err(_elapsed) => limit = gate.map_or(Duration::ZERO, |gate| gate.take_waited()),
            }
            if limit.is_zero() {
                return Err(timeout_fault(self.timeout));
            }
        };
        match joined {
            None => unreachable!("a task was spawned"),
            Some(Ok(done)) => done,
            Some(Err(error)) => Err(match error.try_into_panic() {
                Ok(panic) => panic_fault(what, &*panic),
                Err(error) => Fault::new(FaultKind::Orchestra, error.to_string()),
            }),
        }
    }
}

async fn run(
    orchestra: Arc<dyn DynOrchestra>,
    table: Arc<EpisodeState>,
) -> Result<Option<String>, Fault> {
    match orchestra.run(Arc::clone(&table)).await {
        Err(AskError::Fault(fault)) => Err(fault),
        Err(AskError::Reply(error)) if table.is_rejected(&error) => Ok(None),
        // The turn of the error would be scored without the error and its penalty.
        Err(AskError::Reply(error)) => {
            let message = format!(
                "the orchestra ended with a malformed reply ({error}) that is recorded at no turn; read replies with \
                 `SeatOf::ask_with`"
            );
            Err(Fault::new(FaultKind::Orchestra, message))
        }
        Ok(answer) => Ok(answer),
    }
}

async fn open(table: Arc<EpisodeState>) -> Result<(), Fault> {
    table.open().await.map_err(environment)
}

async fn close(table: Arc<EpisodeState>) -> Result<(), Fault> {
    table.close().await.map_err(environment)
}

fn environment(EnvError(what): EnvError) -> Fault {
    Fault::new(FaultKind::Environment, what)
}

async fn score(table: Arc<EpisodeState>, answer: Option<String>) -> Result<Score, Fault> {
    if let Some(fault) = table.fault() {
        return Err(fault);
    }
    let mut score = table.score(answer.as_deref()).await.map_err(environment)?;
    score.metrics.extend(table.metric_means());
    bounded_reward("the environment's score", score.reward)?;
    Ok(score)
}

#[cfg(test)]
mod tests;
