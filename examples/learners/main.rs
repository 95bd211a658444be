//! Trains every preset for at most a minute on the shipped world, from the shipped model, and compares what the team solves
//! before and after, task by task.
//!
//! `cargo run --release --example learners` takes about an hour on two cores; `-- drmas dpo` trains those two alone. The
//! table is written again after every run, so that it is there however the rest ends.

mod score;
mod settings;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use maverl::checkpoint::Which;
use maverl::config::Preset;
use maverl::eval::EvalSpec;
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::run_dir::Place;
use maverl::train::{Options, Weights};

use score::{Row, Scores, table};
use settings::plan;

/// Trains presets, and says by how much each improves what is solved of held-out tasks.
#[derive(Parser)]
struct Arguments {
    /// Presets, as `algorithm.name` has them; without any, all.
    presets: Vec<String>,
    /// Runs of each preset.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The longest that a run may train; evaluations come on top.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Held-out tasks.
    #[arg(long, default_value_t = 600)]
    tasks: usize,
    /// Steps after which a run ends, if its time does not end it before.
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Where runs and the table are written; runs that are there are made again.
    #[arg(long, default_value = "runs/learners")]
    out: PathBuf,
    /// Another setting of every run, such as `models.tiny.optim.lr=1e-3`.
    #[arg(long)]
    set: Vec<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let presets = chosen(&arguments.presets)?;
    let registry = Registry::collect()?;
    fs::create_dir_all(&arguments.out)?;
    let (mut rows, mut before) = (Vec::new(), BTreeMap::new());
    for preset in presets {
        for seed in 0..arguments.seeds {
            let run = || run(preset, seed, &arguments, &registry, &mut before);
            let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                Err(anyhow!("it panicked: {}", text.unwrap_or_default()))
            });
            let row = done.unwrap_or_else(|error| Row::failed(preset, seed, &error));
            eprintln!("{}", row.line());
            rows.push(row);
            fs::write(arguments.out.join("table.md"), table(&rows))?;
        }
    }
    println!("{}", table(&rows));
    Ok(())
}

/// The presets of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<Preset>> {
    if names.is_empty() {
        return Ok(Preset::ALL.to_vec());
    }
    let find = |name: &String| {
        let found = Preset::ALL.into_iter().find(|preset| preset.name() == name);
        found.with_context(|| {
            format!(
                "no preset is called `{name}`; there are {}",
                Preset::ALL.map(Preset::name).join(", ")
            )
        })
    };
    names.iter().map(find).collect()
}

/// Trains one preset from one seed. What the starting model solves is remembered for the next preset of the same team.
fn run(
    preset: Preset,
    seed: u64,
    arguments: &Arguments,
    registry: &Registry,
    before: &mut BTreeMap<(String, u64), Scores>,
) -> Result<Row> {
    let runtime = tokio::runtime::Runtime::new()?;
    let dir = arguments.out.join(format!("{}-{seed}", preset.name().replace('+', "p")));
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let plan = runtime.block_on(plan(preset, seed, arguments, registry))?;
    let spec = EvalSpec { split: "test".to_owned(), samples: 1, temperature: None };
    let score = |weights: &Weights| -> Result<Scores> {
        let played = maverl::train::play(&plan, registry, weights, &spec);
        Ok(Scores::of(&runtime.block_on(played)?))
    };
    let team = (plan.orchestra.name.clone(), seed);
    let start = match before.get(&team) {
        Some(start) => start.clone(),
        None => score(&Weights::Start)?,
    };
    before.insert(team, start.clone());
    let (steps, seconds) = runtime.block_on(train(&plan, registry, &dir, arguments.seconds))?;
    let end = score(&Weights::Run(dir, Which::Last))?;
    if start.tasks() != end.tasks() {
        bail!("{} tasks were scored before and {} after", start.tasks(), end.tasks());
    }
    Ok(Row::trained(preset, seed, (steps, seconds), start, end))
}

/// Trains until the time is over; the steps done, and how long they took.
async fn train(plan: &Plan, registry: &Registry, dir: &Path, seconds: f64) -> Result<(u64, f64)> {
    let options = Options::new(Place::New(dir.to_owned()));
    let (interrupt, start) = (options.interrupt.clone(), Instant::now());
    let timer = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        interrupt.raise();
    });
    let report = maverl::train(plan, registry, options).await;
    timer.abort();
    Ok((report?.summary.steps, start.elapsed().as_secs_f64()))
}
