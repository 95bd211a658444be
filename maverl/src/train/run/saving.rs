//! Checkpoints of a run. One whose step has episodes in flight is completed when they were played, while the run goes on.
//!
//! Between two steps, weights and moments are copied in memory. A thread writes them from the copy, brings the files to the disk,
//! computes their checksums and makes the checkpoint visible, while the run goes on. Where the copy has no room (`check`), the
//! files themselves are written between two steps.

use std::time::Instant;

use crate::checkpoint::{Checkpoint, Checkpoints, Draft, TrainerState};
use crate::config::{CheckpointConfig, SavedMoments};
use crate::run_dir::RunDirError;
use crate::train::error::TrainError;
use crate::train::record::spans::Span;
use crate::train::run::trainable::Trainable;
use crate::train::run::{Run, rows};

impl<W: Trainable> Run<W> {
    /// Loads a checkpoint. Warns if the optimizers do not go on with the moments that they had.
    pub(super) async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        self.work.load(checkpoint).await?;
        let TrainerState { step, moments, .. } = checkpoint.state;
        let changed = match moments {
            SavedMoments::F32 => return Ok(()),
            SavedMoments::Bf16 => "the moments of the optimizers are rounded to bf16",
            SavedMoments::None => "the optimizers begin with fresh moments, because there are none",
        };
        self.state.moments_lost = true;
        let warning = format!(
            "{changed} in the checkpoint of step {step} (`checkpoint.moments`): from here on, results differ from those of a run that \
             was not interrupted"
        );
        Ok(rows::warn(&mut self.journal, &*self.progress, step, &[warning])?)
    }

    /// Writes the checkpoint before the first step, and waits for it. A run of one step has none: it begins again without it.
    pub(super) async fn save_start(&mut self) -> Result<(), TrainError> {
        if self.settings.steps == 1 {
            return Ok(());
        }
        self.save().await?;
        self.pending.wait()
    }

    /// Writes a checkpoint. It becomes visible later, and if episodes are in flight, after they were played.
    pub(super) async fn save(&mut self) -> Result<(), TrainError> {
        self.progress.work(&format!("step {}: writing a checkpoint", self.state.step));
        let began = Instant::now();
        // So there are never copies or files of two checkpoints that the disk does not have yet.
        self.pending.wait()?;
        // These are on the disk before the checkpoint, which depends on them, and before its files, whose bytes they need not wait for.
        self.state.files = self.journal.sync()?;
        self.dir.vouch()?;
        // Before the first step, moments are zero in every form.
        let moments = self.settings.checkpoint.moments;
        self.state.moments = if self.state.step == 0 { SavedMoments::F32 } else { moments };
        let draft = self.checkpoints.begin(self.state.step)?;
        let write_rest = self.work.save(&draft).await?;
        self.pending.start(draft.path(), write_rest)?;
        self.drafts.push_back((draft, self.state.clone()));
        self.saved = self.state.step;
        // Nothing is in flight before the first step: a run that is killed there plays again what it began.
        if self.work.staleness() == 0 || self.state.step == 0 {
            self.complete_checkpoints(u64::MAX).await?;
        }
        self.spans.push(Span::since("checkpoint", began));
        Ok(())
    }

    /// Returns what a signal to stop means in the step that begins.
    pub(super) fn stopping(&self) -> String {
        let step = self.state.step + 1;
        let last = self.settings.steps.min(step + self.work.awaited_steps());
        let steps =
            if last > step { format!("steps {step} to {last}") } else { format!("step {step}") };
        let ahead = if self.work.staleness() > 0 { " and the episodes in flight" } else { "" };
        format!("finishing {steps}{ahead}")
    }

    /// Writes the checkpoint of a run that goes no further, and completes those before it. Its episodes in flight may wait for
    /// the weights of later steps: these are done too, and repeated when the run is resumed.
    pub(super) async fn end_steps(&mut self) -> Result<(), TrainError> {
        if self.saved < self.state.step {
            self.save().await?;
        }
        let awaited = if self.drafts.is_empty() { 0 } else { self.work.awaited_steps() };
        let last = self.settings.steps.min(self.saved + awaited);
        self.ends = true;
        while self.state.step < last {
            self.step().await?;
        }
        // The awaited steps may be the last ones of the run.
        if self.interrupt.is_raised() && self.saved < self.state.step && last == self.settings.steps
        {
            self.save().await?;
        }
        self.complete_checkpoints(self.saved + self.work.staleness()).await
    }

    /// Waits for the checkpoint that is written when the run ends. Its error is that of the run, or a warning if there is one already.
    pub(super) fn settle_checkpoint(
        &mut self,
        done: Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        match (done, self.pending.wait()) {
            (Ok(()), written) => written,
            (Err(error), Ok(())) => Err(error),
            (Err(error), Err(unwritten)) => {
                self.progress.warn(&format!("the newest checkpoint is lost: {unwritten}"));
                Err(error)
            }
        }
    }

    /// Completes the checkpoints whose episodes in flight are those of steps up to `step`, and waits for these episodes. The
    /// disk is not waited for.
    pub(super) async fn complete_checkpoints(&mut self, step: u64) -> Result<(), TrainError> {
        let staleness = self.work.staleness();
        while let Some((draft, state)) =
            self.drafts.pop_front_if(|(_, state)| state.step + staleness <= step)
        {
            if staleness > 0 && state.step > 0 {
                self.work.save_in_flight(state.step, &draft).await?;
            }
            let (checkpoints, config) =
                (self.checkpoints.clone(), self.settings.checkpoint.clone());
            let path = draft.path().to_owned();
            self.pending
                .start(&path, move || Ok(complete(draft, &state, &checkpoints, &config)?))?;
        }
        Ok(())
    }
}

/// Makes a checkpoint visible, and removes those that are not kept.
fn complete(
    draft: Draft,
    state: &TrainerState,
    checkpoints: &Checkpoints,
    config: &CheckpointConfig,
) -> Result<(), RunDirError> {
    draft.commit(state)?;
    checkpoints.prune(state, config.keep.get(), config.best)
}
