//! Rows of a run, read one after another from the files that grow with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use maverl::run_dir::disk::hex;
use maverl::run_dir::{STEP_SECONDS, UNIX_TIME};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Name of the number of a row.
const STEP: &str = "step";
/// Files of rows: of metrics and of times. Their rows belong together.
const FILES: [&str; 2] = ["metrics.jsonl", "timing.jsonl"];

/// A place between two rows of a run.
#[derive(Debug, Clone)]
pub(super) struct RowPlace {
    /// Bytes of each file before it.
    offsets: [u64; 2],
    /// Last line of each file before it.
    lines: [Vec<u8>; 2],
    /// Hash of the rows of steps before it.
    sha: Sha256,
    /// Time of the row before it, or that at which the run began, in milliseconds since 1970.
    pub(super) clock_ms: u64,
}

/// A row of both files.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WrittenRow {
    pub(super) step: u64,
    /// True for the row of a step, false for that of an evaluation before or after training.
    pub(super) is_step: bool,
    /// Values of both files.
    pub(super) values: BTreeMap<String, f64>,
}

/// A reader of rows.
pub(super) struct RowReader {
    files: [BufReader<File>; 2],
    /// Place behind the row that was read last.
    pub(super) place: RowPlace,
}

impl RowPlace {
    /// Returns the place before the first row of a run that began at a time.
    pub(super) fn start(clock_ms: u64) -> Self {
        Self { offsets: [0; 2], lines: [Vec::new(), Vec::new()], sha: Sha256::new(), clock_ms }
    }

    /// Returns the hash of the rows of steps before it.
    pub(super) fn digest(&self) -> String {
        hex(self.sha.clone().finalize().as_ref())
    }
}

impl RowReader {
    /// Opens the files of a run at a place; at `start` if they have other rows before it, as those of a run that was resumed. `None`
    /// if there are none yet.
    pub(super) fn open(dir: &Path, place: &RowPlace, start: RowPlace) -> io::Result<Option<Self>> {
        let [metrics, timing] = FILES.map(|name| File::open(dir.join(name)));
        let (mut metrics, mut timing) = match (metrics, timing) {
            (Ok(metrics), Ok(timing)) => (metrics, timing),
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let [of_metrics, of_timing] = &place.lines;
        let same = has_line_before(&mut metrics, place.offsets[0], of_metrics)?
            && has_line_before(&mut timing, place.offsets[1], of_timing)?;
        let place = if same { place.clone() } else { start };
        metrics.seek(SeekFrom::Start(place.offsets[0]))?;
        timing.seek(SeekFrom::Start(place.offsets[1]))?;
        Ok(Some(Self { files: [metrics, timing].map(BufReader::new), place }))
    }

    /// Reads the next row. `None` if it is not there, or not whole in both files.
    pub(super) fn next_row(&mut self) -> io::Result<Option<WrittenRow>> {
        let [mut metrics, mut times] = [Vec::new(), Vec::new()];
        for (file, line) in self.files.iter_mut().zip([&mut metrics, &mut times]) {
            file.read_until(b'\n', line)?;
        }
        if !(metrics.ends_with(b"\n") && times.ends_with(b"\n")) {
            return Ok(None);
        }
        let place = &mut self.place;
        place.offsets[0] += metrics.len() as u64;
        place.offsets[1] += times.len() as u64;
        let [mut values, mut seconds] = [parse_values(&metrics)?, parse_values(&times)?];
        let step = values.remove(STEP).unwrap_or_default() as u64;
        seconds.remove(STEP);
        let is_step = seconds.contains_key(STEP_SECONDS);
        if is_step {
            place.sha.update(&metrics);
        }
        place.clock_ms = time_of_row(&seconds, place.clock_ms);
        place.lines = [metrics, times];
        values.extend(seconds);
        Ok(Some(WrittenRow { step, is_step, values }))
    }
}

/// Returns true if a file has a line right before an offset.
fn has_line_before(file: &mut File, offset: u64, line: &[u8]) -> io::Result<bool> {
    if file.metadata()?.len() < offset {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(offset - line.len() as u64))?;
    let mut found = vec![0; line.len()];
    file.read_exact(&mut found)?;
    Ok(found == line)
}

/// Returns the time of a row: its own, or else that of the row before it and the seconds of its step.
fn time_of_row(times: &BTreeMap<String, f64>, before_ms: u64) -> u64 {
    let ms = |seconds: f64| (seconds * 1000.0).round() as u64;
    match times.get(UNIX_TIME) {
        Some(seconds) => ms(*seconds),
        None => before_ms + ms(times.get(STEP_SECONDS).copied().unwrap_or_default()),
    }
}

fn parse_values(line: &[u8]) -> io::Result<BTreeMap<String, f64>> {
    let row: Map<String, Value> = serde_json::from_slice(line)?;
    Ok(row.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::fs;

    fn rows_from(dir: &Path, place: &RowPlace) -> (Vec<(u64, bool, u64)>, RowPlace) {
        let mut reader = RowReader::open(dir, place, RowPlace::start(1000)).unwrap().unwrap();
        let mut rows = Vec::new();
        while let Some(row) = reader.next_row().unwrap() {
            rows.push((row.step, row.is_step, reader.place.clock_ms));
        }
        (rows, reader.place)
    }

    #[test]
    fn rows_are_read_once_as_they_grow_and_anew_if_the_files_were_cut() {
        let dir = tempfile::tempdir().unwrap();
        let start = RowPlace::start(1000);
        assert!(RowReader::open(dir.path(), &start, start.clone()).unwrap().is_none());
        let write = |metrics: &str, timing: &str| {
            fs::write(dir.path().join(FILES[0]), metrics).unwrap();
            fs::write(dir.path().join(FILES[1]), timing).unwrap();
        };
        let first = "{\"step\":0,\"a\":1}\n";
        let second = "{\"step\":1,\"a\":2}\n";
        let times = ["{\"step\":0}\n", "{\"step\":1,\"time/step_s\":0.5}\n"];
        write(&format!("{first}{second}"), times[0]);
        // The row of step 1 has no times yet.
        let (rows, place) = rows_from(dir.path(), &start);
        assert_eq!(rows, [(0, false, 1000)]);
        write(&format!("{first}{second}{{\"st"), &times.concat());
        let (rows, place) = rows_from(dir.path(), &place);
        assert_eq!(rows, [(1, true, 1500)]);
        let digest = Sha256::digest(second);
        assert_eq!(place.digest(), hex(digest.as_ref()));
        assert_eq!(rows_from(dir.path(), &place).0, []);
        write(&format!("{first}{{\"step\":1,\"a\":3}}\n"), &times.concat());
        let (rows, again) = rows_from(dir.path(), &place);
        assert_eq!(rows, [(0, false, 1000), (1, true, 1500)]);
        assert_ne!(again.digest(), place.digest());
        write(first, times[0]);
        assert_eq!(rows_from(dir.path(), &again).0, [(0, false, 1000)]);
    }
}
