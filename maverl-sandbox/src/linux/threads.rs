//! Thread limit: a count kept by the parent.
//!
//! `RLIMIT_NPROC` counts the processes of a user. It never limits root, and without namespaces it includes the user's
//! other processes. A separate filter therefore asks the parent at each `clone` (`SECCOMP_RET_USER_NOTIF`). The parent
//! continues the call, or fails it with `EAGAIN`, as the system's limit would. The main filter also applies: calls that
//! it rejects are not forwarded.
//!
//! A granted thread that does not run yet counts as one. A program whose threads all start others at the same moment on
//! a busy processor may briefly have up to twice the limit.
#![allow(unsafe_code)] // `seccomp` with a listener, and its requests

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Maximum number of answered requests; further requests get no thread.
const REQUESTS: u32 = 1 << 16;
/// Time after which a granted thread runs, or never will.
const STARTED: Duration = Duration::from_millis(100);
/// Number of steps of one millisecond that wait for granted threads near the limit.
const SETTLING: u32 = 20;

/// The notifying filter in the kernel's form.
#[derive(Debug)]
pub(super) struct Asking {
    program: [libc::sock_filter; 4],
}

impl Asking {
    pub(super) fn new() -> Self {
        let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let answer = libc::BPF_RET | libc::BPF_K;
        Self {
            program: [
                // The number of the call is the first field of a filter's input.
                statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
                statement(
                    libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                    0,
                    1,
                    libc::SYS_clone as u32,
                ),
                statement(answer, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
                statement(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
            ],
        }
    }

    /// Installs the filter on this thread, and sends the listener to the parent. Does not allocate.
    pub(super) fn apply(&self, parent: BorrowedFd<'_>) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: self.program.len() as u16,
            filter: self.program.as_ptr().cast_mut(),
        };
        // SAFETY: the program is only read; the result is a descriptor nobody else owns, or -1.
        let listener = unsafe {
            let listener = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            );
            if listener < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(listener as i32)
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let descriptors = [listener.as_fd()];
        message.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(parent, &[IoSlice::new(b"l")], &mut message, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Listener and thread count of a process.
#[derive(Debug)]
pub(super) struct Threads {
    listener: OwnedFd,
    limit: u64,
    /// Status file of the process, opened at its first request for a thread.
    stat: Option<File>,
    /// Threads whose `clone` was granted, with the time.
    granted: Vec<(u32, Instant)>,
    requests: u32,
}

impl Threads {
    /// Receives the listener from a new process, if it was sent.
    pub(super) fn receive(from: &OwnedFd, limit: u64) -> io::Result<Option<Self>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut message, flags)?;
        let rights = message.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let threads =
            |listener| Self { listener, limit, stat: None, granted: Vec::new(), requests: 0 };
        Ok(rights.map(threads))
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers the pending request, if there still is one. Returns true if there may be more.
    pub(super) fn answer(&mut self, process: i32) -> io::Result<bool> {
        // SAFETY: both structures are plain data, which the kernel reads and fills in by their sizes.
        unsafe {
            let mut request: libc::seccomp_notif = std::mem::zeroed();
            let listener = self.listener.as_raw_fd();
            if libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut request) < 0 {
                return gone();
            }
            let mut response: libc::seccomp_notif_resp = std::mem::zeroed();
            response.id = request.id;
            if self.grants(process, request.pid) {
                response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            } else {
                response.error = -libc::EAGAIN;
            }
            if libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) < 0 {
                return gone();
            }
        }
        self.requests += 1;
        Ok(self.requests < REQUESTS)
    }

    /// Returns true if a thread of a process may start another.
    fn grants(&mut self, process: i32, thread: u32) -> bool {
        // A thread that asks again has returned from its last call.
        self.granted.retain(|(other, at)| *other != thread && at.elapsed() < STARTED);
        let mut threads = self.count(process);
        if threads < self.limit && threads + self.granted.len() as u64 >= self.limit {
            let all = threads + self.granted.len() as u64;
            for _ in 0..SETTLING {
                if threads >= all {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
                threads = self.count(process);
            }
            self.granted.clear();
        }
        let grants = threads + (self.granted.len() as u64) < self.limit;
        if grants {
            self.granted.push((thread, Instant::now()));
        }
        grants
    }

    /// Returns the number of threads of a process; unlimited if the system does not tell.
    fn count(&mut self, process: i32) -> u64 {
        if self.stat.is_none() {
            self.stat = File::open(format!("/proc/{process}/stat")).ok();
        }
        let mut text = [0; 1024];
        let length = self.stat.as_ref().and_then(|stat| stat.read_at(&mut text, 0).ok());
        threads(&text[..length.unwrap_or(0)]).unwrap_or(u64::MAX / 2)
    }
}

/// Parses the number of threads in `/proc/PID/stat`. The process name in it may contain any character.
fn threads(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let after = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    after.split_whitespace().nth(17)?.parse().ok()
}

/// Interprets a failed request: `Ok(true)` if its sender is gone, else an error.
fn gone() -> io::Result<bool> {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR | libc::EINPROGRESS) => Ok(true),
        _ => Err(error),
    }
}
