//! Paths in the form that system calls take.

use std::ffi::CString;
use std::path::Path;

/// Converts a path to a C string.
pub(super) fn c_path(path: &Path) -> Result<CString, std::ffi::NulError> {
    CString::new(path.as_os_str().as_encoded_bytes())
}
