//! The directory of an export, which is complete or not there.

use std::path::Path;

use crate::cli::failure::Failure;
use crate::run_dir::disk::{entries, parent, remove, sync_dir, sync_tree, temporary};

/// The model card.
pub(super) const CARD: &str = "README.md";

pub(super) fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| Failure(format!("cannot write {}: {e}", path.display())))
}

/// Fails for a directory that is not empty.
pub fn writable(out: &Path) -> Result<(), Failure> {
    if out.exists() && (!out.is_dir() || !entries(out)?.is_empty()) {
        return Err(Failure(format!("{} is not empty; give another `--out`", out.display())));
    }
    Ok(())
}

/// Writes a directory that appears under its name only when it is complete.
pub fn write_whole<T>(
    out: &Path,
    write: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let staged = temporary(out);
    remove(&staged)?;
    let made = std::fs::create_dir_all(&staged)
        .map_err(|e| Failure(format!("cannot make {}: {e}", staged.display())))
        .and_then(|()| write(&staged))
        .and_then(|told| {
            sync_tree(&staged)?;
            std::fs::rename(&staged, out)
                .map_err(|e| Failure(format!("cannot write {}: {e}", out.display())))?;
            sync_dir(parent(out))?;
            Ok(told)
        });
    if made.is_err() {
        // A remaining temporary directory only takes space. The first error is the one to report.
        let _ = remove(&staged);
    }
    made
}
