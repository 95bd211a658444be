//! Episodes that run concurrently, and the run of one episode from start to score.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinSet;

use crate::IntoMap;
use crate::agent::AskError;
use crate::env::{DynEnvironment, EnvError};
use crate::orchestra::{DynOrchestra, EpisodeState, Member, RequestOptions, RequestTimes};
use crate::plan::Overlong;
use crate::reward::Rewards;
use crate::rollout::endpoint::{Endpoints, Usage};
use crate::rollout::rewards::{Scored, Scorer};
use crate::task::{Score, Task};
use crate::trajectory::{Episode, Fault, FaultKind, Outcome, RewardOf, RewardPart, Seat, Turn};

/// A team that plays many episodes concurrently. Cheap to clone.
#[derive(Clone)]
#[doc(hidden)]
pub struct Rollout {
    runner: Arc<EpisodeRunner>,
    endpoints: Arc<Endpoints>,
    max_episodes: NonZeroUsize,
}

impl Rollout {
    /// Creates a rollout with a maximum number of concurrent episodes.
    pub fn new(runner: EpisodeRunner, max_episodes: NonZeroUsize) -> Self {
        Self { runner: Arc::new(runner), endpoints: Arc::default(), max_episodes }
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

    /// Returns the same team, whose requests are timed.
    #[must_use]
    pub fn with_times(&self, times: &Arc<RequestTimes>) -> Self {
        let mut runner = (*self.runner).clone();
        runner.requests.times = Some(Arc::clone(times));
        self.with_runner(runner)
    }

    /// Returns the requests to each endpoint so far, and their cost.
    pub fn usage(&self) -> BTreeMap<String, Usage> {
        self.endpoints.iter().map(|(name, endpoint)| (name.clone(), endpoint.usage())).into_map()
    }

    /// Returns the runner of the team.
    pub fn runner(&self) -> &EpisodeRunner {
        &self.runner
    }

    /// Plays every episode, `rollout.max_episodes` concurrently. The result yields each one as it ends.
    pub fn play(&self, requests: Vec<EpisodeRequest>) -> Playing {
        Playing {
            runner: Arc::clone(&self.runner),
            waiting: requests.into_iter().enumerate(),
            running: JoinSet::new(),
            max_episodes: self.max_episodes,
        }
    }

    /// Plays every episode, and returns them in the order of the requests. Calls `ended` as each one ends, in arbitrary
    /// order. Dropping the future ends every episode.
    pub async fn collect(
        &self,
        requests: Vec<EpisodeRequest>,
        mut ended: impl FnMut(&Episode),
    ) -> Vec<Episode> {
        let mut episodes: Vec<Option<Episode>> = requests.iter().map(|_| None).collect();
        let mut playing = self.play(requests);
        while let Some((place, episode)) = playing.next().await {
            ended(&episode);
            episodes[place] = Some(episode);
        }
        episodes.into_iter().flatten().collect()
    }
}

/// Episodes that are being run. Dropping it ends all of them.
#[doc(hidden)]
pub struct Playing {
    runner: Arc<EpisodeRunner>,
    waiting: std::iter::Enumerate<std::vec::IntoIter<EpisodeRequest>>,
    running: JoinSet<(usize, Episode)>,
    max_episodes: NonZeroUsize,
}

impl Playing {
    /// Waits for the next episode that ends, in arbitrary order, and returns it with the index of its request. `None`
    /// if all have ended. Waiting episodes start when this is called.
    pub async fn next(&mut self) -> Option<(usize, Episode)> {
        let free = self.max_episodes.get() - self.running.len();
        for (place, request) in self.waiting.by_ref().take(free) {
            let runner = Arc::clone(&self.runner);
            self.running.spawn(async move { (place, runner.play(request).await) });
        }
        let joined = self.running.join_next().await?;
        Some(joined.expect("RO-1: `play` catches every panic"))
    }
}

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
    pub(crate) fn ended(self, outcome: Outcome) -> Episode {
        let Self { task, index, seed } = self;
        let (turns, acts, rewards, log) = Default::default();
        Episode { task, index, seed, turns, acts, answer: None, outcome, rewards, log }
    }
}

/// A part of the reward with its weight.
#[derive(Clone)]
pub struct WeightedReward {
    /// Its name.
    pub name: String,
    /// Factor of its values.
    pub weight: f64,
    /// Origin of its values.
    pub source: ValueSource,
}

/// Origin of the values of a part of the reward.
#[derive(Clone)]
pub enum ValueSource {
    /// A declared function.
    Function(fn(&Episode) -> Rewards),
    /// A server, or a verifier in this process.
    Scorer(Arc<dyn Scorer>),
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
    pub rewards: Vec<WeightedReward>,
    /// Penalty of each seat for a malformed or truncated reply; missing seats have no penalty.
    pub penalties: BTreeMap<Seat, f64>,
    /// Penalty of each seat for a long reply; missing seats have no penalty.
    pub overlong: BTreeMap<Seat, Overlong>,
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
        if let Err(panic) = AssertUnwindSafe(self.orchestra.ready()).catch_unwind().await {
            let fault = panicked("the orchestra", &*panic);
            return request.ended(Outcome::Unscored(fault));
        }
        let table = self.state(&request);
        let (answer, outcome) = self.run_orchestra(&table).await;
        let closed = self.isolated("the environment", close(Arc::clone(&table))).await;
        let outcome = match (outcome, closed) {
            (Outcome::Scored(_), Err(fault)) => Outcome::Unscored(fault),
            (outcome, _) => outcome,
        };
        let (turns, acts, log) = (table.take_turns(), table.take_acts(), table.take_log());
        let mut episode = Episode { answer, turns, acts, log, ..request.ended(outcome) };
        if episode.score().is_some()
            && let Err(fault) = self.reward(&mut episode, &table).await
        {
            episode.rewards.clear();
            episode.outcome = Outcome::Unscored(fault);
        }
        episode
    }

    fn state(&self, request: &EpisodeRequest) -> Arc<EpisodeState> {
        let (task, seed) = (request.task.clone(), request.seed);
        let (members, environment) = (Arc::clone(&self.members), Arc::clone(&self.environment));
        let state = EpisodeState::new(task, seed, members, environment);
        Arc::new(state.with_environments(&self.environments).with_requests(self.requests.clone()))
    }

    /// Opens the environments, runs the orchestra, then scores its answer.
    async fn run_orchestra(&self, table: &Arc<EpisodeState>) -> (Option<String>, Outcome) {
        if let Err(fault) = self.isolated("the environment", open(Arc::clone(table))).await {
            return (None, Outcome::Unscored(fault));
        }
        let run = run(Arc::clone(&self.orchestra), Arc::clone(table));
        let answer = match self.isolated("the orchestra or an agent", run).await {
            Ok(answer) => answer,
            Err(fault) => return (None, Outcome::Unscored(fault)),
        };
        let score = score(Arc::clone(table), answer.clone());
        match self.isolated("the environment's score", score).await {
            Ok(score) => (answer, Outcome::Scored(score)),
            Err(fault) => (answer, Outcome::Unscored(fault)),
        }
    }

    /// Runs a part of an episode in a task of its own. Its panic becomes a fault. It is abandoned after the time limit,
    /// even if it blocks its thread.
    async fn isolated<T: Send + 'static>(
        &self,
        what: &str,
        part: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let mut task = JoinSet::new();
        task.spawn(part);
        match tokio::time::timeout(self.timeout, task.join_next()).await {
            Err(_elapsed) => Err(late(self.timeout)),
            Ok(None) => unreachable!("a task was spawned"),
            Ok(Some(Ok(done))) => done,
            Ok(Some(Err(error))) => Err(match error.try_into_panic() {
                Ok(panic) => panicked(what, &*panic),
                Err(error) => Fault::new(FaultKind::Orchestra, error.to_string()),
            }),
        }
    }

    /// Adds the reward parts of a scored episode; parts of 0 are omitted.
    async fn reward(&self, episode: &mut Episode, table: &EpisodeState) -> Result<(), Fault> {
        for part in table.reward_parts(&episode.turns) {
            bounded(&format!("reward `{}` of the orchestra", part.name), part.value)?;
            episode.rewards.push(part);
        }
        let invalid = |turn: &Turn| turn.error.is_some() || turn.truncated;
        let price = |turn: &Turn| self.penalties.get(&turn.seat).copied().unwrap_or(0.0);
        let long = |turn: &Turn| {
            let length = turn.tokens.as_ref()?.completion.len();
            Some(self.overlong.get(&turn.seat)?.reward(length))
        };
        let costs = episode.turns.iter().enumerate().flat_map(|(i, turn)| {
            let malformed = if invalid(turn) { -price(turn) } else { 0.0 };
            let of = RewardOf::Turn(i);
            [
                part(RewardPart::INVALID_REPLY, malformed, of.clone()),
                part(RewardPart::OVERLONG_REPLY, long(turn).unwrap_or(0.0), of),
            ]
        });
        let parts: Vec<RewardPart> = costs.filter(|part| part.value != 0.0).collect();
        episode.rewards.extend(parts);
        for WeightedReward { name, weight, source } in &self.rewards {
            for (of, value) in self.values(name, source, episode).await?.parts() {
                self.known(name, of, episode)?;
                let value = bounded(&format!("reward `{name}`"), value * weight)?;
                if value != 0.0 {
                    episode.rewards.push(part(name, value, of.clone()));
                }
            }
        }
        bounded_together(episode)
    }

    /// Returns the values of a part of the reward. Those that a server left out are a metric of the episode.
    async fn values(
        &self,
        name: &str,
        source: &ValueSource,
        episode: &mut Episode,
    ) -> Result<Rewards, Fault> {
        let panic = |panic: Box<dyn Any + Send>| panicked(&format!("reward `{name}`"), &*panic);
        let scorer = match source {
            ValueSource::Function(reward) => {
                return catch_unwind(AssertUnwindSafe(|| reward(episode))).map_err(panic);
            }
            ValueSource::Scorer(scorer) => scorer,
        };
        let scored = AssertUnwindSafe(scorer.score(episode)).catch_unwind();
        let scored = tokio::time::timeout(self.timeout, scored).await;
        let scored = scored.map_err(|_elapsed| late(self.timeout))?.map_err(panic)?;
        let failed = |what| Fault::new(FaultKind::Environment, format!("reward `{name}`: {what}"));
        let Scored { rewards, skipped } = scored.map_err(failed)?;
        if let (Some(skipped), Outcome::Scored(score)) = (skipped, &mut episode.outcome) {
            score.metrics.insert(format!("skipped/{name}"), skipped.into());
        }
        Ok(rewards)
    }

    /// Checks that the recipient exists: a reward for an unknown one would be lost silently.
    fn known(&self, name: &str, of: &RewardOf, episode: &Episode) -> Result<(), Fault> {
        let turns = episode.turns.len();
        let message = match of {
            RewardOf::Turn(turn) if *turn >= turns => {
                format!("reward `{name}` is for turn {turn} of an episode of {turns} turns")
            }
            RewardOf::Seat(seat) if !self.members.contains_key(seat) => {
                format!("reward `{name}` is for seat `{seat}`, where nobody sits")
            }
            _ => return Ok(()),
        };
        Err(Fault::new(FaultKind::Environment, message))
    }
}

async fn run(
    orchestra: Arc<dyn DynOrchestra>,
    table: Arc<EpisodeState>,
) -> Result<Option<String>, Fault> {
    match orchestra.run(Arc::clone(&table)).await {
        Err(AskError::Fault(fault)) => Err(fault),
        Err(AskError::Reply(error)) if table.rejected(&error) => Ok(None),
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
    bounded("the environment's score", score.reward)?;
    Ok(score)
}

/// Rule for rewards.
const REWARDS: &str = "a reward is a number from -1e9 to 1e9, and so is the sum of the absolute values of an episode's";

fn part(name: &str, value: f64, of: RewardOf) -> RewardPart {
    RewardPart { name: name.to_owned(), value, of }
}

/// Refuses a reward that is no number, or beyond [`Score::LIMIT`].
fn bounded(what: &str, value: f64) -> Result<f64, Fault> {
    Score::bounded(what, value).map_err(|reason| Fault::new(FaultKind::Environment, reason))
}

/// Refuses an episode whose score and parts are beyond [`Score::LIMIT`] together, and names the part that passes it.
fn bounded_together(episode: &Episode) -> Result<(), Fault> {
    let mut sum = episode.score().map_or(0.0, |score| score.reward.abs());
    for RewardPart { name, value, .. } in &episode.rewards {
        sum += value.abs();
        if sum > Score::LIMIT {
            let what = format!(
                "reward `{name}` is {value:?}, after which those of the episode add up to {sum:?}"
            );
            return Err(Fault::new(FaultKind::Environment, format!("{what}; {REWARDS}")));
        }
    }
    Ok(())
}

fn late(timeout: Duration) -> Fault {
    let message =
        format!("the episode took longer than `rollout.timeout_s` = {}", timeout.as_secs_f64());
    Fault::new(FaultKind::Timeout, message)
}

fn panicked(what: &str, panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("{what} panicked: {}", text.unwrap_or("(no message)"));
    Fault::new(FaultKind::Panic, message)
}

#[cfg(test)]
mod tests;
