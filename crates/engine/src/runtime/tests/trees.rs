//! Rows that begin alike: turns of conversations, groups, texts of critics.

use super::*;
use crate::net::HeadKind;

/// Plays conversations of some turns with one first prompt. A turn is a row.
async fn conversations(policy: &Policy, samples: u64, turns: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for sample in 0..samples {
        let mut prompt: Vec<u32> = (0..40).map(|t| t * 13 % 500).collect();
        for turn in 0..turns {
            let request = Request::new(prompt.clone(), sampling(12), sample * 100 + turn);
            let done = policy.generate(request).await.unwrap();
            rows.push(row(&done, prompt.clone(), sample as f32 - 0.4 * turn as f32));
            prompt.extend(done.ids.iter().copied().chain([7 + turn as u32, 300, 301]));
        }
    }
    rows
}

/// Returns one row after the other, first those at even places.
fn shuffled<T>(rows: Vec<T>) -> Vec<T> {
    let (even, odd): (Vec<_>, Vec<_>) = rows.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
    even.into_iter().chain(odd).map(|(_, row)| row).collect()
}

#[tokio::test]
async fn turns_of_conversations_have_the_log_probs_of_the_sampler_after_every_update() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    for _ in 0..2 {
        let rows = shuffled(conversations(&policy, 3, 4).await);
        let sampled: Vec<Vec<f32>> = rows.iter().map(|row| row.logprobs.clone()).collect();
        assert_eq!(policy.logprobs(rows.clone()).await.unwrap(), sampled);
        let stats = policy.update(Batch { lr: 1e-3, ..batch(rows.clone()) }).await.unwrap();
        assert_eq!(stats.mismatch_max, 0.0);
        let whole: usize = rows.iter().map(|row| row.prompt.len() + row.completion.len() - 1).sum();
        let SharedTokens { whole: counted, computed, share, recomputed } = stats.shared;
        assert_eq!((counted, recomputed), (whole as u64, 1.0));
        assert_eq!(share, 1.0 - computed as f64 / whole as f64);
        assert!(share > 0.6, "{share}");
    }
}

#[tokio::test]
async fn a_conversation_costs_its_tokens_once_whatever_its_number_of_turns() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let rows = conversations(&policy, 1, 20).await;
    let longest = rows.iter().map(|row| row.prompt.len() + row.completion.len() - 1).max().unwrap();
    let stats = policy.update(batch(rows)).await.unwrap();
    // Each reply's last token is in the next prompt.
    assert_eq!(stats.shared.computed, longest as u64);
}

#[tokio::test]
async fn cuts_of_a_tree_change_the_gradient_by_rounding_and_are_counted() {
    let mut found = Vec::new();
    for (tokens, adapter) in [(9999, false), (150, false), (64, false), (9999, true), (64, true)] {
        let mut setup = setup(&["p"]);
        setup.options.micro_batch_tokens = tokens.try_into().unwrap();
        if adapter {
            let lora = LoraSpec { rank: 4, alpha: 8.0, dropout: 0.0, ..LoraSpec::default() };
            setup.policies().for_each(|policy| {
                policy.adapter = Some(AdapterSpec::New(lora.clone()));
                policy.gradient_checkpointing = true;
            });
        }
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let rows = shuffled(conversations(&policy, 3, 4).await);
        let stats = policy.update(batch(rows)).await.unwrap();
        found.push((adapter, stats.loss, stats.grad_norm, stats.shared.recomputed));
    }
    for (adapter, loss, norm, recomputed) in &found {
        let (_, whole_loss, whole_norm, once) = found.iter().find(|of| of.0 == *adapter).unwrap();
        assert!((loss - whole_loss).abs() < 1e-6, "{found:?}");
        assert!((norm - whole_norm).abs() < 2e-6 * norm, "{found:?}");
        assert!(*once == 1.0 && *recomputed >= 1.0, "{found:?}");
    }
    assert!(found[2].3 > found[1].3 && found[1].3 > 1.0, "{found:?}");
}

#[tokio::test]
async fn values_and_states_of_texts_that_begin_alike_are_those_of_each_alone() {
    for (trunk, head) in [(Trunk::Own, HeadKind::Value), (Trunk::Lora, HeadKind::Likelihood)] {
        let mut setup = setup(&["p"]);
        setup.options.micro_batch_tokens = 90.try_into().unwrap();
        let critic = CriticSpec { head, ..CriticSpec::new(trunk) };
        setup.policies().for_each(|policy| policy.critic = Some(critic.clone()));
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let rows = shuffled(conversations(&policy, 2, 4).await);
        let text = |row: &Row| ValueText {
            ids: [&row.prompt[..], &row.completion].concat(),
            places: row.completion.len(),
        };
        let texts: Vec<ValueText> = rows.iter().map(text).collect();
        let one_row = |text: &ValueText| {
            let (old, returns) = (vec![0.0; text.places], vec![0.7; text.places]);
            ValueRow { text: text.clone(), aim: ValueTarget::Returns { old, returns } }
        };
        let rows: Vec<ValueRow> = texts.iter().map(one_row).collect();
        let batch = ValueBatch { rows, minibatches: 1, epochs: 2, lr: 1e-3 };
        let shared = policy.update_critic(batch).await.unwrap().shared.unwrap();
        assert!(shared.share > 0.3 && shared.recomputed > 1.0, "{shared:?}");
        let together = policy.values(texts.clone()).await.unwrap();
        let states = policy.states(texts.clone()).await.unwrap();
        for ((text, values), state) in texts.into_iter().zip(together).zip(states) {
            assert_eq!(policy.values(vec![text.clone()]).await.unwrap(), [values]);
            assert_eq!(policy.states(vec![text]).await.unwrap(), [state]);
        }
    }
}
