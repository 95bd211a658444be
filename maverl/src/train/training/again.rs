//! A recorded run, played and learned again (`maverl replay`).

use std::path::Path;

use crate::algo::is_greedy;
use crate::metrics::Metrics;
use crate::rollout::{Rollout, TurnVersions};
use crate::runtime::Policy;
use crate::train::error::TrainError;
use crate::train::learner::batches::StepPlan;
use crate::train::step::learn;
use crate::train::training::{Training, plan_of};
use crate::trajectory::Episode;

impl Training<'_> {
    /// Returns the rollout with which a training episode of step `step`, counted from 0, was run: by the weights of now, or by
    /// those of each turn.
    pub(in crate::train) fn rollout_of(
        &self,
        (step, episode): (u64, &Episode),
        versions: Option<TurnVersions>,
    ) -> Rollout {
        let plan = plan_of(self.plan, self.swapped.as_ref(), step);
        let players = self.players.for_batch((0, 0), self.players.policies(), versions);
        if is_greedy(plan, episode) {
            players.at_temperature(plan, 0.0)
        } else {
            players.rollout(plan)
        }
    }

    /// Returns snapshots of the policies in a place of those that are kept at once.
    pub(in crate::train) async fn snapshots(
        &self,
        place: usize,
    ) -> Result<Vec<Policy>, TrainError> {
        Ok(self.players.snapshots(place).await?)
    }

    /// Reads episodes of earlier steps in the directory of a run from now on.
    pub(in crate::train) fn read_episodes_in(&mut self, dir: &Path) {
        self.learner.read_episodes_in(dir);
    }

    /// Trains on the stored episodes of a step, counted from 0, with the learning rates of its stored metrics.
    pub(in crate::train) async fn learn_again(
        &mut self,
        step: u64,
        episodes: &[Episode],
        rates: Option<&Metrics>,
    ) -> Result<(), TrainError> {
        let plan = plan_of(self.plan, self.swapped.as_ref(), step);
        let at = StepPlan { plan, step, rates };
        self.learner.begin(&at).await?;
        learn(&at, &mut self.learner, episodes).await.map(drop)
    }
}
