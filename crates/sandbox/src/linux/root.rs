//! Namespaces: an isolated process in a file system with the interpreter, a private `/tmp`, and the devices `null`,
//! `zero`, `random` and `urandom`.
//!
//! The kernel creates the namespaces of users and processes with the process (see [`CLONE_FLAGS`]). The process then maps
//! its user, creates the other namespaces, and builds the root. The user of the outside is `nobody` inside and has no
//! capability once a program runs.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, c_ulong};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::process::{getegid, geteuid};

use super::calls::{BirthStep, CallArgument, CallList};
use super::channels::HANDOVER;
use super::paths::c_path;

/// Namespaces that a sandboxed process begins in.
pub(super) const CLONE_FLAGS: i32 = libc::CLONE_NEWUSER | libc::CLONE_NEWPID;

/// Namespaces that a sandboxed process creates. The process does this itself, so that several do it at once.
const UNSHARED: i32 =
    libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// Directories that the new root may cover while it is built.
const BASES: [&str; 5] = ["/tmp", "/mnt", "/srv", "/run", "/var/tmp"];

/// Devices of a program, as far as the machine has them.
pub(super) const DEVICES: [&CStr; 4] =
    [c"/dev/null", c"/dev/zero", c"/dev/random", c"/dev/urandom"];

/// User and group in a sandbox: `nobody`.
const NOBODY: u32 = 65534;

/// Description of the root. Paths are relative to it.
#[derive(Debug)]
pub(super) struct Root {
    base: CString,
    users: String,
    groups: String,
    directories: Vec<CString>,
    files: Vec<CString>,
    links: Vec<(CString, CString)>,
    mounts: Vec<(CString, CString)>,
    /// Paths of devices in the new root.
    devices: Vec<CString>,
}

impl Root {
    /// Creates a root that holds these paths.
    pub(super) fn new(paths: &BTreeSet<PathBuf>) -> Result<Self, String> {
        let base = BASES
            .iter()
            .map(Path::new)
            .find(|base| base.is_dir() && !paths.iter().any(|path| path.starts_with(base)));
        let base = base.ok_or_else(|| format!("no directory to mount on among {BASES:?}"))?;
        let mut root = Self {
            base: c_path(base).map_err(|error| error.to_string())?,
            users: format!("{NOBODY} {} 1\n", geteuid().as_raw()),
            groups: format!("{NOBODY} {} 1\n", getegid().as_raw()),
            directories: vec![c"tmp".to_owned()],
            files: Vec::new(),
            links: Vec::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
        };
        for path in paths {
            root.add_path(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        for device in DEVICES.iter().filter(|device| is_device(device)) {
            let path = Path::new(OsStr::from_bytes(device.to_bytes()));
            root.add_path(path).map_err(|error| format!("{}: {error}", path.display()))?;
            root.devices.push((*device).to_owned());
        }
        root.directories.sort();
        root.directories.dedup();
        Ok(root)
    }

    fn add_path(&mut self, path: &Path) -> io::Result<()> {
        let above = path.ancestors().skip(1).filter(|above| above.parent().is_some());
        for above in above {
            self.directories.push(path_inside(above)?);
        }
        let at = path_inside(path)?;
        if path.is_symlink() {
            self.links.push((c_path(&path.read_link()?)?, at));
            return Ok(());
        }
        let places = if path.is_dir() { &mut self.directories } else { &mut self.files };
        places.push(at.clone());
        self.mounts.push((c_path(path)?, at));
        Ok(())
    }

    /// Adds the calls that create the namespaces and the root, with `/tmp` of this size in bytes.
    pub(super) fn add_calls(&self, calls: &mut CallList, tmp: u64) {
        calls.begin_step(BirthStep::Identity);
        write_file(calls, c"/proc/self/setgroups", "deny");
        write_file(calls, c"/proc/self/uid_map", &self.users);
        write_file(calls, c"/proc/self/gid_map", &self.groups);
        calls.begin_step(BirthStep::Namespaces);
        calls.add_call(libc::SYS_unshare, [UNSHARED.into()]);
        calls.begin_step(BirthStep::Root);
        self.add_files(calls);
        self.add_mounts(calls);
        let size = format!("size={tmp},nr_inodes=1024,mode=777");
        mount_memory(calls, c"/tmp", libc::MS_NOEXEC, &size);
        change_directory(calls, c"/tmp");
    }

    /// Adds the calls that mount the root, change to it, and create what is in it.
    fn add_files(&self, calls: &mut CallList) {
        mount(calls, None, c"/", libc::MS_REC | libc::MS_PRIVATE);
        mount_memory(calls, &self.base, 0, "size=1m,mode=755");
        change_directory(calls, &self.base);
        let here = CallArgument::from(libc::AT_FDCWD);
        for directory in &self.directories {
            let directory = calls.add_text(directory);
            calls.add_call(libc::SYS_mkdirat, [here, directory, 0o755.into()]);
        }
        for file in &self.files {
            let file = calls.add_text(file);
            let mode = libc::S_IFREG | 0o644;
            calls.add_call(libc::SYS_mknodat, [here, file, mode.into(), 0.into()]);
        }
        for (target, at) in &self.links {
            let (target, at) = (calls.add_text(target), calls.add_text(at));
            calls.add_call(libc::SYS_symlinkat, [target, here, at]);
        }
    }

    /// Adds the calls that mount the interpreter's files read-only, and leave the root of the machine.
    fn add_mounts(&self, calls: &mut CallList) {
        for (source, at) in &self.mounts {
            mount(calls, Some(source), at, libc::MS_BIND | libc::MS_REC);
        }
        let here = calls.add_text(c".");
        calls.add_call(libc::SYS_pivot_root, [here, here]);
        calls.add_call(libc::SYS_umount2, [here, libc::MNT_DETACH.into()]);
        change_directory(calls, c"/");
        let root = set_attributes(calls, c"/", READ_ONLY | NO_SETUID | NO_DEVICES, 0);
        calls.add_call(libc::SYS_mount_setattr, root);
        for device in &self.devices {
            // If the machine's own mount has no devices either, there are none.
            let device = set_attributes(calls, device, NO_EXECUTION, NO_DEVICES);
            calls.add_ignored_call(libc::SYS_mount_setattr, device);
        }
    }
}

/// Adds the calls that write a text to a file.
fn write_file(calls: &mut CallList, path: &CStr, text: &str) {
    let first = HANDOVER + 1;
    let (path, length) = (calls.add_text(path), text.len() as u64);
    let text = calls.add_bytes(text.as_bytes());
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    calls.add_call_returning(libc::SYS_openat, [libc::AT_FDCWD.into(), path, flags.into()], first);
    calls.add_call(libc::SYS_write, [first.into(), text, length.into()]);
    calls.add_call(libc::SYS_close, [first.into()]);
}

fn change_directory(calls: &mut CallList, path: &CStr) {
    let path = calls.add_text(path);
    calls.add_call(libc::SYS_chdir, [path]);
}

/// Adds the call that mounts a directory or a file at a path, or changes the mount of a path.
fn mount(calls: &mut CallList, source: Option<&CStr>, at: &CStr, flags: c_ulong) {
    let source = source.map_or(0.into(), |source| calls.add_text(source));
    let at = calls.add_text(at);
    calls.add_call(libc::SYS_mount, [source, at, 0.into(), flags.into()]);
}

/// Adds the call that mounts a file system in memory.
fn mount_memory(calls: &mut CallList, at: &CStr, flags: c_ulong, options: &str) {
    let (kind, at) = (calls.add_text(c"tmpfs"), calls.add_text(at));
    let flags = flags | libc::MS_NOSUID | libc::MS_NODEV;
    let options = calls.add_bytes(format!("{options}\0"));
    calls.add_call(libc::SYS_mount, [kind, at, kind, flags.into(), options]);
}

/// Returns true if a path is a character device.
pub(super) fn is_device(path: &CStr) -> bool {
    rustix::fs::stat(path)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
}

/// `MOUNT_ATTR_RDONLY`, `MOUNT_ATTR_NOSUID`, `MOUNT_ATTR_NODEV`, `MOUNT_ATTR_NOEXEC`.
const READ_ONLY: u64 = 1;
const NO_SETUID: u64 = 2;
const NO_DEVICES: u64 = 4;
const NO_EXECUTION: u64 = 8;

/// Returns the arguments of `mount_setattr` that set and clear attributes of a mount and of everything below it.
fn set_attributes(calls: &mut CallList, path: &CStr, set: u64, clear: u64) -> [CallArgument; 5] {
    let path = calls.add_text(path);
    // `struct mount_attr`: what is set and cleared, the propagation, and the user.
    let attributes = [set, clear, 0, 0].map(u64::to_ne_bytes).concat();
    let size = attributes.len() as u64;
    let attributes = calls.add_bytes(attributes);
    [libc::AT_FDCWD.into(), path, libc::AT_RECURSIVE.into(), attributes, size.into()]
}

/// Returns a path of the machine as one inside the root.
fn path_inside(path: &Path) -> io::Result<CString> {
    Ok(c_path(path.strip_prefix("/").unwrap_or(path))?)
}
