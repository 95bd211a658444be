//! Width of the terminal, and output.

use std::fmt::Display;
use std::io::IsTerminal;
use std::process::ExitCode;

use miette::GraphicalTheme;

use crate::cli::failure::Failure;
use crate::output;
use crate::table::paragraphs;
use crate::train::own_name;

/// Number of columns if it is unknown.
const USUAL: usize = 80;

/// Minimum number of columns.
const FEWEST: usize = 40;

/// Returns the number of columns: `COLUMNS`, else the terminal's, else 80.
pub fn width() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let given = given.filter(|columns| *columns > 0);
    let known = given.or_else(|| Some(usize::from(terminal_size::terminal_size()?.0.0)));
    known.unwrap_or(USUAL).max(FEWEST)
}

/// Returns the signs around the lines of a configuration. They have no colors: an escape sequence of a report would have to be
/// told from those of the data in it.
pub fn theme() -> GraphicalTheme {
    let both = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    if both { GraphicalTheme::unicode_nocolor() } else { GraphicalTheme::none() }
}

/// Formats a message: commands have the name of this program, and lines are wrapped at `width` columns. What follows an empty
/// line is laid out already, such as the report on a configuration, which shows lines of the file.
pub fn message(text: &str, width: usize) -> String {
    let text = own_name(text);
    match text.split_once("\n\n") {
        Some((text, report)) => format!("{}\n\n{report}", paragraphs(text, width)),
        None => paragraphs(&text, width),
    }
}

/// Prints a message on standard error.
pub fn tell(text: impl Display) {
    crate::train::tell(message(&text.to_string(), width()));
}

/// Writes to standard output; a closed reader (`| head`) is not an error.
pub fn print(text: &str) -> Result<ExitCode, Failure> {
    output::print(&format!("{}\n", text.trim_end()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_wrapped_at_words_and_the_report_below_it_is_not() {
        let report = format!(" 3 | path = \"{}\"\n   : {}", "models/ ".repeat(20), "^".repeat(150));
        let long = "the orchestra asks an agent that no configuration has, ".repeat(4);
        for columns in [60, 80, 120] {
            let text = message(&format!("error: {long}\n  {long}\n\n{report}"), columns);
            let (wrapped, rest) = text.split_once("\n\n").unwrap_or_default();
            assert_eq!(rest, report);
            let widest = wrapped.lines().map(str::len).max().unwrap_or_default();
            assert!(widest <= columns && widest > columns - 16, "{widest} at {columns}\n{text}");
            assert!(wrapped.lines().any(|line| line.starts_with("    ")), "{text}");
        }
    }
}
