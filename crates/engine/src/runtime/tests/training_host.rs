use super::*;
use crate::files::ModelFiles;
use crate::net::Model;
use crate::text::Tokenizer;

/// Starts a host of `builtin:tiny` with three places.
fn host() -> TrainingHost {
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let (model, tokenizer) =
        (Model::load(&files).unwrap(), Arc::new(Tokenizer::load(&files).unwrap()));
    let options = RuntimeOptions::default();
    TrainingHost::start("tiny", &model, &tokenizer, (&options, Dtype::F32), 3).unwrap()
}

fn lora() -> LoraSpec {
    LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() }
}

fn adam(lr: f64) -> OptimOptions {
    OptimOptions { lr, grad_clip: f64::INFINITY, weight_decay: 0.0, ..OptimOptions::default() }
}

/// Returns rows with targets of their own: of each text, the next token after each.
fn texts(seed: u32) -> Vec<Row> {
    let text =
        |row: u32| (0..24).map(|i| (i * 31 + row * 7 + seed * 13) % 400).collect::<Vec<u32>>();
    let rows = (0..3).map(|row| {
        let ids = text(row);
        Row { inputs: ids[..23].to_vec(), completion: ids[1..].to_vec(), ..Row::default() }
    });
    rows.collect()
}

fn supervised(rows: Vec<Row>) -> Batch {
    Batch { rows, objective: Objective::Supervised, ..Batch::default() }
}

/// Takes steps on texts, and returns the loss of each.
async fn train(host: &TrainingHost, place: usize, seed: u32, steps: usize) -> Vec<f64> {
    let mut losses = Vec::new();
    for _ in 0..steps {
        let pass = host.forward_backward(place, supervised(texts(seed))).await.unwrap();
        losses.push(pass.loss.loss);
        assert!(host.optim_step(place, adam(0.001)).await.unwrap().unwrap() > 0.0);
    }
    losses
}

#[tokio::test]
async fn samples_have_the_log_probs_of_passes_to_the_bit() {
    let host = host();
    host.create(1, &lora(), 5).await.unwrap();
    let losses = train(&host, 1, 1, 3).await;
    println!("losses {losses:?}");
    assert!(losses[2] < losses[0]);
    for i in 0..6 {
        let done = host.generate(1, request(i)).await.unwrap();
        let ids = [request(i).prompt, done.ids.clone()].concat();
        let (inputs, completion) = (ids[..ids.len() - 1].to_vec(), ids[1..].to_vec());
        let batch = supervised(vec![Row { inputs, completion, ..Row::default() }]);
        let ahead = host.forward(1, batch.clone()).await.unwrap();
        let own = &ahead.logprobs[0][request(i).prompt.len() - 1..];
        assert_eq!(own, done.logprobs);
        let back = host.forward_backward(1, batch).await.unwrap();
        // Only a pass with gradients computes entropies.
        assert_eq!((ahead.logprobs, ahead.loss.loss), (back.logprobs, back.loss.loss));
    }
}

/// The weight of a token is 1, and the row is its own minibatch, so the sum equals the aggregation.
#[tokio::test]
async fn a_pass_and_a_step_equal_an_update_to_the_bit() {
    let host = host();
    host.create(1, &lora(), 5).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    host.save(1, dir.path()).await.unwrap();
    let mut worker = WorkerSpec::new("p", ModelSource::Builtin("tiny".to_owned()));
    let dropout = 0.0;
    worker.policies[0].adapter = Some(AdapterSpec::Load { dir: dir.path().to_owned(), dropout });
    worker.policies[0].optim = adam(0.01);
    let runtime = Runtime::start(&[worker], &RuntimeOptions::default()).unwrap();
    let policy = &runtime.policies()[0];
    let ids: Vec<u32> = (0..24).map(|i| i * 31 % 400).collect();
    let row = Row { prompt: ids[..1].to_vec(), completion: ids[1..].to_vec(), ..Row::default() };
    let batch = Batch { aggregation: Aggregation::SequenceSum, lr: 0.01, ..supervised(vec![row]) };
    let own = Row { inputs: ids[..23].to_vec(), completion: ids[1..].to_vec(), ..Row::default() };
    for _ in 0..3 {
        let stats = policy.update(batch.clone()).await.unwrap();
        let pass = host.forward_backward(1, supervised(vec![own.clone()])).await.unwrap();
        let norm = host.optim_step(1, adam(0.01)).await.unwrap();
        assert_eq!((pass.loss.loss, norm), (stats.loss, Some(stats.grad_norm)));
        assert_eq!(host.fingerprint(1).await.unwrap(), policy.fingerprint().await.unwrap());
    }
}

#[tokio::test]
async fn models_on_one_base_train_together_as_each_alone() {
    let host = host();
    let mut alone = Vec::new();
    for (seed, place) in [(1, 1), (2, 2)] {
        host.create(place, &lora(), u64::from(seed)).await.unwrap();
        alone.push(train(&host, place, seed, 3).await);
        host.unload(place).await.unwrap();
    }
    for (seed, place) in [(1, 2), (2, 1)] {
        host.create(place, &lora(), seed).await.unwrap();
    }
    let (one, other) = futures::join!(train(&host, 2, 1, 3), train(&host, 1, 2, 3));
    assert_eq!([one, other], alone[..]);
}

#[tokio::test]
async fn gradients_of_passes_are_added_until_a_step() {
    let host = host();
    for place in [1, 2] {
        host.create(place, &lora(), 5).await.unwrap();
    }
    assert_eq!(host.optim_step(1, adam(0.01)).await.unwrap(), None, "there are none");
    for row in texts(1) {
        host.forward_backward(1, supervised(vec![row])).await.unwrap();
    }
    let norms = (host.optim_step(1, adam(0.01)).await.unwrap().unwrap(), {
        host.forward_backward(2, supervised(texts(1))).await.unwrap();
        host.optim_step(2, adam(0.01)).await.unwrap().unwrap()
    });
    assert!((norms.0 - norms.1).abs() < 1e-4 * norms.1, "{norms:?}");
    assert_eq!(host.optim_step(1, adam(0.01)).await.unwrap(), None);
    // A loss that is not finite leaves nothing behind.
    host.forward_backward(1, supervised(texts(1))).await.unwrap();
    let mut rows = texts(1);
    rows[0].weights = vec![f32::INFINITY; 23];
    let error = host.forward_backward(1, supervised(rows)).await.unwrap_err();
    assert!(matches!(error, RuntimeError::NotFinite { .. }), "{error}");
    assert_eq!(host.optim_step(1, adam(0.01)).await.unwrap(), None);
}

#[tokio::test]
async fn a_model_goes_on_from_its_files_with_and_without_its_moments() {
    let host = host();
    let dir = tempfile::tempdir().unwrap();
    host.create(1, &lora(), 5).await.unwrap();
    train(&host, 1, 1, 2).await;
    host.save(1, dir.path()).await.unwrap();
    let rest = train(&host, 1, 1, 3).await;
    host.create_from(2, dir.path(), true).await.unwrap();
    assert_eq!(train(&host, 2, 1, 3).await, rest);
    host.create_from(2, dir.path(), false).await.unwrap();
    let fresh = train(&host, 2, 1, 3).await;
    assert!(fresh[0] == rest[0] && fresh[2] != rest[2], "{fresh:?} {rest:?}");
    host.restore(1, dir.path(), true).await.unwrap();
    assert_eq!(train(&host, 1, 1, 3).await, rest);
    host.restore(1, dir.path(), false).await.unwrap();
    assert_eq!(train(&host, 1, 1, 3).await, fresh);
    // To generate, the adapter alone is enough.
    host.restore(1, dir.path(), true).await.unwrap();
    host.load_adapter(2, dir.path()).await.unwrap();
    let [one, other] = [host.generate(1, request(3)).await, host.generate(2, request(3)).await];
    assert_eq!(one.unwrap().logprobs, other.unwrap().logprobs);
    let error = host.optim_step(2, adam(0.01)).await.unwrap_err();
    assert!(error.to_string().ends_with("the model in place 2 is not trained"), "{error}");
}
