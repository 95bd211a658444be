//! Output of a Python file: a file in the run directory, and the last lines for messages.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of last lines that messages show.
const LINES: usize = 20;
/// Maximum length of a line in bytes; longer ones are divided.
const LONGEST: u64 = 8 << 10;

/// Output of the processes of one place of a pool.
#[derive(Default)]
pub(crate) struct PythonLog(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    last: VecDeque<String>,
    file: Option<File>,
}

impl PythonLog {
    /// Appends to a file from now on, and writes what was printed before.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub(crate) fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let mut state = self.state();
        let mut file = File::options().create(true).append(true).open(path)?;
        for line in &state.last {
            writeln!(file, "{line}")?;
        }
        state.file = Some(file);
        Ok(())
    }

    /// Reads a stream to its end.
    pub(super) fn read(&self, stream: impl Read) {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(reader.by_ref().take(LONGEST).read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line);
            self.push(text.trim_end_matches(['\n', '\r']));
            line.clear();
        }
    }

    fn push(&self, line: &str) {
        let mut state = self.state();
        if let Some(file) = &mut state.file {
            // A log that cannot be written stops no run.
            let _ = writeln!(file, "{line}");
        }
        if state.last.len() == LINES {
            state.last.pop_front();
        }
        state.last.push_back(line.to_owned());
    }

    /// Returns the last lines.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.state().last.iter().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
