//! Worker groups on bases in the blocks of GGUF files.

use super::adapters::{adapters, train};
use super::candle::{MISMATCH, completions, given, near, numbers, rows};
use super::ranks::testing::on_ranks;
use super::*;
use crate::files::ModelFiles;
use crate::files::gguf::NumberKind;
use crate::net::{GgufOptions, Model};
use maverl_dist::Ranks;

/// Writes the built-in model as a file, and returns a setup with its blocks on candle, and with its numbers on the CPU.
fn setups(dir: &std::path::Path, mut of: impl FnMut() -> Setup) -> [Setup; 2] {
    let tiny = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let options = GgufOptions { kind: NumberKind::Q8_0, pre: None, name: "tiny".to_owned() };
    let path = dir.join("tiny.gguf");
    Model::load(&tiny).unwrap().save_gguf(&path, &tiny, &options).unwrap();
    [(DeviceChoice::CandleCpu, Dtype::File), (DeviceChoice::Cpu, Dtype::F32)].map(
        |(device, dtype)| {
            let mut setup = of();
            setup.options.device = device;
            for worker in &mut setup.workers {
                (worker.source, worker.dtype) = (ModelSource::at(&path), dtype);
            }
            setup
        },
    )
}

fn lora() -> Option<AdapterSpec> {
    Some(AdapterSpec::New(LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() }))
}

/// Returns one adapter, with a change.
fn one_adapter(change: fn(&mut PolicySpec)) -> Setup {
    let mut setup = setup(&["p"]);
    for policy in setup.policies() {
        policy.adapter = lora();
        change(policy);
    }
    setup
}

#[tokio::test]
async fn a_team_of_adapters_on_blocks_is_trained_and_resumed_and_the_base_stays_as_it_is() {
    let (home, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [setup, _] = setups(home.path(), || adapters(&["a", "b"], 0.0));
    let runtime = setup.start();
    let [a, b, base] = runtime.policies() else { panic!("three policies") };
    let before = base.fingerprint().await.unwrap();
    let mut batches = Vec::new();
    for policy in [a, b] {
        for step in 0..2 {
            let rows = rows(&completions(policy, 8).await);
            let batch = Batch { lr: 1e-3, ..batch(rows) };
            let stats = policy.update(batch.clone()).await.unwrap();
            println!(
                "{}, step {step}: mismatch {:.1e}, norm {:.3}",
                policy.name(),
                stats.mismatch_max,
                stats.grad_norm
            );
            assert!(stats.mismatch_max <= MISMATCH && stats.grad_norm > 0.0, "{stats:?}");
            batches.push(batch);
        }
    }
    assert_eq!(base.fingerprint().await.unwrap(), before);
    let mut next = Vec::new();
    for policy in [a, b, base] {
        let dir = saved.path().join(policy.name());
        std::fs::create_dir(&dir).unwrap();
        policy.save(&dir).await.unwrap();
        if policy.name() != "base" {
            policy.update(batches[0].clone()).await.unwrap();
        }
        next.push(policy.fingerprint().await.unwrap());
    }
    let resumed = setup.start();
    for (policy, expected) in resumed.policies().iter().zip(&next) {
        policy.load(&saved.path().join(policy.name())).await.unwrap();
        if policy.name() != "base" {
            policy.update(batches[0].clone()).await.unwrap();
        }
        assert_eq!(policy.fingerprint().await.unwrap(), *expected, "{}", policy.name());
    }
}

#[tokio::test]
async fn greedy_tokens_on_blocks_are_those_of_the_numbers_in_f32() {
    let home = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for setup in setups(home.path(), || adapters(&["a"], 0.0)) {
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        for _ in 0..2 {
            policy.update(given()).await.unwrap();
        }
        let mut greedy = Vec::new();
        for policy in runtime.policies() {
            for i in 0..6 {
                let sampling = Sampling { temperature: 0.0, ..(*sampling(64)).clone() };
                let prompt = request(i).prompt;
                let request = Request::new(prompt, Arc::new(sampling), i);
                greedy.push(policy.generate(request).await.unwrap().ids);
            }
        }
        found.push(greedy);
    }
    assert!(found[0].iter().map(Vec::len).sum::<usize>() > 50);
    assert_eq!(found[0], found[1]);
}

#[tokio::test]
async fn updates_of_adapters_on_blocks_have_the_losses_and_norms_of_the_numbers_in_f32() {
    type Change = fn(&mut PolicySpec);
    let changes: [(&str, Change); 4] = [
        ("a reference", |policy| policy.reference = true),
        ("checkpointing", |policy| policy.gradient_checkpointing = true),
        ("a critic on an adapter", |policy| policy.critic = Some(CriticSpec::new(Trunk::Lora))),
        ("Muon", |policy| policy.optim.kind = OptimizerKind::Muon),
    ];
    for (what, change) in changes {
        let home = tempfile::tempdir().unwrap();
        let [blocks, native] = setups(home.path(), || one_adapter(change));
        let [found, native] = [numbers(&blocks).await, numbers(&native).await];
        found.iter().zip(&native).for_each(|(found, native)| near(what, *found, *native));
    }
}

#[test]
fn ranks_train_adapters_on_blocks_together() {
    let home = tempfile::tempdir().unwrap();
    let [setup, _] = setups(home.path(), || one_adapter(|_| ()));
    let run = |ranks: Option<&Ranks>| {
        let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
        let policy = runtime.policies()[0].clone();
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let stats = tokio.block_on(policy.update(given())).unwrap();
        if let Some(ranks) = ranks {
            ranks.channel(0).barrier().unwrap();
            ranks.leave();
        }
        (tokio.block_on(policy.fingerprint()).unwrap(), stats.grad_norm)
    };
    let both = on_ranks(2, |ranks| run(Some(&ranks)));
    assert_eq!(both[0], both[1]);
    near("two ranks", both[0].1, run(None).1);
}

#[tokio::test]
async fn an_earlier_snapshot_of_an_adapter_on_blocks_generates_beside_its_training() {
    let home = tempfile::tempdir().unwrap();
    let [mut setup, _] = setups(home.path(), || one_adapter(|_| ()));
    setup.workers[0].snapshots = 1;
    let runtime = setup.start();
    let policy = &runtime.policies()[0];
    let before = policy.generate(request(3)).await.unwrap();
    let snapshot = policy.snapshot(0).await.unwrap();
    train(policy).await;
    assert_eq!(snapshot.generate(request(3)).await.unwrap(), before);
    assert_ne!(policy.generate(request(3)).await.unwrap().logprobs, before.logprobs);
}

#[test]
fn what_a_base_in_blocks_is_not_for_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let told =
        |setup: &Setup| Runtime::start(&setup.workers, &setup.options).err().unwrap().to_string();
    let [mut setup, _] = setups(home.path(), || one_adapter(|_| ()));
    setup.options.device = DeviceChoice::Cpu;
    let cpu = told(&setup);
    assert!(cpu.contains("`runtime.device` is \"cpu\""), "{cpu}");
    assert!(
        cpu.contains("blocks of a file are multiplied by candle: write `device = \"candle:cpu\"`"),
        "{cpu}"
    );
    let [whole, _] = setups(home.path(), || one_adapter(|policy| policy.adapter = None));
    let [critic, _] = setups(home.path(), || {
        one_adapter(|policy| policy.critic = Some(CriticSpec::new(Trunk::Own)))
    });
    for setup in [whole, critic] {
        let found = told(&setup);
        assert!(found.contains("blocks of a GGUF file are frozen"), "{found}");
        assert!(found.contains("train an adapter"), "{found}");
    }
    let [mut directory, _] = setups(home.path(), || one_adapter(|_| ()));
    directory.workers[0].source = ModelSource::Builtin("tiny".to_owned());
    let found = told(&directory);
    assert!(found.contains("builtin:tiny is no GGUF file"), "{found}");
}
