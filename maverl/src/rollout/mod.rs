//! Rollout: many concurrent episodes, each one an async task, with their turns batched by the runtime.
//!
//! - **RO-1** A failure in an episode ends that episode and never another. This includes an environment that blocks its
//!   thread.
//! - **RO-2** A turn is recorded before its reply is parsed.
//! - Results do not depend on the order in which episodes or requests end: seeds come from [`episode_seed`] and turn
//!   paths, and results are in the order of the requests.

mod asked;
mod backend;
mod endpoint;
mod error;
mod mixture;
mod plain;
mod prompt;
mod replay;
#[doc(hidden)]
pub mod rewards;
mod runner;
mod script;
mod seed;
mod servers;
mod timed;
mod unjudged;

#[doc(hidden)]
pub mod testing;

#[doc(hidden)]
pub use backend::ModelBackend;
#[doc(hidden)]
pub use endpoint::{Endpoint, EndpointVoice, Usage};
pub use error::RolloutError;
#[doc(hidden)]
pub use plain::plain;
#[doc(hidden)]
pub use prompt::render_turn;
#[doc(hidden)]
pub use replay::{Difference, Replayed, replay, replay_turns};
#[doc(hidden)]
pub use rewards::{Scored, Scorer};
#[doc(hidden)]
pub use runner::{EpisodeRequest, EpisodeRunner, ValueSource, WeightedReward};
pub use script::{Script, Scripted};
#[doc(hidden)]
pub use seed::episode_seed;
#[doc(hidden)]
pub use servers::{Probe, RemotePolicy, ServerUsage, Servers};
#[doc(hidden)]
pub use timed::{RequestTime, RequestTimes};
#[doc(hidden)]
pub use unjudged::Heard;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::IntoMap;
use crate::TryIntoMap;
use crate::env::{DynEnvironment, EnvError};
use crate::orchestra::{ChatBackend, Member};
use crate::plan::{Chosen, EndpointPlan, Overlong, Plan, RewardPlan, RewardSource, SeatPlan};
use crate::registry::{ANY, Registry, includes};
use crate::runtime::Policy;
use crate::trajectory::{Episode, Seat};
use rewards::{RewardServer, VerifierReward};

/// A team that plays many episodes concurrently. Cheap to clone.
#[derive(Clone)]
#[doc(hidden)]
pub struct Rollout {
    runner: Arc<EpisodeRunner>,
    endpoints: Arc<endpoint::Endpoints>,
    max_episodes: NonZeroUsize,
}

impl Rollout {
    /// Creates a rollout with a maximum number of concurrent episodes.
    pub fn new(runner: EpisodeRunner, max_episodes: NonZeroUsize) -> Self {
        Self { runner: Arc::new(runner), endpoints: Arc::default(), max_episodes }
    }

    /// Returns the requests to each endpoint so far, and their cost.
    pub fn usage(&self) -> BTreeMap<String, Usage> {
        self.endpoints.iter().map(|(name, endpoint)| (name.clone(), endpoint.usage())).into_map()
    }

    /// Builds the plan's agents and orchestra, starts its environment, and assigns each seat its policy. `policies` are
    /// in the plan's order, as from [`crate::runtime::Runtime::policies`].
    ///
    /// # Errors
    ///
    /// See [`RolloutError`].
    pub fn start(
        plan: &Plan,
        registry: &Registry,
        policies: &[Policy],
    ) -> Result<Self, RolloutError> {
        Self::start_with(plan, registry, |seat| {
            model_voice(plan, policies, seat, seat.sampling.temperature)
        })
    }

    /// Starts a rollout with arbitrary backends, for instance a [`Script`].
    ///
    /// # Errors
    ///
    /// See [`RolloutError`].
    pub fn start_with(
        plan: &Plan,
        registry: &Registry,
        mut backend: impl FnMut(&SeatPlan) -> Arc<dyn ChatBackend>,
    ) -> Result<Self, RolloutError> {
        let mut members = BTreeMap::new();
        for seat in &plan.seats {
            let entry = find("agent", &registry.agents, &seat.seat.agent)?;
            let agent = (entry.build)(&seat.options)
                .map_err(|problem| declaration("agent", &seat.seat.agent, problem))?;
            members.insert(seat.seat.clone(), Member { agent, backend: backend(seat) });
        }
        let endpoints = endpoints(plan, registry, &mut members)?;
        let name = &plan.orchestra.name;
        let entry = find("orchestra", &registry.orchestras, name)?;
        (entry.build)(&plan.orchestra.options)
            .map_err(|problem| declaration("orchestra", name, problem))?;
        let orchestra = (entry.start)(&plan.orchestra.options, &plan.base)
            .map_err(|problem| RolloutError::Orchestra { name: name.clone(), problem })?;
        let environment = environment(plan, registry)?;
        let environments = (plan.environments.iter())
            .map(|(name, chosen)| Ok((name.clone(), start(plan, registry, chosen)?)))
            .try_into_map()?;
        let runner = EpisodeRunner {
            members: Arc::new(members),
            orchestra,
            environment,
            environments: Arc::new(environments),
            rewards: rewards(plan, registry)?,
            penalties: penalties(plan),
            overlong: overlong(plan),
            timeout: Duration::try_from_secs_f64(plan.config.rollout.timeout_s)
                .unwrap_or(Duration::MAX),
        };
        Ok(Self {
            endpoints: Arc::new(endpoints),
            ..Self::new(runner, plan.config.rollout.max_episodes)
        })
    }

    /// Returns the same team at another temperature, for evaluation. It shares agents, orchestra and environment with
    /// this one.
    #[must_use]
    pub fn at_temperature(&self, plan: &Plan, policies: &[Policy], temperature: f32) -> Self {
        self.with_voices(plan, |seat| model_voice(plan, policies, seat, temperature))
    }

    /// Returns the same team with the policies that `plan` assigns to its seats. It shares the rest with this one.
    #[must_use]
    pub fn with_plan(&self, plan: &Plan, policies: &[Policy]) -> Self {
        self.with_voices(plan, |seat| model_voice(plan, policies, seat, seat.sampling.temperature))
    }

    fn with_voices(
        &self,
        plan: &Plan,
        backend: impl Fn(&SeatPlan) -> Arc<dyn ChatBackend>,
    ) -> Self {
        let mut members = (*self.runner.members).clone();
        for seat in &plan.seats {
            if let Some(member) = members.get_mut(&seat.seat) {
                member.backend = backend(seat);
            }
        }
        self.with_members(members)
    }

    /// Returns the same team, with an instruction as the last line of every prompt.
    #[must_use]
    pub fn asked(&self, instruction: &str) -> Self {
        let instruction: Arc<str> = instruction.into();
        let mut members = (*self.runner.members).clone();
        for member in members.values_mut() {
            let (inner, instruction) = (Arc::clone(&member.backend), Arc::clone(&instruction));
            member.backend = Arc::new(asked::AskedBackend { inner, instruction });
        }
        self.with_members(members)
    }

    /// Returns the same team, whose requests are timed.
    #[must_use]
    pub fn timed(&self, times: &Arc<RequestTimes>) -> Self {
        let mut members = (*self.runner.members).clone();
        for member in members.values_mut() {
            let (inner, times) = (Arc::clone(&member.backend), Arc::clone(times));
            member.backend = Arc::new(timed::TimedBackend { inner, times });
        }
        self.with_members(members)
    }

    fn with_members(&self, members: BTreeMap<Seat, Member>) -> Self {
        let runner = EpisodeRunner {
            members: Arc::new(members),
            orchestra: Arc::clone(&self.runner.orchestra),
            environment: Arc::clone(&self.runner.environment),
            environments: Arc::clone(&self.runner.environments),
            rewards: self.runner.rewards.clone(),
            penalties: self.runner.penalties.clone(),
            overlong: self.runner.overlong.clone(),
            timeout: self.runner.timeout,
        };
        Self { endpoints: Arc::clone(&self.endpoints), ..Self::new(runner, self.max_episodes) }
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

type StartedEnvironments = Result<Arc<dyn DynEnvironment>, RolloutError>;

fn start(
    plan: &Plan,
    registry: &Registry,
    Chosen { name, options }: &Chosen,
) -> StartedEnvironments {
    let entry = find("environment", &registry.environments, name)?;
    (entry.start)(options, &plan.base)
        .map_err(|error| RolloutError::Environment { name: name.clone(), error })
}

/// Fails if the orchestra sends actions that a started environment does not understand.
fn understood(
    plan: &Plan,
    registry: &Registry,
    environment: &dyn DynEnvironment,
) -> Result<(), EnvError> {
    let name = plan.orchestra.name.as_str();
    let needs = registry.orchestras.get(name).map_or(&[][..], |entry| entry.needs);
    let Some(actions) =
        environment.actions().filter(|actions| !actions.iter().any(|action| action == ANY))
    else {
        return Ok(());
    };
    let Some(need) = needs.iter().find(|need| !includes(&actions, need)) else { return Ok(()) };
    let known: Vec<String> = actions.iter().map(|action| format!("`{action}`")).collect();
    let known = if known.is_empty() { "no action".to_owned() } else { known.join(", ") };
    Err(EnvError(format!(
        "orchestra `{name}` sends `{need}` actions, and the environment of the server understands {known}"
    )))
}

/// Starts the environment of a plan, or those of its components.
#[doc(hidden)]
pub fn environment(plan: &Plan, registry: &Registry) -> StartedEnvironments {
    let start = |chosen: &Chosen| {
        let environment = start(plan, registry, chosen)?;
        let told = understood(plan, registry, &*environment);
        told.map_err(|error| RolloutError::Environment { name: chosen.name.clone(), error })?;
        Ok(environment)
    };
    if plan.mixture.is_empty() {
        return start(&plan.environment);
    }
    let started =
        plan.mixture.iter().map(|(name, component)| Ok((name.clone(), start(component)?)));
    Ok(Arc::new(mixture::Mixture(started.try_into_map()?)))
}

/// Creates the endpoints of a plan.
fn endpoints(
    plan: &Plan,
    registry: &Registry,
    members: &mut BTreeMap<Seat, Member>,
) -> Result<endpoint::Endpoints, RolloutError> {
    let mut endpoints = endpoint::Endpoints::new();
    for EndpointPlan { seat, name, endpoint, sampling, options } in &plan.endpoints {
        let entry = find("agent", &registry.agents, &seat.agent)?;
        let agent =
            (entry.build)(options).map_err(|problem| declaration("agent", &seat.agent, problem))?;
        let asked = match endpoints.get(name) {
            Some(asked) => Arc::clone(asked),
            None => {
                let made = Endpoint::new(name, endpoint, &plan.base);
                let problem = |problem| RolloutError::Endpoint { name: name.clone(), problem };
                Arc::new(made.map_err(problem)?)
            }
        };
        endpoints.insert(name.clone(), Arc::clone(&asked));
        let backend = Arc::new(EndpointVoice::new(asked, sampling.clone()));
        members.insert(seat.clone(), Member { agent, backend });
    }
    Ok(endpoints)
}

/// Creates the parts of the reward of a plan.
fn rewards(plan: &Plan, registry: &Registry) -> Result<Vec<WeightedReward>, RolloutError> {
    let reward = |RewardPlan { name, weight, source }: &RewardPlan| {
        let problem = |problem| RolloutError::Reward { name: name.clone(), problem };
        let source = match source {
            RewardSource::Function => {
                ValueSource::Function(find("reward", &registry.rewards, name)?.reward)
            }
            RewardSource::Server(config) => {
                ValueSource::Scorer(Arc::new(RewardServer::new(config).map_err(problem)?))
            }
            RewardSource::Verifier(config) => {
                let verifier = VerifierReward::new(config, &plan.base).map_err(problem)?;
                ValueSource::Scorer(Arc::new(verifier))
            }
        };
        Ok(WeightedReward { name: name.clone(), weight: *weight, source })
    };
    plan.rewards.iter().map(reward).collect()
}

fn model_voice(
    plan: &Plan,
    policies: &[Policy],
    seat: &SeatPlan,
    temperature: f32,
) -> Arc<dyn ChatBackend> {
    let mut sampling = seat.sampling.clone();
    sampling.temperature = temperature;
    Arc::new(ModelBackend::new(policies[seat.policy].clone(), sampling, &plan.config.rollout))
}

fn penalties(plan: &Plan) -> BTreeMap<Seat, f64> {
    plan.seats.iter().map(|seat| (seat.seat.clone(), seat.loss.invalid_reply_penalty)).into_map()
}

fn overlong(plan: &Plan) -> BTreeMap<Seat, Overlong> {
    plan.seats.iter().filter_map(|seat| Some((seat.seat.clone(), seat.overlong()?))).into_map()
}

fn find<'r, T>(
    kind: &'static str,
    entries: &'r BTreeMap<&'static str, T>,
    name: &str,
) -> Result<&'r T, RolloutError> {
    entries.get(name).ok_or_else(|| declaration(kind, name, "is not registered".to_owned()))
}

fn declaration(kind: &'static str, name: &str, problem: String) -> RolloutError {
    RolloutError::Declaration { kind, name: name.to_owned(), problem }
}

#[cfg(test)]
mod tests;
