//! The functions of NCCL that are used, with their types.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;
use maverl_kernels::cuda::library_folders;

/// Names of the library.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// Folder of the library in a folder of Python packages.
const WHEEL: &str = "nvidia/nccl/lib";
/// First bytes of a configuration.
const MAGIC: c_uint = 0xcafe_beef;
/// Version whose configuration is [`NcclConfig`]: the first with communicators that do not block.
const VERSION: c_uint = 21_400;

/// Result of a call that succeeded.
pub(super) const SUCCESS: Code = 0;
/// Result of a call that goes on.
pub(super) const IN_PROGRESS: Code = 7;
/// Type of bytes.
pub(super) const BYTES: c_int = 1;

type Code = c_int;
pub(super) type CommHandle = *mut c_void;
pub(super) type StreamHandle = *mut c_void;
type OfComm = unsafe extern "C" fn(CommHandle) -> Code;
type OfGroup = unsafe extern "C" fn() -> Code;

/// Id that the ranks of a communicator have in common.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

impl Default for UniqueId {
    fn default() -> Self {
        Self([0; 128])
    }
}

/// Configuration of a communicator, as NCCL 2.14 has it; later versions read it by its size and version.
#[repr(C)]
pub(super) struct NcclConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    /// Not in that version, and not read. It fills the size.
    undefined: c_int,
}

impl NcclConfig {
    /// Returns the configuration of a communicator that does not block.
    pub(super) fn new() -> Self {
        let size = size_of::<Self>();
        Self { size, magic: MAGIC, version: VERSION, blocking: 0, undefined: c_int::MIN }
    }
}

/// Functions of an open library.
pub(super) struct NcclTable {
    get_version: unsafe extern "C" fn(*mut c_int) -> Code,
    error_string: unsafe extern "C" fn(Code) -> *const c_char,
    pub(super) get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Code,
    pub(super) init:
        unsafe extern "C" fn(*mut CommHandle, c_int, UniqueId, c_int, *mut NcclConfig) -> Code,
    pub(super) async_error: unsafe extern "C" fn(CommHandle, *mut Code) -> Code,
    pub(super) finalize: OfComm,
    pub(super) destroy: OfComm,
    pub(super) abort: OfComm,
    pub(super) group_start: OfGroup,
    pub(super) group_end: OfGroup,
    pub(super) send:
        unsafe extern "C" fn(*const c_void, usize, c_int, c_int, CommHandle, StreamHandle) -> Code,
    pub(super) receive:
        unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, CommHandle, StreamHandle) -> Code,
    /// Keeps the functions.
    _library: Library,
}

impl fmt::Debug for NcclTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl NcclTable {
    /// Opens a library: the one at a path, or else the first of those that are found.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, String> {
        let paths = path.map_or_else(candidates, |path| vec![path.to_owned()]);
        let mut reasons = Vec::new();
        for path in &paths {
            // SAFETY: opening a library runs its initializers; those of NCCL touch no memory of this program.
            match unsafe { Library::new(path) } {
                Ok(library) => {
                    let table = Self::of(library);
                    let usable = table.and_then(|table| table.check_version().map(|()| table));
                    return usable.map_err(|reason| format!("{}: {reason}", path.display()));
                }
                Err(error) => reasons.push(format!("{}: {error}", path.display())),
            }
        }
        Err(format!(
            "no NCCL ({}); install it, or `pip install nvidia-nccl-cu13` and name the folder in `MAVERL_SITE_PACKAGES`, or \
             write `dist.transport = \"tcp\"`",
            reasons.join("; ")
        ))
    }

    fn of(library: Library) -> Result<Self, String> {
        // SAFETY: the types are those of NCCL's header for these names, since version 2.14.
        unsafe {
            Ok(Self {
                get_version: function(&library, "ncclGetVersion")?,
                error_string: function(&library, "ncclGetErrorString")?,
                get_unique_id: function(&library, "ncclGetUniqueId")?,
                init: function(&library, "ncclCommInitRankConfig")?,
                async_error: function(&library, "ncclCommGetAsyncError")?,
                finalize: function(&library, "ncclCommFinalize")?,
                destroy: function(&library, "ncclCommDestroy")?,
                abort: function(&library, "ncclCommAbort")?,
                group_start: function(&library, "ncclGroupStart")?,
                group_end: function(&library, "ncclGroupEnd")?,
                send: function(&library, "ncclSend")?,
                receive: function(&library, "ncclRecv")?,
                _library: library,
            })
        }
    }

    /// Returns the reason if a call failed.
    pub(super) fn check(&self, call: &str, code: Code) -> Result<(), String> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: NCCL returns a text that lives as long as the library, for every code.
        let text = unsafe {
            let text = (self.error_string)(code);
            if text.is_null() { c"no description" } else { CStr::from_ptr(text) }
        };
        Err(format!("{call}: {} (code {code})", text.to_string_lossy()))
    }

    /// Returns the reason if the library is older than [`VERSION`].
    fn check_version(&self) -> Result<(), String> {
        let mut version = 0;
        // SAFETY: the number is as long as NCCL writes.
        let code = unsafe { (self.get_version)(&raw mut version) };
        self.check("ncclGetVersion", code)?;
        if version >= VERSION as c_int {
            return Ok(());
        }
        let (major, minor) = (version / 10_000, version / 100 % 100);
        Err(format!("it is NCCL {major}.{minor}; install 2.14 or newer"))
    }
}

/// Returns the paths at which the library is looked for: those of the dynamic loader, and the files in the folders of CUDA's
/// libraries.
fn candidates() -> Vec<PathBuf> {
    let folders = library_folders(&[WHEEL]).into_iter().map(|folder| folder.join(NAMES[0]));
    NAMES.iter().map(PathBuf::from).chain(folders.filter(|path| path.is_file())).collect()
}

/// Returns a function of a library.
///
/// # Safety
///
/// The function of this name has this type.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| format!("it has no `{name}`; NCCL 2.14 has it"))
}
