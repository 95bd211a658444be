//! Generates a model of all built-in environments from `builtin:tiny`: supervised training on replies of every
//! example's team in its environment. A short last phase has errors, so that each team is sometimes right and can still
//! improve.
//!
//! `cargo run --release -p maverl-lab --bin make_generalist` overwrites `crates/models/generalist`.

mod oracle;

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use maverl::registry::Registry;
use maverl_lab::teach::{Stage, copy};

/// Generates a model of all built-in environments.
#[derive(Parser)]
struct Arguments {
    /// Output directory.
    #[arg(long, default_value = "crates/models/generalist")]
    out: PathBuf,
    /// Starting model.
    #[arg(long, default_value = "crates/models/tiny")]
    from: PathBuf,
    /// Optimizer steps on whole rows: the words of the environments.
    #[arg(long, default_value_t = 300)]
    reading_steps: usize,
    /// Optimizer steps on replies without errors.
    #[arg(long, default_value_t = 2500)]
    reply_steps: usize,
    /// Optimizer steps on replies with errors.
    #[arg(long, default_value_t = 300)]
    imperfect_steps: usize,
    /// Share of wrong decisions in the last phase.
    #[arg(long, default_value_t = 0.25)]
    noise: f64,
    /// Seed of demonstrations and their order.
    #[arg(long, default_value_t = 20_260_212)]
    seed: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Runtime::new()?.block_on(make(&arguments))
}

async fn make(arguments: &Arguments) -> Result<()> {
    let Arguments { out, from, noise, seed, .. } = arguments;
    copy(from, out)?;
    let stage = |steps, lr, whole, number| Stage {
        steps,
        rows_per_step: 64,
        lr,
        whole,
        seed: seed + number,
    };
    let stages = [
        (stage(arguments.reading_steps, 1.5e-3, true, 0), 0.0),
        (stage(arguments.reply_steps, 1.5e-3, false, 1), 0.0),
        (stage(arguments.imperfect_steps, 5e-4, false, 2), *noise),
    ];
    for (stage, noise) in stages.iter().filter(|(stage, _)| stage.steps > 0) {
        stage.teach(out, &turns(stage, *noise).await?).await?;
    }
    println!("wrote {}", out.display());
    Ok(())
}

/// Returns equally many turns of each example.
async fn turns(stage: &Stage, noise: f64) -> Result<Vec<maverl::trajectory::Turn>> {
    let registry = Registry::collect()?;
    let dir = maverl_lab::examples();
    let mut examples: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let run = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "toml") && !path.ends_with("Cargo.toml")
    };
    examples.retain(run);
    examples.sort();
    let each = stage.rows().div_ceil(examples.len());
    let mut turns = Vec::new();
    for example in &examples {
        // The starting model knows this example: its facts are generated, since memorized ones do not help.
        let mut some = match example.ends_with("search_orchestra.toml") {
            true => orchestras::search::demonstrations(stage.seed, each, noise).await?,
            false => oracle::demonstrations(example, each, noise, stage.seed, &registry).await?,
        };
        some.truncate(each);
        turns.extend(some);
    }
    turns.truncate(stage.rows());
    Ok(turns)
}
