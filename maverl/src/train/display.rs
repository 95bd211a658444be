//! Progress displays: a bar, lines, and a file.

mod bar;
mod heartbeat;
mod lines;

use std::io::IsTerminal;
use std::sync::Arc;

use crate::train::progress::Progress;

use bar::Bar;
pub use heartbeat::Beat;
pub(super) use heartbeat::Heartbeat;
use lines::Lines;

/// Returns a display on standard error: one line per step, with a bar below if it is a terminal.
pub fn stderr() -> Arc<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Arc::new(Bar::default())
    } else {
        Arc::new(Lines::default())
    }
}
