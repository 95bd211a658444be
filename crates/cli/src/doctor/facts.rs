//! Facts about this machine and this program, as the system reports them.

use std::path::{Path, PathBuf};
use std::process::Command;

use maverl_sandbox::{Sandbox, SandboxError};
use serde::Serialize;

use super::step::{StepOutcome, compute_step};
use crate::machine::{GpuEntry, LibraryEntry, directory_variable, features_that, gpus, libraries};
use maverl::check::available_memory;

/// Everything that findings are made from.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Facts {
    pub(super) program: ProgramFacts,
    pub(super) processor: ProcessorFacts,
    pub(super) memory: MemoryFacts,
    pub(super) disk: DiskFacts,
    /// Maximum number of open files of this process; none if the system does not report it.
    pub(super) open_files: Option<u64>,
    pub(super) sandbox: SandboxFacts,
    pub(super) gpu: GpuFacts,
    /// Variables that name a proxy.
    pub(super) proxies: Vec<&'static str>,
    /// Directory of the user's caches: models of the hub, files of examples.
    pub(super) cache: Option<PathBuf>,
    pub(super) step: StepOutcome,
}

/// The program.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProgramFacts {
    pub(super) version: &'static str,
    /// Processor and system that it was built for.
    pub(super) target: String,
    /// C library, with its version if that is known.
    pub(super) libc: String,
    pub(super) path: PathBuf,
    pub(super) installed: Installation,
    pub(super) features: Vec<&'static str>,
    pub(super) without_features: Vec<&'static str>,
}

/// Origin of the program, by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Installation {
    /// In the target directory of a clone or a crate.
    Built,
    /// By `cargo install` or `cargo binstall`.
    Cargo,
    /// In an environment of Python.
    Wheel,
    /// Elsewhere, such as from an archive.
    Copied,
}

/// The processor.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProcessorFacts {
    /// Paths of vector instructions, the best one last.
    pub(super) paths: Vec<&'static str>,
    /// Path in use.
    pub(super) used: &'static str,
    /// Value of `MAVERL_SIMD`.
    pub(super) forced: Option<String>,
    /// Threads that this process may run at once.
    pub(super) threads: usize,
    /// Threads of the machine; none if the system does not report them.
    pub(super) machine_threads: Option<usize>,
}

/// Memory in bytes; none if the system does not report it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MemoryFacts {
    /// Memory that this process may have: of the machine, or of its control group.
    pub(super) allowed: Option<u64>,
    /// Memory that no process uses now.
    pub(super) free: Option<u64>,
}

/// The file system of the working directory, into which runs are written.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DiskFacts {
    pub(super) dir: PathBuf,
    /// Free bytes; none if the system does not report them.
    pub(super) free: Option<u64>,
    /// Reason why no file can be written there.
    pub(super) refused: Option<String>,
}

/// The sandbox of programs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SandboxFacts {
    /// Active layers.
    pub(super) layers: Vec<String>,
    /// Layers that this machine lacks, with the reason.
    pub(super) missing: Vec<String>,
    /// Reason why programs cannot be run.
    pub(super) refused: Option<String>,
    /// True if there is no usable Python, which is the reason then.
    pub(super) without_python: bool,
}

/// GPUs and their libraries.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GpuFacts {
    pub(super) gpus: Vec<GpuEntry>,
    /// Reason why there are none.
    pub(super) none: Option<String>,
    pub(super) libraries: Vec<LibraryEntry>,
}

impl Facts {
    /// Reads the machine, and computes a step.
    pub(super) fn find() -> Self {
        Self {
            program: ProgramFacts::find(),
            processor: ProcessorFacts::find(),
            memory: MemoryFacts::find(),
            disk: DiskFacts::find(Path::new(".")),
            open_files: read("/proc/self/limits").and_then(|text| open_files(&text)),
            sandbox: SandboxFacts::find(),
            gpu: GpuFacts::find(),
            proxies: proxies(),
            cache: cache(),
            step: compute_step(),
        }
    }
}

impl ProgramFacts {
    fn find() -> Self {
        let path = std::env::current_exe().unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            target: format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
            libc: libc(),
            installed: installation(&path, &|path| path.exists()),
            path,
            features: features_that(true),
            without_features: features_that(false),
        }
    }
}

impl ProcessorFacts {
    fn find() -> Self {
        let used = maverl_kernels::simd::select_path();
        Self {
            paths: maverl_kernels::simd::available_paths()
                .into_iter()
                .map(|path| path.name())
                .collect(),
            used: used.map_or("scalar", |path| path.name()),
            forced: std::env::var("MAVERL_SIMD").ok(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            machine_threads: read("/proc/cpuinfo").and_then(|text| processors(&text)),
        }
    }
}

impl MemoryFacts {
    fn find() -> Self {
        let free = read("/proc/meminfo").and_then(|text| free_memory(&text));
        Self { allowed: available_memory(), free }
    }
}

impl DiskFacts {
    fn find(dir: &Path) -> Self {
        let name = dir.join(format!(".maverl-doctor-{}", std::process::id()));
        let written = std::fs::write(&name, "").and_then(|()| std::fs::remove_file(&name));
        let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let refused = written.err().map(|error| error.to_string());
        Self { dir: whole, free: free_space(dir), refused }
    }
}

impl SandboxFacts {
    fn find() -> Self {
        match Sandbox::new("python3", false) {
            Ok(sandbox) => Self {
                layers: sandbox.active_layers().iter().map(ToString::to_string).collect(),
                missing: sandbox.missing_layers().iter().map(ToString::to_string).collect(),
                refused: None,
                without_python: false,
            },
            Err(error) => Self {
                layers: Vec::new(),
                missing: match &error {
                    SandboxError::Lacking { missing, .. } => {
                        missing.iter().map(ToString::to_string).collect()
                    }
                    _ => Vec::new(),
                },
                without_python: matches!(error, SandboxError::Python { .. }),
                refused: Some(error.to_string()),
            },
        }
    }
}

impl GpuFacts {
    fn find() -> Self {
        match gpus() {
            Ok(gpus) => Self { gpus, none: None, libraries: libraries() },
            Err(reason) => Self { gpus: Vec::new(), none: Some(reason), libraries: libraries() },
        }
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn glibc_version() -> Option<String> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Returns the C library, with its version if the system has a command that prints it.
fn libc() -> String {
    if cfg!(target_env = "gnu") {
        glibc_version().unwrap_or_else(|| "glibc".to_owned())
    } else if cfg!(target_env = "musl") {
        "musl".to_owned()
    } else {
        "of the system".to_owned()
    }
}

/// Returns the origin of a program by its path. `exists` tells which files there are.
fn installation(path: &Path, exists: &dyn Fn(&Path) -> bool) -> Installation {
    let parts: Vec<_> = path.iter().collect();
    let environment = path.parent().and_then(Path::parent);
    if parts.iter().any(|part| *part == "target") {
        Installation::Built
    } else if parts.windows(2).any(|pair| pair[0] == ".cargo" && pair[1] == "bin") {
        Installation::Cargo
    } else if environment.is_some_and(|dir| exists(&dir.join("pyvenv.cfg"))) {
        Installation::Wheel
    } else {
        Installation::Copied
    }
}

/// Counts the processors of `/proc/cpuinfo`.
fn processors(cpuinfo: &str) -> Option<usize> {
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    (count > 0).then_some(count)
}

/// Parses `MemAvailable` of `/proc/meminfo`.
fn free_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Parses the soft limit of open files of `/proc/self/limits`.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the free bytes of a file system for this user.
#[cfg(unix)]
fn free_space(dir: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(dir).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// Returns the free bytes of a file system, which this system is not asked for.
#[cfg(not(unix))]
fn free_space(_: &Path) -> Option<u64> {
    None
}

/// Returns the variables that name a proxy. Their values may contain passwords.
fn proxies() -> Vec<&'static str> {
    let mut names =
        vec!["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    names.retain(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    names
}

/// Returns the directory of the user's caches.
fn cache() -> Option<PathBuf> {
    directory_variable("XDG_CACHE_HOME")
        .or_else(|| Some(directory_variable("HOME")?.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_system_are_read() {
        assert_eq!(processors("processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\n"), Some(2));
        assert_eq!(processors("Processor: none"), None);
        assert_eq!(free_memory("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        let limits =
            "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(open_files("Max open files   unlimited   unlimited   files"), None);
    }

    #[test]
    fn the_path_of_a_program_says_where_it_is_from() {
        let origin = |path: &str, there: &str| {
            installation(Path::new(path), &|asked| asked == Path::new(there))
        };
        assert_eq!(origin("/src/maverl/target/release/maverl", ""), Installation::Built);
        assert_eq!(origin("/home/me/.cargo/bin/maverl", ""), Installation::Cargo);
        assert_eq!(origin("/v/bin/maverl", "/v/pyvenv.cfg"), Installation::Wheel);
        assert_eq!(origin("/usr/local/bin/maverl", ""), Installation::Copied);
    }

    #[test]
    fn this_machine_has_a_disk_that_can_be_written() {
        let disk = DiskFacts::find(&std::env::temp_dir());
        assert_eq!(disk.refused, None);
        assert!(disk.free.is_none_or(|free| free > 0), "{disk:?}");
        assert!(DiskFacts::find(Path::new("/nowhere")).refused.is_some());
    }
}
