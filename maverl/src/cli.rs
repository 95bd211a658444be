//! Command line of maverl, on top of the library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::check::Sources;
use crate::registry::Registry;
use crate::table::paragraphs;
use crate::train::own;

mod bench;
mod blank;
mod card;
mod check_config;
mod collect;
mod compare;
mod complete;
mod eval;
mod examples;
mod explain;
mod export;
mod generate;
mod gpu;
mod grade;
mod info;
mod inspect;
mod machine;
mod models;
mod new;
mod number;
mod paths;
mod replay;
mod runs;
mod score;
mod seeds;
#[cfg(feature = "serve")]
mod serve;
mod shutdown;
mod stages;
mod terminal;
#[cfg(test)]
mod tests;
mod training;
mod usage;
mod view;

pub use new::{NewError, new_team};

use check_config::{checked, configured, planned};
use paths::of_run;
use terminal::{print, tell};
use training::train;

/// Trains teams of language-model agents with reinforcement learning.
///
/// Begin with `maverl list`, which lists the declarations in this binary. A TOML file describes a run: `check` validates
/// it, and `train` runs it. `eval`, `info` and `replay` read the run directory. `inspect`, `generate`, `score` and
/// `export` work on single models.
#[derive(Parser)]
#[command(name = "maverl", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a crate for a new team, ready to run.
    New {
        /// Name of the crate and its directory, in snake_case; agents' names begin with it.
        name: String,
        /// Checkout of maverl that the new crate depends on.
        ///
        /// Default: the checkout that this binary was built from, or else the published version.
        #[arg(long, value_name = "DIR")]
        maverl: Option<PathBuf>,
    },
    /// List the linked agents, orchestras, environments and rewards, with their options.
    List,
    /// Explain a key or a table of the configuration, or a preset of `algorithm.name`.
    Explain(explain::ExplainArgs),
    /// Print the JSON Schema of a configuration, with which editors complete and check keys.
    ///
    /// It has every key with its type, default, range and description, and the settings of the linked agents,
    /// orchestras, environments, estimators and surrogates. `#:schema ./maverl.schema.json` in the first line of a TOML file names it.
    Schema,
    /// Validate a configuration, and print its plan or all of its problems.
    ///
    /// The plan has the model of each agent, and the episodes, rows and bytes of a step. Everything that `train` rejects
    /// when it starts is reported, except tensors whose shapes differ from `config.json`; missing weights are a warning. The
    /// command reads the configuration; `config.json`, tokenizer, chat template and headers of the weights of each model (for
    /// models on the hub that are not in the cache, only `config.json`); configuration and header of each adapter; all tasks of
    /// the splits in use; and the corpus. It loads no weights, starts no environment and sends no request to a retriever.
    ///
    /// `--ranks` prints the plan on so many processes instead: memory, tokens and communication of a rank.
    Check {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        simulated: check_config::Simulated,
        /// Print the plan as JSON; for an invalid configuration, `{"problems": [..]}`.
        #[arg(long)]
        json: bool,
    },
    /// Train a team, and evaluate it before and after.
    ///
    /// Ctrl-C stops after the current step. `--resume` continues a run that was stopped or killed, or adds steps to a
    /// complete one. `--seeds` trains once with each seed, one after the other, and prints a table of the results. CONFIG may
    /// be a file of stages (`stages = ["sft.toml", "ppo.toml"]`): each is trained, and models of the same name go on.
    Train(RunArgs),
    /// Evaluate a team on held-out tasks: avg@n and pass@k, per data source.
    ///
    /// With `--run`, the weights are those of a checkpoint; otherwise, those that training would start from. `[eval]` in
    /// the configuration sets the number of tasks and of episodes. `--compare` evaluates the untrained team, a single
    /// agent with as many tokens, and a vote of that agent on the same tasks.
    Eval(eval::EvalArgs),
    /// Summarize a run directory, and verify that its files are unchanged. Without one, describe this machine.
    ///
    /// Without a run directory, prints the vector instructions of the processor, the GPUs, the libraries that devices need,
    /// the features of this binary, and the devices that `runtime.device` can be.
    Info {
        /// Run directory.
        #[arg(value_name = "RUN")]
        run: Option<PathBuf>,
        /// Print the summary as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the runs in a directory, one per line.
    Runs {
        /// Directory that contains run directories. [default: `runs` in the working directory]
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Print the runs as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Replay a training episode of a run, and compare every turn bit for bit.
    ///
    /// The episode runs with its original weights: those of the last checkpoint before it, updated with the stored
    /// episodes of the steps in between. The command prints each turn, and fails if any differs. Episodes of evaluations
    /// cannot be replayed.
    Replay(replay::ReplayArgs),
    /// Serve pages about runs, live: metrics, episodes turn by turn, groups, advantages term by term.
    ///
    /// Prints an address of this machine, and serves until Ctrl-C. It only reads. From another machine, forward the port:
    /// `ssh -L 8080:127.0.0.1:8080 HOST maverl view --port 8080`.
    View(view::ViewArgs),
    /// Print an episode of a run: turns, actions, rewards and advantages.
    Show(view::ShowArgs),
    /// Write a part of a run for other programs: CSV, JSON lines, Parquet, Chrome trace.
    Extract(view::ExtractArgs),
    /// Complete a prompt, and print the text as it is generated.
    ///
    /// The engine is that of rollout: the same weights, prompt ids, sampling and seed give the same completion.
    Generate(generate::GenerateArgs),
    /// Write the log-probs of given texts, conversations or token ids.
    ///
    /// Each row of the input is written with `input_ids`, `logprobs` (of each next token, one fewer than ids) and
    /// `entropy` (in nats, after each token).
    Score(score::ScoreArgs),
    /// Grade answers in a file by a rule of the environments.
    Grade(grade::GradeArgs),
    /// Write data sets from episodes: for supervised training, preferences, verifiers and process rewards.
    ///
    /// The episodes are those of runs (`--from`), or are played for it: by a configuration, or by a checkpoint of a run
    /// (`--run`). Rows are JSON lines or Parquet, with TRL's names of columns, and `maverl` has the origin of each. Beside them are
    /// `provenance.json` and a card with counts. Equal episodes and options make equal files.
    Collect(Box<collect::CollectArgs>),
    /// Describe a model or an adapter: shape, size, vocabulary, chat template, special tokens, files.
    Inspect(inspect::InspectArgs),
    /// Write a model, an adapter or a policy of a run as a directory for other programs.
    Export(export::ExportArgs),
    /// Write a model of a known shape with random weights, for measurements.
    NewModel(blank::BlankArgs),
    /// Serve a model, a team, or a part of an environment to other programs.
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Serve(serve::ServeCommand),
    /// Serve a model, a team, or a part of an environment to other programs. This binary was built without the feature
    /// `serve`.
    #[cfg(not(feature = "serve"))]
    #[command(disable_help_flag = true)]
    Serve {
        /// Options of a server.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        options: Vec<String>,
    },
    /// Measure this machine: rollout, training and their parts, with random weights.
    ///
    /// Every figure is a median over repeats, after one repeat that is not counted. Each part runs in its own process, so
    /// that peak memory is measured per part.
    Bench(bench::BenchArgs),
    /// Compile the kernels of GPUs, and check a device.
    #[command(subcommand)]
    Gpu(gpu::GpuCommand),
    /// Write a completion script for a shell.
    Completions {
        /// Shell.
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}

/// Sources of a configuration; later ones override earlier ones.
#[derive(Args, Debug, Clone, Default)]
pub struct ConfigArgs {
    /// Configuration, a TOML file. Without one, every key has its default; `environment.name` and `orchestra.name` have
    /// none, and need `--set`.
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
pub struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Runs maverl's command line as the `main` of a binary; called by `maverl::main!`.
pub fn main() -> ExitCode {
    let cli: Cli = usage::parse();
    exit(select_simd().and_then(|()| run(cli.command)))
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
    exit(select_simd().and_then(|()| train(&example.run, Some(&given))))
}

/// Selects the vector instructions of this process, so that a wrong `MAVERL_SIMD` is an error before the command
/// starts.
fn select_simd() -> Result<(), Failure> {
    maverl_kernels::simd::select()?;
    Ok(())
}

fn exit(result: Result<ExitCode, Failure>) -> ExitCode {
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

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::New { name, maverl } => new::create(&name, maverl.as_deref()),
        Command::List => {
            let registry = Registry::collect()?;
            let (width, table) = (terminal::width(), info::list(&registry));
            let lacking =
                info::lacking(&registry).map(|line| format!("\n\n{}", paragraphs(&line, width)));
            print(&(table.draw(width) + &lacking.unwrap_or_default()))
        }
        Command::Schema => {
            print(&serde_json::to_string_pretty(&crate::check::schema(&Registry::collect()?))?)
        }
        Command::Check { config, simulated, json } => {
            check_config::command(&config, &Registry::collect()?, &simulated, json)
        }
        Command::Explain(args) => {
            print(&own(&explain::explain(&args, &Registry::collect()?, terminal::width())?))
        }
        Command::Train(args) => train(&args, None),
        Command::Eval(args) => eval::eval(&args),
        Command::Info { run: Some(run), json } => runs::info(&run, json),
        Command::Info { run: None, json } => machine::machine(json),
        Command::Runs { dir, json } => runs::runs(&paths::of_runs(dir.as_deref(), "runs")?, json),
        Command::Replay(args) => replay::replay(&args),
        Command::View(args) => view::view(&args),
        Command::Show(args) => view::show(&args),
        Command::Extract(args) => view::extract(&args),
        Command::Generate(args) => generate::generate(&args),
        Command::Score(args) => score::score(&args),
        Command::Grade(args) => grade::grade(&args),
        Command::Collect(args) => collect::collect(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Export(args) => export::export(&args),
        Command::NewModel(args) => blank::blank(&args),
        #[cfg(feature = "serve")]
        Command::Serve(command) => serve::serve(&command),
        #[cfg(not(feature = "serve"))]
        Command::Serve { options: _ } => Err(Failure(lacks_feature!("serve").to_owned())),
        Command::Bench(args) => bench::bench(&args),
        Command::Gpu(command) => gpu::gpu(&command),
        Command::Completions { shell } => complete::completions(shell),
    }
}

/// A configuration that comes with a program.
struct BuiltinConfig<'a> {
    name: &'a str,
    text: &'a str,
    base: &'a Path,
}

impl ConfigArgs {
    fn path(&self) -> Option<&PathBuf> {
        self.file.as_ref().or(self.named.as_ref())
    }

    fn sources(&self, given: Option<&BuiltinConfig<'_>>) -> Sources {
        self.over(self.base(given))
    }

    /// Returns the file or the program's configuration, and the environment.
    fn base(&self, given: Option<&BuiltinConfig<'_>>) -> Sources {
        match (self.path(), given) {
            (Some(path), _) => Sources::file(path),
            (None, Some(BuiltinConfig { name, text, base })) => {
                Sources::environment().text(format!("{name}.toml"), *text, *base)
            }
            (None, None) => Sources::environment(),
        }
    }

    /// Adds the command line's layer on top of other sources.
    fn over(&self, sources: Sources) -> Sources {
        let quick = QUICK.iter().filter(|_| self.quick).map(|set| (*set).to_owned());
        let seed = self.seed.map(|seed| format!("seed={seed}"));
        quick.chain(self.set.iter().cloned()).chain(seed).fold(sources, Sources::with)
    }
}

fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(future);
    shutdown::shut_down(runtime);
    done
}
