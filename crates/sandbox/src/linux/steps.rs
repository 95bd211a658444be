//! Steps of a new process, up to the first instruction of the code that it runs.

use std::io;
use std::os::fd::RawFd;

use rustix::process::Resource;

use super::calls::{BirthStep, CallList};
use super::channels::{DESCRIPTORS, HANDOVER, InnerEnds};
use super::filter::CallFilter;
use super::landlock::Landlock;
use super::root::Root;
use super::threads::NotifyingFilter;
use crate::{ProgramLimits, ProtectionLayer};

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITIES: u32 = 0x2008_0522;

impl BirthStep {
    /// Returns the layer of this step.
    pub(super) fn layer(self) -> Option<ProtectionLayer> {
        match self {
            Self::Clone | Self::Identity | Self::Namespaces | Self::Root => {
                Some(ProtectionLayer::Namespaces)
            }
            Self::Landlock => Some(ProtectionLayer::Landlock),
            Self::Threads => Some(ProtectionLayer::Threads),
            Self::Seccomp => Some(ProtectionLayer::Seccomp),
            _ => None,
        }
    }

    /// Returns the description of the step.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone with namespaces",
            Self::Session => "a session of its own",
            Self::Descriptors => "descriptors",
            Self::Identity => "the user in the namespace",
            Self::Namespaces => "namespaces of its own",
            Self::Root => "the private root",
            Self::Limits => "resource limits",
            Self::Privileges => "no new privileges",
            Self::Landlock => "Landlock rules",
            Self::Threads => "the filter that counts threads",
            Self::Seccomp => "the seccomp filter",
            Self::Execute => "the interpreter's start",
        }
    }
}

/// The failed step, and the error.
#[derive(Debug)]
pub(super) struct BirthFailure {
    pub(super) step: BirthStep,
    pub(super) error: io::Error,
}

/// Restrictions of a new process.
#[derive(Default)]
pub(super) struct Confinement<'a> {
    pub(super) limits: Option<&'a ProgramLimits>,
    pub(super) filter: Option<&'a CallFilter>,
    pub(super) landlock: Option<&'a Landlock>,
    pub(super) root: Option<&'a Root>,
    pub(super) asking: Option<&'a NotifyingFilter>,
    /// True if the system counts the threads of this process's user alone.
    pub(super) bounded: bool,
}

impl Confinement<'_> {
    /// Returns the calls that restrict a process with these descriptors.
    pub(super) fn calls(&self, ends: &InnerEnds<RawFd>) -> CallList {
        let mut calls = CallList::new(BirthStep::Session);
        add_session(&mut calls);
        calls.begin_step(BirthStep::Descriptors);
        add_descriptors(&mut calls, ends);
        if let Some(root) = self.root {
            root.add_calls(&mut calls, self.limits.map_or(0, |limits| limits.files));
        }
        calls.begin_step(BirthStep::Limits);
        for (resource, limit) in
            self.limits.map(|limits| resource_limits(limits, self.bounded)).unwrap_or_default()
        {
            let limit = calls.add_bytes([limit.to_ne_bytes(); 2].concat());
            calls.add_call(libc::SYS_prlimit64, [0.into(), (resource as u32).into(), limit]);
        }
        if self.filter.is_some() || self.landlock.is_some() || self.root.is_some() {
            calls.begin_step(BirthStep::Privileges);
            drop_privileges(&mut calls);
        }
        if let Some(landlock) = self.landlock {
            calls.begin_step(BirthStep::Landlock);
            landlock.add_calls(&mut calls, self.root.is_some());
        }
        if let Some(asking) = self.asking {
            calls.begin_step(BirthStep::Threads);
            asking.add_calls(&mut calls);
        }
        calls.begin_step(BirthStep::Seccomp);
        if let Some(filter) = self.filter {
            filter.add_calls(&mut calls);
        }
        calls.add_call(libc::SYS_close, [HANDOVER.into()]);
        calls
    }
}

/// Detaches from the terminal; the process is killed with the thread that waits for it.
fn add_session(calls: &mut CallList) {
    calls.add_call(libc::SYS_setsid, []);
    calls.add_call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG.into(), libc::SIGKILL.into()]);
}

/// Sets up the descriptors of a program and the handover, and closes all others.
fn add_descriptors(calls: &mut CallList, ends: &InnerEnds<RawFd>) {
    for (number, end) in (0..).zip(ends.program) {
        calls.add_call(libc::SYS_dup3, [end.into(), number.into(), 0.into()]);
    }
    if ends.handover != HANDOVER {
        let close = libc::O_CLOEXEC;
        calls.add_call(libc::SYS_dup3, [ends.handover.into(), HANDOVER.into(), close.into()]);
    }
    let first = DESCRIPTORS as u32 + 1;
    calls.add_call(libc::SYS_close_range, [first.into(), u32::MAX.into(), 0.into()]);
}

/// Drops every capability, and forbids gaining one by executing a file.
fn drop_privileges(calls: &mut CallList) {
    calls.add_call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS.into(), 1.into()]);
    let header = calls.add_bytes([CAPABILITIES.to_ne_bytes(), [0; 4]].concat());
    // Two structures of three words: effective, permitted, inheritable.
    let none = calls.add_bytes([0; 24]);
    calls.add_call(libc::SYS_capset, [header, none]);
}

/// Returns the resource limits. The system counts threads per user, so their limit needs a user of the sandbox's own.
fn resource_limits(limits: &ProgramLimits, own_user: bool) -> Vec<(Resource, u64)> {
    let seconds = limits.cpu.as_secs() + u64::from(limits.cpu.subsec_nanos() > 0);
    let mut resources = vec![
        (Resource::As, limits.memory),
        (Resource::Cpu, seconds.max(1)),
        (Resource::Fsize, limits.files),
        (Resource::Nofile, 64),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ];
    if own_user {
        resources.push((Resource::Nproc, limits.threads));
    }
    resources
}
