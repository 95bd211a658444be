//! seccomp: allowed system calls of a program.
//!
//! A call that is not listed fails with `EPERM`. This covers every call that creates a process (`fork`, `vfork`,
//! `clone` except for threads), a mount, a namespace, a key or a named socket; that reaches another process (`kill`,
//! `ptrace`, `process_vm_readv`, `pidfd_open`, timers); that changes or watches an inode by owner (`chmod`,
//! `utimensat`, `flock`, `inotify_init`); and that is only useful against the kernel (`bpf`, `io_uring_setup`,
//! `userfaultfd`, `perf_event_open`). Some calls are allowed with some arguments only ([`arguments`]).
//!
//! `clone3` hides its flags from a filter, so it fails as missing, and the C library falls back to `clone`. Calls
//! without effect for an isolated process that writes to memory succeed as no-ops: flushing a file, and locks of a
//! process.

mod arguments;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch,
};

use super::calls::CallList;
use super::threads::filter_program;

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
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ftruncate,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    // Files; the root and Landlock decide which.
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
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_brk,
    // The process itself.
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
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
];

/// Older variants of these calls, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
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

/// Allowed as no-ops: the files that a program writes are in memory. The files that it reads are the machine's, and its
/// disks would have to write.
const DONE: &[libc::c_long] = &[libc::SYS_fsync, libc::SYS_fdatasync];

/// The filter in the kernel's form, in parts with one action each. Of several results the strictest wins.
#[derive(Debug)]
pub(super) struct CallFilter {
    parts: [BpfProgram; 3],
}

impl CallFilter {
    /// Builds the filter for this machine.
    pub(super) fn new() -> Result<Self, String> {
        build_filter().map_err(|error| error.to_string())
    }

    /// Adds the calls that install the filter, which cannot be removed.
    pub(super) fn add_calls(&self, calls: &mut CallList) {
        for part in &self.parts {
            let instructions = part.iter().map(|part| (part.code, part.jt, part.jf, part.k));
            let program = filter_program(calls, instructions);
            let set = libc::SECCOMP_SET_MODE_FILTER;
            calls.add_call(libc::SYS_seccomp, [set.into(), 0.into(), program]);
        }
    }
}

/// Returns rules for calls with any arguments.
fn without_conditions(calls: &[libc::c_long]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn build_filter() -> Result<CallFilter, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let allow = SeccompAction::Allow;
    let [absent_errno, done_errno, denied_errno] =
        [libc::ENOSYS, 0, libc::EPERM].map(|number| SeccompAction::Errno(number as u32));
    let absent = without_conditions(&[libc::SYS_clone3]);
    let mut done = without_conditions(DONE);
    done.insert(libc::SYS_fcntl, arguments::lock_rules()?);
    let mut allowed = without_conditions(ALLOWED);
    allowed.extend(without_conditions(OLDER));
    allowed.extend(without_conditions(DONE));
    allowed.extend(arguments::argument_rules()?);
    Ok(CallFilter {
        parts: [
            SeccompFilter::new(absent, allow.clone(), absent_errno, arch)?.try_into()?,
            SeccompFilter::new(done, allow.clone(), done_errno, arch)?.try_into()?,
            SeccompFilter::new(allowed, denied_errno, allow, arch)?.try_into()?,
        ],
    })
}

/// Conditions by system call.
type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;
