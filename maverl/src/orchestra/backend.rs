//! Backends: models, scripts and servers that generate the replies of a seat.

use futures::future::BoxFuture;

use crate::agent::Prompt;
use crate::orchestra::conversation::Conversation;
use crate::orchestra::prefix::other_prompt;
use crate::tools::ReplyFormat;
use crate::trajectory::{Fault, Seat, Tokens, Turn, TurnPath};

/// Generates the replies of a seat: a model in a worker group, a script, or a server.
pub trait ChatBackend: Send + Sync {
    /// Returns the name of the policy or endpoint, as recorded in each turn.
    fn name(&self) -> &str;

    /// Generates the next reply of a conversation. Appends the prompt's messages and the reply to it.
    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>>;

    /// Returns true if a conversation may have system messages after its first message.
    fn takes_later_system(&self) -> bool {
        true
    }

    /// Returns the number of tokens of a prompt that begins a conversation; `None` if the backend has no tokens.
    fn count_tokens(&self, prompt: &Prompt) -> Option<Result<usize, Fault>> {
        let _ = prompt;
        None
    }

    /// Returns the form in which the backend writes calls and thoughts. Default: that of most servers, which agents read.
    fn reply_format(&self) -> ReplyFormat {
        ReplyFormat::default()
    }

    /// Gives a recorded reply instead of a new one, after the prompt was compared with the recorded one. Appends both to the
    /// conversation, as [`respond`](Self::respond) does.
    ///
    /// # Errors
    ///
    /// If the prompt differs.
    fn recall(
        &self,
        conversation: &mut Conversation,
        ask: &Ask,
        recorded: &Turn,
    ) -> Result<Response, Fault> {
        conversation.push_prompt(&ask.prompt);
        if conversation.messages != recorded.prompt {
            return Err(other_prompt(recorded));
        }
        conversation.push_reply(recorded.reply.as_str());
        Ok(Response::recorded(recorded))
    }

    /// Samples the recorded tokens of a turn again, from their prompt and their seed; `None` if the backend has no tokens.
    fn sample_again<'a>(
        &'a self,
        path: &'a TurnPath,
        recorded: &'a Tokens,
    ) -> Option<BoxFuture<'a, Result<Tokens, Fault>>> {
        let _ = (path, recorded);
        None
    }
}

/// One request to a [`ChatBackend`].
#[derive(Debug, Clone)]
pub struct Ask {
    /// Seat that is asked.
    pub seat: Seat,
    /// Path of the turn in the episode.
    pub path: TurnPath,
    /// Seed of the request, derived from the episode's seed and the path.
    pub seed: u64,
    /// Prompt. Its system section is used only if the conversation is empty.
    pub prompt: Prompt,
    /// Limits of this request.
    pub limits: AskLimits,
}

/// Limits of one request, in addition to those of the seat's sampling.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AskLimits {
    /// Maximum number of sampled tokens, if it is below that of the seat.
    pub max_tokens: Option<usize>,
    /// Further stop strings.
    pub stop: Vec<String>,
    /// Strings that end a reply and belong to it. A model stops after the first that it writes. A reply without tokens is cut
    /// after the first occurrence of the first of these strings that it contains.
    pub until: Vec<String>,
}

impl AskLimits {
    /// Returns true if the seat's sampling applies as it is.
    pub fn is_empty(&self) -> bool {
        self.max_tokens.is_none() && self.stop.is_empty() && self.until.is_empty()
    }

    /// Returns the length in bytes of the part of a reply that `until` keeps; `None` if it keeps all.
    pub(super) fn end_of(&self, reply: &str) -> Option<usize> {
        self.until.iter().find_map(|end| reply.find(end.as_str()).map(|at| at + end.len()))
    }

    /// Returns the lower of a seat's maximum number of sampled tokens and that of the request.
    pub fn max_tokens(&self, of_seat: usize) -> usize {
        self.max_tokens.map_or(of_seat, |most| most.min(of_seat))
    }
}

/// Response of a [`ChatBackend`].
#[derive(Debug, Clone)]
pub struct Response {
    /// Text of the reply, without special tokens.
    pub reply: String,
    /// Token ids and log-probs, if the backend has them.
    pub tokens: Option<Tokens>,
    /// True if the reply was truncated.
    pub truncated: bool,
    /// Number of characters cut from observations to fit the context.
    pub shortened: usize,
    /// True if the conversation had to be rendered again (see [`Turn::forked`](crate::trajectory::Turn::forked)).
    pub forked: bool,
}

impl Response {
    /// Returns the response of a recorded turn.
    pub fn recorded(turn: &Turn) -> Self {
        Self {
            reply: turn.reply.clone(),
            tokens: turn.tokens.clone(),
            truncated: turn.truncated,
            shortened: turn.shortened,
            forked: turn.forked,
        }
    }

    /// Returns a complete reply without tokens.
    pub fn text(reply: impl Into<String>) -> Self {
        let reply = reply.into();
        Self { reply, tokens: None, truncated: false, shortened: 0, forked: false }
    }
}
