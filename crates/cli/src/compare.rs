//! Comparison of a trained team with the team before training, one agent with as many tokens, and a vote of that agent.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use super::{Failure, plan_checked};
use maverl::check::Purpose;
use maverl::config::source::Sources;
use maverl::config::table::text_of;
use maverl::config::{AgentConfig, AlgorithmConfig, Config, Named, WorkerGroupConfig};
use maverl::eval::{ComparedSystem, Comparison, EvalSpec};
use maverl::files::{HfConfig, ModelFiles};
use maverl::plan::Plan;
use maverl::registry::{OrchestraEntry, Registry};
use maverl::train::{self, Weights};
use maverl::trajectory::{Episode, Seat};

/// A single agent in the team's environment: on a model of the team's, untrained, with the settings of `[sampling]`.
pub(super) struct SingleAgent {
    config: Config,
    plan: Plan,
}

impl SingleAgent {
    /// Returns the agent of an orchestra with one seat, on a model; both arguments may be omitted if they are
    /// unambiguous.
    pub(super) fn new(
        team: &Plan,
        registry: &Registry,
        orchestra: Option<&str>,
        model: Option<&str>,
    ) -> Result<Self, Failure> {
        let (name, seat) = orchestra_of_one(team, registry, orchestra)?;
        let model = model_of(team, model)?;
        let agent = AgentConfig { model: Some(model.clone()), ..AgentConfig::default() };
        let mut config = Config {
            orchestra: Named { name: Some(name), ..Named::default() },
            agents: [(seat.agent, agent)].into(),
            algorithm: AlgorithmConfig::default(),
            ..(*team.config).clone()
        };
        config.worker_groups = device_of(team, &model);
        config.models.retain(|name, _| *name == model);
        config.environments.clear();
        config.endpoints.clear();
        config.rewards.clear();
        let plan = plan(&config, team, registry)?;
        Ok(Self { config, plan })
    }

    /// Returns the plan with replies of at most `most` tokens.
    fn with_tokens(&self, most: usize, registry: &Registry) -> Result<Plan, Failure> {
        let mut config = self.config.clone();
        config.sampling.max_tokens = NonZeroUsize::new(most.max(1));
        plan(&config, &self.plan, registry)
    }

    /// Returns the number of tokens of its model's context.
    fn context(&self) -> Result<usize, Failure> {
        let files = ModelFiles::new(&self.plan.workers[0].source);
        Ok(HfConfig::load(&files)?.max_position_embeddings)
    }
}

fn plan(config: &Config, beside: &Plan, registry: &Registry) -> Result<Plan, Failure> {
    let name = "the single agent of the comparison";
    // `beside.base` already is where its paths start from.
    let config = Config { base: None, ..config.clone() };
    let sources = Sources::default().text(name, text_of(&config)?, &beside.base);
    plan_checked(&sources, registry, Purpose::Eval)
}

/// Returns an orchestra with one seat that fits every environment of a plan. Orchestras that act are preferred if the
/// team's acts, others if it does not; of several, the first by name.
fn orchestra_of_one(
    team: &Plan,
    registry: &Registry,
    wanted: Option<&str>,
) -> Result<(String, Seat), Failure> {
    let environments = team.mixture.values().map(|environment| environment.name.as_str());
    let mut environments: BTreeSet<&str> = environments.collect();
    if environments.is_empty() {
        environments.insert(&team.environment.name);
    }
    let played: Vec<_> = environments.iter().map(|name| &registry.environments[name]).collect();
    let fitting: Vec<(&str, Seat, bool)> = (registry.orchestras.iter())
        .filter(|(_, entry)| played.iter().all(|environment| entry.fits(environment)))
        .filter_map(|(name, entry)| Some((*name, only_seat(entry)?, !entry.needs.is_empty())))
        .collect();
    let names: Vec<String> = fitting.iter().map(|(name, ..)| format!("`{name}`")).collect();
    let acts = !registry.orchestras[team.orchestra.name.as_str()].needs.is_empty();
    let chosen = match wanted {
        Some(wanted) => fitting.iter().find(|(name, ..)| *name == wanted),
        None => fitting.iter().find(|(.., its)| *its == acts).or(fitting.first()),
    };
    if let Some((name, seat, _)) = chosen {
        return Ok(((*name).to_owned(), seat.clone()));
    }
    let environments =
        environments.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let there = if names.is_empty() {
        "link a crate that has one, such as `orchestras`".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    };
    Err(Failure(match wanted {
        Some(wanted) => format!(
            "`--single` is an orchestra with one seat that fits {environments}, and `{wanted}` is none; {there}"
        ),
        None => format!(
            "no orchestra with one seat fits {environments}, so there is nobody to compare with; {there}"
        ),
    }))
}

/// Returns the only seat of an orchestra.
fn only_seat(entry: &OrchestraEntry) -> Option<Seat> {
    let members = (entry.build)(&(entry.declaration.defaults)()).ok()?.members();
    match members.as_slice() {
        [seat] => Some(seat.clone()),
        _ => None,
    }
}

/// Returns the model of the single agent.
fn model_of(team: &Plan, wanted: Option<&str>) -> Result<String, Failure> {
    let models: BTreeSet<&str> = team.workers.iter().map(|worker| worker.model.as_str()).collect();
    let names: Vec<String> = models.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    match (wanted, models.first(), models.len()) {
        (Some(wanted), ..) if models.contains(wanted) => Ok(wanted.to_owned()),
        (Some(wanted), ..) => {
            Err(Failure(format!("no model of the team is called `{wanted}`; there are {names}")))
        }
        (None, Some(only), 1) => Ok((*only).to_owned()),
        (None, None, _) => Err(Failure(
            "no model speaks in this team, so there is none for a single agent to speak with"
                .to_owned(),
        )),
        _ => Err(Failure(format!(
            "the team has several models, {names}: say with `--model` which one the single agent speaks with"
        ))),
    }
}

/// Returns the settings of the single agent's worker group, which has the name of its model: the device of the first worker
/// group of the team with this model.
fn device_of(team: &Plan, model: &str) -> BTreeMap<String, WorkerGroupConfig> {
    let first = team.workers.iter().find(|worker| worker.model == model);
    let Some(device) = first.and_then(|worker| worker.device) else { return BTreeMap::new() };
    let settings = WorkerGroupConfig { device: Some(device), ..WorkerGroupConfig::default() };
    BTreeMap::from([(model.to_owned(), settings)])
}

/// Evaluates all systems on the same tasks. The trained team's tokens are the budget of the single agent and of the
/// vote.
pub(super) async fn compare(
    team: &Plan,
    registry: &Registry,
    trained: &Weights,
    spec: &EvalSpec,
    single: &SingleAgent,
) -> Result<Comparison, Failure> {
    let (start, progress) = (Weights::Start, train::stderr());
    let episodes = train::play(team, registry, trained, spec, &progress).await?;
    let ours = ComparedSystem::mean("trained team", spec.samples, &episodes);
    let episodes = train::play(team, registry, &start, spec, &progress).await?;
    let before = ComparedSystem::mean("untrained team", spec.samples, &episodes);

    // Greedy replies are all equal, so a vote at temperature 0 uses the agent's own temperature.
    let once =
        EvalSpec { samples: 1, temperature: spec.temperature.filter(|t| *t > 0.0), ..spec.clone() };
    let episodes = train::play(&single.plan, registry, &start, &once, &progress).await?;
    let reply = ComparedSystem::mean("one reply", 1, &episodes).sampled_tokens();
    let budget = ours.sampled_tokens().ceil();
    let room = single.context()?.saturating_sub(longest_prompt(&episodes));
    let long = single.with_tokens((budget as usize).min(room), registry)?;
    let votes = (budget / reply.max(1.0)).floor().max(1.0) as u32;

    let episodes = train::play(&long, registry, &start, spec, &progress).await?;
    let alone = ComparedSystem::mean("single agent", spec.samples, &episodes);
    let sampled = EvalSpec { samples: votes, ..once };
    let episodes = train::play(&single.plan, registry, &start, &sampled, &progress).await?;
    let vote = ComparedSystem::vote("majority vote", votes, &episodes);
    Comparison::of(&spec.split, &[ours, before, alone, vote]).ok_or_else(|| {
        Failure("not one task could be scored for everybody, so nothing can be compared".to_owned())
    })
}

fn longest_prompt(episodes: &[Episode]) -> usize {
    let turns = episodes.iter().flat_map(|episode| &episode.turns);
    let lengths = turns.filter_map(|turn| Some(turn.tokens.as_ref()?.prompt.len()));
    lengths.max().unwrap_or(0)
}
