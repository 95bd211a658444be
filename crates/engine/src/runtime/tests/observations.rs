//! Updates with rows of observations.

use super::slopes::assert_slopes;
use super::splits::updated_alike;
use super::*;
use crate::runtime::{ObservedText, UpdateStats};

const COEF: f32 = 0.3;

/// Returns two turns of a conversation and one of another, and rows of what the environment wrote in the second turn of the first.
fn conversation() -> (Vec<Row>, Vec<Row>) {
    let ids =
        |seed: u32, n: u32| -> Vec<u32> { (0..n).map(|t| (seed * 37 + t * 29) % 500).collect() };
    let row = |prompt: Vec<u32>, completion: Vec<u32>, advantage: f32| Row {
        logprobs: vec![-5.0; completion.len()],
        advantages: vec![advantage; completion.len()],
        prompt,
        completion,
        ..Row::default()
    };
    let first = row(ids(1, 20), ids(2, 5), 0.5);
    let shown = [&first.prompt[..], &first.completion, &ids(3, 9)].concat();
    let rows = vec![first, row(shown.clone(), ids(4, 6), -1.0), row(ids(5, 8), ids(6, 3), 1.0)];
    let observed = |tokens: std::ops::Range<usize>| Row {
        prompt: shown[..tokens.start].to_vec(),
        completion: shown[tokens].to_vec(),
        skipped: true,
        observation: Some(ObservedText { coef: COEF, row: 1 }),
        ..Row::default()
    };
    (rows, vec![observed(26..30), observed(31..33)])
}

/// Returns a batch of a conversation with the observations in it.
fn observing(change: impl Fn(&mut Row)) -> Batch {
    let (mut rows, observed) = conversation();
    rows.iter_mut().for_each(change);
    Batch { lr: 1e-3, ..batch([rows, observed].concat()) }
}

/// Computes the mean negative log-likelihood of the observations.
async fn likelihood(policy: &Policy) -> f64 {
    let found = policy.logprobs(conversation().1).await.unwrap().concat();
    -found.iter().map(|&logp| f64::from(logp)).sum::<f64>() / found.len() as f64
}

#[tokio::test]
async fn the_gradient_of_an_observation_is_the_difference_of_its_likelihood() {
    let batch = observing(|row| row.advantages.fill(0.0));
    let loss = async |policy: &Policy| f64::from(COEF) * likelihood(policy).await;
    assert_slopes("observations", (setup(&["p"]), batch), loss).await;
}

#[tokio::test]
async fn observations_add_to_the_loss_and_to_no_count_and_cost_no_further_tokens() {
    for minibatches in [1, 2] {
        let policy = || setup(&["p"]).start().policies()[0].clone();
        let (rows, _) = conversation();
        let plain = Batch { minibatches, lr: 1e-12, ..batch(rows) };
        let without = policy().update(plain).await.unwrap();
        let observed = policy();
        let nll = likelihood(&observed).await;
        let with = Batch { minibatches, lr: 1e-12, record_tokens: true, ..observing(|_| {}) };
        let with = observed.update(with).await.unwrap();
        assert_eq!((with.rows, with.tokens), (without.rows, without.tokens));
        assert_eq!((with.entropy, with.ppo_kl), (without.entropy, without.ppo_kl));
        assert_eq!((with.pg_loss, with.mismatch_mean), (without.pg_loss, without.mismatch_mean));
        assert_eq!(without.observations, None);
        let found = with.observations.unwrap();
        assert_eq!(found.tokens, 6);
        assert!((found.nll - nll).abs() < 1e-5, "{} is not {nll}", found.nll);
        assert_eq!(with.columns.as_ref().unwrap().entropy.len(), 3);
        // Both are in the minibatch of their row, and the loss is the mean over minibatches.
        let added = f64::from(COEF) * nll / minibatches as f64;
        assert!((with.loss - without.loss - added).abs() < 1e-5, "{with:?}");
        assert_eq!(with.shared.computed, without.shared.computed);
        assert!(with.shared.whole > without.shared.whole);
    }
}

#[test]
fn observations_are_learned_and_no_split_into_micro_batches_or_ranks_changes_what_is() {
    let nll = |stats: &UpdateStats| stats.observations.unwrap().nll;
    let whole = updated_alike(|| observing(|_| {}), nll);
    assert!(nll(&whole[3]) < nll(&whole[0]), "{whole:?}");
}
