//! Tables and paragraphs for a terminal of a given width.
//!
//! A table that is too wide wraps its headers and its columns of prose. If that is not enough, it becomes a list: a
//! title for each row, and below it a line for each column.

use crate::output::visible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum width of paragraphs on a wide terminal.
const LONGEST_LINE: usize = 120;

/// Minimum width of a column of prose.
const NARROWEST: usize = 16;

/// Lines around the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableFrame {
    /// Border, and a line under the header.
    Box,
    /// No lines.
    None,
}

/// Rows under a header.
#[derive(Debug, Clone)]
pub struct Table {
    frame: TableFrame,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    prose: Vec<usize>,
    right: Vec<usize>,
    title: usize,
}

impl Table {
    /// Creates a table with a border.
    pub fn with_frame<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self {
            frame: TableFrame::Box,
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            prose: Vec::new(),
            right: Vec::new(),
            title: 1,
        }
    }

    /// Creates a table without a border. A header of empty texts is not drawn.
    pub fn without_frame<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { frame: TableFrame::None, ..Self::with_frame(header) }
    }

    /// Marks columns that are wrapped if the table is too wide.
    #[must_use]
    pub fn prose(mut self, columns: &[usize]) -> Self {
        self.prose = columns.to_vec();
        self
    }

    /// Marks columns that are aligned to the right.
    #[must_use]
    pub fn right(mut self, columns: &[usize]) -> Self {
        self.right = columns.to_vec();
        self
    }

    /// Sets the number of leading columns that are the title of a row in a list; 1 by default.
    #[must_use]
    pub fn title(mut self, columns: usize) -> Self {
        self.title = columns;
        self
    }

    /// Adds a row; a cell may have several lines.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(Into::into);
        let mut row: Vec<String> = cells.map(|cell: String| visible(&cell).into_owned()).collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// Returns true if the table has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table in lines of at most `width` columns, without a line end after the last.
    pub fn draw(&self, width: usize) -> String {
        match self.widths(width) {
            Some(widths) => self.grid(&widths),
            None => self.list(width),
        }
    }

    /// Returns the number of columns of borders and gaps.
    fn frame_width(&self) -> usize {
        let gaps = self.header.len().saturating_sub(1);
        match self.frame {
            TableFrame::Box => 3 * gaps + 4,
            TableFrame::None => 2 * gaps,
        }
    }

    /// Returns the width of each column; `None` if they do not fit side by side.
    fn widths(&self, width: usize) -> Option<Vec<usize>> {
        let space = width.checked_sub(self.frame_width())?;
        let columns = 0..self.header.len();
        let wanted: Vec<usize> = columns
            .clone()
            .map(|i| self.widest_cell(i, widest_line).max(widest_line(&self.header[i])))
            .collect();
        let mut widths: Vec<usize> = columns.map(|i| self.least_width(i).min(wanted[i])).collect();
        let mut spare = space.checked_sub(widths.iter().sum())?;
        while spare > 0 {
            // The column that lacks the most width gets more.
            let columns = widths.iter_mut().zip(&wanted);
            let lacking = columns.filter(|(width, wanted)| **width < **wanted);
            let Some((width, _)) = lacking.max_by_key(|(width, wanted)| *wanted - **width) else {
                break;
            };
            *width += 1;
            spare -= 1;
        }
        Some(widths)
    }

    /// Returns the largest width of a column's cells, without its header.
    fn widest_cell(&self, column: usize, width: fn(&str) -> usize) -> usize {
        self.rows.iter().map(|row| width(&row[column])).max().unwrap_or(0)
    }

    /// Returns the width that a column keeps in a table that is too wide.
    fn least_width(&self, column: usize) -> usize {
        let cells = if self.prose.contains(&column) {
            self.widest_cell(column, widest_word).max(NARROWEST)
        } else {
            self.widest_cell(column, widest_line)
        };
        cells.max(widest_word(&self.header[column]))
    }

    fn grid(&self, widths: &[usize]) -> String {
        let mut lines: Vec<String> = Vec::new();
        lines.extend(self.rule("-", widths));
        if self.header.iter().any(|header| !header.is_empty()) {
            lines.extend(self.wrap_row(&self.header, widths));
            lines.extend(self.rule("=", widths));
        }
        lines.extend(self.rows.iter().flat_map(|row| self.wrap_row(row, widths)));
        lines.extend(self.rule("-", widths));
        lines.join("\n")
    }

    /// Returns a line across a table that has lines.
    fn rule(&self, fill: &str, widths: &[usize]) -> Option<String> {
        let inner = widths.iter().sum::<usize>() + self.frame_width().saturating_sub(2);
        (self.frame == TableFrame::Box).then(|| format!("+{}+", fill.repeat(inner)))
    }

    /// Returns a row as lines.
    fn wrap_row(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let cells: Vec<Vec<String>> =
            row.iter().zip(widths).map(|(cell, width)| wrap(cell, *width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        (0..height).map(|n| self.row_line(n, &cells, widths)).collect()
    }

    /// Returns a line of a row whose cells are wrapped.
    fn row_line(&self, n: usize, cells: &[Vec<String>], widths: &[usize]) -> String {
        let cells = cells.iter().zip(widths).enumerate().map(|(i, (lines, width))| {
            let cell = lines.get(n).map_or("", String::as_str);
            let space = " ".repeat(width.saturating_sub(cell.width()));
            if self.right.contains(&i) { space + cell } else { cell.to_owned() + &space }
        });
        let cells: Vec<String> = cells.collect();
        match self.frame {
            TableFrame::Box => format!("| {} |", cells.join("   ")),
            TableFrame::None => cells.join("  ").trim_end().to_owned(),
        }
    }

    /// Renders a list: a title for each row, and a line for each further column that is not empty.
    fn list(&self, width: usize) -> String {
        let labels = self.header.iter().skip(self.title);
        let label = labels.map(|header| header.width()).max().unwrap_or(0);
        let (mut blocks, mut above): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for row in &self.rows {
            let mut row = row.clone();
            // Empty leading cells of the title repeat those of the row above.
            for (cell, above) in row.iter_mut().zip(&above).take(self.title.saturating_sub(1)) {
                if cell.is_empty() {
                    cell.clone_from(above);
                }
            }
            blocks.push(self.block(&row, label, width));
            above = row;
        }
        blocks.join("\n\n")
    }

    fn block(&self, row: &[String], label: usize, width: usize) -> String {
        let mut title: Vec<&str> = row.iter().take(self.title).map(String::as_str).collect();
        if self.title == 1 {
            title.insert(0, self.header.first().map_or("", String::as_str));
        }
        title.retain(|part| !part.is_empty());
        let mut lines = wrap(&title.join(" "), width);
        let cells = self.header.iter().zip(row).skip(self.title);
        for (header, cell) in cells.filter(|(_, cell)| !cell.is_empty()) {
            let cell = cell.lines().collect::<Vec<_>>().join(", ");
            let mut start = format!("  {header}{}  ", " ".repeat(label - header.width()));
            let mut indent = start.width();
            if 5 * indent > 3 * width {
                lines
                    .extend(wrap(header, width.saturating_sub(2)).iter().map(|l| format!("  {l}")));
                (start, indent) = ("    ".to_owned(), 4);
            }
            for part in wrap(&cell, width.saturating_sub(indent)) {
                lines.push(start + &part);
                start = " ".repeat(indent);
            }
        }
        lines.join("\n")
    }
}

/// Wraps the lines of a text at words. Continuation lines are indented by two more than their line. Words that are too
/// long, such as paths, stay whole.
pub fn paragraphs(text: &str, width: usize) -> String {
    let width = width.min(LONGEST_LINE);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        let rest = width.saturating_sub(indent + 2);
        for (n, part) in fill(words, rest + 2, rest, Long::Whole).iter().enumerate() {
            let indent = if n == 0 { indent } else { indent + 2 };
            lines.push(format!("{}{part}", " ".repeat(indent)).trim_end().to_owned());
        }
    }
    lines.join("\n")
}

/// Wraps a line into lines of at most `width` columns; words that are too long stay whole.
pub fn lines(line: &str, width: usize) -> Vec<String> {
    fill(line, width, width, Long::Whole)
}

fn widest_line(text: &str) -> usize {
    text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

fn widest_word(text: &str) -> usize {
    text.split_whitespace().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

/// Non-breaking space. It is printed as a common one.
pub const NO_BREAK: char = '\u{a0}';

/// Wraps a text at words; a word that is too long is broken.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let lines = text.lines().flat_map(|line| fill(line, width, width, Long::Broken));
    let lines: Vec<String> = lines.map(|line| line.replace(NO_BREAK, " ")).collect();
    if lines.is_empty() { vec![String::new()] } else { lines }
}

/// Treatment of words that are longer than a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    Whole,
    Broken,
}

/// Fills lines with the words of a text, with a width for the first line and one for the others.
fn fill(line: &str, first: usize, rest: usize, long: Long) -> Vec<String> {
    // The last line is not in `lines` yet; its width is counted, so that a long word takes no longer than short ones.
    let (mut lines, mut last, mut used) = (Vec::new(), String::new(), 0);
    for word in line.split(' ') {
        let (gap, width) = (usize::from(!last.is_empty()), word.width());
        if used + gap + width <= room(&lines, first, rest) {
            last.push_str(&" "[..gap]);
            last.push_str(word);
            used += gap + width;
            continue;
        }
        if !last.is_empty() {
            lines.push(std::mem::take(&mut last));
            used = 0;
        }
        for c in word.chars() {
            let width = UnicodeWidthChar::width(c).unwrap_or(0);
            let is_full = used + width > room(&lines, first, rest);
            if long == Long::Broken && !last.is_empty() && is_full {
                lines.push(std::mem::take(&mut last));
                used = 0;
            }
            last.push(c);
            used += width;
        }
    }
    lines.push(last);
    lines
}

/// Returns the width of the line after these.
fn room(lines: &[String], first: usize, rest: usize) -> usize {
    if lines.is_empty() { first.max(1) } else { rest.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores() -> Table {
        let mut table = Table::with_frame(["", "exact match (95 %)", "greedy", "tasks"]);
        table.row(["before", "0.104 (0.080 to 0.133)", "0.777", "512"]);
        table.row(["after", "0.982 (0.967 to 0.991)", "0.996", "512"]);
        table
    }

    #[test]
    fn a_table_that_fits_has_a_border() {
        let expected = "\
+--------------------------------------------------+
|          exact match (95 %)       greedy   tasks |
+==================================================+
| before   0.104 (0.080 to 0.133)   0.777    512   |
| after    0.982 (0.967 to 0.991)   0.996    512   |
+--------------------------------------------------+";
        assert_eq!(scores().draw(52), expected);
        assert_eq!(scores().draw(500), expected);
    }

    #[test]
    fn a_word_of_a_million_letters_is_wrapped_as_fast_as_short_ones() {
        // With the square of the length, this is hours.
        for (letter, lines) in [("a", 10_000), ("\u{301}", 1), ("字", 20_000)] {
            let word = letter.repeat(1_000_000);
            assert_eq!(paragraphs(&word, 100), word, "a word stays whole");
            assert_eq!(wrap(&word, 100).len(), lines, "{letter}");
        }
    }

    #[test]
    fn a_table_that_does_not_fit_is_a_list() {
        let expected = "\
before
  exact match (95 %)  0.104 (0.080 to
                      0.133)
  greedy              0.777
  tasks               512

after
  exact match (95 %)  0.982 (0.967 to
                      0.991)
  greedy              0.996
  tasks               512";
        assert_eq!(scores().draw(40), expected);
    }

    #[test]
    fn headers_and_prose_are_wrapped_first() {
        let mut table =
            Table::without_frame(["name", "what it is", "max tokens"]).prose(&[1]).right(&[2]);
        table.row(["a", "one two three four five six seven", "7"]);
        let expected = "\
name  what it is             max
                          tokens
a     one two three four       7
      five six seven";
        assert_eq!(table.draw(32), expected);
    }

    #[test]
    fn cells_of_several_lines_are_one_in_a_list() {
        let mut table = Table::with_frame(["worker", "agents", "a long header of numbers"]);
        table.row(["tiny", "a/b\na/c", "1"]);
        let list = table.draw(28);
        assert_eq!(list, "worker tiny\n  agents\n    a/b, a/c\n  a long header of numbers\n    1");
        assert!(table.draw(60).contains("|          a/c "));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_however_narrow() {
        let mut wide = Table::with_frame(["name", "path", "size", "what it is"]).prose(&[3]);
        wide.row(["größe", &"/a/very/long/path".repeat(9), "1", &"palavras ".repeat(30)]);
        for width in 8..200 {
            for text in [wide.draw(width), scores().draw(width)] {
                let widest = widest_line(&text);
                assert!(widest <= width, "{widest} at {width}\n{text}");
            }
        }
    }

    #[test]
    fn paragraphs_go_on_with_an_indent_and_keep_long_words() {
        let text = "a step: one two three\n\n  indented: four five six";
        let expected = "a step:\n  one two\n  three\n\n  indented:\n    four\n    five\n    six";
        assert_eq!(paragraphs(text, 9), expected);
        assert_eq!(paragraphs("/a/very/long/path", 4), "/a/very/long/path");
    }
}
