//! `maverl train`, and the `main` of examples.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::check::Purpose;
use crate::cli::arguments::{BuiltinConfig, RunArgs};
use crate::cli::failure::Failure;
use crate::cli::local_ranks;
use crate::cli::paths::of_run;
use crate::cli::planning::plan_checked;
use crate::cli::process::{exit, report_stop, stop_with_starter, train_until_signal};
use crate::cli::run_options::{is_follower, ready_plan, shown_options};
use crate::cli::stages::Stages;
use crate::cli::terminal::{self, print, tell};
use crate::cli::tracking::check_packages;
use crate::cli::{seeds, usage};
use crate::config::source::Sources;
use crate::registry::Registry;
use crate::run_dir::{Missing, RunLocation};
use crate::train::{Launch, Options, TrainError};

/// Runs `maverl train` as the `main` of an example. The configuration called `name` is used if the user gives none.
///
/// Relative paths in the example's configuration are relative to its `base`.
pub fn train_example(name: &str, config: &str, base: &Path) -> ExitCode {
    /// Train the team of this example. Arguments are those of `maverl train`; CONFIG replaces the example's own.
    #[derive(Parser)]
    struct Example {
        #[command(flatten)]
        run: RunArgs,
    }
    let example: Example = usage::parse();
    let given = BuiltinConfig { name, text: config, base };
    exit(|| train(&example.run, Some(&given)))
}

/// `maverl train`, and the `main` of examples.
pub fn train(args: &RunArgs, given: Option<&BuiltinConfig<'_>>) -> Result<ExitCode, Failure> {
    let launch = launch()?;
    stop_with_starter();
    if let Some(count) = args.ranks_per_node.filter(|count| count.get() > 1) {
        check_configs(args, given)?;
        return local_ranks::train(count.get(), launch.as_ref());
    }
    train_rank(args, given, launch.clone()).map_err(|Failure(message)| match launch {
        Some(launch) => Failure(format!("rank {}: {message}", launch.rank)),
        None => Failure(message),
    })
}

/// Checks the configurations of a command, so that their problems are reported once, and not by each rank that is started.
fn check_configs(args: &RunArgs, given: Option<&BuiltinConfig<'_>>) -> Result<(), Failure> {
    let registry = Registry::collect()?;
    if let Some(stages) = Stages::read(&args.config)? {
        return stages.check_plans(args, &registry);
    }
    let sources = match (&args.resume, &args.seeds) {
        (Some(dir), _) => args.over(of_run(dir)?.0),
        (None, Some(seeds)) => seeds::first_sources(args, given, seeds)?,
        (None, None) => args.over(args.config.base_sources(given)),
    };
    plan_checked(&sources, &registry, Purpose::Train).map(drop)
}

fn train_rank(
    args: &RunArgs,
    given: Option<&BuiltinConfig<'_>>,
    launch: Option<Launch>,
) -> Result<ExitCode, Failure> {
    let registry = Registry::collect()?;
    let follows = is_follower(launch.as_ref());
    if args.resume.is_none() && args.config.path().is_none() && given.is_none() && !follows {
        tell(
            "no configuration given (`maverl train run.toml` gives one): every key that `--set` leaves out has its default",
        );
    }
    if let Some(stages) = Stages::read(&args.config)? {
        if args.seeds.is_some() {
            let remedy = "train the stages with `--seed` for each seed";
            return Err(Failure(format!("`--seeds` with stages is not supported; {remedy}")));
        }
        return stages.train(args, &registry, launch.as_ref());
    }
    if let Some(seeds) = &args.seeds {
        return seeds::train(args, given, seeds, (&registry, launch.as_ref()));
    }
    let (sources, text, place) = match &args.resume {
        Some(dir) => {
            let (sources, text) = of_run(dir)?;
            let text = args.over(Sources::default().text("config.toml", text, dir)).merged_file();
            (args.over(sources), text, RunLocation::Resume(dir.clone()))
        }
        None => {
            let sources = args.over(args.config.base_sources(given));
            let place = match args.out.clone() {
                Some(dir) => RunLocation::New(dir),
                None => RunLocation::Next { parent: PathBuf::from("runs"), stem: args.stem(given) },
            };
            (sources.clone(), sources.merged_file(), place)
        }
    };
    let missing = if args.allow_missing { Missing::Episodes } else { Missing::Nothing };
    let plan = ready_plan(&sources, &registry, launch.as_ref())?;
    check_packages(&plan.config.track, &place)?;
    let given = text.unwrap_or_default();
    let options = Options { given, missing, launch, ..shown_options(place) };
    let report = match train_until_signal(&plan, &registry, options)? {
        Err(error @ TrainError::StoppedJoining { .. }) => return Ok(report_stop(&error)),
        done => done?,
    };
    if !follows {
        print(&report.table(terminal::width()))?;
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Returns the place of this process among those of its launch.
fn launch() -> Result<Option<Launch>, Failure> {
    Ok(Launch::detect(|name| std::env::var(name).ok())?)
}
