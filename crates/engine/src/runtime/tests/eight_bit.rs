//! Updates by AdamW with moments in 8 bits.

use super::*;
use crate::runtime::OptimizerKind;

fn eight_bit() -> Setup {
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].optim.kind = OptimizerKind::Adamw8bit;
    setup
}

fn rows() -> Batch {
    Batch { lr: 1e-3, ..batch(given_rows(500, -6.0)) }
}

#[tokio::test]
async fn a_run_with_moments_in_8_bits_goes_on_after_it_was_saved_as_if_it_had_not_been() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path();
    let runtime = eight_bit().start();
    let policy = runtime.policies()[0].clone();
    for _ in 0..3 {
        policy.update(rows()).await.unwrap();
    }
    policy.save(saved).await.unwrap();
    let next = policy.update(rows()).await.unwrap();
    let whole = policy.fingerprint().await.unwrap();
    let runtime = eight_bit().start();
    let policy = runtime.policies()[0].clone();
    policy.load(saved).await.unwrap();
    let again = policy.update(rows()).await.unwrap();
    assert_eq!((again, policy.fingerprint().await.unwrap()), (next, whole));
}

#[tokio::test]
async fn the_first_update_is_that_of_whole_moments_and_later_ones_are_near() {
    let updated = async |setup: Setup, times: usize| {
        let runtime = setup.start();
        let policy = runtime.policies()[0].clone();
        let mut stats = Vec::new();
        for _ in 0..times {
            stats.push(policy.update(rows()).await.unwrap());
        }
        (policy.fingerprint().await.unwrap(), stats)
    };
    let (whole, codes) = (updated(setup(&["p"]), 1).await, updated(eight_bit(), 1).await);
    assert_eq!(whole, codes, "moments are rounded after the update");
    let (whole, codes) = (updated(setup(&["p"]), 4).await, updated(eight_bit(), 4).await);
    assert_ne!(whole.0, codes.0);
    let (last, near) = (whole.1[3].loss, codes.1[3].loss);
    assert!((last - near).abs() < 0.05 * last.abs().max(0.1), "{last} {near}");
}
