//! Rows that are parsed on all threads.

use std::vec;

use rayon::prelude::*;

use super::error::DataError;

/// Smallest and largest number of rows that are parsed together. A reader of the first rows does not parse many others.
const ROWS: [usize; 2] = [16, 4096];
/// Bytes of rows after which no other row is added to those that are parsed together.
const BYTES: usize = 4 << 20;

/// A row: its number and its text.
pub(super) type NumberedText = Result<(usize, Vec<u8>), DataError>;

/// Rows in the order of their texts, of which some are parsed together.
pub(super) struct ParsedRows<I, F, T> {
    texts: I,
    parse: F,
    /// Number of rows that are parsed next.
    count: usize,
    parsed: vec::IntoIter<Result<T, DataError>>,
}

impl<I, F, T> ParsedRows<I, F, T>
where
    I: Iterator<Item = NumberedText>,
    F: Fn(usize, &[u8]) -> Result<T, DataError> + Sync,
    T: Send,
{
    /// Creates the rows that `parse` makes of the number and the text of each.
    pub(super) fn new(texts: I, parse: F) -> Self {
        Self { texts, parse, count: ROWS[0], parsed: Vec::new().into_iter() }
    }

    fn parse_more(&mut self) {
        let (mut texts, mut bytes) = (Vec::with_capacity(self.count), 0);
        while texts.len() < self.count && bytes < BYTES {
            let Some(text) = self.texts.next() else { break };
            bytes += text.as_ref().map_or(0, |(_, text)| text.len());
            texts.push(text);
        }
        let parse = &self.parse;
        let parsed: Vec<_> = texts
            .into_par_iter()
            .map(|text| text.and_then(|(number, text)| parse(number, &text)))
            .collect();
        self.parsed = parsed.into_iter();
        self.count = (2 * self.count).min(ROWS[1]);
    }
}

impl<I, F, T> Iterator for ParsedRows<I, F, T>
where
    I: Iterator<Item = NumberedText>,
    F: Fn(usize, &[u8]) -> Result<T, DataError> + Sync,
    T: Send,
{
    type Item = Result<T, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.parsed.len() == 0 {
            self.parse_more();
        }
        self.parsed.next()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rows_keep_their_order_and_their_errors_come_in_their_place() {
        let damaged =
            |line: usize| DataError::Damaged { path: "x".into(), line, message: String::new() };
        let texts = (1..=10_000).map(|number| match number {
            7_000 => Err(damaged(number)),
            _ => Ok((number, number.to_string().into_bytes())),
        });
        let parse = |number: usize, text: &[u8]| match number {
            5_000 => Err(damaged(number)),
            _ => Ok(String::from_utf8_lossy(text).into_owned()),
        };
        for (row, number) in ParsedRows::new(texts, parse).zip(1..) {
            match row {
                Ok(text) => assert_eq!(text, number.to_string()),
                Err(error) => {
                    assert!([5_000, 7_000].contains(&number));
                    assert!(error.to_string().starts_with(&format!("x:{number}:")), "{error}");
                }
            }
        }
    }

    #[test]
    fn few_rows_are_parsed_for_a_reader_of_the_first() {
        let read = std::cell::Cell::new(0);
        let texts = (1..).map(|number| {
            read.set(number);
            Ok((number, b"{}".to_vec()))
        });
        let mut rows = ParsedRows::new(texts, |number, _: &[u8]| Ok(number));
        assert_eq!(rows.next().unwrap().unwrap(), 1);
        assert_eq!(read.get(), ROWS[0]);
    }
}
