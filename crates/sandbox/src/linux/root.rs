//! Namespaces: an isolated process in a file system with the interpreter, a private `/tmp`, and the devices `null`,
//! `zero`, `random` and `urandom`.
//!
//! The kernel creates the namespaces with the process (see [`FLAGS`]). The process then maps its user and builds the
//! root. The user of the outside is `nobody` inside and has no capability once the interpreter runs.
#![allow(unsafe_code)] // one system call without a safe wrapper

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    unmount,
};
use rustix::process::{chdir, getegid, geteuid, pivot_root};

use super::paths::c_path;

/// Namespaces of a sandboxed process.
pub(super) const FLAGS: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

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

    /// Maps the user of the outside to `nobody`.
    pub(super) fn map_users(&self) -> io::Result<()> {
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", self.users.as_bytes())?;
        write_file(c"/proc/self/gid_map", self.groups.as_bytes())
    }

    /// Builds the root and changes to its `/tmp`. Does not allocate.
    pub(super) fn build(&self, tmp: &CStr) -> io::Result<()> {
        let apart = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        let quiet = MountFlags::NOSUID | MountFlags::NODEV;
        mount_change(c"/", apart)?;
        mount(c"sandbox", &*self.base, c"tmpfs", quiet, c"size=1m,mode=755")?;
        chdir(&*self.base)?;
        for directory in &self.directories {
            rustix::fs::mkdir(&**directory, Mode::from_raw_mode(0o755))?;
        }
        for file in &self.files {
            let new = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::open(&**file, new, Mode::from_raw_mode(0o644))?;
        }
        for (target, at) in &self.links {
            rustix::fs::symlink(&**target, &**at)?;
        }
        for (source, at) in &self.mounts {
            mount_bind_recursive(&**source, &**at)?;
        }
        pivot_root(c".", c".")?;
        unmount(c".", UnmountFlags::DETACH)?;
        chdir(c"/")?;
        set_attributes(c"/", READ_ONLY | NO_SETUID | NO_DEVICES, 0)?;
        for device in &self.devices {
            // If the machine's own mount has no devices either, there are none.
            let _ = set_attributes(device, NO_EXECUTION, NO_DEVICES);
        }
        mount(c"tmp", c"/tmp", c"tmpfs", quiet | MountFlags::NOEXEC, tmp)?;
        Ok(chdir(c"/tmp")?)
    }
}

fn write_file(path: &CStr, text: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text)?;
    Ok(())
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

/// Sets and clears attributes of a mount and of everything below it.
fn set_attributes(path: &CStr, set: u64, clear: u64) -> io::Result<()> {
    /// `struct mount_attr`.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user: u64,
    }
    let attributes = Attributes { set, clear, ..Attributes::default() };
    // SAFETY: the path is a C string, and the structure has the size that is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns a path of the machine as one inside the root.
fn path_inside(path: &Path) -> io::Result<CString> {
    Ok(c_path(path.strip_prefix("/").unwrap_or(path))?)
}
