#![allow(clippy::unwrap_used)]

mod adapters;
#[cfg(feature = "candle")]
mod blocks;
#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "cuda")]
mod device;
mod divergence;
mod eight_bit;
mod experts;
mod f16;
#[cfg(feature = "candle")]
mod gguf;
mod labeled;
mod moments;
mod muon;
mod observations;
mod ranks;
mod recurrent;
mod selection;
mod slopes;
mod snapshots;
mod splits;
mod training_host;
mod trees;

use std::sync::Arc;

use super::*;
use crate::files::ModelSource;
use crate::loss::{
    Aggregation, BuiltinSurrogate, CapOptions, Correction, GmpoOptions, MaskOptions, Pair,
    PairLoss, PreferenceOptions, TruncateOptions,
};

/// Worker groups and options of a runtime.
struct Setup {
    workers: Vec<WorkerSpec>,
    options: RuntimeOptions,
}

impl Setup {
    fn start(&self) -> Runtime {
        Runtime::start(&self.workers, &self.options).unwrap()
    }

    fn policies(&mut self) -> impl Iterator<Item = &mut PolicySpec> {
        self.workers.iter_mut().flat_map(|worker| &mut worker.policies)
    }
}

/// Returns trained policies, one worker group each.
fn setup(policies: &[&str]) -> Setup {
    let worker = |name: &&str| {
        let mut worker = WorkerSpec::new(*name, ModelSource::Builtin("tiny".to_owned()));
        worker.policies[0].optim.weight_decay = 0.0;
        worker
    };
    let options = RuntimeOptions { seed: 7, ..RuntimeOptions::default() };
    Setup { workers: policies.iter().map(worker).collect(), options }
}

fn sampling(max_tokens: usize) -> Arc<Sampling> {
    Arc::new(Sampling {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        max_tokens,
        stop: Vec::new(),
        stop_ids: Vec::new(),
    })
}

fn request(i: u64) -> Request {
    let prompt = (0..5 + 7 * i % 40).map(|t| (i * 31 + t * 17) as u32 % 500).collect();
    Request::new(prompt, sampling(3 + i as usize % 20), i)
}

fn row(completion: &Completion, prompt: Vec<u32>, advantage: f32) -> Row {
    Row {
        prompt,
        completion: completion.ids.clone(),
        logprobs: completion.logprobs.clone(),
        advantages: vec![advantage; completion.ids.len()],
        ..Row::default()
    }
}

/// Returns rows that do not depend on a model, with tokens below `vocab`.
pub(super) fn given_rows(vocab: u32, logprob: f32) -> Vec<Row> {
    let row = |i: u32| {
        let completion: Vec<u32> = (0..3 + i % 5).map(|t| (i * 37 + t * 11) % vocab).collect();
        Row {
            prompt: (0..4 + i % 7).map(|t| (i * 13 + t * 29) % vocab).collect(),
            logprobs: vec![logprob; completion.len()],
            advantages: vec![i as f32 / 4.0 - 1.0; completion.len()],
            completion,
            ..Row::default()
        }
    };
    (0..9).map(row).collect()
}

fn batch(rows: Vec<Row>) -> Batch {
    Batch { rows, longest: 64, lr: 1e-4, ..Batch::default() }
}

#[test]
fn a_pool_of_another_size_than_asked_for_is_told() {
    let threads = rayon::current_num_threads();
    let mut setup = setup(&["p"]);
    for (asked, told) in [(0, false), (threads, false), (threads + 1, true)] {
        setup.options.threads = asked;
        let runtime = setup.start();
        let notes = runtime.notes();
        assert_eq!(notes.len(), usize::from(told), "{notes:?}");
        if told {
            let text = format!(
                "`runtime.threads` is {asked}, but the kernels of this process already have {threads}"
            );
            assert!(notes[0].starts_with(&text), "{notes:?}");
        }
        runtime.shutdown();
    }
}

#[tokio::test]
async fn a_completion_is_the_same_to_the_bit_alone_in_a_batch_and_in_another_order() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let mut alone = Vec::new();
    for i in 0..64 {
        alone.push(policy.generate(request(i)).await.unwrap());
    }
    let together = futures::future::join_all((0..64).map(|i| policy.generate(request(i)))).await;
    let mut reversed =
        futures::future::join_all((0..64).rev().map(|i| policy.generate(request(i)))).await;
    reversed.reverse();
    for (i, alone) in alone.iter().enumerate() {
        assert_eq!(alone, together[i].as_ref().unwrap(), "request {i}");
        assert_eq!(alone, reversed[i].as_ref().unwrap(), "request {i}");
    }
}

#[tokio::test]
async fn trainer_and_rollout_log_probs_agree_and_the_update_counts_a_version() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let mut rows = Vec::new();
    for i in 0..32 {
        let request = request(i);
        let done = policy.generate(request.clone()).await.unwrap();
        assert_eq!(done.version, 0);
        rows.push(row(&done, request.prompt, if i % 2 == 0 { 1.0 } else { -1.0 }));
    }
    let stats = policy.update(batch(rows)).await.unwrap();
    println!("mismatch: mean {:e}, max {:e}", stats.mismatch_mean, stats.mismatch_max);
    assert!(stats.mismatch_max < 1e-4);
    assert_eq!(policy.generate(request(0)).await.unwrap().version, 1);
}

#[tokio::test]
async fn recorded_tokens_are_those_of_the_update_and_change_no_weight() {
    let mut setup = setup(&["p"]);
    setup.policies().for_each(|policy| policy.reference = true);
    let mut prints = Vec::new();
    for record_tokens in [false, true] {
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let mut rows = Vec::new();
        for i in 0..6 {
            let request = request(i);
            let done = policy.generate(request.clone()).await.unwrap();
            let mut row = row(&done, request.prompt, if i % 2 == 0 { 1.0 } else { -1.0 });
            row.loss.kl_coef = if i < 4 { 0.1 } else { 0.0 };
            rows.push(row);
        }
        let lengths: Vec<usize> = rows.iter().map(|row| row.completion.len()).collect();
        let batch = Batch { minibatches: 2, epochs: 2, record_tokens, ..batch(rows) };
        let stats = policy.update(batch).await.unwrap();
        prints.push(policy.fingerprint().await.unwrap());
        assert_eq!(stats.columns.is_some(), record_tokens);
        let Some(columns) = stats.columns else { continue };
        for (i, &length) in lengths.iter().enumerate() {
            for column in [&columns.entropy, &columns.reference, &columns.moved, &columns.mismatch]
            {
                assert_eq!(column[i].len(), length);
            }
            let known = |column: &[Vec<f32>]| column[i].iter().all(|value| value.is_finite());
            assert!(known(&columns.entropy) && known(&columns.moved));
            assert_eq!(known(&columns.reference), i < 4, "rows without a KL have no reference");
            assert_eq!(known(&columns.mismatch), i % 2 == 0, "rows of the first minibatch");
        }
        let mismatch: Vec<f64> = columns.mismatch.iter().flatten().map(|v| f64::from(*v)).collect();
        let known: Vec<f64> = mismatch.into_iter().filter(|v| !v.is_nan()).map(f64::abs).collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        assert!((mean - stats.mismatch_mean).abs() < 1e-12);
        let moved = columns.moved.iter().flatten().fold(0.0_f32, |most, v| most.max(v.abs()));
        assert!(moved > 1e-4, "the last epoch meets weights that have moved: {moved}");
    }
    assert_eq!(prints[0], prints[1]);
}

#[tokio::test]
async fn entropy_and_kl_are_means_over_tokens_whatever_the_aggregation_and_the_weights() {
    let mut setup = setup(&["p"]);
    setup.policies().for_each(|policy| policy.reference = true);
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let mut rows = Vec::new();
    for i in 0..6 {
        let request = request(i);
        let done = policy.generate(request.clone()).await.unwrap();
        let mut row = row(&done, request.prompt, if i % 2 == 0 { 1.0 } else { -1.0 });
        let length = row.completion.len().min(1 + i as usize);
        row.completion.truncate(length);
        row.logprobs.truncate(length);
        row.advantages.truncate(length);
        row.loss.kl_coef = if i < 4 { 0.1 } else { 0.0 };
        rows.push(row);
    }
    policy.update(batch(rows.clone())).await.unwrap();
    let mut found = Vec::new();
    let aggregations = [
        Aggregation::TokenMean,
        Aggregation::SequenceMean,
        Aggregation::SequenceSum,
        Aggregation::Constant,
    ];
    // The rows of a minibatch have other lengths than those of the next one, and the last rows have no KL.
    let steps = [(1, 1), (2, 1), (3, 1), (6, 1), (1, 2), (4, 3)];
    let steps =
        steps.map(|(minibatches, epochs)| (Aggregation::TokenMean, 1.0, minibatches, epochs));
    let weights = aggregations.into_iter().flat_map(|a| [(a, 1.0, 1, 1), (a, 0.25, 1, 1)]);
    for (aggregation, weight, minibatches, epochs) in weights.chain(steps) {
        let mut rows = rows.clone();
        rows.iter_mut().for_each(|row| row.weights = vec![weight; row.completion.len()]);
        // A learning rate of 0 leaves the weights as they are.
        let batch = Batch { aggregation, longest: 64, lr: 0.0, record_tokens: true, ..batch(rows) };
        let batch = Batch { minibatches, epochs, ..batch };
        let stats = policy.update(batch).await.unwrap();
        let columns = stats.columns.unwrap();
        let mean = |rows: &[Vec<f32>], of: &dyn Fn(f64) -> f64| {
            let all: Vec<f64> = rows.iter().flatten().map(|&value| of(f64::from(value))).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let entropy = mean(&columns.entropy, &|value| value);
        let kl = mean(&columns.reference[..4], &|ratio| (-ratio).exp() + ratio - 1.0);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b;
        let case = format!("{aggregation:?}, {minibatches} x {epochs}");
        assert!(close(stats.entropy, entropy), "{case}: {} {entropy}", stats.entropy);
        assert!(kl > 0.0 && close(stats.kl, kl), "{case}: {} is not {kl}", stats.kl);
        found.extend((minibatches * epochs == 1).then_some((stats.entropy, stats.kl)));
    }
    assert!(found.iter().all(|of| *of == found[0]), "{found:?}");
}

#[tokio::test]
async fn the_entropy_of_supervised_rows_is_that_of_the_tokens_with_a_weight_in_any_minibatches() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let mut rows = Vec::new();
    for i in 0..5 {
        let request = request(i);
        let done = policy.generate(request.clone()).await.unwrap();
        let mut row = row(&done, request.prompt, 1.0);
        // One row without masks, and others with one token more each.
        let masked = |t: usize| if t < i as usize { 0.0 } else { 1.0 };
        row.weights = (0..row.completion.len()).map(masked).collect();
        rows.push(row);
    }
    rows[0].weights.clear();
    let mut found = Vec::new();
    for (minibatches, epochs) in [(1, 1), (2, 1), (3, 2), (5, 1)] {
        let batch = Batch { minibatches, epochs, lr: 0.0, ..batch(rows.clone()) };
        let batch = Batch { objective: Objective::Supervised, ..batch };
        found.push(policy.update(batch).await.unwrap().entropy);
    }
    assert!(found.iter().all(|of| (of - found[0]).abs() < 1e-6 * found[0]), "{found:?}");
}

#[tokio::test]
async fn an_update_raises_the_probability_of_rewarded_tokens_and_leaves_other_policies_alone() {
    let runtime = setup(&["a", "b"]).start();
    let (a, b) = (runtime.policies()[0].clone(), runtime.policies()[1].clone());
    let untouched = b.fingerprint().await.unwrap();
    let before = a.generate(request(1)).await.unwrap();
    for _ in 0..3 {
        let done = Completion {
            ids: before.ids.clone(),
            logprobs: before.logprobs.clone(),
            ..before.clone()
        };
        let mut batch = batch(vec![row(&done, request(1).prompt, 1.0)]);
        batch.objective = Objective::Supervised;
        a.update(batch).await.unwrap();
    }
    let stats = {
        let mut batch = batch(vec![row(&before, request(1).prompt, 1.0)]);
        batch.objective = Objective::Supervised;
        a.update(batch).await.unwrap()
    };
    let old: f64 =
        before.logprobs.iter().map(|l| -f64::from(*l)).sum::<f64>() / before.logprobs.len() as f64;
    assert!(stats.pg_loss < old, "{} is not below {old}", stats.pg_loss);
    assert_eq!(b.fingerprint().await.unwrap(), untouched);
}

#[tokio::test]
async fn micro_batches_of_any_size_give_the_same_update() {
    let mut prints = Vec::new();
    for tokens in [usize::MAX, 64, 1] {
        let mut setup = setup(&["p"]);
        setup.options.micro_batch_tokens = tokens.try_into().unwrap();
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let mut rows = Vec::new();
        for i in 0..12 {
            let request = request(i);
            let done = policy.generate(request.clone()).await.unwrap();
            rows.push(row(&done, request.prompt, i as f32 / 6.0 - 1.0));
        }
        let stats = policy.update(batch(rows)).await.unwrap();
        prints.push((stats.loss, stats.grad_norm));
    }
    for (loss, norm) in &prints[1..] {
        assert!((loss - prints[0].0).abs() < 1e-6, "{prints:?}");
        assert!((norm - prints[0].1).abs() < 1e-5 * norm, "{prints:?}");
    }
}

#[tokio::test]
async fn a_saved_policy_loads_and_goes_on_as_if_never_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |completions: &[(Vec<u32>, Completion)]| -> Vec<Row> {
        completions.iter().map(|(prompt, done)| row(done, prompt.clone(), 1.0)).collect()
    };
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let mut completions = Vec::new();
    for i in 0..4 {
        completions.push((request(i).prompt, policy.generate(request(i)).await.unwrap()));
    }
    policy.update(batch(rows(&completions))).await.unwrap();
    policy.save(dir.path()).await.unwrap();
    policy.update(batch(rows(&completions))).await.unwrap();
    let uninterrupted = policy.fingerprint().await.unwrap();

    let resumed = setup(&["p"]).start();
    let policy = resumed.policies()[0].clone();
    policy.load(dir.path()).await.unwrap();
    let stats = policy.update(batch(rows(&completions))).await.unwrap();
    assert_eq!(stats.version, 2);
    assert_eq!(policy.fingerprint().await.unwrap(), uninterrupted);
}

#[tokio::test]
async fn a_stop_string_a_stop_id_and_max_tokens_end_a_completion() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    // Nearly uniform, so that the model's own stop ids are hardly ever sampled.
    let hot = Sampling { temperature: 1e4, ..(*sampling(30)).clone() };
    let hot_request = |sampling: Sampling| Request { sampling: Arc::new(sampling), ..request(2) };
    let free = policy.generate(hot_request(hot.clone())).await.unwrap();
    assert_eq!((free.ids.len(), free.finish), (30, Finish::Length));
    let by_id = Sampling { stop_ids: vec![free.ids[4]], ..hot.clone() };
    let stopped = policy.generate(hot_request(by_id)).await.unwrap();
    assert_eq!(stopped.finish, Finish::Stop);
    let first = free.ids.iter().position(|id| *id == free.ids[4]).unwrap();
    assert_eq!(stopped.ids, free.ids[..=first]);
    let text = policy.tokenizer().decode_raw(&free.ids[..12]);
    let stop: String = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let by_text = Sampling { stop: vec![stop.clone()], ..hot };
    let stopped = policy.generate(hot_request(by_text)).await.unwrap();
    assert_eq!(stopped.finish, Finish::Stop);
    assert!(policy.tokenizer().decode_raw(&stopped.ids).contains(&stop));
    assert!(stopped.ids.len() < 30);
}

#[tokio::test]
async fn a_loss_that_is_not_finite_is_an_error_and_changes_nothing() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let done = policy.generate(request(1)).await.unwrap();
    let before = policy.fingerprint().await.unwrap();
    let error =
        policy.update(batch(vec![row(&done, request(1).prompt, f32::NAN)])).await.unwrap_err();
    assert!(error.to_string().contains("the loss is not finite"), "{error}");
    assert_eq!(policy.fingerprint().await.unwrap(), before);
}

#[tokio::test]
async fn a_prompt_that_fills_the_context_is_refused() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let prompt = vec![1; policy.context()];
    let error = policy.generate(Request { prompt, ..request(1) }).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Overflow { .. }), "{error}");
}

/// Generates two replies of the policy to each of some prompts; the two differ.
async fn pairs(policy: &Policy, n: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..n {
        let request = request(i);
        for seed in [i, 1000 + i] {
            let done = policy.generate(Request { seed, ..request.clone() }).await.unwrap();
            rows.push(row(&done, request.prompt.clone(), 0.0));
        }
    }
    rows
}

#[tokio::test]
async fn pairs_are_learned_and_no_split_changes_what_is() {
    let preference = PreferenceOptions { beta: 0.5, ..PreferenceOptions::default() };
    let mut first = Vec::new();
    for tokens in [usize::MAX, 32, 1] {
        let mut setup = setup(&["p"]);
        setup.options.micro_batch_tokens = tokens.try_into().unwrap();
        setup.workers[0].policies[0].reference = true;
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let mut batch = batch(pairs(&policy, 6).await);
        batch.objective = Objective::Preference(preference);
        let stats = policy.update(batch.clone()).await.unwrap();
        // The reference is the policy itself, so no pair has a preference yet.
        assert!((stats.loss - 2.0_f64.ln()).abs() < 1e-6, "{}", stats.loss);
        assert_eq!(stats.preference.unwrap().accuracy, 0.0);
        first.push(stats.grad_norm);
        for _ in 0..5 {
            policy.update(batch.clone()).await.unwrap();
        }
        batch.minibatches = 3;
        let stats = policy.update(batch).await.unwrap();
        let pairs = stats.preference.unwrap();
        assert_eq!(stats.optimizer_steps, 3);
        assert!(stats.loss < 2.0_f64.ln(), "{}", stats.loss);
        assert!(pairs.accuracy > 0.9 && pairs.reward_chosen > pairs.reward_rejected, "{pairs:?}");
        assert_eq!(pairs.shift, None);
    }
    assert!(first.iter().all(|norm| (norm - first[0]).abs() < 1e-5 * norm), "{first:?}");
}

#[tokio::test]
async fn pairs_are_learned_without_a_reference() {
    for (loss, beta) in [(PairLoss::Orpo, 0.5), (PairLoss::Simpo, 2.0)] {
        let preference = PreferenceOptions { loss, beta, ..PreferenceOptions::default() };
        let mut norms = Vec::new();
        for tokens in [usize::MAX, 32] {
            let mut setup = setup(&["p"]);
            setup.options.micro_batch_tokens = tokens.try_into().unwrap();
            let runtime = setup.start();
            let policy = runtime.policies()[0].clone();
            let rows = pairs(&policy, 6).await;
            let mut batch = batch(rows.clone());
            batch.objective = Objective::Preference(preference);
            let means = |logprobs: &[Vec<f32>]| -> f64 {
                let mean = |row: &Vec<f32>| {
                    row.iter().map(|&logp| f64::from(logp)).sum::<f64>() / row.len() as f64
                };
                let pairs = logprobs.chunks(2).map(|pair| {
                    let [chosen, rejected] = [mean(&pair[0]), mean(&pair[1])];
                    let pair = Pair { chosen: (chosen, 1), rejected: (rejected, 1) };
                    crate::loss::preference(&preference, &pair).value
                });
                pairs.sum::<f64>() / 6.0
            };
            let before = means(&policy.logprobs(rows.clone()).await.unwrap());
            let stats = policy.update(batch.clone()).await.unwrap();
            assert!((stats.loss - before).abs() < 1e-5, "{loss:?}: {} is not {before}", stats.loss);
            norms.push(stats.grad_norm);
            for _ in 0..5 {
                policy.update(batch.clone()).await.unwrap();
            }
            let stats = policy.update(batch).await.unwrap();
            assert!(stats.loss < before, "{loss:?}: {} after {before}", stats.loss);
            assert!(stats.preference.unwrap().accuracy > 0.9, "{loss:?}");
        }
        assert!((norms[0] - norms[1]).abs() < 1e-5 * norms[0], "{norms:?}");
    }
}

/// Computes DPO's loss of replies of several turns in f64: `−log sigmoid(β h)` with
/// `h = Σ (logp − logp_ref) over the better turns − the same over the worse` (2305.18290 eq. 7), the mean over pairs; and the
/// share of pairs with `h > 0`.
fn dpo(beta: f64, pairs: &[[usize; 2]], own: &[Vec<f32>], reference: &[Vec<f32>]) -> (f64, f64) {
    let ratio = |row: usize| -> f64 {
        let tokens = own[row].iter().zip(&reference[row]);
        tokens.map(|(own, reference)| f64::from(*own) - f64::from(*reference)).sum()
    };
    let (mut loss, mut right, mut at) = (0.0, 0.0, 0);
    for [better, worse] in pairs {
        let (middle, end) = (at + better, at + better + worse);
        let h = (at..middle).map(ratio).sum::<f64>() - (middle..end).map(ratio).sum::<f64>();
        loss -= (1.0 / (1.0 + (-beta * h).exp())).ln() / pairs.len() as f64;
        right += f64::from(h > 0.0) / pairs.len() as f64;
        at = end;
    }
    (loss, right)
}

#[tokio::test]
async fn replies_of_several_turns_have_the_loss_of_their_sums() {
    let preference = PreferenceOptions { beta: 0.3, ..PreferenceOptions::default() };
    let sizes = vec![[1, 1], [2, 1], [1, 3], [2, 1]];
    let mut norms = Vec::new();
    for tokens in [usize::MAX, 32, 1] {
        let mut setup = setup(&["p"]);
        setup.options.micro_batch_tokens = tokens.try_into().unwrap();
        setup.workers[0].policies[0].reference = true;
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let rows = pairs(&policy, 6).await;
        let pairs = sizes.clone();
        let objective = Objective::Preference(preference);
        let batch = Batch { pairs, objective, ..batch(rows.clone()) };
        for _ in 0..4 {
            let own = policy.logprobs(rows.clone()).await.unwrap();
            let reference = policy.reference(rows.clone()).await.unwrap();
            let (loss, right) = dpo(preference.beta, &sizes, &own, &reference);
            let stats = policy.update(batch.clone()).await.unwrap();
            assert!((stats.loss - loss).abs() < 1e-6 * loss, "{} {loss}", stats.loss);
            assert_eq!(stats.preference.unwrap().accuracy, right);
        }
        norms.push(policy.update(batch).await.unwrap().grad_norm);
    }
    assert!(norms.iter().all(|norm| (norm - norms[0]).abs() < 1e-4 * norm), "{norms:?}");
}

#[tokio::test]
async fn log_probs_the_sampler_got_wrong_are_corrected_for() {
    let norm = async |correction, noise: f32| {
        let runtime = setup(&["p"]).start();
        let policy = runtime.policies()[0].clone();
        let mut rows = Vec::new();
        for i in 0..6 {
            let done = policy.generate(request(i)).await.unwrap();
            let mut row = row(&done, request(i).prompt, 1.0);
            row.logprobs.iter_mut().for_each(|logp| *logp -= noise);
            row.loss.correction = vec![correction];
            rows.push(row);
        }
        policy.update(batch(rows)).await.unwrap()
    };
    // Every ratio is e: truncated to 2, or outside [1/2, 2].
    let plain = norm(Correction::None, 0.0).await;
    let cut = norm(Correction::Truncate(TruncateOptions::default()), 1.0).await;
    assert!((cut.grad_norm / plain.grad_norm - 2.0).abs() < 1e-3, "{cut:?}");
    assert!((cut.correction_mean.unwrap() - 2.0).abs() < 1e-5);
    assert!((cut.mismatch_mean - 1.0).abs() < 1e-5, "the mismatch is told all the same");
    let mask = CapOptions::default();
    for masked in [Correction::MaskTokens(mask), Correction::MaskSequences(mask)] {
        let stats = norm(masked, 1.0).await;
        assert_eq!((stats.grad_norm, stats.correction_mean), (0.0, Some(0.0)));
        let agreed = norm(masked, 0.0).await;
        assert_eq!(agreed.grad_norm, plain.grad_norm);
    }
}

#[tokio::test]
async fn a_reference_scores_rows_as_the_policy_did_at_the_start() {
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].reference = true;
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let done = policy.generate(request(3)).await.unwrap();
    let rows = vec![row(&done, request(3).prompt, 1.0)];
    policy.update(batch(rows.clone())).await.unwrap();
    let start = vec![done.logprobs];
    assert_eq!(policy.reference(rows.clone()).await.unwrap(), start);
    // A renewed reference scores as the policy does now, and is part of what is saved.
    policy.renew_reference().await.unwrap();
    let now = policy.logprobs(rows.clone()).await.unwrap();
    assert_ne!(now, start);
    policy.update(batch(rows.clone())).await.unwrap();
    assert_eq!(policy.reference(rows.clone()).await.unwrap(), now);
    let dir = tempfile::tempdir().unwrap();
    policy.save(dir.path()).await.unwrap();
    let other = setup.start().policies()[0].clone();
    other.load(dir.path()).await.unwrap();
    assert_eq!(other.reference(rows.clone()).await.unwrap(), now);
    assert_eq!(
        other.logprobs(rows.clone()).await.unwrap(),
        policy.logprobs(rows.clone()).await.unwrap()
    );
    let without = self::setup(&["p"]).start();
    let error = without.policies()[0].reference(rows).await.unwrap_err();
    assert!(error.to_string().contains("no reference is kept"), "{error}");
}

#[tokio::test]
async fn a_mixed_reference_is_between_the_old_one_and_the_policy_and_is_saved() {
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].reference = true;
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let done = policy.generate(request(3)).await.unwrap();
    let rows = vec![row(&done, request(3).prompt, 1.0)];
    let before = policy.reference(rows.clone()).await.unwrap();
    for _ in 0..3 {
        policy.update(Batch { lr: 1e-5, ..batch(rows.clone()) }).await.unwrap();
    }
    let now = policy.logprobs(rows.clone()).await.unwrap();
    let distance = |found: &[Vec<f32>]| -> f64 {
        found[0].iter().zip(&now[0]).map(|(a, b)| f64::from((a - b).abs())).sum()
    };
    let mut last = distance(&before);
    assert!(last > 0.0);
    for _ in 0..3 {
        policy.mix_reference(0.6).await.unwrap();
        let mixed = policy.reference(rows.clone()).await.unwrap();
        assert!(distance(&mixed) < 0.6 * last, "{} {last}", distance(&mixed));
        last = distance(&mixed);
    }
    let dir = tempfile::tempdir().unwrap();
    policy.save(dir.path()).await.unwrap();
    let other = setup.start().policies()[0].clone();
    other.load(dir.path()).await.unwrap();
    let mixed = policy.reference(rows.clone()).await.unwrap();
    assert_eq!(other.reference(rows.clone()).await.unwrap(), mixed);
    policy.mix_reference(1.0).await.unwrap();
    assert_eq!(policy.reference(rows).await.unwrap(), now);
}

#[tokio::test]
async fn repeated_tokens_come_less_often_under_a_penalty_and_keep_their_log_probs() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let penalty = Sampling { repetition_penalty: 1.8, ..(*sampling(24)).clone() };
    let request = Request { sampling: Arc::new(penalty), ..request(5) };
    let done = policy.generate(request.clone()).await.unwrap();
    let again = futures::future::join_all((0..4).map(|_| policy.generate(request.clone()))).await;
    assert!(again.into_iter().all(|other| other.unwrap() == done), "K-1");
    let mut rows = batch(vec![row(&done, request.prompt, 1.0)]);
    rows.lr = 0.0;
    assert_eq!(policy.update(rows).await.unwrap().mismatch_max, 0.0);
}

#[tokio::test]
async fn a_kl_to_a_reference_that_is_not_kept_is_an_error_and_changes_nothing() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let before = policy.fingerprint().await.unwrap();
    let done = policy.generate(request(1)).await.unwrap();
    let mut row = row(&done, request(1).prompt, 1.0);
    row.loss.kl_coef = 0.1;
    let error = policy.update(batch(vec![row])).await.unwrap_err();
    assert!(error.to_string().contains("row 0 has `kl_coef` 0.1"), "{error}");
    let RuntimeError::Model { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), crate::files::ModelErrorKind::Argument);
    assert_eq!(policy.fingerprint().await.unwrap(), before);
}

#[test]
fn two_policies_of_one_name_are_refused() {
    let setup = setup(&["p", "p"]);
    let error = Runtime::start(&setup.workers, &setup.options).err().unwrap();
    assert!(matches!(error, RuntimeError::Duplicate { .. }), "{error}");
}

/// Returns rows with advantages of both signs, and the update with one of their losses.
async fn updated_with(change: impl Fn(&mut Batch)) -> crate::runtime::UpdateStats {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let mut rows = Vec::new();
    for i in 0..6 {
        let done = policy.generate(request(i)).await.unwrap();
        rows.push(row(&done, request(i).prompt, 1.0 - i as f32 * 0.4));
    }
    let mut batch = batch(rows);
    change(&mut batch);
    policy.update(batch).await.unwrap()
}

#[tokio::test]
async fn skipped_rows_change_neither_the_loss_nor_any_count() {
    for aggregation in [
        Aggregation::TokenMean,
        Aggregation::SequenceMean,
        Aggregation::SequenceSum,
        Aggregation::Constant,
    ] {
        let without = updated_with(|batch| {
            batch.aggregation = aggregation;
            batch.rows.remove(2);
        });
        let skipped = updated_with(|batch| {
            batch.aggregation = aggregation;
            batch.rows[2].skipped = true;
        });
        let (without, skipped) = (without.await, skipped.await);
        assert_eq!((without.rows, without.tokens), (skipped.rows, skipped.tokens));
        assert_eq!((without.loss, without.entropy), (skipped.loss, skipped.entropy));
        let same = (without.grad_norm - skipped.grad_norm).abs() < 1e-5 * without.grad_norm;
        assert!(same, "{without:?} {skipped:?}");
    }
    let none = updated_with(|batch| batch.rows.iter_mut().for_each(|row| row.skipped = true));
    assert_eq!(none.await.optimizer_steps, 0);
}

#[tokio::test]
async fn on_policy_the_mean_over_replies_is_that_of_the_sequence_mean() {
    let surrogate = BuiltinSurrogate::Gmpo(GmpoOptions::default());
    let norms = [Aggregation::TokenMean, Aggregation::SequenceSum].map(|aggregation| {
        updated_with(move |batch| {
            batch.aggregation = aggregation;
            batch.rows.iter_mut().for_each(|row| row.loss.surrogate = surrogate);
        })
    });
    let want = updated_with(|batch| batch.aggregation = Aggregation::SequenceMean).await;
    for stats in norms {
        let stats = stats.await;
        let same = (stats.grad_norm - want.grad_norm).abs() < 1e-5 * want.grad_norm;
        assert!(same, "{stats:?} {want:?}");
    }
}

#[tokio::test]
async fn masks_report_what_they_keep() {
    let stats = updated_with(|batch| {
        for row in &mut batch.rows {
            row.logprobs.iter_mut().for_each(|logp| *logp += 1.0);
            row.loss.correction = vec![Correction::Mask(MaskOptions::default())];
            row.loss.off_policy_mask = 0.5;
        }
    });
    let stats = stats.await;
    assert_eq!((stats.correction_mean, stats.correction_kept), (Some(0.0), Some(0.0)));
    let masked = stats.off_policy_masked.unwrap();
    assert!(masked > 0.0 && masked < 1.0, "tokens with a negative advantage: {masked}");
    let plain = updated_with(|_| {}).await;
    assert_eq!((plain.correction_kept, plain.off_policy_masked), (None, None));
    // A row that is not trained on counts in no mean of those that are.
    let truncated = Correction::Truncate(TruncateOptions::default());
    let skipping = |skipped: bool| {
        updated_with(move |batch| {
            batch.rows.iter_mut().for_each(|row| row.loss.correction = vec![truncated]);
            batch.rows[0].logprobs.iter_mut().for_each(|logp| *logp -= 5.0);
            batch.rows[0].skipped = skipped;
        })
    };
    let [trained, skipped] = [skipping(false).await, skipping(true).await];
    assert!(trained.correction_mean.unwrap() > 1.05, "{trained:?}");
    assert!((skipped.correction_mean.unwrap() - 1.0).abs() < 1e-5, "{skipped:?}");
}
