//! Checkpoints of a run. One whose step has episodes in flight is completed when they were played, while the run goes on.

use std::time::Instant;

use crate::config::CheckpointConfig;
use crate::train::error::TrainError;
use crate::train::record::spans::Span;
use crate::train::run::Run;
use crate::train::run::trainable::Trainable;

impl<W: Trainable> Run<W> {
    /// Writes a checkpoint. If episodes are in flight, it is not visible until they were played.
    pub(super) async fn save(&mut self) -> Result<(), TrainError> {
        self.progress.work(&format!("step {}: writing a checkpoint", self.state.step));
        let began = Instant::now();
        self.state.files = self.journal.sync()?;
        let draft = self.checkpoints.begin(self.state.step)?;
        self.work.save(&draft).await?;
        self.drafts.push_back((draft, self.state.clone()));
        self.saved = self.state.step;
        // Nothing is in flight before the first step: a run that is killed there plays again what it began.
        if self.work.staleness() == 0 || self.state.step == 0 {
            self.complete_checkpoints(u64::MAX).await?;
        }
        self.spans.push(Span::since("checkpoint", began));
        Ok(())
    }

    /// Completes the checkpoints whose episodes in flight are those of steps up to `step`, and waits for them.
    pub(super) async fn complete_checkpoints(&mut self, step: u64) -> Result<(), TrainError> {
        let staleness = self.work.staleness();
        while let Some((draft, state)) =
            self.drafts.pop_front_if(|(_, state)| state.step + staleness <= step)
        {
            if staleness > 0 && state.step > 0 {
                self.work.save_in_flight(state.step, &draft).await?;
            }
            // The manifest is written before the checkpoint, which depends on the files that it lists.
            self.dir.vouch()?;
            draft.commit(&state)?;
            let CheckpointConfig { keep, best, .. } = self.settings.checkpoint;
            self.checkpoints.prune(&state, keep.get(), best)?;
        }
        Ok(())
    }
}
