//! The run directory: the whole truth of a run, in files that can be read without maverl.
//!
//! ```text
//! runs/search-1/
//!   config.toml  resolved.toml       the configuration as given, and with every default
//!   provenance.json                  version, hashes of data and weights, device
//!   metrics.jsonl                    a row a step, no clock: equal runs have equal files
//!   timing.jsonl                     the clock's part
//!   events.out.tfevents.0.maverl     the same for TensorBoard
//!   rollouts/step-000012.jsonl.zst   every episode and turn of a step, token ids and log-probs included
//!   evaluations/before.json          see `EvalReport`
//!   checkpoints/step-000010/         see `Checkpoints`
//!   summary.json  manifest.json      what came of it; checksums of all files
//! ```
//!
//! A directory appears under its name only when its first three files are complete. Files that grow are cut back to
//! what the last checkpoint knows when a run is resumed; all others are replaced whole.

mod append;
pub(crate) mod disk;
pub(crate) mod error;
mod events;
mod journal;
mod manifest;
mod provenance;
mod rollouts;
#[cfg(test)]
pub(crate) mod tests;

pub use error::RunDirError;
pub use journal::{Journal, STEP_SECONDS};
pub use manifest::{FORMAT, FileHash, MANIFEST, Manifest};
pub use provenance::Provenance;
pub use rollouts::{read_rollouts, write_rollouts};

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use self::disk::{TEMPORARY, step_of, write_json};
use self::disk::{
    entries, name, parent, read_json, remove, sweep, sync_dir, sync_tree, write_atomic,
};
use self::error::{At, damaged};
use crate::config::{Config, RuntimeConfig};
use crate::metrics::Metrics;

const CONFIG: &str = "config.toml";
const RESOLVED: &str = "resolved.toml";
const PROVENANCE: &str = "provenance.json";

/// Which directory a run is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `<parent>/<stem>-<n>` with the first free n.
    Next {
        /// Usually `runs`.
        parent: PathBuf,
        /// Usually the stem of the configuration file.
        stem: String,
    },
    /// This directory, which is empty or not there yet.
    New(PathBuf),
    /// A run directory, whose run is continued.
    Resume(PathBuf),
}

/// What a run starts from; written before its first step and compared when it is resumed.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// The configuration as the user gave it; empty where there was no file.
    pub given: String,
    /// The configuration with every default.
    pub config: Config,
    /// Data, weights, version, machine.
    pub provenance: Provenance,
}

/// A run directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes a new run directory.
    ///
    /// # Errors
    ///
    /// If the directory has something in it, or cannot be written.
    pub fn create(path: &Path, origin: &Origin) -> Result<Self, RunDirError> {
        if path.exists() && !entries(path)?.is_empty() {
            return Err(RunDirError::NotEmpty { path: path.to_owned() });
        }
        let above = parent(path);
        let staged = above.join(format!("{TEMPORARY}{}-{}", name(path), std::process::id()));
        fs::create_dir_all(above).at("make", above)?;
        sweep_of_the_dead(path)?;
        let made = stage(&staged, origin).and_then(|()| {
            // Renaming replaces an empty directory and refuses any other, so two runs never share one.
            fs::rename(&staged, path).map_err(|source| match source.kind() {
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                    RunDirError::NotEmpty { path: path.to_owned() }
                }
                _ => RunDirError::Io { action: "make", path: path.to_owned(), source },
            })
        });
        if let Err(error) = made {
            // What is left only takes space; the error worth telling is the first one.
            let _ = remove(&staged);
            return Err(error);
        }
        sync_dir(above)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Makes `<parent>/<stem>-<n>` with the first free n.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn create_next(parent: &Path, stem: &str, origin: &Origin) -> Result<Self, RunDirError> {
        let mut n = 1u64;
        loop {
            let path = parent.join(format!("{stem}-{n}"));
            if !path.exists() {
                match Self::create(&path, origin) {
                    Err(RunDirError::NotEmpty { .. }) => {} // another process was faster
                    made => return made,
                }
            }
            n += 1;
        }
    }

    /// Opens a run directory for reading.
    ///
    /// # Errors
    ///
    /// If it is none, has an unknown format, or what its run started from is damaged.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        if !path.join(MANIFEST).is_file() {
            return Err(RunDirError::NotARun { path: path.to_owned() });
        }
        // `resolved.toml` is compared by value on resume, where `steps` may be rewritten.
        Manifest::read(path)?.verify(path, |file| file == CONFIG || file == PROVENANCE)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration with every default: a file that `maverl` reads like any other.
    pub fn resolved(&self) -> PathBuf {
        self.path.join(RESOLVED)
    }

    /// What the run started from.
    ///
    /// # Errors
    ///
    /// If a file of it cannot be read.
    pub fn origin(&self) -> Result<Origin, RunDirError> {
        let read = |file: &str| {
            let path = self.path.join(file);
            fs::read_to_string(&path).at("read", &path)
        };
        let config = toml::from_str(&read(RESOLVED)?)
            .map_err(|e| damaged(&self.path.join(RESOLVED), e.to_string()))?;
        let provenance = read_json(&self.path.join(PROVENANCE))?;
        Ok(Origin { given: read(CONFIG)?, config, provenance })
    }

    /// Refuses anything else than the run started from.
    ///
    /// # Errors
    ///
    /// [`RunDirError::Changed`] with every difference, if anything but `steps` and the machine differs.
    pub fn compare(&self, now: &Origin) -> Result<(), RunDirError> {
        let differences = self.origin()?.differences(now, &self.path)?;
        if differences.is_empty() {
            return Ok(());
        }
        Err(RunDirError::Changed { path: self.path.clone(), differences })
    }

    /// Prepares the directory for going on after `step`, perhaps for more steps than before: what a crash left and what
    /// belongs to later steps is removed.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn reopen(&self, config: &Config, step: u64) -> Result<(), RunDirError> {
        for part in ["", "rollouts", "evaluations"] {
            sweep(&self.path.join(part))?;
        }
        remove(&self.summary())?;
        if config.steps > step {
            remove(&self.evaluation("after"))?;
        }
        let later = entries(&self.path.join("rollouts"))?
            .into_iter()
            .filter(|path| step_of(path).is_some_and(|of| of > step));
        later.into_iter().try_for_each(|path| remove(&path))?;
        let path = self.path.join(RESOLVED);
        write_atomic(&path, resolved(config, &self.path)?.as_bytes())?;
        // While a run is under way the manifest lists what does not change any more.
        let mut manifest = Manifest::read(&self.path)?;
        manifest.files.retain(|file, _| file == CONFIG || file == PROVENANCE);
        manifest.write(&self.path)
    }

    /// The rollouts of a step.
    pub fn rollouts(&self, step: u64) -> PathBuf {
        self.path.join(format!("rollouts/step-{step:06}.jsonl.zst"))
    }

    /// The steps there are rollouts of, ascending.
    ///
    /// # Errors
    ///
    /// If the directory cannot be listed.
    pub fn rollout_steps(&self) -> Result<Vec<u64>, RunDirError> {
        let mut steps: Vec<u64> =
            entries(&self.path.join("rollouts"))?.iter().filter_map(|path| step_of(path)).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The metrics of every step, by step; those of the evaluation before training are step 0's.
    ///
    /// # Errors
    ///
    /// If `metrics.jsonl` cannot be read.
    pub fn metrics(&self) -> Result<BTreeMap<u64, Metrics>, RunDirError> {
        Journal::metrics(&self.path)
    }

    /// The report of an evaluation (`before`, `after`).
    pub fn evaluation(&self, name: &str) -> PathBuf {
        self.path.join(format!("evaluations/{name}.json"))
    }

    /// What came of the run.
    pub fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// Whether the run has appended any row of metrics.
    pub fn has_rows(&self) -> bool {
        Journal::has_rows(&self.path)
    }

    /// Lists every file in the manifest. Called when nothing is being written.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or the manifest cannot be written.
    pub fn seal(&self) -> Result<(), RunDirError> {
        Manifest::of(&self.path)?.write(&self.path)
    }
}

impl Origin {
    /// Everything that makes another run of it, as lines for the user: not `steps`, nor what of the machine no result
    /// depends on.
    fn differences(&self, now: &Self, path: &Path) -> Result<Vec<String>, RunDirError> {
        let mut lines = Vec::new();
        let value = |config: &Config| {
            let micro_batch_tokens = config.runtime.micro_batch_tokens;
            let runtime = RuntimeConfig { micro_batch_tokens, ..RuntimeConfig::default() };
            let config = Config { steps: 0, runtime, ..config.clone() };
            toml::Value::try_from(config).map_err(|e| RunDirError::Encode {
                path: path.join(RESOLVED),
                reason: e.to_string(),
            })
        };
        compare("", Some(&value(&self.config)?), Some(&value(&now.config)?), &mut lines);
        self.provenance.differences(&now.provenance, &mut lines);
        Ok(lines)
    }
}

/// Adds a line for each leaf at which two configurations differ.
fn compare(
    key: &str,
    then: Option<&toml::Value>,
    now: Option<&toml::Value>,
    lines: &mut Vec<String>,
) {
    if then == now {
        return;
    }
    if let (Some(toml::Value::Table(then)), Some(toml::Value::Table(now))) = (then, now) {
        let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            let part = if plain { name.clone() } else { format!("{name:?}") };
            let key = if key.is_empty() { part } else { format!("{key}.{part}") };
            compare(&key, then.get(name), now.get(name), lines);
        }
        return;
    }
    let show =
        |value: Option<&toml::Value>| value.map_or("not set".to_owned(), ToString::to_string);
    lines.push(format!("`{key}` was {}, is {}", show(then), show(now)));
}

/// Removes what processes that are gone have left of this run directory under a temporary name. Whether one is gone is
/// known where there is `/proc`.
fn sweep_of_the_dead(path: &Path) -> Result<(), RunDirError> {
    let prefix = format!("{TEMPORARY}{}-", name(path));
    let gone = |process: u32| {
        Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{process}")).exists()
    };
    for left in entries(parent(path))? {
        let process = name(&left).strip_prefix(&prefix).and_then(|process| process.parse().ok());
        if process.is_some_and(gone) {
            remove(&left)?;
        }
    }
    Ok(())
}

fn resolved(config: &Config, dir: &Path) -> Result<String, RunDirError> {
    toml::to_string_pretty(config)
        .map_err(|e| RunDirError::Encode { path: dir.join(RESOLVED), reason: e.to_string() })
}

/// Everything a run directory begins with, durable, under a temporary name.
fn stage(staged: &Path, origin: &Origin) -> Result<(), RunDirError> {
    remove(staged)?;
    for part in ["", "rollouts", "evaluations", "checkpoints"] {
        let dir = staged.join(part);
        fs::create_dir(&dir).at("make", &dir)?;
    }
    write_atomic(&staged.join(CONFIG), origin.given.as_bytes())?;
    write_atomic(&staged.join(RESOLVED), resolved(&origin.config, staged)?.as_bytes())?;
    write_json(&staged.join(PROVENANCE), &origin.provenance)?;
    Manifest::of(staged)?.write(staged)?;
    sync_tree(staged)
}
