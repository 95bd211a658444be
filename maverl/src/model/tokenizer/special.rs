//! Special tokens that a message spells are text.
//!
//! A chat template writes special tokens, as `<|im_end|>`, and a message may spell the same characters: a document about
//! chat templates, or one made to end a turn that is not its to end. In the rendered text the two look alike. So a
//! conversation in whose strings a special token occurs is rendered twice, the second time with a mark for each
//! occurrence: a character that occurs nowhere else. The marks tell where the messages spelled special tokens, and
//! nothing else changes: the rendered text is that of the first time.
//!
//! The ids of such a text are those of a tokenizer to which the spelled tokens are ordinary text, in one pass over the
//! whole, so that nothing else is cut differently. A text without any is encoded as it always was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::model::tokenizer::TokenizerError;

/// A rendered conversation: its text, and where in it messages spell special tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    text: String,
    spelled: Vec<Range<usize>>,
}

impl Rendered {
    /// The text, as `transformers` renders it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Byte ranges of the text that are special tokens in their spelling only: a message contains them.
    pub fn spelled(&self) -> &[Range<usize>] {
        &self.spelled
    }

    /// What comes before a byte, which must be the first of a character.
    #[must_use]
    pub fn before(&self, at: usize) -> Self {
        let spelled = self.spelled.iter().filter(|range| range.start < at);
        Self {
            text: self.text[..at].to_owned(),
            spelled: spelled.map(|range| range.start..range.end.min(at)).collect(),
        }
    }

    /// The rest of it from a byte on, which must be the first of a character.
    #[must_use]
    pub fn after(&self, at: usize) -> Self {
        let spelled = self.spelled.iter().filter(|range| range.end > at);
        Self {
            text: self.text[at..].to_owned(),
            spelled: spelled.map(|range| range.start.saturating_sub(at)..range.end - at).collect(),
        }
    }
}

/// A text in which every special token is meant.
impl From<String> for Rendered {
    fn from(text: String) -> Self {
        Self { text, spelled: Vec::new() }
    }
}

/// The special tokens of a tokenizer.
pub(super) struct Specials {
    tokens: Vec<(u32, AddedToken)>,
    search: AhoCorasick,
    plain: Mutex<Option<Arc<Plain>>>,
}

impl Specials {
    pub(super) fn new(tokenizer: &tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let added: BTreeMap<u32, AddedToken> =
            tokenizer.get_added_tokens_decoder().into_iter().collect();
        let tokens: Vec<_> = added.into_iter().filter(|(_, token)| token.special).collect();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, token)| &token.content))
            .map_err(|e| TokenizerError(format!("the special tokens: {e}")))?;
        Ok(Self { tokens, search, plain: Mutex::new(None) })
    }

    /// Renders variables, and finds what their strings spell.
    ///
    /// # Errors
    ///
    /// Those of `render`; and if the template does something else with a special token than to show it, so that what it
    /// wrote itself cannot be told from what a message spells.
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
        Err(TokenizerError(
            "a message contains a special token, and the chat template changes with it, so that what is the template's \
             and what is the message's cannot be told apart; take the token out of the message"
                .to_owned(),
        ))
    }

    /// A text with every special token in it taken for text.
    pub(super) fn all_spelled(&self, text: &str) -> Rendered {
        let spelled = self.search.find_iter(text).map(|found| found.range()).collect();
        Rendered { text: text.to_owned(), spelled }
    }

    /// Ids of a text some of whose special tokens are only spelled.
    pub(super) fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        rendered: &Rendered,
    ) -> Result<Vec<u32>, TokenizerError> {
        let failed = |e: tokenizers::Error| TokenizerError(format!("cannot encode: {e}"));
        let marks = self.marks(&rendered.text)?;
        let plain = self.plain(tokenizer, marks).map_err(failed)?;
        let meant = |found: &Range<usize>| {
            let spelled = &rendered.spelled;
            !spelled.iter().any(|range| range.start < found.end && found.start < range.end)
        };
        let text = self.mark(&rendered.text, marks, meant);
        let encoding = plain.tokenizer.encode_fast(text, false).map_err(failed)?;
        let id = |id: &u32| plain.ids.get(id).copied().unwrap_or(*id);
        Ok(encoding.get_ids().iter().map(id).collect())
    }

    /// A tokenizer to which special tokens are text and marks are special tokens. Building it takes as long as loading
    /// one, so the last is kept.
    fn plain(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        marks: Marks,
    ) -> tokenizers::Result<Arc<Plain>> {
        let mut kept = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plain) = kept.as_ref().filter(|plain| plain.marks == marks) {
            return Ok(Arc::clone(plain));
        }
        let mut tokenizer = tokenizer.clone();
        tokenizer.set_encode_special_tokens(true);
        let stand_in = |(i, (_, token)): (usize, &(u32, AddedToken))| AddedToken {
            content: marks.char(i).into(),
            special: false,
            ..token.clone()
        };
        tokenizer.add_tokens(self.tokens.iter().enumerate().map(stand_in))?;
        let id = |(i, (id, _)): (usize, &(u32, AddedToken))| {
            Some((tokenizer.token_to_id(marks.char(i).encode_utf8(&mut [0; 4]))?, *id))
        };
        let ids = self.tokens.iter().enumerate().filter_map(id).collect();
        let plain = Arc::new(Plain { marks, tokenizer, ids });
        *kept = Some(Arc::clone(&plain));
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
        let mark = |text: &str| self.mark(text, marks, |_| true);
        match value {
            Value::String(text) => Value::String(mark(text)),
            Value::Array(items) => items.iter().map(|item| self.mark_value(item, marks)).collect(),
            Value::Object(entries) => {
                let entries = entries.iter();
                entries.map(|(key, value)| (mark(key), self.mark_value(value, marks))).collect()
            }
            other => other.clone(),
        }
    }

    /// The text with a mark for every special token that `which` accepts.
    fn mark(&self, text: &str, marks: Marks, which: impl Fn(&Range<usize>) -> bool) -> String {
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        for found in self.search.find_iter(text).filter(|found| which(&found.range())) {
            out.push_str(&text[done..found.start()]);
            out.push(marks.char(found.pattern().as_usize()));
            done = found.end();
        }
        out + &text[done..]
    }

    /// The text with special tokens for marks, and where those are.
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

    /// One mark per special token, none of which occurs in the text.
    fn marks(&self, text: &str) -> Result<Marks, TokenizerError> {
        let taken: BTreeSet<u32> =
            text.chars().map(u32::from).filter(|code| PRIVATE_USE.contains(code)).collect();
        let length = u32::try_from(self.tokens.len().max(1)).unwrap_or(u32::MAX);
        let starts = (PRIVATE_USE.start..PRIVATE_USE.end.saturating_sub(length))
            .step_by(usize::try_from(length).unwrap_or(usize::MAX));
        let mut free = starts.filter(|&start| taken.range(start..start + length).next().is_none());
        free.next().map(Marks).ok_or_else(|| {
            TokenizerError(
                "a text uses all private-use characters, of which some must be free".to_owned(),
            )
        })
    }
}

/// A tokenizer to which special tokens are text, and whose marks are the special tokens.
struct Plain {
    marks: Marks,
    tokenizer: tokenizers::Tokenizer,
    /// The special token each mark's id stands for.
    ids: BTreeMap<u32, u32>,
}

/// Unicode's supplementary private-use areas.
const PRIVATE_USE: Range<u32> = 0xF_0000..0x11_0000;

/// Private-use characters in a row, from this one on: one per special token.
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
