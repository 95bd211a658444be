//! The sandbox on Linux.
//!
//! `birth` is the code between `clone` and `exec`, `root`, `landlock`, `filter` and `threads` restrict it, `watch`
//! follows it, `cover` describes what is active. `python` finds the interpreter and its files. The programs in
//! `hostile/` try to escape.

mod birth;
mod cover;
mod filter;
mod landlock;
mod path;
mod python;
mod root;
mod threads;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;

use self::birth::Birth;
use self::filter::Filter;
use self::landlock::Landlock;
use self::python::Python;
use self::root::Root;
use self::threads::Asking;
use self::watch::{Running, watch};
use crate::exam::seed;
use crate::{Exam, Layer, Limits, Missing, Output, Report, SandboxError};

/// Launcher of one program.
const PROGRAM: &str =
    concat!(include_str!("../launch/common.py"), include_str!("../launch/program.py"));
/// Launcher that defines a candidate and answers calls.
const CANDIDATE: &str =
    concat!(include_str!("../launch/common.py"), include_str!("../launch/candidate.py"));
/// Launcher of tests.
const TESTS: &str =
    concat!(include_str!("../launch/common.py"), include_str!("../launch/tests.py"));
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
    python: Python,
    filter: Option<Filter>,
    landlock: Option<Landlock>,
    root: Option<Root>,
    asking: Option<Asking>,
    /// True if the system's thread count per user is effective because the user is the sandbox's own.
    bounded: bool,
    missing: Vec<Missing>,
}

impl Sandbox {
    /// Creates a sandbox for an interpreter (`"python3"`, or a path), after a trial of every layer.
    ///
    /// # Errors
    ///
    /// If the interpreter is not usable; if the machine lacks seccomp, or both namespaces and Landlock; if it lacks any
    /// layer and `strict` is set.
    pub fn new(python: &str, strict: bool) -> Result<Self, SandboxError> {
        let python = Python::find(python)?;
        let (filter, landlock) = (Filter::new(), Landlock::new(&python));
        let root = Root::new(&python.paths);
        let mut sandbox = Self {
            python,
            filter: None,
            landlock: None,
            root: None,
            asking: Some(Asking::new()),
            bounded: false,
            missing: Vec::new(),
        };
        match filter {
            Ok(filter) => sandbox.filter = Some(filter),
            Err(why) => sandbox.lacks(Layer::Seccomp, why),
        }
        match landlock {
            Ok(landlock) => sandbox.landlock = Some(landlock),
            Err(error) => sandbox.lacks(Layer::Landlock, error.to_string()),
        }
        match root {
            Ok(root) => (sandbox.root, sandbox.bounded) = (Some(root), true),
            Err(why) => sandbox.lacks(Layer::Namespaces, why),
        }
        loop {
            match sandbox.trial()? {
                Ok(threads) if sandbox.counts(threads) => break,
                Ok(_) => {}
                Err(failure) => sandbox.give_up(&failure)?,
            }
        }
        sandbox.enough(strict)?;
        Ok(sandbox)
    }

    /// Returns the layers that this machine lacks.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Runs a program with an input, until it ends or is killed. Its `random` is seeded from the input.
    ///
    /// # Errors
    ///
    /// If no process can be started or watched; never because of the program.
    pub fn run(&self, source: &str, stdin: &[u8], limits: &Limits) -> Result<Output, SandboxError> {
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
        limits: &Limits,
    ) -> Result<Output, SandboxError> {
        let (near, far) = wire()?;
        let until = Instant::now() + limits.wall;
        let mut program = self.start(PROGRAM, stdin, far, limits)?;
        program.feed(near, launched(preamble, source, seed(stdin)).as_bytes())?;
        let [output] = watch([program], until)?;
        Ok(output)
    }

    /// Runs the tests of a candidate: the candidate in one process, the tests in another.
    ///
    /// # Errors
    ///
    /// If no process can be started or watched, or if the tests fail before they have called the candidate; never
    /// because of the candidate.
    pub fn examine(&self, exam: &Exam<'_>, limits: &Limits) -> Result<Report, SandboxError> {
        let [tests, candidate] = self.outputs(exam, limits)?;
        Report::read(exam, &tests, &candidate)
    }

    /// Returns the outputs of the tests' process and of the candidate's process.
    fn outputs(&self, exam: &Exam<'_>, limits: &Limits) -> Result<[Output; 2], SandboxError> {
        let (near, far) = wire()?;
        let seed = exam.seed().map_err(io::Error::from)?;
        let text = serde_json::to_vec(&Seeded { exam, seed }).map_err(io::Error::from)?;
        let until = Instant::now() + limits.wall;
        let candidate = self.start(CANDIDATE, &[], far, limits)?;
        let tests = self.start(TESTS, &text, near, limits)?;
        Ok(watch([tests, candidate], until)?)
    }

    fn start(
        &self,
        launcher: &str,
        stdin: &[u8],
        wire: OwnedFd,
        limits: &Limits,
    ) -> Result<Running, SandboxError> {
        self.birth(launcher, limits).start(stdin, wire)?.map_err(|failure| SandboxError::Start {
            step: failure.step.name(),
            source: failure.error,
        })
    }

    fn birth<'a>(&'a self, launcher: &'a str, limits: &'a Limits) -> Birth<'a> {
        let Self { python, filter, landlock, root, asking, bounded, .. } = self;
        Birth {
            python,
            launcher,
            limits,
            filter: filter.as_ref(),
            landlock: landlock.as_ref(),
            root: root.as_ref(),
            asking: asking.as_ref(),
            bounded: *bounded,
        }
    }

    /// Runs a program that starts threads, and returns their number. The inner error names the step that the machine
    /// does not support.
    fn trial(&self) -> Result<Result<u64, birth::Failure>, SandboxError> {
        // Stacks and heaps of threads must not be the limiting factor.
        let (wall, memory) = (std::time::Duration::from_secs(20), 64 << 30);
        let limits = Limits { wall, memory, ..Limits::default() };
        let (near, far) = wire()?;
        let until = Instant::now() + limits.wall;
        let mut program = match self.birth(PROGRAM, &limits).start(&[], far)? {
            Ok(program) => program,
            Err(failure) => return Ok(Err(failure)),
        };
        program.feed(near, launched("", TRIAL, 0).as_bytes())?;
        let [output] = watch([program], until)?;
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
    fn counts(&mut self, threads: u64) -> bool {
        let limit = Limits::default().threads;
        if threads < limit && self.bounded {
            // Before Linux 5.14 the user's other processes are counted too.
            self.bounded = false;
            return false;
        }
        if threads != limit && self.asking.take().is_some() {
            self.bounded = self.root.is_some();
            self.lacks(Layer::Threads, format!("{threads} threads were counted as {limit}"));
            return false;
        }
        self.bounded &= threads == limit;
        true
    }

    /// Continues without the layer of a failed step.
    fn give_up(&mut self, failure: &birth::Failure) -> Result<(), SandboxError> {
        let why = format!("{}: {}", failure.step.name(), failure.error);
        match failure.step.layer() {
            Some(layer @ Layer::Namespaces) if self.root.take().is_some() => {
                self.bounded = false;
                self.lacks(layer, why);
            }
            Some(layer @ Layer::Landlock) if self.landlock.take().is_some() => {
                self.lacks(layer, why);
            }
            Some(layer @ Layer::Threads) if self.asking.take().is_some() => self.lacks(layer, why),
            Some(layer @ Layer::Seccomp) if self.filter.take().is_some() => self.lacks(layer, why),
            _ => {
                let source = io::Error::from(failure.error.kind());
                return Err(SandboxError::Start { step: failure.step.name(), source });
            }
        }
        Ok(())
    }

    fn lacks(&mut self, layer: Layer, why: String) {
        self.missing.push(Missing { layer, why });
    }

    /// Checks that the remaining layers confine a program.
    fn enough(&self, strict: bool) -> Result<(), SandboxError> {
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

/// An exam in the form that the launcher of tests reads.
#[derive(Serialize)]
struct Seeded<'e> {
    #[serde(flatten)]
    exam: &'e Exam<'e>,
    seed: u64,
}

/// Returns a program in the form that its launcher reads: a line with the seed and the length of the preamble in bytes,
/// the preamble, and the program.
fn launched(preamble: &str, source: &str, seed: u64) -> String {
    format!("{seed} {}\n{preamble}{source}", preamble.len())
}

/// Creates both ends of a connection between two processes.
fn wire() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests;
