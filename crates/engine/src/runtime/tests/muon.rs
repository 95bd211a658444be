//! Updates by Muon.

use super::*;
use crate::runtime::{OptimOptions, OptimizerKind};
use maverl_dist::{Ranks, Shard};
use ranks::testing::on_ranks;

fn muon() -> Setup {
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].optim =
        OptimOptions { kind: OptimizerKind::Muon, ..OptimOptions::default() };
    setup
}

fn rows() -> Batch {
    Batch { lr: 1e-3, ..batch(given_rows(500, -6.0)) }
}

#[tokio::test]
async fn a_run_of_muon_goes_on_after_it_was_saved_as_if_it_had_not_been() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path();
    let runtime = muon().start();
    let policy = runtime.policies()[0].clone();
    let first = policy.update(rows()).await.unwrap();
    // 0.2 for a direction of full rank; gradients of few tokens have a low one.
    assert!((0.02..0.25).contains(&first.muon_rms.unwrap()), "{first:?}");
    policy.save(saved).await.unwrap();
    let second = policy.update(rows()).await.unwrap();
    let whole = policy.fingerprint().await.unwrap();
    let runtime = muon().start();
    let policy = runtime.policies()[0].clone();
    policy.load(saved).await.unwrap();
    let again = policy.update(rows()).await.unwrap();
    assert_eq!((again, policy.fingerprint().await.unwrap()), (second, whole));
    let plain = setup(&["p"]).start().policies()[0].clone();
    assert_eq!(plain.update(rows()).await.unwrap().muon_rms, None);
}

#[test]
fn ranks_with_muon_have_equal_weights_and_do_not_divide_its_momentum() {
    let run = |sharded: bool, ranks: Option<&Ranks>| {
        let mut setup = muon();
        setup.options.shard = if sharded { Shard::Optimizer } else { Shard::None };
        let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks)?;
        let policy = runtime.policies()[0].clone();
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let stats = tokio.block_on(policy.update(rows()))?;
        if let Some(ranks) = ranks {
            ranks.channel(0).barrier().unwrap();
            ranks.leave();
        }
        Ok::<_, RuntimeError>((tokio.block_on(policy.fingerprint())?, stats.muon_rms))
    };
    let both = on_ranks(2, |ranks| run(false, Some(&ranks)).unwrap());
    assert_eq!(both[0], both[1]);
    let alone = run(false, None).unwrap();
    assert!((alone.1.unwrap() - both[0].1.unwrap()).abs() < 1e-3);
    assert!(run(true, None).is_ok(), "one rank has all of it");
}
