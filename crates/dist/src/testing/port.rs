//! Ports for servers of other processes. Tests of several crates include this file.
#![allow(unreachable_pub)] // one of them exports it

use std::net::TcpListener;

/// Ports above those that follow from the name of a job, and below those that systems hand out by themselves (Linux begins at
/// 32,768, others at 49,152).
const PORTS: std::ops::Range<u16> = 30_000..32_000;

/// Port of this machine that no other test is given, and no connection, while this value lives.
pub struct PortLease {
    /// Holds the port before.
    _neighbour: TcpListener,
    /// Number of the port.
    pub port: u16,
}

impl PortLease {
    /// Takes a free port.
    pub fn take() -> Self {
        let half = (PORTS.end - PORTS.start) / 2;
        let first = (std::process::id() % u32::from(half)) as u16;
        let ports = (0..half).map(|i| PORTS.start + 2 * ((first + i) % half));
        ports.into_iter().find_map(Self::beside).expect("a free port")
    }

    /// Takes the port after an even one, if both are free.
    fn beside(even: u16) -> Option<Self> {
        let neighbour = TcpListener::bind(("127.0.0.1", even)).ok()?;
        let port = even + 1;
        TcpListener::bind(("127.0.0.1", port)).ok()?;
        Some(Self { _neighbour: neighbour, port })
    }
}
