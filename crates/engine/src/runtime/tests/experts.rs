//! Updates of mixtures of experts: their loads, and the loss that balances them.

use super::ranks::testing::on_ranks;
use super::*;
use crate::net::tests::fixture;
use maverl_dist::Ranks;

/// Returns a policy on a reference model.
fn of_family(name: &str) -> Setup {
    let mut setup = setup(&["p"]);
    setup.workers[0].source = ModelSource::Directory(fixture("families").join(name));
    setup
}

/// Returns rows of two groups, each with one prompt.
fn rows() -> Vec<Row> {
    let row = |i: u32| {
        let completion: Vec<u32> = (0..4 + i % 3).map(|t| (i * 37 + t * 11) % 280).collect();
        Row {
            prompt: (0..20).map(|t| (i / 3 * 13 + t * 29) % 280).collect(),
            logprobs: vec![-6.0; completion.len()],
            advantages: vec![i as f32 / 4.0 - 0.5; completion.len()],
            completion,
            ..Row::default()
        }
    };
    (0..6).map(row).collect()
}

/// Updates some times, and returns the first and the last statistics, and the weights.
async fn update(
    setup: &Setup,
    router_aux_coef: f64,
    ranks: Option<&Ranks>,
) -> ([UpdateStats; 2], String) {
    let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
    let policy = runtime.policies()[0].clone();
    let batch = Batch { lr: 2e-3, router_aux_coef, ..batch(rows()) };
    let first = policy.update(batch.clone()).await.unwrap();
    let mut last = first.clone();
    for _ in 0..5 {
        last = policy.update(batch.clone()).await.unwrap();
    }
    if let Some(ranks) = ranks {
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    }
    ([first, last], policy.fingerprint().await.unwrap())
}

#[tokio::test]
async fn loads_are_measured_and_the_loss_that_balances_them_trains_models_with_experts_alone() {
    for name in ["qwen3_moe", "qwen3_5_moe", "gpt_oss"] {
        let setup = of_family(name);
        let ([first, _], plain) = update(&setup, 0.0, None).await;
        let ([same, _], other) = update(&setup, 10.0, None).await;
        assert_eq!((&first.routers, first.loss), (&same.routers, same.loss));
        assert_ne!(plain, other, "{name}");
        let before = first.routers.clone().unwrap();
        assert_eq!(before.layers.len(), 2, "{name}");
        for load in before.layers {
            assert!(load.load_max >= 1.0 && load.router_entropy > 0.0, "{name}: {load:?}");
        }
    }
    let tiny = setup(&["p"]);
    let (of, plain) = update(&tiny, 0.0, None).await;
    assert_eq!(of[0].routers, None);
    assert_eq!(update(&tiny, 1.0, None).await.1, plain, "a model without experts has no load");
}

#[tokio::test]
async fn loads_and_their_balance_do_not_depend_on_micro_batches_or_what_rows_share() {
    let mut setup = of_family("qwen3_moe");
    let whole = update(&setup, 0.1, None).await.0;
    for tokens in [1, 40] {
        setup.options.micro_batch_tokens = tokens.try_into().unwrap();
        let cut = update(&setup, 0.1, None).await.0;
        let [one, other] = [&whole[0], &cut[0]].map(|stats| stats.routers.clone().unwrap());
        for (one, other) in one.layers.iter().zip(&other.layers) {
            assert_eq!((one.load_max, one.dead_experts), (other.load_max, other.dead_experts));
            assert!((one.router_entropy - other.router_entropy).abs() < 1e-9);
        }
        assert!((whole[0].grad_norm - cut[0].grad_norm).abs() < 1e-5 * whole[0].grad_norm);
        assert!((one.balance_loss - other.balance_loss).abs() < 1e-9);
    }
}

#[test]
fn ranks_balance_the_load_of_all_rows() {
    let setup = of_family("qwen3_moe");
    let alone = tokio::runtime::Runtime::new().unwrap().block_on(update(&setup, 0.1, None)).0;
    let found = on_ranks(2, |ranks| {
        tokio::runtime::Runtime::new().unwrap().block_on(update(&setup, 0.1, Some(&ranks)))
    });
    for (stats, fingerprint) in &found {
        assert_eq!(fingerprint, &found[0].1);
        let [one, other] = [&alone[0], &stats[0]].map(|stats| stats.routers.clone().unwrap());
        assert!((one.balance_loss - other.balance_loss).abs() < 1e-9);
        assert_eq!(one.layers[0].load_max, other.layers[0].load_max);
        assert!((alone[0].grad_norm - stats[0].grad_norm).abs() < 1e-5 * alone[0].grad_norm);
    }
}

/// Returns a policy that is an adapter of attention and experts.
fn adapter_of(name: &str, dropout: f32) -> Setup {
    let mut setup = of_family(name);
    let of_experts = if name == "gpt_oss" {
        &["q_proj", "gate_up_proj", "down_proj"][..]
    } else {
        &["q_proj", "gate_proj", "up_proj", "down_proj"]
    };
    let targets: Vec<String> = of_experts.iter().map(|&name| name.to_owned()).collect();
    let lora = LoraSpec {
        rank: 3,
        alpha: 6.0,
        dropout,
        target_modules: TargetModules::Named(targets),
        rslora: false,
    };
    setup.workers[0].policies[0].adapter = Some(AdapterSpec::New(lora));
    setup
}

#[tokio::test]
async fn an_adapter_of_experts_trains_with_the_bits_of_the_sampler_and_goes_on_from_its_checkpoint()
{
    for name in ["qwen3_moe", "qwen3_5_moe", "gpt_oss"] {
        let dir = tempfile::tempdir().unwrap();
        let start = || adapter_of(name, 0.0).start();
        let runtime = start();
        let policy = runtime.policies()[0].clone();
        let prompt: Vec<u32> = (0..20).map(|t| 7 + t * 13 % 240).collect();
        let mut rows = Vec::new();
        for update in 0..3 {
            rows.clear();
            for sample in 0..4_u64 {
                let request = Request::new(prompt.clone(), sampling(8), 10 * update + sample);
                let done = policy.generate(request).await.unwrap();
                rows.push(row(&done, prompt.clone(), sample as f32 - 1.5));
            }
            let batch = Batch { lr: 1e-2, ..batch(rows.clone()) };
            let stats = policy.update(batch).await.unwrap();
            assert_eq!(stats.mismatch_max, 0.0, "{name}, {update}");
            assert!(stats.grad_norm > 0.0, "{name}");
        }
        policy.save(dir.path()).await.unwrap();
        let on = policy.update(Batch { lr: 1e-3, ..batch(rows.clone()) }).await.unwrap();
        let resumed = start();
        let again = resumed.policies()[0].clone();
        again.load(dir.path()).await.unwrap();
        let stats = again.update(Batch { lr: 1e-3, ..batch(rows) }).await.unwrap();
        assert_eq!((on.loss, on.grad_norm), (stats.loss, stats.grad_norm), "{name}");
        let [one, other] = [policy.fingerprint().await, again.fingerprint().await];
        assert_eq!(one.unwrap(), other.unwrap(), "{name}");
    }
}

#[test]
fn ranks_add_the_gradients_of_an_adapter_of_experts() {
    for dropout in [0.0, 0.3] {
        let setup = adapter_of("qwen3_moe", dropout);
        let alone = tokio::runtime::Runtime::new().unwrap().block_on(update(&setup, 0.0, None)).0;
        let found = on_ranks(2, |ranks| {
            tokio::runtime::Runtime::new().unwrap().block_on(update(&setup, 0.0, Some(&ranks)))
        });
        for (stats, fingerprint) in &found {
            assert_eq!(fingerprint, &found[0].1);
            assert!((alone[0].grad_norm - stats[0].grad_norm).abs() < 1e-5 * alone[0].grad_norm);
            assert!((alone[1].loss - stats[1].loss).abs() < 1e-4, "{dropout}");
        }
    }
}

/// Returns rows with the experts that the routers of a model choose for them.
fn routed_rows(name: &str) -> Vec<Row> {
    let source = ModelSource::Directory(fixture("families").join(name));
    let model = crate::net::Model::load(&crate::files::ModelFiles::new(&source)).unwrap();
    let rows = rows().into_iter().map(|row| {
        let ids = [&row.prompt[..], &row.completion[..row.completion.len() - 1]].concat();
        Row { routes: model.routes(&ids).unwrap(), ..row }
    });
    rows.collect()
}

#[tokio::test]
async fn updates_replay_experts_of_the_sampler_and_refuse_those_of_other_texts() {
    for name in ["qwen3_moe", "qwen3_5_moe"] {
        let of = |rows: Vec<Row>, tokens: usize| async move {
            let mut setup = of_family(name);
            setup.options.micro_batch_tokens = tokens.try_into().unwrap();
            let runtime = setup.start();
            let policy = runtime.policies()[0].clone();
            let logprobs = policy.logprobs(rows.clone()).await.unwrap();
            let stats = policy.update(Batch { lr: 1e-3, ..batch(rows) }).await.unwrap();
            (logprobs, stats)
        };
        let routed = routed_rows(name);
        let (plain, stats) = of(rows(), 4096).await;
        let (replayed, own) = of(routed.clone(), 4096).await;
        let (_, cut) = of(routed.clone(), 40).await;
        assert_eq!(plain, replayed, "{name}: the same experts, the same bits");
        assert!((stats.grad_norm - own.grad_norm).abs() < 1e-5 * own.grad_norm, "{name}");
        assert!((cut.grad_norm - own.grad_norm).abs() < 1e-5 * own.grad_norm, "{name}");
        assert!(own.shared.share == 0.0 && stats.shared.share > 0.0, "{name}");
        for load in stats.routers.unwrap().layers {
            assert_eq!(load.replay_changed, None, "{name}");
        }
        for load in own.routers.unwrap().layers {
            assert_eq!(load.replay_changed, Some(0.0), "{name}");
        }
        // Every second row has experts, which are those of the next row's tokens.
        let mut mixed = routed.clone();
        for at in (0..6).step_by(2) {
            let longer = routed[at + 1].routes.as_ref().unwrap();
            let tokens = routed[at].prompt.len() + routed[at].completion.len() - 1;
            let experts = longer.experts();
            let experts = experts.iter().cycle().take(tokens * longer.width());
            mixed[at].routes = Routes::new(experts.copied().collect::<Vec<u8>>(), longer.width());
            mixed[at + 1].routes = None;
        }
        let (other, changed) = of(mixed, 4096).await;
        assert_ne!(other, plain, "{name}");
        let changed = changed.routers.unwrap().layers[0].replay_changed.unwrap();
        assert!(changed > 0.0 && changed <= 1.0, "{name}: {changed}");
        let mut wrong = routed;
        wrong[1].completion.push(3);
        wrong[1].logprobs.push(-1.0);
        wrong[1].advantages.push(1.0);
        let runtime = of_family(name).start();
        let policy = runtime.policies()[0].clone();
        let told = policy.update(batch(wrong)).await.unwrap_err().to_string();
        assert!(told.contains("row 1 has routes of"), "{told}");
    }
    let runtime = setup(&["p"]).start();
    let dense = runtime.policies()[0].clone();
    let told = dense.update(batch(routed_rows("qwen3_moe"))).await.unwrap_err().to_string();
    assert!(told.contains("and the model has 0"), "{told}");
}
