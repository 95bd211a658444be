//! Trackers whose package for Python sends the rows: a child process, which gets rows as lines of JSON and answers with the
//! number of each.
//!
//! The package's own process may end at any time. The number of each answered row is kept in `track/NAME.rows`, so that a row is
//! sent once even where this process ends before the cursor is written.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::json;

use super::cursor::Cursor;
use super::server::{SendFailure, Sent};
use super::spool::{RunState, SpoolRow};
use super::{TrackedRun, TrackerClient};

const SCRIPT: &str = include_str!("child.py");
/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run that a package for Python sends.
pub(super) struct PythonClient {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    name: &'static str,
    /// File with the number of rows that were answered.
    answered: PathBuf,
}

/// Returns the number of rows that a package has answered.
fn answered_rows(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

impl PythonClient {
    pub(super) fn open(run: &TrackedRun, name: &'static str, cursor: &mut Cursor) -> Sent<Self> {
        if cursor.run_id.is_empty() {
            cursor.run_id = run.joins.clone().unwrap_or_else(|| cursor.key.clone());
        }
        let answered = run.folder.join(format!("{name}.rows"));
        let taken = answered_rows(&answered);
        if taken > cursor.rows {
            // The digest is that of fewer rows.
            (cursor.rows, cursor.digest) = (taken, String::new());
        }
        cursor.write().map_err(|error| SendFailure::Refused(error.to_string()))?;
        let mut command = Command::new(&run.python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            SendFailure::Refused(format!(
                "`{}` cannot be started: {error}; `--track-python` names a Python",
                run.python
            ))
        })?;
        let input = child.stdin.take();
        let answers = read_answers(&mut child);
        let mut client = Self { child, input, answers, name, answered };
        let config = json!({
            "to": name,
            "project": run.project,
            "name": run.name,
            "group": run.group,
            "id": cursor.run_id,
            "folder": run.folder,
            "config": run.settings,
        });
        client.write(&config)?;
        client.expect("ready")?;
        Ok(client)
    }

    fn write(&mut self, line: &serde_json::Value) -> Sent {
        let gone =
            || SendFailure::Later(format!("the package `{}` has ended", self.name), Duration::ZERO);
        let input = self.input.as_mut().ok_or_else(gone)?;
        input
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| input.flush())
            .map_err(|_| gone())
    }

    /// Waits for an answer.
    fn expect(&mut self, wanted: &str) -> Sent {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) if answer == wanted => Ok(()),
            Ok(other) => Err(SendFailure::Later(
                format!("`{}` answers {other:?}", self.name),
                Duration::ZERO,
            )),
            Err(_) => {
                let message = format!("the package `{}` does not answer, or has ended", self.name);
                Err(SendFailure::Later(message, Duration::ZERO))
            }
        }
    }
}

/// Reads answers in a thread, so that the wait for one can end.
fn read_answers(child: &mut Child) -> Receiver<String> {
    let (sender, answers) = channel();
    let output = child.stdout.take();
    std::thread::spawn(move || {
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    answers
}

impl TrackerClient for PythonClient {
    fn send(&mut self, rows: &[SpoolRow]) -> Sent {
        for row in rows {
            self.write(&json!({
                "index": row.index,
                "step": row.step,
                "metrics": row.metrics,
                "episodes": row.episodes,
            }))?;
            self.expect(&row.index.to_string())?;
            let _ = fs::write(&self.answered, (row.index + 1).to_string());
        }
        Ok(())
    }

    fn finish(&mut self, _: RunState, _: u64) -> Sent {
        drop(self.input.take());
        self.expect("finished")
    }
}

impl Drop for PythonClient {
    fn drop(&mut self) {
        if self.input.take().is_some() {
            // The end of its input lets the package write what it has.
            let _ = self.answers.recv_timeout(Duration::from_secs(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
