//! Progress displays: a bar, lines, and a file.

use std::io::IsTerminal;
use std::sync::Arc;

use crate::train::progress::Progress;
use crate::train::progress::bar::Bar;
use crate::train::progress::lines::ProgressLines;

/// Returns a display on standard error: one line per step, with a bar below if it is a terminal.
pub fn stderr() -> Arc<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Arc::new(Bar::default())
    } else {
        Arc::new(ProgressLines::default())
    }
}
