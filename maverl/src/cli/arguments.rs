//! Arguments of `maverl train` and of examples, and the configuration that they give.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use crate::cli::{number, paths};
use crate::config::TrackTarget;
use crate::config::source::{Sources, config_stem};

/// Sources of a configuration; later ones override earlier ones.
#[derive(Args, Debug, Clone, Default)]
pub struct ConfigArgs {
    /// Configuration, a TOML file, or one that `maverl examples` lists, such as `example:single`. Without one, every key has its
    /// default; `environment.name` and `orchestra.name` have none, and need `--set`.
    #[arg(value_name = "CONFIG")]
    file: Option<PathBuf>,
    /// Same as CONFIG.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "file")]
    named: Option<PathBuf>,
    /// Override a key of the file: `--set models.small.optim.lr=1e-5`; can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Same as `--set seed=N`.
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    /// Run two steps of a few tasks, to test a configuration.
    #[arg(long)]
    quick: bool,
}

/// Settings of `--quick`; explicit settings override them.
const QUICK: [&str; 4] = ["steps=2", "task.tasks_per_step=2", "task.group_size=4", "eval.tasks=4"];

/// Arguments of `maverl train` and of examples.
#[derive(Args, Debug, Clone, Default)]
pub struct RunArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Same as `--set steps=N`; may differ when a run is resumed.
    #[arg(long, value_name = "N", value_parser = number::seed)]
    pub(super) steps: Option<u64>,
    /// Run directory to write, new or empty. [default: `runs/<name of CONFIG>-<n>`]
    #[arg(long, value_name = "DIR", value_parser = paths::to_write(), conflicts_with = "resume")]
    pub(super) out: Option<PathBuf>,
    /// Resume the run in this directory from its last checkpoint, with its configuration.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "named"])]
    pub(super) resume: Option<PathBuf>,
    /// With `--resume`: continue although files of episodes (rollouts, evaluations) were removed.
    #[arg(long, requires = "resume")]
    pub(super) allow_missing: bool,
    /// Train once with each of these seeds (`0..5`, `0..=4` or `1,2,7`), into `DIR/seed-N`; existing runs are resumed.
    /// [default of DIR: `runs/<name of CONFIG>-seeds-<n>`]
    #[arg(long, value_name = "SEEDS", conflicts_with_all = ["resume", "seed"])]
    pub(super) seeds: Option<Seeds>,
    /// Train with so many processes on this machine, which this one starts; where a launcher started one process on each of
    /// several machines, with so many on each.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    pub(super) ranks_per_node: Option<NonZeroUsize>,
    /// Report the run while it runs to `mlflow`, `trackio`, `wandb` or `swanlab`, as `track.to`; `mlflow=URL` and `trackio=URL` name a
    /// server. Can be repeated.
    #[arg(long, value_name = "NAME")]
    pub(super) track: Vec<TrackTarget>,
    /// Same as `--set track.python=PYTHON`: a Python that has the package of the tracker.
    #[arg(long, value_name = "PYTHON")]
    pub(super) track_python: Option<String>,
}

/// Seeds, as `0..5`, `0..=4` or `1,2,7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seeds(pub(super) Vec<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number::ranges(text, "seeds").map(Self)
    }
}

/// A configuration that comes with a program.
pub struct BuiltinConfig<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    pub(super) base: &'a Path,
}

impl ConfigArgs {
    #[cfg(test)]
    pub(super) fn of_file(file: PathBuf) -> Self {
        Self { file: Some(file), ..Self::default() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> Option<&PathBuf> {
        self.file.as_ref().or(self.named.as_ref())
    }

    /// Returns true if there is a file or an assignment.
    pub fn is_given(&self) -> bool {
        self.path().is_some() || !self.set.is_empty()
    }

    /// Returns the words of a command line with the same arguments, of which CONFIG is the first.
    pub fn words(&self) -> Vec<String> {
        let path = self.path().map(|path| path.display().to_string());
        let sets = self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]);
        let seed = self.seed.map(|seed| format!("--seed={seed}"));
        let quick = self.quick.then(|| "--quick".to_owned());
        path.into_iter().chain(sets).chain(seed).chain(quick).collect()
    }

    /// Returns true for `--quick`.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Returns all sources.
    pub fn sources(&self, given: Option<&BuiltinConfig<'_>>) -> Sources {
        self.over(self.base_sources(given))
    }

    /// Returns the file or the program's configuration, and the environment.
    pub fn base_sources(&self, given: Option<&BuiltinConfig<'_>>) -> Sources {
        match (self.path(), given) {
            (Some(path), _) => Sources::file(path),
            (None, Some(BuiltinConfig { name, text, base })) => {
                Sources::environment().text(format!("{name}.toml"), *text, *base)
            }
            (None, None) => Sources::environment(),
        }
    }

    /// Adds the command line's layer on top of other sources.
    pub fn over(&self, sources: Sources) -> Sources {
        let quick = QUICK.iter().filter(|_| self.quick).map(|set| (*set).to_owned());
        let seed = self.seed.map(|seed| format!("seed={seed}"));
        quick.chain(self.set.iter().cloned()).chain(seed).fold(sources, Sources::with)
    }
}

impl RunArgs {
    /// Adds the command line's layer on top of other sources.
    pub(super) fn over(&self, sources: Sources) -> Sources {
        let steps = self.steps.map(|steps| format!("steps={steps}"));
        let targets: Vec<String> =
            self.track.iter().map(|to| format!("{:?}", to.to_string())).collect();
        let to = (!targets.is_empty()).then(|| format!("track.to=[{}]", targets.join(", ")));
        let python = self.track_python.as_ref().map(|python| format!("track.python={python:?}"));
        let all = steps.into_iter().chain(to).chain(python);
        all.fold(self.config.over(sources), Sources::with)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn seeds_are_ranges_and_lists() {
        let seeds = |text: &str| text.parse::<Seeds>().map(|Seeds(seeds)| seeds);
        assert_eq!(seeds("0..5").unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(seeds("0..=2").unwrap(), [0, 1, 2]);
        assert_eq!(seeds("7, 1,2").unwrap(), [7, 1, 2]);
        assert_eq!(seeds("0..2,1,9").unwrap(), [0, 1, 9]);
        for wrong in ["", "5..0", "a..b", "-1", "0..9223372036854775808", "1.5"] {
            let error = seeds(wrong).unwrap_err();
            assert!(error.contains("write a range as `0..5`") || error.contains("more"), "{error}");
        }
        assert!(seeds("0..1000000000000").unwrap_err().contains("more than 10000 seeds"));
    }
}
