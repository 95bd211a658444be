//! Common part of the commands that train.

use super::{BuiltinConfig, Failure, RunArgs, block_on, planned};
use crate::check::{Purpose, Sources, survey};
use crate::registry::Registry;
use crate::run_dir::RunLocation;
use crate::train::{self, Interrupt, Options, Report, tell};

impl RunArgs {
    /// Adds the command line's layer on top of other sources.
    pub(super) fn over(&self, sources: Sources) -> Sources {
        let steps = self.steps.map(|steps| format!("steps={steps}"));
        steps.into_iter().fold(self.config.over(sources), Sources::with)
    }

    /// Returns the name that run directories are derived from.
    pub(super) fn stem(&self, given: Option<&BuiltinConfig<'_>>) -> String {
        match (self.config.path(), given) {
            (Some(path), _) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            (None, Some(given)) => given.name.to_owned(),
            (None, None) => {
                tell("no configuration given: every key that `--set` leaves out has its default");
                "run".to_owned()
            }
        }
    }
}

/// Returns options of a run that reports progress on standard error.
pub(super) fn options(place: RunLocation) -> Options {
    Options { progress: train::stderr(), ..Options::new(place) }
}

/// Trains until the end or until a signal.
pub(super) fn carry_out(
    sources: &Sources,
    registry: &Registry,
    options: Options,
) -> Result<Report, Failure> {
    let plan = planned(sources, registry, Purpose::Train)?;
    for warning in survey(&plan)?.warnings() {
        tell(format_args!("warning: {warning}"));
    }
    block_on(async {
        let options = Options { interrupt: Interrupt::on_signals()?, ..options };
        Ok::<_, Failure>(Box::pin(train::train(&plan, registry, options)).await?)
    })
}
