//! The process of an episode's program, in a group of its own.

mod command;

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use command::program_command;

#[cfg(unix)]
use super::cleanup;
use super::directory::EpisodeDirectory;
use super::log::Log;
use super::options::ProgramOptions;

/// Time that a program has to end by itself after it has finished its episode.
const PARTING: Duration = Duration::from_secs(2);
/// Time between the request to end and the end by force.
const FORCE: Duration = Duration::from_secs(5);
/// Time in which the output of an ended program is read to its end.
const OUTPUT: Duration = Duration::from_secs(2);
/// Maximum length of a line of output that is read.
const LONGEST: usize = 4 << 20;
/// Maximum number of characters that are told of standard error, from its end.
const TAIL: usize = 2048;
/// Number of bytes that are kept of it: a key more.
const KEPT: usize = TAIL + 256;

/// A running program. Dropping it ends the whole group: after [`Process::finished`] it has a moment to end by itself.
pub(super) struct Process {
    child: Option<Child>,
    group: Option<ProcessGroup>,
    output: JoinHandle<Option<Value>>,
    errors: JoinHandle<Vec<u8>>,
    parting: Duration,
    directory: Option<EpisodeDirectory>,
}

/// End of a player before the episode was finished.
pub(super) enum PlayerEnd {
    Exited(std::io::Result<ExitStatus>),
    /// The worker has ended, with the message about it.
    Gone(String),
    /// The worker made no request in time, with the message about it.
    Silent(String),
}

/// Exit status and output of an ended program.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) status: ExitStatus,
    /// The last JSON object of its output that has an answer or a reward.
    pub(super) report: Option<Value>,
    /// The end of its standard error.
    pub(super) errors: String,
}

impl Left {
    /// Returns the message about the end of a program, for the fault of an episode.
    pub(super) fn message(&self) -> String {
        if self.errors.is_empty() {
            format!("the program ended with {}", self.status)
        } else {
            format!("the program ended with {}: {}", self.status, self.errors)
        }
    }
}

impl Process {
    /// Starts the program of the options, in the directory of the episode or else in `base`, with further variables. Its
    /// standard input is one line, and its output goes to the log.
    pub(super) fn start(
        options: &ProgramOptions,
        base: &Path,
        directory: Option<EpisodeDirectory>,
        variables: Vec<(&'static str, String)>,
        input: String,
        log: Log,
    ) -> Result<Self, String> {
        let mut command = program_command(options, base, directory.as_ref())?;
        // Names of models may be those of `env`; other variables of the gateway are in none.
        let own = variables.into_iter().filter(|(name, _)| !options.env.contains_key(*name));
        command.envs(own).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            let program = options.command.first().map_or("", String::as_str);
            format!("`{program}` does not start: {error}")
        })?;
        let group = ProcessGroup::of(&child);
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input ends this task when it ends.
            tokio::spawn(async move { stdin.write_all(input.as_bytes()).await });
        }
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let errors_log = log.clone();
        let output = tokio::spawn(async move {
            match stdout {
                Some(stdout) => last_report(stdout, &log).await,
                None => None,
            }
        });
        let errors = tokio::spawn(async move {
            match stderr {
                Some(stderr) => tail(stderr, &errors_log).await,
                None => Vec::new(),
            }
        });
        let parting = Duration::ZERO;
        Ok(Self { child: Some(child), group: Some(group), output, errors, parting, directory })
    }

    /// Waits until the program itself has ended. May be cancelled.
    pub(super) async fn wait_for_exit(&mut self) -> std::io::Result<ExitStatus> {
        match &mut self.child {
            Some(child) => child.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Ends what is left of the group of an ended program, and returns what it left. Its errors have no key.
    pub(super) async fn end_group(mut self, status: ExitStatus, key: &str) -> Left {
        self.child = None;
        self.group = None;
        let directory = self.directory.take();
        // Nobody waits for the removal of the files.
        tokio::task::spawn_blocking(move || drop(directory));
        let report = tokio::time::timeout(OUTPUT, &mut self.output).await;
        let errors = tokio::time::timeout(OUTPUT, &mut self.errors).await;
        let errors = errors.ok().and_then(Result::ok).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors).replace(key, "***");
        let chars = errors.chars().count();
        // The beginning may be the end of a key that was cut.
        let errors: String = errors.chars().skip(chars.saturating_sub(TAIL)).collect();
        let report = report.ok().and_then(Result::ok).flatten();
        Left { status, report, errors: errors.trim().to_owned() }
    }

    /// Gives the program a moment to end by itself when this is dropped.
    pub(super) fn let_finish(&mut self) {
        self.parting = PARTING;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.output.abort();
        self.errors.abort();
        let (Some(child), Some(group)) = (self.child.take(), self.group.take()) else { return };
        // Without a runtime, or if it shuts down, both are dropped, which ends the group at once.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(end(child, group, self.parting, self.directory.take()));
        }
    }
}

/// Ends a group: asks it after `parting`, and forces it 5 s later. Then its directory is removed.
async fn end(
    mut child: Child,
    group: ProcessGroup,
    parting: Duration,
    directory: Option<EpisodeDirectory>,
) {
    if tokio::time::timeout(parting, child.wait()).await.is_err() {
        group.ask();
        let _ = tokio::time::timeout(FORCE, child.wait()).await;
    }
    drop(group);
    let _ = child.wait().await;
    tokio::task::spawn_blocking(move || drop(directory));
}

/// A process group. Dropping it kills its members.
struct ProcessGroup(#[cfg_attr(not(unix), allow(dead_code))] Option<u32>);

impl ProcessGroup {
    /// Returns the group that a child leads.
    fn of(child: &Child) -> Self {
        let id = child.id();
        #[cfg(unix)]
        id.into_iter().for_each(|id| cleanup::watch(&id.to_string()));
        Self(id)
    }

    /// Asks every member to end.
    fn ask(&self) {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::TERM);
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let id = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
            // It fails where nobody is left.
            let _ = rustix::process::kill_process_group(id, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        #[cfg(unix)]
        {
            self.signal(rustix::process::Signal::KILL);
            self.0.into_iter().for_each(|id| cleanup::forget(&id.to_string()));
        }
    }
}

/// Returns the last line that is a JSON object with an answer or a reward.
async fn last_report(mut output: impl AsyncRead + Unpin, log: &Log) -> Option<Value> {
    let (mut last, mut line, mut buffer) = (None, Vec::new(), vec![0; 8192]);
    let mut whole = true;
    loop {
        let n = output.read(&mut buffer).await.unwrap_or(0);
        log.push(&buffer[..n]);
        for &byte in &buffer[..n] {
            if byte == b'\n' {
                last = report(&line).filter(|_| whole).or(last);
                line.clear();
                whole = true;
            } else if line.len() < LONGEST {
                line.push(byte);
            } else {
                whole = false;
            }
        }
        if n == 0 {
            return report(&line).filter(|_| whole).or(last);
        }
    }
}

fn report(line: &[u8]) -> Option<Value> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let object = value.as_object()?;
    let is_report = object.contains_key("answer") || object.contains_key("reward");
    is_report.then_some(value)
}

/// Returns the end of a stream.
async fn tail(mut stream: impl AsyncRead + Unpin, log: &Log) -> Vec<u8> {
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 4096]);
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return kept,
            Ok(n) => {
                log.push(&buffer[..n]);
                kept.extend_from_slice(&buffer[..n]);
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_last_report_is_read_among_other_output() {
        let text = "loading\n{\"answer\": 1}\n{\"loss\": 2}\n{\"answer\": \"4\"}\nbye {\n{\"x\"";
        assert_eq!(
            last_report(text.as_bytes(), &Log::default()).await,
            Some(json!({"answer": "4"}))
        );
        assert_eq!(
            last_report(&b"{\"reward\": 1}"[..], &Log::default()).await,
            Some(json!({"reward": 1}))
        );
        assert_eq!(last_report(&b"[1]\n\n"[..], &Log::default()).await, None);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_no_report() {
        let text = format!("{{\"answer\": \"{}\"}}\n{{\"answer\": 1}}\n", "x".repeat(LONGEST));
        assert_eq!(last_report(text.as_bytes(), &Log::default()).await, Some(json!({"answer": 1})));
        assert_eq!(tail(text.as_bytes(), &Log::default()).await.len(), KEPT);
    }
}
