//! The next prompt of a conversation. Token in, token out: what was sampled is never encoded again.

use crate::agent::Prompt;
use crate::config::Overflow;
use crate::model::{Rendered, Tokenizer, TokenizerError};
use crate::orchestra::Conversation;
use crate::trajectory::{Fault, FaultKind, Message, Role};

/// A tokenizer with its chat template, as far as a prompt needs it. See [`Tokenizer`] for each method.
pub(crate) trait Templater {
    fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError>;
    fn decode_raw(&self, ids: &[u32]) -> String;
    fn render(
        &self,
        messages: &[Message],
        generation_prompt: bool,
    ) -> Result<Rendered, TokenizerError>;
}

impl Templater for Tokenizer {
    fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError> {
        self.encode_rendered(rendered)
    }

    fn decode_raw(&self, ids: &[u32]) -> String {
        self.decode_raw(ids)
    }

    fn render(
        &self,
        messages: &[Message],
        generation_prompt: bool,
    ) -> Result<Rendered, TokenizerError> {
        self.render(messages, generation_prompt)
    }
}

/// The context, and what of it a prompt must leave free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) context: usize,
    pub(crate) max_tokens: usize,
    pub(crate) overflow: Overflow,
}

/// A prompt that fits, and the conversation up to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Next {
    pub(crate) messages: Vec<Message>,
    pub(crate) ids: Vec<u32>,
    pub(crate) rendered: String,
    /// Characters cut from observations.
    pub(crate) shortened: usize,
    /// The conversation was not empty, and had to be rendered afresh.
    pub(crate) forked: bool,
}

/// Adds `prompt` to a conversation: its ids grow if the rendering of the longer conversation begins with what the model
/// saw and said, and are made afresh (`forked`) if it does not.
///
/// # Errors
///
/// A fault of kind `overflow` if the prompt leaves no room for `max_tokens` and observations may not be shortened, or
/// even without them; of kind `worker` if the template or the tokenizer fails.
pub(crate) fn next_prompt(
    templater: &impl Templater,
    conversation: &Conversation,
    prompt: &Prompt,
    stop_ids: &[u32],
    room: Room,
) -> Result<Next, Fault> {
    let stops = Stops::new(templater, conversation, stop_ids);
    let compose = |longest: usize| {
        let (user, shortened) = cut(prompt, longest);
        let next = compose(templater, conversation, &stops, prompt, user)?;
        Ok(Next { shortened, ..next })
    };
    let fits = |next: &Next| next.ids.len() + room.max_tokens <= room.context;

    let whole = compose(usize::MAX)?;
    if fits(&whole) {
        return Ok(whole);
    }
    if room.overflow == Overflow::Error || prompt.observations.is_empty() {
        return Err(overflow(&whole, room, ""));
    }
    let mut best = compose(0)?;
    if !fits(&best) {
        return Err(overflow(&best, room, "even without its observations, "));
    }
    let lengths =
        prompt.observations.iter().map(|range| prompt.user[range.clone()].chars().count());
    let (mut fitting, mut exceeding) = (0, lengths.max().unwrap_or(0));
    while exceeding - fitting > 1 {
        let middle = usize::midpoint(fitting, exceeding);
        let next = compose(middle)?;
        if fits(&next) {
            (best, fitting) = (next, middle);
        } else {
            exceeding = middle;
        }
    }
    Ok(best)
}

/// The user message with observations cut to `longest` characters, and how many characters that took.
fn cut(prompt: &Prompt, longest: usize) -> (String, usize) {
    let (mut user, mut cut, mut done) = (String::new(), 0, 0);
    for range in &prompt.observations {
        let observation = &prompt.user[range.clone()];
        let end = observation.char_indices().nth(longest).map_or(observation.len(), |(at, _)| at);
        user.push_str(&prompt.user[done..range.start]);
        user.push_str(&observation[..end]);
        cut += observation[end..].chars().count();
        done = range.end;
    }
    user.push_str(&prompt.user[done..]);
    (user, cut)
}

/// The texts of stop ids.
struct Stops {
    /// Of the one that the last reply ends with; empty if it was cut off.
    said: String,
    /// Of all.
    all: Vec<String>,
}

impl Stops {
    fn new(templater: &impl Templater, conversation: &Conversation, stop_ids: &[u32]) -> Self {
        let text = |id: &u32| templater.decode_raw(&[*id]);
        let said = conversation.ids.last().filter(|id| stop_ids.contains(id));
        let all = stop_ids.iter().map(text).filter(|stop| !stop.is_empty()).collect();
        Self { said: said.map(text).unwrap_or_default(), all }
    }
}

/// Where a rendering goes on after what the model saw and said; `None` if it does not begin with that.
///
/// The template closes the reply, mostly with the stop token that the model closed it with itself. Another stop token
/// comes on top. A template that adds anything else has changed the reply.
fn continues(text: &str, conversation: &Conversation, stops: &Stops) -> Option<usize> {
    let reply = conversation.messages.last().filter(|last| last.role == Role::Assistant)?;
    let rest = text
        .strip_prefix(conversation.rendered.as_str())
        .and_then(|text| text.strip_prefix(reply.content.as_str()))?;
    let rest = match rest.strip_prefix(stops.said.as_str()) {
        Some(rest) => rest,
        None if stops.all.iter().any(|stop| rest.starts_with(stop)) => rest,
        None => return None,
    };
    Some(text.len() - rest.len())
}

fn compose(
    templater: &impl Templater,
    conversation: &Conversation,
    stops: &Stops,
    prompt: &Prompt,
    user: String,
) -> Result<Next, Fault> {
    let messages = opened(&conversation.messages, prompt.system.as_deref(), user);
    let rendered = templater.render(&messages, true).map_err(template)?;
    let from = continues(rendered.text(), conversation, stops);
    let mut ids = from.map(|_| conversation.ids.clone()).unwrap_or_default();
    let new = rendered.after(from.unwrap_or(0));
    ids.extend(templater.encode_rendered(&new).map_err(template)?);
    let forked = from.is_none() && !conversation.messages.is_empty();
    Ok(Next { messages, ids, rendered: rendered.text().to_owned(), shortened: 0, forked })
}

/// The messages so far and the next one. The system section opens a conversation and is left out of a growing one.
pub(crate) fn opened(messages: &[Message], system: Option<&str>, user: String) -> Vec<Message> {
    let mut all = messages.to_vec();
    if let Some(system) = system.filter(|_| messages.is_empty()) {
        all.push(Message { role: Role::System, content: system.to_owned() });
    }
    all.push(Message { role: Role::User, content: user });
    all
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn template(error: TokenizerError) -> Fault {
    Fault::new(FaultKind::Worker, error.to_string())
}

fn overflow(next: &Next, room: Room, even: &str) -> Fault {
    let (tokens, Room { context, max_tokens, overflow }) = (next.ids.len(), room);
    let or = match overflow {
        Overflow::Error => "set `rollout.overflow = \"truncate_observation\"`",
        Overflow::TruncateObservation => "mark what may be cut as `#[input(observation)]`",
    };
    let message = format!(
        "{even}a prompt of {tokens} tokens leaves no room for `sampling.max_tokens` = {max_tokens} in a context of \
         {context}; lower `sampling.max_tokens`, or {or}"
    );
    Fault::new(FaultKind::Overflow, message)
}

#[cfg(test)]
mod tests;
