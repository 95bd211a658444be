//! Start of a process, up to the first instruction of the interpreter.
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
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use super::filter::CallFilter;
use super::landlock::Landlock;
use super::python::PythonInterpreter;
use super::root::{FLAGS, Root};
use super::threads::{NotifyingFilter, ThreadListener};
use super::watch::RunningProcess;
use crate::{ProgramLimits, ProtectionLayer};

/// Bytes of stack until `execve`.
const STACK: usize = 256 << 10;
/// Descriptors of a program: input, output, errors, and the wire.
const DESCRIPTORS: usize = 4;
/// Descriptor by which a new process sends data to its parent; closed at `execve`.
const HANDOVER: RawFd = DESCRIPTORS as RawFd;
/// First number of our own descriptors, above those of a program.
const OURS: RawFd = 16;

/// Description of a new process.
pub(super) struct Birth<'a> {
    pub(super) python: &'a PythonInterpreter,
    /// Program that the interpreter runs.
    pub(super) launcher: &'a str,
    pub(super) limits: &'a ProgramLimits,
    pub(super) filter: Option<&'a CallFilter>,
    pub(super) landlock: Option<&'a Landlock>,
    pub(super) root: Option<&'a Root>,
    pub(super) asking: Option<&'a NotifyingFilter>,
    /// True if the system counts the threads of this process's user alone.
    pub(super) bounded: bool,
}

/// Step of a new process before `execve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BirthStep {
    Clone,
    Session,
    Identity,
    Root,
    Descriptors,
    Limits,
    Privileges,
    Landlock,
    Threads,
    Seccomp,
    Execute,
}

impl BirthStep {
    /// Returns the layer of this step.
    pub(super) fn layer(self) -> Option<ProtectionLayer> {
        match self {
            Self::Clone | Self::Identity | Self::Root => Some(ProtectionLayer::Namespaces),
            Self::Landlock => Some(ProtectionLayer::Landlock),
            Self::Threads => Some(ProtectionLayer::Threads),
            Self::Seccomp => Some(ProtectionLayer::Seccomp),
            _ => None,
        }
    }

    /// Returns the description of the step.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone with namespaces",
            Self::Session => "a session of its own",
            Self::Identity => "the user in the namespace",
            Self::Root => "the private root",
            Self::Descriptors => "descriptors",
            Self::Limits => "resource limits",
            Self::Privileges => "no new privileges",
            Self::Landlock => "Landlock rules",
            Self::Threads => "the filter that counts threads",
            Self::Seccomp => "the seccomp filter",
            Self::Execute => "the interpreter's start",
        }
    }
}

/// The failed step, and the error.
#[derive(Debug)]
pub(super) struct BirthFailure {
    pub(super) step: BirthStep,
    pub(super) error: io::Error,
}

/// A [`Birth`] in the form that the new process reads.
struct BirthSteps<'a> {
    birth: &'a Birth<'a>,
    descriptors: [RawFd; DESCRIPTORS],
    handover: RawFd,
    limits: Vec<(Resource, u64)>,
    tmp: CString,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    failure: Option<BirthFailure>,
}

impl Birth<'_> {
    /// Starts the process. The outer error is of this process; the inner one names the failed step of the new process.
    pub(super) fn start_process(
        &self,
        stdin: &[u8],
        wire: OwnedFd,
    ) -> io::Result<Result<RunningProcess, BirthFailure>> {
        let (input, to) = create_pipe()?;
        let (from, output) = create_pipe()?;
        let (from_errors, errors) = create_pipe()?;
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let ends = [input, output, errors, wire, far].map(|end| fcntl_dupfd_cloexec(&end, OURS));
        let ends: Vec<OwnedFd> = ends.into_iter().collect::<Result<_, _>>()?;
        let launcher = CString::new(self.launcher)?;
        let python: &CStr = &self.python.executable;
        let arguments = [python, c"-s", c"-S", c"-B", c"-c", &launcher];
        let environment = [c"HOME=/tmp", c"LANG=C.UTF-8", c"PYTHONUTF8=1", c"PYTHONHASHSEED=0"];
        let mut steps = BirthSteps {
            birth: self,
            descriptors: [0, 1, 2, 3].map(|end: usize| ends[end].as_raw_fd()),
            handover: ends[DESCRIPTORS].as_raw_fd(),
            limits: resource_limits(self.limits, self.bounded),
            tmp: CString::new(format!("size={},nr_inodes=1024,mode=777", self.limits.files))?,
            arguments: c_pointers(&arguments),
            environment: c_pointers(&environment),
            failure: None,
        };
        let (pid, handle) = match clone(&mut steps) {
            Ok(born) => born,
            Err(error) => return Ok(Err(BirthFailure { step: BirthStep::Clone, error })),
        };
        let mut running = RunningProcess::new(pid, handle, self.limits);
        if let Some(failure) = steps.failure {
            // Dropping the process waits for it.
            return Ok(Err(failure));
        }
        if self.asking.is_some() {
            running.attach_listener(ThreadListener::receive_listener(&near, self.limits.threads)?);
        }
        running.gather_output(from, from_errors)?;
        running.feed_input(to, stdin)?;
        Ok(Ok(running))
    }
}

/// Creates a pipe whose ends no program inherits.
fn create_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Converts a list to C form.
fn c_pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Returns the resource limits. The system counts threads per user, so their limit needs a user of the sandbox's own.
fn resource_limits(limits: &ProgramLimits, own_user: bool) -> Vec<(Resource, u64)> {
    let seconds = limits.cpu.as_secs() + u64::from(limits.cpu.subsec_nanos() > 0);
    let mut resources = vec![
        (Resource::As, limits.memory),
        (Resource::Cpu, seconds.max(1)),
        (Resource::Fsize, limits.files),
        (Resource::Nofile, 64),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ];
    if own_user {
        resources.push((Resource::Nproc, limits.threads));
    }
    resources
}

/// Creates the process. Returns its id, and a handle that stays valid if the id is reused.
fn clone(steps: &mut BirthSteps<'_>) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let namespaces = if steps.birth.root.is_some() { FLAGS } else { 0 };
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
    /// Executes the steps in order, up to `execve`.
    fn run_steps(&self) -> Result<Infallible, BirthFailure> {
        let Birth { root, landlock, filter, asking, .. } = *self.birth;
        fn failure_at(step: BirthStep) -> impl Fn(io::Error) -> BirthFailure {
            move |error| BirthFailure { step, error }
        }
        // Detached from the terminal, and killed with the thread that waits for it.
        setsid().map_err(|error| failure_at(BirthStep::Session)(error.into()))?;
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| failure_at(BirthStep::Session)(error.into()))?;
        if let Some(root) = root {
            root.map_users().map_err(failure_at(BirthStep::Identity))?;
            root.build(&self.tmp).map_err(failure_at(BirthStep::Root))?;
        }
        self.take_descriptors().map_err(failure_at(BirthStep::Descriptors))?;
        for (resource, limit) in &self.limits {
            let limit = Rlimit { current: Some(*limit), maximum: Some(*limit) };
            setrlimit(*resource, limit)
                .map_err(|error| failure_at(BirthStep::Limits)(error.into()))?;
        }
        self.drop_privileges().map_err(failure_at(BirthStep::Privileges))?;
        if let Some(landlock) = landlock {
            landlock.apply(root.is_some()).map_err(failure_at(BirthStep::Landlock))?;
        }
        if let Some(asking) = asking {
            // SAFETY: `take_descriptors` has opened it, and nothing closes it before `execve`.
            let parent = unsafe { BorrowedFd::borrow_raw(HANDOVER) };
            asking.apply(parent).map_err(failure_at(BirthStep::Threads))?;
        }
        if let Some(filter) = filter {
            filter.apply().map_err(failure_at(BirthStep::Seccomp))?;
        }
        // SAFETY: the path and both lists are C strings that live until `execve` replaces the memory.
        unsafe {
            libc::execve(
                self.birth.python.executable.as_ptr(),
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
            );
        }
        Err(failure_at(BirthStep::Execute)(io::Error::last_os_error()))
    }

    /// Drops every capability, and forbids gaining one by executing a file.
    fn drop_privileges(&self) -> io::Result<()> {
        let none = CapabilitySet::empty();
        let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_no_new_privs(true)?;
        Ok(set_capabilities(None, none)?)
    }

    /// Sets up descriptors 0 to 3 and the handover descriptor, and closes all others.
    fn take_descriptors(&self) -> io::Result<()> {
        for (number, descriptor) in (0..).zip(self.descriptors) {
            // SAFETY: the numbers below `OURS` are free in this process; it shares no table of descriptors.
            if unsafe { libc::dup2(descriptor, number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: as above.
        if unsafe { libc::dup3(self.handover, HANDOVER, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let first = HANDOVER as u32 + 1;
        // SAFETY: nothing in this process uses a higher descriptor any more.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
