//! Trackers of a run, and the rows that they lack.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use maverl::config::Tracker;
use maverl::run_dir::{TrackerLag, tracker_cursor, tracker_lags};

/// Times of the cursors of trackers, and lengths of the files of rows: with equal ones, trackers lack the same rows.
type Stamps = ([Option<SystemTime>; Tracker::ALL.len()], [u64; 2]);

/// Trackers of a run.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    lags: Vec<TrackerLag>,
    stamps: Stamps,
}

impl Tracking {
    /// Looks at the cursors in a run directory, whose files of metrics and times have these lengths.
    pub(crate) fn poll(&mut self, dir: &Path, lengths: [u64; 2]) {
        let written = |tracker: Tracker| {
            fs::metadata(tracker_cursor(dir, tracker.name())).and_then(|it| it.modified()).ok()
        };
        let stamps = (Tracker::ALL.map(written), lengths);
        if stamps != self.stamps {
            self.lags = tracker_lags(dir);
            self.stamps = stamps;
        }
    }

    /// Returns a sentence for each tracker that lacks rows.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let behind = self.lags.iter().filter(|lag| lag.rows_behind > 0);
        behind.map(|lag| format!("tracking: {lag}")).collect()
    }
}
