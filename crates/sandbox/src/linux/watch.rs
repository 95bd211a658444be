//! Running processes: their input, output, time and end.
#![allow(unsafe_code)] // `wait4`, which tells the processor time

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::process::{Pid, Signal, pidfd_send_signal};

use super::threads::ThreadListener;
use crate::{Ending, Output, ProgramLimits};

/// Size of a read in bytes.
const CHUNK: usize = 64 << 10;

/// Time between looks at a granted request for a thread.
const STEP: Duration = Duration::from_millis(1);

/// A process that has not been waited for. Dropping it kills it.
#[derive(Debug)]
pub(super) struct RunningProcess {
    pid: Pid,
    handle: OwnedFd,
    feeds: Vec<Feed>,
    gathers: Vec<Gather>,
    /// Answers requests for threads.
    threads: Option<ThreadListener>,
    cpu_limit: Duration,
    output_limit: usize,
    /// Reason for killing the process.
    killed: Option<Ending>,
    /// Ending of the process, after it was waited for.
    ended: Option<(Ending, Duration)>,
}

/// Pending input.
#[derive(Debug)]
struct Feed {
    to: OwnedFd,
    bytes: Vec<u8>,
    written: usize,
}

/// Collected output.
#[derive(Debug)]
struct Gather {
    from: Option<OwnedFd>,
    bytes: Vec<u8>,
}

/// Purpose of a polled descriptor.
#[derive(Clone, Copy)]
enum PolledPart {
    End,
    Feed(usize),
    Gather(usize),
    Threads,
}

impl RunningProcess {
    pub(super) fn new(pid: Pid, handle: OwnedFd, limits: &ProgramLimits) -> Self {
        Self {
            pid,
            handle,
            feeds: Vec::new(),
            gathers: Vec::new(),
            threads: None,
            cpu_limit: limits.cpu,
            output_limit: limits.output,
            killed: None,
            ended: None,
        }
    }

    /// Writes bytes to a descriptor while the process runs, and closes it.
    pub(super) fn feed_input(&mut self, to: OwnedFd, bytes: &[u8]) -> io::Result<()> {
        ioctl_fionbio(&to, true)?;
        if !bytes.is_empty() {
            self.feeds.push(Feed { to, bytes: bytes.to_owned(), written: 0 });
        }
        Ok(())
    }

    /// Attaches the listener of the process's thread requests.
    pub(super) fn attach_listener(&mut self, threads: Option<ThreadListener>) {
        self.threads = threads;
    }

    /// Reads output and errors while the process runs.
    pub(super) fn gather_output(&mut self, output: OwnedFd, errors: OwnedFd) -> io::Result<()> {
        for from in [output, errors] {
            ioctl_fionbio(&from, true)?;
            self.gathers.push(Gather { from: Some(from), bytes: Vec::new() });
        }
        Ok(())
    }

    /// Returns the process id.
    #[cfg(test)]
    pub(super) fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Kills the process and everything in its namespace.
    fn kill(&mut self, why: Ending) {
        if self.ended.is_none() {
            self.killed.get_or_insert(why);
            // Fails only if the process has already ended.
            let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        }
    }

    /// Waits for a process that has ended or is about to end.
    fn wait_for_end(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let (mut status, pid) = (0, self.pid.as_raw_nonzero().get());
        // SAFETY: both are plain data that the call fills in; the process is our child and was not waited for.
        let used = unsafe {
            let mut used: libc::rusage = std::mem::zeroed();
            while libc::wait4(pid, &raw mut status, 0, &raw mut used) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            used
        };
        let [user, system] = [used.ru_utime, used.ru_stime].map(|time| {
            Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000)
        });
        let cpu = user + system;
        let ending = match self.killed {
            _ if libc::WIFEXITED(status) => Ending::Exited(libc::WEXITSTATUS(status)),
            Some(why) => why,
            None if libc::WTERMSIG(status) == libc::SIGKILL && cpu >= self.cpu_limit => {
                Ending::CpuLimit
            }
            None => Ending::Signal(libc::WTERMSIG(status)),
        };
        self.ended = Some((ending, cpu));
        self.threads = None;
    }

    fn is_over(&self) -> bool {
        self.ended.is_some() && self.gathers.iter().all(|gather| gather.from.is_none())
    }

    /// Returns the descriptors to poll.
    fn polled_parts(&self) -> impl Iterator<Item = (PolledPart, PollFd<'_>)> {
        let end = self.ended.is_none().then_some((PolledPart::End, &self.handle, PollFlags::IN));
        let feeds = self.feeds.iter().enumerate();
        let feeds = feeds.map(|(i, feed)| (PolledPart::Feed(i), &feed.to, PollFlags::OUT));
        let gathers = self.gathers.iter().enumerate().filter_map(|(i, gather)| {
            Some((PolledPart::Gather(i), gather.from.as_ref()?, PollFlags::IN))
        });
        // Feeds in reverse order, so that removing one does not move those still to come.
        let parts = gathers.chain(feeds.rev()).chain(end).map(|(part, descriptor, flags)| {
            (part, PollFd::from_borrowed_fd(descriptor.as_fd(), flags))
        });
        let listener = self.threads.as_ref().and_then(ThreadListener::pending_listener);
        let threads = listener.map(|listener| {
            (PolledPart::Threads, PollFd::from_borrowed_fd(listener, PollFlags::IN))
        });
        parts.chain(threads)
    }

    /// Returns true if no granted request for a thread is in progress.
    fn is_settled(&mut self) -> bool {
        let process = self.pid.as_raw_nonzero().get();
        self.threads.as_mut().is_none_or(|threads| threads.is_settled(process))
    }

    /// Handles a ready descriptor.
    fn handle_ready(&mut self, part: PolledPart, ready: PollFlags) -> io::Result<()> {
        match part {
            PolledPart::End => self.wait_for_end(),
            PolledPart::Threads => {
                let Some(threads) = &mut self.threads else { return Ok(()) };
                let process = self.pid.as_raw_nonzero().get();
                // Without a request, the process that could make one is gone.
                if !ready.contains(PollFlags::IN) || !threads.answer_request(process)? {
                    self.threads = None;
                }
            }
            PolledPart::Feed(i) => {
                let feed = &mut self.feeds[i];
                match write(&feed.to, &feed.bytes[feed.written..]) {
                    Ok(n) => feed.written += n,
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    // The reader is gone.
                    Err(Errno::PIPE | Errno::CONNRESET) => feed.written = feed.bytes.len(),
                    Err(error) => return Err(error.into()),
                }
                if feed.written == feed.bytes.len() {
                    self.feeds.remove(i);
                }
            }
            PolledPart::Gather(i) => {
                let gather = &mut self.gathers[i];
                let Some(from) = &gather.from else { return Ok(()) };
                let mut chunk = [0; CHUNK];
                match read(from, &mut chunk) {
                    Ok(0) => gather.from = None,
                    Ok(n) => {
                        let room = self.output_limit - gather.bytes.len();
                        gather.bytes.extend_from_slice(&chunk[..n.min(room)]);
                        if n > room {
                            self.kill(Ending::OutputLimit);
                        }
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn take_output(&mut self) -> Output {
        let (ending, cpu) = self.ended.expect("a process is asked for its output when it is over");
        let mut bytes = self.gathers.iter_mut().map(|gather| std::mem::take(&mut gather.bytes));
        let (stdout, stderr) = (bytes.next().unwrap_or_default(), bytes.next().unwrap_or_default());
        Output { ending, stdout, stderr, cpu }
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        self.kill(Ending::WallLimit);
        self.wait_for_end();
    }
}

/// Runs processes until the first of them ends, and kills the others; kills all at `until`.
pub(super) fn watch_processes<const N: usize>(
    mut processes: [RunningProcess; N],
    until: Instant,
) -> io::Result<[Output; N]> {
    while !processes.iter().all(RunningProcess::is_over) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            processes.iter_mut().for_each(|process| process.kill(Ending::WallLimit));
        }
        if processes[0].is_over() {
            let others = processes.iter_mut().skip(1);
            others.for_each(|process| process.kill(Ending::Signal(libc::SIGKILL)));
        }
        let granted =
            processes.iter_mut().map(RunningProcess::is_settled).filter(|settled| !settled).count();
        let left = if granted == 0 { left } else { left.min(STEP) };
        for (process, part, ready) in poll_ready(&processes, left)? {
            processes[process].handle_ready(part, ready)?;
        }
    }
    Ok(processes.each_mut().map(RunningProcess::take_output))
}

/// Polls until a descriptor is ready or the time is over; after the deadline, waits for the pending ends.
fn poll_ready(
    processes: &[RunningProcess],
    left: Duration,
) -> io::Result<Vec<(usize, PolledPart, PollFlags)>> {
    let parts = processes.iter().enumerate();
    let parts = parts.flat_map(|(i, process)| process.polled_parts().map(move |part| (i, part)));
    let (whose, mut waited): (Vec<(usize, PolledPart)>, Vec<PollFd<'_>>) =
        parts.map(|(i, (part, descriptor))| ((i, part), descriptor)).unzip();
    let left = if left.is_zero() { Duration::from_millis(100) } else { left };
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut waited, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = whose.into_iter().zip(&waited).filter(|(_, poll)| !poll.revents().is_empty());
    Ok(ready.map(|((process, part), poll)| (process, part, poll.revents())).collect())
}
