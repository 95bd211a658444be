//! Answers to calls, in OpenAI's shape.

use std::sync::Arc;

use super::call::SeatCall;
use super::dialect::Dialect;
use crate::openai::answer::{AnswerObject, ChoicePart as _, FinishReason, TokenUsage};
use crate::openai::chat::{
    ChatChoice, ChatChunkChoice, ChatCompletion, Delta, PartTokens, ToolCall, filled_text,
};
use crate::openai::origin::{AnswerOrigin, Seed};
use crate::openai::{ReplyPart, ReplyText, ReplyTextShape, now};
use maverl::text::ChatMessage;
use maverl::tools::{self, ReplyFormat};
use maverl::trajectory::Turn;

/// A reply as its client is told it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<tools::Call>,
}

impl Told {
    /// Reads the reply of a turn; `rendered` is the prompt as the template rendered it.
    pub(super) fn read(
        turn: &Turn,
        call: &SeatCall,
        rendered: &str,
        format: &Arc<ReplyFormat>,
    ) -> Self {
        let shape = match call.dialect {
            Dialect::Text => ReplyTextShape::default(),
            Dialect::Chat | Dialect::Responses | Dialect::Messages => ReplyTextShape {
                thinking: format.begins_within_thoughts(rendered),
                thoughts: format.has_thoughts,
                calls: if call.tools.declared.is_empty() { 0 } else { call.tools.most },
                tagged: false,
                format: Arc::clone(format),
                tools: call.tools.declared.as_slice().into(),
            },
        };
        let (content, reasoning, calls) = Default::default();
        let mut told = Self { content, reasoning, calls };
        for part in ReplyText::whole_reply(&turn.reply, &call.limits.stop, shape) {
            match part {
                ReplyPart::Content(text) => told.content.push_str(&text),
                ReplyPart::Reasoning(text) => told.reasoning.push_str(&text),
                ReplyPart::Call(call) => told.calls.push(call),
            }
        }
        told
    }

    /// Returns the message in the form of chat templates.
    pub(super) fn message(&self) -> ChatMessage {
        let message = ChatMessage::new("assistant", self.content.as_str());
        self.calls.iter().fold(message, |message, call| {
            message.with_tool_call(call.name.as_str(), call.arguments.clone())
        })
    }

    /// Returns the parts of the reply. Equal requests have equal ids of calls.
    fn deltas(&self, seed: u64) -> Vec<Delta> {
        let calls = self.calls.iter().enumerate();
        let calls = calls.map(|(i, call)| Delta::call(ToolCall::new(seed, i, call)));
        let texts = filled_text(Some(&self.reasoning)).map(Delta::reasoning).into_iter();
        texts.chain(filled_text(Some(&self.content)).map(Delta::content)).chain(calls).collect()
    }
}

/// A choice of an answer.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) told: Told,
    pub(super) seed: u64,
    pub(super) truncated: bool,
    /// Token ids of the prompt and of the reply, if the seat has them.
    pub(super) tokens: Option<(Vec<u32>, Vec<u32>)>,
    pub(super) version: u64,
    /// The stop string of a message that ended the reply.
    pub(super) stop: Option<String>,
}

impl Choice {
    /// Returns the choice as it is written in an answer.
    fn written_choice(&self, index: usize, ids: bool) -> ChatChoice {
        let reason = match (self.truncated, self.told.calls.is_empty()) {
            (true, _) => FinishReason::Length,
            (false, false) => FinishReason::ToolCalls,
            (false, true) => FinishReason::Stop,
        };
        let mut choice = ChatChunkChoice::choice(index);
        for delta in self.told.deltas(self.seed) {
            ChatChunkChoice::new(index, delta, PartTokens::default()).add_to(&mut choice);
        }
        let tokens = self.tokens.as_ref().filter(|_| ids);
        let token_ids = tokens.map(|(_, ids)| ids.clone());
        let stop = self.stop.clone().filter(|_| !self.truncated);
        let end = ChatChunkChoice::end(index, reason, stop.map(|stop| Some(stop.into())));
        ChatChunkChoice { token_ids, ..end }.add_to(&mut choice);
        choice
    }
}

/// Returns the whole answer to a call.
pub(super) fn answer(id: &str, call: &SeatCall, choices: &[Choice]) -> ChatCompletion {
    let tokens = choices.iter().filter_map(|choice| choice.tokens.as_ref());
    let sampled = tokens.map(|(_, ids)| ids.len()).sum();
    let first = choices.first();
    let prompt = first.and_then(|choice| Some(&choice.tokens.as_ref()?.0));
    ChatCompletion {
        id: id.to_owned(),
        object: AnswerObject::Chat,
        created: now(),
        model: call.model.clone(),
        choices: choices
            .iter()
            .enumerate()
            .map(|(i, one)| one.written_choice(i, call.ids))
            .collect(),
        system_fingerprint: None,
        usage: TokenUsage::new(prompt.map_or(0, Vec::len), sampled),
        maverl: first
            .map(|choice| AnswerOrigin::new(Seed::Text(choice.seed.to_string()), choice.version)),
        prompt_token_ids: prompt.filter(|_| call.ids).cloned(),
    }
}
