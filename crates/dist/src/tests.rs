#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use crate::testing::{PortLease, launch, on_ranks, options};

/// Returns numbers of a rank whose sum depends on the order of addition.
fn numbers(rank: usize, count: usize) -> Vec<f32> {
    let number = |i: usize| (((i * 7919 + rank * 104_729) % 1009) as f32 - 504.0) * 1.1e-3;
    (0..count).map(|i| number(i) * 10_f32.powi((rank as i32 * 3 + i as i32) % 7)).collect()
}

/// Asserts that each rank has the sum of the numbers of all, added in the order of ranks.
fn assert_in_order(sums: &[Vec<f32>], count: usize) {
    let mut expected = numbers(0, count);
    for rank in 1..sums.len() {
        expected.iter_mut().zip(numbers(rank, count)).for_each(|(sum, value)| *sum += value);
    }
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for (rank, sum) in sums.iter().enumerate() {
        assert!(bits(sum) == bits(&expected), "rank {rank} of {}", sums.len());
    }
}

#[test]
fn sums_are_added_in_the_order_of_ranks_and_equal_on_all() {
    for (size, count) in [(2, 1), (3, 2), (3, 1000), (4, 4097)] {
        let sums = on_ranks(size, |ranks| {
            let mut own = numbers(ranks.rank(), count);
            ranks.channel(1).all_reduce(&mut own).unwrap();
            ranks.channel(1).barrier().unwrap();
            own
        });
        assert_in_order(&sums, count);
    }
}

/// Runs ranks of which each machine has `local`, as their launcher says.
pub(crate) fn on_machines<T: Send>(
    size: usize,
    local: usize,
    run: impl Fn(Ranks) -> T + Sync,
) -> Vec<T> {
    let lease = PortLease::take();
    let port = lease.port;
    std::thread::scope(|scope| {
        let spawn = |rank: usize| {
            let place = Launch {
                local_rank: Some(rank % local),
                local_size: Some(local),
                ..launch(rank, size)
            };
            let run = &run;
            scope.spawn(move || run(Ranks::join(&place, &options(port)).unwrap()))
        };
        let threads: Vec<_> = (0..size).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn sums_over_several_machines_have_the_bits_of_one_machine() {
    let count = 200_000;
    for (size, local) in [(4, 2), (6, 3), (6, 2)] {
        let sums = on_machines(size, local, |ranks| {
            assert!(ranks.channel(2).machines().unwrap().has_stages());
            let mut own = numbers(ranks.rank(), count);
            ranks.channel(1).all_reduce(&mut own).unwrap();
            ranks.channel(1).barrier().unwrap();
            own
        });
        assert_in_order(&sums, count);
    }
    let machines = |ranks: Ranks| {
        let found = ranks.channel(1).machines().unwrap();
        ranks.channel(1).barrier().unwrap();
        found
    };
    // Of machines with unequal numbers of ranks, and of launchers that do not tell, nothing is known.
    let uneven = on_machines(5, 2, machines);
    let silent = on_ranks(2, machines);
    assert_eq!((uneven[0], silent[1]), (Machines::new(5, 5), Machines::new(2, 2)));
}

#[test]
fn the_sums_of_the_ranges_of_all_ranks_gathered_are_the_bits_of_a_sum_of_whole_arrays() {
    // An array of several pieces, a rank without elements, and no elements at all.
    for bounds in [vec![0, 5 << 20, (5 << 20) + 64], vec![0, 128, 128, 192], vec![0, 0, 0]] {
        let size = bounds.len() - 1;
        let ranges: Vec<_> = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
        on_ranks(size, |ranks| {
            let own = numbers(ranks.rank(), bounds[size]);
            let channel = ranks.channel(1);
            let mut whole = own.clone();
            channel.all_reduce(&mut whole).unwrap();
            let mut parts = own;
            channel.reduce_scatter(&mut parts, &ranges).unwrap();
            let range = ranges[ranks.rank()].clone();
            assert!(parts[range.clone()] == whole[range.clone()]);
            let mut gathered = vec![f32::NAN; parts.len()];
            gathered[range.clone()].copy_from_slice(&parts[range]);
            channel.all_gather_ranges(&mut gathered, &ranges).unwrap();
            assert!(gathered == whole);
            channel.barrier().unwrap();
        });
    }
}

#[test]
fn messages_of_every_length_arrive_whole_on_the_channel_they_were_sent_on() {
    let lengths = [0, 1, 9, (1 << 22) - 1, 1 << 22, (9 << 20) + 5];
    on_ranks(2, |ranks| {
        let (one, two) = (ranks.channel(1), ranks.channel(2));
        for length in lengths {
            let message = |rank: usize| -> Vec<u8> {
                (0..length).map(|i| (i * 31 + rank * 7 + length) as u8).collect()
            };
            // The ranks use the channels in different orders.
            let own = message(ranks.rank());
            let check = |all: Vec<Vec<u8>>| assert!(all == [message(0), message(1)], "{length}");
            let first = std::thread::scope(|scope| {
                let other = scope.spawn(|| two.all_gather(&own).unwrap());
                check(one.all_gather(&own).unwrap());
                other.join().unwrap()
            });
            check(first);
            assert_eq!(one.broadcast(&own).unwrap(), message(0));
        }
        assert_eq!(one.all_gather_f64(&[ranks.rank() as f64]).unwrap(), [[0.0], [1.0]]);
        one.barrier().unwrap();
    });
}

#[test]
fn the_error_of_a_rank_ends_all_others_with_its_reason() {
    let errors = on_ranks(3, |ranks| {
        if ranks.rank() == 1 {
            ranks.abort("the disk is full");
            return None;
        }
        let error = ranks.channel(0).barrier().unwrap_err();
        assert_eq!(ranks.failure().as_ref(), Some(&error));
        Some(error.to_string())
    });
    for error in errors.into_iter().flatten() {
        assert!(error.starts_with("rank 1 ("), "{error}");
        assert!(error.ends_with("ended the run: the disk is full"), "{error}");
    }
}

#[test]
fn the_end_of_a_rank_that_took_leave_is_no_loss() {
    on_ranks(3, |ranks| {
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
        if ranks.rank() == 0 {
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(ranks.failure(), None);
        }
    });
}

#[test]
fn ranks_that_differ_are_named() {
    let errors = on_ranks(3, |ranks| {
        let number = if ranks.rank() == 2 { 5 } else { 4 };
        let agreed = ranks.channel(0).agree(number, "the weights differ");
        ranks.channel(0).barrier().unwrap();
        agreed.unwrap_err().to_string()
    });
    assert_eq!(errors, ["rank 2 differs from rank 0: the weights differ"; 3]);
}

#[test]
fn strangers_at_the_port_of_rank_0_are_sent_away() {
    let lease = PortLease::take();
    let port = lease.port;
    let two = std::thread::scope(|scope| {
        let leader = scope.spawn(|| Ranks::join(&launch(0, 2), &options(port)).unwrap());
        let stranger = loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                break stream;
            }
        };
        (&stranger).write_all(b"GET / HTTP/1.1\r\nhost: rank-0\r\naccept: */*\r\n\r\n").unwrap();
        let other = Launch { job: "other".to_owned(), ..launch(1, 2) };
        let short = DistOptions { join: Duration::from_millis(300), ..options(port) };
        assert!(Ranks::join(&other, &short).is_err());
        let follower = Ranks::join(&launch(1, 2), &options(port)).unwrap();
        [leader.join().unwrap(), follower]
    });
    assert_eq!(two.each_ref().map(Ranks::rank), [0, 1]);
}

#[test]
fn a_rank_that_ends_before_all_have_joined_is_named_at_once() {
    let lease = PortLease::take();
    let port = lease.port;
    let head = [&b"maverl-2"[..], &launch(1, 3).key().to_le_bytes(), &[1, 0, 0, 0], &[0; 4]];
    let greeting = [&head.concat()[..], &13_u32.to_le_bytes(), b"node-1, pid 7"].concat();
    let error = std::thread::scope(|scope| {
        let leader = scope.spawn(|| Ranks::join(&launch(0, 3), &options(port)).unwrap_err());
        let stream = loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                break stream;
            }
        };
        (&stream).write_all(&greeting).unwrap();
        drop(stream);
        leader.join().unwrap().to_string()
    });
    assert!(error.contains("rank 1 (`node-1, pid 7`) ended before all had joined"), "{error}");
}

/// Connects strangers with a port until `stop` is set, of which some are silent, some slow, and some talk without an end.
fn strangers(port: u16, count: usize, stop: &AtomicBool) {
    let key = launch(0, 2).key().to_le_bytes();
    let heads = [
        b"maverl-2".to_vec(),
        [&b"maverl-2"[..], &[0; 8], &[1, 0, 0, 0], &[0; 4], &(1_u32 << 20).to_le_bytes()].concat(),
        [&b"maverl-2"[..], &key, &[1, 0, 0, 0], &[0; 4], &u32::MAX.to_le_bytes()].concat(),
        [&b"maverl-2"[..], &key, &[9, 0, 0, 0], &[0; 4], &4_u32.to_le_bytes()].concat(),
        b"GET / HTTP/1.1\r\n\r\n".repeat(9),
        vec![0xff; 28],
    ];
    let mut open: Vec<(usize, TcpStream)> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        if let (true, Ok(stream)) = (open.len() < count, TcpStream::connect(("127.0.0.1", port))) {
            stream.set_nonblocking(true).unwrap();
            if !open.len().is_multiple_of(3) {
                let _ = (&stream).write(&heads[open.len() % heads.len()]);
            }
            open.push((open.len(), stream));
            continue;
        }
        // Some go on, byte for byte or as fast as they can.
        for (i, stream) in open.iter().filter(|(i, _)| !i.is_multiple_of(3)) {
            let bytes: &[u8] = if i % 3 == 1 { b"x" } else { &[b'x'; 4096] };
            let _ = (&mut &*stream).write(bytes);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets two ranks join at a port with so many strangers, and returns the time that it takes from the start of rank 1.
fn join_beside(count: usize) -> Duration {
    let (lease, stop) = (PortLease::take(), AtomicBool::new(false));
    let port = lease.port;
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| Ranks::join(&launch(0, 2), &options(port)));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {}
        scope.spawn(|| strangers(port, count, &stop));
        std::thread::sleep(Duration::from_millis(500));
        let begin = Instant::now();
        let follower = Ranks::join(&launch(1, 2), &options(port));
        let leader = leader.join().unwrap();
        let taken = begin.elapsed();
        stop.store(true, Ordering::SeqCst);
        assert_eq!([leader.unwrap().rank(), follower.unwrap().rank()], [0, 1]);
        taken
    })
}

#[test]
fn two_ranks_join_beside_two_hundred_strangers_that_are_silent_slow_or_talk() {
    join_beside(200);
}

#[test]
#[ignore = "a guard of speed"]
fn two_hundred_strangers_delay_two_ranks_by_less_than_a_second() {
    let [alone, beside] = [0, 200].map(join_beside);
    println!("two ranks join in {alone:?}, and beside 200 strangers in {beside:?}");
    assert!(beside < alone + Duration::from_secs(1), "{alone:?}, {beside:?}");
}

#[test]
fn a_stranger_that_goes_on_does_not_prolong_the_time_to_join() {
    let (lease, stop) = (PortLease::take(), AtomicBool::new(false));
    let port = lease.port;
    let short = DistOptions { join: Duration::from_secs(1), ..options(port) };
    std::thread::scope(|scope| {
        scope.spawn(|| strangers(port, 20, &stop));
        let error = Ranks::join(&launch(0, 2), &short).unwrap_err().to_string();
        stop.store(true, Ordering::SeqCst);
        assert!(error.contains("rank 1 has not joined in time"), "{error}");
    });
}

#[test]
fn a_stranger_at_the_address_of_rank_0_does_not_hold_a_rank_beyond_the_time_to_join() {
    let head = |key: [u8; 8]| [&b"maverl-2"[..], &key].concat();
    let own = head(launch(0, 2).key().to_le_bytes());
    let table = |length: u32| [&own[..], &length.to_le_bytes()].concat();
    // Nothing, and beginnings after which a byte comes at a time.
    let starts = [
        vec![],
        own.clone(),
        table(1 << 20),
        table(u32::MAX),
        head([0; 8]),
        b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
    ];
    for start in starts {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let short = DistOptions { join: Duration::from_secs(1), ..options(port) };
        std::thread::scope(|scope| {
            let (shown, stop) = (start.clone(), Arc::new(AtomicBool::new(false)));
            let stopped = Arc::clone(&stop);
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut sent = stream.write_all(&start);
                while sent.is_ok() && !stopped.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(50));
                    sent = if start.is_empty() { Ok(()) } else { stream.write_all(b"x") };
                }
            });
            let error = Ranks::join(&launch(1, 2), &short).unwrap_err().to_string();
            stop.store(true, Ordering::SeqCst);
            assert!(error.contains("rank 0 did not hear from all 2 ranks"), "{shown:?}: {error}");
        });
    }
}

#[test]
fn a_rank_that_is_asked_to_stop_tells_rank_0() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let asked = std::sync::Mutex::new(runtime);
    on_ranks(3, |ranks| {
        if ranks.rank() == 2 {
            ranks.ask_to_stop().unwrap();
        }
        if ranks.rank() == 0 {
            assert_eq!(asked.lock().unwrap().block_on(ranks.stop_asked()), 2);
        }
        ranks.channel(0).barrier().unwrap();
    });
}

#[test]
fn a_rank_that_does_not_join_in_time_is_named() {
    let lease = PortLease::take();
    let short = DistOptions { join: Duration::from_millis(300), ..options(lease.port) };
    let error = Ranks::join(&launch(0, 2), &short).unwrap_err().to_string();
    assert!(error.contains("rank 1 has not joined in time"), "{error}");
    let error = Ranks::join(&launch(1, 2), &short).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    let nowhere = DistOptions { address: None, ..short };
    let error = Ranks::join(&launch(1, 2), &nowhere).unwrap_err().to_string();
    assert!(error.contains("`dist.address"), "{error}");
}
