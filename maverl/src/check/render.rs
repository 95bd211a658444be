//! Diagnostics as text.

use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};

use super::diagnostic::Diagnostic;
use crate::table;

/// Maximum width of messages on a wide terminal.
const WIDTH: usize = 110;

/// Formats all diagnostics as text, for a terminal or (`GraphicalTheme::none()`) for a file.
pub fn render(diagnostics: &[Diagnostic], theme: GraphicalTheme) -> String {
    render_within(diagnostics, theme, WIDTH)
}

/// Formats all diagnostics as text. Messages and help are wrapped at `width` columns; lines of the configuration are
/// not wrapped.
pub fn render_within(diagnostics: &[Diagnostic], theme: GraphicalTheme, width: usize) -> String {
    let handler = GraphicalReportHandler::new_themed(theme).with_wrap_lines(false);
    let width = width.min(WIDTH);
    let mut text = String::new();
    for diagnostic in diagnostics {
        handler
            .render_report(&mut text, &Wrapped::new(diagnostic, width))
            .expect("writing to a String cannot fail, and every span lies in its source");
    }
    text
}

/// A diagnostic with wrapped lines. Names and paths stay whole: the report's own wrapping would break them at every
/// `/`.
#[derive(Debug)]
struct Wrapped<'d> {
    inner: &'d Diagnostic,
    message: String,
    help: Option<String>,
}

impl<'d> Wrapped<'d> {
    fn new(inner: &'d Diagnostic, width: usize) -> Self {
        let lines = |text: &str, indent: usize| {
            let lines =
                text.lines().flat_map(|line| table::lines(line, width.saturating_sub(indent)));
            lines.collect::<Vec<_>>().join("\n")
        };
        // The prefix of the report, and two columns at the right.
        let message = lines(&inner.message, "  x ".len() + 2);
        let help = inner.help.as_ref().map(|help| lines(help, "  help: ".len() + 2));
        Self { inner, message, help }
    }
}

impl fmt::Display for Wrapped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Wrapped<'_> {}

impl miette::Diagnostic for Wrapped<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        miette::Diagnostic::source_code(self.inner)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        miette::Diagnostic::labels(self.inner)
    }
}
