//! Trackers whose package for Python sends the rows: a child process, which gets rows as lines of JSON and answers with the
//! name of each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::json;

use super::cursor::Cursor;
use super::server::{SendFailure, SendResult};
use super::spool::{RunState, SpoolRow};
use super::{TrackedRun, TrackerClient};

const SCRIPT: &str = include_str!("child.py");
/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest time in which a package writes what it has, after the end of its input. Then its process is killed.
const LAST_WRITES: Duration = Duration::from_secs(600);

/// A run that a package for Python sends.
pub(super) struct PythonClient {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    name: &'static str,
}

impl PythonClient {
    pub(super) fn open(
        run: &TrackedRun,
        name: &'static str,
        cursor: &mut Cursor,
    ) -> SendResult<Self> {
        if cursor.run_id.is_empty() {
            cursor.run_id = run.joins.clone().unwrap_or_else(|| cursor.key.clone());
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
        let mut client = Self { child, input, answers, name };
        let config = json!({
            "to": name,
            "project": run.project,
            "name": run.name,
            "group": run.group,
            "id": cursor.run_id,
            "joins": cursor.run_id != cursor.key,
            "folder": run.folder,
            "config": run.settings,
        });
        client.write(&config)?;
        let answer = client.answer(PATIENCE)?;
        let page = answer.strip_prefix("ready").ok_or_else(|| client.unexpected(&answer))?.trim();
        cursor.sent.url = page.starts_with("http").then(|| page.to_owned());
        Ok(client)
    }

    fn write(&mut self, line: &serde_json::Value) -> SendResult {
        let gone =
            || SendFailure::Later(format!("the package `{}` has ended", self.name), Duration::ZERO);
        let input = self.input.as_mut().ok_or_else(gone)?;
        input
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| input.flush())
            .map_err(|_| gone())
    }

    /// Waits for an answer.
    fn answer(&self, limit: Duration) -> SendResult<String> {
        self.answers.recv_timeout(limit).map_err(|_| {
            let message = format!(
                "the package `{}` does not answer, or has ended; if it was killed, rows that it had not written are missing",
                self.name
            );
            SendFailure::Later(message, Duration::ZERO)
        })
    }

    /// Waits for this answer.
    fn expect(&self, wanted: &str, limit: Duration) -> SendResult {
        let answer = self.answer(limit)?;
        if answer == wanted { Ok(()) } else { Err(self.unexpected(&answer)) }
    }

    fn unexpected(&self, answer: &str) -> SendFailure {
        SendFailure::Later(format!("`{}` answers {answer:?}", self.name), Duration::ZERO)
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
    /// A row that is sent twice would be there twice: each is noted before the next.
    fn batch(&self) -> usize {
        1
    }

    fn send(&mut self, rows: &[SpoolRow]) -> SendResult {
        for row in rows {
            self.write(&json!({
                "id": row.name(),
                "step": row.step,
                "time_ms": row.time_ms,
                "metrics": row.metrics,
                "episodes": row.episodes,
            }))?;
            self.expect(&row.name(), PATIENCE)?;
        }
        Ok(())
    }

    fn finish(&mut self, _: RunState, _: u64) -> SendResult {
        drop(self.input.take());
        self.expect("finished", LAST_WRITES)
    }
}

impl Drop for PythonClient {
    fn drop(&mut self) {
        // The end of its input lets the package write what it has. It is killed only if it does not end.
        drop(self.input.take());
        let end = Instant::now() + LAST_WRITES;
        while self.answers.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests;
