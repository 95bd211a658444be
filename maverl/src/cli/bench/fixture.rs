//! A model with random weights, run by the runtime that trains teams.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use maverl_kernels::sample::{derive_seed, uniform};
use serde_json::{Value, json};

use super::{BenchArgs, Dtype, Size};
use crate::agent::AskError;
use crate::check::{Purpose, Sources};
use crate::cli::{Failure, planned};
use crate::config::Aggregation;
use crate::env::EnvError;
use crate::model::StoredDtype;
use crate::model::blank::{SHAPES, blank_model};
use crate::model::create;
use crate::orchestra::{Orchestra, OrchestraName, Team};
use crate::plan::{LossPlan, Sampling};
use crate::registry::{
    AgentEntry, Declaration, Entry, EnvironmentEntry, OrchestraEntry, Registry, SourceLocation,
};
use crate::runtime::{Batch, Completion, Objective, Policy, Request, Row, Runtime};
use crate::task::Task;
use crate::trajectory::Seat;

/// Number of prompts, of tokens per prompt, and of tokens per reply.
pub(super) const ROWS: usize = 64;
pub(super) const PROMPT: usize = 64;
pub(super) const REPLY: usize = 64;

/// Context for the longest measured prompts; it costs nothing for short ones.
const CONTEXT: usize = 1024;

/// A policy ready for measurements.
pub(super) struct BenchFixture {
    runtime: Runtime,
    pub(super) policy: Policy,
    pub(super) size: create::Size,
    parameters: u64,
}

impl Size {
    /// Returns the shape of the model.
    pub(super) fn shape(self) -> create::Size {
        let name = match self {
            Self::S => "bench-s",
            Self::M => "bench-m",
        };
        let shape = SHAPES.iter().find(|(found, _)| *found == name);
        let (_, size) = shape.expect("the shapes that are measured are in the list");
        create::Size { max_position_embeddings: CONTEXT, ..*size }
    }
}

impl BenchFixture {
    /// Starts a runtime with a model of the requested size, with additional settings.
    pub(super) fn start(args: &BenchArgs, set: &[&str]) -> Result<Self, Failure> {
        let dir = std::env::temp_dir().join(format!("maverl-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let started = Self::start_in(&dir, args, set);
        // The files are read, or not needed after an error.
        drop(std::fs::remove_dir_all(&dir));
        started
    }

    fn start_in(dir: &Path, args: &BenchArgs, set: &[&str]) -> Result<Self, Failure> {
        let (size, stored) = match args.dtype {
            Dtype::F32 => (args.size.shape(), StoredDtype::F32),
            Dtype::Bf16 => (args.size.shape(), StoredDtype::Bf16),
        };
        let parameters = blank_model(dir, size, stored, 0)?;
        without_stop_ids(dir)?;
        let plan = planned(&sources(dir, args, set), &registry()?, Purpose::Train)?;
        let runtime = Runtime::start(&plan)?;
        let policy = runtime.policies()[0].clone();
        Ok(Self { runtime, policy, size, parameters })
    }

    /// Stops the runtime, and waits for its end.
    pub(super) fn stop(self) {
        drop(self.policy);
        self.runtime.shutdown();
    }

    /// Returns random token ids.
    pub(super) fn ids(&self, seed: u64, len: usize) -> Vec<u32> {
        let vocab = self.size.vocab_size as f64;
        (0..len as u64).map(|i| (uniform(seed, i) * vocab) as u32).collect()
    }

    /// Generates replies of exactly `len` tokens.
    pub(super) async fn replies(
        &self,
        prompts: &[Vec<u32>],
        tokens: usize,
    ) -> Result<Vec<Completion>, Failure> {
        let sampling = Arc::new(Sampling { max_tokens: tokens, ..Sampling::default() });
        let requests = prompts.iter().zip(0..).map(|(prompt, seed)| {
            let (prompt, sampling) = (prompt.clone(), Arc::clone(&sampling));
            self.policy.generate(Request { prompt, sampling, seed, watch: None })
        });
        Ok(futures::future::try_join_all(requests).await?)
    }

    /// Clears the engine's prompt cache, as an update does: a hash of the weights is a barrier too.
    pub(super) async fn forget(&self) -> Result<(), Failure> {
        Ok(self.policy.fingerprint().await.map(drop)?)
    }

    /// Returns rows of random tokens, of which one is the prompt.
    pub(super) fn rows(&self, rows: usize) -> Vec<Row> {
        let row = |i| {
            let completion = self.ids(derive_seed(2, i), PROMPT + REPLY - 1);
            let logprob = -(self.size.vocab_size as f32).ln();
            let logprobs = vec![logprob; completion.len()];
            row(
                self.ids(derive_seed(1, i), 1),
                completion,
                logprobs,
                if i % 2 == 0 { 1.0 } else { -1.0 },
            )
        };
        (0..rows as u64).map(row).collect()
    }

    /// Returns the operations of training per token of a row: forward and backward pass of every weight, with the
    /// embedding counted as the tied head, and of attention.
    pub(super) fn training_flop(&self, tokens: usize) -> f64 {
        6.0 * self.parameters as f64 + 3.0 * self.attention_flop(tokens)
    }

    /// Returns the operations of generating a row of `tokens` tokens, the last `new` of them sampled. Only those need
    /// the head.
    pub(super) fn rollout_flop(&self, tokens: usize, new: usize) -> f64 {
        let head = (self.size.vocab_size * self.size.hidden_size) as f64;
        let body = 2.0 * (self.parameters as f64 - head) + self.attention_flop(tokens);
        body * tokens as f64 + 2.0 * head * new as f64
    }

    /// Returns the operations of causal attention per token, averaged over a row of `tokens`.
    fn attention_flop(&self, tokens: usize) -> f64 {
        4.0 * (self.size.num_hidden_layers * self.size.hidden_size) as f64 * tokens as f64 / 2.0
    }
}

/// Returns a row for training.
pub(super) fn row(
    prompt: Vec<u32>,
    completion: Vec<u32>,
    logprobs: Vec<f32>,
    advantage: f32,
) -> Row {
    let advantages = vec![advantage; completion.len()];
    Row {
        prompt,
        completion,
        logprobs,
        advantages,
        temperature: 1.0,
        weights: Vec::new(),
        loss: LossPlan::default(),
    }
}

/// Returns a batch of rows for one optimizer step.
pub(super) fn batch(rows: Vec<Row>, objective: Objective) -> Batch {
    let longest = rows.iter().map(|row| row.completion.len()).max().unwrap_or(0);
    Batch {
        rows,
        objective,
        surrogate: None,
        longest,
        early_stop_kl: 0.0,
        minibatches: 1,
        epochs: 1,
        aggregation: Aggregation::TokenMean,
        lr: 1e-5,
    }
}

/// Removes the stop ids of a model directory, so that `max_tokens` alone determines the length of replies.
fn without_stop_ids(dir: &Path) -> Result<(), Failure> {
    for (file, key) in [
        ("config.json", "eos_token_id"),
        ("generation_config.json", "eos_token_id"),
        ("tokenizer_config.json", "eos_token"),
    ] {
        let path = dir.join(file);
        let mut settings: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        settings[key] = Value::Null;
        std::fs::write(&path, settings.to_string())?;
    }
    Ok(())
}

/// Returns the configuration: defaults, and the settings of the arguments.
fn sources(dir: &Path, args: &BenchArgs, set: &[&str]) -> Sources {
    let threads = format!("runtime.threads={}", args.threads);
    let path = format!("models.any.path={:?}", dir.display().to_string());
    let dtype = (args.dtype == Dtype::Bf16).then(|| "models.any.dtype=\"bf16\"".to_owned());
    let set = set.iter().map(|set| (*set).to_owned());
    let all = [path, threads].into_iter().chain(dtype).chain(args.set.iter().cloned()).chain(set);
    all.fold(Sources::default().text("bench.toml", "", PathBuf::new()), Sources::with)
}

/// Returns a team of one agent. A plan needs one; no episode is run with it.
fn registry() -> Result<Registry, Failure> {
    let declaration = |name| Declaration {
        name,
        summary: "Is measured.",
        place: SourceLocation { file: file!(), line: line!(), item: module_path!() },
        defaults: || json!({}),
    };
    let agent = AgentEntry {
        declaration: declaration(Alone::AGENT),
        inputs: &[],
        reply_format: String::new,
        build: |_| Ok(Arc::new(())),
    };
    let orchestra = OrchestraEntry {
        declaration: declaration(Alone::NAME),
        needs: &[],
        build: |_| Ok(Arc::new(Alone)),
    };
    let environment = EnvironmentEntry {
        declaration: declaration("nowhere"),
        offers: &[],
        check: |_| Ok(()),
        look: |_, _, _| Ok(Vec::new()),
        start: |_, _| Err(EnvError::new("nothing is played here")),
    };
    Ok(Registry::from_entries(&[
        Entry::Agent(agent),
        Entry::Orchestra(orchestra),
        Entry::Environment(environment),
    ])?)
}

/// The orchestra of the measured policy.
struct Alone;

impl Alone {
    const AGENT: &'static str = "bench/speaker";
}

impl Orchestra for Alone {
    async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
        Ok(None)
    }
}

impl OrchestraName for Alone {
    const NAME: &'static str = "bench/alone";
    const SUMMARY: &'static str = "Is measured.";
    const NEEDS: &'static [&'static str] = &[];

    fn members(&self) -> Vec<Seat> {
        vec![Seat::only(Self::AGENT)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, intermediate_size, vocab_size.
    fn shape(size: Size) -> [usize; 6] {
        let shape = size.shape();
        [
            shape.hidden_size,
            shape.num_hidden_layers,
            shape.num_attention_heads,
            shape.num_key_value_heads,
            shape.intermediate_size,
            shape.vocab_size,
        ]
    }

    #[test]
    fn the_shapes_are_those_that_others_are_measured_with() {
        assert_eq!(shape(Size::S), [128, 4, 4, 2, 512, 1024]);
        assert_eq!(shape(Size::M), [512, 8, 8, 2, 1408, 8192]);
    }
}
