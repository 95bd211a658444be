//! Start of an interpreter in a new process, up to its first instruction.
//!
//! The process is created by `clone` with `CLONE_VM | CLONE_VFORK`, as in `posix_spawn`. It borrows the memory of this
//! process, which may contain gigabytes of weights that a `fork` would have to map again. The calling thread waits
//! until `execve`. Other threads continue, so the new process is restricted before `execve`:
//!
//! - It allocates nothing, takes no lock and cannot panic. All its data is in [`BirthSteps`] before it starts, and it only
//!   makes system calls.
//! - It calls no function of the C library that communicates with other threads, such as `setuid`.
//! - Every signal is blocked, in it and in the calling thread, so none of our handlers runs in it. Signals stay
//!   blocked: a program is ended by `SIGKILL` or a fault, neither of which can be blocked.
//! - It writes errors into the borrowed memory.
#![allow(unsafe_code)] // `clone`, `execve`, and what is done between them

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::Pid;

use super::calls::{BirthStep, CallList};
use super::channels::{Handover, OuterEnds, create_ends};
use super::python::PythonInterpreter;
use super::root::CLONE_FLAGS;
use super::steps::{BirthFailure, Confinement};
use super::threads::ThreadListener;
use super::watch::RunningProcess;
use crate::ProgramLimits;

/// Bytes of stack until `execve`.
const STACK: usize = 256 << 10;

/// A new interpreter.
pub(super) struct Birth<'a> {
    pub(super) python: &'a PythonInterpreter,
    /// Program that the interpreter runs.
    pub(super) launcher: &'a str,
    pub(super) confinement: &'a Confinement<'a>,
}

/// A [`Birth`] in the form that the new process reads.
struct BirthSteps<'a> {
    calls: &'a CallList,
    executable: &'a CStr,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    failure: Option<BirthFailure>,
}

impl Birth<'_> {
    /// Starts the process. The outer error is of this process; the inner one names the failed step of the new process.
    pub(super) fn begin_process(
        &self,
        wire: OwnedFd,
    ) -> io::Result<Result<StartingProcess, BirthFailure>> {
        let (inner, outer) = create_ends(wire)?;
        let calls = self.confinement.calls(&inner.numbers());
        let launcher = CString::new(self.launcher)?;
        let python: &CStr = &self.python.executable;
        let arguments = [python, c"-s", c"-S", c"-B", c"-c", &launcher];
        let environment = [c"HOME=/tmp", c"LANG=C.UTF-8", c"PYTHONUTF8=1", c"PYTHONHASHSEED=0"];
        let mut steps = BirthSteps {
            calls: &calls,
            executable: python,
            arguments: c_pointers(&arguments),
            environment: c_pointers(&environment),
            failure: None,
        };
        let namespaces = if self.confinement.root.is_some() { CLONE_FLAGS } else { 0 };
        let (pid, handle) = match clone(&mut steps, namespaces) {
            Ok(born) => born,
            Err(error) => return Ok(Err(BirthFailure { step: BirthStep::Clone, error })),
        };
        let failure = steps.failure;
        let limits = self.confinement.limits.copied().unwrap_or_default();
        let starting = StartingProcess::new(pid, handle, outer, calls, limits);
        // Dropping a process waits for it.
        Ok(failure.map_or(Ok(starting), Err))
    }
}

/// A new process that may not have been restricted yet. Dropping it kills it.
pub(super) struct StartingProcess {
    running: RunningProcess,
    outer: OuterEnds,
    calls: CallList,
    limits: ProgramLimits,
}

impl StartingProcess {
    /// Creates a process from its id, its handle, the ends of its connections, and the calls that it makes.
    pub(super) fn new(
        pid: Pid,
        handle: OwnedFd,
        outer: OuterEnds,
        calls: CallList,
        limits: ProgramLimits,
    ) -> Self {
        Self { running: RunningProcess::new(pid, handle, &limits), outer, calls, limits }
    }

    /// Waits until the process is restricted, and gives it its input. The inner error names the failed step.
    pub(super) fn finish(self, stdin: &[u8]) -> io::Result<Result<RunningProcess, BirthFailure>> {
        let Self { mut running, outer, calls, limits } = self;
        let Handover { listener, failure } = outer.receive_handover()?;
        if let Some((call, error)) = failure {
            return Ok(Err(BirthFailure { step: calls.step_at(call), error }));
        }
        let listener = listener.map(|listener| ThreadListener::new(listener, limits.threads));
        running.attach_listener(listener);
        running.gather_output(outer.output, outer.errors)?;
        running.feed_input(outer.input, stdin)?;
        Ok(Ok(running))
    }
}

/// Converts a list to C form.
fn c_pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Creates the process in new namespaces. Returns its id, and a handle that stays valid if the id is reused.
fn clone(steps: &mut BirthSteps<'_>, namespaces: c_int) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | namespaces;
    let mut handle: c_int = -1;
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let steps: *mut BirthSteps<'_> = steps;
    // SAFETY: the signal sets are plain data that the calls fill in. `enter_process` gets the pointer it expects, and a stack
    // of its own of which `top` is the aligned upper end. Steps, stack and handle outlive the process's use of them,
    // because this thread waits until it has run `execve` or has ended. The restrictions on it are listed at the head
    // of this file.
    let (pid, error) = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = libc::clone(enter_process, top, flags, steps.cast::<c_void>(), &raw mut handle);
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        (pid, error)
    };
    // `from_raw` asserts that its argument is not negative.
    let Some(pid) = (pid > 0).then_some(pid).and_then(Pid::from_raw) else { return Err(error) };
    // SAFETY: the kernel has just created this descriptor for us.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(handle) }))
}

/// Runs as the first function of the new process.
extern "C" fn enter_process(steps: *mut c_void) -> c_int {
    // SAFETY: `clone` passes its argument on, and the thread that owns it waits.
    let steps = unsafe { &mut *steps.cast::<BirthSteps<'_>>() };
    let Err(failure) = steps.run_steps();
    steps.failure = Some(failure);
    127
}

impl BirthSteps<'_> {
    /// Makes the calls in order, and executes the interpreter.
    fn run_steps(&self) -> Result<Infallible, BirthFailure> {
        // SAFETY: this process has its own descriptors, root and rights.
        let done = unsafe { self.calls.make_calls() };
        done.map_err(|(call, error)| BirthFailure { step: self.calls.step_at(call), error })?;
        // SAFETY: the path and both lists are C strings that live until `execve` replaces the memory.
        unsafe {
            libc::execve(
                self.executable.as_ptr(),
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
            );
        }
        Err(BirthFailure { step: BirthStep::Execute, error: io::Error::last_os_error() })
    }
}
