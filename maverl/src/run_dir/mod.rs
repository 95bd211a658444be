//! The run directory: the complete record of a run, in files that can be read without maverl.
//!
//! ```text
//! runs/search-1/
//!   config.toml  resolved.toml       the configuration as given, and with every default
//!   provenance.json                  version, hashes of data and weights, device
//!   metrics.jsonl                    one row per step, without a clock: equal runs have equal files
//!   timing.jsonl                     times of each step
//!   events.out.tfevents.0.maverl     both, for TensorBoard
//!   episodes.jsonl                   one row per episode, with its place in the files of episodes
//!   warnings.jsonl                   every warning with its step
//!   spans.jsonl                      when the parts of each step began and how long they lasted
//!   plan.json                        seats, policies and memory, as `maverl check --json`
//!   progress.json                    what a running process does; replaced every second, absent after the end
//!   rollouts/step-000012.jsonl.zst   every episode and turn of a step, token ids and log-probs included
//!   samples/step-000012.jsonl.zst    every trained turn of a step, with the terms of its advantage
//!   samples/step-000012.tokens.safetensors.zst   quantities of every trained token, in some steps
//!   tokenizers/small.json.zst        tokenizer of each policy
//!   clock/step-000012.jsonl.zst      when each turn was asked and answered
//!   evaluations/before.json          see `EvalReport`; its episodes are in `before.jsonl.zst`
//!   checkpoints/step-000010/         see `Checkpoints`
//!   track/                           what trackers have of the run, with their logs; absent without a tracker
//!   summary.json  manifest.json      results; checksums of all files
//! ```
//!
//! A directory appears under its name only when its first three files are complete. When a run is resumed, growing
//! files are truncated to the state that the last checkpoint recorded; all others are replaced whole. At any time, the
//! manifest holds the checksums of all files that will not change, and the newest checkpoint those of the start of the
//! growing files.
//!
//! Files get the permissions of the directory, which its owner alone can read at first. A directory has no absolute
//! path but those that the user wrote: `base` in its `config.toml` leads to where relative paths start.

mod append;
mod clock;
#[doc(hidden)]
pub mod disk;
pub(crate) mod error;
mod evaluations;
mod events;
mod files;
mod format;
mod journal;
mod lines;
mod manifest;
mod origin;
mod packed;
mod provenance;
mod rollouts;
mod rows;
mod samples;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod tokenizers;
mod tokens;
mod top;
mod tracked;

#[doc(hidden)]
pub use clock::{SpanRecord, SpanRow, TurnTime, WorkerSample, read_clock};
pub use error::RunDirError;
pub use files::Missing;
pub(crate) use files::rollouts_of;
#[doc(hidden)]
pub use format::{ChangedFile, FORMAT};
#[doc(hidden)]
pub use journal::{Journal, STEP_SECONDS, UNIX_TIME};
#[doc(hidden)]
pub use lines::EpisodePosition;
#[doc(hidden)]
pub use manifest::{FileHash, MANIFEST, Manifest};
#[doc(hidden)]
pub use origin::{HELD_OUT, Origin};
#[doc(hidden)]
pub use provenance::Provenance;
pub(crate) use rollouts::places;
#[doc(hidden)]
pub use rollouts::{RolloutWriter, read_episode, read_first_rollouts, write_rollouts};
#[doc(hidden)]
pub use rollouts::{Texts, is_growing, scan_texts};
pub use rollouts::{read_ended_rollouts, read_rollouts};
#[doc(hidden)]
pub use rows::{EpisodeRow, SeatCounts, TRAIN, scan_rollouts};
#[doc(hidden)]
pub use samples::AdvantageTerms;
pub use samples::{
    EstimatorRecord, GroupRecord, ReplayedRecord, SampleRecord, StepSamples, read_samples,
};
#[doc(hidden)]
pub use text::episode_text;
#[doc(hidden)]
pub use tokenizers::{read_tokenizer, tokenizer};
pub use tokens::{TokenRecord, read_tokens};
#[doc(hidden)]
pub use top::{TopRecord, TopTurn, read_top};
#[doc(hidden)]
pub use tracked::{TRACK, TrackedRows, TrackerLag, tracker_cursor, tracker_lags};
pub(crate) use tracked::{tracked_url, tracker_log};

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use self::clock::CLOCK;
use self::disk::{
    TEMPORARY, create_private_dir, entries, name, parent, read_json, remove, sync_dir, sync_tree,
    write_atomic, write_json,
};
use self::error::{At, damaged_error, encode_error};
use self::files::Kind;
use self::tokenizers::TOKENIZERS;
use crate::config::Config;
use crate::config::table::text_of;

const CONFIG: &str = "config.toml";
pub(crate) const RESOLVED: &str = "resolved.toml";
const PROVENANCE: &str = "provenance.json";
const SUMMARY: &str = "summary.json";
/// Name of the file of the plan in numbers.
#[doc(hidden)]
pub const PLAN: &str = "plan.json";
/// Name of the file of the progress of a running process.
#[doc(hidden)]
pub const PROGRESS: &str = "progress.json";

/// Directory that a run is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunLocation {
    /// `<parent>/<stem>-<n>` with the first free n.
    Next {
        /// Parent directory, usually `runs`.
        parent: PathBuf,
        /// Name without the number, usually the stem of the configuration file.
        stem: String,
    },
    /// This directory, which is empty or does not exist.
    New(PathBuf),
    /// Directory of a run that is resumed.
    Resume(PathBuf),
}

impl RunLocation {
    /// Creates the directory of a run, or opens that of a run that is resumed.
    pub(crate) fn directory(&self, origin: &Origin) -> Result<RunDir, RunDirError> {
        match self {
            Self::Next { parent, stem } => RunDir::create_next(parent, stem, origin),
            Self::New(path) => RunDir::create(path, origin),
            Self::Resume(path) => RunDir::open(path),
        }
    }
}

/// A run directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
pub struct RunDir {
    path: PathBuf,
    /// Files that are complete and do not change any more.
    manifest: Manifest,
}

impl RunDir {
    /// Creates a new run directory.
    ///
    /// # Errors
    ///
    /// If the directory is not empty, or cannot be written.
    pub fn create(path: &Path, origin: &Origin) -> Result<Self, RunDirError> {
        if let Some(file) = path.ancestors().find(|above| above.is_file()) {
            return Err(RunDirError::AFile { path: file.to_owned() });
        }
        if path.exists() && !entries(path)?.is_empty() {
            return Err(RunDirError::NotEmpty { path: path.to_owned() });
        }
        let above = parent(path);
        let staged = above.join(format!("{TEMPORARY}{}-{}", name(path), std::process::id()));
        fs::create_dir_all(above).at("make", above)?;
        sweep_of_the_dead(path)?;
        let made = origin.placed_in(path).and_then(|origin| stage(&staged, &origin));
        let made = made.and_then(|manifest| {
            // Renaming replaces an empty directory and fails for any other, so two runs never share one.
            fs::rename(&staged, path).map_err(|source| match source.kind() {
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                    RunDirError::NotEmpty { path: path.to_owned() }
                }
                _ => RunDirError::Io { action: "make", path: path.to_owned(), source },
            })?;
            Ok(manifest)
        });
        let manifest = made.inspect_err(|_| {
            // A remaining temporary directory only takes space. The first error is the one to report.
            let _ = remove(&staged);
        })?;
        sync_dir(above)?;
        Ok(Self { path: path.to_owned(), manifest })
    }

    /// Creates `<parent>/<stem>-<n>` with the first free n.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn create_next(parent: &Path, stem: &str, origin: &Origin) -> Result<Self, RunDirError> {
        loop {
            match Self::create(&next(parent, stem), origin) {
                Err(RunDirError::NotEmpty { .. }) => {} // another process created it first
                made => return made,
            }
        }
    }

    /// Opens a run directory for reading.
    ///
    /// # Errors
    ///
    /// If it is not a run directory, has an unknown format, or its origin was changed.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        if !path.join(MANIFEST).is_file() {
            return Err(RunDirError::NotARun { path: path.to_owned() });
        }
        let manifest = Manifest::read(path)?;
        for file in [CONFIG, RESOLVED, PROVENANCE] {
            if !manifest.files.contains_key(file) {
                return Err(damaged_error(
                    &path.join(MANIFEST),
                    format!("it does not list `{file}`"),
                ));
            }
        }
        manifest.verify(path, |file| Kind::of(file) == Kind::Origin).map_err(
            |error| match error {
                RunDirError::Damaged { path, reason } if name(&path) != PROVENANCE => {
                    damaged_error(&path, format!("{reason}; {EDITED}"))
                }
                other => other,
            },
        )?;
        Ok(Self { path: path.to_owned(), manifest })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the configuration with every default, a valid configuration file.
    pub fn resolved(&self) -> PathBuf {
        self.path.join(RESOLVED)
    }

    /// Returns the origin of the run.
    ///
    /// # Errors
    ///
    /// If a file of it cannot be read.
    pub fn origin(&self) -> Result<Origin, RunDirError> {
        let config =
            self.read_text(RESOLVED)?.parse::<toml::Table>().map_err(|error| error.to_string());
        let config = config.and_then(|table| Config::of_table(&table));
        let config = config.map_err(|reason| damaged_error(&self.path.join(RESOLVED), reason))?;
        let provenance = read_json(&self.path.join(PROVENANCE))?;
        let base = self.path.join(config.base.as_deref().unwrap_or_default());
        let base = base.canonicalize().unwrap_or(base);
        Ok(Origin { given: self.read_text(CONFIG)?, config, base, provenance })
    }

    fn read_text(&self, file: &str) -> Result<String, RunDirError> {
        let path = self.path.join(file);
        fs::read_to_string(&path).at("read", &path)
    }

    /// Writes a file of the run, and lists it in the manifest.
    fn write_listed(&mut self, file: String, bytes: &[u8]) -> Result<(), RunDirError> {
        write_atomic(&self.path.join(&file), bytes)?;
        self.manifest.files.insert(file, FileHash::of(bytes));
        Ok(())
    }

    /// Compares another origin with that of the run.
    ///
    /// # Errors
    ///
    /// [`RunDirError::Changed`] with every difference in settings that may not change on resume.
    pub fn compare(&self, now: &Origin) -> Result<(), RunDirError> {
        let differences = self.origin()?.differences(now, &self.path)?;
        if differences.is_empty() {
            return Ok(());
        }
        Err(RunDirError::Changed { path: self.path.clone(), differences })
    }

    /// Returns true if a process is writing the run.
    pub fn is_running(&self) -> bool {
        Journal::is_locked(&self.path)
    }

    /// Returns true if the run has any row of metrics.
    pub fn has_rows(&self) -> bool {
        Journal::has_rows(&self.path)
    }
}

/// Message about an edited configuration in a run directory.
const EDITED: &str = "a run goes on with the configuration it has: put the file back as it was, and give what may change \
                      beside `--resume`, as in `--steps 200` or `--set algorithm.max_flat_steps=20`";

/// Returns `<parent>/<stem>-<n>` with the first free n.
pub(crate) fn next(parent: &Path, stem: &str) -> PathBuf {
    let free = (1_u64..).find(|n| !parent.join(format!("{stem}-{n}")).exists());
    parent.join(format!("{stem}-{}", free.unwrap_or(1)))
}

/// Removes temporary directories of this run that were left by dead processes.
fn sweep_of_the_dead(path: &Path) -> Result<(), RunDirError> {
    let prefix = format!("{TEMPORARY}{}-", name(path));
    for left in entries(parent(path))? {
        let process = name(&left).strip_prefix(&prefix).and_then(|process| process.parse().ok());
        if process.is_some_and(is_dead) {
            remove(&left)?;
        }
    }
    Ok(())
}

/// Returns true for a dead process. This is known only where `/proc` exists.
fn is_dead(process: u32) -> bool {
    Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{process}")).exists()
}

fn resolved(config: &Config, dir: &Path) -> Result<String, RunDirError> {
    text_of(config).map_err(|error| encode_error(&dir.join(RESOLVED), error))
}

/// Writes the initial files of a run directory, durably, under a temporary name.
fn stage(staged: &Path, origin: &Origin) -> Result<Manifest, RunDirError> {
    remove(staged)?;
    let parts = ["rollouts", "samples", TOKENIZERS, CLOCK, "evaluations", "checkpoints"];
    for part in std::iter::once("").chain(parts) {
        let dir = staged.join(part);
        create_private_dir(&dir).at("make", &dir)?;
    }
    write_atomic(&staged.join(CONFIG), origin.given.as_bytes())?;
    write_atomic(&staged.join(RESOLVED), resolved(&origin.config, staged)?.as_bytes())?;
    write_json(&staged.join(PROVENANCE), &origin.provenance)?;
    let manifest = Manifest::of(staged)?;
    manifest.write(staged)?;
    sync_tree(staged)?;
    Ok(manifest)
}
