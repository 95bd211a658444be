//! Streaming decoding of a reply.

use crate::text::Tokenizer;

/// Streaming decoder: takes ids and returns text, never a part of a character.
///
/// The concatenation of all results of [`push`](Self::push) and [`finish`](Self::finish) equals [`Tokenizer::decode`]
/// of all ids ([`Tokenizer::decode_keeping`] with kept tokens). Text that the next id may still change is held back: the first bytes of a character and, with
/// byte-fallback tokenizers, a run of bytes, which is text only as a whole. Bytes that form no character become U+FFFD
/// once that is certain.
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    keep_special: bool,
    /// Special tokens that are kept, if not all are.
    kept: &'a [u32],
    held: HeldText,
}

/// Input that was not returned as text yet.
enum HeldText {
    /// Bytes of an incomplete character, for tokens that are bytes.
    Bytes(Vec<u8>),
    /// Tokens whose text depends on their neighbors.
    Ids {
        /// Ids of the text returned last, as context, and from `fresh` on the pending ids.
        ids: Vec<u32>,
        fresh: usize,
        /// Text of the context.
        context: String,
    },
}

impl<'a> Detokenizer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, keep_special: bool) -> Self {
        let held = if tokenizer.byte_level {
            HeldText::Bytes(Vec::new())
        } else {
            HeldText::Ids { ids: Vec::new(), fresh: 0, context: String::new() }
        };
        Self { tokenizer, keep_special, kept: &[], held }
    }

    /// Keeps these special tokens, too.
    #[must_use]
    pub fn keeping(self, kept: &'a [u32]) -> Self {
        Self { kept, ..self }
    }

    /// Takes the next id, and returns the text that is now certain.
    pub fn push(&mut self, id: u32) -> String {
        let keep = self.keep_special || self.kept.contains(&id);
        let Some(token) = self.tokenizer.token(id, keep) else { return String::new() };
        match &mut self.held {
            HeldText::Bytes(bytes) => {
                match token.chars().map(byte).collect::<Option<Vec<u8>>>() {
                    Some(of_token) => bytes.extend(of_token),
                    None => bytes.extend_from_slice(token.as_bytes()),
                }
                characters(bytes)
            }
            HeldText::Ids { ids, fresh, context } => {
                ids.push(id);
                if is_byte(&token) {
                    return String::new();
                }
                let new = text_beyond(context, &self.tokenizer.decode_raw(ids));
                if new.is_empty() || new.ends_with(char::REPLACEMENT_CHARACTER) {
                    return String::new();
                }
                ids.drain(..*fresh);
                *fresh = ids.len();
                *context = self.tokenizer.decode_raw(ids);
                new
            }
        }
    }

    /// Returns the remaining text when no id follows.
    pub fn finish(self) -> String {
        match self.held {
            HeldText::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            HeldText::Ids { ids, context, .. } => {
                text_beyond(&context, &self.tokenizer.decode_raw(&ids))
            }
        }
    }
}

impl Tokenizer {
    /// Returns true for a special token, which is not part of a reply's text.
    pub fn is_special(&self, id: u32) -> bool {
        self.has(id) && self.token(id, false).is_none()
    }

    /// Returns the bytes of a token, special tokens included; none for an id that is no token.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Some(token) = self.token(id, true) else { return Vec::new() };
        if self.byte_level {
            let bytes = token.chars().map(byte).collect::<Option<Vec<u8>>>();
            return bytes.unwrap_or_else(|| token.into_bytes());
        }
        match token.strip_prefix("<0x").filter(|_| is_byte(&token)) {
            Some(digits) => u8::from_str_radix(&digits[..2], 16).into_iter().collect(),
            // The mark of a space in SentencePiece.
            None => token.replace('\u{2581}', " ").into_bytes(),
        }
    }
}

/// Returns the part of `text` after the context.
fn text_beyond(context: &str, text: &str) -> String {
    text.strip_prefix(context).map(str::to_owned).unwrap_or_default()
}

/// Removes whole characters from bytes, and keeps a possible beginning of one.
fn characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let invalid = chunk.invalid();
        let unfinished = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
        if unfinished && done + invalid.len() == bytes.len() {
            break;
        }
        if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
    }
    bytes.drain(..done);
    text
}

/// Returns the byte of a character in a byte-level token: the character itself if it is printable, else one from U+0100
/// on, in order (`bytes_to_unicode` of GPT-2).
fn byte(char: char) -> Option<u8> {
    let byte = match u32::from(char) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => code,
        code @ 0x100..=0x120 => code - 0x100,
        code @ 0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// Returns true if a token is a byte of a byte-fallback tokenizer, such as `<0x0A>`.
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}
