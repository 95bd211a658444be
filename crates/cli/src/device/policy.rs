//! Rollout and updates of a policy on a device.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use maverl_kernels::sample::derive_seed;

use super::args::{DevicePart, ModelSize};
use super::checked::Checked;
use super::models::Counts;
use super::report::Line;
use crate::bench::fixture::{ids, without_stop_ids};
use crate::{Failure, block_on};
use maverl::files::blank::blank_model;
use maverl::files::{HfConfig, ModelFiles, ModelSource, StoredDtype};
use maverl::runtime::{
    Batch, Completion, DeviceChoice, Dtype, Objective, Policy, Request, Row, Runtime,
    RuntimeOptions, Sampling, WorkerSpec, Workload, compare_step, predict,
};
use maverl::text::Tokenizer;

/// Largest difference of a log-prob from products in f32, in parts of that of the CPU's products in bf16.
const ROUNDING: f32 = 2.0;
/// Smallest cosine of the gradients with those of the CPU.
const COSINE: f64 = 0.999;
/// Rows and tokens of a training step that is measured.
const ROWS: usize = 16;
/// Signs of the advantages of rows, in turn.
const SIGNS: [f32; 2] = [1.0, -1.0];
const ROW: usize = 1024;
/// Bytes of a parameter during an update.
const UPDATE_BYTES: f64 = 16.0;
/// Bytes of room for activations and logits.
pub(super) const ROOM: f64 = 4e9;

/// Policy on a device.
pub(super) struct Fixture {
    runtime: Runtime,
    policy: Policy,
    vocab: usize,
}

impl Fixture {
    pub(super) fn start(
        source: ModelSource,
        vocab: usize,
        options: &RuntimeOptions,
    ) -> Result<Self, Failure> {
        let runtime = Runtime::start(&[worker(source)], options)?;
        let policy = runtime.policies()[0].clone();
        Ok(Self { runtime, policy, vocab })
    }

    pub(super) fn stop(self) {
        drop(self.policy);
        self.runtime.shutdown();
    }

    /// Returns random token ids.
    pub(super) fn ids(&self, seed: u64, len: usize) -> Vec<u32> {
        ids(seed, len, self.vocab)
    }

    /// Returns the rows of a training step that is measured.
    fn rows(&self) -> Vec<Row> {
        (0..ROWS as u64).map(|i| self.training_row(i)).collect()
    }

    fn training_row(&self, i: u64) -> Row {
        let completion = self.ids(derive_seed(5, i), ROW - 1);
        let logprobs = vec![-libm::logf(self.vocab as f32); completion.len()];
        let advantages = vec![if i.is_multiple_of(2) { 1.0 } else { -1.0 }; completion.len()];
        Row { prompt: self.ids(i, 1), completion, logprobs, advantages, ..Row::default() }
    }

    /// Empties the prompt cache, as every barrier does.
    pub(super) async fn forget(&self) -> Result<(), Failure> {
        let row = Row { prompt: vec![1], completion: vec![1], ..Row::default() };
        Ok(self.policy.logprobs(vec![row]).await.map(drop)?)
    }

    async fn reply(&self, prompt: &[u32], seed: u64, tokens: usize) -> Result<Completion, Failure> {
        let sampling = Arc::new(Sampling { max_tokens: tokens, ..Sampling::default() });
        let request = Request::new(prompt.to_vec(), sampling, seed);
        Ok(self.policy.generate(request).await?)
    }

    pub(super) async fn replies(
        &self,
        prompts: &[Vec<u32>],
        tokens: usize,
    ) -> Result<Vec<Completion>, Failure> {
        let each = prompts.iter().zip(0..).map(|(prompt, seed)| self.reply(prompt, seed, tokens));
        futures::future::try_join_all(each).await
    }
}

fn worker(source: ModelSource) -> WorkerSpec {
    let mut worker = WorkerSpec::new("check", source);
    worker.dtype = Dtype::Bf16;
    worker
}

/// Returns the predicted bytes of an update.
fn predict_bytes(
    source: &ModelSource,
    options: &RuntimeOptions,
    batch: &Batch,
) -> Result<u64, Failure> {
    let files = ModelFiles::new(source);
    let (config, tokenizer) = (HfConfig::load(&files)?, Arc::new(Tokenizer::load(&files)?));
    let work = Workload { batch: batch.clone(), ..Workload::default() };
    Ok(predict(&worker(source.clone()), &config, &tokenizer, options, &work)?.peak)
}

pub(super) fn options(device: DeviceChoice) -> RuntimeOptions {
    RuntimeOptions { device, ..RuntimeOptions::default() }
}

fn tiny() -> ModelSource {
    ModelSource::Builtin("tiny".to_owned())
}

fn row(prompt: Vec<u32>, done: &Completion, advantage: f32) -> Row {
    let advantages = vec![advantage; done.ids.len()];
    let (completion, logprobs) = (done.ids.clone(), done.logprobs.clone());
    Row { prompt, completion, logprobs, advantages, ..Row::default() }
}

fn equal_bits(a: &[f32], b: &[f32]) -> bool {
    a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
}

/// Compares completions in a batch with those alone, and with their scores, to the bit (K-1).
pub(super) fn invariance(checked: &mut Checked<'_>) -> Result<(), Failure> {
    let fixture = Fixture::start(tiny(), 90, &options(checked.args.device))?;
    let emulated = checked.args.device == DeviceChoice::Emulated;
    let (requests, tokens) = if emulated { (4, 8) } else { (12, 24) };
    let prompts: Vec<Vec<u32>> =
        (0..requests).map(|i| fixture.ids(i / 2, 5 + 17 * (i as usize / 2))).collect();
    let (alone, together, scored) = block_on(async {
        let together = fixture.replies(&prompts, tokens).await?;
        fixture.forget().await?;
        let mut alone = Vec::new();
        for (prompt, seed) in prompts.iter().zip(0..) {
            alone.push(fixture.reply(prompt, seed, tokens).await?);
        }
        let rows =
            prompts.iter().zip(&together).map(|(prompt, done)| row(prompt.clone(), done, 1.0));
        let scored = fixture.policy.logprobs(rows.collect()).await?;
        Ok((alone, together, scored))
    })?;
    fixture.stop();
    let mut pairs = alone.iter().zip(&together);
    let equal = pairs.all(|(a, b)| a.ids == b.ids && equal_bits(&a.logprobs, &b.logprobs));
    let note = format!("{requests} completions of up to {tokens} tokens");
    let line = Line::check("a completion alone has the bits of one in a batch", equal, note);
    checked.report.add(DevicePart::Invariance, &line);
    let equal =
        together.iter().zip(&scored).all(|(done, scored)| equal_bits(&done.logprobs, scored));
    let line = Line::check("training has the log-probs of rollout to the bit", equal, "mismatch 0");
    checked.report.add(DevicePart::Invariance, &line);
    let bits = together
        .iter()
        .flat_map(|done| &done.logprobs)
        .fold(0, |hash, logprob| derive_seed(hash, u64::from(logprob.to_bits())));
    // H3: cards that run the same code of another architecture print the same number.
    checked
        .report
        .add(DevicePart::Invariance, &Line::note("hash of the log-probs", format!("{bits:016x}")));
    Ok(())
}

/// Compares log-probs and gradients with those of the CPU: of the built-in model, and on a GPU of the first shape.
pub(super) fn step(checked: &mut Checked<'_>) -> Result<(), Failure> {
    let device = checked.args.device;
    let cpu = Fixture::start(tiny(), 90, &options(DeviceChoice::Cpu))?;
    let prompts: Vec<Vec<u32>> = (0..6).map(|i| cpu.ids(i / 2, 20)).collect();
    let done = block_on(cpu.replies(&prompts, 24))?;
    let rows: Vec<Row> = prompts
        .iter()
        .zip(&done)
        .zip(SIGNS.into_iter().cycle())
        .map(|((prompt, done), sign)| row(prompt.clone(), done, sign))
        .collect();
    cpu.stop();
    compare_policy(checked, "builtin:tiny", &tiny(), &rows)?;
    if device == DeviceChoice::Emulated {
        return Ok(());
    }
    let size = checked.args.sizes.first().copied().unwrap_or(ModelSize::Half);
    in_blank(size, |source| {
        let rows = [0, 1].map(|i| Row {
            prompt: ids(i, 16, 100_000),
            completion: ids(10 + i, 48, 100_000),
            logprobs: vec![0.0; 48],
            advantages: vec![SIGNS[i as usize]; 48],
            ..Row::default()
        });
        compare_policy(checked, size.sizes().name, source, &rows)
    })
}

fn compare_policy(
    checked: &mut Checked<'_>,
    name: &str,
    source: &ModelSource,
    rows: &[Row],
) -> Result<(), Failure> {
    let found = compare_step(checked.args.device, source, rows)?;
    let [cpu, device] = found.from_f32;
    let note = format!(
        "the device differs by {device:.2e}, the CPU in bf16 by {cpu:.2e}; both from each other by {:.2e} at most, {:.2e} on \
         average, over {} tokens",
        found.logprob, found.mean, found.tokens
    );
    let near = format!("{name}: log-probs are as near to products in f32 as those of the CPU");
    checked.report.add(DevicePart::Step, &Line::check(near, device <= ROUNDING * cpu, note));
    let note = format!("cosine {:.6}", found.cosine);
    let along = format!("{name}: gradients are those of the CPU");
    checked.report.add(DevicePart::Step, &Line::check(along, found.cosine > COSINE, note));
    Ok(())
}

/// Calls `f` with a model of a shape with random weights, which exists meanwhile.
fn in_blank<T>(
    size: ModelSize,
    f: impl FnOnce(&ModelSource) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let dir = std::env::temp_dir().join(format!("maverl-device-check-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let made = blank(&dir, size).and_then(|()| f(&ModelSource::Directory(dir.clone())));
    // The files are read, or not needed after an error.
    drop(std::fs::remove_dir_all(&dir));
    made
}

fn blank(dir: &Path, size: ModelSize) -> Result<(), Failure> {
    blank_model(dir, size.shape(), StoredDtype::Bf16, 0)?;
    without_stop_ids(dir)
}

/// Calls `f` with each shape that the device has the memory for, so many bytes a parameter, while there is time.
pub(super) fn of_sizes(
    checked: &mut Checked<'_>,
    part: DevicePart,
    (sizes, bytes): (&[ModelSize], f64),
    mut f: impl FnMut(&mut Checked<'_>, ModelSize, &ModelSource) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for &size in sizes {
        let name = size.sizes().name;
        let free = checked.memory()?.map_or(f64::INFINITY, |[free, _]| free as f64);
        let needed = bytes * Counts::of(size.shape()).parameters + ROOM;
        let reason = if !checked.report.has_time() {
            "no time left (`--minutes`)".to_owned()
        } else if needed > free {
            format!("it needs {:.1} GB, {:.1} are free", needed / 1e9, free / 1e9)
        } else {
            in_blank(size, |source| f(checked, size, source))?;
            continue;
        };
        checked.report.add(part, &Line::note(name, format!("skipped: {reason}")));
    }
    Ok(())
}

/// Measures tokens per second of training, beside the peak of products (MFU).
pub(super) fn training(checked: &mut Checked<'_>) -> Result<(), Failure> {
    let sizes = &checked.args.sizes;
    of_sizes(checked, DevicePart::Training, (sizes, UPDATE_BYTES), |checked, size, source| {
        let mut options = options(checked.args.device);
        let counts = Counts::of(size.shape());
        let free = checked.memory()?.map_or(0.0, |[free, _]| free as f64);
        // Half as much again for what a layer computes and does not keep.
        let room = free - UPDATE_BYTES * counts.parameters - ROOM;
        let fit = (room / (1.5 * counts.kept)) as usize / ROW;
        let micro = ROW * fit.clamp(1, 8);
        options.micro_batch_tokens = NonZeroUsize::MIN.saturating_add(micro - 1);
        let fixture = Fixture::start(source.clone(), size.shape().vocab_size, &options)?;
        let rows = fixture.rows();
        let batch = Batch {
            rows,
            objective: Objective::Supervised,
            longest: ROW,
            lr: 1e-6,
            ..Batch::default()
        };
        let seconds = block_on(async {
            let mut last = 0.0;
            for _ in 0..3 {
                let start = Instant::now();
                fixture.policy.update(batch.clone()).await?;
                last = start.elapsed().as_secs_f64();
            }
            Ok(last)
        })?;
        let tokens = (ROWS * ROW) as f64 / seconds;
        let name = format!("{} updates, micro-batches of {micro} tokens", size.sizes().name);
        let mut line = Line::value(name, tokens, "tokens/s");
        if let Some(peak) = checked.peak {
            line = line.share(tokens * counts.training(ROW as f64) / peak, "the peak (MFU)");
        }
        if let Some([free, total]) = checked.memory()? {
            line = line.with(format!("{:.2} GB of the card in use", (total - free) as f64 / 1e9));
        }
        checked.report.add(DevicePart::Training, &line);
        let predicted = predict_bytes(source, &options, &batch)?;
        let counted = fixture.policy.device_memory().map_or(0, |[_, most]| most);
        let note =
            format!("{:.3} GB, {:.3} predicted", counted as f64 / 1e9, predicted as f64 / 1e9);
        let name = format!("{}: the memory is the predicted one", size.sizes().name);
        checked.report.add(DevicePart::Training, &Line::check(name, counted == predicted, note));
        fixture.stop();
        Ok(())
    })
}
