use super::*;
use crate::files::{ModelFiles, ModelSource};
use crate::net::{Adapter, Model};

fn tiny() -> Model {
    Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
}

/// Returns adapters on one base in one worker group, beside the base's own frozen weights.
pub(super) fn adapters(names: &[&str], dropout: f32) -> Setup {
    let Setup { workers, options } = setup(&[names, &["base"]].concat());
    let mut policies: Vec<PolicySpec> =
        workers.iter().flat_map(|worker| worker.policies.clone()).collect();
    for policy in &mut policies {
        policy.optim.grad_clip = 1e9;
        if policy.name == "base" {
            policy.trained = false;
        } else {
            let lora = LoraSpec { rank: 4, alpha: 8.0, dropout, ..LoraSpec::default() };
            policy.adapter = Some(AdapterSpec::New(lora));
        }
    }
    let worker = WorkerSpec { policies, ..workers[0].clone() };
    Setup { workers: vec![worker], options }
}

/// Returns completions of a policy as rows, with alternating rewards.
async fn rows(policy: &Policy, n: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..n {
        let done = policy.generate(request(i)).await.unwrap();
        rows.push(row(&done, request(i).prompt, if i % 2 == 0 { 1.0 } else { -1.0 }));
    }
    rows
}

/// Runs an update that changes completions.
pub(super) async fn train(policy: &Policy) -> UpdateStats {
    let mut batch = batch(rows(policy, 8).await);
    batch.lr = 0.02;
    policy.update(batch).await.unwrap()
}

#[tokio::test]
async fn adapters_on_one_base_learn_apart_and_leave_it_as_it_is() {
    let runtime = adapters(&["a", "b"], 0.0).start();
    let [a, b, base] = runtime.policies() else { panic!("three policies") };
    assert_eq!([a.name(), b.name(), base.name()], ["a", "b", "base"]);
    let mut before = Vec::new();
    for policy in [a, b, base] {
        before.push(policy.fingerprint().await.unwrap());
    }
    assert_ne!(before[0], before[1], "each adapter is drawn on its own");
    let first = base.generate(request(3)).await.unwrap();
    assert_eq!(a.generate(request(3)).await.unwrap(), first, "a new adapter changes nothing");
    let stats = train(a).await;
    println!("mismatch under an adapter: max {:e}", stats.mismatch_max);
    assert!(stats.mismatch_max < 1e-4 && stats.grad_norm > 0.0);
    assert_ne!(a.fingerprint().await.unwrap(), before[0]);
    assert_eq!(b.fingerprint().await.unwrap(), before[1]);
    assert_eq!(base.fingerprint().await.unwrap(), before[2], "the base, to the bit");
    assert_eq!(base.generate(request(3)).await.unwrap(), first);
    let moved = a.generate(request(3)).await.unwrap();
    assert_ne!(moved.logprobs, first.logprobs);
    assert_eq!((moved.version, b.generate(request(3)).await.unwrap().version), (1, 0));
    // The trained adapter is used by trainer and rollout alike.
    let stats = train(a).await;
    assert!(stats.mismatch_max < 1e-4, "{stats:?}");
}

#[tokio::test]
async fn a_completion_is_the_same_to_the_bit_beside_other_adapters() {
    let runtime = adapters(&["a", "b"], 0.0).start();
    train(&runtime.policies()[0]).await;
    train(&runtime.policies()[1]).await;
    let policy = |i: u64| &runtime.policies()[i as usize % 3];
    let mut alone = Vec::new();
    for i in 0..48 {
        alone.push(policy(i).generate(request(i)).await.unwrap());
    }
    let together =
        futures::future::join_all((0..48).rev().map(|i| policy(i).generate(request(i)))).await;
    for (i, found) in together.into_iter().rev().enumerate() {
        assert_eq!(found.unwrap(), alone[i], "request {i}");
    }
    let of = |i: usize| runtime.policies()[i].generate(request(5));
    let (a, b, base) = (of(0).await.unwrap(), of(1).await.unwrap(), of(2).await.unwrap());
    assert!(a.logprobs != b.logprobs && b.logprobs != base.logprobs);
}

#[tokio::test]
async fn a_saved_adapter_is_a_peft_directory_and_goes_on_as_if_never_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = adapters(&["a"], 0.2).start();
    let policy = &runtime.policies()[0];
    let rows = rows(policy, 6).await;
    policy.update(batch(rows.clone())).await.unwrap();
    policy.save(dir.path()).await.unwrap();
    policy.update(batch(rows.clone())).await.unwrap();
    let uninterrupted = policy.fingerprint().await.unwrap();

    let mut files: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files,
        ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"]
    );
    // Moments exist for the adapter only.
    let size = |file: &str| std::fs::metadata(dir.path().join(file)).unwrap().len();
    assert!(size("optimizer.safetensors") < 3 * size("adapter_model.safetensors"));

    let resumed = adapters(&["a"], 0.2).start();
    let policy = &resumed.policies()[0];
    policy.load(dir.path()).await.unwrap();
    assert_eq!(policy.update(batch(rows)).await.unwrap().version, 2);
    assert_eq!(policy.fingerprint().await.unwrap(), uninterrupted);
}

#[tokio::test]
async fn an_adapter_starts_from_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = adapters(&["a"], 0.0).start();
    train(&runtime.policies()[0]).await;
    runtime.policies()[0].save(dir.path()).await.unwrap();
    let mut setup = adapters(&["warm"], 0.0);
    for adapter in setup.policies().filter_map(|policy| policy.adapter.as_mut()) {
        *adapter = AdapterSpec::Load { dir: dir.path().to_owned(), dropout: 0.0 };
    }
    let warm = setup.start();
    let find = |runtime: &Runtime, name| {
        runtime.policies().iter().find(|policy| policy.name() == name).unwrap().clone()
    };
    let (ours, theirs) = (find(&runtime, "a"), find(&warm, "warm"));
    assert_eq!(ours.fingerprint().await.unwrap(), theirs.fingerprint().await.unwrap());
    let [mut a, b] =
        [ours.generate(request(1)).await, theirs.generate(request(1)).await].map(Result::unwrap);
    a.version = 0;
    assert_eq!(a, b);
    // The file for other tools holds the trained weights.
    let adapter = Adapter::load(dir.path(), &tiny().config).unwrap();
    let merged = tiny().with_adapter(adapter).merge().unwrap();
    println!("merged: max |logit difference| {:e}", merged.1);
}

#[tokio::test]
async fn micro_batches_of_any_size_give_the_same_update_under_dropout() {
    let mut prints = Vec::new();
    for tokens in [usize::MAX, 64, 1] {
        let mut setup = adapters(&["a"], 0.3);
        setup.options.micro_batch_tokens = tokens.try_into().unwrap();
        let runtime = setup.start();
        let policy = &runtime.policies()[0];
        let mut both = Vec::new();
        for _ in 0..2 {
            let mut batch = batch(rows(&runtime.policies()[1], 12).await);
            batch.objective = Objective::Supervised;
            let stats = policy.update(batch).await.unwrap();
            both.push((stats.loss, stats.grad_norm));
        }
        prints.push(both);
    }
    for (ours, first) in prints[1..].iter().flatten().zip(prints[0].iter().cycle()) {
        assert!((ours.0 - first.0).abs() < 1e-6, "{prints:?}");
        assert!((ours.1 - first.1).abs() < 1e-5 * first.1, "{prints:?}");
    }
}

#[tokio::test]
async fn the_reference_of_an_adapter_is_where_it_started() {
    let mut setup = adapters(&["a"], 0.0);
    setup.workers[0].policies[0].reference = true;
    let runtime = setup.start();
    let policy = &runtime.policies()[0];
    let with_kl = async |policy: &Policy| {
        let mut batch = batch(rows(policy, 8).await);
        batch.rows.iter_mut().for_each(|row| row.loss.kl_coef = 0.1);
        batch.lr = 0.02;
        policy.update(batch).await.unwrap().kl
    };
    assert!(with_kl(policy).await.abs() < 1e-6);
    assert!(with_kl(policy).await > 1e-6);
}

#[tokio::test]
async fn gradient_checkpointing_changes_no_bit_of_an_update() {
    for (dropout, tokens) in [(None, usize::MAX), (None, 64), (Some(0.0), 64), (Some(0.3), 64)] {
        let mut prints = Vec::new();
        for checkpointing in [false, true] {
            let mut setup = match dropout {
                None => setup(&["a"]),
                Some(dropout) => adapters(&["a"], dropout),
            };
            setup.options.micro_batch_tokens = tokens.try_into().unwrap();
            for policy in setup.policies() {
                policy.gradient_checkpointing = checkpointing;
                policy.reference = policy.trained;
            }
            let runtime = setup.start();
            let policy = runtime.policies()[0].clone();
            for _ in 0..2 {
                let mut rows = rows(&policy, 8).await;
                rows.iter_mut().for_each(|row| row.loss.kl_coef = 0.1);
                policy.update(batch(rows)).await.unwrap();
            }
            prints.push(policy.fingerprint().await.unwrap());
        }
        assert_eq!(prints[0], prints[1], "dropout {dropout:?}, {tokens} tokens");
    }
}
