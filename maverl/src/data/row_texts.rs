//! Texts of rows of supervised training, and their lengths in tokens.

use rayon::prelude::*;

use super::demonstration::Demonstration;
use super::labeled::LabeledReply;
use super::preference::PreferenceRow;
use crate::config::{HeadKind, TrainOn};
use crate::text::{ChatInput, Tokenizer, TokenizerError};

/// Largest number of bytes that a tokenizer makes of one: U+FDFA has 3, and 33 after NFKC.
const EXPANSION: usize = 11;

/// A conversation of which the last message is trained on or judged.
#[derive(Debug, Clone, PartialEq)]
pub enum Text {
    /// A reply, after its prompt.
    Reply(ChatInput),
    /// A message of the user or a tool, after its header.
    Observation(ChatInput),
    /// A conversation that is judged as a whole.
    Judged(ChatInput),
}

/// The texts of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct RowTexts {
    /// File and line of the row.
    pub location: String,
    /// Its texts.
    pub texts: Vec<Text>,
}

impl Demonstration {
    /// Returns the texts that are trained on: replies first.
    pub fn row_texts(&self, train_on: TrainOn) -> RowTexts {
        let mut texts = Vec::new();
        let (replies, observations) = match train_on {
            TrainOn::Assistant => (self.replies(), Vec::new()),
            TrainOn::Replies => (self.all_replies(), Vec::new()),
            TrainOn::Observations => (Vec::new(), self.observations()),
            TrainOn::All(_) => (self.replies(), self.observations()),
        };
        texts.extend(replies.into_iter().map(|i| Text::Reply(self.chat.up_to(i + 1))));
        texts.extend(observations.into_iter().map(|i| Text::Observation(self.chat.up_to(i + 1))));
        RowTexts { location: self.location.clone(), texts }
    }
}

impl PreferenceRow {
    /// Returns the conversation with each reply, the better one first.
    pub fn row_texts(&self) -> RowTexts {
        let texts = self.conversations().into_iter().map(Text::Reply).collect();
        RowTexts { location: self.location.clone(), texts }
    }
}

impl LabeledReply {
    /// Returns the text that a head judges.
    pub fn row_texts(&self, head: HeadKind) -> RowTexts {
        let text = match head {
            HeadKind::Value | HeadKind::Reward => Text::Judged(self.conversation()),
            HeadKind::Likelihood => Text::Reply(self.conversation()),
        };
        RowTexts { location: self.location.clone(), texts: vec![text] }
    }
}

/// A row that a model cannot be trained on as it is.
#[derive(Debug)]
pub enum Misfit {
    /// Its longest text has so many tokens, more than the context.
    Overlong(usize),
    /// Its conversation has no tokens, or the template refuses or does not show a part of it.
    Refused(TokenizerError),
}

/// Returns the rows that a model cannot be trained on as they are, by their indices.
pub fn misfits(
    all_texts: &[RowTexts],
    tokenizer: &Tokenizer,
    context: usize,
) -> Vec<(usize, Misfit)> {
    let rows = all_texts.par_iter().enumerate();
    rows.filter_map(|(i, row)| Some((i, row.misfit(tokenizer, context)?))).collect()
}

impl RowTexts {
    fn misfit(&self, tokenizer: &Tokenizer, context: usize) -> Option<Misfit> {
        let lengths = self.texts.iter().map(|text| text.excess(tokenizer, context));
        match lengths.collect::<Result<Vec<_>, _>>() {
            Ok(lengths) => lengths.into_iter().flatten().max().map(Misfit::Overlong),
            Err(error) => Some(Misfit::Refused(error)),
        }
    }
}

impl Text {
    fn chat(&self) -> &ChatInput {
        match self {
            Self::Reply(chat) | Self::Observation(chat) | Self::Judged(chat) => chat,
        }
    }

    /// Returns the number of tokens, if it is larger than the context.
    fn excess(
        &self,
        tokenizer: &Tokenizer,
        context: usize,
    ) -> Result<Option<usize>, TokenizerError> {
        let unread = tokenizer.unread(self.chat())?;
        if !unread.is_empty() {
            return Err(TokenizerError::Template(format!(
                "the chat template does not show `{}` of this row; train a model whose template does, or leave them out with \
                 `task.ignore`",
                unread.join("`, `")
            )));
        }
        let divided = match self {
            Self::Reply(chat) => tokenizer.reply(chat)?,
            Self::Observation(chat) => tokenizer.observation(chat)?,
            Self::Judged(chat) => {
                let open = ChatInput { add_generation_prompt: true, ..chat.clone() };
                let rendered = tokenizer.render_chat(&open)?;
                if EXPANSION * rendered.text().len() < context {
                    return Ok(None);
                }
                let tokens = tokenizer.encode_rendered(&rendered)?.len();
                return Ok(Some(tokens).filter(|tokens| *tokens > context));
            }
        };
        if EXPANSION * divided.bytes() < context {
            return Ok(None);
        }
        let (before, last) = tokenizer.encode_parts(&divided)?;
        Ok(Some(before.len() + last.len()).filter(|tokens| *tokens > context))
    }
}
