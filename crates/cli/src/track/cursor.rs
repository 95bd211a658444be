//! Cursor of a tracker: a file in the folder `track` of the run directory, which says what it has of the run.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use maverl::run_dir::disk::hex;
use maverl::run_dir::{TrackedRows, tracker_cursor};
use serde::{Deserialize, Serialize};

use super::spool::SpoolRow;

/// Version of the file.
const PROTOCOL: u64 = 1;

/// Rows of a run that a tracker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    protocol: u64,
    /// Name of the tracker.
    to: String,
    /// Name that this run has for ever, drawn once.
    pub(super) key: String,
    /// Id of the run at the tracker; empty until it is known.
    pub(super) run_id: String,
    /// True if the configuration is sent.
    pub(super) described: bool,
    /// Rows that are sent.
    #[serde(flatten)]
    pub(super) sent: TrackedRows,
    /// SHA-256 of the rows of the steps that are sent, in `metrics.jsonl`.
    pub(super) digest: String,
    #[serde(skip)]
    path: PathBuf,
}

impl Cursor {
    /// Reads the cursor of a tracker, or makes one for a run that was never sent.
    pub(super) fn open(dir: &Path, to: &str) -> io::Result<Self> {
        let path = tracker_cursor(dir, to);
        match fs::read(&path) {
            Ok(text) => {
                let cursor: Self = serde_json::from_slice(&text)?;
                if cursor.protocol != PROTOCOL {
                    let message = format!("{} is of another version of maverl", path.display());
                    return Err(io::Error::other(message));
                }
                Ok(Self { path, ..cursor })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let cursor = Self {
                    protocol: PROTOCOL,
                    to: to.to_owned(),
                    key: random_key()?,
                    run_id: String::new(),
                    described: false,
                    sent: TrackedRows::default(),
                    digest: String::new(),
                    path,
                };
                cursor.write()?;
                Ok(cursor)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes rows that are sent.
    pub(super) fn add_rows(&mut self, Pending { rows, digest }: Pending) {
        for row in rows {
            if row.is_step {
                self.sent.last_step = self.sent.last_step.max(row.step);
            } else {
                self.sent.evaluated.insert(row.step);
            }
        }
        self.digest = digest;
    }

    /// Replaces the file.
    pub(super) fn write(&self) -> io::Result<()> {
        write_whole(&self.path, &serde_json::to_vec(self)?)
    }
}

/// Rows that are being sent. A process that is ended between sending and writing its cursor sends the same ones again, with the
/// same times, even if the run has written them again in the meantime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) rows: Vec<SpoolRow>,
    /// Digest of the rows of steps up to the last.
    pub(super) digest: String,
}

impl Pending {
    /// Reads the rows that an earlier process was sending, unless they are sent.
    pub(super) fn open(cursor: &Cursor) -> Option<Self> {
        let text = fs::read(cursor.path.with_extension("pending.json")).ok()?;
        let pending: Self = serde_json::from_slice(&text).ok()?;
        let unsent = |row: &SpoolRow| !cursor.sent.has_row(row.step, row.is_step);
        pending.rows.first().is_some_and(unsent).then_some(pending)
    }

    /// Replaces the file.
    pub(super) fn write(&self, cursor: &Cursor) -> io::Result<()> {
        write_whole(&cursor.path.with_extension("pending.json"), &serde_json::to_vec(self)?)
    }
}

/// Replaces a file.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut file = fs::File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(part, path)
}

/// Draws 16 bytes from the system.
fn random_key() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}
