//! CUDA C++ kernels run on the CPU, for tests: every CUDA thread is a fiber, barriers and shuffles are rendezvous.
//!
//! A C++17 compiler (`CXX`, or `c++`) builds the source beside a header that gives it what it uses of CUDA. Blocks run one
//! after the other. Not there: memory order between blocks that run at once, textures, tensor cores, inline PTX.
#![allow(unsafe_code)] // a shared library that was just built is opened and called

mod estimator;

pub use estimator::{Estimator, KERNEL, PRELUDE, StepArrays};

use std::env;
use std::ffi::{CString, OsString, c_char, c_int, c_uint, c_void};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU64, Ordering};

/// The part of CUDA that kernels find on the CPU.
const HEADER: &str = include_str!("emulate/cuda_on_cpu.h");

/// Orders in which the threads of a block can run. A kernel that lacks a barrier gives other results in some of them.
pub const ORDERS: [&str; 4] = ["forward", "reverse", "lockstep", "shuffle:7"];

type Launch = unsafe extern "C" fn(*const c_char, c_uint, c_uint, *mut *mut c_void) -> c_int;
type SetOrder = unsafe extern "C" fn(*const c_char);

/// Kernels built for the CPU.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    launch: Launch,
    order: SetOrder,
}

/// Cause of a failed build.
#[derive(Debug)]
pub enum EmulateError {
    /// There is no C++ compiler of this name.
    NoCompiler(OsString),
    /// The compiler's messages.
    Compile(String),
    /// The library could not be written or opened.
    Io(io::Error),
}

impl std::fmt::Display for EmulateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoCompiler(name) => write!(f, "no C++ compiler {name:?}; name one in `CXX`"),
            Self::Compile(log) => write!(f, "the kernel does not compile as C++17:\n{log}"),
            Self::Io(error) => write!(f, "cannot build the kernel: {error}"),
        }
    }
}

impl std::error::Error for EmulateError {}

impl From<io::Error> for EmulateError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Library {
    /// Builds a source with these kernels. The library stays open until the process ends.
    ///
    /// # Errors
    ///
    /// See [`EmulateError`].
    pub fn build(source: &str, kernels: &[&str]) -> Result<Self, EmulateError> {
        let dir = scratch()?;
        let built = compile(&dir, source, kernels).and_then(|library| open(&library));
        fs::remove_dir_all(&dir)?;
        built
    }

    /// Sets the order of threads for launches of the calling thread: one of [`ORDERS`].
    ///
    /// # Panics
    ///
    /// If the order contains a zero byte.
    pub fn set_order(&self, order: &str) {
        let order = CString::new(order).expect("an order is one of `ORDERS`");
        // SAFETY: the function copies a string that ends in zero.
        unsafe { (self.order)(order.as_ptr()) }
    }

    /// Runs a kernel in so many blocks of `threads` threads; an argument is the bits of an address or a number.
    ///
    /// # Panics
    ///
    /// If the source has no such kernel.
    ///
    /// # Safety
    ///
    /// There are as many arguments as the kernel has parameters, of their meaning, and what lies at the addresses is as
    /// long as the kernel reads and writes.
    pub unsafe fn launch(&self, kernel: &str, blocks: u32, threads: u32, args: &[u64]) {
        let name = CString::new(kernel).expect("a kernel has a name of C");
        let mut args: Vec<*mut c_void> =
            args.iter().map(|arg| std::ptr::from_ref(arg).cast_mut().cast()).collect();
        // SAFETY: the caller's promise.
        let found = unsafe { (self.launch)(name.as_ptr(), blocks, threads, args.as_mut_ptr()) };
        assert_eq!(found, 0, "no kernel {kernel}");
    }
}

/// A new directory that only this process uses.
fn scratch() -> io::Result<PathBuf> {
    static BUILDS: AtomicU64 = AtomicU64::new(0);
    let build = BUILDS.fetch_add(1, Ordering::Relaxed);
    let dir = env::temp_dir().join(format!("maverl-kernel-{}-{build}", process::id()));
    fs::create_dir(&dir)?;
    Ok(dir)
}

fn compile(dir: &Path, source: &str, kernels: &[&str]) -> Result<PathBuf, EmulateError> {
    fs::write(dir.join("cuda_on_cpu.h"), HEADER)?;
    fs::write(dir.join("kernel.cu"), source)?;
    fs::write(dir.join("launch.cpp"), launcher(kernels))?;
    let library = dir.join("kernel.so");
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let flags =
        ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-fvisibility=hidden"];
    // Hidden, so that libraries of several kernels do not share their tables.
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
fn launcher(kernels: &[&str]) -> String {
    let mut source = "#include \"cuda_on_cpu.h\"\n#include \"kernel.cu\"\n\n".to_owned();
    for kernel in kernels {
        let _ = writeln!(source, "COC_KERNEL({kernel});");
    }
    source.push_str(
        r#"
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int coc_launch(const char* name, unsigned blocks, unsigned threads, void** args) {
  auto it = coc::table().find(name);
  if (it == coc::table().end()) return 1;
  it->second(dim3(blocks), dim3(threads), 0, args);
  return 0;
}

EXPORT void coc_order(const char* order) { coc::order() = order; }
"#,
    );
    source
}

fn open(library: &Path) -> Result<Library, EmulateError> {
    let path = CString::new(library.as_os_str().as_bytes())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    // SAFETY: the library is the one just built, stays open, and its functions have these types in `launcher`.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            return Err(io::Error::other("the built library does not open").into());
        }
        let [launch, order] =
            [c"coc_launch", c"coc_order"].map(|name| libc::dlsym(handle, name.as_ptr()));
        if launch.is_null() || order.is_null() {
            return Err(io::Error::other("the built library lacks a function").into());
        }
        Ok(Library {
            launch: std::mem::transmute::<*mut c_void, Launch>(launch),
            order: std::mem::transmute::<*mut c_void, SetOrder>(order),
        })
    }
}
