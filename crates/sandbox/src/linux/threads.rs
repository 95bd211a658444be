//! Thread limit: a count kept by the parent.
//!
//! `RLIMIT_NPROC` counts the processes of a user. It never limits root, and without namespaces it includes the user's
//! other processes. A separate filter therefore asks the parent at each `clone` (`SECCOMP_RET_USER_NOTIF`). The parent
//! continues the call, or fails it with `EAGAIN`, as the system's limit would. The main filter also applies: calls that
//! it rejects are not forwarded.
//!
//! The system does not tell the parent when a continued call has ended. The parent therefore grants one call at a time,
//! and answers the next request after the granted call has ended: its thread sleeps outside of it, has used much more
//! processor time than the call needs or is gone, or the process has more threads. The limit is thus never exceeded,
//! however slowly the threads run.
#![allow(unsafe_code)] // requests of a listener

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::calls::{CallArgument, CallList};
use super::channels::HANDOVER;

/// Descriptor of the listener in the process that installs the filter.
const LISTENER: i32 = HANDOVER + 1;

/// Maximum number of answered requests; further requests get no thread.
const REQUESTS: u32 = 1 << 16;
/// Processor time, in clock ticks of 10 ms, after which a thread has returned from a call that takes microseconds.
const RETURNED: u64 = 5;

/// An instruction of a filter, `struct sock_filter`: code, jumps if true and if false, and a constant.
pub(super) type FilterInstruction = (u16, u8, u8, u32);

/// The filter that asks the parent.
#[derive(Debug)]
pub(super) struct NotifyingFilter {
    program: [FilterInstruction; 4],
}

impl NotifyingFilter {
    pub(super) fn new() -> Self {
        let answer = libc::BPF_RET | libc::BPF_K;
        Self {
            program: [
                // The number of the call is the first field of a filter's input.
                (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
                (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_clone as u32),
                (answer, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
                (answer, 0, 0, libc::SECCOMP_RET_ALLOW),
            ]
            .map(|(code, jt, jf, k)| (code as u16, jt, jf, k)),
        }
    }

    /// Adds the calls that install the filter, and send the listener to the parent.
    pub(super) fn add_calls(&self, calls: &mut CallList) {
        let program = filter_program(calls, self.program.into_iter());
        let (set, listen) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        calls.add_call_returning(libc::SYS_seccomp, [set.into(), listen.into(), program], LISTENER);
        let message = listener_message(calls);
        let quiet = libc::MSG_NOSIGNAL;
        calls.add_call_returning(libc::SYS_sendmsg, [HANDOVER.into(), message, quiet.into()], 1);
        calls.add_call(libc::SYS_close, [LISTENER.into()]);
    }
}

/// Adds a filter in the kernel's form, `struct sock_fprog`.
pub(super) fn filter_program(
    calls: &mut CallList,
    instructions: impl Iterator<Item = FilterInstruction>,
) -> CallArgument {
    let instructions = instructions.flat_map(|(code, jt, jf, k)| {
        let [c, d] = code.to_ne_bytes();
        let [e, f, g, h] = k.to_ne_bytes();
        [c, d, jt, jf, e, f, g, h]
    });
    let instructions: Vec<u8> = instructions.collect();
    let length = (instructions.len() / 8) as u16;
    let instructions = calls.add_bytes(instructions);
    // The number of instructions, in two bytes, and a pointer at the next multiple of its size.
    let mut head = vec![0; 2 * size_of::<usize>()];
    head[..2].copy_from_slice(&length.to_ne_bytes());
    calls.add_structure(head, [(size_of::<usize>(), instructions)])
}

/// Adds a message of one byte with the listener, `struct msghdr`.
fn listener_message(calls: &mut CallList) -> CallArgument {
    let word = size_of::<usize>();
    let byte = calls.add_bytes(*b"l");
    let vector = [0, 1].map(usize::to_ne_bytes).concat();
    let vector = calls.add_structure(vector, [(0, byte)]);
    // `struct cmsghdr`: its length with what follows, level and kind; a descriptor, and padding.
    let length = word + 3 * size_of::<i32>();
    let kind = [libc::SOL_SOCKET, libc::SCM_RIGHTS, LISTENER, 0].map(i32::to_ne_bytes).concat();
    let control = [&length.to_ne_bytes()[..], &kind].concat();
    let size = control.len();
    let control = calls.add_bytes(control);
    // Address and its length; buffers and their number; control data and their size; flags.
    let words = [0, 0, 0, 1, 0, size, 0].map(usize::to_ne_bytes).concat();
    calls.add_structure(words, [(2 * word, vector), (4 * word, control)])
}

/// Listener and thread count of a process.
#[derive(Debug)]
pub(super) struct ThreadListener {
    listener: OwnedFd,
    limit: u64,
    /// Thread whose `clone` was granted and may not have ended, as it was when it asked.
    granted: Option<(u32, ThreadState)>,
    requests: u32,
}

impl ThreadListener {
    /// Creates the listener of a process with this limit of threads.
    pub(super) fn new(listener: OwnedFd, limit: u64) -> Self {
        Self { listener, limit, granted: None, requests: 0 }
    }

    /// Returns the listener; `None` while requests wait for the end of a granted call.
    pub(super) fn pending_listener(&self) -> Option<BorrowedFd<'_>> {
        self.granted.is_none().then(|| self.listener.as_fd())
    }

    /// Returns true if no granted call of a process may still start a thread.
    pub(super) fn is_settled(&mut self, process: i32) -> bool {
        self.granted.take_if(|(thread, before)| {
            ThreadState::read_state(process, *thread).is_none_or(|now| now.returned_since(before))
        });
        self.granted.is_none()
    }

    /// Answers the pending request, if there still is one. Returns true if there may be more.
    pub(super) fn answer_request(&mut self, process: i32) -> io::Result<bool> {
        // SAFETY: both structures are plain data, which the kernel reads and fills in by their sizes.
        unsafe {
            let mut request: libc::seccomp_notif = std::mem::zeroed();
            let listener = self.listener.as_raw_fd();
            if libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut request) < 0 {
                return sender_gone();
            }
            let mut response: libc::seccomp_notif_resp = std::mem::zeroed();
            response.id = request.id;
            if self.may_start_thread(process, request.pid) {
                response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            } else {
                response.error = -libc::EAGAIN;
            }
            if libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) < 0 {
                return sender_gone();
            }
        }
        self.requests += 1;
        Ok(self.requests < REQUESTS)
    }

    /// Returns true if a thread of a process may start another. A thread that the system does not tell of may not.
    fn may_start_thread(&mut self, process: i32, thread: u32) -> bool {
        let task =
            ThreadState::read_state(process, thread).filter(|task| task.threads < self.limit);
        self.granted = task.map(|task| (thread, task));
        self.granted.is_some()
    }
}

/// State of a thread in `/proc/PID/task/TID/stat`.
#[derive(Debug)]
struct ThreadState {
    /// True if the thread waits for an event, where a signal would wake it.
    sleeps: bool,
    /// Processor time in clock ticks.
    time: u64,
    /// Number of threads of its process, of which some may have ended and not been removed.
    threads: u64,
}

impl ThreadState {
    /// Reads the state of a thread of a process; `None` if it is gone or cannot be read.
    fn read_state(process: i32, thread: u32) -> Option<Self> {
        Self::parse_stat(&std::fs::read(format!("/proc/{process}/task/{thread}/stat")).ok()?)
    }

    /// Parses a line of `stat`. The name in it may contain any character.
    fn parse_stat(stat: &[u8]) -> Option<Self> {
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let after = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let [user, system, threads] =
            [11, 12, 17].map(|field: usize| fields.get(field)?.parse::<u64>().ok());
        Some(Self {
            // A call of `clone` runs (R) or waits where no signal wakes it (D).
            sleeps: !["R", "D"].contains(fields.first()?),
            time: user? + system?,
            threads: threads?,
        })
    }

    /// Returns true if a thread has returned from the call that was granted when it was as `before`.
    fn returned_since(&self, before: &Self) -> bool {
        self.sleeps || self.threads > before.threads || self.time >= before.time + RETURNED
    }
}

/// Interprets a failed request: `Ok(true)` if its sender is gone, else an error.
fn sender_gone() -> io::Result<bool> {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR | libc::EINPROGRESS) => Ok(true),
        _ => Err(error),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn task(state: char, time: u64, threads: u64) -> ThreadState {
        let stat = format!("7 (a) R) {state} 1 7 7 0 -1 0 0 0 0 0 {time} 2 9 9 20 0 {threads} 0 5");
        ThreadState::parse_stat(stat.as_bytes()).unwrap()
    }

    #[test]
    fn a_granted_call_has_ended_when_its_thread_sleeps_elsewhere_or_worked_on_or_there_is_one_more()
    {
        let before = task('S', 3, 4);
        assert_eq!((before.sleeps, before.time, before.threads), (true, 5, 4));
        for (now, returned) in [
            (task('R', 3, 4), false), // has not run since
            (task('D', 7, 4), false),
            (task('R', 3, 3), false), // another thread ended
            (task('S', 3, 4), true),
            (task('t', 3, 4), true),
            (task('R', 3, 5), true),
            (task('R', 8, 4), true),
        ] {
            assert_eq!(now.returned_since(&before), returned, "{now:?}");
        }
    }

    #[test]
    fn the_state_of_a_thread_is_that_of_the_system_and_none_of_one_that_is_gone() {
        let (process, thread) = (std::process::id() as i32, rustix::thread::gettid());
        let own = ThreadState::read_state(process, thread.as_raw_nonzero().get() as u32).unwrap();
        assert!(!own.sleeps && own.threads > 0, "{own:?}");
        assert!(ThreadState::read_state(process, 0).is_none());
        assert!(ThreadState::parse_stat(b"7 (cut").is_none());
    }
}
