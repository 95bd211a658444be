//! Sources of a configuration as text, and excerpts of them around the places of a problem.

use std::collections::BTreeSet;
use std::ops::Range;

use miette::{LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use crate::output::visible;

/// Maximum number of characters of a line that is shown whole.
const WHOLE: usize = 200;
/// Number of characters before and after a mark in a longer line.
const AROUND: usize = 40;
/// Maximum number of characters of a mark in a longer line.
const MARKED: usize = 80;
/// Maximum number of lines of a mark.
const LINES: usize = 8;
/// Maximum distance of lines with marks between which all lines are shown.
const NEAR: usize = 3;
/// Sign of what is left out of a line.
pub(super) const GAP: &str = "…";

/// A source with its name, which its problems share.
#[derive(Debug)]
pub(crate) struct SourceText {
    /// Name in messages.
    pub(super) name: String,
    /// Content.
    pub(super) text: String,
    /// Offset of each line.
    starts: Vec<usize>,
}

impl SourceText {
    pub(crate) fn new(name: String, text: String) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        Self { name, text, starts }
    }

    /// Returns the index of the line with an offset.
    fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset) - 1
    }

    /// Returns the range of a line without its end.
    fn line(&self, index: usize) -> Range<usize> {
        let start = self.starts[index];
        let end = self.starts.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let line = self.text[start..end].trim_end_matches('\r');
        start..start + line.len()
    }

    /// Returns line and column of an offset, from 0, in characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line_of(offset);
        (line, self.text[self.starts[line]..offset].chars().count())
    }

    /// Moves an offset forward by so many characters, within its line.
    fn forward(&self, offset: usize, characters: usize, line: &Range<usize>) -> usize {
        let rest = &self.text[offset.min(line.end)..line.end];
        rest.char_indices().nth(characters).map_or(line.end, |(at, _)| offset + at)
    }

    /// Moves an offset back by so many characters, within its line.
    fn back(&self, offset: usize, characters: usize, line: &Range<usize>) -> usize {
        let before = &self.text[line.start..offset.clamp(line.start, line.end)];
        let found = before.char_indices().rev().take(characters).last();
        found.map_or(offset.clamp(line.start, line.end), |(at, _)| line.start + at)
    }

    /// Returns the part of a line that is shown with a mark.
    fn part_around(&self, mark: &Range<usize>, line: &Range<usize>) -> Range<usize> {
        let (start, end) = (mark.start.max(line.start), mark.end.min(line.end));
        let end = end.min(self.forward(start, MARKED, line));
        self.back(start, AROUND, line)..self.forward(end, AROUND, line)
    }
}

/// A mark of a source: its place, and a note.
pub(super) type ExcerptMark = (Range<usize>, Option<String>);

/// The lines of a source that have marks. Longer lines are cut around the marks, and hidden characters are visible.
#[derive(Debug)]
pub(crate) struct Excerpt {
    name: String,
    text: String,
    lines: Vec<Line>,
    /// The marks in the text of the excerpt.
    pub(crate) labels: Vec<LabeledSpan>,
    /// Line and column of each mark in the source.
    positions: Vec<(usize, usize)>,
}

/// A line of an excerpt.
#[derive(Debug)]
struct Line {
    /// Index in the source.
    index: usize,
    /// Place in the text of the excerpt.
    shown: Range<usize>,
    /// Parts of the source that are shown, with their places in the text of the excerpt.
    parts: Vec<(Range<usize>, usize)>,
}

impl Excerpt {
    /// Returns the lines of a source with the first lines of each mark.
    pub(crate) fn new(source: &SourceText, marks: &[ExcerptMark]) -> Self {
        let clipped: Vec<Range<usize>> = marks.iter().map(|(mark, _)| clip(source, mark)).collect();
        let marked =
            clipped.iter().flat_map(|mark| source.line_of(mark.start)..=source.line_of(mark.end));
        let indices = with_gaps(marked.collect());
        let (mut text, mut lines) = (String::new(), Vec::new());
        for index in indices {
            if !text.is_empty() {
                text.push('\n');
            }
            let start = text.len();
            let parts = write_line(source, &source.line(index), &clipped, &mut text);
            lines.push(Line { index, shown: start..text.len(), parts });
        }
        let mut excerpt = Self {
            name: visible(&source.name).into_owned(),
            text,
            lines,
            labels: Vec::new(),
            positions: clipped.iter().map(|mark| source.position(mark.start)).collect(),
        };
        for (mark, (_, note)) in clipped.iter().zip(marks) {
            let shown =
                excerpt.shown_offset(source, mark.start)..excerpt.shown_offset(source, mark.end);
            let note = note.as_ref().map(|note| visible(note).into_owned());
            excerpt.labels.push(LabeledSpan::new_with_span(note, SourceSpan::from(shown)));
        }
        excerpt
    }

    /// Returns the place in the excerpt of an offset of the source: of the nearest shown one before it, if it is cut out.
    fn shown_offset(&self, source: &SourceText, offset: usize) -> usize {
        let index = source.line_of(offset);
        let Some(line) = self.lines.iter().find(|line| line.index == index) else { return 0 };
        let Some((part, shown)) = line.parts.iter().rev().find(|(part, _)| part.start <= offset)
        else {
            return line.shown.start;
        };
        shown + visible(&source.text[part.start..offset.min(part.end)]).len()
    }

    /// Returns the number of lines of the source, from one on, that the excerpt has without a gap.
    fn connected_lines(&self, index: usize) -> usize {
        self.lines
            .iter()
            .skip_while(|line| line.index < index)
            .enumerate()
            .take_while(|(n, line)| line.index == index + n)
            .count()
    }

    /// Returns the lines of the excerpt from the one with `start` to the one with `end`.
    fn lines(&self, start: usize, end: usize) -> &[Line] {
        let [first, last] =
            [start, end].map(|offset| self.lines.partition_point(|line| line.shown.end < offset));
        &self.lines[first..=last.min(self.lines.len() - 1)]
    }
}

impl SourceCode for Excerpt {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let (start, end) = (span.offset(), span.offset() + span.len());
        let lines = self.lines(start, end);
        let (first, last) = (&lines[0], &lines[lines.len() - 1]);
        // A request without context asks for the position of a mark.
        let mark = self.labels.iter().position(|label| label.inner() == span);
        let (place, (line, column)) = match mark.filter(|_| before == 0 && after == 0) {
            Some(mark) => (start..end, self.positions[mark]),
            None => (first.shown.start..last.shown.end, (first.index, 0)),
        };
        let data = self.text[place.clone()].as_bytes();
        let name = self.name.clone();
        // Marks whose lines are connected are shown together.
        let count = self.connected_lines(first.index);
        Ok(Box::new(MietteSpanContents::new_named(name, data, place.into(), line, column, count)))
    }
}

/// Adds the lines between those that are near to each other.
fn with_gaps(mut lines: BTreeSet<usize>) -> BTreeSet<usize> {
    let marked: Vec<usize> = lines.iter().copied().collect();
    let near = marked.windows(2).filter(|pair| pair[1] - pair[0] <= NEAR);
    lines.extend(near.flat_map(|pair| pair[0]..pair[1]));
    lines
}

/// Returns a mark without the lines beyond its first ones. Its end is within a line.
fn clip(source: &SourceText, mark: &Range<usize>) -> Range<usize> {
    let text = &source.text;
    let start = text.floor_char_boundary(mark.start);
    let end = text.floor_char_boundary(mark.end).max(start);
    let first = source.line_of(start);
    // A mark up to the end of a line has no place in the next one.
    let last = if text[start..end].ends_with('\n') { end - 1 } else { end };
    let line = source.line(source.line_of(last).min(first + LINES - 1));
    start.min(source.line(first).end)..end.clamp(line.start, line.end)
}

/// Writes a line of a source: whole, or its parts around the marks. Returns the parts with their places in the text.
fn write_line(
    source: &SourceText,
    line: &Range<usize>,
    marks: &[Range<usize>],
    text: &mut String,
) -> Vec<(Range<usize>, usize)> {
    let mut written = Vec::new();
    let mut end = line.start;
    for part in parts(source, line, marks) {
        if part.start > end {
            text.push_str(GAP);
        }
        written.push((part.clone(), text.len()));
        text.push_str(&visible(&source.text[part.clone()]));
        end = part.end;
    }
    if end < line.end {
        text.push_str(GAP);
    }
    written
}

/// Returns the parts of a line that are shown, in order.
fn parts(source: &SourceText, line: &Range<usize>, marks: &[Range<usize>]) -> Vec<Range<usize>> {
    if source.forward(line.start, WHOLE, line) == line.end {
        return vec![line.clone()];
    }
    let touching = marks.iter().filter(|mark| mark.start <= line.end && mark.end >= line.start);
    let mut parts: Vec<Range<usize>> =
        touching.map(|mark| source.part_around(mark, line)).collect();
    parts.sort_by_key(|part| part.start);
    parts.dedup_by(|next, part| {
        let joined = next.start <= part.end;
        if joined {
            part.end = part.end.max(next.end);
        }
        joined
    });
    parts
}
