//! Paths for calls of the system.

use std::ffi::{CString, NulError};
use std::path::Path;

/// Converts a path to a C string.
pub(super) fn c_path(path: &Path) -> Result<CString, NulError> {
    CString::new(path.as_os_str().as_encoded_bytes())
}
