//! Form of the replies of a model.

use super::probe::{self, TemplateThoughts};
use super::{CallFormat, ThoughtFormat, ThoughtTags};
use crate::text::Tokenizer;

/// Form in which a model writes replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyFormat {
    /// Form of calls.
    pub calls: CallFormat,
    /// Texts around thoughts. Those of [`CallFormat::Harmony`] are channels instead.
    pub thoughts: ThoughtTags,
    /// Replies may begin with thoughts.
    pub has_thoughts: bool,
    /// Special tokens that belong to the text of a reply.
    pub kept: Vec<u32>,
}

impl Default for ReplyFormat {
    fn default() -> Self {
        Self::of_calls(CallFormat::Auto)
    }
}

impl ReplyFormat {
    /// Creates the form of a model with these calls, and thoughts in `<think>`, whose vocabulary is not known.
    pub fn of_calls(calls: CallFormat) -> Self {
        Self { calls, thoughts: ThoughtTags::think(), has_thoughts: true, kept: Vec::new() }
    }

    /// Returns the form of a model. What is `auto` is found by its chat template: it is the form whose reader returns the calls
    /// and thoughts that the template renders. Without one, it is what every model is read as: calls in the forms of Hermes
    /// and Llama 3, and `<think>`.
    pub fn of_model(tokenizer: &Tokenizer, calls: CallFormat, thoughts: &ThoughtFormat) -> Self {
        let asked =
            probe::template_thoughts(tokenizer).filter(|_| *thoughts == ThoughtFormat::Auto);
        let harmony =
            *thoughts == ThoughtFormat::Harmony || asked == Some(TemplateThoughts::Harmony);
        let calls = match calls {
            CallFormat::Auto if harmony => CallFormat::Harmony,
            CallFormat::Auto => probe::template_calls(tokenizer).found().unwrap_or_default(),
            given => given,
        };
        let tags = match (thoughts, asked) {
            (ThoughtFormat::Tags(tags), _) => tags.clone(),
            (_, Some(TemplateThoughts::Tags(tags))) => tags,
            _ => ThoughtTags::think(),
        };
        let has_thoughts = *thoughts != ThoughtFormat::None;
        let format = Self { calls, thoughts: tags, has_thoughts, kept: Vec::new() };
        Self { kept: format.kept_tokens(tokenizer), ..format }
    }

    /// Returns true if agents and environments read replies as they are: their calls are JSON, and their thoughts are in
    /// `<think>`.
    pub fn is_plain(&self) -> bool {
        self.calls.is_json() && self.thoughts.is_think()
    }

    /// Returns true if a prompt ends within thoughts, so that the reply begins with them.
    pub fn begins_within_thoughts(&self, prompt: &str) -> bool {
        self.calls != CallFormat::Harmony
            && self.has_thoughts
            && prompt.trim_end().ends_with(self.thoughts.open.trim_end())
    }

    /// Returns the special tokens of a vocabulary that the form is written with. Plain replies keep none.
    fn kept_tokens(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        if self.is_plain() {
            return Vec::new();
        }
        let thoughts = ThoughtTags::TOKENS.into_iter().filter(|token| {
            self.has_thoughts
                && [&self.thoughts.open, &self.thoughts.close].iter().any(|tag| tag.contains(token))
        });
        let own = [self.thoughts.open.as_str(), self.thoughts.close.as_str()];
        let own = own.into_iter().filter(|_| self.has_thoughts);
        let tokens = self.calls.tokens().iter().copied().filter(|_| !self.calls.is_json());
        let ids = tokens.chain(thoughts).chain(own).filter_map(|token| tokenizer.token_id(token));
        let mut ids: Vec<u32> = ids.filter(|id| tokenizer.is_special(*id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
