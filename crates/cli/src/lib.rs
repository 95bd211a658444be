//! Command line of maverl: the commands beside `train`, which is in `maverl` for programs that only train.
//!
//! `maverl::main!` calls [`main`].
//!
//! A command is a variant of `Command`, a file, and examples in `maverl/src/cli/examples.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use maverl::cli::paths::of_run;
use maverl::cli::training::train;
use maverl::cli::{
    ConfigArgs, Failure, RunArgs, Simulated, block_on, check_config, export, load_config, models,
    number, paths, plan_checked, plan_with_warnings, print, runs, tell, terminal, usage,
};
use maverl::output;
use maverl::registry::Registry;
use maverl::table::paragraphs;
use maverl::train::own_name;

#[doc(hidden)]
pub mod bench;
mod blank;
mod collect;
mod compare;
mod complete;
mod data;
mod device;
mod doctor;
mod eval;
mod explain;
mod generate;
mod grade;
mod info;
mod inspect;
mod launch;
mod machine;
mod new;
mod replay;
mod score;
#[cfg(feature = "serve")]
mod serve;
mod shipped;
#[cfg(test)]
mod tests;
mod track;
mod view;

pub use new::{NewError, new_team};

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
    /// List the examples and recipes that ship with the program, print one, or write one with its files.
    ///
    /// Wherever a command takes a configuration, it takes the name of one of these too: `maverl train example:single`. The list has
    /// the models, data, servers and programs that each needs and that the program does not contain.
    Examples(shipped::ExamplesArgs),
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
        simulated: Simulated,
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
    /// Print a file with which a cluster starts a run, and starts it again where it was stopped.
    ///
    /// Nothing is submitted. The file begins the run, or resumes it if its directory exists, and gives it time to write a checkpoint
    /// before its machines are taken away.
    Launch(launch::LaunchArgs),
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
    /// Examine this machine: what it lacks or limits, with remedies.
    ///
    /// Looks at processor, memory, disk, sandbox, GPUs, network and caches, and takes a step of training with the model
    /// `builtin:tiny`: its tokens per second, and whether it has the bits that other machines compute. The exit code is 1 if this
    /// machine cannot train.
    Doctor(doctor::DoctorArgs),
    /// List the runs in a directory, one per line.
    Runs {
        /// Directory that contains run directories. [default: `runs` in the working directory]
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Print the runs as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Report a run to a tracker: MLflow, trackio, Weights & Biases, SwanLab.
    ///
    /// The rows that the tracker lacks are read from the run directory, and sent. `maverl train --track` does so while a run runs; this
    /// command does it for a run of any time, also of one that another process trains.
    Track(track::TrackArgs),
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
    /// Describe data: splits, columns, the first row, and the task that it is to maverl.
    ///
    /// DATA is a file, or a data set on the Hugging Face hub (`hf:openai/gsm8k`). Files of a small data set are downloaded, of
    /// another one those of the split.
    Data(data::DataArgs),
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
    /// Check a device, and compile the kernels of GPUs.
    #[command(subcommand)]
    Device(device::DeviceCommand),
    /// Write a completion script for a shell.
    ///
    /// The script completes commands, arguments and values: names of examples and recipes, keys of `--set`, and runs in the
    /// directory `runs`. It asks this program for them, so a script need not be written again for a new version.
    Completions {
        /// Shell.
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}

/// Runs maverl's command line as the `main` of a binary; called by `maverl::main!`.
pub fn main() -> ExitCode {
    if let Some(code) = complete::answer_shell() {
        return code;
    }
    let cli: Cli = usage::parse();
    maverl::cli::exit(|| run(cli.command))
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::New { name, maverl } => new::create(&name, maverl.as_deref()),
        Command::List => {
            let registry = Registry::collect()?;
            let (width, table) = (terminal::width(), info::list(&registry));
            let lacking = info::lacking().map(|line| format!("\n\n{}", paragraphs(&line, width)));
            print(&(table.draw(width) + &lacking.unwrap_or_default()))
        }
        Command::Examples(args) => shipped::examples(&args),
        Command::Schema => print(&output::json(&maverl::check::schema(&Registry::collect()?))?),
        Command::Check { config, simulated, json } => {
            check_config::command(&config, &Registry::collect()?, &simulated, json)
        }
        Command::Explain(args) => {
            print(&own_name(&explain::explain(&args, &Registry::collect()?, terminal::width())?))
        }
        Command::Train(args) => train(&args, None),
        Command::Eval(args) => eval::eval(&args),
        Command::Info { run: Some(run), json } => runs::info(&run, json, view::notices_of),
        Command::Info { run: None, json } => machine::machine(json),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Runs { dir, json } => runs::runs(&paths::of_runs(dir.as_deref(), "runs")?, json),
        Command::Track(args) => track::track(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::View(args) => view::view(&args),
        Command::Show(args) => view::show(&args),
        Command::Extract(args) => view::extract(&args),
        Command::Generate(args) => generate::generate(&args),
        Command::Score(args) => score::score(&args),
        Command::Grade(args) => grade::grade(&args),
        Command::Collect(args) => collect::collect(&args),
        Command::Data(args) => data::data(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Export(args) => export::export(&args),
        Command::NewModel(args) => blank::blank(&args),
        #[cfg(feature = "serve")]
        Command::Serve(command) => serve::serve(&command),
        #[cfg(not(feature = "serve"))]
        Command::Serve { options: _ } => {
            Err(Failure(maverl::lacks_feature!("serve", "maverl-cli").to_owned()))
        }
        Command::Launch(args) => launch::launch(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Device(command) => device::device(&command),
        Command::Completions { shell } => complete::completions(shell),
    }
}
