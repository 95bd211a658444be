//! Landlock: irrevocable rules about files and ports that a process applies to itself.
//!
//! Three system calls, made in the new process, where nothing may be allocated. Rights that an older kernel does not
//! know are omitted by its version (`landlock_create_ruleset(NULL, 0, VERSION)`).
#![allow(unsafe_code)] // system calls without a safe wrapper

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

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

/// `struct landlock_ruleset_attr`.
#[repr(C)]
#[derive(Debug, Default)]
struct Handled {
    files: u64,
    ports: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    parent: i32,
}

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
        let handled = Handled { files, ports: TCP, scopes: SCOPES };
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

    /// Applies the rules to this thread. Does not allocate.
    pub(super) fn apply(&self, own_tmp: bool) -> io::Result<()> {
        // SAFETY: `handled` has at least `size` bytes; the result is a descriptor nobody else owns, or -1.
        let ruleset = unsafe {
            let handled: *const Handled = &self.handled;
            let ruleset =
                libc::syscall(libc::SYS_landlock_create_ruleset, handled, self.size, 0_u32);
            if ruleset < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(ruleset as i32)
        };
        for (path, rights) in &self.paths {
            allow_path(&ruleset, path, *rights)?;
        }
        if own_tmp {
            allow_path(&ruleset, c"/tmp", self.handled.files & !EXECUTE & !MAKE_DEVICES)?;
        }
        // SAFETY: the descriptor is a ruleset.
        let done =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn allow_path(ruleset: &OwnedFd, path: &CStr, allowed: u64) -> io::Result<()> {
    let parent = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let beneath = Beneath { allowed, parent: parent.as_raw_fd() };
    // SAFETY: both descriptors are open, and the structure matches the kind of rule.
    let done = unsafe {
        let beneath: *const Beneath = &beneath;
        let ruleset = ruleset.as_raw_fd();
        libc::syscall(libc::SYS_landlock_add_rule, ruleset, PATH_BENEATH, beneath, 0_u32)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the rights on a path of the interpreter.
fn path_rights(path: &Path) -> u64 {
    if path.is_dir() { READ_FILE | READ_DIR } else { READ_FILE }
}
