//! Collected rows, and where they are from.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::collect::kind::Kind;
use crate::collect::rows::Row;
use crate::run_dir::{FileHash, Provenance};

/// Rows of a data set.
#[derive(Debug, Clone, Default)]
pub struct DataSet {
    /// Rows of the training split.
    pub train: Vec<Row>,
    /// Rows of the test split.
    pub test: Vec<Row>,
    /// Number of removed rows by reason.
    pub removed: BTreeMap<&'static str, u64>,
}

/// Result of a collection.
#[derive(Debug, Clone)]
pub struct Collection {
    /// Data sets by kind.
    pub sets: BTreeMap<Kind, DataSet>,
    /// Number of episodes.
    pub episodes: u64,
    /// Number of episodes without a score, which give no rows.
    pub unscored: u64,
}

/// Origin of the episodes of a collection.
#[derive(Debug, Clone, Serialize)]
pub struct RowSource {
    /// Name of the run.
    pub run: String,
    /// Stage of the episodes.
    pub stage: String,
    /// Number of episodes by step.
    pub steps: BTreeMap<u64, u64>,
    /// Hashes of the files that were read: by their path in the run, or of data that were played, by their name in the
    /// configuration.
    pub files: BTreeMap<String, FileHash>,
    /// Provenance of the run.
    pub provenance: Option<Provenance>,
    /// Checkpoint whose weights played, and further settings of the episodes that were played.
    pub played: Option<Value>,
}
