//! A run of several ranks: rank 0 leads, and the others follow. Each step and each evaluation is one of all ranks.
//!
//! Rank 0 runs `run.rs` over [`Led`], a [`Trainable`] that sends each operation to the other ranks before it runs it.
//! They loop over what they receive, run the same operations, and write nothing. Operations of policies run one after
//! the other (`ranks.rs`: `join_all`), because all ranks run collective operations in the same order.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, Checkpoints, Draft, Which};
use crate::eval::EvalSpec;
use crate::run_dir::RolloutWriter;
use crate::run_dir::error::At;
use crate::train::error::TrainError;
use crate::train::ranks::RankPeers;
use crate::train::run::summary::{Report, RunSummary};
use crate::train::run::trainable::{Stepped, Trainable, WriteRest};
use crate::trajectory::Episode;

/// Next operation of all ranks.
#[derive(Debug, Serialize, Deserialize)]
enum RankCommand {
    /// Step, counted from 0.
    Step(u64),
    /// Evaluation on held-out tasks.
    Evaluate(EvalSpec),
    /// Save: rank 0 writes.
    Save,
    /// Return to the checkpoint of a run after so many steps.
    Load(PathBuf, u64),
    /// End of the run.
    End(RunEnd),
}

/// Report of rank 0.
#[derive(Debug, Serialize, Deserialize)]
struct RunEnd {
    dir: PathBuf,
    summary: RunSummary,
    interrupted: bool,
}

/// Training of all ranks, led by this one.
pub(crate) struct Led<W> {
    pub(crate) work: W,
    pub(crate) peers: RankPeers,
}

impl<W> Led<W> {
    async fn command(&self, command: impl FnOnce() -> RankCommand) -> Result<(), TrainError> {
        lead(&self.peers, command).await
    }
}

impl<W: Trainable> Trainable for Led<W> {
    async fn step(
        &mut self,
        step: u64,
        rollouts: &mut RolloutWriter,
    ) -> Result<Stepped, TrainError> {
        self.command(|| RankCommand::Step(step)).await?;
        self.work.step(step, rollouts).await
    }

    async fn evaluate(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError> {
        self.command(|| RankCommand::Evaluate(spec.clone())).await?;
        self.work.evaluate(spec).await
    }

    fn may_give_up(&self) -> bool {
        self.peers.size() == 1
    }

    fn open_in(&mut self, dir: &Path) -> Result<(), TrainError> {
        self.work.open_in(dir)
    }

    async fn save(&self, draft: &Draft) -> Result<WriteRest, TrainError> {
        self.command(|| RankCommand::Save).await?;
        self.work.save(draft).await
    }

    fn staleness(&self) -> u64 {
        self.work.staleness()
    }

    fn awaited_steps(&self) -> u64 {
        self.work.awaited_steps()
    }

    async fn save_in_flight(&mut self, step: u64, draft: &Draft) -> Result<(), TrainError> {
        self.work.save_in_flight(step, draft).await
    }

    async fn share(&self) -> Result<(), TrainError> {
        self.work.share().await
    }

    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let run = checkpoint.path().parent().and_then(Path::parent).unwrap_or(checkpoint.path());
        let (run, step) = (absolute(run)?, checkpoint.state.step);
        self.command(|| RankCommand::Load(run, step)).await?;
        self.work.load(checkpoint).await
    }
}

/// Sends the next operation to the other ranks.
async fn lead(peers: &RankPeers, command: impl FnOnce() -> RankCommand) -> Result<(), TrainError> {
    match peers.ranks() {
        Some(_) => peers.broadcast(Some(command())).await.map(drop),
        None => Ok(()),
    }
}

/// Sends the report of a run to the other ranks, which end.
pub(crate) async fn end(peers: &RankPeers, report: &Report) -> Result<(), TrainError> {
    let Report { dir, summary, interrupted } = report.clone();
    lead(peers, || RankCommand::End(RunEnd { dir, summary, interrupted })).await?;
    peers.finish().await
}

/// Does what rank 0 does until it ends the run. Nothing is written.
pub(crate) async fn follow<W: Trainable>(
    mut work: W,
    peers: &RankPeers,
) -> Result<Report, TrainError> {
    loop {
        match peers.broadcast::<RankCommand>(None).await? {
            RankCommand::Step(step) => {
                work.step(step, &mut RolloutWriter::discarding()).await?;
            }
            RankCommand::Evaluate(spec) => {
                work.evaluate(&spec).await?;
            }
            RankCommand::Save => work.share().await?,
            RankCommand::Load(run, step) => {
                let checkpoint = Checkpoints::of(&run).open(Which::Step(step))?;
                work.load(&checkpoint).await?;
            }
            RankCommand::End(RunEnd { dir, summary, interrupted }) => {
                peers.finish().await?;
                return Ok(Report { dir, summary, interrupted });
            }
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, TrainError> {
    Ok(std::path::absolute(path).at("find", path)?)
}
