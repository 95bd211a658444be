//! Worker groups on the emulated machine: the kernels of a GPU as C++ on the CPU.

use maverl_kernels::emulate;

use super::*;
use crate::net::HeadKind;

/// Returns false without a C++ compiler.
fn compiles() -> bool {
    let found = emulate::check_compiler();
    if let Err(error) = &found {
        eprintln!("skipped: {error}");
    }
    found.is_ok()
}

/// Returns a policy with products in bf16 on a device.
fn on(device: DeviceChoice) -> Setup {
    let mut setup = setup(&["p"]);
    setup.options.device = device;
    setup.workers[0].dtype = Dtype::Bf16;
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
async fn a_snapshot_on_a_device_keeps_the_bits_of_its_time() {
    if compiles() {
        super::snapshots::keep_their_time(on(DeviceChoice::Emulated), "p").await;
    }
}

#[tokio::test]
async fn completions_log_probs_and_weights_do_not_depend_on_graphs() {
    if !compiles() {
        return;
    }
    let mut setup = on(DeviceChoice::Emulated);
    let rows = {
        let runtime = setup.start();
        rows(&completions(&runtime.policies()[0], 4).await)
    };
    let with = computed(&setup, &rows).await;
    setup.options.graphs = false;
    assert_eq!(with, computed(&setup, &rows).await);
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
async fn a_head_of_log_probs_gives_those_of_the_trunk_and_raises_them_for_right_replies() {
    let devices = [DeviceChoice::Cpu, DeviceChoice::Emulated];
    for device in devices.into_iter().filter(|device| *device == DeviceChoice::Cpu || compiles()) {
        let mut setup = on(device);
        let mut critic = CriticSpec::new(Trunk::Own);
        (critic.head, critic.head_rate) = (HeadKind::Likelihood, 0.0);
        setup.policies().for_each(|policy| policy.critic = Some(critic.clone()));
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let rows: Vec<Row> = rows(&completions(&policy, 4).await)
            .into_iter()
            .map(|row| Row { temperature: 1.0, ..row })
            .collect();
        let text = |row: &Row| {
            let ids = [&row.prompt[..], &row.completion].concat();
            ValueText { ids, places: row.completion.len() }
        };
        let texts: Vec<ValueText> = rows.iter().map(text).collect();
        let before = policy.values(texts.clone()).await.unwrap();
        let expected = policy.logprobs(rows).await.unwrap();
        for (value, logprob) in before.iter().flatten().zip(expected.iter().flatten()) {
            assert!((value - logprob).abs() < 1e-4, "{value} {logprob}");
        }
        assert_eq!(before.concat().len(), expected.concat().len());
        for _ in 0..3 {
            let row = |text: &ValueText| {
                let aim = ValueTarget::Slopes(vec![-0.25 / text.places as f32; text.places]);
                ValueRow { text: text.clone(), aim }
            };
            let rows = texts.iter().map(row).collect();
            let batch = ValueBatch { rows, minibatches: 1, epochs: 1, lr: 1e-3 };
            assert!(policy.update_critic(batch).await.unwrap().grad_norm > 0.0);
        }
        let after = policy.values(texts).await.unwrap();
        let sum = |values: &[Vec<f32>]| values.iter().flatten().sum::<f32>();
        assert!(sum(&after) > sum(&before), "{before:?} {after:?}");
    }
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
    let source = ModelSource::Builtin("tiny".to_owned());
    let found = compare_step(DeviceChoice::Emulated, &source, &rows).unwrap();
    println!("{found:?}");
    assert!(found.logprob < 4e-2 && found.cosine > 0.999, "{found:?}");
}

/// Results of a policy: its completions, the log-probs of given rows, and its weights after an update on them.
type Computed = (Vec<Completion>, Vec<Vec<f32>>, String);

/// Returns what each policy of a runtime computes of the same rows, by the names of the policies.
async fn computed(setup: &Setup, rows: &[Row]) -> Vec<Computed> {
    let runtime = setup.start();
    let of = |policy: Policy| async move {
        let done = completions(&policy, 4).await.into_iter().map(|(_, done)| done).collect();
        let logprobs = policy.logprobs(rows.to_vec()).await.unwrap();
        policy.update(Batch { lr: 1e-3, ..batch(rows.to_vec()) }).await.unwrap();
        (done, logprobs, policy.fingerprint().await.unwrap())
    };
    // Worker groups compute at the same time.
    futures::future::join_all(runtime.policies().to_vec().into_iter().map(of)).await
}

#[tokio::test]
async fn each_worker_group_computes_what_it_computes_where_all_are_on_its_device() {
    if !compiles() {
        return;
    }
    let [cpu, emulated] = [DeviceChoice::Cpu, DeviceChoice::Emulated];
    let with = |shared, own: [Option<DeviceChoice>; 3]| {
        let mut setup = setup(&["a", "b", "c"]);
        setup.options.device = shared;
        for (worker, own) in setup.workers.iter_mut().zip(own) {
            (worker.device, worker.dtype) = (own, Dtype::Bf16);
        }
        let lora = LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() };
        setup.workers[2].policies[0].adapter = Some(AdapterSpec::New(lora));
        setup
    };
    let rows = rows(&completions(&on(cpu).start().policies()[0], 6).await);
    let all = [cpu, emulated].map(|device| with(device, [None; 3]));
    let [on_cpu, on_device] = [computed(&all[0], &rows).await, computed(&all[1], &rows).await];
    assert!(on_cpu.iter().zip(&on_device).all(|(cpu, device)| cpu != device));

    let mixed = with(cpu, [None, Some(emulated), Some(emulated)]);
    let [a, b, c] = &computed(&mixed, &rows).await[..] else { panic!() };
    assert!([a, b, c] == [&on_cpu[0], &on_device[1], &on_device[2]]);
    let mixed = with(emulated, [Some(emulated), Some(cpu), None]);
    let [a, b, c] = &computed(&mixed, &rows).await[..] else { panic!() };
    assert!([a, b, c] == [&on_device[0], &on_cpu[1], &on_device[2]]);

    let runtime = mixed.start();
    let found: Vec<(&str, &str, DeviceChoice)> = runtime
        .worker_devices()
        .map(|of| (of.worker.as_str(), of.name.as_str(), of.device))
        .collect();
    let expected = [("a", "emulated", emulated), ("b", "cpu", cpu), ("c", "emulated", emulated)];
    assert_eq!(found, expected);
    assert_eq!((runtime.device(), runtime.resolved_device()), ("emulated", emulated));
    let counted: Vec<bool> =
        runtime.policies().iter().map(|policy| policy.device_memory().is_some()).collect();
    assert_eq!(counted, [true, false, true]);
}

/// Returns the memory that a runtime of one policy takes for a completion and an update, as it is predicted and as it is
/// counted.
async fn predicted_and_counted(setup: &Setup) -> Vec<[u64; 2]> {
    let runtime = setup.start();
    let mut found = Vec::new();
    for (worker, policy) in setup.workers.iter().zip(runtime.policies()) {
        let spec = &worker.policies[0];
        let mut request = request(3);
        request.sampling = Arc::new(Sampling { max_tokens: 5, ..Sampling::default() });
        let prompt = request.prompt.clone();
        let done = policy.generate(request).await.unwrap();
        let mut row = row(&done, prompt.clone(), 1.0);
        row.loss.kl_coef = if spec.reference { 0.1 } else { 0.0 };
        let places = done.ids.len();
        let aim = ValueTarget::Returns { old: vec![0.0; places], returns: vec![1.0; places] };
        let text = ValueText { ids: [&prompt[..], &done.ids].concat(), places };
        let values =
            ValueBatch { rows: vec![ValueRow { text, aim }], minibatches: 1, epochs: 1, lr: 1e-3 };
        let (batch, reply) = (batch(vec![row]), done.ids.len());
        let values = spec.critic.as_ref().map(|_| values);
        match (&spec.critic, values.clone()) {
            (Some(CriticSpec { trunk: Trunk::Shared, .. }), Some(values)) => {
                policy.update_with_values(batch.clone(), values).await.unwrap();
            }
            (_, values) => {
                policy.update(batch.clone()).await.unwrap();
                if let Some(values) = values {
                    policy.update_critic(values).await.unwrap();
                }
            }
        }
        let files = crate::files::ModelFiles::new(&worker.source);
        let config = crate::files::HfConfig::load(&files).unwrap();
        let tokenizer = Arc::new(crate::text::Tokenizer::load(&files).unwrap());
        let workload = Workload { prompts: vec![prompt], reply, batch, values };
        let plan = predict(worker, &config, &tokenizer, &setup.options, &workload).unwrap();
        println!("{plan:?}");
        assert!(plan.peak >= plan.resident() + plan.gradients.max(plan.rollout));
        found.push([plan.peak, policy.device_memory().unwrap()[1]]);
    }
    found
}

#[tokio::test]
async fn the_predicted_memory_is_the_high_water_mark_of_the_device_in_six_configurations() {
    if !compiles() {
        return;
    }
    let lora = || LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() };
    let changes: [fn(&mut PolicySpec, LoraSpec); 5] = [
        |_, _| (),
        |policy, _| (policy.reference, policy.gradient_checkpointing) = (true, true),
        |policy, lora| policy.adapter = Some(AdapterSpec::New(lora)),
        |policy, lora| {
            policy.critic = Some(CriticSpec { lora: lora.clone(), ..CriticSpec::new(Trunk::Lora) });
            policy.adapter = Some(AdapterSpec::New(lora));
        },
        |policy, _| policy.critic = Some(CriticSpec::new(Trunk::Own)),
    ];
    let mut marks = Vec::new();
    for change in changes {
        let mut setup = on(DeviceChoice::Emulated);
        setup.policies().for_each(|policy| change(policy, lora()));
        marks.extend(predicted_and_counted(&setup).await);
    }
    // Two worker groups on one device are counted apart.
    let mut two = on(DeviceChoice::Emulated);
    let mut second = two.workers[0].clone();
    second.name = "second".to_owned();
    second.policies[0].name = "second".to_owned();
    second.policies[0].adapter = Some(AdapterSpec::New(lora()));
    two.workers.push(second);
    marks.extend(predicted_and_counted(&two).await);
    println!("{marks:?}");
    assert!(marks.iter().all(|[predicted, counted]| predicted == counted), "{marks:?}");
    assert_eq!(marks.len(), 7);
    assert_eq!(marks[5..], [marks[0], marks[2]], "as each group alone");
}

#[tokio::test]
async fn an_adapter_with_a_critic_in_one_of_two_groups_on_a_device_learns_and_resumes_to_the_bit() {
    if !compiles() {
        return;
    }
    let mut setup = on(DeviceChoice::Emulated);
    let lora = LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() };
    setup.policies().for_each(|policy| {
        policy.adapter = Some(AdapterSpec::New(lora.clone()));
        policy.critic = Some(CriticSpec { lora: lora.clone(), ..CriticSpec::new(Trunk::Lora) });
    });
    let mut second = on(DeviceChoice::Emulated).workers.remove(0);
    second.name = "q".to_owned();
    second.policies[0].name = "q".to_owned();
    setup.workers.push(second);
    // The policies are sorted by name, as the worker groups are here.
    let [once, twice, resumed] = train_and_resume(&setup).await;
    assert_ne!(once, twice);
    assert_eq!(twice, resumed);
    let runtime = setup.start();
    let [p, q] = runtime.policies() else { panic!("two policies") };
    let (first, second) = (completions(p, 2), completions(q, 2));
    let (first, second) = futures::future::join(first, second).await;
    let [of_p, of_q] = [(p, first), (q, second)].map(|(policy, done)| {
        let batch = Batch { lr: 1e-3, ..batch(rows(&done)) };
        async move { policy.update(batch).await.unwrap() }
    });
    let (of_p, of_q) = futures::future::join(of_p, of_q).await;
    assert_eq!((of_p.mismatch_max, of_q.mismatch_max), (0.0, 0.0));
    assert_ne!(p.fingerprint().await.unwrap(), q.fingerprint().await.unwrap());
}
