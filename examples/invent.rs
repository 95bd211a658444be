//! Writes questions of `builtin:arithmetic` that are in none of its splits: as tasks, and as demonstrations of the model under a
//! verifier of debaters.
//!
//! `cargo run --release --example invent -- --out data/sums` writes `tasks.jsonl` and `solver.jsonl`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use agents::debate::{Debater, Motion};
use anyhow::{Context, Result, bail};
use clap::Parser;
use maverl::Agent as _;
use maverl::builtin::arithmetic;
use maverl::rng::SplitMix64;
use maverl::task::Task;
use serde_json::json;

/// Writes invented questions of arithmetic, as tasks and as demonstrations.
#[derive(Parser)]
struct Arguments {
    /// Output directory.
    #[arg(long)]
    out: PathBuf,
    /// Seeds of generators, from 1 on, each of which gives at most 1350 questions of a level.
    #[arg(long, default_value_t = 17)]
    worlds: u64,
    /// Highest level of difficulty, from 1 to 4.
    #[arg(long, default_value_t = 1)]
    max_level: u64,
}

fn create_file(path: &Path) -> Result<BufWriter<fs::File>> {
    fs::File::create(path).map(BufWriter::new).with_context(|| path.display().to_string())
}

fn main() -> Result<()> {
    let Arguments { out, worlds, max_level } = Arguments::parse();
    let easy = |task: &Task| task.level().is_some_and(|level| level <= max_level);
    let shipped: BTreeSet<String> = arithmetic::problems()
        .into_iter()
        .flat_map(|(_, tasks)| tasks)
        .map(|task| task.question)
        .collect();
    fs::create_dir_all(&out)?;
    let mut of_tasks = create_file(&out.join("tasks.jsonl"))?;
    let mut of_solver = create_file(&out.join("solver.jsonl"))?;
    let (mut asked, mut shown) = (BTreeSet::new(), 0);
    for world in 1..=worlds {
        let mut draw = SplitMix64::new(world);
        let all = arithmetic::invent(world).into_iter().flat_map(|(_, tasks)| tasks);
        for task in all.filter(easy).filter(|task| !shipped.contains(&task.question)) {
            // Questions of few numbers are invented often, and are shown as often.
            writeln!(of_solver, "{}", demonstration(&task, &mut draw)?)?;
            shown += 1;
            if asked.insert(task.question.clone()) {
                let id = format!("invented-{:05}", asked.len() - 1);
                let Task { source, question, data, .. } = task;
                let row = json!({"id": id, "source": source, "question": question, "split": "train",
                    "answers": data["answers"], "level": data["level"]});
                writeln!(of_tasks, "{row}")?;
            }
        }
    }
    of_tasks.flush()?;
    of_solver.flush()?;
    let n = asked.len();
    println!("wrote {n} tasks and {shown} demonstrations to {}", out.display());
    Ok(())
}

/// Returns the right reply to the prompt of a debater, who in half of the rows has heard two statements.
fn demonstration(task: &Task, draw: &mut SplitMix64) -> Result<serde_json::Value> {
    let right = task.data["answers"][0].as_str().and_then(|answer| answer.parse::<i64>().ok());
    let Some(right) = right else { bail!("{} has no number as its answer", task.id) };
    let mut heard = Vec::new();
    if !draw.gen_bool(0.5) {
        for name in ["You", "Debater 2"] {
            heard.push(format!("{name}: <answer>{}</answer>", said(right, draw)));
        }
    }
    let question = task.question.clone();
    let prompt =
        Debater.prompt(&Motion { question, heard, task: "What is the answer?".to_owned() });
    Ok(json!({"prompt": prompt.user, "completion": format!("<answer>{right}</answer>")}))
}

/// Returns the right number half of the time, and else one near it.
fn said(right: i64, draw: &mut SplitMix64) -> i64 {
    if draw.gen_bool(0.5) { right } else { right + draw.pick(&[-10, -2, -1, 1, 2, 10]) }
}
