//! A process of Python that answers requests, one at a time, each within a time limit. An answer has the number of its request.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::log::PythonLog;
use super::source::PythonFile;

/// Maximum length of an answer in bytes.
const LONGEST: u64 = 32 << 20;
/// Maximum time in which the last output of a process that has ended reaches the log.
const LOGGED: Duration = Duration::from_secs(1);
/// Number of characters of a wrong answer that messages show.
const SHOWN: usize = 80;

/// A running process. Dropping it kills it and its group.
pub(crate) struct PythonProcess {
    child: Child,
    requests: Sender<String>,
    /// Answers; `None` for one that is too long.
    answers: Receiver<Option<String>>,
    /// Number of the last request; 0 for the start.
    number: u64,
    /// Ends when all output is in the log.
    logged: Receiver<()>,
}

/// Reason that a process did not answer. It is of no use any more.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ProcessFailure {
    /// It took longer than this.
    Timeout(Duration),
    /// It ended, or wrote something else than an answer.
    Ended(String),
}

impl std::fmt::Display for ProcessFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Timeout(limit) => write!(f, "took longer than {} s", limit.as_secs_f64()),
            Self::Ended(how) => f.write_str(how),
        }
    }
}

/// Reason that a process did not start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StartFailure {
    /// The file cannot be used; another attempt has the same result.
    File(String),
    /// The process ended, or took too long.
    Process(ProcessFailure),
}

impl StartFailure {
    /// Returns the description for a message.
    pub(crate) fn text(&self, file: &PythonFile, log: &PythonLog) -> String {
        match self {
            Self::File(text) => text.clone(),
            Self::Process(failure @ ProcessFailure::Timeout(_)) => {
                file.located(&format!("loading it {failure} (`start_timeout_s`)"))
            }
            Self::Process(failure) => {
                file.located(&format!("{failure}, before the file was loaded{}", tail(log)))
            }
        }
    }
}

impl PythonProcess {
    /// Starts a program on a file, with further arguments, and waits until the file is loaded. Returns what it says about it.
    ///
    /// # Errors
    ///
    /// If the interpreter does not start, or the file cannot be loaded, or not within the time limit.
    pub(crate) fn start(
        file: &PythonFile,
        program: &str,
        arguments: &[String],
        log: &Arc<PythonLog>,
        limit: Duration,
    ) -> Result<(Self, Value), StartFailure> {
        let mut command = file.command(program);
        command.arg(file.path()).args(arguments);
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt as _;
            // A group of its own, which an interrupt of the terminal does not reach, and which is killed whole.
            command.process_group(0);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            StartFailure::File(format!("`{}` does not run: {error}", file.python))
        })?;
        let (ended, logged) = channel();
        if let Some(errors) = child.stderr.take() {
            let log = Arc::clone(log);
            spawn_thread("python log", move || {
                log.read(errors);
                drop::<Sender<()>>(ended);
            });
        }
        let (requests, to_write) = channel();
        let (read, answers) = channel();
        if let Some((input, output)) = child.stdin.take().zip(child.stdout.take()) {
            spawn_thread("python requests", move || write_lines(input, &to_write));
            spawn_thread("python answers", move || read_lines(output, &read));
        }
        let mut process = Self { child, requests, answers, number: 0, logged };
        let greeting = process.receive(limit).map_err(StartFailure::Process)?;
        match greeting["error"].as_str() {
            Some(error) => Err(StartFailure::File(file.located(error))),
            None => Ok((process, greeting)),
        }
    }

    /// Sends items as a request, and returns its answer.
    pub(crate) fn ask(
        &mut self,
        items: &[Value],
        limit: Duration,
    ) -> Result<Value, ProcessFailure> {
        self.number += 1;
        let request = json!({ "n": self.number, "items": items });
        // A writer that is gone has ended with the process.
        let _ = self.requests.send(request.to_string());
        self.receive(limit)
    }

    fn receive(&mut self, limit: Duration) -> Result<Value, ProcessFailure> {
        match self.answers.recv_timeout(limit) {
            Ok(None) => {
                let longest = LONGEST >> 20;
                let found = format!("its answer is longer than {longest} MiB, so it was killed");
                Err(ProcessFailure::Ended(found))
            }
            Ok(Some(line)) => match serde_json::from_str::<Value>(&line) {
                Ok(answer) if answer["n"] == self.number => Ok(answer),
                _ => {
                    let start: String = line.chars().take(SHOWN).collect();
                    let found = format!("it wrote {start:?} into the channel of its answers");
                    Err(ProcessFailure::Ended(found))
                }
            },
            Err(RecvTimeoutError::Timeout) => Err(ProcessFailure::Timeout(limit)),
            Err(RecvTimeoutError::Disconnected) => Err(ProcessFailure::Ended(self.ending())),
        }
    }

    /// Returns true if the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns how the process ended, whose output has ended.
    fn ending(&mut self) -> String {
        self.kill();
        let _ = self.logged.recv_timeout(LOGGED);
        match self.child.wait() {
            Ok(status) => format!("its process ended: {status}"),
            Err(error) => format!("its process ended: {error}"),
        }
    }

    /// Kills the process and its group. Those that have ended already are no failure.
    fn kill(&mut self) {
        #[cfg(unix)]
        {
            use rustix::process::{Pid, Signal, kill_process_group};
            if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        #[cfg(not(unix))]
        let _ = self.child.kill();
    }
}

impl Drop for PythonProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Returns the last lines of a log, for the end of a message.
pub(super) fn tail(log: &PythonLog) -> String {
    let lines = log.last_lines();
    if lines.is_empty() {
        String::new()
    } else {
        format!("; its last output: {}", lines.join("\n"))
    }
}

/// Starts a thread that ends with the process. Without it, requests time out.
fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    drop(std::thread::Builder::new().name(name.to_owned()).spawn(work));
}

fn write_lines(mut input: ChildStdin, requests: &Receiver<String>) {
    for request in requests {
        let written = input.write_all(request.as_bytes()).and_then(|()| input.write_all(b"\n"));
        if written.and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

fn read_lines(output: impl Read, answers: &Sender<Option<String>>) {
    let mut reader = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        let whole = matches!(read, Ok(n) if n > 0) && line.ends_with(b"\n");
        let too_long = line.len() as u64 == LONGEST;
        if !whole {
            // The send fails only if nobody waits for the answer.
            drop(too_long.then(|| answers.send(None)));
            return;
        }
        if answers.send(Some(String::from_utf8_lossy(&line).into_owned())).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_answer_that_is_too_long_is_not_taken_for_the_end_of_the_process() {
        let (sender, answers) = channel();
        let long = std::io::repeat(b'x').take(LONGEST + 1);
        read_lines(b"{}\n".chain(long), &sender);
        drop(sender);
        assert_eq!(answers.iter().collect::<Vec<_>>(), [Some("{}\n".to_owned()), None]);
        let (sender, answers) = channel();
        read_lines(&b"{}\n{"[..], &sender);
        drop(sender);
        assert_eq!(answers.iter().count(), 1);
    }
}
