//! Rendezvous: every rank reports to rank 0, gets the addresses of all, and connects with those before it.

use std::array;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::greeting::{Callers, Greeting, TABLE, head, receive_text, send_text};
use crate::message::own_place;
use crate::{DistOptions, Launch, RankError};

/// Longest time of one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Time between two attempts, and between two looks at the connections that have not greeted yet.
const PAUSE: Duration = Duration::from_millis(10);

/// Connection with another rank.
pub(super) struct Joined {
    pub(super) stream: TcpStream,
    /// Host and process of the rank, for messages.
    pub(super) place: String,
}

/// Rendezvous of one rank.
struct Meeting<'l> {
    launch: &'l Launch,
    address: String,
    deadline: Instant,
}

/// Connects with all other ranks; `None` is at the place of this one.
pub(super) fn join(
    launch: &Launch,
    options: &DistOptions,
) -> Result<Vec<Option<Joined>>, RankError> {
    let address = options.address.clone().or_else(|| launch.address.clone());
    let missing = RankError::NoAddress { launcher: launch.launcher };
    let meeting = Meeting {
        launch,
        address: address.ok_or(missing)?,
        deadline: Instant::now() + options.join,
    };
    let joined = match launch.rank {
        0 => meeting.lead(),
        _ => meeting.follow(),
    };
    joined.map_err(|reason| RankError::Join {
        rank: launch.rank,
        size: launch.size,
        address: meeting.address.clone(),
        reason,
    })
}

impl Meeting<'_> {
    /// Waits for all ranks, and tells each the addresses of all.
    fn lead(&self) -> Result<Vec<Option<Joined>>, String> {
        let port = self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port: u16 = port.ok_or("it is not `host:port`")?;
        let listener = listen(self.any(), port).map_err(|error| {
            format!("rank 0 cannot listen there: {error}; set `dist.address` to a free port")
        })?;
        let mut joined: Vec<Option<Joined>> = (0..self.launch.size).map(|_| None).collect();
        let mut table = vec![String::new(); self.launch.size];
        self.accept(&listener, &mut joined, |greeting, from| {
            // A rank on the machine of rank 0 has the address by which others reach rank 0.
            let host = if from.is_loopback() { String::new() } else { from.to_string() };
            table[greeting.rank] = format!("{host} {} {}", greeting.port, greeting.place);
        })?;
        let table = table.join("\n");
        for joined in joined.iter_mut().flatten() {
            let head = head(self.launch.key());
            let sent = send_text(&mut joined.stream, &head, &table, self.deadline);
            sent.map_err(|error| format!("`{}` is gone: {error}", joined.place))?;
        }
        Ok(joined)
    }

    /// Reports to rank 0, and connects with all others.
    fn follow(&self) -> Result<Vec<Option<Joined>>, String> {
        let listener = listen(self.any(), 0).map_err(|error| format!("no port: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let mut first = self.connect(&self.address)?;
        let leader = first.peer_addr().map_err(|error| error.to_string())?.ip();
        self.greet(&mut first, port)?;
        let head = head(self.launch.key());
        let table = receive_text(&mut first, &head, TABLE, self.deadline);
        let table = table.map_err(|error| {
            format!("rank 0 did not hear from all {} ranks in time ({error})", self.launch.size)
        })?;
        let mut joined: Vec<Option<Joined>> = (0..self.launch.size).map(|_| None).collect();
        joined[0] = Some(Joined { stream: first, place: format!("at {}", self.address) });
        for (rank, line) in table.lines().enumerate().take(self.launch.rank).skip(1) {
            let mut parts = line.splitn(3, ' ');
            let [host, port_of, place] = array::from_fn(|_| parts.next().unwrap_or_default());
            let ip = host.parse().unwrap_or(leader);
            let port_of = port_of.parse().map_err(|_| format!("rank {rank} has no port"))?;
            let mut stream = self.connect(&SocketAddr::new(ip, port_of).to_string())?;
            self.greet(&mut stream, port)?;
            joined[rank] = Some(Joined { stream, place: place.to_owned() });
        }
        self.accept(&listener, &mut joined, |_, _| ())?;
        Ok(joined)
    }

    /// Returns the address to listen at: only on this machine if all ranks are there.
    fn any(&self) -> IpAddr {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        match host {
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            "[::1]" => Ipv6Addr::LOCALHOST.into(),
            _ if host.starts_with("127.") => Ipv4Addr::LOCALHOST.into(),
            _ if host.starts_with('[') => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    /// Accepts ranks until all after this one are there. All connections are read at once, and those without a valid
    /// greeting are closed.
    fn accept(
        &self,
        listener: &TcpListener,
        joined: &mut [Option<Joined>],
        mut greeted: impl FnMut(&Greeting, IpAddr),
    ) -> Result<(), String> {
        let after = self.launch.rank + 1..self.launch.size;
        let mut callers = Callers::new(self.launch.key(), after.clone());
        while let Some(missing) = after.clone().find(|&rank| joined[rank].is_none()) {
            if Instant::now() >= self.deadline {
                return Err(format!("rank {missing} has not joined in time"));
            }
            while let Ok((stream, from)) = listener.accept() {
                callers.add(stream, from.ip());
            }
            for (greeting, stream, from) in callers.greetings() {
                if let Some(other) = &joined[greeting.rank] {
                    let (rank, one, two) = (greeting.rank, &other.place, &greeting.place);
                    return Err(format!("two processes are rank {rank}: `{one}` and `{two}`"));
                }
                greeted(&greeting, from);
                joined[greeting.rank] = Some(Joined { stream, place: greeting.place });
            }
            if joined[missing].is_none() {
                refuse_gone(joined)?;
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Connects with an address as soon as it is there.
    fn connect(&self, address: &str) -> Result<TcpStream, String> {
        loop {
            let found = address.to_socket_addrs();
            let attempt = found.and_then(|found| {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in found {
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    match TcpStream::connect_timeout(&address, left.clamp(PAUSE, ATTEMPT)) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            });
            match attempt {
                Ok(stream) => return Ok(stream),
                Err(_) if Instant::now() < self.deadline => std::thread::sleep(PAUSE),
                Err(error) => return Err(format!("`{address}` does not answer: {error}")),
            }
        }
    }

    /// Introduces this rank.
    fn greet(&self, stream: &mut TcpStream, port: u16) -> Result<(), String> {
        let greeting = Greeting { rank: self.launch.rank, port, place: own_place() };
        let sent = greeting.send(stream, self.launch.key(), self.deadline);
        sent.map_err(|error| format!("the greeting: {error}"))
    }
}

/// Fails if a rank that has joined has closed its connection: all others would wait for it in vain.
fn refuse_gone(joined: &[Option<Joined>]) -> Result<(), String> {
    for (rank, other) in joined.iter().enumerate() {
        if let Some(other) = other.as_ref().filter(|other| is_closed(&other.stream)) {
            return Err(format!("rank {rank} (`{}`) ended before all had joined", other.place));
        }
    }
    Ok(())
}

/// Returns true if the other end of a connection has closed it. What it has sent stays unread.
fn is_closed(stream: &TcpStream) -> bool {
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let blocking = stream.set_nonblocking(false);
    let waits = matches!(&peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    blocking.is_err() || !(waits || matches!(peeked, Ok(1..)))
}

/// Listens at a port without blocking; port 0 is a free one.
fn listen(ip: IpAddr, port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((ip, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
