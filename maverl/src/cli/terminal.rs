//! Width of the terminal.

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
