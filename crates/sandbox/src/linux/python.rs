//! The interpreter and its files.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::paths::c_path;
use crate::SandboxError;

/// Prints the interpreter's paths, and the files that are mapped once the usual modules are loaded.
const WHO: &str = "\
import json, os, sys, sysconfig
import ast, bisect, collections, datetime, decimal, fractions, functools, hashlib, heapq, itertools, math, random, re
import statistics, string, typing
assert sys.version_info >= (3, 8), 'it is version ' + sys.version.split()[0]
maps = open('/proc/self/maps').read().splitlines()
print(json.dumps({
    'executable': os.path.realpath(sys.executable),
    'prefix': os.path.realpath(sys.base_prefix),
    'mapped': [line.split(None, 5)[5] for line in maps if '/' in line],
}))";

/// Locations of system libraries, of the loader's configuration, and of time zones.
const SYSTEM: [&str; 7] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
];

/// An interpreter.
#[derive(Debug, Clone)]
pub(super) struct PythonInterpreter {
    /// Name as given by the user.
    pub(super) name: String,
    /// The executable itself, not a link or a shell script.
    pub(super) executable: CString,
    /// Files and directories that it reads, none inside another; links among them are preserved.
    pub(super) paths: BTreeSet<PathBuf>,
    /// Files that may be executed: the executable and its loader.
    pub(super) programs: BTreeSet<PathBuf>,
}

#[derive(Deserialize)]
struct Who {
    executable: PathBuf,
    prefix: PathBuf,
    mapped: Vec<PathBuf>,
}

impl PythonInterpreter {
    /// Finds an interpreter by running it. It is trusted: it only runs the sandbox's own code here.
    pub(super) fn find(name: &str) -> Result<Self, SandboxError> {
        Self::ask_interpreter(name)
            .map_err(|why| SandboxError::Python { python: name.to_owned(), why })
    }

    fn ask_interpreter(name: &str) -> Result<Self, String> {
        let output = Command::new(name)
            .args(["-I", "-S", "-c", WHO])
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(text.trim_end().lines().last().unwrap_or("it fails").to_owned());
        }
        let who: Who = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let executable = c_path(&who.executable).map_err(|error| error.to_string())?;
        let mut paths: BTreeSet<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        // Libraries may be anywhere. The prefix itself may be `/usr`, with every program of the machine.
        let directories = who.mapped.iter().filter(|file| **file != who.executable);
        paths.extend(directories.filter_map(|file| file.parent()).map(Path::to_owned));
        paths.extend([who.executable.clone(), who.prefix.join("lib"), who.prefix.join("lib64")]);
        let mut programs: BTreeSet<PathBuf> =
            who.mapped.into_iter().filter(|file| is_loader(file)).collect();
        programs.insert(who.executable);
        Ok(Self { name: name.to_owned(), executable, paths: outermost_paths(&paths), programs })
    }
}

/// Returns true for the file that loads executables: `ld-linux-x86-64.so.2`, `ld-2.31.so`, `ld-musl-x86_64.so.1`.
fn is_loader(file: &Path) -> bool {
    file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("ld-"))
}

/// Returns the existing paths that are inside no other listed path.
fn outermost_paths(paths: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let there = paths.iter().filter(|path| path.exists() && path.parent().is_some());
    let there: BTreeSet<&Path> = there.map(PathBuf::as_path).collect();
    let outermost =
        there.iter().filter(|path| !path.ancestors().skip(1).any(|above| there.contains(above)));
    outermost.map(|path| path.to_path_buf()).collect()
}
