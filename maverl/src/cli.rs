//! `maverl train`, and what the other commands, which are in the crate `maverl-cli`, share with it.
//!
//! They are in this crate because an example is a program that only trains: the first command of the README compiles no
//! other command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};

use crate::config::source::Sources;

mod card;
pub mod check_config;
pub mod examples;
pub mod export;
pub mod models;
pub mod number;
pub mod paths;
pub mod runs;
mod seeds;
mod shutdown;
mod stages;
pub mod terminal;
pub mod training;
pub mod usage;

pub use check_config::{checked, configured, planned};
pub use terminal::{print, tell};

use paths::of_run;
use training::train;

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
    config: ConfigArgs,
    /// Same as `--set steps=N`; may differ when a run is resumed.
    #[arg(long, value_name = "N", value_parser = number::seed)]
    steps: Option<u64>,
    /// Run directory to write, new or empty. [default: `runs/<name of CONFIG>-<n>`]
    #[arg(long, value_name = "DIR", value_parser = paths::to_write(), conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Resume the run in this directory from its last checkpoint, with its configuration.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "named"])]
    resume: Option<PathBuf>,
    /// With `--resume`: continue although files of episodes (rollouts, evaluations) were removed.
    #[arg(long, requires = "resume")]
    allow_missing: bool,
    /// Train once with each of these seeds (`0..5`, `0..=4` or `1,2,7`), into `DIR/seed-N`; existing runs are resumed.
    /// [default of DIR: `runs/<name of CONFIG>-seeds-<n>`]
    #[arg(long, value_name = "SEEDS", conflicts_with_all = ["resume", "seed"])]
    seeds: Option<seeds::Seeds>,
}

/// Error message of a command. It is wrapped when it is printed, except for what follows an empty line.
#[derive(Debug)]
pub struct Failure(pub String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

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

/// Runs a command, and returns the exit code of the process. Wrong vector instructions (`MAVERL_SIMD`) are an error before
/// the command starts.
pub fn exit(command: impl FnOnce() -> Result<ExitCode, Failure>) -> ExitCode {
    let selected = maverl_kernels::simd::select_path().map_err(Failure::from);
    let result = selected.and_then(|_| command());
    #[cfg(feature = "mpi")]
    if result.is_ok() {
        crate::dist::leave_job();
    }
    let code = result.unwrap_or_else(|Failure(message)| {
        tell(format_args!("error: {}", message.trim_end()));
        ExitCode::FAILURE
    });
    #[cfg(feature = "mpi")]
    crate::dist::end_failed_job();
    code
}

/// A configuration that comes with a program.
pub struct BuiltinConfig<'a> {
    name: &'a str,
    text: &'a str,
    base: &'a Path,
}

impl ConfigArgs {
    /// Returns the path of the file.
    pub fn path(&self) -> Option<&PathBuf> {
        self.file.as_ref().or(self.named.as_ref())
    }

    /// Returns true if there is a file or an assignment.
    pub fn is_given(&self) -> bool {
        self.path().is_some() || !self.set.is_empty()
    }

    /// Returns true for `--quick`.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Returns all sources.
    pub fn sources(&self, given: Option<&BuiltinConfig<'_>>) -> Sources {
        self.over(self.base(given))
    }

    /// Returns the file or the program's configuration, and the environment.
    pub fn base(&self, given: Option<&BuiltinConfig<'_>>) -> Sources {
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

/// Runs a future on a runtime of its own.
///
/// # Errors
///
/// Those of the future, or of starting threads.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(future);
    shutdown::shut_down(runtime);
    done
}
