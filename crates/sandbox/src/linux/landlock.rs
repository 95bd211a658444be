//! Landlock: irrevocable rules about files and ports that a process applies to itself.
//!
//! Three system calls, made in the new process. Rights that an older kernel does not know are omitted by its version
//! (`landlock_create_ruleset(NULL, 0, VERSION)`).
#![allow(unsafe_code)] // a system call without a safe wrapper

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

use super::calls::CallList;
use super::channels::HANDOVER;
use super::paths::c_path;
use super::python::PythonInterpreter;
use super::root::{DEVICES, is_device};

const VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// `MAKE_CHAR`, `MAKE_SOCK`, `MAKE_FIFO`, `MAKE_BLOCK`: objects other than files, directories and links.
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11;
/// `BIND_TCP`, `CONNECT_TCP`.
const TCP: u64 = 0b11;
/// Abstract sockets and signals stay inside.
const SCOPES: u64 = 0b11;

/// Descriptor of the rules while they are made, and of a path among them.
const RULES: i32 = HANDOVER + 1;
const PATH: i32 = RULES + 1;

/// `struct landlock_ruleset_attr`: rights on files, rights on ports, scopes.
type Handled = [u64; 3];

/// Rules of a process.
#[derive(Debug)]
pub(super) struct Landlock {
    handled: Handled,
    /// Size of the part of `handled` that this kernel knows.
    size: usize,
    /// Landlock version.
    abi: u32,
    /// Paths with the rights on them: directories, and single files.
    paths: Vec<(CString, u64)>,
}

impl Landlock {
    /// Creates rules under which an interpreter's files are readable, its programs executable, `/tmp` of a private root
    /// is writable, and nothing else is accessible.
    pub(super) fn new(python: &PythonInterpreter) -> io::Result<Self> {
        let nothing = std::ptr::null::<Handled>();
        // SAFETY: with this flag the call takes no structure; it returns a version.
        let version =
            unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
        if version <= 0 {
            return Err(io::Error::last_os_error());
        }
        Self::of_abi(python, version as u32)
    }

    /// Creates the rules for a kernel with this Landlock version.
    pub(super) fn of_abi(python: &PythonInterpreter, abi: u32) -> io::Result<Self> {
        let files = match abi {
            ..=1 => (1 << 13) - 1,
            2 => (1 << 14) - 1,
            3 | 4 => (1 << 15) - 1,
            _ => (1 << 16) - 1,
        };
        let size = match abi {
            ..=3 => 8,
            4 | 5 => 16,
            _ => 24,
        };
        let read = python.paths.iter().map(|path| Ok((c_path(path)?, path_rights(path))));
        let run = python.programs.iter().map(|path| Ok((c_path(path)?, EXECUTE | READ_FILE)));
        let mut paths: Vec<(CString, u64)> = read.chain(run).collect::<io::Result<_>>()?;
        let devices = DEVICES.into_iter().filter(|path| is_device(path));
        paths.extend(devices.map(|device| (device.to_owned(), READ_FILE | WRITE_FILE)));
        let handled = [files, TCP, SCOPES];
        Ok(Self { handled, size, abi, paths })
    }

    /// Returns the gaps of the rules of this version that other layers must cover.
    pub(super) fn uncovered_gaps(&self) -> Vec<&'static str> {
        let since = [(3, "cutting files"), (4, "TCP ports"), (6, "signals")];
        since.iter().filter(|(abi, _)| self.abi < *abi).map(|(_, what)| *what).collect()
    }

    /// Returns the Landlock version.
    pub(super) fn abi_version(&self) -> u32 {
        self.abi
    }

    /// Adds the calls that apply the rules.
    pub(super) fn add_calls(&self, calls: &mut CallList, own_tmp: bool) {
        let handled = self.handled.map(u64::to_ne_bytes).concat();
        let handled = calls.add_bytes(&handled[..self.size]);
        let size = self.size as u64;
        calls.add_call_returning(libc::SYS_landlock_create_ruleset, [handled, size.into()], RULES);
        for (path, rights) in &self.paths {
            allow_path(calls, path, *rights);
        }
        if own_tmp {
            let [files, ..] = self.handled;
            allow_path(calls, c"/tmp", files & !EXECUTE & !MAKE_DEVICES);
        }
        calls.add_call(libc::SYS_landlock_restrict_self, [RULES.into()]);
        calls.add_call(libc::SYS_close, [RULES.into()]);
    }
}

/// Adds the calls that allow rights on a path.
fn allow_path(calls: &mut CallList, path: &CStr, allowed: u64) {
    let path = calls.add_text(path);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    calls.add_call_returning(libc::SYS_openat, [libc::AT_FDCWD.into(), path, flags.into()], PATH);
    // `struct landlock_path_beneath_attr`, which is packed.
    let beneath = [&allowed.to_ne_bytes()[..], &PATH.to_ne_bytes()].concat();
    let beneath = calls.add_bytes(beneath);
    calls.add_call(libc::SYS_landlock_add_rule, [RULES.into(), PATH_BENEATH.into(), beneath]);
    calls.add_call(libc::SYS_close, [PATH.into()]);
}

/// Returns the rights on a path of the interpreter.
fn path_rights(path: &Path) -> u64 {
    if path.is_dir() { READ_FILE | READ_DIR } else { READ_FILE }
}
