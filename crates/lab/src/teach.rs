//! Common part of the programs that generate the built-in models: supervised training of a model on replies.

use std::path::Path;

use anyhow::{Context, Result};
use maverl::files::{ModelSource, builtin};
use maverl::rng::SplitMix64;
use maverl::rollout::render_turn;
use maverl::runtime::{Batch, Objective, Policy, Row, Runtime, RuntimeOptions, WorkerSpec};
use maverl::trajectory::Turn;

/// Settings of supervised training.
#[derive(Debug, Clone)]
pub struct TeachingStage {
    /// Optimizer steps.
    pub steps: usize,
    /// Rows per step.
    pub rows_per_step: usize,
    /// Maximum learning rate.
    pub lr: f64,
    /// True to train on prompts too: names are repeated in them, from which a small model learns to copy.
    pub whole: bool,
    /// Seed of the order of rows.
    pub seed: u64,
}

impl TeachingStage {
    /// Returns the number of rows of all steps.
    pub fn row_count(&self) -> usize {
        self.steps * self.rows_per_step
    }

    /// Trains the model in a directory, in place, in one pass over the turns.
    ///
    /// # Errors
    ///
    /// If the model cannot be loaded, trained or saved.
    pub async fn teach(&self, dir: &Path, turns: &[Turn]) -> Result<()> {
        let runtime = start_runtime(dir)?;
        let policy = runtime.policies()[0].clone();
        let rows = turns.iter().map(|turn| training_row(&policy, turn, self.whole));
        let mut rows = rows.collect::<Result<Vec<Row>>>()?;
        SplitMix64::new(self.seed).shuffle(&mut rows);
        let tokens: usize = rows.iter().map(|row| row.prompt.len() + row.completion.len()).sum();
        println!("{} rows of {:.1} tokens", rows.len(), tokens as f64 / rows.len() as f64);
        for (step, rows) in rows.chunks(self.rows_per_step).enumerate() {
            let batch = Batch {
                rows: rows.to_vec(),
                objective: Objective::Supervised,
                lr: self.lr * schedule_factor(step as f64 / self.steps as f64),
                ..Batch::default()
            };
            let stats = policy.update(batch).await?;
            if step % 20 == 0 {
                println!(
                    "step {step}: loss {:.4}, gradient norm {:.3}",
                    stats.loss, stats.grad_norm
                );
            }
        }
        policy.save(dir).await?;
        drop(policy);
        runtime.shutdown();
        // A run that starts from this model does not need the moments.
        Ok(std::fs::remove_file(dir.join("optimizer.safetensors"))?)
    }
}

/// Copies the files of a model.
///
/// # Errors
///
/// If one is missing, or cannot be written.
pub fn copy_model(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for file in builtin::FILES {
        std::fs::copy(from.join(file), to.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}

/// Returns the learning rate schedule: linear warm-up over a twentieth of the steps, then a half cosine.
fn schedule_factor(progress: f64) -> f64 {
    (progress / 0.05).min(1.0) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * progress))
}

fn start_runtime(model: &Path) -> Result<Runtime> {
    let mut worker = WorkerSpec::new("tiny", ModelSource::Directory(model.to_owned()));
    for policy in &mut worker.policies {
        policy.optim.betas = (0.9, 0.98);
    }
    Ok(Runtime::start(&[worker], &RuntimeOptions::default())?)
}

fn training_row(policy: &Policy, turn: &Turn, whole: bool) -> Result<Row> {
    let tokenizer = policy.tokenizer();
    let mut ids = tokenizer.encode_rendered(&render_turn(tokenizer, turn)?)?;
    let asked = if whole { 1 } else { ids.len() };
    ids.extend(tokenizer.encode_plain(&turn.reply)?);
    ids.push(*tokenizer.stop_ids().first().context("the model has a stop id")?);
    let completion = ids.split_off(asked);
    Ok(Row { prompt: ids, completion, ..Row::default() })
}
