//! Source of the episodes of a step: the team runs its tasks now, or has run them ahead.

use crate::data::SolveRates;
use crate::run_dir::RolloutWriter;
use crate::task::TaskList;
use crate::train::ahead::BatchesAhead;
use crate::train::error::TrainError;
use crate::train::learner::batches::StepPlan;
use crate::train::step::players::Players;
use crate::train::step::players::collect::PlayedEpisodes;
use crate::trajectory::Episode;

/// Source of the episodes of a step.
pub(crate) enum EpisodeSource<'t> {
    /// Tasks that the team runs now.
    Tasks(&'t TaskList),
    /// Batches that are played ahead, that of the step among them.
    Ahead(&'t mut BatchesAhead),
}

impl EpisodeSource<'_> {
    /// Returns the episodes of a step, and writes them in their order. `rates` are the solve rates of a curriculum.
    pub(super) async fn collect(
        self,
        at: &StepPlan<'_>,
        players: &Players,
        rates: &SolveRates,
        rollouts: &mut RolloutWriter,
    ) -> Result<PlayedEpisodes, TrainError> {
        match self {
            Self::Tasks(tasks) => {
                let mut write = |episode: &Episode| Ok(rollouts.append(episode)?);
                let played = players.collect(at, rates, tasks, &mut write).await?;
                if played.compared {
                    rollouts.replace(&played.episodes)?;
                }
                Ok(played)
            }
            Self::Ahead(ahead) => {
                players.progress().work(&format!("step {}: waiting for its episodes", at.step + 1));
                let batch = ahead.take(at.step + 1).await?;
                batch.played.episodes.iter().try_for_each(|episode| rollouts.append(episode))?;
                Ok(batch.played.clone())
            }
        }
    }
}
