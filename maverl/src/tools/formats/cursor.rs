//! Place in a text that a reader of values has come to.

/// Result with a problem in words.
pub(super) type Read<T> = Result<T, String>;

/// A text, and the number of its bytes that were read.
pub(super) struct TextCursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> TextCursor<'a> {
    /// Returns the text that was not read.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Skips a text if it comes next.
    pub(super) fn accept(&mut self, next: &str) -> bool {
        let found = self.rest().starts_with(next);
        self.at += if found { next.len() } else { 0 };
        found
    }
}
