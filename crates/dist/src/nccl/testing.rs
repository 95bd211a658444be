//! A library with the functions of NCCL, for tests. Tests of the engine include this file.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // for the library's C interface

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use libloading::Library;
use maverl_kernels::emulate;

use super::NcclOptions;

/// A library with the functions of NCCL, for threads of this process. Each is apart from the others.
pub(crate) struct Fake {
    dir: tempfile::TempDir,
    pub(crate) library: Library,
}

impl Fake {
    /// Returns a library that a C++ compiler builds once; `None` without one.
    pub(crate) fn open() -> Option<Self> {
        static BUILT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let bytes = BUILT.get_or_init(build).as_ref()?;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libfake.so");
        std::fs::write(&path, bytes).unwrap();
        // SAFETY: its initializers touch no memory of this program.
        let library = unsafe { Library::new(path) }.unwrap();
        Some(Self { dir, library })
    }

    /// Returns options with the library.
    pub(crate) fn options(&self, timeout: Duration) -> NcclOptions {
        let mut options = NcclOptions::within_seconds(timeout.as_secs_f64());
        options.library = Some(self.dir.path().join("libfake.so"));
        options
    }

    /// Returns the calls of a rank so far.
    pub(crate) fn calls(&self, rank: usize) -> Vec<String> {
        let mut text = vec![0_u8; 1 << 20];
        // SAFETY: the type is that of the source, and the length that of the text.
        unsafe {
            let calls = self.library.get::<unsafe extern "C" fn(*mut u8, usize)>(b"fake_calls");
            calls.unwrap()(text.as_mut_ptr(), text.len());
        }
        let end = text.iter().position(|&byte| byte == 0).unwrap();
        let text = std::str::from_utf8(&text[..end]).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix(&format!("{rank} ")))
            .map(str::to_owned)
            .collect()
    }
}

fn build() -> Option<Vec<u8>> {
    if let Err(error) = emulate::check_compiler() {
        eprintln!("skipped: {error}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("fake.cpp"), dir.path().join("fake.so"));
    std::fs::write(&source, include_str!("fake.cpp")).unwrap();
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]);
    let done = command.args([&library, &source]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(std::fs::read(library).unwrap())
}
