//! Rows of a run that trackers have, as the cursors in its folder `track` say. `maverl track` writes these.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::journal::{METRICS, STEP_SECONDS, TIMING};
use crate::config::Tracker;

/// Folder of the cursors, rows to send and logs of trackers.
pub const TRACK: &str = "track";

/// Rows that a tracker has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedRows {
    /// Last step whose row is sent; 0 before the first.
    pub last_step: u64,
    /// Steps of the evaluations before and after training whose rows are sent.
    pub evaluated: BTreeSet<u64>,
    /// Address of the run's page at the tracker, if it has told one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A tracker that follows a run, and the number of rows that it lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrackerLag {
    /// Name of the tracker.
    pub tracker: &'static str,
    /// Number of rows of `metrics.jsonl` that are not sent.
    pub rows_behind: usize,
    /// Address of the run's page at the tracker, if it has told one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl TrackerLag {
    /// Returns the lag of a tracker that has some of the rows.
    fn new(tracker: &'static str, sent: TrackedRows, rows: &[(u64, bool)]) -> Self {
        let missing = rows.iter().filter(|(step, is_step)| !sent.has_row(*step, *is_step));
        Self { tracker, rows_behind: missing.count(), url: sent.url }
    }
}

impl TrackedRows {
    /// Returns true if the row of a step, or of an evaluation, is sent.
    pub fn has_row(&self, step: u64, is_step: bool) -> bool {
        if is_step { step <= self.last_step } else { self.evaluated.contains(&step) }
    }
}

impl fmt::Display for TrackerLag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rows_behind {
            0 => write!(f, "{} has every row", self.tracker),
            1 => write!(f, "{} is 1 row behind", self.tracker),
            n => write!(f, "{} is {n} rows behind", self.tracker),
        }?;
        self.url.as_ref().map_or(Ok(()), |url| write!(f, " ({url})"))
    }
}

/// Returns the path of the cursor of a tracker in a run directory.
pub fn tracker_cursor(dir: &Path, tracker: &str) -> PathBuf {
    dir.join(TRACK).join(format!("{tracker}.json"))
}

/// Returns the path of what `maverl track` prints about a tracker while it follows a run.
pub(crate) fn tracker_log(dir: &Path, tracker: &str) -> PathBuf {
    dir.join(TRACK).join(format!("{tracker}.log"))
}

/// Returns the rows that a tracker of a run has: none while a server that is followed has not answered.
fn sent_rows(dir: &Path, tracker: &str) -> Option<TrackedRows> {
    let cursor = tracker_cursor(dir, tracker);
    match fs::read(&cursor) {
        Ok(text) => serde_json::from_slice(&text).ok(),
        Err(_) if cursor.exists() || !tracker_log(dir, tracker).exists() => None,
        Err(_) => Some(TrackedRows::default()),
    }
}

/// Returns the trackers that a run is sent to, with the number of rows that each lacks. A cursor that is unreadable is left out;
/// `maverl track` says why.
pub fn tracker_lags(dir: &Path) -> Vec<TrackerLag> {
    let names = Tracker::ALL.map(Tracker::name).into_iter();
    let cursors = names.filter_map(|name| Some((name, sent_rows(dir, name)?)));
    let cursors: Vec<_> = cursors.collect();
    if cursors.is_empty() {
        return Vec::new();
    }
    let rows = written_rows(dir);
    cursors.into_iter().map(|(tracker, sent)| TrackerLag::new(tracker, sent, &rows)).collect()
}

/// Returns the address of a run's page at a tracker, if the tracker has told one.
pub(crate) fn tracked_url(dir: &Path, tracker: &str) -> Option<String> {
    sent_rows(dir, tracker)?.url
}

/// Returns the step of each row of metrics whose times are written too, and true if it is that of a step, not of an evaluation.
fn written_rows(dir: &Path) -> Vec<(u64, bool)> {
    let [metrics, timing] =
        [METRICS, TIMING].map(|file| fs::read_to_string(dir.join(file)).unwrap_or_default());
    let whole = |line: &&str| line.ends_with('\n');
    let metrics = metrics.split_inclusive('\n').take_while(whole);
    let rows = metrics.zip(timing.split_inclusive('\n').take_while(whole));
    rows.filter_map(|(metrics, times)| {
        let step = serde_json::from_str::<Value>(metrics).ok()?["step"].as_u64()?;
        let times: BTreeMap<String, Value> = serde_json::from_str(times).ok()?;
        Some((step, times.contains_key(STEP_SECONDS)))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_tracker_lacks_the_whole_rows_that_its_cursor_does_not_have() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(tracker_lags(dir.path()), []);
        fs::create_dir(dir.path().join(TRACK)).unwrap();
        let rows = "{\"step\":0,\"a\":1}\n{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"a\":1}\n{\"step\":3}\n{\"st";
        let times = "{\"step\":0}\n{\"step\":1,\"time/step_s\":1}\n{\"step\":2,\"time/step_s\":1}\n{\"step\":2}\n";
        fs::write(dir.path().join(METRICS), rows).unwrap();
        fs::write(dir.path().join(TIMING), times).unwrap();
        let cursor = |name: &str, text: &str| {
            fs::write(tracker_cursor(dir.path(), name), text).unwrap();
        };
        cursor("wandb", r#"{"protocol":1,"last_step":1,"evaluated":[]}"#);
        let url = "http://10.0.0.5:5000/#/experiments/1/runs/2";
        cursor("mlflow", &format!(r#"{{"last_step":2,"evaluated":[0,2],"url":"{url}"}}"#));
        cursor("trackio", r#"{"protocol":1,"last_step":2,"evaluated":[0]}"#);
        cursor("swanlab", "{");
        let lags: Vec<String> = tracker_lags(dir.path()).iter().map(ToString::to_string).collect();
        let every = format!("mlflow has every row ({url})");
        assert_eq!(lags, [&every, "trackio is 1 row behind", "wandb is 3 rows behind"]);
        assert_eq!(tracked_url(dir.path(), "mlflow").as_deref(), Some(url));
    }

    #[test]
    fn a_tracker_whose_server_never_answered_lacks_every_row() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(TRACK)).unwrap();
        fs::write(dir.path().join(METRICS), "{\"step\":1}\n").unwrap();
        fs::write(dir.path().join(TIMING), "{\"step\":1,\"time/step_s\":1}\n").unwrap();
        fs::write(tracker_log(dir.path(), "mlflow"), "").unwrap();
        let lags = tracker_lags(dir.path());
        assert_eq!(lags, [TrackerLag { tracker: "mlflow", rows_behind: 1, url: None }]);
    }
}
