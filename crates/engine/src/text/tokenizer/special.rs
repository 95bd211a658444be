//! Special tokens in messages are encoded as text.
//!
//! A chat template writes special tokens such as `<|im_end|>`. A message may contain the same characters: a document
//! about chat templates, or one made to end a turn illegitimately. The rendered text does not distinguish the two.
//! Therefore a conversation whose strings contain a special token is rendered twice, the second time with a mark in
//! place of each occurrence. A mark is a character that occurs nowhere else. The marks show which special tokens come
//! from messages. Nothing else changes: the rendered text is that of the first rendering.
//!
//! Such a text is encoded by a tokenizer for which these tokens are ordinary text, in one pass over the whole, so that
//! nothing else is split differently. A text without any is encoded as usual.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::text::TokenizerError;

/// A rendered conversation: its text, and the ranges in it where messages contain special tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    text: String,
    spelled: Vec<Range<usize>>,
}

impl Rendered {
    /// Returns the text, as `transformers` renders it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the byte ranges of the text that look like special tokens but come from a message.
    pub fn spelled_ranges(&self) -> &[Range<usize>] {
        &self.spelled
    }

    /// Returns the text with another one after it.
    #[must_use]
    pub fn followed_by(mut self, other: &Self) -> Self {
        let start = self.text.len();
        self.text.push_str(&other.text);
        let spelled = other.spelled.iter();
        self.spelled.extend(spelled.map(|range| range.start + start..range.end + start));
        self
    }

    /// Returns the part before a byte, which must be the first of a character.
    #[must_use]
    pub fn before(&self, at: usize) -> Self {
        let spelled = self.spelled.iter().filter(|range| range.start < at);
        Self {
            text: self.text[..at].to_owned(),
            spelled: spelled.map(|range| range.start..range.end.min(at)).collect(),
        }
    }

    /// Returns the part from a byte on, which must be the first of a character.
    #[must_use]
    pub fn after(&self, at: usize) -> Self {
        let spelled = self.spelled.iter().filter(|range| range.end > at);
        Self {
            text: self.text[at..].to_owned(),
            spelled: spelled.map(|range| range.start.saturating_sub(at)..range.end - at).collect(),
        }
    }
}

/// Converts a text in which every special token is special.
impl From<String> for Rendered {
    fn from(text: String) -> Self {
        Self { text, spelled: Vec::new() }
    }
}

/// Special tokens of a tokenizer.
pub(super) struct Specials {
    tokens: Vec<(u32, AddedToken)>,
    search: AhoCorasick,
    /// Tokenizers for texts with marks, at most [`TOKENIZERS`].
    plain: Mutex<Vec<Arc<Plain>>>,
}

impl Specials {
    pub(super) fn new(tokenizer: &tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let added: BTreeMap<u32, AddedToken> =
            tokenizer.get_added_tokens_decoder().into_iter().collect();
        let tokens: Vec<_> = added.into_iter().filter(|(_, token)| token.special).collect();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, token)| &token.content))
            .map_err(|e| TokenizerError::Files(format!("the special tokens: {e}")))?;
        Ok(Self { tokens, search, plain: Mutex::default() })
    }

    /// Renders variables, and finds the special tokens in their strings.
    ///
    /// # Errors
    ///
    /// The errors of `render`; and an error if the template does not copy a special token of a message unchanged,
    /// because then the template's own special tokens cannot be distinguished from those of messages.
    pub(super) fn render(
        &self,
        variables: &Map<String, Value>,
        render: impl Fn(&Map<String, Value>) -> Result<String, TokenizerError>,
    ) -> Result<Rendered, TokenizerError> {
        let text = render(variables)?;
        if !variables.iter().any(|(_, value)| self.occurs(value)) {
            return Ok(text.into());
        }
        let marks = self.marks(&text)?;
        let marked: Map<String, Value> = variables
            .iter()
            .map(|(key, value)| (key.clone(), self.mark_value(value, marks)))
            .collect();
        let rendered = self.unmark(&render(&marked)?, marks);
        if rendered.text == text {
            return Ok(rendered);
        }
        Err(TokenizerError::Template(
            "a message contains a special token, and the chat template changes with it, so that what is the template's \
             and what is the message's cannot be told apart; take the token out of the message"
                .to_owned(),
        ))
    }

    /// Returns a text in which every special token counts as text.
    pub(super) fn all_spelled(&self, text: &str) -> Rendered {
        let spelled = self.search.find_iter(text).map(|found| found.range()).collect();
        Rendered { text: text.to_owned(), spelled }
    }

    /// Encodes a text in which some special tokens count as text.
    pub(super) fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        rendered: &Rendered,
    ) -> Result<Vec<u32>, TokenizerError> {
        let marks = self.marks(&rendered.text)?;
        let plain = self.plain_tokenizer(tokenizer, marks).map_err(TokenizerError::of_encoding)?;
        let text = self.mark(&rendered.text, marks, |found| {
            let mut spelled = rendered.spelled.iter();
            !spelled.any(|range| range.start < found.end && found.start < range.end)
        });
        let encoding = plain.tokenizer.encode_fast(text, false);
        let encoding = encoding.map_err(TokenizerError::of_encoding)?;
        Ok(encoding.get_ids().iter().map(|id| *plain.ids.get(id).unwrap_or(id)).collect())
    }

    /// Returns a tokenizer for which special tokens are text and marks are special tokens. Building it takes as long as
    /// loading one, so the last ones stay in memory.
    fn plain_tokenizer(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        marks: Marks,
    ) -> tokenizers::Result<Arc<Plain>> {
        let mut kept = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plain) = kept.iter().find(|plain| plain.marks == marks) {
            return Ok(Arc::clone(plain));
        }
        let mut tokenizer = tokenizer.clone();
        tokenizer.set_encode_special_tokens(true);
        let stand_ins = self.tokens.iter().enumerate().map(|(i, (_, token))| AddedToken {
            content: marks.char(i).into(),
            special: false,
            ..token.clone()
        });
        tokenizer.add_tokens(stand_ins)?;
        let ids = self.tokens.iter().enumerate().filter_map(|(i, (id, _))| {
            Some((tokenizer.token_to_id(marks.char(i).encode_utf8(&mut [0; 4]))?, *id))
        });
        let ids = ids.collect();
        let plain = Arc::new(Plain { marks, tokenizer, ids });
        if kept.len() == TOKENIZERS {
            kept.remove(0);
        }
        kept.push(Arc::clone(&plain));
        Ok(plain)
    }

    fn occurs(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.search.is_match(text),
            Value::Array(items) => items.iter().any(|item| self.occurs(item)),
            Value::Object(entries) => {
                entries.iter().any(|(key, value)| self.search.is_match(key) || self.occurs(value))
            }
            _ => false,
        }
    }

    fn mark_value(&self, value: &Value, marks: Marks) -> Value {
        match value {
            Value::String(text) => Value::String(self.mark(text, marks, |_| true)),
            Value::Array(items) => items.iter().map(|item| self.mark_value(item, marks)).collect(),
            Value::Object(entries) => {
                let entries = entries.iter().map(|(key, value)| {
                    (self.mark(key, marks, |_| true), self.mark_value(value, marks))
                });
                entries.collect()
            }
            other => other.clone(),
        }
    }

    /// Replaces every special token that `which` accepts by a mark.
    fn mark(&self, text: &str, marks: Marks, which: impl Fn(&Range<usize>) -> bool) -> String {
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        for found in self.search.find_iter(text).filter(|found| which(&found.range())) {
            out.push_str(&text[done..found.start()]);
            out.push(marks.char(found.pattern().as_usize()));
            done = found.end();
        }
        out + &text[done..]
    }

    /// Replaces marks by special tokens, and returns their ranges.
    fn unmark(&self, marked: &str, marks: Marks) -> Rendered {
        let mut rendered = Rendered::default();
        for char in marked.chars() {
            let start = rendered.text.len();
            match marks.index(char).and_then(|i| self.tokens.get(i)) {
                None => rendered.text.push(char),
                Some((_, token)) => {
                    rendered.text.push_str(&token.content);
                    rendered.spelled.push(start..rendered.text.len());
                }
            }
        }
        rendered
    }

    /// Chooses one mark per special token; none of them occurs in the text.
    fn marks(&self, text: &str) -> Result<Marks, TokenizerError> {
        let taken: BTreeSet<u32> =
            text.chars().map(u32::from).filter(|code| PRIVATE_USE.contains(code)).collect();
        let length = u32::try_from(self.tokens.len().max(1)).unwrap_or(u32::MAX);
        let starts = (PRIVATE_USE.start..PRIVATE_USE.end.saturating_sub(length))
            .step_by(usize::try_from(length).unwrap_or(usize::MAX));
        let mut free = starts.filter(|&start| taken.range(start..start + length).next().is_none());
        free.next().map(Marks).ok_or_else(|| {
            TokenizerError::Text(
                "a text uses all private-use characters, of which some must be free".to_owned(),
            )
        })
    }
}

/// A tokenizer for which special tokens are text, and whose marks are the special tokens.
struct Plain {
    marks: Marks,
    tokenizer: tokenizers::Tokenizer,
    /// Special token of each mark's id.
    ids: BTreeMap<u32, u32>,
}

/// Number of tokenizers for texts with marks that stay in memory. Nearly all texts have the same marks.
const TOKENIZERS: usize = 2;

/// Unicode's supplementary private-use areas.
const PRIVATE_USE: Range<u32> = 0xF_0000..0x11_0000;

/// Consecutive private-use characters from this one on: one per special token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks(u32);

impl Marks {
    fn char(self, index: usize) -> char {
        let code = u32::try_from(index).ok().and_then(|index| self.0.checked_add(index));
        let char = code.filter(|code| PRIVATE_USE.contains(code)).and_then(char::from_u32);
        char.expect("marks lie in a private-use area, where every code is a character")
    }

    fn index(self, char: char) -> Option<usize> {
        u32::from(char).checked_sub(self.0).and_then(|index| usize::try_from(index).ok())
    }
}
