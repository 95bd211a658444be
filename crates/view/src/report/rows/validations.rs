//! Reports of validations between steps, read once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::Value;

use crate::compact::sort_by;
use maverl::run_dir::disk::{entries, name, read_json, step_of};

/// Length of a file, and the time at which it was written.
type ReportStamp = (u64, Option<SystemTime>);

/// Reports of a run by their files.
#[derive(Default)]
pub(crate) struct Validations(Mutex<BTreeMap<PathBuf, (ReportStamp, Value)>>);

impl Validations {
    /// Returns step, split, share of solved episodes and its interval of every validation of a run, by step.
    pub(crate) fn of_run(&self, run: &Path) -> Vec<Value> {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = entries(&run.join("evaluations")).unwrap_or_default();
        files.retain(|path| name(path).ends_with(".json") && step_of(path).is_some());
        read.retain(|path, _| files.contains(path));
        for path in files {
            let Ok(found) = path.metadata() else { continue };
            let stamp = (found.len(), found.modified().ok());
            if read.get(&path).is_none_or(|(known, _)| *known != stamp) {
                // A file that is being replaced is read at the next look.
                let Ok(report) = read_json::<Value>(&path) else { continue };
                let of = &report["overall"]["avg"];
                let (mean, low, high) = (&of["mean"], &of["low"], &of["high"]);
                let row = object!({
                    "step": step_of(&path), "split": report["split"], "mean": mean, "low": low, "high": high,
                });
                read.insert(path, (stamp, row));
            }
        }
        let mut rows: Vec<Value> = read.values().map(|(_, row)| row.clone()).collect();
        sort_by(&mut rows, |a, b| a["step"].as_u64().cmp(&b["step"].as_u64()));
        rows
    }
}
