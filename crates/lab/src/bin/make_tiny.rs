//! Generates `builtin:tiny`: a tokenizer trained on the texts of the search environment, random weights, and supervised
//! training on perfect, then on imperfect demonstrations of the search team.
//!
//! `cargo run --release -p maverl-lab --bin make_tiny` overwrites `crates/models/tiny`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use maverl::builtin::facts;
use maverl::files::create::{Size, byte_level_bpe, random_model};
use maverl::trajectory::Turn;
use maverl_lab::teach::{Stage, copy};

/// Generates the built-in model.
#[derive(Parser)]
struct Arguments {
    /// Output directory.
    #[arg(long, default_value = "crates/models/tiny")]
    out: PathBuf,
    /// Skips the first two phases and starts from this model.
    #[arg(long)]
    from: Option<PathBuf>,
    /// Optimizer steps on whole rows: language, and copying.
    #[arg(long, default_value_t = 1200)]
    reading_steps: usize,
    /// Optimizer steps on perfect replies: selection of the copied text.
    #[arg(long, default_value_t = 1500)]
    reply_steps: usize,
    /// Optimizer steps on imperfect replies, which leave room for improvement.
    #[arg(long, default_value_t = 150)]
    imperfect_steps: usize,
    /// Share of wrong decisions in imperfect replies.
    #[arg(long, default_value_t = 0.25)]
    noise: f64,
    /// Seed of weights and demonstrations.
    #[arg(long, default_value_t = 20_260_211)]
    seed: u64,
}

/// Data and settings of a training phase.
struct Phase {
    stage: Stage,
    /// Share of wrong decisions in the demonstrations.
    noise: f64,
}

/// 0.9 million parameters: enough to learn to copy a name, and little more.
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
                stage: Stage {
                    steps: arguments.reading_steps,
                    rows_per_step: 64,
                    lr: 3e-3,
                    whole: true,
                    seed: *seed,
                },
                noise: 0.0,
            };
            let turns = reading.turns().await?;
            let texts = texts(&turns[..turns.len().min(20_000)]);
            let tokenizer = byte_level_bpe(&texts, SIZE.vocab_size, facts::pieces)?;
            random_model(out, SIZE, &tokenizer, *seed)?;
            reading.stage.teach(out, &turns).await?;
            let flawless = Phase {
                stage: Stage {
                    steps: arguments.reply_steps,
                    rows_per_step: 128,
                    lr: 1.5e-3,
                    whole: false,
                    seed: seed + 1,
                },
                noise: 0.0,
            };
            flawless.stage.teach(out, &flawless.turns().await?).await?;
        }
    }
    let imperfect = Phase {
        stage: Stage {
            steps: arguments.imperfect_steps,
            rows_per_step: 128,
            lr: 5e-4,
            whole: false,
            seed: seed + 2,
        },
        noise: arguments.noise,
    };
    imperfect.stage.teach(out, &imperfect.turns().await?).await?;
    println!("wrote {}", out.display());
    Ok(())
}

impl Phase {
    /// Returns the turns of the phase, in the order of the demonstrations.
    async fn turns(&self) -> Result<Vec<Turn>> {
        // Three times as many as are used, so that there are enough of each agent.
        let rows = self.stage.rows();
        let seed = self.stage.seed;
        let turns = orchestras::search::demonstrations(seed, 3 * rows, self.noise).await?;
        Ok(balanced(turns, rows))
    }
}

/// Returns `rows` turns, half of them of the answerer, whose task is hardest.
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

fn texts(turns: &[Turn]) -> Vec<String> {
    let said = |turn: &Turn| {
        let asked = turn.prompt.iter().map(|message| message.content.clone());
        asked.chain([turn.reply.clone()]).collect::<Vec<_>>()
    };
    let roles = ["user\n", "assistant\n"].map(str::to_owned);
    let documents = facts::corpus().into_iter().map(|document| document.line());
    turns.iter().flat_map(said).chain(roles).chain(documents).collect()
}
