//! Interpreters that have imported the modules of a launcher and wait to be forked.
//!
//! The start of an interpreter takes many times as long as the confinement of a process. An interpreter of [`WarmPool`]
//! therefore starts once and is forked for each program (`launch/fork.py`). The new process makes the same calls as one
//! that executes an interpreter, before it reads anything of its program. The waiting interpreter never gets a program,
//! a test or an input: these have connections of their own, which it passes on and closes. A fork thus contains nothing
//! of another program.
//!
//! A fork is a child of this process (`CLONE_PARENT`), which waits for it as for any other. The system kills a child when
//! the thread ends that it belongs to. The interpreters and their forks belong to a thread that lives as long as the pool.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::birth::{Birth, StartingProcess};
use super::calls::BirthStep;
use super::channels::{HANDOVER, InnerEnds, create_ends};
use super::launcher::Launcher;
use super::python::PythonInterpreter;
use super::root::CLONE_FLAGS;
use super::steps::{BirthFailure, Confinement};
use super::watch::{RunningProcess, watch_processes};

/// Descriptors of a new process as the waiting interpreter receives them: the lowest free numbers, in this order.
const RECEIVED: InnerEnds<RawFd> = InnerEnds {
    program: [HANDOVER + 1, HANDOVER + 2, HANDOVER + 3, HANDOVER + 4],
    handover: HANDOVER,
};

/// Waiting interpreters, one for each launcher, and the thread that they belong to.
#[derive(Debug)]
pub(super) struct WarmPool {
    python: PythonInterpreter,
    interpreters: [Mutex<Option<WarmInterpreter>>; Launcher::ALL.len()],
    keeper: Keeper,
}

impl WarmPool {
    /// Creates a pool, whose interpreters start when they are needed.
    pub(super) fn new(python: &PythonInterpreter) -> io::Result<Self> {
        let interpreters = Launcher::ALL.map(|_| Mutex::new(None));
        Ok(Self { python: python.clone(), interpreters, keeper: Keeper::start()? })
    }

    /// Forks a process that runs a launcher. It may still be restricting itself.
    pub(super) fn begin_process(
        &self,
        launcher: Launcher,
        confinement: &Confinement<'_>,
        wire: OwnedFd,
    ) -> io::Result<Result<StartingProcess, BirthFailure>> {
        let (inner, outer) = create_ends(wire)?;
        let calls = confinement.calls(&RECEIVED);
        let namespaces = if confinement.root.is_some() { CLONE_FLAGS } else { 0 };
        let flags = libc::CLONE_PARENT | libc::SIGCHLD | namespaces;
        let request = format!("{} {flags}\n{}", libc::SYS_clone, calls.to_text());
        let pid = match self.fork_interpreter(launcher, request.as_bytes(), &inner)? {
            Ok(pid) => pid,
            Err(error) => return Ok(Err(BirthFailure { step: BirthStep::Clone, error })),
        };
        let limits = confinement.limits.copied().unwrap_or_default();
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Ok(StartingProcess::new(pid, handle, outer, calls, limits)))
    }

    /// Forks the interpreter of a launcher. Replaces one that has ended.
    fn fork_interpreter(
        &self,
        launcher: Launcher,
        request: &[u8],
        ends: &InnerEnds<OwnedFd>,
    ) -> io::Result<Result<Pid, io::Error>> {
        let waiting = &self.interpreters[launcher as usize];
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = waiting.take().filter(|it| it.send_request(request, ends).is_ok());
        let interpreter = match alive {
            Some(interpreter) => interpreter,
            None => {
                let interpreter = self.start_interpreter(launcher)?;
                interpreter.send_request(request, ends)?;
                interpreter
            }
        };
        match interpreter.receive_pid() {
            Ok(forked) => {
                *waiting = Some(interpreter);
                Ok(forked)
            }
            Err(error) => Err(describe_end(interpreter.process).unwrap_or(error)),
        }
    }

    /// Starts an interpreter that belongs to the thread of the pool.
    fn start_interpreter(&self, launcher: Launcher) -> io::Result<WarmInterpreter> {
        let python = self.python.clone();
        let started = self.keeper.run_job(move || WarmInterpreter::start(&python, launcher));
        let gone = "the thread of the waiting interpreters has ended";
        started.ok_or_else(|| io::Error::other(gone))?
    }

    /// Returns the process id of the interpreter that waits to run a launcher.
    #[cfg(test)]
    pub(super) fn number_of(&self, launcher: Launcher) -> Option<i32> {
        let waiting = self.interpreters[launcher as usize].lock().ok()?;
        waiting.as_ref().map(|interpreter| interpreter.process.number())
    }
}

/// An interpreter that waits to be forked. Dropping it ends it, and none of its forks.
#[derive(Debug)]
struct WarmInterpreter {
    process: RunningProcess,
    connection: OwnedFd,
}

impl WarmInterpreter {
    /// Starts an interpreter, and waits until it has imported the modules of a launcher.
    fn start(python: &PythonInterpreter, launcher: Launcher) -> io::Result<Self> {
        let (connection, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (launcher, confinement) = (launcher.forking_text(), Confinement::default());
        let birth = Birth { python, launcher: &launcher, confinement: &confinement };
        let starting = birth.begin_process(far)?.map_err(|failure| failure.error)?;
        let process = starting.finish(&[])?.map_err(|failure| failure.error)?;
        match receive_word(&connection) {
            Ok(_) => Ok(Self { process, connection }),
            Err(error) => Err(describe_end(process).unwrap_or(error)),
        }
    }

    /// Sends a request with the descriptors of a new process, in the order of [`RECEIVED`].
    fn send_request(&self, request: &[u8], ends: &InnerEnds<OwnedFd>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let [input, output, errors, wire] = ends.program.each_ref().map(AsFd::as_fd);
        let descriptors = [ends.handover.as_fd(), input, output, errors, wire];
        message.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.connection, &[IoSlice::new(request)], &mut message, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives the id of the new process. The inner error is that of `clone`.
    fn receive_pid(&self) -> io::Result<Result<Pid, io::Error>> {
        let number: i32 = receive_word(&self.connection)?.parse().map_err(io::Error::other)?;
        let pid = (number > 0).then_some(number).and_then(Pid::from_raw);
        Ok(pid.ok_or_else(|| io::Error::from_raw_os_error(-number)))
    }
}

/// Receives a word of a waiting interpreter.
fn receive_word(connection: &OwnedFd) -> io::Result<String> {
    let mut word = [0; 32];
    loop {
        match recv(connection, &mut word[..], RecvFlags::empty()) {
            Ok((0, _)) => {
                let kind = io::ErrorKind::UnexpectedEof;
                return Err(io::Error::new(kind, "the waiting interpreter has ended"));
            }
            Ok((n, _)) => return Ok(String::from_utf8_lossy(&word[..n]).into_owned()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the last line that an interpreter has written before it ended.
fn describe_end(process: RunningProcess) -> Option<io::Error> {
    let [output] = watch_processes([process], Instant::now() + Duration::from_secs(10)).ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    text.trim_end().lines().next_back().map(|line| io::Error::other(line.to_owned()))
}

/// Work of the thread that processes belong to.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that starts processes. It ends when this is dropped, and the system then kills those processes.
#[derive(Debug)]
struct Keeper {
    jobs: mpsc::Sender<Job>,
}

impl Keeper {
    fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("sandbox".to_owned());
        thread.spawn(move || queue.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs })
    }

    /// Runs a job on the thread, and returns its result; `None` if the thread has ended.
    fn run_job<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (result, done) = mpsc::sync_channel(1);
        // The receiver is there until the job is done.
        let job: Job = Box::new(move || drop(result.send(job())));
        self.jobs.send(job).ok()?;
        done.recv().ok()
    }
}
