//! Rows of a text: its lines, or the elements of a JSON list. One row is in memory at a time, and its size is limited.

use std::io::{self, BufRead, Read};

/// Reason that reading stops.
#[derive(Debug)]
pub(super) enum RowError {
    Io(io::Error),
    /// The row of this number exceeds the size limit.
    TooLong(usize),
    /// The list is malformed at the row of this number.
    NoList(usize, String),
}

/// Non-blank lines with their numbers in the text, from 1.
pub(super) struct Lines<R> {
    text: R,
    number: usize,
    longest: u64,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(text: R, longest: u64) -> Self {
        Self { text, number: 0, longest, ended: false }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, RowError> {
        let mut line = Vec::new();
        let longest = self.longest.saturating_add(1);
        let read = self.text.by_ref().take(longest).read_until(b'\n', &mut line);
        read.map_err(RowError::Io)?;
        self.number += 1;
        match line.len() as u64 {
            0 => Ok(None),
            // The line end does not count.
            length if length > self.longest && line.last() != Some(&b'\n') => {
                Err(RowError::TooLong(self.number))
            }
            _ => Ok(Some(line)),
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<(usize, Vec<u8>), RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.line() {
                Ok(Some(line)) if line.trim_ascii().is_empty() => {}
                Ok(Some(line)) => return Some(Ok((self.number, line))),
                end => {
                    self.ended = true;
                    return end.err().map(Err);
                }
            }
        }
        None
    }
}

/// Elements of a list as texts, with their numbers, from 1.
pub(super) struct Elements<R> {
    text: R,
    number: usize,
    longest: u64,
    state: ScanState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Before the bracket that opens the list.
    Before,
    Inside,
    Ended,
}

impl<R: BufRead> Elements<R> {
    /// Creates a reader of a text that begins with `[`.
    pub(super) fn new(text: R, longest: u64) -> Self {
        Self { text, number: 0, longest, state: ScanState::Before }
    }

    /// Reads up to the comma or bracket that ends an element, and returns both.
    fn element(&mut self) -> Result<(Vec<u8>, u8), RowError> {
        let (mut element, mut scan) = (Vec::new(), RowScan::default());
        loop {
            let buffer = self.text.fill_buf().map_err(RowError::Io)?;
            if buffer.is_empty() {
                let message = "no list of JSON objects: it ends before its `]`".to_owned();
                return Err(RowError::NoList(self.number, message));
            }
            let end = buffer.iter().position(|byte| scan.ends(*byte));
            let taken = end.unwrap_or(buffer.len());
            // Blanks around an element are not part of it.
            let part = if element.is_empty() {
                buffer[..taken].trim_ascii_start()
            } else {
                &buffer[..taken]
            };
            if (element.len() + part.len()) as u64 > self.longest {
                return Err(RowError::TooLong(self.number));
            }
            element.extend_from_slice(part);
            let ending = end.map(|end| buffer[end]);
            self.text.consume(taken + usize::from(ending.is_some()));
            if let Some(ending) = ending {
                return Ok((element, ending));
            }
        }
    }

    /// Checks that nothing follows the list.
    fn rest(&mut self) -> Result<(), RowError> {
        loop {
            let buffer = self.text.fill_buf().map_err(RowError::Io)?;
            if buffer.is_empty() {
                return Ok(());
            }
            if !buffer.iter().all(u8::is_ascii_whitespace) {
                let message = "no list of JSON objects: something comes after its `]`".to_owned();
                return Err(RowError::NoList(self.number, message));
            }
            let blank = buffer.len();
            self.text.consume(blank);
        }
    }

    fn advance(&mut self) -> Result<Option<(usize, Vec<u8>)>, RowError> {
        if self.state == ScanState::Before {
            self.text.fill_buf().map_err(RowError::Io)?;
            self.text.consume(1);
            self.state = ScanState::Inside;
        }
        self.number += 1;
        let (element, ending) = self.element()?;
        if ending == b']' {
            self.state = ScanState::Ended;
            self.rest()?;
            // An empty list has no element before its end.
            if self.number == 1 && element.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some((self.number, element)))
    }
}

impl<R: BufRead> Iterator for Elements<R> {
    type Item = Result<(usize, Vec<u8>), RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == ScanState::Ended {
            return None;
        }
        let element = self.advance();
        if element.is_err() {
            self.state = ScanState::Ended;
        }
        element.transpose()
    }
}

/// State of a JSON scan at a byte.
#[derive(Default)]
struct RowScan {
    depth: usize,
    text: bool,
    escaped: bool,
}

impl RowScan {
    /// Returns true if this byte ends the element: a comma or a bracket of the surrounding list.
    fn ends(&mut self, byte: u8) -> bool {
        if self.text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.text = true,
            b'[' | b'{' => self.depth += 1,
            b',' | b']' if self.depth == 0 => return true,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn elements(text: &str, longest: u64) -> Vec<Result<(usize, String), String>> {
        // A small buffer, so that every position is the end of one.
        let text = io::BufReader::with_capacity(3, text.as_bytes());
        Elements::new(text, longest).map(read).collect()
    }

    fn read(row: Result<(usize, Vec<u8>), RowError>) -> Result<(usize, String), String> {
        match row {
            Ok((number, text)) => Ok((number, String::from_utf8(text).unwrap())),
            Err(RowError::Io(error)) => Err(error.to_string()),
            Err(RowError::TooLong(number)) => Err(format!("{number} is too long")),
            Err(RowError::NoList(number, what)) => Err(format!("{number}: {what}")),
        }
    }

    #[test]
    fn a_list_is_cut_into_its_elements() {
        let text = r#"[ {"a": [1, {"b": "],\"[}"}]} ,2,
            "x,\\" , [[],{}] ]  "#;
        let found: Vec<(usize, String)> =
            elements(text, 99).into_iter().map(Result::unwrap).collect();
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.trim()).collect();
        assert_eq!(texts, [r#"{"a": [1, {"b": "],\"[}"}]}"#, "2", r#""x,\\""#, "[[],{}]"]);
        assert_eq!(found.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(elements("[ ]", 9), []);
    }

    #[test]
    fn a_list_that_is_none_is_told_with_its_row() {
        let last = |text: &str| elements(text, 9).pop().unwrap().unwrap_err();
        assert_eq!(last("[1, 2"), "2: no list of JSON objects: it ends before its `]`");
        assert_eq!(last("[1] 2"), "1: no list of JSON objects: something comes after its `]`");
        assert_eq!(last("[1, 234567890123, 3]"), "2 is too long");
        // An invalid element is left to the parser.
        assert_eq!(elements("[1,,]", 9).len(), 3);
    }

    #[test]
    fn lines_have_the_numbers_of_the_text_and_a_longest() {
        let lines = |text: &str| -> Vec<Result<(usize, String), String>> {
            Lines::new(text.as_bytes(), 4).map(read).collect()
        };
        let line = |number, text: &str| Ok((number, text.to_owned()));
        assert_eq!(lines("ab\n\n \r\ncdef\ng"), [line(1, "ab\n"), line(4, "cdef\n"), line(5, "g")]);
        assert_eq!(lines("ab\ncdefg\nh"), [line(1, "ab\n"), Err("2 is too long".to_owned())]);
    }
}
