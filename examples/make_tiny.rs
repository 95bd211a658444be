//! Makes `builtin:tiny`: a tokenizer trained on the world's texts, random weights, and supervised training on flawless,
//! then on imperfect demonstrations of the search team.
//!
//! `cargo run --release --example make_tiny` writes `maverl/models/tiny` again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use maverl::config::Aggregation;
use maverl::draw::Draw;
use maverl::model::builtin;
use maverl::model::create::{Size, byte_level_bpe, random_model};
use maverl::registry::Registry;
use maverl::runtime::{Batch, Objective, Policy, Row, Runtime};
use maverl::trajectory::Turn;
use maverl::world::facts;
use maverl::{Purpose, Sources, check, plan};

/// Makes the shipped model again.
#[derive(Parser)]
struct Arguments {
    /// Where it is written.
    #[arg(long, default_value = "maverl/models/tiny")]
    out: PathBuf,
    /// Skips the first two phases and starts from this model.
    #[arg(long)]
    from: Option<PathBuf>,
    /// Optimizer steps on whole rows: to learn the language, and to copy.
    #[arg(long, default_value_t = 1200)]
    reading_steps: usize,
    /// Optimizer steps on flawless replies: to learn what to copy.
    #[arg(long, default_value_t = 1500)]
    reply_steps: usize,
    /// Optimizer steps on imperfect replies: to leave something to learn.
    #[arg(long, default_value_t = 150)]
    imperfect_steps: usize,
    /// How often a decision of those is wrong.
    #[arg(long, default_value_t = 0.25)]
    noise: f64,
    /// From which weights and demonstrations derive.
    #[arg(long, default_value_t = 20_260_211)]
    seed: u64,
}

/// How rows are learned.
struct Phase {
    steps: usize,
    rows_per_step: usize,
    lr: f64,
    /// Learn the prompts too: names come again in them, which is how a small model learns to copy.
    whole: bool,
    /// How often a demonstrated decision is wrong.
    noise: f64,
    seed: u64,
}

/// 0.9 million parameters: what learns to copy a name, and not much more.
const SIZE: Size = Size {
    vocab_size: 800,
    hidden_size: 128,
    num_hidden_layers: 4,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    intermediate_size: 384,
    max_position_embeddings: 512,
};

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Runtime::new()?.block_on(make(&arguments))
}

async fn make(arguments: &Arguments) -> Result<()> {
    let Arguments { out, seed, .. } = arguments;
    match &arguments.from {
        Some(from) => copy(from, out)?,
        None => {
            let reading = Phase {
                steps: arguments.reading_steps,
                rows_per_step: 64,
                lr: 3e-3,
                whole: true,
                noise: 0.0,
                seed: *seed,
            };
            let turns = reading.turns().await?;
            let texts = texts(&turns[..turns.len().min(20_000)]);
            let tokenizer = byte_level_bpe(&texts, SIZE.vocab_size, facts::pieces)?;
            random_model(out, SIZE, &tokenizer, *seed)?;
            learn(out, turns, &reading).await?;
            let flawless = Phase {
                steps: arguments.reply_steps,
                rows_per_step: 128,
                lr: 1.5e-3,
                whole: false,
                seed: seed + 1,
                ..reading
            };
            learn(out, flawless.turns().await?, &flawless).await?;
        }
    }
    let imperfect = Phase {
        steps: arguments.imperfect_steps,
        rows_per_step: 128,
        lr: 5e-4,
        whole: false,
        noise: arguments.noise,
        seed: seed + 2,
    };
    learn(out, imperfect.turns().await?, &imperfect).await?;
    println!("wrote {}", out.display());
    Ok(())
}

impl Phase {
    /// What is learned, in the order in which it was demonstrated.
    async fn turns(&self) -> Result<Vec<Turn>> {
        // Three times as many as are used, so that there are enough of each agent.
        let rows = self.steps * self.rows_per_step;
        let turns = orchestras::search::demonstrations(self.seed, 3 * rows, self.noise).await?;
        Ok(balanced(turns, rows))
    }
}

/// `rows` turns, half of them the answerer's, whose task is hardest.
fn balanced(turns: Vec<Turn>, rows: usize) -> Vec<Turn> {
    let (mut answers, mut others) = (rows / 2, rows - rows / 2);
    let keep = |turn: &Turn| {
        let left = if turn.seat.agent == "search/answerer" { &mut answers } else { &mut others };
        let keep = *left > 0;
        *left = left.saturating_sub(1);
        keep
    };
    turns.into_iter().filter(keep).collect()
}

/// Trains the model in a directory, in place, in one pass over the turns.
async fn learn(dir: &Path, turns: Vec<Turn>, phase: &Phase) -> Result<()> {
    let runtime = start(dir, phase.lr)?;
    let policy = runtime.policies()[0].clone();
    let row = |turn: &Turn| row(&policy, turn, phase.whole);
    let mut rows = turns.iter().map(row).collect::<Result<Vec<Row>>>()?;
    Draw::new(phase.seed).shuffle(&mut rows);
    let tokens: usize = rows.iter().map(|row| row.prompt.len() + row.completion.len()).sum();
    println!("{} rows of {:.1} tokens", rows.len(), tokens as f64 / rows.len() as f64);
    for (step, rows) in rows.chunks(phase.rows_per_step).enumerate() {
        let batch = Batch {
            rows: rows.to_vec(),
            objective: Objective::Supervised,
            minibatches: 1,
            epochs: 1,
            aggregation: Aggregation::TokenMean,
            longest: 1,
            target_kl: 0.0,
            lr: phase.lr * shape(step as f64 / phase.steps as f64),
        };
        let stats = policy.update(batch).await?;
        if step % 20 == 0 {
            println!("step {step}: loss {:.4}, gradient norm {:.3}", stats.loss, stats.grad_norm);
        }
    }
    policy.save(dir).await?;
    drop(policy);
    runtime.shutdown();
    // The moments are of no use to who starts from here.
    Ok(std::fs::remove_file(dir.join("optimizer.safetensors"))?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for file in builtin::FILES {
        std::fs::copy(from.join(file), to.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}

/// A twentieth of the way up, then half a cosine down.
fn shape(progress: f64) -> f64 {
    (progress / 0.05).min(1.0) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}

fn texts(turns: &[Turn]) -> Vec<String> {
    let said = |turn: &Turn| {
        let asked = turn.prompt.iter().map(|message| message.content.clone());
        asked.chain([turn.reply.clone()]).collect::<Vec<_>>()
    };
    let roles = ["user\n", "assistant\n"].map(str::to_owned);
    let documents = facts::corpus().into_iter().map(|document| document.line());
    turns.iter().flat_map(said).chain(roles).chain(documents).collect()
}

fn start(model: &Path, lr: f64) -> Result<Runtime> {
    let sources = Sources::default()
        .with("orchestra.name=search/route")
        .with(format!("models.tiny.path={:?}", std::path::absolute(model)?))
        .with(format!("models.tiny.optim.lr={lr:e}"))
        .with("models.tiny.optim.betas=[0.9, 0.98]");
    let registry = Registry::collect()?;
    let plan = check(&sources, &registry, Purpose::Train).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!(problems.join("\n"))
    })?;
    println!("{}", plan::table(&plan));
    Ok(Runtime::start(&plan)?)
}

fn row(policy: &Policy, turn: &Turn, whole: bool) -> Result<Row> {
    let tokenizer = policy.tokenizer();
    let mut ids = tokenizer.encode_rendered(&tokenizer.render(&turn.prompt, true)?)?;
    let asked = if whole { 1 } else { ids.len() };
    ids.extend(tokenizer.encode_plain(&turn.reply)?);
    ids.push(*tokenizer.stop_ids().first().context("the model has a stop id")?);
    let completion = ids.split_off(asked);
    Ok(Row {
        prompt: ids,
        completion,
        logprobs: Vec::new(),
        advantages: Vec::new(),
        temperature: 1.0,
        weights: Vec::new(),
        loss: plan::LossPlan::default(),
    })
}
