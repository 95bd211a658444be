//! The functions of cuBLASLt that are called, loaded at run time. Constants are those of `cublasLt.h`.

use std::env;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::CublasLtError;
use crate::cuda::folders;

/// Status of a call.
pub(super) type CublasStatus = u32;
pub(super) const SUCCESS: CublasStatus = 0;
pub(super) const INVALID_VALUE: CublasStatus = 7;
pub(super) const NOT_SUPPORTED: CublasStatus = 15;

pub(super) const R_32F: u32 = 0;
pub(super) const R_16BF: u32 = 14;
/// Sums in f32.
pub(super) const COMPUTE_32F: u32 = 68;
pub(super) const OP_N: u32 = 0;
pub(super) const OP_T: u32 = 1;
pub(super) const DESC_TRANSA: u32 = 3;
pub(super) const DESC_TRANSB: u32 = 4;
pub(super) const PREF_MAX_WORKSPACE_BYTES: u32 = 1;
pub(super) const PREF_REDUCTION_SCHEME_MASK: u32 = 3;
/// Preferences of the alignment of `A`, `B`, `C` and `D`.
pub(super) const PREF_MIN_ALIGNMENT: [u32; 4] = [5, 6, 7, 8];
pub(super) const CONFIG_REDUCTION_SCHEME: u32 = 3;
pub(super) const REDUCTION_NONE: u32 = 0;
/// Parts of a sum are written to the workspace, in f32, and added by a kernel of its own.
pub(super) const REDUCTION_COMPUTE_TYPE: u32 = 2;

/// `cublasLtMatmulAlgo_t`.
pub(super) type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Heuristic {
    pub(super) algorithm: Algorithm,
    pub(super) workspace: usize,
    pub(super) status: CublasStatus,
    waves: f32,
    reserved: [c_int; 4],
}

pub(super) type Pointer = *mut c_void;
type Destroy = unsafe extern "C" fn(Pointer) -> CublasStatus;
type SetAttribute = unsafe extern "C" fn(Pointer, u32, *const c_void, usize) -> CublasStatus;
type Create = unsafe extern "C" fn(*mut Pointer) -> CublasStatus;
type DescriptionCreate = unsafe extern "C" fn(*mut Pointer, u32, u32) -> CublasStatus;
type LayoutCreate = unsafe extern "C" fn(*mut Pointer, u32, u64, u64, i64) -> CublasStatus;
type GetHeuristic = unsafe extern "C" fn(
    Pointer,
    Pointer,
    Pointer,
    Pointer,
    Pointer,
    Pointer,
    Pointer,
    c_int,
    *mut Heuristic,
    *mut c_int,
) -> CublasStatus;
type ConfigGet =
    unsafe extern "C" fn(*const Algorithm, u32, *mut c_void, usize, *mut usize) -> CublasStatus;
type MatmulFunction = unsafe extern "C" fn(
    Pointer,
    Pointer,
    *const c_void,
    *const c_void,
    Pointer,
    *const c_void,
    Pointer,
    *const c_void,
    *const c_void,
    Pointer,
    *mut c_void,
    Pointer,
    *const Algorithm,
    *mut c_void,
    usize,
    *mut c_void,
) -> CublasStatus;

/// Declares the table of functions, and how it is read from a library.
macro_rules! functions {
    ($($field:ident: $of:ty = $name:literal,)*) => {
        /// Functions of a library that stays open.
        #[derive(Clone, Copy)]
        pub(crate) struct Functions { $(pub(super) $field: $of,)* }

        impl Functions {
            /// Reads the functions of an open library. The error is the name of one that it lacks.
            fn from_library(library: *mut c_void) -> Result<Self, &'static CStr> {
                // SAFETY: the library is open, and its functions have these types in NVIDIA's header.
                unsafe {
                    Ok(Self { $($field: {
                        let found = libc::dlsym(library, $name.as_ptr());
                        if found.is_null() {
                            return Err($name);
                        }
                        std::mem::transmute::<*mut c_void, $of>(found)
                    },)* })
                }
            }
        }
    };
}

functions! {
    version: unsafe extern "C" fn() -> usize = c"cublasLtGetVersion",
    create: Create = c"cublasLtCreate",
    destroy: Destroy = c"cublasLtDestroy",
    description_create: DescriptionCreate = c"cublasLtMatmulDescCreate",
    description_set: SetAttribute = c"cublasLtMatmulDescSetAttribute",
    description_destroy: Destroy = c"cublasLtMatmulDescDestroy",
    layout_create: LayoutCreate = c"cublasLtMatrixLayoutCreate",
    layout_destroy: Destroy = c"cublasLtMatrixLayoutDestroy",
    preference_create: Create = c"cublasLtMatmulPreferenceCreate",
    preference_set: SetAttribute = c"cublasLtMatmulPreferenceSetAttribute",
    preference_destroy: Destroy = c"cublasLtMatmulPreferenceDestroy",
    heuristic: GetHeuristic = c"cublasLtMatmulAlgoGetHeuristic",
    config_get: ConfigGet = c"cublasLtMatmulAlgoConfigGetAttribute",
    matmul: MatmulFunction = c"cublasLtMatmul",
}

/// Variable that switches the library off.
const VARIABLE: &str = "MAVERL_CUBLASLT";
/// Names on the library path, the newest first.
const NAMES: [&str; 4] =
    ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"];

impl Functions {
    /// Finds the library, once.
    pub(crate) fn find() -> Result<Self, CublasLtError> {
        static FOUND: OnceLock<Result<Functions, CublasLtError>> = OnceLock::new();
        FOUND.get_or_init(Self::search_library).clone()
    }

    fn search_library() -> Result<Self, CublasLtError> {
        if env::var_os(VARIABLE).is_some_and(|value| value == "off") {
            return Err(CublasLtError::Off);
        }
        let searched = folders::kernel_library_folders();
        let files = searched
            .iter()
            .flat_map(|folder| folders::files_in(folder, &["libcublasLt.so"]).into_iter().rev());
        let mut lacking = None;
        for path in NAMES.iter().map(PathBuf::from).chain(files) {
            match Self::open(&path) {
                Ok(functions) => return Ok(functions),
                Err(error @ CublasLtError::Lacks { .. }) => lacking = Some(error),
                Err(_) => {}
            }
        }
        Err(lacking.unwrap_or(CublasLtError::Missing { searched }))
    }

    /// Opens a library. A name without a folder is searched for by the dynamic loader.
    pub(crate) fn open(path: &Path) -> Result<Self, CublasLtError> {
        let library = folders::open_library(path);
        if library.is_null() {
            return Err(CublasLtError::Missing { searched: vec![path.to_owned()] });
        }
        Self::from_library(library).map_err(|function| CublasLtError::Lacks {
            path: path.to_owned(),
            function: CString::from(function).to_string_lossy().into_owned(),
        })
    }

    /// Returns the version of the library, such as `13.1.0`.
    pub(crate) fn version(&self) -> String {
        // SAFETY: the function has no arguments.
        let version = unsafe { (self.version)() };
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }
}
