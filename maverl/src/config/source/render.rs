//! Diagnostics as text.

use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};

use super::diagnostic::Diagnostic;
use super::excerpt::{Excerpt, GAP};
use crate::output::visible;
use crate::table;

/// Maximum width of messages on a wide terminal.
const WIDTH: usize = 110;

/// Maximum number of characters of a word of a message, such as a value that it quotes.
const WORD: usize = 200;

/// Maximum number of problems that are shown; the others are counted.
const SHOWN: usize = 20;

/// Formats the first problems as text, for a terminal or (`GraphicalTheme::none()`) for a file, with the number of the others.
pub fn render(diagnostics: &[Diagnostic], theme: GraphicalTheme) -> String {
    render_within(diagnostics, theme, WIDTH)
}

/// Formats the first problems as text. Messages and help are wrapped at `width` columns; lines of the configuration are
/// not wrapped, but cut around the places.
pub fn render_within(diagnostics: &[Diagnostic], theme: GraphicalTheme, width: usize) -> String {
    let handler = GraphicalReportHandler::new_themed(theme).with_wrap_lines(false);
    let width = width.min(WIDTH);
    let mut text = String::new();
    for diagnostic in diagnostics.iter().take(SHOWN) {
        handler
            .render_report(&mut text, &ShownProblem::new(diagnostic, width))
            .expect("writing to a String cannot fail, and every span lies in its source");
    }
    let more = diagnostics.len().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("\nand {more} more\n");
    }
    text
}

/// A problem as it is shown. Lines of its texts are wrapped, but names and paths stay whole: the report's own wrapping
/// would break them at every `/`.
#[derive(Debug)]
struct ShownProblem {
    message: String,
    help: Option<String>,
    excerpt: Option<Excerpt>,
}

impl ShownProblem {
    fn new(inner: &Diagnostic, width: usize) -> Self {
        // The prefix of the report, and two columns at the right.
        let message = wrap_message(&inner.message, width.saturating_sub("  x ".len() + 2));
        let width = width.saturating_sub("  help: ".len() + 2);
        let help = inner.help.as_ref().map(|help| wrap_message(help, width));
        Self { message, help, excerpt: inner.excerpt() }
    }
}

/// Returns a text in lines of at most `width` columns, without the middle of its longest words.
fn wrap_message(text: &str, width: usize) -> String {
    let text = visible(text).split(' ').map(shorten_word).collect::<Vec<_>>().join(" ");
    let lines = text.lines().flat_map(|line| table::lines(line, width));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a word without its middle, if it is too long.
fn shorten_word(word: &str) -> String {
    let ends = [word.char_indices().nth(WORD / 2), word.char_indices().nth_back(WORD / 4)];
    match ends {
        [Some((start, _)), Some((end, _))] if word.chars().nth(WORD).is_some() => {
            format!("{}{GAP}{}", &word[..start], &word[end..])
        }
        _ => word.to_owned(),
    }
}

impl fmt::Display for ShownProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ShownProblem {}

impl miette::Diagnostic for ShownProblem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.as_ref().map(|excerpt| excerpt as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let labels = self.excerpt.as_ref()?.labels.iter().cloned();
        Some(Box::new(labels))
    }
}
