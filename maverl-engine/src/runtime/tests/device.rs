//! Worker groups on the emulated machine: the kernels of a GPU as C++ on the CPU.

use maverl_kernels::cuda::{Emulated, Kernels, MODEL};
use maverl_kernels::emulate;
use maverl_kernels::matmul::Precision;

use super::*;
use crate::model::ops::device::Device;
use crate::model::ops::{Backend, Cpu};
use crate::model::{Gradients, Model, ModelFiles, Pool, Tape};
use crate::runtime::packed::PackedRows;

/// Returns false without a C++ compiler.
fn compiles() -> bool {
    let found = emulate::compiler();
    if let Err(error) = &found {
        eprintln!("skipped: {error}");
    }
    found.is_ok()
}

/// Returns a policy with products in bf16 on a device.
fn on(device: DeviceChoice) -> Setup {
    let mut setup = setup(&["p"]);
    setup.options.device = device;
    setup.workers[0].precision = Precision::Bf16;
    setup
}

/// Returns completions of several requests at once, with their prompts.
async fn completions(policy: &Policy, n: u64) -> Vec<(Vec<u32>, Completion)> {
    let requests = (0..n).map(|i| {
        // Two requests of each prompt.
        let request = Request { seed: i, ..request(i / 2) };
        async { (request.prompt.clone(), policy.generate(request).await.unwrap()) }
    });
    futures::future::join_all(requests).await
}

fn rows(completions: &[(Vec<u32>, Completion)]) -> Vec<Row> {
    let advantage = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let rows = completions.iter().enumerate();
    rows.map(|(i, (prompt, done))| row(done, prompt.clone(), advantage(i))).collect()
}

/// Trains and saves, trains again, and trains again from what was saved. Returns the fingerprints.
async fn train_and_resume(setup: &Setup) -> [String; 3] {
    let dir = tempfile::tempdir().unwrap();
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let done = completions(&policy, 6).await;
    let trained = policy.logprobs(rows(&done)).await.unwrap();
    for ((_, done), trained) in done.iter().zip(&trained) {
        assert_eq!(&done.logprobs, trained, "rollout and training, to the bit");
    }
    let batch = Batch { lr: 1e-3, ..batch(rows(&done)) };
    let stats = policy.update(batch.clone()).await.unwrap();
    assert_eq!((stats.mismatch_max, stats.version), (0.0, 1));
    assert!(stats.grad_norm > 0.0);
    policy.save(dir.path()).await.unwrap();
    let once = policy.fingerprint().await.unwrap();
    policy.update(batch.clone()).await.unwrap();
    let twice = policy.fingerprint().await.unwrap();

    let resumed = setup.start();
    let policy = resumed.policies()[0].clone();
    policy.load(dir.path()).await.unwrap();
    assert_eq!(policy.fingerprint().await.unwrap(), once);
    policy.update(batch).await.unwrap();
    let resumed = policy.fingerprint().await.unwrap();
    [once, twice, resumed]
}

#[tokio::test]
async fn a_policy_on_a_device_generates_as_it_trains_and_resumes_to_the_bit() {
    if !compiles() {
        return;
    }
    let setup = on(DeviceChoice::Emulated);
    let [once, twice, resumed] = train_and_resume(&setup).await;
    assert_ne!(once, twice);
    assert_eq!(twice, resumed);
    assert_eq!(train_and_resume(&setup).await, [once, twice, resumed], "equal seeds");
}

#[tokio::test]
async fn an_adapter_with_a_reference_on_a_device_resumes_to_the_bit() {
    if !compiles() {
        return;
    }
    let mut setup = on(DeviceChoice::Emulated);
    for policy in setup.policies() {
        let lora = LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() };
        (policy.adapter, policy.reference) = (Some(AdapterSpec::New(lora)), true);
        policy.gradient_checkpointing = true;
    }
    let [once, twice, resumed] = train_and_resume(&setup).await;
    assert_ne!(once, twice);
    assert_eq!(twice, resumed);
}

#[tokio::test]
async fn a_critic_on_a_device_learns_its_targets() {
    if !compiles() {
        return;
    }
    let mut setup = on(DeviceChoice::Emulated);
    let mut critic = CriticSpec::new(Trunk::Own);
    critic.limits.clip = 10.0;
    setup.policies().for_each(|policy| policy.critic = Some(critic.clone()));
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let texts: Vec<ValueText> =
        (0..3).map(|i| ValueText { ids: request(i).prompt, places: 2 }).collect();
    let before = policy.values(texts.clone()).await.unwrap();
    assert!(before.iter().flatten().all(|value| *value == 0.0), "a new head is 0: {before:?}");
    for _ in 0..3 {
        let row = |text: &ValueText| ValueRow {
            text: text.clone(),
            aim: ValueTarget::Returns { old: vec![0.0; 2], returns: vec![1.0; 2] },
        };
        let rows = texts.iter().map(row).collect();
        let batch = ValueBatch { rows, minibatches: 1, epochs: 1, lr: 1e-3 };
        assert!(policy.update_critic(batch).await.unwrap().grad_norm > 0.0);
    }
    let after = policy.values(texts.clone()).await.unwrap();
    assert!(after.iter().flatten().all(|value| *value > 0.0), "{after:?}");
    let states = policy.states(texts).await.unwrap();
    assert!(states.iter().all(|state| state.len() == 128 && state.iter().all(|x| x.is_finite())));
}

#[tokio::test]
async fn log_probs_and_gradients_of_a_device_are_nearly_those_of_the_cpu() {
    if !compiles() {
        return;
    }
    let [cpu, device] =
        [DeviceChoice::Cpu, DeviceChoice::Emulated].map(|device| on(device).start());
    let of_cpu = completions(&cpu.policies()[0].clone(), 12).await;
    let of_device = completions(&device.policies()[0].clone(), 12).await;
    let tokens =
        of_cpu.iter().zip(&of_device).flat_map(|((_, a), (_, b))| a.ids.iter().zip(&b.ids));
    let equal = tokens.clone().filter(|(a, b)| a == b).count();
    println!("{equal} of {} sampled tokens are equal", tokens.count());
    let rows = rows(&of_cpu);
    let scored = device.policies()[0].logprobs(rows.clone()).await.unwrap();
    let pairs =
        of_cpu.iter().zip(&scored).flat_map(|((_, done), own)| done.logprobs.iter().zip(own));
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("log-probs of the CPU's tokens differ by at most {worst:e}");
    assert!(worst < 4e-2, "{worst}");

    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let model = Model::load(&files).unwrap();
    let cpu = gradients(&Cpu { precision: Precision::Bf16 }, &model, &rows);
    let device = Device::new(Kernels::new(Emulated::shared(&MODEL).unwrap()));
    let device = gradients(&device, &model, &rows);
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let cosine = dot(&cpu, &device) / (dot(&cpu, &cpu) * dot(&device, &device)).sqrt();
    println!("cosine of the gradients: {cosine}");
    assert!(cosine > 0.999, "{cosine}");
}

/// Computes the gradients of the weighted log-probs of completions.
fn gradients<O: Backend>(ops: &O, model: &Model, rows: &[Row]) -> Vec<f32> {
    let model = ops.load(model.clone(), true).unwrap();
    let rows: Vec<&Row> = rows.iter().collect();
    let packed = PackedRows::new(&rows, true);
    let (mut pool, decoder) = (Pool::default(), &model.decoder);
    let mut gradients = Gradients::on(ops, model.trainable()).unwrap();
    let tape = Tape::record(decoder, packed.rows(), false, &mut pool).unwrap();
    let hidden = packed.predicting(ops, tape.hidden()).unwrap();
    let PackedRows { targets, inv_temperature, completions, .. } = &packed;
    let loss =
        |some: std::ops::Range<usize>, _: [&[f32]; 2], [dlogp, dentropy]: [&mut [f32]; 2]| {
            let start = completions[some.start];
            for row in some {
                dlogp[completions[row] - start..completions[row + 1] - start]
                    .fill(rows[row].advantages[0]);
            }
            dentropy.fill(0.0);
            Ok(())
        };
    let dhidden =
        decoder.loss(&hidden, targets, inv_temperature, completions, loss, &mut gradients).unwrap();
    let dhidden = packed.spread(ops, &dhidden).unwrap();
    tape.backward(&dhidden, &mut gradients, &mut pool).unwrap();
    ops.read_sums(gradients.all().unwrap()).unwrap().into_owned()
}
