//! Runs Python programs that nobody has read, and judges them.
//!
//! A program gets a process of its own, and that process nothing but the interpreter: no network, no other process, no
//! file but the interpreter's (read-only) and a private `/tmp` in memory, and so much time, memory and output. Several
//! mechanisms hold, each in a file of its own, so that none has to hold alone:
//!
//! - *namespaces* ([`Layer::Namespaces`]): own users, processes, mounts, network, IPC and host name, and a root that holds
//!   nothing else;
//! - *Landlock* ([`Layer::Landlock`]): the same of files, and no TCP port, whatever is mounted;
//! - *seccomp* ([`Layer::Seccomp`]): an allow-list of system calls, and of their arguments; among those that are not on it
//!   are all that make a process, a mount or a socket with a name, and all that reach a process or an inode outside by its
//!   owner;
//! - a *count of threads* ([`Layer::Threads`]), which a parent keeps that is asked before one starts;
//! - *resource limits*, and a parent that watches the clock, counts output and ends what is over.
//!
//! A machine may lack some. [`Sandbox::new`] tries each and says what is missing; if `strict` is set, anything missing is
//! an error. [`Sandbox::layers`] says what holds, [`Sandbox::warnings`] what does not or by one layer alone. Without
//! seccomp, or with neither namespaces nor Landlock, there is no sandbox.
//!
//! Tests of a candidate run in a second process ([`Sandbox::examine`]). Between the two cross plain values (numbers,
//! texts, lists, dictionaries, sets, bytes), so a candidate can neither see the tests nor touch what judges it: patched
//! builtins, an `__eq__` that is always true, or an early exit change nothing but its own process.
//!
//! Calls block the thread until the program is over. A process is bound to the thread that started it, and is killed with
//! it, so nothing outlives the caller, however the caller ends.

mod exam;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod linux;

use std::fmt;
use std::time::Duration;

pub use exam::{Exam, Report, Test};
pub use linux::Sandbox;

/// What a program may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Time by the clock.
    pub wall: Duration,
    /// Time of the processor, rounded up to seconds.
    pub cpu: Duration,
    /// Bytes of address space; the interpreter takes about 40 MiB of it.
    pub memory: u64,
    /// Bytes of standard output, and as many of standard error. More ends the program.
    pub output: usize,
    /// Bytes of files in `/tmp`, which are memory.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

impl Default for Limits {
    /// Three seconds as in HumanEval, 512 MiB, 1 MiB of output, 16 MiB of files, 16 threads.
    fn default() -> Self {
        let seconds = Duration::from_secs(3);
        Self {
            wall: seconds,
            cpu: seconds,
            memory: 512 << 20,
            output: 1 << 20,
            files: 16 << 20,
            threads: 16,
        }
    }
}

/// A mechanism that keeps a program in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Users, processes, mounts, network, IPC and host name of its own.
    Namespaces,
    /// Rules about files and ports that hold for a process and whatever it becomes.
    Landlock,
    /// An allow-list of system calls.
    Seccomp,
    /// A count of threads that the parent keeps.
    Threads,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
            Self::Threads => "the count of threads",
        })
    }
}

/// A mechanism that this machine does not offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The mechanism.
    pub layer: Layer,
    /// What the system said.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.layer, self.why)
    }
}

/// A mechanism that holds on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// The mechanism.
    pub layer: Layer,
    /// What it keeps a program from, or bounds.
    pub what: String,
}

impl fmt::Display for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.layer, self.what)
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exited(i32),
    /// By a signal, most often for touching memory it has not.
    Signal(i32),
    /// It ran longer than [`Limits::wall`].
    WallLimit,
    /// It computed longer than [`Limits::cpu`].
    CpuLimit,
    /// It wrote more than [`Limits::output`].
    OutputLimit,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::WallLimit => f.write_str("ran out of time"),
            Self::CpuLimit => f.write_str("ran out of processor time"),
            Self::OutputLimit => f.write_str("wrote too much"),
        }
    }
}

/// What a program left.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote, up to [`Limits::output`].
    pub stdout: Vec<u8>,
    /// What it wrote to standard error; a traceback, if it failed.
    pub stderr: Vec<u8>,
    /// Processor time it took.
    pub cpu: Duration,
}

impl Output {
    /// Whether it came to its end with status 0.
    pub fn succeeded(&self) -> bool {
        self.ending == Ending::Exited(0)
    }
}

/// Why there is no sandbox, or why it could not run a program. Never the program's doing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The interpreter cannot be used.
    #[error("`{python}` is no usable Python interpreter: {why}; name one of version 3.8 or newer")]
    Python {
        /// The command.
        python: String,
        /// What went wrong.
        why: String,
    },
    /// Something is missing that is not optional, or anything in strict mode.
    #[error("this machine lacks {}; {wanted}", list(missing))]
    Lacking {
        /// What is missing.
        missing: Vec<Missing>,
        /// What would do.
        wanted: &'static str,
    },
    /// A process could not be started.
    #[error("no sandbox could be set up at `{step}`: {source}")]
    Start {
        /// The step that failed.
        step: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// A process could not be watched.
    #[error("a sandboxed program could not be watched: {0}")]
    Watch(#[from] std::io::Error),
    /// The tests themselves failed to run.
    #[error("the tests could not be run: {0}")]
    Tests(String),
    /// There is no sandbox for this system.
    #[error("programs are run on Linux alone")]
    Unsupported,
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(Missing::to_string).collect::<Vec<_>>().join(", ")
}
