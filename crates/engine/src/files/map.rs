//! Files in memory without a copy.

use std::path::Path;

use maverl_hub::open_file;
use memmap2::Mmap;

use crate::files::ModelError;

/// Maps a file into memory.
///
/// # Errors
///
/// If it cannot be opened.
#[allow(unsafe_code)] // weights are mapped, not copied
pub(crate) fn map_file(path: &Path) -> Result<Mmap, ModelError> {
    let file = open_file(path).map_err(|e| ModelError::at_path(path, e))?;
    // SAFETY: the map is read-only and lives no longer than this process needs it; a checkpoint that another process
    // cuts short while it is read can end this one (SIGBUS), as for every reader that maps its weights.
    unsafe { Mmap::map(&file) }.map_err(|e| ModelError::at_path(path, e))
}
