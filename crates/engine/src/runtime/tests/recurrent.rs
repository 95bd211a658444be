//! Updates of models with recurrent layers.

use super::*;
use crate::net::tests::fixture;

/// Plays conversations of three turns with one first prompt. A turn is a row.
async fn conversations(policy: &Policy) -> Vec<Row> {
    let mut rows = Vec::new();
    for sample in 0..3 {
        let mut prompt: Vec<u32> = (0..40).map(|t| 7 + t * 13 % 240).collect();
        for turn in 0..3 {
            let request = Request::new(prompt.clone(), sampling(12), sample * 100 + turn);
            let done = policy.generate(request).await.unwrap();
            rows.push(row(&done, prompt.clone(), sample as f32 - 0.4 * turn as f32));
            prompt.extend(done.ids.iter().copied().chain([7 + turn as u32, 100, 101]));
        }
    }
    rows
}

fn setup_of(name: &str, adapter: bool) -> Setup {
    let mut setup = setup(&["p"]);
    for worker in &mut setup.workers {
        worker.source = ModelSource::Directory(fixture("families").join(name));
    }
    if adapter {
        let lora = LoraSpec { rank: 4, alpha: 8.0, dropout: 0.0, ..LoraSpec::default() };
        setup.policies().for_each(|policy| {
            policy.adapter = Some(AdapterSpec::New(lora.clone()));
            policy.gradient_checkpointing = true;
        });
    }
    setup
}

#[tokio::test]
async fn updates_see_the_log_probs_of_the_sampler_and_compute_a_shared_beginning_once() {
    for (name, adapter) in [
        ("qwen3_5_text", false),
        ("qwen3_5_text", true),
        ("qwen3_5_moe", false),
        ("qwen3_5_moe", true),
        ("lfm2", false),
        ("lfm2", true),
    ] {
        let runtime = setup_of(name, adapter).start();
        let policy = runtime.policies()[0].clone();
        for update in 0..2 {
            let rows = conversations(&policy).await;
            let sampled: Vec<Vec<f32>> = rows.iter().map(|row| row.logprobs.clone()).collect();
            assert_eq!(policy.logprobs(rows.clone()).await.unwrap(), sampled, "{name}, {update}");
            let stats = policy.update(Batch { lr: 1e-3, ..batch(rows) }).await.unwrap();
            assert_eq!(stats.mismatch_max, 0.0, "{name}, {update}");
            assert!(stats.shared.share > 0.4 && stats.grad_norm > 0.0, "{name}: {stats:?}");
        }
    }
}

#[tokio::test]
async fn a_policy_goes_on_from_its_checkpoint_with_the_same_bits() {
    for (name, adapter) in [("qwen3_5_text", false), ("qwen3_5_moe", true), ("lfm2", true)] {
        let dir = tempfile::tempdir().unwrap();
        let runtime = setup_of(name, adapter).start();
        let policy = runtime.policies()[0].clone();
        let rows = conversations(&policy).await;
        policy.update(Batch { lr: 1e-3, ..batch(rows.clone()) }).await.unwrap();
        policy.save(dir.path()).await.unwrap();
        let on = policy.update(Batch { lr: 1e-3, ..batch(rows.clone()) }).await.unwrap();
        let resumed = setup_of(name, adapter).start();
        let policy = resumed.policies()[0].clone();
        policy.load(dir.path()).await.unwrap();
        let again = policy.update(Batch { lr: 1e-3, ..batch(rows) }).await.unwrap();
        assert_eq!((on.loss, on.grad_norm), (again.loss, again.grad_norm), "{name}");
    }
}
