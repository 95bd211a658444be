//! Branches of the episodes of a step, for estimators that compare them.

use std::sync::Arc;

use crate::algo::{PlannedBranch, branches, further_branches};
use crate::credit::dense;
use crate::plan::Plan;
use crate::rollout::{BegunRequest, EpisodeRequest, Prefix};
use crate::train::error::TrainError;
use crate::train::step::players::{Players, Stage};
use crate::trajectory::Episode;

impl Players {
    /// Runs the branches of episodes that were played, if the estimator compares branches, and returns them in the order of
    /// [`branches`], then those that begin after the best of them. The branches of a task are on one rank. `in_order` receives
    /// them as in [`Players::play`].
    pub(super) async fn play_branches(
        &self,
        plan: &Plan,
        stage: Stage<'_>,
        played: &[Episode],
        in_order: &mut impl FnMut(&Episode) -> Result<(), TrainError>,
    ) -> Result<Vec<Episode>, TrainError> {
        let mut planned = branches(plan, played);
        let mut all = Vec::new();
        while !planned.is_empty() {
            let begun: Vec<&Episode> = played.iter().chain(&all).collect();
            let more = self.play_planned(plan, stage, (&begun, planned), in_order).await?;
            all.extend(more);
            planned = further_branches(plan, played, &all);
        }
        Ok(all)
    }

    /// Runs planned branches of episodes.
    async fn play_planned(
        &self,
        plan: &Plan,
        stage: Stage<'_>,
        (begun, planned): (&[&Episode], Vec<PlannedBranch>),
        in_order: &mut impl FnMut(&Episode) -> Result<(), TrainError>,
    ) -> Result<Vec<Episode>, TrainError> {
        let total = planned.len();
        let (rank, ranks) = (self.peers.rank(), self.peers.size());
        let tasks = planned.iter().map(|branch| &begun[branch.episode].task);
        let tasks = dense(tasks.map(|task| (task.source.as_str(), task.id.as_str())));
        let dealt = planned.into_iter().enumerate().zip(tasks);
        let own = dealt.filter(|(_, task)| task % ranks == rank);
        let requests = own.map(|((place, branch), _)| (place, request(begun, branch))).collect();
        self.play_requests(&self.rollout(plan), stage, (requests, total), in_order).await
    }
}

/// Returns the request for a branch. It has the seed of the episode that it begins like.
fn request(begun: &[&Episode], branch: PlannedBranch) -> BegunRequest {
    let PlannedBranch { episode, index, point } = branch;
    let Episode { task, seed, .. } = begun[episode];
    let request = EpisodeRequest { task: task.clone(), index, seed: *seed };
    (request, Some(Arc::new(Prefix::new(begun[episode], point))))
}

#[cfg(test)]
mod tests;
