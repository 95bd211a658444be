//! `maverl train`, and the common part of the commands that train.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::check_config::checked;
use super::stages::Stages;
use super::{
    BuiltinConfig, Failure, RunArgs, block_on, of_run, planned, print, seeds, tell, terminal,
};
use crate::check::{Purpose, survey};
use crate::config::source::{Sources, config_stem};
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::{MANIFEST, Missing, RunLocation};
use crate::train::{self, Interrupt, Launch, Options, Report, TrainError};

impl RunArgs {
    /// Adds the command line's layer on top of other sources.
    pub(super) fn over(&self, sources: Sources) -> Sources {
        let steps = self.steps.map(|steps| format!("steps={steps}"));
        steps.into_iter().fold(self.config.over(sources), Sources::with)
    }

    /// Returns the name that run directories are derived from.
    pub(super) fn stem(&self, given: Option<&BuiltinConfig<'_>>) -> String {
        match (self.config.path(), given) {
            (Some(path), _) => config_stem(path),
            (None, Some(given)) => given.name.to_owned(),
            (None, None) => "run".to_owned(),
        }
    }
}

/// `maverl train`, and the `main` of examples.
pub fn train(args: &RunArgs, given: Option<&BuiltinConfig<'_>>) -> Result<ExitCode, Failure> {
    let launch = launch()?;
    let name = |Failure(message)| match &launch {
        Some(launch) => Failure(format!("rank {}: {message}", launch.rank)),
        None => Failure(message),
    };
    train_rank(args, given, launch.clone()).map_err(name)
}

fn train_rank(
    args: &RunArgs,
    given: Option<&BuiltinConfig<'_>>,
    launch: Option<Launch>,
) -> Result<ExitCode, Failure> {
    let registry = Registry::collect()?;
    let follows = follows(launch.as_ref());
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
            let text = args.over(Sources::default().text("config.toml", text, dir)).written();
            (args.over(sources), text, RunLocation::Resume(dir.clone()))
        }
        None => {
            let sources = args.over(args.config.base(given));
            let next =
                || RunLocation::Next { parent: PathBuf::from("runs"), stem: args.stem(given) };
            let place = args.out.clone().map_or_else(next, RunLocation::New);
            (sources.clone(), sources.written(), place)
        }
    };
    let missing = if args.allow_missing { Missing::Episodes } else { Missing::Nothing };
    let plan = ready(&sources, &registry, launch.as_ref())?;
    let given = text.unwrap_or_default();
    let options = Options { given, missing, launch, ..options(place) };
    let report = carry_out(&plan, &registry, options)??;
    if !follows {
        print(&report.table(terminal::width()))?;
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Returns the sources and options of one of several runs of a command: those of the run in `dir` if there is one, so
/// that it goes on, or of a new run. `over` are assignments above those of the command line.
pub(super) fn go_on(
    args: &RunArgs,
    new: Sources,
    dir: &Path,
    over: &[String],
) -> Result<(Sources, Options), Failure> {
    let with = |sources: Sources| over.iter().cloned().fold(args.over(sources), Sources::with);
    let (sources, text, place) = match dir.join(MANIFEST).is_file() {
        true => {
            let (sources, text) = of_run(dir)?;
            let text = with(Sources::default().text("config.toml", text, dir)).written();
            (with(sources), text, RunLocation::Resume(dir.to_owned()))
        }
        false => {
            let sources = with(new);
            (sources.clone(), sources.written(), RunLocation::New(dir.to_owned()))
        }
    };
    let missing = if args.allow_missing { Missing::Episodes } else { Missing::Nothing };
    Ok((sources, Options { given: text.unwrap_or_default(), missing, ..options(place) }))
}

/// Returns options of a run that reports progress on standard error.
pub(super) fn options(place: RunLocation) -> Options {
    Options { progress: train::stderr(), ..Options::new(place) }
}

/// Returns the place of this process among those of its launch.
fn launch() -> Result<Option<Launch>, Failure> {
    Ok(Launch::detect(|name| std::env::var(name).ok())?)
}

/// Returns true if this process is not the one that writes files and messages.
pub(super) fn follows(launch: Option<&Launch>) -> bool {
    launch.is_some_and(|launch| launch.rank > 0)
}

/// Returns the plan of a run. Rank 0 prints its warnings.
pub(super) fn ready(
    sources: &Sources,
    registry: &Registry,
    launch: Option<&Launch>,
) -> Result<Plan, Failure> {
    if follows(launch) {
        return checked(sources, registry, Purpose::Train);
    }
    let plan = planned(sources, registry, Purpose::Train)?;
    for warning in survey(&plan)?.warnings() {
        tell(format_args!("warning: {warning}"));
    }
    Ok(plan)
}

/// Trains until the end or until a signal, and returns the result of the run.
pub(super) fn carry_out(
    plan: &Plan,
    registry: &Registry,
    options: Options,
) -> Result<Result<Report, TrainError>, Failure> {
    block_on(async {
        let options = Options { interrupt: Interrupt::on_signals()?, ..options };
        Ok(Box::pin(train::train(plan, registry, options)).await)
    })
}
