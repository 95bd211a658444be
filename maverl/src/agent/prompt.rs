//! Prompts: the sections that an agent renders, and what a backend does with them.

use serde_json::Value;

use crate::trajectory::Message;

/// A rendered prompt: an optional system section and the user section with its observations marked. For agents that
/// call tools also the tools and the results of calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    /// Instructions, before the conversation.
    pub system: Option<String>,
    /// User message; omitted if it is empty and there are results.
    pub user: String,
    /// Byte ranges of `user` that may be shortened from their end, in order and disjoint.
    pub observations: Vec<std::ops::Range<usize>>,
    /// Tools of this conversation in the form of chat templates (`Tool::declaration`). Like the system section, they
    /// are used only if the conversation is empty.
    pub tools: Vec<Value>,
    /// Results of calls, each a tool message before the user message; may be shortened.
    pub results: Vec<String>,
    /// Messages as a program wrote them, in place of all sections but the tools. Never shortened.
    pub messages: Vec<Message>,
    /// Treatment of the sections.
    pub form: PromptForm,
}

/// Treatment of the sections of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptForm {
    /// The chat template renders them as messages.
    #[default]
    Chat,
    /// The model continues the text of the messages, without a chat template.
    Text,
    /// The user section is appended to the model's last reply, without a chat template, and the model continues the result.
    Continuation {
        /// Maximum number of tokens of the section; later ones are cut. Without effect for a backend without tokens.
        max_tokens: usize,
    },
}

impl Prompt {
    /// Creates a prompt without a system section and without observations.
    pub fn user(text: impl Into<String>) -> Self {
        Self { user: text.into(), ..Self::default() }
    }

    /// Sets the system section.
    #[must_use]
    pub fn with_system(mut self, text: impl Into<String>) -> Self {
        self.system = Some(text.into());
        self
    }

    /// Creates a prompt with the results of calls.
    pub fn results(results: impl IntoIterator<Item = String>) -> Self {
        Self { results: results.into_iter().collect(), ..Self::default() }
    }

    /// Creates a prompt of ready messages.
    pub fn messages(messages: impl IntoIterator<Item = Message>) -> Self {
        Self { messages: messages.into_iter().collect(), ..Self::default() }
    }

    /// Makes the user section a continuation of the model's last reply, with at most `max_tokens` tokens.
    #[must_use]
    pub fn continuing(mut self, max_tokens: usize) -> Self {
        self.form = PromptForm::Continuation { max_tokens };
        self
    }

    /// Returns true if the user section continues the model's last reply.
    pub fn is_continuation(&self) -> bool {
        matches!(self.form, PromptForm::Continuation { .. })
    }

    /// Sets the tools, in the form of `Tool::declaration`.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Value>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// Appends text that is never shortened.
    pub fn push(&mut self, text: &str) {
        self.user.push_str(text);
    }

    /// Appends an observation, which may be shortened.
    pub fn push_observation(&mut self, text: &str) {
        let start = self.user.len();
        self.user.push_str(text);
        self.observations.push(start..self.user.len());
    }
}
