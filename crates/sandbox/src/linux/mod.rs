//! The sandbox on Linux.
//!
//! `steps` lists the system calls (`calls`) that restrict a new process: those of `root`, `landlock`, `filter` and
//! `threads`. The process is a fork of an interpreter that waits (`warm`), or starts an interpreter (`birth`). `channels`
//! connect it, `watch` follows it, `cover` describes what is active. `python` finds the interpreter and its files,
//! `launcher` has the Python code that a process begins with. The programs in `hostile/` try to escape.

mod birth;
mod calls;
mod channels;
mod cover;
mod filter;
mod landlock;
mod launcher;
mod paths;
mod python;
mod root;
mod steps;
mod threads;
mod warm;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;

use self::birth::{Birth, StartingProcess};
use self::filter::CallFilter;
use self::landlock::Landlock;
use self::launcher::Launcher;
use self::python::PythonInterpreter;
use self::root::Root;
use self::steps::{BirthFailure, Confinement};
use self::threads::NotifyingFilter;
use self::warm::WarmPool;
use self::watch::{RunningProcess, watch_processes};
use crate::exam::hash_seed;
use crate::{Exam, ExamReport, MissingLayer, Output, ProgramLimits, ProtectionLayer, SandboxError};

/// Starts threads up to the limit, and prints their number.
const TRIAL: &str = "
import _thread, os, time
threads = 1
try:
    while threads < 100:
        _thread.start_new_thread(time.sleep, (60,))
        threads += 1
except RuntimeError:
    pass
print('ready', threads, flush=True)
os._exit(0)
";

/// A Python interpreter with the mechanisms that confine its programs. Its construction probes the machine. It may be
/// used from any number of threads; each call blocks until its program ends.
#[derive(Debug)]
pub struct Sandbox {
    python: PythonInterpreter,
    filter: Option<CallFilter>,
    landlock: Option<Landlock>,
    root: Option<Root>,
    asking: Option<NotifyingFilter>,
    /// True if the system's thread count per user is effective because the user is the sandbox's own.
    bounded: bool,
    missing: Vec<MissingLayer>,
    /// Interpreters that are forked for each program, or the reason that each program starts its own.
    warm: Result<WarmPool, String>,
}

impl Sandbox {
    /// Creates a sandbox for an interpreter (`"python3"`, or a path), after a trial of every layer.
    ///
    /// # Errors
    ///
    /// If the interpreter is not usable; if the machine lacks seccomp, or both namespaces and Landlock; if it lacks any
    /// layer and `strict` is set.
    pub fn new(python: &str, strict: bool) -> Result<Self, SandboxError> {
        let python = PythonInterpreter::find(python)?;
        let (filter, landlock) = (CallFilter::new(), Landlock::new(&python));
        let root = Root::new(&python.paths);
        let mut sandbox = Self {
            python,
            filter: None,
            landlock: None,
            root: None,
            asking: Some(NotifyingFilter::new()),
            bounded: false,
            missing: Vec::new(),
            warm: Err("not tried".to_owned()),
        };
        match filter {
            Ok(filter) => sandbox.filter = Some(filter),
            Err(why) => sandbox.record_missing(ProtectionLayer::Seccomp, why),
        }
        match landlock {
            Ok(landlock) => sandbox.landlock = Some(landlock),
            Err(error) => sandbox.record_missing(ProtectionLayer::Landlock, error.to_string()),
        }
        match root {
            Ok(root) => (sandbox.root, sandbox.bounded) = (Some(root), true),
            Err(why) => sandbox.record_missing(ProtectionLayer::Namespaces, why),
        }
        let threads = loop {
            match sandbox.run_trial()? {
                Ok(threads) if sandbox.check_thread_count(threads) => break threads,
                Ok(_) => {}
                Err(failure) => sandbox.give_up(&failure)?,
            }
        };
        sandbox.check_protection(strict)?;
        sandbox.warm_up(threads);
        Ok(sandbox)
    }

    /// Lets programs run in forks of an interpreter, if the trial has the same result there: this number of threads.
    fn warm_up(&mut self, threads: u64) {
        self.warm = WarmPool::new(&self.python).map_err(|error| error.to_string());
        let trial = self.warm.is_ok().then(|| self.run_trial());
        let why = match trial {
            None => return,
            Some(Ok(Ok(counted))) if counted == threads => return,
            Some(Ok(Ok(counted))) => format!("{counted} threads ran there instead of {threads}"),
            Some(Ok(Err(BirthFailure { step, error }))) => format!("{}: {error}", step.name()),
            Some(Err(error)) => error.to_string(),
        };
        self.warm = Err(why);
    }

    /// Returns the layers that this machine lacks.
    pub fn missing_layers(&self) -> &[MissingLayer] {
        &self.missing
    }

    /// Runs a program with an input, until it ends or is killed. Its `random` is seeded from the input.
    ///
    /// # Errors
    ///
    /// If no process can be started or watched; never because of the program.
    pub fn run(
        &self,
        source: &str,
        stdin: &[u8],
        limits: &ProgramLimits,
    ) -> Result<Output, SandboxError> {
        self.run_after("", source, stdin, limits)
    }

    /// Runs a program as [`Sandbox::run`] does, after a preamble if it reads names that nothing defines.
    ///
    /// # Errors
    ///
    /// Same as [`Sandbox::run`].
    pub fn run_after(
        &self,
        preamble: &str,
        source: &str,
        stdin: &[u8],
        limits: &ProgramLimits,
    ) -> Result<Output, SandboxError> {
        let (near, far) = create_connection()?;
        let until = Instant::now() + limits.wall;
        let mut program = self.start_program(Launcher::Program, stdin, far, limits)?;
        program.feed_input(near, launcher_input(preamble, source, hash_seed(stdin)).as_bytes())?;
        let [output] = watch_processes([program], until)?;
        Ok(output)
    }

    /// Runs the tests of a candidate: the candidate in one process, the tests in another.
    ///
    /// # Errors
    ///
    /// If no process can be started or watched, or if the tests fail before they have called the candidate; never
    /// because of the candidate.
    pub fn examine(
        &self,
        exam: &Exam<'_>,
        limits: &ProgramLimits,
    ) -> Result<ExamReport, SandboxError> {
        let [tests, candidate] = self.examine_outputs(exam, limits)?;
        ExamReport::from_outputs(exam, &tests, &candidate)
    }

    /// Returns the outputs of the tests' process and of the candidate's process.
    fn examine_outputs(
        &self,
        exam: &Exam<'_>,
        limits: &ProgramLimits,
    ) -> Result<[Output; 2], SandboxError> {
        let (near, far) = create_connection()?;
        let seed = exam.random_seed().map_err(io::Error::from)?;
        let text = serde_json::to_vec(&Seeded { exam, seed }).map_err(io::Error::from)?;
        let until = Instant::now() + limits.wall;
        // Both restrict themselves at the same time.
        let candidate = started(self.begin_program(Launcher::Candidate, far, limits)?)?;
        let tests = started(self.begin_program(Launcher::Tests, near, limits)?)?;
        let candidate = started(candidate.finish(&[])?)?;
        let tests = started(tests.finish(&text)?)?;
        Ok(watch_processes([tests, candidate], until)?)
    }

    /// Starts a launcher, and waits until its process is restricted.
    fn start_program(
        &self,
        launcher: Launcher,
        stdin: &[u8],
        wire: OwnedFd,
        limits: &ProgramLimits,
    ) -> Result<RunningProcess, SandboxError> {
        let starting = started(self.begin_program(launcher, wire, limits)?)?;
        started(starting.finish(stdin)?)
    }

    /// Starts a launcher. The inner error names the failed step.
    fn begin_program(
        &self,
        launcher: Launcher,
        wire: OwnedFd,
        limits: &ProgramLimits,
    ) -> io::Result<Result<StartingProcess, BirthFailure>> {
        let confinement = Confinement {
            limits: Some(limits),
            filter: self.filter.as_ref(),
            landlock: self.landlock.as_ref(),
            root: self.root.as_ref(),
            asking: self.asking.as_ref(),
            bounded: self.bounded,
        };
        if let Ok(warm) = &self.warm {
            return warm.begin_process(launcher, &confinement, wire);
        }
        let (python, launcher) = (&self.python, launcher.text());
        Birth { python, launcher: &launcher, confinement: &confinement }.begin_process(wire)
    }

    /// Runs a program that starts threads, and returns their number. The inner error names the step that the machine
    /// does not support.
    fn run_trial(&self) -> Result<Result<u64, BirthFailure>, SandboxError> {
        // Stacks and heaps of threads must not be the limiting factor.
        let (wall, memory) = (std::time::Duration::from_secs(20), 64 << 30);
        let limits = ProgramLimits { wall, memory, ..ProgramLimits::default() };
        let (near, far) = create_connection()?;
        let until = Instant::now() + limits.wall;
        let program = match self.begin_program(Launcher::Program, far, &limits)? {
            Ok(starting) => starting.finish(&[])?,
            Err(failure) => Err(failure),
        };
        let mut program = match program {
            Ok(program) => program,
            Err(failure) => return Ok(Err(failure)),
        };
        program.feed_input(near, launcher_input("", TRIAL, 0).as_bytes())?;
        let [output] = watch_processes([program], until)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let threads = said.strip_prefix("ready ").and_then(|threads| threads.trim().parse().ok());
        if let Some(threads) = threads.filter(|_| output.succeeded()) {
            return Ok(Ok(threads));
        }
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.trim_end().lines().last().unwrap_or("no word");
        let why = format!("in the sandbox it {}: {why}", output.ending);
        Err(SandboxError::Python { python: self.python.name.clone(), why })
    }

    /// Checks the result of the trial with this number of threads. Disables a thread count that does not work, and
    /// returns false in that case.
    fn check_thread_count(&mut self, threads: u64) -> bool {
        let limit = ProgramLimits::default().threads;
        if threads < limit && self.bounded {
            // Before Linux 5.14 the user's other processes are counted too.
            self.bounded = false;
            return false;
        }
        if threads != limit && self.asking.take().is_some() {
            self.bounded = self.root.is_some();
            self.record_missing(
                ProtectionLayer::Threads,
                format!("{threads} threads were counted as {limit}"),
            );
            return false;
        }
        self.bounded &= threads == limit;
        true
    }

    /// Continues without the layer of a failed step.
    fn give_up(&mut self, failure: &BirthFailure) -> Result<(), SandboxError> {
        let why = format!("{}: {}", failure.step.name(), failure.error);
        match failure.step.layer() {
            Some(layer @ ProtectionLayer::Namespaces) if self.root.take().is_some() => {
                self.bounded = false;
                self.record_missing(layer, why);
            }
            Some(layer @ ProtectionLayer::Landlock) if self.landlock.take().is_some() => {
                self.record_missing(layer, why);
            }
            Some(layer @ ProtectionLayer::Threads) if self.asking.take().is_some() => {
                self.record_missing(layer, why)
            }
            Some(layer @ ProtectionLayer::Seccomp) if self.filter.take().is_some() => {
                self.record_missing(layer, why)
            }
            _ => {
                let source = io::Error::from(failure.error.kind());
                return Err(SandboxError::Start { step: failure.step.name(), source });
            }
        }
        Ok(())
    }

    fn record_missing(&mut self, layer: ProtectionLayer, why: String) {
        self.missing.push(MissingLayer { layer, why });
    }

    /// Checks that the remaining layers confine a program.
    fn check_protection(&self, strict: bool) -> Result<(), SandboxError> {
        let wanted = if self.filter.is_none() {
            "without seccomp there is no sandbox"
        } else if self.root.is_none() && self.landlock.is_none() {
            "one of namespaces and Landlock must keep programs from files"
        } else if strict && !self.missing.is_empty() {
            "strict mode wants every layer"
        } else {
            return Ok(());
        };
        Err(SandboxError::Lacking { missing: self.missing.clone(), wanted })
    }
}

/// Returns a process that started, or the error about its failed step.
fn started<T>(process: Result<T, BirthFailure>) -> Result<T, SandboxError> {
    process
        .map_err(|failure| SandboxError::Start { step: failure.step.name(), source: failure.error })
}

/// An exam in the form that the launcher of tests reads.
#[derive(Serialize)]
struct Seeded<'e> {
    #[serde(flatten)]
    exam: &'e Exam<'e>,
    seed: u64,
}

/// Returns a program in the form that its launcher reads: a line with the seed and the length of the preamble in bytes,
/// the preamble, and the program.
fn launcher_input(preamble: &str, source: &str, seed: u64) -> String {
    format!("{seed} {}\n{preamble}{source}", preamble.len())
}

/// Creates both ends of a connection between two processes.
fn create_connection() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests;
