//! Building of a rollout from a plan: agents, orchestra, environments, endpoints, parts of the reward.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::IntoMap;
use crate::TryIntoMap;
use crate::config::RewardJudgeConfig;
use crate::env::{DynEnvironment, EnvError};
use crate::orchestra::{ChatBackend, Member, RequestOptions};
use crate::plan::{Chosen, EndpointPlan, Overlong, Plan, RewardPlan, RewardSource, SeatPlan};
use crate::registry::{ANY, Registry, includes};
use crate::rollout::backend::ModelBackend;
use crate::rollout::endpoint::{Endpoint, EndpointVoice, Endpoints};
use crate::rollout::episode_rewards::{EpisodeRewards, ValueSource, WeightedReward};
use crate::rollout::error::RolloutError;
use crate::rollout::mixture::Mixture;
use crate::rollout::rewards::judge::JudgeReward;
use crate::rollout::rewards::python::PythonReward;
use crate::rollout::rewards::{RewardServer, UsageReward, VerifierReward};
use crate::rollout::runner::{EpisodeRunner, Rollout};
use crate::runtime::Policy;
use crate::trajectory::Seat;

impl Rollout {
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
            Arc::new(model_backend(plan, policies, seat, seat.sampling.temperature))
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
        let mut endpoints = endpoints(plan, registry, &mut members)?;
        let name = &plan.orchestra.name;
        let entry = find("orchestra", &registry.orchestras, name)?;
        (entry.build)(&plan.orchestra.options)
            .map_err(|problem| declaration("orchestra", name, problem))?;
        let orchestra = (entry.start)(&plan.orchestra.options, &plan.base)
            .map_err(|problem| RolloutError::Orchestra { name: name.clone(), problem })?;
        let environment = start_environment(plan, registry)?;
        let environments = (plan.environments.iter())
            .map(|(name, chosen)| Ok((name.clone(), start(plan, registry, chosen)?)))
            .try_into_map()?;
        let parts = reward_parts(plan, registry, &mut endpoints)?;
        let runner = EpisodeRunner {
            members: Arc::new(members),
            orchestra,
            environment,
            environments: Arc::new(environments),
            rewards: EpisodeRewards { parts, penalties: penalties(plan), overlong: overlong(plan) },
            requests: RequestOptions::default(),
            timeout: Duration::try_from_secs_f64(plan.config.rollout.timeout_s)
                .unwrap_or(Duration::MAX),
        };
        Ok(Self::with_endpoints(runner, endpoints, plan.config.rollout.max_episodes))
    }

    /// Returns the same team at another temperature, for evaluation. It shares agents, orchestra and environment with
    /// this one.
    #[must_use]
    pub fn at_temperature(&self, plan: &Plan, policies: &[Policy], temperature: f32) -> Self {
        self.with_backends(plan, |seat| self.backend(plan, policies, seat, temperature))
    }

    /// Returns the same team with the policies that `plan` assigns to its seats. It shares the rest with this one.
    #[must_use]
    pub fn with_plan(&self, plan: &Plan, policies: &[Policy]) -> Self {
        self.with_backends(plan, |seat| {
            self.backend(plan, policies, seat, seat.sampling.temperature)
        })
    }

    /// Returns the backend of a seat: with the versions of its policy, if turns have weights of their own.
    fn backend(
        &self,
        plan: &Plan,
        policies: &[Policy],
        seat: &SeatPlan,
        temperature: f32,
    ) -> Arc<dyn ChatBackend> {
        let backend = model_backend(plan, policies, seat, temperature);
        let versions = self.versions().filter(|versions| versions.contains(&seat.seat));
        Arc::new(match versions {
            Some(versions) => backend.with_versions(Arc::clone(versions), seat.policy),
            None => backend,
        })
    }

    fn with_backends(
        &self,
        plan: &Plan,
        backend: impl Fn(&SeatPlan) -> Arc<dyn ChatBackend>,
    ) -> Self {
        let mut members = (*self.runner().members).clone();
        for seat in &plan.seats {
            if let Some(member) = members.get_mut(&seat.seat) {
                member.backend = backend(seat);
            }
        }
        self.with_runner(EpisodeRunner { members: Arc::new(members), ..self.runner().clone() })
    }
}

type StartedEnvironment = Result<Arc<dyn DynEnvironment>, RolloutError>;

fn start(
    plan: &Plan,
    registry: &Registry,
    Chosen { name, options }: &Chosen,
) -> StartedEnvironment {
    let entry = find("environment", &registry.environments, name)?;
    let started = (entry.start)(options, &plan.base);
    let understood = started.and_then(|it| understood(plan, registry, &*it).map(|()| it));
    understood.map_err(|error| RolloutError::Environment { name: name.clone(), error })
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
pub fn start_environment(plan: &Plan, registry: &Registry) -> StartedEnvironment {
    if plan.mixture.is_empty() {
        return start(plan, registry, &plan.environment);
    }
    let chosen = plan.mixture.iter();
    let started = chosen.map(|(name, chosen)| Ok((name.clone(), start(plan, registry, chosen)?)));
    Ok(Arc::new(Mixture(started.try_into_map()?)))
}

/// Creates the endpoints of a plan.
fn endpoints(
    plan: &Plan,
    registry: &Registry,
    members: &mut BTreeMap<Seat, Member>,
) -> Result<Endpoints, RolloutError> {
    let mut endpoints = Endpoints::new();
    for EndpointPlan { seat, name, endpoint, sampling, options } in &plan.endpoints {
        let entry = find("agent", &registry.agents, &seat.agent)?;
        let agent =
            (entry.build)(options).map_err(|problem| declaration("agent", &seat.agent, problem))?;
        let asked = match endpoints.get(name) {
            Some(asked) => Arc::clone(asked),
            None => {
                let made = Endpoint::new(name, endpoint, &plan.base)
                    .map_err(|problem| RolloutError::Endpoint { name: name.clone(), problem })?;
                Arc::new(made)
            }
        };
        endpoints.insert(name.clone(), Arc::clone(&asked));
        let backend = Arc::new(EndpointVoice::new(asked, sampling.clone()));
        members.insert(seat.clone(), Member { agent, backend });
    }
    Ok(endpoints)
}

/// Creates the parts of the reward of a plan.
fn reward_parts(
    plan: &Plan,
    registry: &Registry,
    endpoints: &mut Endpoints,
) -> Result<Vec<WeightedReward>, RolloutError> {
    let mut parts = Vec::new();
    for RewardPlan { name, weight, source } in &plan.rewards {
        let source = match source {
            RewardSource::Function => {
                Ok(ValueSource::Function(find("reward", &registry.rewards, name)?.reward))
            }
            RewardSource::Server(config) => RewardServer::new(config).map(ValueSource::of_scorer),
            RewardSource::Python(config) => {
                PythonReward::new(name, config, &plan.base).map(ValueSource::of_scorer)
            }
            RewardSource::Judge(config) => {
                judge_reward(plan, name, config, endpoints).map(ValueSource::of_scorer)
            }
            RewardSource::Verifier(config) => {
                VerifierReward::new(config, &plan.base).map(ValueSource::of_scorer)
            }
            RewardSource::Usage(config) => {
                Ok(ValueSource::of_scorer(UsageReward::new(config.clone())))
            }
        };
        let source =
            source.map_err(|problem| RolloutError::Reward { name: name.clone(), problem })?;
        parts.push(WeightedReward { name: name.clone(), weight: *weight, source });
    }
    Ok(parts)
}

/// Creates a judge. Its endpoint may be that of agents, too.
fn judge_reward(
    plan: &Plan,
    name: &str,
    config: &RewardJudgeConfig,
    endpoints: &mut Endpoints,
) -> Result<JudgeReward, String> {
    let of = &config.endpoint;
    let settings = plan.config.endpoints.get(of);
    let settings = settings.ok_or_else(|| format!("no endpoint is called `{of}`"))?;
    let endpoint = match endpoints.get(of) {
        Some(endpoint) => Arc::clone(endpoint),
        None => Arc::new(Endpoint::new(of, settings, &plan.base)?),
    };
    endpoints.insert(of.clone(), Arc::clone(&endpoint));
    JudgeReward::new(name, config, (endpoint, settings), &plan.base)
}

fn model_backend(
    plan: &Plan,
    policies: &[Policy],
    seat: &SeatPlan,
    temperature: f32,
) -> ModelBackend {
    let mut sampling = seat.sampling.clone();
    sampling.temperature = temperature;
    let policy = policies[seat.policy].clone();
    let rollout = &plan.config.rollout;
    ModelBackend::new(
        policy,
        sampling,
        rollout,
        plan.reply_format(plan.policies[seat.policy].worker),
    )
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
