//! Worker groups on candle's CPU.

use super::ranks::testing::on_ranks;
use super::*;
use maverl_dist::{Ranks, Shard};

/// Largest difference of log-probs that rollout and training have of the same tokens.
pub(super) const MISMATCH: f64 = 5e-5;
/// Largest difference of a norm or a loss from the native one, relative to it.
const NEAR: f64 = 1e-4;

/// Returns a policy on candle.
fn on_candle() -> Setup {
    let mut setup = setup(&["p"]);
    setup.options.device = DeviceChoice::CandleCpu;
    setup
}

pub(super) async fn completions(policy: &Policy, n: u64) -> Vec<(Vec<u32>, Completion)> {
    let requests = (0..n).map(|i| {
        let request = Request { seed: i, ..request(i / 2) };
        async { (request.prompt.clone(), policy.generate(request).await.unwrap()) }
    });
    futures::future::join_all(requests).await
}

pub(super) fn rows(completions: &[(Vec<u32>, Completion)]) -> Vec<Row> {
    let advantage = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let rows = completions.iter().enumerate();
    rows.map(|(i, (prompt, done))| row(done, prompt.clone(), advantage(i))).collect()
}

pub(super) fn given() -> Batch {
    Batch { lr: 1e-3, ..batch(given_rows(90, -4.5)) }
}

pub(super) fn near(what: &str, found: f64, expected: f64) {
    let off = (found - expected).abs() / expected.abs().max(1e-3);
    println!("{what}: {found:.6e}, native {expected:.6e}, apart by {off:.1e}");
    assert!(off <= NEAR, "{what}: {found:e}, native {expected:e}");
}

#[tokio::test]
async fn a_policy_generates_as_it_trains_within_a_bound_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let setup = on_candle();
    let runtime = setup.start();
    assert_eq!(runtime.device(), "candle:cpu");
    let policy = runtime.policies()[0].clone();
    let done = completions(&policy, 16).await;
    let trained = policy.logprobs(rows(&done)).await.unwrap();
    for ((_, done), trained) in done.iter().zip(&trained) {
        for (one, other) in done.logprobs.iter().zip(trained) {
            assert!(f64::from((one - other).abs()) <= MISMATCH, "{one} and {other}");
        }
    }
    let batch = Batch { lr: 1e-3, ..batch(rows(&done)) };
    let stats = policy.update(batch.clone()).await.unwrap();
    println!("mismatch {:.1e}", stats.mismatch_max);
    assert!(stats.mismatch_max <= MISMATCH && stats.grad_norm > 0.0, "{stats:?}");
    policy.save(dir.path()).await.unwrap();
    let once = policy.fingerprint().await.unwrap();
    policy.update(batch.clone()).await.unwrap();
    let twice = policy.fingerprint().await.unwrap();
    assert_ne!(once, twice);
    let resumed = setup.start();
    let policy = resumed.policies()[0].clone();
    policy.load(dir.path()).await.unwrap();
    assert_eq!(policy.fingerprint().await.unwrap(), once);
    policy.update(batch).await.unwrap();
    assert_eq!(policy.fingerprint().await.unwrap(), twice, "equal calls give equal bits");
}

/// Trains twice on given rows, and a critic if there is one. Returns losses and norms.
pub(super) async fn numbers(setup: &Setup) -> Vec<f64> {
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let mut found = Vec::new();
    for _ in 0..2 {
        let stats = policy.update(given()).await.unwrap();
        found.extend([stats.loss, stats.grad_norm, stats.kl]);
        if setup.workers[0].policies[0].critic.is_some() {
            let row = |row: &Row| {
                let places = row.completion.len();
                let ids = [&row.prompt[..], &row.completion].concat();
                let aim =
                    ValueTarget::Returns { old: vec![0.0; places], returns: vec![0.7; places] };
                ValueRow { text: ValueText { ids, places }, aim }
            };
            let rows = given().rows.iter().map(row).collect();
            let batch = ValueBatch { rows, minibatches: 1, epochs: 1, lr: 1e-3 };
            let stats = policy.update_critic(batch).await.unwrap();
            found.extend([stats.loss, stats.grad_norm]);
        }
    }
    found
}

#[tokio::test]
async fn updates_of_every_kind_have_the_native_losses_and_norms() {
    let lora = |dropout| {
        Some(AdapterSpec::New(LoraSpec { rank: 4, alpha: 8.0, dropout, ..LoraSpec::default() }))
    };
    type Change = fn(&mut PolicySpec);
    let changes: [(&str, Change); 4] = [
        ("all weights", |policy| policy.reference = true),
        ("checkpointing", |policy| policy.gradient_checkpointing = true),
        ("a critic", |policy| policy.critic = Some(CriticSpec::new(Trunk::Own))),
        ("Muon", |policy| policy.optim.kind = OptimizerKind::Muon),
    ];
    for (what, change) in changes {
        let mut setups = [setup(&["p"]), on_candle()];
        setups.iter_mut().flat_map(Setup::policies).for_each(change);
        let [native, found] = [numbers(&setups[0]).await, numbers(&setups[1]).await];
        found.iter().zip(&native).for_each(|(found, native)| near(what, *found, *native));
    }
    for dropout in [0.0, 0.3] {
        let mut setups = [setup(&["p"]), on_candle()];
        for policy in setups.iter_mut().flat_map(Setup::policies) {
            policy.adapter = lora(dropout);
        }
        let [native, found] = [numbers(&setups[0]).await, numbers(&setups[1]).await];
        let what = format!("an adapter with dropout {dropout}");
        found.iter().zip(&native).for_each(|(found, native)| near(&what, *found, *native));
    }
}

#[tokio::test]
async fn worker_groups_on_both_engines_are_in_one_run() {
    let mut setup = setup(&["native", "other"]);
    setup.workers[1].device = Some(DeviceChoice::CandleCpu);
    let runtime = setup.start();
    let devices: Vec<&str> = runtime.worker_devices().map(|of| of.name.as_str()).collect();
    assert_eq!(devices, ["cpu", "candle:cpu"]);
    for policy in runtime.policies() {
        let rows = rows(&completions(policy, 4).await);
        let stats = policy.update(batch(rows)).await.unwrap();
        let bound = if policy.name() == "native" { 0.0 } else { MISMATCH };
        assert!(stats.mismatch_max <= bound, "{}: {:e}", policy.name(), stats.mismatch_max);
    }
}

#[test]
fn ranks_over_tcp_have_equal_weights_with_moments_divided_or_not() {
    let run = |sharded: bool, ranks: Option<&Ranks>| {
        let mut setup = on_candle();
        setup.options.shard = if sharded { Shard::Optimizer } else { Shard::None };
        let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
        let policy = runtime.policies()[0].clone();
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio.block_on(policy.update(given())).unwrap();
        let stats = tokio.block_on(policy.update(given())).unwrap();
        if let Some(ranks) = ranks {
            ranks.channel(0).barrier().unwrap();
            ranks.leave();
        }
        (tokio.block_on(policy.fingerprint()).unwrap(), stats.grad_norm)
    };
    let both = on_ranks(2, |ranks| run(false, Some(&ranks)));
    assert_eq!(both[0], both[1]);
    let divided = on_ranks(2, |ranks| run(true, Some(&ranks)));
    assert_eq!(divided, both, "divided moments change no bit");
    let (_, norm) = run(false, None);
    near("two ranks", both[0].1, norm);
}

#[test]
fn a_step_on_candle_is_compared_with_the_cpu_in_f32() {
    let rows = given().rows;
    let source = ModelSource::Builtin("tiny".to_owned());
    let found = compare_step(DeviceChoice::CandleCpu, &source, &rows).unwrap();
    println!("{found:?}");
    assert!(found.logprob <= 5e-5 && found.cosine > 0.999_999, "{found:?}");
    assert_eq!(found.from_f32[0], 0.0);
}

#[test]
fn products_in_bf16_are_refused_by_name() {
    let mut setup = on_candle();
    setup.workers[0].dtype = Dtype::Bf16;
    let Err(error) = Runtime::start(&setup.workers, &setup.options) else { panic!() };
    let text = error.to_string();
    assert!(text.contains("\"candle:cpu\"") && text.contains("write `dtype = \"f32\"`"), "{text}");
}
