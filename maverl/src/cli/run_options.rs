//! The plan and the options of one run of a command that trains.

use std::path::Path;

use crate::check::{Purpose, survey};
use crate::cli::arguments::RunArgs;
use crate::cli::failure::Failure;
use crate::cli::paths::of_run;
use crate::cli::planning::{plan_checked, plan_with_warnings};
use crate::cli::terminal::tell;
use crate::config::source::Sources;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::{MANIFEST, Missing, RunLocation};
use crate::train::{self, Launch, Options};

/// Returns the sources and options of one of several runs of a command: those of the run in `dir` if there is one, so
/// that it goes on, or of a new run. `over` are assignments above those of the command line.
pub(super) fn resume_or_start(
    args: &RunArgs,
    new: Sources,
    dir: &Path,
    over: &[String],
) -> Result<(Sources, Options), Failure> {
    let (sources, text, place) = if dir.join(MANIFEST).is_file() {
        let (sources, text) = of_run(dir)?;
        let given = Sources::default().text("config.toml", text, dir);
        let text = overridden(given, args, over).merged_file();
        (overridden(sources, args, over), text, RunLocation::Resume(dir.to_owned()))
    } else {
        let sources = overridden(new, args, over);
        (sources.clone(), sources.merged_file(), RunLocation::New(dir.to_owned()))
    };
    let missing = if args.allow_missing { Missing::Episodes } else { Missing::Nothing };
    Ok((sources, Options { given: text.unwrap_or_default(), missing, ..shown_options(place) }))
}

fn overridden(sources: Sources, args: &RunArgs, over: &[String]) -> Sources {
    over.iter().cloned().fold(args.over(sources), Sources::with)
}

/// Returns options of a run that reports progress on standard error.
pub(super) fn shown_options(place: RunLocation) -> Options {
    Options { progress: train::stderr(), ..Options::new(place) }
}

/// Returns true if this process is not the one that writes files and messages.
pub(super) fn is_follower(launch: Option<&Launch>) -> bool {
    launch.is_some_and(|launch| launch.rank > 0)
}

/// Returns the plan of a run. Rank 0 prints its warnings.
pub(super) fn ready_plan(
    sources: &Sources,
    registry: &Registry,
    launch: Option<&Launch>,
) -> Result<Plan, Failure> {
    if is_follower(launch) {
        return plan_checked(sources, registry, Purpose::Train);
    }
    let plan = plan_with_warnings(sources, registry, Purpose::Train)?;
    for warning in survey(&plan).warnings() {
        tell(format_args!("warning: {warning}"));
    }
    Ok(plan)
}
