//! Paths of the files of a run, and those that are read whole.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use maverl::run_dir::{SpanRow, StepSamples, TRAIN, TurnTime, read_clock, read_samples};

use crate::report::problem::ReportProblem;

/// Files of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunFiles {
    path: PathBuf,
}

impl RunFiles {
    /// Creates the files of the run in a directory.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the directory of the run.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file of the episodes of a stage; `None` if there is no such stage.
    pub(crate) fn episodes_file(&self, stage: &str, step: u64) -> Option<PathBuf> {
        let file = match stage {
            TRAIN => format!("rollouts/step-{step:06}.jsonl.zst"),
            "validation" => format!("evaluations/step-{step:06}.jsonl.zst"),
            "before" | "before-greedy" | "after" | "after-greedy" => {
                format!("evaluations/{stage}.jsonl.zst")
            }
            _ => return None,
        };
        Some(self.path.join(file))
    }

    /// Returns the file of the quantities of a step's tokens.
    pub(crate) fn tokens_file(&self, step: u64) -> PathBuf {
        self.path.join(format!("samples/step-{step:06}.tokens.safetensors.zst"))
    }

    /// Returns the file of the likeliest tokens of an episode, which `maverl replay --top` writes on request.
    pub(crate) fn alternatives_file(&self, step: u64, n: usize) -> PathBuf {
        self.path.join(format!("samples/step-{step:06}.top-{n}.json"))
    }

    /// Returns the file of the samples of a step.
    pub(crate) fn samples_file(&self, step: u64) -> PathBuf {
        self.path.join(format!("samples/step-{step:06}.jsonl.zst"))
    }

    /// Returns the file of the times of the turns of a step.
    pub(crate) fn clock_file(&self, step: u64) -> PathBuf {
        self.path.join(format!("clock/step-{step:06}.jsonl.zst"))
    }

    /// Returns the samples of a step; `None` if the run has no record of them.
    pub(crate) fn read_samples(&self, step: u64) -> Result<Option<StepSamples>, ReportProblem> {
        let path = self.samples_file(step);
        if !path.is_file() {
            return Ok(None);
        }
        read_samples(&path).map(Some).map_err(ReportProblem::unreadable)
    }

    /// Reads the rows of `spans.jsonl`. An incomplete last line is skipped, and so is a run without times.
    pub(crate) fn read_spans(&self) -> Vec<SpanRow> {
        let Ok(file) = File::open(self.path.join("spans.jsonl")) else { return Vec::new() };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        lines.filter_map(|line| serde_json::from_slice(line.as_bytes()).ok()).collect()
    }

    /// Returns the times of the turns of a step; `None` if there are none.
    pub(crate) fn read_clock(&self, step: u64) -> Result<Option<Vec<TurnTime>>, ReportProblem> {
        let path = self.clock_file(step);
        if !path.is_file() {
            return Ok(None);
        }
        read_clock(&path).map(Some).map_err(ReportProblem::unreadable)
    }
}
