//! Episodes of a rollout that are played concurrently.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{BegunRequest, EpisodeRequest, Rollout};
use crate::rollout::gate::EpisodeGate;
use crate::trajectory::Episode;

/// Episodes that are being run. Dropping it ends all of them.
#[doc(hidden)]
pub struct Playing {
    rollout: Rollout,
    waiting: std::iter::Enumerate<std::vec::IntoIter<BegunRequest>>,
    running: JoinSet<(usize, Episode)>,
}

impl Playing {
    pub(super) fn new(rollout: &Rollout, requests: Vec<BegunRequest>) -> Self {
        let (waiting, running) = (requests.into_iter().enumerate(), JoinSet::new());
        Self { rollout: rollout.clone(), waiting, running }
    }

    /// Waits for the next episode that ends, in arbitrary order, and returns it with the index of its request. `None`
    /// if all have ended. Waiting episodes start when this is called.
    pub async fn next(&mut self) -> Option<(usize, Episode)> {
        let free = self.rollout.max_episodes.get() - self.running.len();
        for (place, request) in self.waiting.by_ref().take(free) {
            let rollout = self.rollout.clone();
            self.running.spawn(async move { (place, rollout.play_admitted(request).await) });
        }
        let joined = self.running.join_next().await?;
        Some(joined.expect("RO-1: `play` catches every panic"))
    }
}

impl Rollout {
    /// Plays every episode, `rollout.max_episodes` concurrently. The result yields each one as it ends.
    pub fn play(&self, requests: Vec<EpisodeRequest>) -> Playing {
        self.play_from(requests.into_iter().map(|request| (request, None)).collect())
    }

    /// Plays every episode as [`Rollout::play`] does, from the recorded turns that it begins with, if there are any.
    pub fn play_from(&self, requests: Vec<BegunRequest>) -> Playing {
        Playing::new(self, requests)
    }

    /// Plays every episode, and returns them in the order of the requests. Calls `ended` as each one ends, in arbitrary
    /// order. Dropping the future ends every episode.
    pub async fn collect(
        &self,
        requests: Vec<EpisodeRequest>,
        mut ended: impl FnMut(&Episode),
    ) -> Vec<Episode> {
        let mut episodes: Vec<Option<Episode>> = requests.iter().map(|_| None).collect();
        let mut playing = self.play(requests);
        while let Some((place, episode)) = playing.next().await {
            ended(&episode);
            episodes[place] = Some(episode);
        }
        episodes.into_iter().flatten().collect()
    }

    /// Plays an episode with a permit, if it needs one. Teachers score its turns.
    async fn play_admitted(self, (request, prefix): BegunRequest) -> Episode {
        let mut permit = match self.admission.clone() {
            Some((admission, rank)) => Some(admission.acquire(rank).await),
            None => None,
        };
        let gate = self.versions.map(|versions| {
            Arc::new(EpisodeGate::new(versions, self.admission.clone(), permit.take()))
        });
        let mut episode = self.runner.play_through(request, prefix, gate.as_ref()).await;
        if let Some(teachers) = &self.teachers {
            teachers.score_turns(&mut episode).await;
        }
        if let Some(gate) = gate {
            gate.end();
        }
        drop(permit);
        episode
    }
}
