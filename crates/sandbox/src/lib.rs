//! Runs untrusted Python programs in a sandbox, and judges them.
//!
//! A program runs in a process of its own with access to nothing but the interpreter: no network, no other process, no
//! files except the interpreter's (read-only) and a private `/tmp` in memory. Time, memory and output are limited.
//! Several mechanisms, each in a file of its own, overlap, so that no single one is critical:
//!
//! - *namespaces* ([`ProtectionLayer::Namespaces`]): own users, processes, mounts, network, IPC and host name, and a root that
//!   holds nothing else;
//! - *Landlock* ([`ProtectionLayer::Landlock`]): the same file access, and no TCP ports, independent of mounts;
//! - *seccomp* ([`ProtectionLayer::Seccomp`]): an allow-list of system calls and their arguments. It excludes all calls that
//!   create a process, a mount or a named socket, and all that reach a process or an inode outside by its owner;
//! - a *thread count* ([`ProtectionLayer::Threads`]) in the parent, which is asked before a thread starts;
//! - *resource limits*, and a parent that watches the clock, counts output and kills programs that exceed their limits.
//!
//! A machine may lack some of them. [`Sandbox::new`] tries each and reports missing ones; with `strict`, anything
//! missing is an error. [`Sandbox::active_layers`] lists the active protection, and [`Sandbox::protection_gaps`] the
//! gaps and the protection by a single layer. Without seccomp, or with neither namespaces nor Landlock, there is no
//! sandbox.
//!
//! Tests of a candidate run in a second process ([`Sandbox::examine`]). Only plain values (numbers, texts, lists,
//! dictionaries, sets, bytes) cross between the two. A candidate can therefore neither see the tests nor modify their
//! judgement: patched builtins, an `__eq__` that is always true, or an early exit affect only its own process.
//!
//! The process of a program is a fork of an interpreter that waits and has seen no program, or starts an interpreter where
//! that is impossible. Calls block the thread until the program ends. A fork is bound to the sandbox, another process to the
//! thread that started it. Both are killed with it, so nothing outlives the caller, however the caller ends.

mod exam;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod linux;

use std::fmt;
use std::time::Duration;

pub use exam::{Exam, ExamReport, ExamTest};
pub use linux::Sandbox;

/// Resource limits of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgramLimits {
    /// Wall-clock time.
    pub wall: Duration,
    /// CPU time, rounded up to seconds.
    pub cpu: Duration,
    /// Address space in bytes; the interpreter takes about 40 MiB of it.
    pub memory: u64,
    /// Bytes of standard output, and as many of standard error. A program that exceeds the limit is killed.
    pub output: usize,
    /// Bytes of files in `/tmp`, which are in memory.
    pub files: u64,
    /// Number of threads.
    pub threads: u64,
}

impl Default for ProgramLimits {
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

/// A mechanism that confines a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionLayer {
    /// Own users, processes, mounts, network, IPC and host name.
    Namespaces,
    /// Rules about files and ports that hold for a process and its descendants.
    Landlock,
    /// An allow-list of system calls.
    Seccomp,
    /// A thread count kept by the parent.
    Threads,
}

impl fmt::Display for ProtectionLayer {
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
pub struct MissingLayer {
    /// The mechanism.
    pub layer: ProtectionLayer,
    /// Error of the system.
    pub why: String,
}

impl fmt::Display for MissingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.layer, self.why)
    }
}

/// A mechanism that is active on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// The mechanism.
    pub layer: ProtectionLayer,
    /// Resources that it protects or limits.
    pub what: String,
}

impl fmt::Display for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.layer, self.what)
    }
}

/// Ending of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Normal exit with this status.
    Exited(i32),
    /// Killed by a signal, most often for an invalid memory access.
    Signal(i32),
    /// Killed after [`ProgramLimits::wall`].
    WallLimit,
    /// Killed after [`ProgramLimits::cpu`].
    CpuLimit,
    /// Killed after more output than [`ProgramLimits::output`].
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

/// Output of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Ending of the program.
    pub ending: Ending,
    /// Standard output, up to [`ProgramLimits::output`].
    pub stdout: Vec<u8>,
    /// Standard error; contains a traceback if the program failed.
    pub stderr: Vec<u8>,
    /// CPU time of the program.
    pub cpu: Duration,
}

impl Output {
    /// Returns true if the program ended with status 0.
    pub fn succeeded(&self) -> bool {
        self.ending == Ending::Exited(0)
    }
}

/// Reason that there is no sandbox, or that it could not run a program. Never caused by the program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The interpreter cannot be used.
    #[error("`{python}` is no usable Python interpreter: {why}; name one of version 3.8 or newer")]
    Python {
        /// The command.
        python: String,
        /// Description of the error.
        why: String,
    },
    /// A required mechanism is missing, or any mechanism in strict mode.
    #[error("this machine lacks {}; {wanted}", list_missing(missing))]
    Lacking {
        /// Missing mechanisms.
        missing: Vec<MissingLayer>,
        /// Remedy.
        wanted: &'static str,
    },
    /// A process could not be started.
    #[error("no sandbox could be set up at `{step}`: {source}")]
    Start {
        /// The step that failed.
        step: &'static str,
        /// Error of the system.
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

fn list_missing(missing: &[MissingLayer]) -> String {
    missing.iter().map(MissingLayer::to_string).collect::<Vec<_>>().join(", ")
}
