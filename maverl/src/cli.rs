//! Command line of maverl, on top of the library.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::check::Sources;
use crate::registry::Registry;
use crate::run_dir::{Missing, RunLocation};
use crate::train::Options;

mod bench;
mod blank;
mod card;
mod check_config;
mod compare;
mod complete;
mod eval;
mod examples;
mod explain;
mod export;
mod generate;
mod grade;
mod info;
mod inspect;
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
mod terminal;
#[cfg(test)]
mod tests;
mod training;
mod usage;
mod view;

pub use new::{NewError, new_team};

use check_config::{checked, planned};
use training::{carry_out, options};

/// Trains teams of language-model agents with reinforcement learning.
///
/// Begin with `maverl list`: it shows what is linked into this binary. A run is described by a TOML file, which `check`
/// explains and `train` carries out; `eval`, `info` and `replay` look at the run directory it leaves. `inspect`,
/// `generate`, `score` and `export` are for models by themselves.
#[derive(Parser)]
#[command(name = "maverl", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the crate of a new team, ready to run.
    New {
        /// The directory and the crate to make, in snake_case; agents' names begin with it.
        name: String,
        /// A checkout of maverl for the new crate to depend on.
        ///
        /// Without it, the checkout that this maverl was built from, or else the published version.
        #[arg(long, value_name = "DIR")]
        maverl: Option<PathBuf>,
    },
    /// Lists what is linked in: agents, orchestras, environments and rewards, with their options.
    List,
    /// Says what a name in a configuration stands for: a key, a table, the parts of an algorithm.
    Explain(explain::ExplainArgs),
    /// Says what a configuration means, or everything that is wrong with it.
    ///
    /// Shows who speaks through which model, and how many episodes, rows and bytes a step is. What `train` would refuse at
    /// its start is reported at once, but for tensors of a model that do not fit its `config.json`. It reads the
    /// configuration; of each model `config.json`, the tokenizer, the chat template and the headers of the weights (of one
    /// on the hub only `config.json`, unless it is in the cache); of an adapter the configuration and the header; every task
    /// of the splits that are used; and the corpus. It loads no weights, starts no environment and asks no retriever.
    Check {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print the plan as JSON; of a configuration that is wrong, `{"problems": [..]}`.
        #[arg(long)]
        json: bool,
    },
    /// Trains a team, and evaluates it before and after.
    ///
    /// Ctrl-C stops after the step that is under way; `--resume` goes on with a run however it ended. With `--seeds` it trains
    /// once with each seed, one after the other, and says what that came to.
    Train(RunArgs),
    /// Plays held-out tasks and says how many are solved: avg@k and pass@k, per data source.
    ///
    /// With `--run` the weights are those of a checkpoint, with CONFIG (or without either) those training would start
    /// from. How many tasks and episodes is `[eval]` in the configuration. With `--compare` the same questions are put to the
    /// team before its training, to one agent with as many tokens, and to a vote of that agent.
    Eval(eval::EvalArgs),
    /// Says what a run directory holds, what came of the run, and whether anything in it is not as the run left it.
    Info {
        /// The run directory.
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lists the runs in a directory, a line each.
    Runs {
        /// A directory of run directories.
        #[arg(value_name = "DIR", default_value = "runs")]
        dir: PathBuf,
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Plays a training episode of a run again, and compares every turn to the bit.
    ///
    /// The weights are those the episode was played with: a checkpoint's, and from there learned again from the stored
    /// episodes of the steps between. Prints each turn; fails if any is not the same. Evaluations are stored, and not
    /// replayed.
    Replay {
        /// The run directory.
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// `STEP/TASK/INDEX`, for example `12/train-0001/3`. A step alone (`12`) lists its episodes.
        #[arg(value_name = "EPISODE")]
        episode: String,
        /// Print the turns, or the list, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serves pages about runs, live: metrics, episodes turn by turn, groups, advantages term by term.
    ///
    /// Prints an address of this machine, and serves until Ctrl-C. It only reads. From another machine, forward the port:
    /// `ssh -L 8080:127.0.0.1:8080 HOST maverl view --port 8080`.
    View(view::ViewArgs),
    /// Prints an episode of a run: turns, actions, rewards and advantages.
    Show(view::ShowArgs),
    /// Completes a prompt, and prints the text as it is made.
    ///
    /// Uses the engine that plays episodes: the same weights, prompt ids, sampling and seed give the same completion.
    Generate(generate::GenerateArgs),
    /// Writes the log-probs of given texts, conversations or token ids.
    ///
    /// A row of the output is the row of the input with `input_ids`, `logprobs` (of each next token, one less than
    /// there are ids) and `entropy` (in nats, after each token).
    Score(score::ScoreArgs),
    /// Judges answers in a file by a rule of the environments, without a model.
    Grade(grade::GradeArgs),
    /// Says what a model or an adapter is: shape, size, vocabulary, chat template, special tokens, files.
    Inspect(inspect::InspectArgs),
    /// Writes a model, an adapter or a policy of a run as a directory that other programs load.
    Export(export::ExportArgs),
    /// Writes a model of a known shape with random weights, for measurements.
    NewModel(blank::BlankArgs),
    /// Serves a model, a team, or a part of an environment to other programs.
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Serve(serve::ServeCommand),
    /// Serves a model, a team, or a part of an environment to other programs; not in this binary, which was built without
    /// the feature `serve`.
    #[cfg(not(feature = "serve"))]
    #[command(disable_help_flag = true)]
    Serve {
        /// Options of a server.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        options: Vec<String>,
    },
    /// Measures this machine: rollout, training and their parts, on models with random weights.
    ///
    /// Every figure is a median over repeats, after one that is not counted. Each part runs in a process of its own, so that
    /// its peak of memory is its own too.
    Bench(bench::BenchArgs),
    /// Writes the script that completes this command line in a shell.
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}

/// Sources of a configuration; later ones override earlier ones.
#[derive(Args, Debug, Clone, Default)]
pub struct ConfigArgs {
    /// The configuration, a TOML file. Without one every key has its default; `environment.name` and `orchestra.name`, which
    /// have none, are then to be `--set`.
    #[arg(value_name = "CONFIG")]
    file: Option<PathBuf>,
    /// The same as CONFIG.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "file")]
    named: Option<PathBuf>,
    /// Sets a key over the file's, as `--set models.small.optim.lr=1e-5`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The same as `--set seed=N`.
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    /// A few steps of a few tasks, to see that a configuration runs.
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
    /// The same as `--set steps=N`; it may change when a run is resumed.
    #[arg(long, value_name = "N", value_parser = number::seed)]
    steps: Option<u64>,
    /// The run directory to write, which must be new or empty. [default: `runs/<name of CONFIG>-<n>`]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Goes on with the run in this directory, from its last checkpoint, with its configuration.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "named"])]
    resume: Option<PathBuf>,
    /// With `--resume`: goes on although files of episodes (rollouts, evaluations) were removed.
    #[arg(long, requires = "resume")]
    allow_missing: bool,
    /// Trains once with each of these seeds, as `0..5`, `0..=4` or `1,2,7`, into `DIR/seed-N`; runs that are there are gone on
    /// with. [default of DIR: `runs/<name of CONFIG>-seeds-<n>`]
    #[arg(long, value_name = "SEEDS", conflicts_with_all = ["resume", "seed"])]
    seeds: Option<seeds::Seeds>,
}

/// Error message of a command, as it is printed.
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
    /// Trains the team of this example. Takes what `maverl train` takes; CONFIG replaces the example's own.
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
    result.unwrap_or_else(|Failure(message)| {
        eprintln!("error: {}", message.trim_end());
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::New { name, maverl } => new(&name, maverl.as_deref()),
        Command::List => print(&info::list(&Registry::collect()?).draw(terminal::width())),
        Command::Check { config, json } => {
            check_config::command(&config.sources(None), &Registry::collect()?, json)
        }
        Command::Explain(args) => {
            print(&explain::explain(&args, &Registry::collect()?, terminal::width())?)
        }
        Command::Train(args) => train(&args, None),
        Command::Eval(args) => eval::eval(&args),
        Command::Info { run, json } => runs::info(&run, json),
        Command::Runs { dir, json } => runs::runs(&dir, json),
        Command::Replay { run, episode, json } => replay::replay(&run, &episode, json),
        Command::View(args) => view::view(&args),
        Command::Show(args) => view::show(&args),
        Command::Generate(args) => generate::generate(&args),
        Command::Score(args) => score::score(&args),
        Command::Grade(args) => grade::grade(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Export(args) => export::export(&args),
        Command::NewModel(args) => blank::blank(&args),
        #[cfg(feature = "serve")]
        Command::Serve(command) => serve::serve(&command),
        #[cfg(not(feature = "serve"))]
        Command::Serve { options: _ } => Err(Failure(
            "this maverl was built without servers; build it with `--features full`".to_owned(),
        )),
        Command::Bench(args) => bench::bench(&args),
        Command::Completions { shell } => complete::completions(shell),
    }
}

fn new(name: &str, maverl: Option<&Path>) -> Result<ExitCode, Failure> {
    let dir = new_team(Path::new(""), name, maverl)?;
    print(&format!("wrote {0}; go on with `cd {0}` and `cargo run -- list`", dir.display()))
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

fn train(args: &RunArgs, given: Option<&BuiltinConfig<'_>>) -> Result<ExitCode, Failure> {
    let registry = Registry::collect()?;
    if let Some(seeds) = &args.seeds {
        return seeds::train(args, given, seeds, &registry);
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
    let options = Options { given: text.unwrap_or_default(), missing, ..options(place) };
    let report = carry_out(&sources, &registry, options)?;
    print(&report.table(terminal::width()))?;
    Ok(ExitCode::from(report.exit_code()))
}

/// Returns the sources of a run's own configuration, and its text as given.
fn of_run(dir: &Path) -> Result<(Sources, String), Failure> {
    let run = paths::run(dir)?;
    let name = run.resolved().display().to_string();
    let resolved = std::fs::read_to_string(run.resolved())?;
    Ok((Sources::default().text(name, resolved, dir), run.origin()?.given))
}

fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(future);
    // An environment may block a thread forever; its episode was abandoned, and the thread is not joined.
    runtime.shutdown_background();
    done
}

/// Writes to standard output; a closed reader (`| head`) is not an error.
fn print(text: &str) -> Result<ExitCode, Failure> {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
