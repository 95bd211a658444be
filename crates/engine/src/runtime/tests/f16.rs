//! Updates of models whose products are in f16: the scale of the loss.

use std::path::Path;

use super::ranks::testing::on_ranks;
use super::*;
use crate::files::ModelFiles;
use crate::net::ops::Cpu;
use crate::net::tests::fixture;
use crate::net::{Model, Params};
use crate::runtime::loss_scale::{LossScale, scale_slopes};
use crate::runtime::optimizer::Optimizer;
use crate::runtime::peers::Peers;
use half::f16;
use maverl_dist::{Ranks, Shard};
use maverl_kernels::matmul::Precision;

/// Returns a policy in f16, whose optimizer depends on the size of the gradient.
fn in_f16(start: u64, every: u64) -> Setup {
    let mut setup = setup(&["p"]);
    setup.workers[0].dtype = Dtype::F16;
    setup.workers[0].loss_scale = LossScaleOptions { start, every };
    let optim = &mut setup.workers[0].policies[0].optim;
    (optim.eps, optim.grad_clip) = (1e-2, 0.5);
    setup
}

/// Returns the same policy in another precision.
fn in_precision(dtype: Dtype) -> Setup {
    let mut setup = in_f16(65_536, 400);
    setup.workers[0].dtype = dtype;
    setup
}

fn given() -> Batch {
    Batch { lr: 1e-3, ..batch(given_rows(500, -6.0)) }
}

/// Scale, norm and weights of a policy after an update.
#[derive(Debug, Clone, PartialEq)]
struct After {
    scale: ScaleStats,
    taken: u64,
    norm: f64,
    weights: String,
}

async fn update(policy: &Policy) -> After {
    let stats = policy.update(given()).await.unwrap();
    assert_eq!(stats.optimizer_steps + stats.skipped_steps, 1);
    assert!(stats.loss != 0.0, "a skipped step has a loss");
    After {
        scale: stats.loss_scale.unwrap(),
        taken: stats.optimizer_steps,
        norm: stats.grad_norm,
        weights: policy.fingerprint().await.unwrap(),
    }
}

async fn updates(policy: &Policy, count: usize) -> Vec<After> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(update(policy).await);
    }
    found
}

/// Inputs and targets of a linear map `y = w x` with the loss `Σ (y − t)² / 2`, and its first weights.
const INPUTS: [[f32; 3]; 2] = [[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]];
const TARGETS: [f32; 2] = [40.0, -25.0];
const WEIGHTS: [f32; 3] = [0.1, -0.2, 0.3];
const RATE: f64 = 0.1;

fn adam() -> OptimOptions {
    OptimOptions { eps: 1e-2, grad_clip: 5.0, weight_decay: 0.0, ..OptimOptions::default() }
}

/// Takes or skips a step by the products, the scale and the optimizer of this crate. Returns the norm of a step that is taken.
fn step_of_map(params: &Params, optimizer: &mut Optimizer, scale: &mut LossScale) -> Option<f64> {
    let (x, w) = (INPUTS.concat(), params.vars()[0].1.values().to_vec());
    let mut y = [0.0; 2];
    Precision::F16.set().nt(&x, &w, &mut y, 2, 1, 3);
    let mut dy = [y[0] - TARGETS[0], y[1] - TARGETS[1]];
    scale_slopes(Some(scale), &mut dy);
    let mut gradients = optimizer.gradients(params).unwrap();
    Precision::F16.add().tn(&dy, &x, gradients.of(Some(0)).unwrap(), 1, 3, 2);
    let factor = scale.factor();
    let norm = gradients.norm(&Cpu::default()).unwrap() / f64::from(factor);
    if !norm.is_finite() {
        assert!(scale.skip_step());
        return None;
    }
    scale.count_step();
    optimizer.apply(gradients, RATE, (norm, factor)).unwrap();
    Some(norm)
}

/// The same steps by hand, in f64 with numbers that are rounded to f16.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ByHand {
    w: [f64; 3],
    m: [f64; 3],
    v: [f64; 3],
    t: i32,
    scale: f64,
    good: u32,
    skipped: u64,
}

impl ByHand {
    fn step(&mut self) -> Option<f64> {
        let half = |x: f64| f16::from_f64(x).to_f64();
        let mut g = [0.0; 3];
        for (x, target) in INPUTS.iter().zip(TARGETS) {
            let x = x.map(|x| half(x.into()));
            let y: f64 = x.iter().zip(self.w).map(|(x, w)| x * half(w)).sum();
            let dy = half((y - f64::from(target)) * self.scale);
            g.iter_mut().zip(x).for_each(|(g, x)| *g += dy * x);
        }
        let norm = g.iter().map(|g| g * g).sum::<f64>().sqrt() / self.scale;
        if !norm.is_finite() {
            (self.scale, self.good, self.skipped) = (self.scale / 2.0, 0, self.skipped + 1);
            return None;
        }
        let factor = (5.0 / (norm + 1e-6)).min(1.0) / self.scale;
        self.t += 1;
        let [c1, c2] = [0.9_f64, 0.999].map(|beta| 1.0 - beta.powi(self.t));
        for (i, g) in g.into_iter().enumerate() {
            let g = g * factor;
            self.m[i] = 0.9 * self.m[i] + 0.1 * g;
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g;
            self.w[i] -= RATE / c1 * self.m[i] / ((self.v[i] / c2).sqrt() + 1e-2);
        }
        self.good += 1;
        if self.good == 3 {
            (self.scale, self.good) = (self.scale * 2.0, 0);
        }
        Some(norm)
    }
}

#[test]
fn steps_of_a_linear_map_are_those_by_hand_through_overflows_growth_and_a_resume() {
    let named = [("w".to_owned(), vec![1, 3])];
    let params = Params::new(named, |_, values| {
        values.copy_from_slice(&WEIGHTS);
        Ok(())
    });
    let params = params.unwrap();
    let cpu = Cpu::default();
    let mut optimizer = Optimizer::new(&cpu, adam(), params.clone(), Peers::default()).unwrap();
    let options = LossScaleOptions { start: 4096, every: 3 };
    let mut scale = LossScale::new(options).unwrap();
    let w = WEIGHTS.map(f64::from);
    let [m, v] = [[0.0; 3]; 2];
    let mut by_hand = ByHand { w, m, v, t: 0, scale: 4096.0, good: 0, skipped: 0 };
    let mut taken = String::new();
    for step in 0..14 {
        if step == 6 {
            // A resume, with a growth ahead.
            let saved = scale.saved();
            scale = LossScale::new(options).unwrap();
            scale.restore(&saved);
        }
        let (found, expected) = (step_of_map(&params, &mut optimizer, &mut scale), by_hand.step());
        taken.push(if found.is_some() { '.' } else { 'x' });
        assert_eq!(found.is_some(), expected.is_some(), "step {step}");
        let off = found.zip(expected).map_or(0.0, |(a, b)| (a / b - 1.0).abs());
        assert!(off < 1e-4, "step {step}: the norm is {found:?}, not {expected:?}");
        let ScaleStats { scale, skipped } = scale.stats();
        assert_eq!((scale, skipped), (by_hand.scale, by_hand.skipped), "step {step}");
        assert_eq!(optimizer.step, by_hand.t as u64, "a skipped step is no step of the optimizer");
        for (found, expected) in params.vars()[0].1.values().iter().zip(by_hand.w) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "step {step}: {found} {expected}");
        }
    }
    println!("steps {taken}, {:?}", scale.stats());
    assert!(taken.starts_with("xx...x..."), "{taken}");
}

/// Returns the weights of a policy, one after the other.
async fn weights(policy: &Policy) -> Vec<f32> {
    let dir = tempfile::tempdir().unwrap();
    policy.save(dir.path()).await.unwrap();
    weights_in(dir.path())
}

fn weights_in(dir: &Path) -> Vec<f32> {
    let files = ModelFiles::new(&ModelSource::Directory(dir.to_owned()));
    let model = Model::load(&files).unwrap();
    model.trainable().vars().iter().flat_map(|(_, var)| var.values().to_vec()).collect()
}

/// Returns the norm of the difference of two changes of the same weights, relative to the second one.
fn apart(before: &[f32], [one, other]: [&[f32]; 2]) -> f64 {
    let (mut difference, mut size) = (0.0, 0.0);
    for (before, (one, other)) in before.iter().zip(one.iter().zip(other)) {
        difference += (f64::from(*one) - f64::from(*other)).powi(2);
        size += (f64::from(*other) - f64::from(*before)).powi(2);
    }
    (difference / size).sqrt()
}

#[tokio::test]
async fn an_overflow_skips_the_step_and_halves_the_scale_which_doubles_after_three_good_steps() {
    let setup = in_f16(1 << 24, 3);
    let policy = setup.start().policies()[0].clone();
    let mut before = policy.fingerprint().await.unwrap();
    let all = updates(&policy, 14).await;
    println!("{:?}", all.iter().map(|after| (after.scale, after.taken)).collect::<Vec<_>>());
    // The rule, followed by hand.
    let (mut scale, mut good, mut skipped) = (16_777_216.0, 0, 0);
    for after in &all {
        if after.taken == 0 {
            (scale, good, skipped) = (scale / 2.0, 0, skipped + 1);
            assert_eq!(after.weights, before, "a skipped step changes no weight");
            assert_eq!(after.norm, 0.0);
        } else {
            good += 1;
            if good == 3 {
                (scale, good) = (scale * 2.0, 0);
            }
            assert_ne!(after.weights, before);
            assert!(after.norm > 0.0 && after.norm < 1e3, "the norm has no scale: {after:?}");
        }
        assert_eq!(after.scale, ScaleStats { scale, skipped });
        before.clone_from(&after.weights);
    }
    let taken: Vec<u64> = all.iter().map(|after| after.taken).collect();
    let first = taken.iter().position(|&taken| taken == 1).unwrap();
    assert!(
        first > 0 && skipped > first as u64,
        "it overflows first, and after a growth: {taken:?}"
    );
}

#[tokio::test]
async fn the_first_step_after_skipped_ones_is_that_of_a_run_that_began_with_its_scale() {
    let policy = in_f16(1 << 24, 400).start().policies()[0].clone();
    let mut all = updates(&policy, 1).await;
    while all.last().unwrap().taken == 0 {
        all.push(update(&policy).await);
    }
    all.extend(updates(&policy, 2).await);
    let first = all.iter().position(|after| after.taken == 1).unwrap();
    assert!(first > 0, "some steps overflow");
    let start = all[first].scale.scale as u64;
    let other = in_f16(start, 400).start().policies()[0].clone();
    for (ours, theirs) in all[first..].iter().zip(updates(&other, 3).await) {
        // Moments and the counter of the optimizer are those of a run without skipped steps.
        assert_eq!((ours.norm, &ours.weights), (theirs.norm, &theirs.weights));
    }
}

#[tokio::test]
async fn a_scale_is_in_the_norm_of_no_gradient_and_in_the_size_of_no_update() {
    let mut found = Vec::new();
    let before = {
        let policy = in_precision(Dtype::F32).start().policies()[0].clone();
        weights(&policy).await
    };
    for setup in [
        in_precision(Dtype::F32),
        in_precision(Dtype::Bf16),
        in_f16(1 << 6, 400),
        in_f16(1 << 12, 400),
        in_f16(1 << 18, 400),
    ] {
        let policy = setup.start().policies()[0].clone();
        let stats = policy.update(given()).await.unwrap();
        found.push((stats.grad_norm, stats.loss, weights(&policy).await));
    }
    let (norm, loss, exact) = &found[0];
    assert!(*norm > 0.5, "the gradient is clipped: {norm}");
    let errors: Vec<[f64; 3]> = found
        .iter()
        .map(|(own, its, after)| {
            [(own / norm - 1.0).abs(), (its - loss).abs(), apart(&before, [after, exact])]
        })
        .collect();
    println!(
        "norm, loss and weights differ from f32: bf16 {:?}, f16 {:?}",
        errors[1],
        &errors[2..]
    );
    for (f16, bound) in errors[3..].iter().flat_map(|of| of.iter().zip([4e-3, 4e-3, 2e-2])) {
        assert!(*f16 <= bound, "{errors:?}");
    }
    // Eight times finer: at least four times nearer.
    for (f16, bf16) in errors[4].iter().zip(errors[1]).skip(2) {
        assert!(4.0 * f16 <= bf16, "{errors:?}");
    }
}

#[tokio::test]
async fn a_resumed_policy_goes_on_with_its_scale_and_counters() {
    let setup = in_f16(1 << 24, 3);
    let whole = updates(&setup.start().policies()[0], 11).await;
    for stop in [2, 5, 7] {
        let dir = tempfile::tempdir().unwrap();
        let first = setup.start().policies()[0].clone();
        updates(&first, stop).await;
        first.save(dir.path()).await.unwrap();
        let second = setup.start().policies()[0].clone();
        second.load(dir.path()).await.unwrap();
        assert_eq!(updates(&second, 11 - stop).await, whole[stop..], "after {stop}");
    }
}

/// Updates eight times on a rank, and returns what is known after each.
fn on_rank(setup: &Setup, ranks: Option<&Ranks>) -> Vec<After> {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
    let found = tokio.block_on(updates(&runtime.policies()[0], 8));
    if let Some(ranks) = ranks {
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    }
    found
}

#[test]
fn all_ranks_take_and_skip_the_same_steps() {
    let mut setup = in_f16(1 << 24, 3);
    let alone = on_rank(&setup, None);
    let decisions = |of: &[After]| -> Vec<(ScaleStats, u64)> {
        of.iter().map(|after| (after.scale, after.taken)).collect()
    };
    assert!(alone[0].taken == 0 && alone[7].scale.skipped > 0);
    let mut of_whole = None;
    for shard in [Shard::None, Shard::Optimizer] {
        setup.options.shard = shard;
        let both = on_ranks(2, |ranks| on_rank(&setup, Some(&ranks)));
        assert_eq!(both[0], both[1], "{shard:?}");
        assert_eq!(decisions(&both[0]), decisions(&alone), "{shard:?}");
        let of_whole = of_whole.get_or_insert_with(|| both[0].clone());
        assert_eq!(*of_whole, both[0], "divided moments change no bit");
    }
}

#[tokio::test]
async fn an_overflow_at_a_scale_of_1_and_a_loss_that_is_not_finite_end_the_run() {
    let huge = || {
        let mut batch = given();
        batch.rows.iter_mut().for_each(|row| row.advantages.fill(1e9));
        batch
    };
    let policy = in_f16(1, 400).start().policies()[0].clone();
    let before = policy.fingerprint().await.unwrap();
    let error = policy.update(huge()).await.unwrap_err().to_string();
    assert_eq!(error, "policy `p`: gradients overflow at a loss scale of 1: bf16 or f32");
    assert_eq!(policy.fingerprint().await.unwrap(), before);
    // In f32 the same gradient is clipped.
    let exact = in_precision(Dtype::F32).start().policies()[0].clone();
    assert!(exact.update(huge()).await.unwrap().grad_norm > 1e6);
    let mut unknown = given();
    unknown.rows[2].advantages.fill(f32::NAN);
    let error = policy.update(unknown).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "policy `p`: the loss is not finite; no scale of the loss helps: bf16 or f32"
    );
}

#[tokio::test]
async fn an_activation_beyond_f16_is_an_error_with_the_layer() {
    let model = Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap();
    for (name, factor) in [("gate_proj", 1e2), ("up_proj", 1e5)] {
        let name = format!("model.layers.1.mlp.{name}.weight");
        let (_, var) = model.trainable().vars().iter().find(|(found, _)| *found == name).unwrap();
        var.update(|values| values.iter_mut().for_each(|value| *value *= factor));
    }
    let dir = tempfile::tempdir().unwrap();
    model.save(dir.path()).unwrap();
    let with = |mut setup: Setup| {
        setup.workers[0].source = ModelSource::Directory(dir.path().to_owned());
        setup.start().policies()[0].clone()
    };
    assert!(with(in_precision(Dtype::F32)).update(given()).await.unwrap().loss.is_finite());
    assert!(with(in_precision(Dtype::Bf16)).update(given()).await.unwrap().loss.is_finite());
    let error = with(in_f16(65_536, 400)).update(given()).await.unwrap_err().to_string();
    let told = "policy `p`: the loss is not finite (layer 1: activation beyond 65,504 in f16); no scale of the loss helps: \
                bf16 or f32";
    assert_eq!(error, told);
}

/// Returns values with returns of a size.
fn values(size: f32) -> ValueBatch {
    let mut batch = ranks::values();
    batch.minibatches = 1;
    for row in &mut batch.rows {
        if let ValueTarget::Returns { old, returns } = &mut row.aim {
            returns.fill(size);
            old.fill(size);
        }
    }
    batch
}

#[tokio::test]
async fn a_critic_on_a_trunk_of_its_own_has_a_scale_of_its_own_that_is_resumed() {
    let mut setup = in_f16(1 << 24, 400);
    setup.workers[0].policies[0].critic = Some(CriticSpec::new(Trunk::Own));
    let policy = setup.start().policies()[0].clone();
    let first = policy.update_critic(values(1e8)).await.unwrap();
    // The head begins with zeros, so the trunk has no gradient yet.
    assert_eq!((first.optimizer_steps, first.skipped_steps), (1, 0));
    let second = policy.update_critic(values(1e8)).await.unwrap();
    assert_eq!((second.optimizer_steps, second.skipped_steps), (0, 1));
    let scale = ScaleStats { scale: 8_388_608.0, skipped: 1 };
    assert_eq!((second.loss_scale, second.grad_norm), (Some(scale), 0.0));
    let own = policy.update(given()).await.unwrap().loss_scale.unwrap();
    assert_eq!(own, ScaleStats { scale: 8_388_608.0, skipped: 1 });
    let dir = tempfile::tempdir().unwrap();
    policy.save(dir.path()).await.unwrap();
    let resumed = setup.start().policies()[0].clone();
    resumed.load(dir.path()).await.unwrap();
    for _ in 0..4 {
        let [ours, theirs] = [
            policy.update_critic(values(1e8)).await.unwrap(),
            resumed.update_critic(values(1e8)).await.unwrap(),
        ];
        assert_eq!(ours, theirs);
        assert!(ours.loss_scale.unwrap().skipped > 1 || ours.optimizer_steps == 1);
    }
}

#[tokio::test]
async fn a_critic_on_the_trunk_of_its_policy_skips_the_steps_that_the_policy_skips() {
    let mut setup = in_f16(1 << 24, 400);
    setup.workers[0].policies[0].critic = Some(CriticSpec::new(Trunk::Shared));
    let policy = setup.start().policies()[0].clone();
    let texts: Vec<ValueText> = values(0.5).rows.into_iter().map(|row| row.text).collect();
    let mut skipped = 0;
    let before = policy.values(texts.clone()).await.unwrap();
    loop {
        let (own, its) = policy.update_with_values(given(), values(0.5)).await.unwrap();
        assert_eq!(its.loss_scale, None, "one scale for both");
        assert_eq!(
            (its.optimizer_steps, its.skipped_steps),
            (own.optimizer_steps, own.skipped_steps)
        );
        let after = policy.values(texts.clone()).await.unwrap();
        if own.optimizer_steps == 1 {
            assert_ne!(after, before);
            assert!(its.grad_norm > 0.0 && its.grad_norm < 1e3, "{its:?}");
            break;
        }
        assert_eq!((its.grad_norm, &after), (0.0, &before), "no weight of the head changes");
        skipped += 1;
    }
    assert!(skipped > 0);
}

#[tokio::test]
async fn the_loss_that_balances_experts_has_the_scale_of_the_other_loss() {
    let mut norms = Vec::new();
    for dtype in [Dtype::F32, Dtype::F16] {
        let mut setup = in_precision(dtype);
        setup.workers[0].loss_scale.start = 1024;
        setup.workers[0].source = ModelSource::Directory(fixture("families").join("qwen3_moe"));
        let policy = setup.start().policies()[0].clone();
        let rows = given_rows(280, -6.0);
        let batch = Batch { lr: 1e-3, router_aux_coef: 10.0, ..batch(rows) };
        norms.push(policy.update(batch).await.unwrap().grad_norm);
        let rows = Batch { lr: 1e-3, ..self::batch(given_rows(280, -6.0)) };
        norms.push(policy.update(rows).await.unwrap().grad_norm);
    }
    println!("norms with and without the loss that balances: {norms:?}");
    assert!(norms[0] > 1.05 * norms[1], "the loss that balances has a gradient: {norms:?}");
    assert!((norms[2] / norms[0] - 1.0).abs() < 1e-2, "{norms:?}");
}

#[tokio::test]
async fn models_of_clients_are_not_trained_in_f16() {
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let base = Model::load(&files).unwrap();
    let tokenizer = Arc::new(crate::text::Tokenizer::load(&files).unwrap());
    let options = RuntimeOptions::default();
    let started = TrainingHost::start("base", &base, &tokenizer, (&options, Dtype::F16), 1);
    let error = started.err().unwrap().to_string();
    assert!(error.contains("not trained in f16, or on the blocks of a file"), "{error}");
}
