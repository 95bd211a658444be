//! Width of the terminal, and output.

use std::io::Write;
use std::process::ExitCode;

use super::Failure;

/// Number of columns if it is unknown.
const USUAL: usize = 80;

/// Minimum number of columns.
const FEWEST: usize = 40;

/// Returns the number of columns: `COLUMNS`, else the terminal's, else 80.
pub(super) fn width() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    given.filter(|columns| *columns > 0).or_else(terminal).unwrap_or(USUAL).max(FEWEST)
}

/// Writes to standard output; a closed reader (`| head`) is not an error.
pub(super) fn print(text: &str) -> Result<ExitCode, Failure> {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
