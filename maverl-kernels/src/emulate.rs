//! CUDA C++ kernels run on the CPU, for tests: every CUDA thread is a fiber, barriers and shuffles are rendezvous.
//!
//! A C++17 compiler (`CXX`, or `c++`) builds the source beside headers that give it what it uses of CUDA, including
//! products of tensor cores and asynchronous copies. Blocks run one after the other. Not there: memory order between
//! blocks that run at once, rounding inside tensor cores, bank conflicts, textures, inline PTX.
#![allow(unsafe_code)] // a shared library that was just built is opened and called

mod estimator;

pub use estimator::{Estimator, KERNEL, PRELUDE, StepArrays, estimator_source};

use std::env;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::Library;

/// The part of CUDA that kernels find on the CPU.
const HEADER: &str = include_str!("emulate/cuda_on_cpu.h");
/// The operations of `device.cuh`: products, matrices from shared memory, asynchronous copies.
const OPERATIONS: &str = include_str!("emulate/device_on_cpu.h");

/// Options of the compiler. Symbols are hidden, so that libraries of several kernels do not share their tables.
const FLAGS: [&str; 6] =
    ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-fvisibility=hidden"];

/// Bytes of a message of a launch.
const MESSAGE: usize = 512;

/// Orders in which the threads of a block can run. A kernel that lacks a barrier gives other results in some of them.
pub const ORDERS: [&str; 4] = ["forward", "reverse", "lockstep", "shuffle:7"];

type LaunchFunction = unsafe extern "C" fn(
    *const c_char,
    *const c_uint,
    c_uint,
    c_uint,
    *mut *mut c_void,
    *mut c_char,
    c_uint,
) -> c_int;
type Set = unsafe extern "C" fn(*const c_char, c_int, c_int);

/// Order of threads and time of copies of launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadSchedule {
    /// Order of threads, one of [`ORDERS`].
    pub order: &'static str,
    /// Time of asynchronous copies: at once, or at the wait that covers them. A missing wait shows in the second, a
    /// missing barrier before a buffer is filled again in the first.
    pub copies_at_once: bool,
    /// Number of the change that a test has made to the source; 0 is none.
    pub mutant: u32,
}

impl Default for ThreadSchedule {
    fn default() -> Self {
        Self { order: ORDERS[0], copies_at_once: false, mutant: 0 }
    }
}

impl ThreadSchedule {
    /// Iterates over every order of threads with both times of copies.
    pub fn every_schedule() -> impl Iterator<Item = Self> {
        ORDERS.into_iter().flat_map(|order| {
            [false, true].map(|copies_at_once| Self { order, copies_at_once, ..Self::default() })
        })
    }
}

/// Kernels built for the CPU.
#[derive(Debug, Clone, Copy)]
pub struct KernelLibrary {
    launch: LaunchFunction,
    set: Set,
}

/// Cause of a failed build or launch.
#[derive(Debug)]
pub enum EmulateError {
    /// There is no C++ compiler of this name.
    NoCompiler(OsString),
    /// The compiler's messages.
    Compile(String),
    /// The library could not be written or opened.
    Io(io::Error),
    /// A kernel does not exist, or failed: threads that wait for each other forever, addresses that are not aligned or
    /// lie outside the block's memory.
    Launch(String),
}

impl std::fmt::Display for EmulateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoCompiler(name) => write!(f, "no C++ compiler {name:?}; name one in `CXX`"),
            Self::Compile(log) => write!(f, "the kernel does not compile as C++17:\n{log}"),
            Self::Io(error) => write!(f, "cannot build the kernel: {error}"),
            Self::Launch(what) => write!(f, "the kernel fails: {what}"),
        }
    }
}

impl std::error::Error for EmulateError {}

impl From<io::Error> for EmulateError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl KernelLibrary {
    /// Builds a source with these kernels. The library stays open until the process ends.
    ///
    /// # Errors
    ///
    /// See [`EmulateError`].
    pub fn build(source: &str, kernels: &[&str]) -> Result<Self, EmulateError> {
        let dir = scratch_dir(&env::temp_dir())?;
        let built = compile_library(&dir, source, kernels, &FLAGS)
            .and_then(|library| open_library(&library));
        fs::remove_dir_all(&dir)?;
        built
    }

    /// Opens the library of a source that an earlier process built, or builds it for later ones. It is kept in the
    /// user's cache directory; without one, it is built each time.
    ///
    /// # Errors
    ///
    /// See [`EmulateError`].
    pub fn open_cached(source: &str, kernels: &[&str]) -> Result<Self, EmulateError> {
        let Some(cache) = cache_dir() else { return Self::build(source, kernels) };
        let mut hash = DefaultHasher::new();
        [HEADER, OPERATIONS, source, &launcher_source(kernels)].hash(&mut hash);
        (compiler_name(), FLAGS, env::consts::ARCH).hash(&mut hash);
        let kept = cache.join(format!("{:016x}.so", hash.finish()));
        if kept.is_file() {
            return open_library(&kept);
        }
        let dir = scratch_dir(&cache)?;
        let built = compile_library(&dir, source, kernels, &FLAGS);
        let moved = built.and_then(|library| Ok(fs::rename(library, &kept)?));
        fs::remove_dir_all(&dir)?;
        moved.and_then(|()| open_library(&kept))
    }

    /// Sets how the threads of launches of the calling thread run.
    ///
    /// # Panics
    ///
    /// If the order contains a zero byte.
    pub fn apply_settings(&self, settings: ThreadSchedule) {
        let order = CString::new(settings.order).expect("an order is one of `ORDERS`");
        // SAFETY: the function reads a string that ends in zero.
        unsafe {
            (self.set)(order.as_ptr(), settings.copies_at_once.into(), settings.mutant as c_int);
        }
    }

    /// Runs a kernel in blocks of `threads` threads with `shared` bytes of dynamic shared memory. An argument is the
    /// bits of an address or a number.
    ///
    /// # Errors
    ///
    /// If the source has no such kernel, or it fails.
    ///
    /// # Panics
    ///
    /// If the kernel's name contains a zero byte.
    ///
    /// # Safety
    ///
    /// There are as many arguments as the kernel has parameters, of their meaning, and what lies at the addresses is as
    /// long as the kernel reads and writes.
    pub unsafe fn launch_kernel(
        &self,
        kernel: &str,
        grid: [u32; 3],
        threads: u32,
        shared: u32,
        args: &[u64],
    ) -> Result<(), EmulateError> {
        let name = CString::new(kernel).expect("a kernel has a name of C");
        let mut args: Vec<*mut c_void> =
            args.iter().map(|arg| std::ptr::from_ref(arg).cast_mut().cast()).collect();
        let mut message = [0; MESSAGE];
        // SAFETY: the caller's promise; the message ends in zero within its length.
        unsafe {
            let (args, to) = (args.as_mut_ptr(), message.as_mut_ptr());
            let length = MESSAGE as c_uint;
            let failed =
                (self.launch)(name.as_ptr(), grid.as_ptr(), threads, shared, args, to, length);
            if failed == 0 {
                return Ok(());
            }
            let what = CStr::from_ptr(message.as_ptr()).to_string_lossy();
            Err(EmulateError::Launch(format!("{kernel}: {what}")))
        }
    }
}

/// Returns an error if there is no C++ compiler.
///
/// # Errors
///
/// See [`EmulateError`].
pub fn check_compiler() -> Result<(), EmulateError> {
    let name = compiler_name();
    match Command::new(&name).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(EmulateError::NoCompiler(name))
        }
        Err(error) => Err(error.into()),
    }
}

fn compiler_name() -> OsString {
    env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

/// Returns the directory of the built libraries, which only this user can read; `None` if there is none.
fn cache_dir() -> Option<PathBuf> {
    let base =
        absolute_dir("XDG_CACHE_HOME").or_else(|| Some(absolute_dir("HOME")?.join(".cache")))?;
    let dir = base.join("maverl").join("emulated");
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(&dir).ok().map(|()| dir)
}

/// Returns the absolute path that a variable holds.
fn absolute_dir(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute())
}

/// A new directory in another that only this process uses.
fn scratch_dir(within: &Path) -> io::Result<PathBuf> {
    static BUILDS: AtomicU64 = AtomicU64::new(0);
    let build = BUILDS.fetch_add(1, Ordering::Relaxed);
    let dir = within.join(format!("maverl-kernel-{}-{build}", process::id()));
    fs::create_dir(&dir)?;
    Ok(dir)
}

fn compile_library(
    dir: &Path,
    source: &str,
    kernels: &[&str],
    flags: &[&str],
) -> Result<PathBuf, EmulateError> {
    fs::write(dir.join("cuda_on_cpu.h"), HEADER)?;
    fs::write(dir.join("device_on_cpu.h"), OPERATIONS)?;
    fs::write(dir.join("kernel.cu"), source)?;
    fs::write(dir.join("launch.cpp"), launcher_source(kernels))?;
    let library = dir.join("kernel.so");
    let compiler = compiler_name();
    let run = Command::new(&compiler)
        .args(flags)
        .args(["launch.cpp", "-o"])
        .arg(&library)
        .current_dir(dir)
        .output();
    match run {
        Ok(run) if run.status.success() => Ok(library),
        Ok(run) => Err(EmulateError::Compile(String::from_utf8_lossy(&run.stderr).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(EmulateError::NoCompiler(compiler))
        }
        Err(error) => Err(error.into()),
    }
}

/// Source of the functions that launch kernels by name.
fn launcher_source(kernels: &[&str]) -> String {
    let mut source = "#include \"cuda_on_cpu.h\"\n#include \"kernel.cu\"\n\n".to_owned();
    for kernel in kernels {
        let _ = writeln!(source, "COC_KERNEL({kernel});");
    }
    source.push_str(
        r#"
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int coc_launch(const char* name, const unsigned* grid, unsigned threads, unsigned shared, void** args,
                      char* message, unsigned length) {
  auto it = coc::table().find(name);
  std::string failure = "there is no such kernel";
  if (it != coc::table().end()) failure = it->second(dim3(grid[0], grid[1], grid[2]), dim3(threads), shared, args);
  std::snprintf(message, length, "%s", failure.c_str());
  return !failure.empty();
}

EXPORT void coc_set(const char* order, int copies_at_once, int mutant) {
  std::string o = order;
  bool shuffle = o.rfind("shuffle:", 0) == 0;
  coc::self.order = shuffle ? coc::SHUFFLE : coc::FORWARD;
  if (o == "reverse") coc::self.order = coc::REVERSE;
  if (o == "lockstep") coc::self.order = coc::LOCKSTEP;
  coc::self.seed = shuffle ? std::atoi(order + 8) : 1;
  coc::self.copies_at_once = copies_at_once;
  coc::self.mutant = mutant;
}
"#,
    );
    source
}

fn open_library(library: &Path) -> Result<KernelLibrary, EmulateError> {
    // SAFETY: the library is the one just built, stays open, and its functions have these types in `launcher_source`.
    unsafe {
        let library = Library::new(library).map_err(io::Error::other)?;
        let launch = *library.get::<LaunchFunction>(c"coc_launch").map_err(io::Error::other)?;
        let set = *library.get::<Set>(c"coc_set").map_err(io::Error::other)?;
        std::mem::forget(library);
        Ok(KernelLibrary { launch, set })
    }
}

#[cfg(test)]
mod tests;
