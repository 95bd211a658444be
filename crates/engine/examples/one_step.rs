//! Loads a model, generates, scores, and takes one optimizer step:
//! `cargo run --release -p maverl-engine --features models --example one_step`.

use std::sync::Arc;

use maverl_engine::files::ModelSource;
use maverl_engine::runtime::{Batch, Request, Row, Runtime, RuntimeOptions, Sampling, WorkerSpec};
use maverl_engine::text::{ChatInput, ChatMessage};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let worker = WorkerSpec::new("tiny", ModelSource::parse("builtin:tiny")?);
    let runtime = Runtime::start(&[worker], &RuntimeOptions::default())?;
    let policy = runtime.policies()[0].clone();
    let chat = ChatInput::open([ChatMessage::new("user", "Who wrote it?")]);
    let prompt = policy.tokenizer().encode_rendered(&policy.tokenizer().render_chat(&chat)?)?;
    let sampling = Arc::new(Sampling { max_tokens: 16, ..Sampling::default() });
    let mut rows = Vec::new();
    for seed in 0..8 {
        let request = Request::new(prompt.clone(), Arc::clone(&sampling), seed);
        let done = policy.generate(request).await?;
        let advantages = vec![if done.ids.len() < 16 { 1.0 } else { -1.0 }; done.ids.len()];
        let (completion, logprobs) = (done.ids, done.logprobs);
        let prompt = prompt.clone();
        rows.push(Row { prompt, completion, logprobs, advantages, ..Row::default() });
    }
    let scores = policy.logprobs(rows.clone()).await?;
    assert!(rows.iter().zip(scores).all(|(row, scored)| row.logprobs == scored), "to the bit");
    let stats = policy.update(Batch { rows, lr: 1e-4, ..Batch::default() }).await?;
    println!("loss {:.4}, gradient norm {:.3}", stats.loss, stats.grad_norm);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_loads_generates_scores_and_updates() {
        super::main().unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn the_example_has_at_most_25_lines_of_code() {
        let text = include_str!("one_step.rs");
        let function = text.split("#[tokio::main]").nth(1).unwrap_or_default();
        let function = function.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = function.lines().filter(|line| !line.trim().is_empty()).count();
        assert!((10..=25).contains(&lines), "{lines} lines");
    }
}
