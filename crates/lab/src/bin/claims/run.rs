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
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ClaimArguments;
use crate::claims::{Arm, Claim, RunBudget, SettingLists};
use crate::comparison::Outcomes;
use crate::credit::{CreditQuantities, read_credit};
use crate::quantity::{ArmOutcome, read_steps, updated_steps};

/// File in a run directory with the results of its arms.
const RESULTS: &str = "claims.json";

/// Number of steps within which a number of tokens must be reached.
const MANY_STEPS: u64 = 10_000;

/// Settings of every run: this program evaluates, and reads the metrics.
const EVERY_RUN: &[&str] = &[
    "eval.before_and_after=false",
    "checkpoint.every=0",
    "algorithm.max_flat_steps=10000",
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

/// Results of a finished run.
#[derive(Serialize, Deserialize)]
struct RunResults {
    /// Everything that they depend on.
    given: Value,
    /// Share of solved tasks, by arm.
    solved: BTreeMap<String, f64>,
    /// Quantities of credit; empty if the claim is not about them.
    #[serde(default)]
    credit: CreditQuantities,
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
    /// Returns all runs of some claims: every run with the first seed, then with the second, and so on. A claim has its own number
    /// of seeds, unless one is given.
    pub(crate) fn all_runs(claims: &[&'static Claim], seeds: Option<u64>) -> Vec<Self> {
        let runs: Vec<_> = claims
            .iter()
            .flat_map(|claim| claim.first_arms().into_iter().map(|arm| (*claim, arm)))
            .collect();
        let most = claims.iter().map(|claim| claim.seeds).max().unwrap_or(0);
        let all = (0..seeds.unwrap_or(most))
            .flat_map(|seed| runs.iter().map(move |&(claim, arm)| Self { claim, arm, seed }));
        all.filter(|run| run.seed < seeds.unwrap_or(run.claim.seeds)).collect()
    }

    /// Directory of the run.
    fn run_dir(&self, out: &Path) -> PathBuf {
        out.join(self.claim.name).join(format!("{}-{}", self.arm.run, self.seed))
    }

    /// Returns the arms that use the run.
    fn arms_of_run(&self) -> impl Iterator<Item = &'static Arm> {
        self.claim.arms.iter().filter(|arm| arm.run == self.arm.run)
    }

    /// Returns true if a quantity of its claim is computed from recorded samples.
    fn has_credit(&self) -> bool {
        self.claim.tests.iter().any(|test| test.measure.is_of_credit())
    }

    /// Returns the configuration of a team. Its paths are relative to the directory of the runs.
    fn team_sources(&self, set: SettingLists, arguments: &ClaimArguments) -> Sources {
        let steps = match self.claim.budget {
            RunBudget::Steps(steps) => steps,
            RunBudget::Tokens(_) => MANY_STEPS,
        };
        let own = [
            format!("seed={}", self.seed),
            format!("steps={steps}"),
            format!("eval.tasks={}", arguments.tasks),
            format!("record.samples={}", self.has_credit()),
        ];
        let start = Sources::default().text(self.claim.name, self.claim.base, &arguments.out);
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
        let mut given = json!({
            "base": self.claim.base,
            "set": self.arm.set,
            "played": arms,
            "budget": format!("{:?}", self.claim.budget),
            "tasks": arguments.tasks,
            "more": arguments.set,
        });
        if self.has_credit() {
            given["credit"] = Value::from(true);
        }
        given
    }

    /// Returns the recorded results; `None` if the run has other settings or is not finished.
    fn recorded_results(&self, arguments: &ClaimArguments) -> Option<RunResults> {
        let text = fs::read_to_string(self.run_dir(&arguments.out).join(RESULTS)).ok()?;
        let results: RunResults = serde_json::from_str(&text).ok()?;
        (results.given == self.describe_inputs(arguments)).then_some(results)
    }

    /// Returns true if its results are recorded.
    pub(crate) fn is_finished(&self, arguments: &ClaimArguments) -> bool {
        self.recorded_results(arguments).is_some()
    }

    /// Trains and evaluates, unless that is done. Returns true if it was not.
    ///
    /// # Errors
    ///
    /// If a configuration is wrong, or a run fails.
    pub(crate) fn run(&self, arguments: &ClaimArguments) -> Result<bool> {
        if self.is_finished(arguments) {
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
        let mut solved = BTreeMap::new();
        for (arm, plan) in &played {
            let scores = runtime.block_on(evaluate_test_split(plan, &registry, &trained))?;
            solved.insert((*arm).to_owned(), scores.mean());
        }
        let (given, credit) = (self.describe_inputs(arguments), self.measure_credit(&dir)?);
        let results = RunResults { given, solved, credit };
        fs::write(dir.join(RESULTS), serde_json::to_string_pretty(&results)?)?;
        Ok(true)
    }

    /// Returns the quantities of credit of a finished run, over the steps that updated a policy; none if the claim is not about them.
    fn measure_credit(&self, dir: &Path) -> Result<CreditQuantities> {
        if !self.has_credit() {
            return Ok(CreditQuantities::default());
        }
        let steps = read_steps(&read_metrics(dir)?, self.arm.reward)?;
        read_credit(dir, &updated_steps(&steps))
    }

    /// Name in messages.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}-{}", self.claim.name, self.arm.run, self.seed)
    }
}

fn read_metrics(dir: &Path) -> Result<String> {
    let path = dir.join("metrics.jsonl");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Reads the outcomes of the finished runs of a claim.
///
/// # Errors
///
/// If the metrics of a finished run cannot be read.
pub(crate) fn read_outcomes(claim: &'static Claim, arguments: &ClaimArguments) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for job in TrainingRun::all_runs(&[claim], arguments.seeds) {
        let Some(results) = job.recorded_results(arguments) else { continue };
        let metrics = read_metrics(&job.run_dir(&arguments.out))?;
        for arm in job.arms_of_run() {
            let share = results.solved.get(arm.name).copied();
            let solved = share.ok_or_else(|| anyhow!("{} has no `{}`", job.name(), arm.name))?;
            let steps = read_steps(&metrics, arm.reward).with_context(|| job.name())?;
            let outcome = ArmOutcome { solved, steps, credit: results.credit };
            outcomes.entry(arm.name).or_default().insert(job.seed, outcome);
        }
    }
    Ok(outcomes)
}
