#![allow(clippy::unwrap_used)]

use std::num::NonZeroUsize;

use futures::try_join;
use tokio::sync::watch;

use super::*;
use crate::agent::AskError;
use crate::algo::testing::plan;
use crate::orchestra::Team;
use crate::rollout::testing::{Flow, Speaker, Talker, line, runner, task};
use crate::rollout::{Clock, EpisodeRequest, PolicyVersions, Rollout, TurnSchedule};
use crate::trajectory::{Episode, FaultKind, Outcome};

async fn two_asks(team: &Team<Flow>) -> Result<(), AskError> {
    team.ask::<Speaker>(&line("one")).await?;
    team.ask::<Speaker>(&line("two")).await?;
    Ok(())
}

/// Two asks, one after the other.
fn sequence() -> Flow {
    Flow::new(|_, team| Box::pin(async move { two_asks(team).await.map(|()| None) }))
}

/// Two asks in each of three concurrent parts, and one after them.
fn parts() -> Flow {
    Flow::new(|_, team| {
        Box::pin(async move {
            let [one, two, three] = [team.branch(), team.branch(), team.branch()];
            try_join!(two_asks(&one), two_asks(&two), two_asks(&three))?;
            team.ask::<Speaker>(&line("last")).await?;
            Ok(None)
        })
    })
}

/// A team with one permit for all of its batches.
struct OnePermit {
    rollout: Rollout,
    sender: watch::Sender<PolicyVersions>,
}

impl OnePermit {
    fn new(flow: Flow, timeout: Duration) -> Self {
        let mut runner = runner(flow, Talker::default());
        runner.timeout = timeout;
        let rollout = Rollout::new(runner, NonZeroUsize::MIN.saturating_add(7));
        let sender = watch::Sender::new(PolicyVersions::from([(0, Vec::new())]));
        Self { rollout: rollout.with_admission(NonZeroUsize::MIN), sender }
    }

    /// Returns the team of the batch of a step, whose turns each have the next version up to that of the step.
    fn batch(&self, step: u64) -> Rollout {
        let schedule = TurnSchedule { first: 0, last: step - 1, turns: 1 };
        let plan = plan(&[("t/speaker", true)]);
        let versions = TurnVersions::new(&plan, schedule, self.sender.subscribe(), clock());
        self.rollout.with_rank(step).with_versions(Some(versions))
    }

    fn publish(&self, version: u64) {
        self.sender.send_modify(|versions| _ = versions.insert(version, Vec::new()));
    }
}

/// Returns a clock of waits.
fn clock() -> Clock {
    let began = std::time::Instant::now();
    Arc::new(move || began.elapsed())
}

fn requests(number: u32) -> Vec<EpisodeRequest> {
    let request = |index| EpisodeRequest { task: task("a"), index, seed: 3 };
    (0..number).map(request).collect()
}

fn assert_scored(episode: &Episode, turns: usize) {
    assert!(matches!(episode.outcome, Outcome::Scored(_)), "{:?}", episode.outcome);
    assert_eq!(episode.turns.len(), turns);
}

#[tokio::test]
async fn an_episode_that_waits_for_weights_leaves_its_permit_to_others() {
    let team = OnePermit::new(sequence(), Duration::from_secs(60));
    let mut late = team.batch(2).play(requests(3));
    let early = tokio::time::timeout(Duration::from_millis(50), late.next()).await;
    assert!(early.is_err(), "the second turns wait for version 1");
    for episode in team.batch(1).collect(requests(2), |_| ()).await {
        assert_scored(&episode, 2);
    }
    team.publish(1);
    for _ in 0..3 {
        assert_scored(&late.next().await.unwrap().1, 2);
    }
    assert!(late.next().await.is_none());
}

#[tokio::test]
async fn concurrent_parts_that_wait_for_other_versions_share_the_permit_of_their_episode() {
    let team = OnePermit::new(parts(), Duration::from_secs(60));
    let mut late = team.batch(4).play(requests(2));
    for version in 1..4 {
        let early = tokio::time::timeout(Duration::from_millis(20), late.next()).await;
        assert!(early.is_err(), "turns wait for version {version}");
        assert_scored(&team.batch(1).collect(requests(1), |_| ()).await[0], 7);
        team.publish(version);
    }
    for _ in 0..2 {
        assert_scored(&late.next().await.unwrap().1, 7);
    }
}

#[tokio::test]
async fn the_wait_for_weights_is_no_part_of_the_time_of_an_episode() {
    let team = OnePermit::new(sequence(), Duration::from_secs(1));
    let mut playing = team.batch(2).play(requests(1));
    let early = tokio::time::timeout(Duration::from_millis(2500), playing.next()).await;
    assert!(early.is_err());
    team.publish(1);
    assert_scored(&playing.next().await.unwrap().1, 2);
    let slow = Flow::new(|_, team| {
        Box::pin(async move {
            two_asks(team).await?;
            std::future::pending().await
        })
    });
    let team = OnePermit::new(slow, Duration::from_millis(300));
    let mut playing = team.batch(2).play(requests(1));
    let early = tokio::time::timeout(Duration::from_millis(500), playing.next()).await;
    assert!(early.is_err());
    team.publish(1);
    let (_, episode) = playing.next().await.unwrap();
    let Outcome::Unscored(fault) = &episode.outcome else { panic!("{:?}", episode.outcome) };
    assert_eq!((fault.kind, episode.turns.len()), (FaultKind::Timeout, 2));
}
