//! The command line: a thin user of the library.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::check::{Purpose, Sources, check, render};
use crate::checkpoint::Which;
use crate::eval::EvalSpec;
use crate::plan::{self, Plan};
use crate::registry::Registry;
use crate::run_dir::{Place, RunDir};
use crate::train::{self, Interrupt, Options, Weights};

mod info;

/// Trains teams of language-model agents with reinforcement learning.
#[derive(Parser)]
#[command(name = "maverl", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the agents, orchestras, environments and rewards that are linked in.
    List,
    /// Says what a configuration means, and touches no weights.
    Check {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print the plan as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Trains the team.
    Train(RunArgs),
    /// Plays held-out tasks: avg@k and pass@k, per data source.
    Eval(EvalArgs),
    /// Says what a run directory holds, and what came of the run.
    Info {
        /// The run directory.
        run: PathBuf,
    },
}

/// Where a configuration comes from; later ones win.
#[derive(Args, Debug, Clone, Default)]
pub struct ConfigArgs {
    /// The configuration; without one, defaults.
    #[arg(value_name = "CONFIG")]
    file: Option<PathBuf>,
    /// The same, by name.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "file")]
    named: Option<PathBuf>,
    /// Sets a key, as `--set models.small.optim.lr=1e-5`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The same as `--set seed=N`.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// What `maverl train` takes; examples take the same.
#[derive(Args, Debug, Clone, Default)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The same as `--set steps=N`; the one key that may change when a run is resumed.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// The run directory, which must be empty or new. Without it, `runs/<name>-<n>`.
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Goes on with the run in this directory, from its last checkpoint, with its configuration.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
}

#[derive(Args)]
struct EvalArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Evaluate a checkpoint of this run, with its configuration.
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Which checkpoint: `last`, `best` or a step.
    #[arg(long, default_value = "last", requires = "run", value_parser = which)]
    checkpoint: Which,
    /// The split. [default: `eval.test_split`]
    #[arg(long)]
    split: Option<String>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Why a command failed, as it is printed.
#[derive(Debug)]
pub struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// The `main` of a binary with maverl's command line; `maverl::main!` calls it.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    exit(run(cli.command))
}

/// The `main` of an example: `maverl train` with a configuration of its own under `name` where the user gives none.
///
/// The example's `base` is what relative paths in its configuration are relative to.
pub fn train_example(name: &str, config: &str, base: &Path) -> ExitCode {
    #[derive(Parser)]
    struct Example {
        #[command(flatten)]
        run: RunArgs,
    }
    let example = Example::parse();
    exit(train(&example.run, Some(Given { name, text: config, base })))
}

fn exit(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|Failure(message)| {
        eprintln!("error: {}", message.trim_end());
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List => print(&info::list(&Registry::collect()?)),
        Command::Check { config, json } => {
            let plan = planned(&config.sources(None), &Registry::collect()?, Purpose::Train)?;
            print(&if json { plan::json(&plan) } else { plan::table(&plan) })
        }
        Command::Train(args) => train(&args, None),
        Command::Eval(args) => eval(&args),
        Command::Info { run } => print(&info::run(&run)?),
    }
}

/// A configuration that comes with a program.
struct Given<'a> {
    name: &'a str,
    text: &'a str,
    base: &'a Path,
}

impl ConfigArgs {
    fn path(&self) -> Option<&PathBuf> {
        self.file.as_ref().or(self.named.as_ref())
    }

    fn sources(&self, given: Option<&Given<'_>>) -> Sources {
        let sources = match (self.path(), given) {
            (Some(path), _) => Sources::file(path),
            (None, Some(Given { name, text, base })) => {
                Sources::environment().text(format!("{name}.toml"), *text, *base)
            }
            (None, None) => Sources::environment(),
        };
        self.over(sources)
    }

    /// The command line's layer on top of others.
    fn over(&self, sources: Sources) -> Sources {
        let seed = self.seed.map(|seed| format!("seed={seed}"));
        self.set.iter().cloned().chain(seed).fold(sources, Sources::with)
    }
}

/// The plan, or every problem as one message.
fn planned(sources: &Sources, registry: &Registry, purpose: Purpose) -> Result<Plan, Failure> {
    let plan = check(sources, registry, purpose).map_err(|problems| {
        let theme = miette::GraphicalTheme::default();
        let count = problems.len();
        let noun = if count == 1 { "problem" } else { "problems" };
        Failure(format!("{count} {noun} in the configuration\n\n{}", render(&problems, theme)))
    })?;
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(plan)
}

fn train(args: &RunArgs, given: Option<Given<'_>>) -> Result<ExitCode, Failure> {
    let registry = Registry::collect()?;
    let steps = args.steps.map(|steps| format!("steps={steps}"));
    let (sources, text, place) = match &args.resume {
        Some(dir) => {
            let (sources, text) = of_run(dir)?;
            (args.config.over(sources), text, Place::Resume(dir.clone()))
        }
        None => {
            let text = match (args.config.path(), &given) {
                (Some(path), _) => std::fs::read_to_string(path).unwrap_or_default(),
                (None, Some(given)) => given.text.to_owned(),
                (None, None) => String::new(),
            };
            let stem = match (args.config.path(), &given) {
                (Some(path), _) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
                (None, given) => given.as_ref().map(|given| given.name.to_owned()),
            };
            let stem = stem.unwrap_or_else(|| "run".to_owned());
            let next = || Place::Next { parent: PathBuf::from("runs"), stem };
            (
                args.config.sources(given.as_ref()),
                text,
                args.out.clone().map_or_else(next, Place::New),
            )
        }
    };
    let plan = planned(&steps.into_iter().fold(sources, Sources::with), &registry, Purpose::Train)?;
    let report = block_on(async {
        let interrupt = Interrupt::on_signals()?;
        let options = Options { place, given: text, progress: train::stderr(), interrupt };
        Ok::<_, Failure>(train::train(&plan, &registry, options).await?)
    })?;
    print(&report.table())?;
    Ok(ExitCode::from(report.exit_code()))
}

/// The sources of a run's own configuration, with the directory its paths are relative to, and its text as given.
fn of_run(dir: &Path) -> Result<(Sources, String), Failure> {
    let origin = RunDir::open(dir)?.origin()?;
    let resolved = toml::to_string(&origin.config)?;
    let name = dir.join("resolved.toml").display().to_string();
    Ok((Sources::default().text(name, resolved, &origin.provenance.base), origin.given))
}

fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let registry = Registry::collect()?;
    let (sources, weights) = match &args.run {
        Some(dir) => (args.config.over(of_run(dir)?.0), Weights::Run(dir.clone(), args.checkpoint)),
        None => (args.config.sources(None), Weights::Start),
    };
    let plan = planned(&sources, &registry, Purpose::Eval)?;
    let split = args.split.as_deref().unwrap_or(&plan.eval.test_split);
    let spec = EvalSpec::new(&plan.eval, split);
    let report = block_on(async {
        Ok::<_, Failure>(train::eval(&plan, &registry, &weights, &spec).await?)
    })?;
    print(&if args.json { serde_json::to_string_pretty(&report)? } else { report.table() })
}

fn which(text: &str) -> Result<Which, String> {
    match text {
        "last" => Ok(Which::Last),
        "best" => Ok(Which::Best),
        step => {
            step.parse().map(Which::Step).map_err(|_| "write `last`, `best` or a step".to_owned())
        }
    }
}

fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}

/// Writes to standard output; a reader that has gone (`| head`) is no error.
fn print(text: &str) -> Result<ExitCode, Failure> {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
