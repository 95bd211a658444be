//! `maverl eval`: evaluation of a team on held-out tasks, and comparisons.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::compare::{SingleAgent, compare};
use super::export::which;
use super::{ConfigArgs, Failure, block_on, of_run, plan_with_warnings, print, terminal};
use maverl::check::Purpose;
use maverl::checkpoint::Which;
use maverl::eval::EvalSpec;
use maverl::metrics::Malformed;
use maverl::output;
use maverl::registry::Registry;
use maverl::run_dir::write_rollouts;
use maverl::train::{self, Weights};

#[derive(Args)]
pub(super) struct EvalArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Evaluate a checkpoint of the run in this directory, with its configuration.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "named"])]
    run: Option<PathBuf>,
    /// Checkpoint: `last`, `best` (by validation, see `eval.every`), or the number of a step.
    #[arg(long, value_name = "WHICH", default_value = "last", requires = "run", conflicts_with_all = ["file", "named"], value_parser = which)]
    checkpoint: Which,
    /// Split of the data. [default: `eval.test_split`]
    #[arg(long, value_name = "SPLIT")]
    split: Option<String>,
    /// Compare the trained team with the untrained team, with a single agent that may sample as many tokens as the team in
    /// one reply, and with a majority vote of that agent at the team's number of tokens. Both start from the untrained
    /// weights.
    #[arg(long, requires = "run", conflicts_with_all = ["file", "named"])]
    compare: bool,
    /// Orchestra of the single agent in a comparison. [default: one with a single seat that fits the environment]
    #[arg(long, value_name = "ORCHESTRA", requires = "compare")]
    single: Option<String>,
    /// Model of the single agent in a comparison, if the team has several.
    #[arg(long, value_name = "NAME", requires = "compare")]
    model: Option<String>,
    /// Write the episodes to this file, in the format of the rollouts of a run (`.jsonl.zst`).
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    episodes: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let registry = Registry::collect()?;
    let (sources, weights) = match &args.run {
        Some(dir) => (args.config.over(of_run(dir)?.0), Weights::Run(dir.clone(), args.checkpoint)),
        None => (args.config.sources(None), Weights::Start),
    };
    let mut plan = plan_with_warnings(&sources, &registry, Purpose::Eval)?;
    // No policy is trained, so no critic is needed.
    plan.algorithm.critic = None;
    let split = args.split.as_deref().unwrap_or(&plan.config.eval.test_split);
    let spec = EvalSpec::new(&plan.config.eval, split);
    if args.compare {
        let single =
            SingleAgent::new(&plan, &registry, args.single.as_deref(), args.model.as_deref())?;
        let comparison = block_on(compare(&plan, &registry, &weights, &spec, &single))?;
        return print(&if args.json {
            output::json(&comparison)?
        } else {
            comparison.table(terminal::width())
        });
    }
    let progress = train::stderr();
    let episodes = block_on(async {
        Ok::<_, Failure>(train::play(&plan, &registry, &weights, &spec, &progress).await?)
    })?;
    if let Some(file) = &args.episodes {
        write_rollouts(file, &episodes)?;
    }
    for warning in Malformed::default().warning(&episodes) {
        progress.warn(&warning);
    }
    let report = train::report(&spec, plan.config.rewards.keys(), &episodes)?;
    let json = args.json.then(|| output::json(&report)).transpose()?;
    print(&json.unwrap_or_else(|| report.table(terminal::width())))
}
