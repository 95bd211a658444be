//! Ranks that are threads of one process, for tests. Tests of the engine include this file.
#![allow(clippy::unwrap_used)]

#[path = "testing/port.rs"]
mod port;

use std::time::Duration;

pub(crate) use self::port::PortLease;
use super::{DistOptions, Launch, Ranks};

/// Time within which the loss of a rank ends the others.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);

/// Returns how a rank was launched.
pub(crate) fn launch(rank: usize, size: usize) -> Launch {
    let variables = [
        ("MAVERL_RANK", rank.to_string()),
        ("MAVERL_RANKS", size.to_string()),
        ("MAVERL_JOB", "test".to_owned()),
    ];
    let get = |name: &str| {
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.clone())
    };
    Launch::detect(get).unwrap().unwrap()
}

/// Returns options with an address on this machine.
pub(crate) fn options(port: u16) -> DistOptions {
    on_port(DistOptions::default(), port)
}

fn on_port(mut options: DistOptions, port: u16) -> DistOptions {
    options.address = Some(format!("127.0.0.1:{port}"));
    options.timeout = TIMEOUT;
    options.join = Duration::from_secs(20);
    options
}

/// Runs ranks on threads, and returns what each returns.
pub(crate) fn on_ranks<T: Send>(size: usize, run: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    let lease = PortLease::take();
    let port = lease.port;
    std::thread::scope(|scope| {
        let spawn = |rank| {
            let run = &run;
            scope.spawn(move || run(Ranks::join(&launch(rank, size), &options(port)).unwrap()))
        };
        let threads: Vec<_> = (0..size).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
