//! Runs of the arms, which are kept: a finished run is not repeated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, anyhow};
use maverl::Sources;
use maverl::checkpoint::Which;
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::run_dir::RunLocation;
use maverl::train::{EndedEpisode, EpisodeSink, Interrupt, Options, SinkError, Weights};
use maverl_lab::measure::{evaluate_test_split, resolve_plan};
use orchestras as _; // brings the teams and their agents
use serde_json::{Value, json};

use crate::ClaimArguments;
use crate::claims::{Arm, Claim, RunBudget, SettingLists};
use crate::comparison::Outcomes;
use crate::quantity::{ArmOutcome, read_steps};

/// File in a run directory with the results of its arms.
const RESULTS: &str = "claims.json";

/// Number of steps within which a number of tokens must be reached.
const MANY_STEPS: u64 = 10_000;

/// Settings of every run: this program evaluates, and reads the metrics.
const EVERY_RUN: &[&str] = &[
    "eval.before_and_after=false",
    "checkpoint.every=0",
    "algorithm.max_flat_steps=10000",
    "record.samples=false",
    "record.tokens_every=0",
    "record.clock=false",
];

/// A training run.
#[derive(Clone, Copy)]
pub(crate) struct TrainingRun {
    /// Claim that needs it.
    pub(crate) claim: &'static Claim,
    /// First arm that uses it.
    pub(crate) arm: &'static Arm,
    /// Seed of the run: equal seeds have equal tasks in equal order.
    pub(crate) seed: u64,
}

/// Stops a run when it has sampled a number of tokens.
struct TokenBudget {
    left: AtomicI64,
    interrupt: Interrupt,
}

impl EpisodeSink for TokenBudget {
    fn on_episode(&self, ended: &EndedEpisode<'_>) -> Result<(), SinkError> {
        let turns = ended.episode.turns.iter().filter_map(|turn| turn.tokens.as_ref());
        let tokens: usize = turns.map(|tokens| tokens.completion.len()).sum();
        let tokens = i64::try_from(tokens)?;
        if self.left.fetch_sub(tokens, Ordering::Relaxed) <= tokens {
            self.interrupt.raise();
        }
        Ok(())
    }
}

impl TrainingRun {
    /// Returns all runs of some claims: every run with the first seed, then with the second, and so on.
    pub(crate) fn all_runs(claims: &[&'static Claim], seeds: u64) -> Vec<Self> {
        let runs: Vec<_> = claims
            .iter()
            .flat_map(|claim| claim.first_arms().into_iter().map(|arm| (*claim, arm)))
            .collect();
        (0..seeds)
            .flat_map(|seed| runs.iter().map(move |&(claim, arm)| Self { claim, arm, seed }))
            .collect()
    }

    /// Directory of the run.
    fn run_dir(&self, out: &Path) -> PathBuf {
        out.join(self.claim.name).join(format!("{}-{}", self.arm.run, self.seed))
    }

    /// Returns the arms that use the run.
    fn arms_of_run(&self) -> impl Iterator<Item = &'static Arm> {
        self.claim.arms.iter().filter(|arm| arm.run == self.arm.run)
    }

    /// Returns the configuration of a team.
    fn team_sources(&self, set: SettingLists, arguments: &ClaimArguments) -> Sources {
        let steps = match self.claim.budget {
            RunBudget::Steps(steps) => steps,
            RunBudget::Tokens(_) => MANY_STEPS,
        };
        let own = [
            format!("seed={}", self.seed),
            format!("steps={steps}"),
            format!("eval.tasks={}", arguments.tasks),
        ];
        let start = Sources::default().text(self.claim.name, self.claim.base, "");
        let fixed = [EVERY_RUN].into_iter().chain(set.iter().copied()).flatten();
        let sources = fixed.fold(start, |sources, set| sources.with(*set));
        let rest = own.iter().chain(&arguments.set);
        rest.fold(sources, |sources, set| sources.with(set))
    }

    /// Returns the plans of the run, and of the teams that are evaluated after it, each with the name of its arm.
    pub(crate) fn team_plans(
        &self,
        arguments: &ClaimArguments,
        registry: &Registry,
    ) -> Result<(Plan, Vec<(&'static str, Plan)>)> {
        let played = self.arms_of_run().map(|arm| {
            let set = if arm.played.is_empty() { arm.set } else { arm.played };
            Ok((arm.name, resolve_plan(&self.team_sources(set, arguments), registry)?))
        });
        let trained = resolve_plan(&self.team_sources(self.arm.set, arguments), registry)?;
        Ok((trained, played.collect::<Result<_>>()?))
    }

    /// Describes everything that the results depend on.
    fn describe_inputs(&self, arguments: &ClaimArguments) -> Value {
        let arms: BTreeMap<&str, SettingLists> =
            self.arms_of_run().map(|arm| (arm.name, arm.played)).collect();
        json!({
            "base": self.claim.base,
            "set": self.arm.set,
            "played": arms,
            "budget": format!("{:?}", self.claim.budget),
            "tasks": arguments.tasks,
            "more": arguments.set,
        })
    }

    /// Returns the recorded shares of solved tasks by arm; `None` if the run has other settings or is not finished.
    fn recorded_shares(&self, arguments: &ClaimArguments) -> Option<BTreeMap<String, f64>> {
        let text = fs::read_to_string(self.run_dir(&arguments.out).join(RESULTS)).ok()?;
        let results: Value = serde_json::from_str(&text).ok()?;
        (results["given"] == self.describe_inputs(arguments))
            .then(|| serde_json::from_value(results["solved"].clone()).ok())?
    }

    /// Trains and evaluates, unless that is done. Returns true if it was not.
    ///
    /// # Errors
    ///
    /// If a configuration is wrong, or a run fails.
    pub(crate) fn run(&self, arguments: &ClaimArguments) -> Result<bool> {
        if self.recorded_shares(arguments).is_some() {
            return Ok(false);
        }
        let (dir, registry) = (self.run_dir(&arguments.out), Registry::collect()?);
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let (plan, played) = self.team_plans(arguments, &registry)?;
        let mut options = Options::new(RunLocation::New(dir.clone()));
        if let RunBudget::Tokens(tokens) = self.claim.budget {
            let (left, interrupt) = (AtomicI64::new(tokens), options.interrupt.clone());
            options = options.sink(TokenBudget { left, interrupt });
        }
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(maverl::train(&plan, &registry, options))?;
        let trained = Weights::Run(dir.clone(), Which::Last);
        let mut shares = BTreeMap::new();
        for (arm, plan) in &played {
            let scores = runtime.block_on(evaluate_test_split(plan, &registry, &trained))?;
            shares.insert(*arm, scores.mean());
        }
        let results = json!({ "given": self.describe_inputs(arguments), "solved": shares });
        fs::write(dir.join(RESULTS), serde_json::to_string_pretty(&results)?)?;
        Ok(true)
    }

    /// Name in messages.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}-{}", self.claim.name, self.arm.run, self.seed)
    }
}

/// Reads the outcomes of the finished runs of a claim.
///
/// # Errors
///
/// If the metrics of a finished run cannot be read.
pub(crate) fn read_outcomes(claim: &'static Claim, arguments: &ClaimArguments) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for job in TrainingRun::all_runs(&[claim], arguments.seeds) {
        let Some(shares) = job.recorded_shares(arguments) else { continue };
        let path = job.run_dir(&arguments.out).join("metrics.jsonl");
        let metrics = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for arm in job.arms_of_run() {
            let share = shares.get(arm.name).copied();
            let solved = share.ok_or_else(|| anyhow!("{} has no `{}`", job.name(), arm.name))?;
            let steps = read_steps(&metrics, arm.reward).with_context(|| job.name())?;
            outcomes.entry(arm.name).or_default().insert(job.seed, ArmOutcome { solved, steps });
        }
    }
    Ok(outcomes)
}
