//! Gradients of updates, compared with differences of their losses: weights are moved in their file, and the loss is computed
//! from log-probs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::labeled::replies;
use super::*;
use crate::loss::{KtoReply, kto, preference};

/// Length of a step of the weights.
const STEP: f64 = 0.01;

/// Parts of the model along which losses are compared, beside all weights together.
const PARTS: [&str; 4] = ["", "embed_tokens", "layers.0.self_attn.q_proj", "mlp.down_proj"];

/// A file of tensors in f32, and the bytes of each tensor.
struct TensorFile {
    bytes: Vec<u8>,
    tensors: BTreeMap<String, Range<usize>>,
}

impl TensorFile {
    fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let head: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&bytes[8..data]).unwrap();
        let tensors = head.into_iter().filter(|(name, _)| name != "__metadata__");
        let place = |of: &serde_json::Value, end: usize| {
            data + of["data_offsets"][end].as_u64().unwrap() as usize
        };
        let tensors = tensors.map(|(name, of)| (name, place(&of, 0)..place(&of, 1))).collect();
        Self { bytes, tensors }
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        let bytes = self.bytes[self.tensors[name].clone()].chunks_exact(4);
        bytes.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    /// Adds a multiple of a direction to the tensors that it has.
    fn moved(&self, direction: &BTreeMap<String, Vec<f64>>, by: f64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (name, direction) in direction {
            let place = &mut bytes[self.tensors[name].clone()];
            for (number, along) in place.chunks_exact_mut(4).zip(direction) {
                let old = f32::from_le_bytes((&*number).try_into().unwrap());
                let new = (f64::from(old) + by * along) as f32;
                number.copy_from_slice(&new.to_le_bytes());
            }
        }
        bytes
    }
}

/// Returns the first moments in a directory that was saved: after one step, a tenth of the gradient.
pub(super) fn first_moments(dir: &Path) -> Vec<f64> {
    let file = TensorFile::open(&dir.join("optimizer.safetensors"));
    let names = file.tensors.keys().filter(|name| name.starts_with("m."));
    names.flat_map(|name| file.numbers(name)).map(f64::from).collect()
}

/// Asserts that the gradient of an update along parts of itself is the difference of the loss, which `loss` computes for a policy.
pub(super) async fn assert_slopes(
    name: &str,
    (mut setup, batch): (Setup, Batch),
    loss: impl AsyncFn(&Policy) -> f64,
) {
    setup.policies().for_each(|policy| policy.optim.grad_clip = 1e9);
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    policy.save(before.path()).await.unwrap();
    let value = loss(&policy).await;
    let stats = policy.update(batch).await.unwrap();
    assert!((stats.loss - value).abs() < 1e-5 * value.abs().max(1.0), "{name}: {stats:?} {value}");
    policy.save(after.path()).await.unwrap();
    let moments = TensorFile::open(&after.path().join("optimizer.safetensors"));
    let first = moments.tensors.keys().filter_map(|name| name.strip_prefix("m."));
    // After one step, the first moment is a tenth of the gradient.
    let gradient = |name: &str| -> Vec<f64> {
        let moments = moments.numbers(&format!("m.{name}")).into_iter();
        moments.map(|moment| f64::from(moment) / 0.1).collect()
    };
    let gradients: BTreeMap<String, Vec<f64>> =
        first.map(|name| (name.to_owned(), gradient(name))).collect();
    let weights = TensorFile::open(&before.path().join("model.safetensors"));
    for part in PARTS {
        let own = gradients.iter().filter(|(name, _)| name.contains(part));
        let mut along: BTreeMap<String, Vec<f64>> =
            own.map(|(name, gradient)| (name.clone(), gradient.clone())).collect();
        let norm = along.values().flatten().map(|x| x * x).sum::<f64>().sqrt();
        along.values_mut().flatten().for_each(|x| *x /= norm);
        let mut found = Vec::new();
        for by in [STEP, -STEP, STEP / 2.0, -STEP / 2.0] {
            let moved = weights.moved(&along, by);
            std::fs::write(before.path().join("model.safetensors"), moved).unwrap();
            policy.load(before.path()).await.unwrap();
            found.push(loss(&policy).await);
        }
        // Differences of two steps, extrapolated to a step of 0.
        let [wide, narrow] = [(found[0] - found[1]) / (2.0 * STEP), (found[2] - found[3]) / STEP];
        let difference = (4.0 * narrow - wide) / 3.0;
        println!("{name} {part:?}: slope {norm:.6}, difference {difference:.6}");
        let bound = 5e-3 * norm + 1e-4;
        assert!((norm - difference).abs() < bound, "{name} {part:?}: {norm} {difference}");
    }
}

fn with_preference(loss: PairLoss, beta: f64) -> (PreferenceOptions, Batch) {
    let options = PreferenceOptions { loss, beta, ..PreferenceOptions::default() };
    let objective = Objective::Preference(options);
    (options, Batch { objective, ..batch(replies()) })
}

fn sum(logprobs: &[f32]) -> f64 {
    logprobs.iter().map(|&logp| f64::from(logp)).sum()
}

#[tokio::test]
async fn gradients_of_orpo_and_simpo_are_the_differences_of_their_formulas() {
    for (loss, beta) in [(PairLoss::Orpo, 0.5), (PairLoss::Simpo, 2.0)] {
        let (options, batch) = with_preference(loss, beta);
        let rows = batch.rows.clone();
        let mean = async |policy: &Policy| {
            let found = policy.logprobs(rows.clone()).await.unwrap();
            let losses = found.chunks(2).map(|pair| {
                let of = |row: &Vec<f32>| (sum(row), row.len());
                let pair = Pair { chosen: of(&pair[0]), rejected: of(&pair[1]) };
                preference(&options, &pair).value
            });
            losses.sum::<f64>() / 4.0
        };
        assert_slopes(&format!("{loss:?}"), (setup(&["p"]), batch), mean).await;
    }
}

#[tokio::test]
async fn gradients_of_kto_are_the_differences_of_its_formula_at_a_fixed_shift() {
    let (options, mut batch) = with_preference(PairLoss::Kto, 0.5);
    // Three good replies and five bad ones, in no pairs.
    batch.pairs = (0..8).map(|reply| if reply % 3 == 0 { [1, 0] } else { [0, 1] }).collect();
    let rows = batch.rows.clone();
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].reference = true;
    let mean = async |policy: &Policy| {
        let own = policy.logprobs(rows.clone()).await.unwrap();
        let reference = policy.reference(rows.clone()).await.unwrap();
        let replies = own.iter().zip(&reference).enumerate().map(|(at, (own, reference))| {
            let reply = KtoReply { log_ratio: sum(own) - sum(reference), good: at % 3 == 0 };
            kto(&options, reply, 0.0).value
        });
        replies.sum::<f64>() / 8.0
    };
    assert_slopes("Kto", (setup, batch), mean).await;
}
