//! Snapshots of policies: they generate with earlier weights while the policies are updated.

use super::adapters::{adapters, train};
use super::*;

/// Completions of some requests at once.
async fn completions(policy: &Policy) -> Vec<Completion> {
    futures::future::try_join_all((0..6).map(|i| policy.generate(request(i)))).await.unwrap()
}

/// Asserts that snapshots keep the completions of their time, and that updates do not see them.
pub(super) async fn keep_their_time(mut setup: Setup, name: &str) {
    let alone = setup.start();
    setup.workers.iter_mut().for_each(|worker| worker.snapshots = 2);
    let runtime = setup.start();
    let policy = runtime.policy(name).unwrap();
    let mut snapshots = Vec::new();
    for version in 0..3 {
        // The place of version 2 is that of version 0.
        let snapshot = policy.snapshot(version % 2).await.unwrap();
        let start = policy.work().decoded;
        let now = completions(policy).await;
        assert!(now.iter().all(|done| done.version == version as u64));
        let before = policy.work().decoded;
        assert_eq!(completions(&snapshot).await, now, "version {version}");
        assert_eq!(policy.work().decoded - before, before - start, "tokens of both are counted");
        snapshots.push((snapshot, now));
        let stats = train(policy).await;
        assert_eq!(stats, train(alone.policy(name).unwrap()).await);
    }
    let (later, newest) = (completions(policy).await, &snapshots[2]);
    assert_ne!(later, newest.1);
    for (snapshot, then) in &snapshots[1..] {
        assert_eq!(completions(snapshot).await, *then);
    }
    assert_eq!(completions(&snapshots[0].0).await, newest.1, "its place has another one");
    assert_eq!(policy.fingerprint().await.unwrap(), {
        alone.policy(name).unwrap().fingerprint().await.unwrap()
    });
}

#[tokio::test]
async fn a_snapshot_of_full_weights_keeps_the_bits_of_its_time() {
    keep_their_time(setup(&["p"]), "p").await;
}

#[tokio::test]
async fn a_snapshot_of_an_adapter_keeps_the_bits_of_its_time() {
    keep_their_time(adapters(&["a", "b"], 0.0), "a").await;
}

#[tokio::test]
async fn snapshots_of_loaded_weights_are_those_that_were_loaded() {
    let mut setup = setup(&["p"]);
    setup.workers[0].snapshots = 1;
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let dir = tempfile::tempdir().unwrap();
    policy.save(dir.path()).await.unwrap();
    let first = completions(&policy).await;
    train(&policy).await;
    let snapshot = policy.snapshot(0).await.unwrap();
    assert_ne!(completions(&snapshot).await, first);
    policy.load(dir.path()).await.unwrap();
    let snapshot = policy.snapshot(0).await.unwrap();
    assert_eq!(completions(&snapshot).await, first);
}

#[tokio::test]
async fn without_places_a_snapshot_is_the_policy_itself() {
    let runtime = setup(&["p"]).start();
    let policy = runtime.policies()[0].clone();
    let snapshot = policy.snapshot(0).await.unwrap();
    train(&policy).await;
    assert_eq!(snapshot.generate(request(0)).await.unwrap().version, 1);
}

#[tokio::test]
async fn a_request_to_a_snapshot_waits_for_no_barrier_of_its_policy() {
    let mut setup = setup(&["p"]);
    setup.workers[0].snapshots = 1;
    let runtime = setup.start();
    let policy = runtime.policies()[0].clone();
    let snapshot = policy.snapshot(0).await.unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel::<()>();
    let barrier = policy.at_barrier_for_test(move || {
        begin.send(()).unwrap();
        wait.recv().unwrap();
    });
    let answered = async {
        begun.await.unwrap();
        let done = snapshot.generate(request(1)).await.unwrap();
        go.send(()).unwrap();
        done
    };
    let (done, ()) = tokio::join!(answered, barrier);
    assert_eq!(done, policy.generate(request(1)).await.unwrap());
}
