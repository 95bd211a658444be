//! System calls that are allowed with some arguments only.
//!
//! Each rule states the effect that other arguments could have on a process or a file outside.

use libc::c_long;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Access mode bits of `open`.
const MODE: u64 = 3;
/// `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
const PRIVATE: u64 = 128;
const REALTIME: u64 = 256;

/// The descriptor of the connection to the outside.
const WIRE: u64 = 3;

/// A condition on an argument: its number, the comparison, and the value.
#[derive(Clone)]
struct Argument(u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// Alternative sets of conditions of a system call; all conditions of one set must hold.
type Sets = Vec<Vec<Argument>>;

/// Requires the argument to have this value.
fn argument_equals(argument: u8, value: u64) -> Argument {
    Argument(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// Requires these bits of the argument to have these values.
fn masked_equals(argument: u8, mask: u64, value: u64) -> Argument {
    Argument(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
}

/// Requires all other bits of the argument to be zero.
fn only_bits(argument: u8, mask: u64) -> Argument {
    masked_equals(argument, !mask & u64::from(u32::MAX), 0)
}

/// Requires the argument to be at most this, unsigned.
fn at_most(argument: u8, value: u64) -> Argument {
    Argument(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Le, value)
}

/// Requires the argument to be a null pointer.
fn is_null(argument: u8) -> Argument {
    Argument(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
}

/// Requires the argument to be one of these.
fn one_of(argument: u8, values: &[u64]) -> Sets {
    values.iter().map(|value| vec![argument_equals(argument, *value)]).collect()
}

/// Converts a flag of the C library to an argument.
const fn flag_bits(flag: i32) -> u64 {
    flag as u64
}

/// Returns the bits of a request of `ioctl`, whose type differs among C libraries.
#[allow(clippy::unnecessary_cast, reason = "it is none with musl, where the type is signed")]
const fn request_bits(request: libc::Ioctl) -> u64 {
    request as u64
}

/// Rules by system call.
pub(super) fn argument_rules() -> Result<Vec<(c_long, Vec<SeccompRule>)>, BackendError> {
    let mut calls = vec![
        (libc::SYS_clone, allow_threads()),
        (libc::SYS_fcntl, allow_fcntl()),
        (libc::SYS_openat, allow_open_flags(2)),
        (libc::SYS_futex, allow_futex()),
        (libc::SYS_mmap, allow_mapping()),
        (libc::SYS_madvise, allow_advice()),
        // The process's own limits; those of another process are not reachable.
        (libc::SYS_prlimit64, vec![vec![argument_equals(0, 0)]]),
        // Flags of a file's descriptor, whether it is a terminal, and waiting. Every other request concerns a driver, a
        // file system, or the receiver of signals (`FIOSETOWN`, `SIOCSPGRP`).
        (
            libc::SYS_ioctl,
            one_of(
                1,
                &[libc::TCGETS, libc::FIOCLEX, libc::FIONCLEX, libc::FIONBIO].map(request_bits),
            ),
        ),
        // Without `O_NOTIFICATION_PIPE`.
        (
            libc::SYS_pipe2,
            vec![vec![only_bits(
                1,
                flag_bits(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_DIRECT),
            )]],
        ),
        // Barriers among the program's own threads; the others interrupt processors.
        (libc::SYS_membarrier, one_of(0, &[0, 8, 16])),
        // Clocks of the machine, and of the program's own threads; not the processor time of another process.
        (libc::SYS_clock_gettime, vec![vec![at_most(0, 15)], vec![masked_equals(0, 7, 6)]]),
        (libc::SYS_clock_getres, vec![vec![at_most(0, 15)], vec![masked_equals(0, 7, 6)]]),
        (libc::SYS_clock_nanosleep, vec![vec![at_most(0, 15)]]),
    ];
    calls.extend(allow_socket_pairs());
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_open, allow_open_flags(1)));
    calls.into_iter().map(|(call, sets)| Ok((call, build_rules(sets)?))).collect()
}

/// Returns the locks that succeed as no-ops: those of a process, which shares `/tmp` with no other. A lock on a file of
/// the interpreter would be one on the machine's file.
pub(super) fn lock_rules() -> Result<Vec<SeccompRule>, BackendError> {
    build_rules(one_of(1, &[libc::F_SETLK, libc::F_SETLKW].map(flag_bits)))
}

fn build_rules(sets: Sets) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = sets.into_iter().map(|set| {
        let conditions = set.into_iter().map(|Argument(number, size, compare, value)| {
            SeccompCondition::new(number, size, compare, value)
        });
        SeccompRule::new(conditions.collect::<Result<_, _>>()?)
    });
    rules.collect()
}

/// Allows threads that share everything. A thread with its own table of descriptors would have its own limit; one with
/// a handle, a tracer or a namespace is not needed.
fn allow_threads() -> Sets {
    let shared = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let other = libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_SETTID
        | libc::CLONE_CHILD_CLEARTID
        | libc::CLONE_DETACHED;
    let mask = !flag_bits(other) & u64::from(u32::MAX);
    vec![vec![masked_equals(0, mask, flag_bits(shared))]]
}

/// Allows these commands of `fcntl`: copies and flags of descriptors, and locks. The others include owners, signals,
/// leases and watches (`F_SETOWN`, `F_SETSIG`, `F_SETLEASE`, `F_NOTIFY`), which reach processes and files outside by
/// user and inode, and sizes of pipes, which are counted by user. `O_ASYNC` signals an owner; `O_DIRECT` bypasses the
/// page cache.
fn allow_fcntl() -> Sets {
    let mut sets = one_of(
        1,
        &[
            libc::F_DUPFD,
            libc::F_DUPFD_CLOEXEC,
            libc::F_GETFD,
            libc::F_SETFD,
            libc::F_GETFL,
            libc::F_GETLK,
            libc::F_SETLK,
            libc::F_SETLKW,
        ]
        .map(flag_bits),
    );
    let forbidden = flag_bits(libc::O_ASYNC | libc::O_DIRECT);
    sets.push(vec![argument_equals(1, flag_bits(libc::F_SETFL)), masked_equals(2, forbidden, 0)]);
    sets
}

/// Allows flags of `open`. Truncation requires opening for writing: before its third version, Landlock allows
/// truncating a readable file. The access mode that is neither reading nor writing is invisible to Landlock.
fn allow_open_flags(argument: u8) -> Sets {
    let forbidden = flag_bits(libc::O_ASYNC | libc::O_DIRECT);
    let modes = [
        (libc::O_RDONLY, forbidden | flag_bits(libc::O_TRUNC)),
        (libc::O_WRONLY, forbidden),
        (libc::O_RDWR, forbidden),
    ];
    let sets = modes
        .map(|(mode, forbidden)| vec![masked_equals(argument, forbidden | MODE, flag_bits(mode))]);
    sets.into()
}

/// Allows waiting and waking; for private futexes, also requeueing. Shared futexes are identified by inode, so others
/// may wait on them. Priorities are not inherited.
fn allow_futex() -> Sets {
    // WAIT, WAKE, WAIT_BITSET, WAKE_BITSET; REQUEUE, CMP_REQUEUE, WAKE_OP.
    let shared = [0, 1, 9, 10];
    let private = [3, 4, 5].map(|operation| operation | PRIVATE);
    let operations = shared.into_iter().chain(shared.map(|operation| operation | PRIVATE));
    let mask = !REALTIME & u64::from(u32::MAX);
    operations.chain(private).map(|operation| vec![masked_equals(1, mask, operation)]).collect()
}

/// Allows mappings without huge pages, which are reserved for others.
fn allow_mapping() -> Sets {
    vec![vec![masked_equals(3, flag_bits(libc::MAP_HUGETLB), 0)]]
}

/// Allows advice on the program's own memory. Other advice writes files out of the shared page cache (`MADV_PAGEOUT`,
/// by owner), compares pages with those of others (`MADV_MERGEABLE`), or truncates files.
fn allow_advice() -> Sets {
    /// `MADV_GUARD_INSTALL`, `MADV_GUARD_REMOVE`.
    const GUARDS: [u64; 2] = [102, 103];
    let own = [
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_DONTFORK,
        libc::MADV_DOFORK,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_DONTDUMP,
        libc::MADV_DODUMP,
        libc::MADV_WIPEONFORK,
        libc::MADV_KEEPONFORK,
    ];
    let own: Vec<u64> = own.map(flag_bits).into_iter().chain(GUARDS).collect();
    one_of(2, &own)
}

/// Allows a bidirectional pipe, with which an event loop wakes itself: no other socket, no address, no urgent byte
/// (which sends a signal), and no descriptor in a message.
fn allow_socket_pairs() -> Vec<(c_long, Sets)> {
    let kind = flag_bits(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let kind = masked_equals(1, !kind & u64::from(u32::MAX), flag_bits(libc::SOCK_STREAM));
    let waiting = flag_bits(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    let receiving = waiting | flag_bits(libc::MSG_PEEK | libc::MSG_WAITALL);
    // The wire is read and written like a file.
    let own = Argument(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, WIRE);
    vec![
        (
            libc::SYS_socketpair,
            vec![vec![argument_equals(0, flag_bits(libc::AF_UNIX)), kind, argument_equals(2, 0)]],
        ),
        (libc::SYS_sendto, vec![vec![own.clone(), only_bits(3, waiting), is_null(4)]]),
        (libc::SYS_recvfrom, vec![vec![own, only_bits(3, receiving)]]),
    ]
}
