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
use maverl_lab::teach::{TeachingStage, copy_model};

/// Generates a model of all built-in environments.
#[derive(Parser)]
struct GeneralistArguments {
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
    let arguments = GeneralistArguments::parse();
    tokio::runtime::Runtime::new()?.block_on(make_model(&arguments))
}

async fn make_model(arguments: &GeneralistArguments) -> Result<()> {
    let GeneralistArguments { out, from, noise, seed, .. } = arguments;
    copy_model(from, out)?;
    let stages = [
        (arguments.reading_steps, 1.5e-3, true, 0.0),
        (arguments.reply_steps, 1.5e-3, false, 0.0),
        (arguments.imperfect_steps, 5e-4, false, *noise),
    ];
    for (seed, (steps, lr, whole, noise)) in (*seed..).zip(stages).filter(|(_, stage)| stage.0 > 0)
    {
        let stage = TeachingStage { steps, rows_per_step: 64, lr, whole, seed };
        stage.teach(out, &stage_turns(&stage, noise).await?).await?;
    }
    println!("wrote {}", out.display());
    Ok(())
}

/// Returns equally many turns of each example.
async fn stage_turns(stage: &TeachingStage, noise: f64) -> Result<Vec<maverl::trajectory::Turn>> {
    let registry = Registry::collect()?;
    let dir = maverl_lab::examples_dir();
    let mut examples: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    examples.retain(|path| {
        path.extension().is_some_and(|end| end == "toml") && !path.ends_with("Cargo.toml")
    });
    examples.sort();
    let each = stage.row_count().div_ceil(examples.len());
    let mut turns = Vec::new();
    for example in &examples {
        // The starting model knows this example: its facts are generated, since memorized ones do not help.
        let mut some = if example.ends_with("search_orchestra.toml") {
            orchestras::search::demonstrations(stage.seed, each, noise).await?
        } else {
            oracle::team_demonstrations(example, each, noise, stage.seed, &registry).await?
        };
        some.truncate(each);
        turns.extend(some);
    }
    turns.truncate(stage.row_count());
    Ok(turns)
}
