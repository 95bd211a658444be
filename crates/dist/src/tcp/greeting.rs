//! Greetings between ranks that do not know each other yet.
//!
//! ```text
//! a rank   magic (8)  key of the job (8)  rank (4)  port (4)  length (4)  host and process
//! rank 0   magic (8)  key of the job (8)                      length (4)  addresses of all ranks
//! ```
//!
//! Whoever reaches the port may send anything, or nothing: all connections are read at once and without waiting, a greeting
//! has one deadline, and nothing whose length the sender chooses is read before its key is compared.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Begins every message, with the version of the protocol.
const MAGIC: [u8; 8] = *b"maverl-2";
/// Length of magic and key.
const HEAD: usize = 16;
/// Length of a greeting before its text.
const GREETING: usize = HEAD + 12;
/// Time in which a greeting must arrive.
const GREETED: Duration = Duration::from_secs(10);
/// Longest text of a greeting.
const PLACE: usize = 4096;
/// Longest table of addresses.
pub(super) const TABLE: usize = 16 << 20;
/// Connections without a greeting that are open at once. The oldest one makes room for another.
const OPEN: usize = 256;

/// Introduction of a rank.
#[derive(Debug, Clone)]
pub(super) struct Greeting {
    pub(super) rank: usize,
    /// Port at which it listens.
    pub(super) port: u16,
    /// Host and process, for messages.
    pub(super) place: String,
}

/// Connections that have not greeted yet.
pub(super) struct Callers {
    key: u64,
    /// Ranks that are awaited.
    ranks: Range<usize>,
    open: Vec<Caller>,
}

/// A connection, and what it has sent so far.
struct Caller {
    stream: TcpStream,
    from: IpAddr,
    deadline: Instant,
    bytes: Vec<u8>,
}

/// Returns the beginning of every message between the ranks of a job.
pub(super) fn head(key: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..].copy_from_slice(&key.to_le_bytes());
    head
}

impl Greeting {
    /// Sends the introduction.
    pub(super) fn send(
        &self,
        stream: &mut TcpStream,
        key: u64,
        deadline: Instant,
    ) -> io::Result<()> {
        let numbers = [self.rank as u32, u32::from(self.port)].map(u32::to_le_bytes).concat();
        let place: String = self.place.chars().take(PLACE / 4).collect();
        send_text(stream, &[&head(key)[..], &numbers].concat(), &place, deadline)
    }
}

impl Callers {
    pub(super) fn new(key: u64, ranks: Range<usize>) -> Self {
        Self { key, ranks, open: Vec::new() }
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, stream: TcpStream, from: IpAddr) {
        if stream.set_nonblocking(true).is_ok() {
            if self.open.len() == OPEN {
                self.open.remove(0);
            }
            let deadline = Instant::now() + GREETED;
            self.open.push(Caller { stream, from, deadline, bytes: Vec::new() });
        }
    }

    /// Reads what has arrived, and returns the ranks whose greetings are complete. Connections that greet wrongly or too
    /// late are closed.
    pub(super) fn greetings(&mut self) -> Vec<(Greeting, TcpStream, IpAddr)> {
        let mut complete = Vec::new();
        for mut caller in std::mem::take(&mut self.open) {
            match caller.read(self.key, &self.ranks) {
                Ok(Some(greeting)) => {
                    if caller.stream.set_nonblocking(false).is_ok() {
                        complete.push((greeting, caller.stream, caller.from));
                    }
                }
                Ok(None) if Instant::now() < caller.deadline => self.open.push(caller),
                Ok(None) | Err(_) => {}
            }
        }
        complete
    }
}

impl Caller {
    /// Reads what has arrived; returns the greeting once it is complete, and an error if it is none.
    fn read(&mut self, key: u64, ranks: &Range<usize>) -> io::Result<Option<Greeting>> {
        let mut buffer = [0; 1024];
        loop {
            let missing = self.length(key, ranks)? - self.bytes.len();
            if missing == 0 {
                let place = String::from_utf8_lossy(&self.bytes[GREETING..]).into_owned();
                let (rank, port) = (self.number(HEAD), self.number(HEAD + 4) as u16);
                return Ok(Some(Greeting { rank, port, place }));
            }
            match self.stream.read(&mut buffer[..missing.min(1024)]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.bytes.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the length of the greeting as far as it is known. The key is compared before the length of the text counts.
    fn length(&self, key: u64, ranks: &Range<usize>) -> io::Result<usize> {
        if self.bytes.len() < GREETING {
            return Ok(GREETING);
        }
        let length = self.number(HEAD + 8);
        if self.bytes[..HEAD] != head(key) || !ranks.contains(&self.number(HEAD)) || length > PLACE
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(GREETING + length)
    }

    fn number(&self, at: usize) -> usize {
        number(&self.bytes[at..])
    }
}

/// Sends a head, and a text after its length.
pub(super) fn send_text(
    stream: &mut TcpStream,
    head: &[u8],
    text: &str,
    deadline: Instant,
) -> io::Result<()> {
    let length = (text.len() as u32).to_le_bytes();
    let message = [head, &length, text.as_bytes()].concat();
    let mut rest = message.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives a text of at most so many bytes after a head, which is compared first.
pub(super) fn receive_text(
    stream: &mut TcpStream,
    head: &[u8],
    most: usize,
    deadline: Instant,
) -> io::Result<String> {
    let first = receive(stream, head.len() + 4, deadline)?;
    let length = number(&first[head.len()..]);
    if first[..head.len()] != *head || length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no rank of this job"));
    }
    Ok(String::from_utf8_lossy(&receive(stream, length, deadline)?).into_owned())
}

fn receive(stream: &mut TcpStream, length: usize, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => rest = &mut rest[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Returns the time until a deadline.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Returns the number in the first four bytes.
fn number(bytes: &[u8]) -> usize {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(four) as usize
}
