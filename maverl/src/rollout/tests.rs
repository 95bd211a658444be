#![allow(clippy::unwrap_used)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::orchestra::ChatBackend;
use crate::plan::SeatPlan;
use crate::registry::Registry;
use crate::rollout::testing::{Flow, GATE, Speaker, Talker, line, rollout, runner, task};
use crate::task::Action;
use crate::trajectory::{Episode, FaultKind, Outcome};

fn requests(ids: &[&str]) -> Vec<EpisodeRequest> {
    let request = |id: &&str| {
        let task = task(id);
        (0..3).map(move |index| {
            let seed = episode_seed(1, "train", 0, &task, index);
            EpisodeRequest { task: task.clone(), index, seed }
        })
    };
    ids.iter().flat_map(request).collect()
}

/// Answers with the task's id; tasks named `panic`, `fault` and `slow` behave accordingly.
fn by_task() -> Flow {
    Flow::new(|task, team| {
        Box::pin(async move {
            let word = team.ask::<Speaker>(&line(&task.id)).await?;
            match task.id.as_str() {
                "panic" => panic!("as asked"),
                "fault" => drop(team.act(Action::Text("fail".to_owned())).await?),
                "slow" => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => {}
            }
            Ok(Some(word.0))
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_episode_ends_another_and_results_are_in_the_order_of_requests() {
    let requests = requests(&["slow", "panic", "yes", "fault", "no"]);
    let mut ended = 0;
    let rollout = rollout(by_task(), Talker::default());
    let episodes = rollout.collect(requests.clone(), |_| ended += 1).await;
    assert_eq!((ended, episodes.len()), (15, 15));
    for (request, episode) in requests.iter().zip(&episodes) {
        assert_eq!((&episode.task, episode.index), (&request.task, request.index));
        assert_eq!(episode.turns.len(), 1);
        match &episode.outcome {
            Outcome::Scored(score) => {
                assert_eq!(score.solved, episode.task.id == "yes");
            }
            Outcome::Unscored(fault) => {
                let panic = episode.task.id == "panic";
                assert_eq!(
                    fault.kind,
                    if panic { FaultKind::Panic } else { FaultKind::Environment }
                );
            }
        }
    }
}

#[tokio::test]
async fn the_order_of_requests_changes_no_episode() {
    let rollout = rollout(by_task(), Talker { yields: |ask| ask.seed % 9, ..Talker::default() });
    let requests = requests(&["a", "b", "yes"]);
    let forward = rollout.collect(requests.clone(), |_| ()).await;
    let mut backward = rollout.collect(requests.into_iter().rev().collect(), |_| ()).await;
    backward.reverse();
    assert_eq!(forward, backward);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_max_episodes_are_under_way_at_once() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let flow = Flow::new(|_, _| {
        Box::pin(async move {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
            NOW.fetch_sub(1, Ordering::SeqCst);
            Ok(None)
        })
    });
    let rollout = rollout(flow, Talker::default());
    assert_eq!(rollout.collect(requests(&["a", "b", "c"]), |_| ()).await.len(), 9);
    assert_eq!(MOST.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn nothing_to_play_gives_nothing() {
    let rollout = rollout(by_task(), Talker::default());
    assert!(rollout.collect(Vec::new(), |_| ()).await.is_empty());
}

#[test]
fn what_the_registry_lacks_is_named() {
    let plan = crate::algo::testing::plan(&[("t/speaker", true)]);
    let backend =
        |_: &SeatPlan| -> Arc<dyn ChatBackend> { Arc::new(Script::new(|_, _| String::new())) };
    let error = Rollout::start_with(&plan, &Registry::default(), backend).err().unwrap();
    assert_eq!(
        error.to_string(),
        "agent `t/speaker` is not registered; the plan was made with another registry"
    );
}

#[test]
fn worlds_that_block_every_thread_cost_their_episodes_alone() {
    let flow = Flow::new(|task, team| {
        Box::pin(async move {
            let word = team.ask::<Speaker>(&line("yes")).await?;
            if task.id == "block" {
                team.act(Action::Text("block".to_owned())).await?;
            }
            Ok(Some(if task.id == "score block" { task.id.clone() } else { word.0 }))
        })
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let mut runner = runner(flow, Talker::default());
    runner.timeout = Duration::from_secs(1);
    let rollout = Rollout::new(runner, NonZeroUsize::new(4).unwrap());
    let requests = requests(&["block", "score block", "open block", "yes", "also"]);
    let gate = GATE.lock().unwrap();
    let episodes = runtime.block_on(rollout.collect(requests, |_| ()));
    drop(gate);
    let late = |episode: &Episode| match &episode.outcome {
        Outcome::Unscored(fault) => fault.kind == FaultKind::Timeout,
        Outcome::Scored(_) => false,
    };
    let late: Vec<bool> = episodes.iter().map(late).collect();
    assert_eq!(late, [[true; 9].as_slice(), &[false; 6]].concat());
}
