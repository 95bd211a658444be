//! A model with random weights, run by the runtime that trains teams.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maverl_kernels::sample::{derive_seed, uniform_number};
use serde_json::Value;

use super::setup::{BenchDtype, BenchSize, Setup};
use crate::{Failure, load_config};
use maverl::config::source::Sources;
use maverl::files::blank::{SHAPES, blank_model};
use maverl::files::{ModelSource, StoredDtype, create};
use maverl::runtime::{
    self, Batch, Completion, Objective, Policy, Request, Row, Runtime, RuntimeOptions, Sampling,
    WorkerSpec,
};

/// Number of prompts.
pub const ROWS: usize = 64;
/// Number of tokens of a prompt.
pub const PROMPT: usize = 64;
/// Number of tokens of a reply.
pub const REPLY: usize = 64;

/// Context for the longest measured prompts; it costs nothing for short ones.
const CONTEXT: usize = 1024;

/// A policy ready for measurements.
pub struct BenchFixture {
    runtime: Runtime,
    /// The policy that is measured.
    pub policy: Policy,
    /// Shape of its model.
    pub size: create::Size,
    /// Number of its parameters.
    pub parameters: u64,
}

impl BenchSize {
    /// Returns the shape of the model.
    pub fn shape(self) -> create::Size {
        let name = match self {
            Self::S => "bench-s",
            Self::M => "bench-m",
            Self::L => "qwen2.5-0.5b",
        };
        let shape = SHAPES.iter().find(|shape| shape.name == name);
        let shape = shape.expect("the shapes that are measured are in the list");
        create::Size { max_position_embeddings: CONTEXT, ..shape.size }
    }
}

impl BenchFixture {
    /// Starts a runtime with a model of the requested size, with additional settings.
    pub fn start(setup: &Setup, set: &[&str]) -> Result<Self, Failure> {
        in_directory(|dir| Self::start_in(dir, setup, set))
    }

    fn start_in(dir: &Path, setup: &Setup, set: &[&str]) -> Result<Self, Failure> {
        let (size, parameters) = write_model(dir, setup)?;
        let (worker, options) = specs(dir, setup, set)?;
        let runtime = Runtime::start(&[worker], &options)?;
        let policy = runtime.policies()[0].clone();
        Ok(Self { runtime, policy, size, parameters })
    }

    /// Stops the runtime, and waits for its end.
    pub fn stop(self) {
        drop(self.policy);
        self.runtime.shutdown();
    }

    /// Returns random token ids.
    pub fn ids(&self, seed: u64, len: usize) -> Vec<u32> {
        ids(seed, len, self.size.vocab_size)
    }

    /// Generates replies of exactly `len` tokens.
    pub async fn replies(
        &self,
        prompts: &[Vec<u32>],
        tokens: usize,
    ) -> Result<Vec<Completion>, Failure> {
        let sampling = Arc::new(Sampling { max_tokens: tokens, ..Sampling::default() });
        let requests = prompts.iter().zip(0..).map(|(prompt, seed)| {
            let (prompt, sampling) = (prompt.clone(), Arc::clone(&sampling));
            self.policy.generate(Request::new(prompt, sampling, seed))
        });
        Ok(futures::future::try_join_all(requests).await?)
    }

    /// Clears the engine's prompt cache, as an update does: a hash of the weights is a barrier too.
    pub async fn forget(&self) -> Result<(), Failure> {
        Ok(self.policy.fingerprint().await.map(drop)?)
    }

    /// Returns rows of random tokens, of which one is the prompt.
    pub fn rows(&self, rows: usize) -> Vec<Row> {
        (0..rows as u64).map(|i| self.random_row(i)).collect()
    }

    fn random_row(&self, i: u64) -> Row {
        let completion = self.ids(derive_seed(2, i), PROMPT + REPLY - 1);
        let logprob = -libm::logf(self.size.vocab_size as f32);
        let logprobs = vec![logprob; completion.len()];
        let advantage = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        row(self.ids(derive_seed(1, i), 1), completion, logprobs, advantage)
    }

    /// Returns the operations of training per token of a row: forward and backward pass of every weight, with the
    /// embedding counted as the tied head, and of attention.
    pub fn training_flop(&self, tokens: usize) -> f64 {
        6.0 * self.parameters as f64 + 3.0 * self.attention_flop(tokens)
    }

    /// Returns the operations of generating a row of `tokens` tokens, the last `new` of them sampled. Only those need
    /// the head.
    pub fn rollout_flop(&self, tokens: usize, new: usize) -> f64 {
        let head = (self.size.vocab_size * self.size.hidden_size) as f64;
        let body = 2.0 * (self.parameters as f64 - head) + self.attention_flop(tokens);
        body * tokens as f64 + 2.0 * head * new as f64
    }

    /// Returns the operations of causal attention per token, averaged over a row of `tokens`.
    fn attention_flop(&self, tokens: usize) -> f64 {
        4.0 * (self.size.num_hidden_layers * self.size.hidden_size) as f64 * tokens as f64 / 2.0
    }
}

/// Returns random token ids of a vocabulary.
pub fn ids(seed: u64, len: usize, vocab: usize) -> Vec<u32> {
    (0..len as u64).map(|i| (uniform_number(seed, i) * vocab as f64) as u32).collect()
}

/// Works in a directory of temporary files: they are read when the work is done, or not needed after an error.
pub fn in_directory<T>(work: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(format!("maverl-bench-{process}-{count}"));
    std::fs::create_dir_all(&dir)?;
    let done = work(&dir);
    drop(std::fs::remove_dir_all(&dir));
    done
}

/// Writes the model of the arguments without stop ids. Returns its shape and the number of its parameters.
pub fn write_model(dir: &Path, setup: &Setup) -> Result<(create::Size, u64), Failure> {
    let (size, stored) = setup.model();
    let parameters = blank_model(dir, size, stored, 0)?;
    without_stop_ids(dir)?;
    Ok((size, parameters))
}

impl Setup {
    /// Returns the shape of the model, and the type of its weights in files.
    pub fn model(&self) -> (create::Size, StoredDtype) {
        let stored = match self.dtype {
            BenchDtype::F32 => StoredDtype::F32,
            BenchDtype::Bf16 => StoredDtype::Bf16,
            BenchDtype::F16 => StoredDtype::F16,
        };
        (self.size.shape(), stored)
    }
}

/// Returns a row for training.
pub fn row(prompt: Vec<u32>, completion: Vec<u32>, logprobs: Vec<f32>, advantage: f32) -> Row {
    let advantages = vec![advantage; completion.len()];
    Row { prompt, completion, logprobs, advantages, ..Row::default() }
}

/// Returns a batch of rows for one optimizer step.
pub fn batch(rows: Vec<Row>, objective: Objective) -> Batch {
    let longest = rows.iter().map(|row| row.completion.len()).max().unwrap_or(0);
    Batch { rows, objective, longest, lr: 1e-5, ..Batch::default() }
}

/// Removes the stop ids of a model directory, so that `max_tokens` alone determines the length of replies.
pub fn without_stop_ids(dir: &Path) -> Result<(), Failure> {
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

/// Returns the worker group of the measured policy, and the options of the runtime: defaults, and the settings of the
/// arguments.
pub fn specs(
    dir: &Path,
    setup: &Setup,
    set: &[&str],
) -> Result<(WorkerSpec, RuntimeOptions), Failure> {
    let config = load_config(&sources(setup, set)?)?;
    let mut worker = WorkerSpec::new("bench", ModelSource::Directory(dir.to_owned()));
    worker.dtype = match setup.dtype {
        BenchDtype::F32 => runtime::Dtype::F32,
        BenchDtype::Bf16 => runtime::Dtype::Bf16,
        BenchDtype::F16 => runtime::Dtype::F16,
    };
    for policy in &mut worker.policies {
        policy.gradient_checkpointing = config.models[MODEL].gradient_checkpointing;
    }
    Ok((worker, config.runtime))
}

/// Name of the model in settings.
pub const MODEL: &str = "any";

/// Returns the settings of the arguments as a configuration.
fn sources(setup: &Setup, set: &[&str]) -> Result<Sources, Failure> {
    let text = format!("[models.{MODEL}]\npath = \"builtin:tiny\"\n");
    let mut sources = Sources::default().text("bench.toml", text, PathBuf::new());
    sources = sources.with(format!("runtime.threads={}", setup.threads));
    for setting in setup.set.iter().map(String::as_str).chain(set.iter().copied()) {
        let key = setting.split('=').next().unwrap_or_default().trim();
        sources = match key {
            CHECKPOINTING => sources.with(format!("models.{MODEL}.{setting}")),
            _ if key.starts_with("runtime.") => sources.with(setting),
            _ => {
                return Err(Failure(format!(
                    "`--set {setting}`: a model without a team has no `{key}`; give a key of `runtime`, or \
                     `{CHECKPOINTING}`"
                )));
            }
        };
    }
    Ok(sources)
}

/// The key of a model that changes the speed of its updates.
const CHECKPOINTING: &str = "gradient_checkpointing";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, intermediate_size, vocab_size.
    fn shape(size: BenchSize) -> [usize; 6] {
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
        assert_eq!(shape(BenchSize::S), [128, 4, 4, 2, 512, 1024]);
        assert_eq!(shape(BenchSize::M), [512, 8, 8, 2, 1408, 8192]);
        assert_eq!(shape(BenchSize::L), [896, 24, 14, 2, 4864, 151_936]);
    }
}
