//! Makes `builtin:tiny`: a tokenizer trained on the world's texts, random weights, and supervised training on imperfect
//! demonstrations of the search team.
//!
//! `cargo run --release --example make_tiny` writes `maverl/models/tiny` again, bit for bit on the same processor type.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use maverl::config::Aggregation;
use maverl::draw::Draw;
use maverl::model::create::{Size, byte_level_bpe, random_model};
use maverl::registry::Registry;
use maverl::runtime::{Batch, Objective, Policy, Row, Runtime};
use maverl::trajectory::Turn;
use maverl::world::facts;
use maverl::{Purpose, Sources, check, plan};
use orchestras::search::Noise;

/// Makes the shipped model again.
#[derive(Parser)]
struct Arguments {
    /// Where it is written.
    #[arg(long, default_value = "maverl/models/tiny")]
    out: PathBuf,
    /// Optimizer steps.
    #[arg(long, default_value_t = 1200)]
    steps: u64,
    /// Demonstrations a step.
    #[arg(long, default_value_t = 128)]
    batch: usize,
    /// Largest step size.
    #[arg(long, default_value_t = 3e-3)]
    lr: f64,
    /// How often a demonstrated decision is wrong.
    #[arg(long, default_value_t = 0.2)]
    noise: f64,
    /// The same halfway to an answer of two hops.
    #[arg(long, default_value_t = 0.6)]
    halfway: f64,
    /// From which weights and demonstrations derive.
    #[arg(long, default_value_t = 20_260_211)]
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
    let demonstrations = arguments.batch * arguments.steps as usize;
    let noise = Noise { halfway: arguments.halfway, elsewhere: arguments.noise };
    let turns = orchestras::search::demonstrations(arguments.seed, demonstrations, noise).await?;
    let texts = texts(&turns[..turns.len().min(20_000)]);
    let tokenizer = byte_level_bpe(&texts, SIZE.vocab_size, facts::pieces)?;
    random_model(&arguments.out, SIZE, &tokenizer, arguments.seed)?;

    let runtime = start(&arguments.out, arguments.lr)?;
    let policy = runtime.policies()[0].clone();
    let mut rows = turns.iter().map(|turn| row(&policy, turn)).collect::<Result<Vec<Row>>>()?;
    Draw::new(arguments.seed).shuffle(&mut rows);
    let tokens: usize = rows.iter().map(|row| row.prompt.len() + row.completion.len()).sum();
    println!("{} rows of {:.1} tokens", rows.len(), tokens as f64 / rows.len() as f64);
    for (step, rows) in rows.chunks(arguments.batch).enumerate() {
        let lr = arguments.lr * shape(step as f64 / arguments.steps as f64);
        let batch = Batch {
            rows: rows.to_vec(),
            objective: Objective::Supervised,
            minibatches: 1,
            epochs: 1,
            aggregation: Aggregation::TokenMean,
            lr,
        };
        let stats = policy.update(batch).await?;
        if step % 20 == 0 {
            println!("step {step}: loss {:.4}, gradient norm {:.3}", stats.loss, stats.grad_norm);
        }
    }
    policy.save(&arguments.out).await?;
    drop(policy);
    runtime.shutdown();
    // The moments are of no use to who starts from here.
    std::fs::remove_file(arguments.out.join("optimizer.safetensors"))?;
    println!("wrote {}", arguments.out.display());
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

fn start(model: &std::path::Path, lr: f64) -> Result<Runtime> {
    let sources = Sources::default()
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

fn row(policy: &Policy, turn: &Turn) -> Result<Row> {
    let tokenizer = policy.tokenizer();
    let mut ids = tokenizer.encode(&tokenizer.render(&turn.prompt, true)?)?;
    ids.extend(tokenizer.encode(&turn.reply)?);
    ids.push(*tokenizer.stop_ids().first().context("the model has a stop id")?);
    // Prompts are learned too: names come again in them, which is how a small model learns to copy.
    let completion = ids.split_off(1);
    Ok(Row {
        prompt: ids,
        completion,
        logprobs: Vec::new(),
        advantage: 0.0,
        temperature: 1.0,
        loss: plan::LossPlan::default(),
    })
}
