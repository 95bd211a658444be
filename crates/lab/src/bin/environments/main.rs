//! Trains every example configuration for at most a minute: every orchestra and every environment once, from a built-in
//! model. Compares the tasks that each team solves before and after.
//!
//! `cargo run --release -p maverl-lab --bin environments` takes about half an hour on two cores; `-- vote debate` trains only
//! those two. The table is written again after every run, so that it exists if a later run fails.

mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;
use maverl::Sources;
use maverl::registry::Registry;
use maverl::train::Weights;
use maverl_lab::measure::{self, resolve_plan};
use orchestras as _; // brings every orchestra and its agents

use table::{ExampleRow, format_table};

/// Trains the examples, and reports the improvement of each on held-out tasks.
#[derive(Parser)]
struct EnvironmentArguments {
    /// Examples, by the names of their files; all if omitted.
    examples: Vec<String>,
    /// Maximum training time of a run in seconds, evaluations excluded.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Held-out tasks.
    #[arg(long, default_value_t = 200)]
    tasks: usize,
    /// Directory of the runs and the table; existing runs are replaced.
    #[arg(long, default_value = "runs/environments")]
    out: PathBuf,
    /// Additional setting of every run, such as `models.tiny.optim.lr=1e-3`.
    #[arg(long)]
    set: Vec<String>,
}

/// Settings of every run: a time limit ends it, and this program evaluates.
const SET: [&str; 4] = [
    "steps=100000",
    "eval.before_and_after=false",
    "checkpoint.every=0",
    // A run without any training signal is visible in the table.
    "algorithm.max_flat_steps=100000",
];

fn main() -> Result<()> {
    let arguments = EnvironmentArguments::parse();
    let examples = chosen_examples(&arguments.examples)?;
    let registry = Registry::collect()?;
    fs::create_dir_all(&arguments.out)?;
    let mut rows = Vec::new();
    for (name, path) in examples {
        let row = measure::catch_panic(|| train_example(&name, &path, &arguments, &registry))
            .unwrap_or_else(|error| ExampleRow::failed_row(&name, &error));
        eprintln!("{}", row.format_line());
        rows.push(row);
        fs::write(arguments.out.join("table.md"), format_table(&rows))?;
    }
    println!("{}", format_table(&rows));
    Ok(())
}

/// Returns the configurations of these names, or all.
fn chosen_examples(names: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let dir = maverl_lab::examples_dir();
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "toml") && name != "Cargo" {
            all.push((name, path));
        }
    }
    all.sort();
    let mut unknown = names.iter().filter(|name| all.iter().all(|(known, _)| known != *name));
    if let Some(name) = unknown.next() {
        let all: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        bail!("no example is called `{name}`; there are {}", all.join(", "));
    }
    all.retain(|(name, _)| names.is_empty() || names.contains(name));
    Ok(all)
}

/// Trains one example.
fn train_example(
    name: &str,
    path: &Path,
    arguments: &EnvironmentArguments,
    registry: &Registry,
) -> Result<ExampleRow> {
    let runtime = tokio::runtime::Runtime::new()?;
    let dir = arguments.out.join(name);
    let tasks = format!("eval.tasks={}", arguments.tasks);
    let set = SET.iter().map(|set| (*set).to_owned()).chain([tasks]);
    let sources = set.chain(arguments.set.iter().cloned()).fold(Sources::file(path), Sources::with);
    let plan = resolve_plan(&sources, registry)?;
    let before =
        runtime.block_on(measure::evaluate_test_split(&plan, registry, &Weights::Start))?;
    let trained = measure::train_until(&plan, registry, &dir, arguments.seconds, before);
    let trained = runtime.block_on(trained)?;
    let metrics = fs::read_to_string(dir.join("metrics.jsonl")).context("the run's metrics")?;
    ExampleRow::trained_row(name, &plan, trained, &metrics)
}
