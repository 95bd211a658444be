//! seccomp: the system calls a program may make.
//!
//! What is not listed fails with `EPERM`. Among that is everything that makes a process (`fork`, `vfork`, `clone` without
//! `CLONE_THREAD`), a socket, a mount, a namespace or a key; that reaches another process (`kill`, `ptrace`,
//! `process_vm_readv`, `pidfd_open`); and that is only of use against the kernel (`bpf`, `io_uring_setup`,
//! `userfaultfd`, `perf_event_open`). `clone3` hides its flags from a filter, so it does not exist, and the C library
//! takes `clone`.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Always allowed.
const ALLOWED: &[libc::c_long] = &[
    // Open descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    // Files; the root and Landlock say which.
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_symlinkat,
    libc::SYS_umask,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Itself.
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_wait4,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Threads and clocks.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
];

/// Older names of the same, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_symlink,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// The filter, ready for the kernel.
#[derive(Debug)]
pub(super) struct Filter {
    /// `clone3` does not exist.
    absent: BpfProgram,
    /// What is allowed.
    allowed: BpfProgram,
}

impl Filter {
    /// The filter for this machine.
    pub(super) fn new() -> Result<Self, String> {
        build().map_err(|error| error.to_string())
    }

    /// Puts the filter on this thread; nothing takes it off again. Allocates nothing.
    pub(super) fn apply(&self) -> std::io::Result<()> {
        for filter in [&self.absent, &self.allowed] {
            if seccompiler::apply_filter(filter).is_err() {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

fn build() -> Result<Filter, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let errno = |number: i32| SeccompAction::Errno(number as u32);
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent =
        SeccompFilter::new(absent, SeccompAction::Allow, errno(libc::ENOSYS), arch)?.try_into()?;
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    // Limits of its own may be read and lowered; a program knows no other process.
    rules.insert(libc::SYS_prlimit64, vec![when(0, SeccompCmpOp::Eq, 0)?]);
    let requests = [libc::TCGETS, libc::FIOCLEX, libc::FIONCLEX];
    let requests = requests.map(|request| when(1, SeccompCmpOp::Eq, request));
    rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<Result<_, _>>()?);
    let allowed =
        SeccompFilter::new(rules, errno(libc::EPERM), SeccompAction::Allow, arch)?.try_into()?;
    Ok(Filter { absent, allowed })
}

/// A rule about the low half of an argument.
fn when(
    argument: u8,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let word = SeccompCmpArgLen::Dword;
    SeccompRule::new(vec![SeccompCondition::new(argument, word, compare, value)?])
}
