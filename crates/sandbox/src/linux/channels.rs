//! Descriptors that connect a new process: its input and outputs, its wire, and the handover of its start.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};

/// Descriptors of a program: input, output, errors, and the wire.
pub(super) const DESCRIPTORS: usize = 4;
/// Descriptor by which a new process sends data to its parent; closed before it runs anything.
pub(super) const HANDOVER: RawFd = DESCRIPTORS as RawFd;
/// First number of our own descriptors, above those of a program.
const OURS: RawFd = 16;

/// Ends of the connections that a new process gets.
#[derive(Debug)]
pub(super) struct InnerEnds<T> {
    /// Input, output, errors, and the wire.
    pub(super) program: [T; DESCRIPTORS],
    /// Connection by which the process reports on its start.
    pub(super) handover: T,
}

impl InnerEnds<OwnedFd> {
    /// Returns the numbers of the descriptors.
    pub(super) fn numbers(&self) -> InnerEnds<RawFd> {
        InnerEnds {
            program: self.program.each_ref().map(AsRawFd::as_raw_fd),
            handover: self.handover.as_raw_fd(),
        }
    }
}

/// Ends that the parent keeps.
#[derive(Debug)]
pub(super) struct OuterEnds {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
    handover: OwnedFd,
}

/// Report of a new process on its start.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Listener of the filter that counts threads.
    pub(super) listener: Option<OwnedFd>,
    /// Index of the call that failed, and the error.
    pub(super) failure: Option<(usize, io::Error)>,
}

/// Creates the connections of a process that gets this wire.
pub(super) fn create_ends(wire: OwnedFd) -> io::Result<(InnerEnds<OwnedFd>, OuterEnds)> {
    let (inner_input, input) = create_pipe()?;
    let (output, inner_output) = create_pipe()?;
    let (errors, inner_errors) = create_pipe()?;
    let (handover, far) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let above = |end: OwnedFd| fcntl_dupfd_cloexec(&end, OURS);
    let program = [above(inner_input)?, above(inner_output)?, above(inner_errors)?, above(wire)?];
    let inner = InnerEnds { program, handover: above(far)? };
    Ok((inner, OuterEnds { input, output, errors, handover }))
}

/// Creates a pipe whose ends no program inherits.
fn create_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

impl OuterEnds {
    /// Receives the report of a new process, which is complete when it has closed its end.
    pub(super) fn receive_handover(&self) -> io::Result<Handover> {
        let (mut handover, mut text) = (Handover::default(), Vec::new());
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut message = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [0; 64];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let buffers = &mut [IoSliceMut::new(&mut bytes)];
            let n = match recvmsg(&self.handover, buffers, &mut message, flags) {
                Ok(received) => received.bytes,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in message.drain() {
                if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                    handover.listener = descriptors.next();
                }
            }
            if n == 0 {
                break;
            }
            text.extend_from_slice(&bytes[..n]);
        }
        handover.failure = parse_failure(&text);
        Ok(handover)
    }
}

/// Parses `failed INDEX ERROR`, which follows the byte that comes with the listener.
fn parse_failure(text: &[u8]) -> Option<(usize, io::Error)> {
    let text = std::str::from_utf8(text).ok()?;
    let (index, error) = text.split_once("failed ")?.1.split_once(' ')?;
    Some((index.parse().ok()?, io::Error::from_raw_os_error(error.parse().ok()?)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_call_that_failed_also_after_a_listener() {
        let failure =
            |text: &str| parse_failure(text.as_bytes()).map(|(n, e)| (n, e.raw_os_error()));
        assert_eq!(failure("failed 12 1"), Some((12, Some(libc::EPERM))));
        assert_eq!(failure("lfailed 3 22"), Some((3, Some(libc::EINVAL))));
        assert_eq!(failure("l"), None);
        assert_eq!(failure(""), None);
    }

    #[test]
    fn a_report_ends_with_the_last_copy_of_its_end() {
        let (wire, _other) = create_pipe().unwrap();
        let (inner, outer) = create_ends(wire).unwrap();
        rustix::io::write(&inner.handover, b"failed 1 9").unwrap();
        drop(inner);
        let handover = outer.receive_handover().unwrap();
        assert!(handover.listener.is_none());
        assert_eq!(handover.failure.map(|(index, _)| index), Some(1));
    }
}
