//! The next prompt of a conversation. Token in, token out: sampled tokens are never encoded again.
//!
//! If the chat template renders earlier turns in another way, the conversation is encoded again and the turn is marked
//! `forked`; `rollout.history = "append"` keeps the ids.

use serde_json::Value;

use crate::agent::{Prompt, PromptForm};
use crate::config::{History, Overflow};
use crate::orchestra::Conversation;
use crate::rollout::plain::plain_conversation;
use crate::text::{ChatInput, Rendered, Tokenizer, TokenizerError};
use crate::trajectory::{Fault, FaultKind, Message, Role, Turn};

/// Tokenizer with a chat template, as needed for prompts. See [`Tokenizer`] for each method.
pub(crate) trait Templater {
    fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError>;
    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError>;
    fn decode_raw(&self, ids: &[u32]) -> String;
    /// Returns the largest length in bytes of a text of `tokens` tokens.
    fn most_bytes(&self, tokens: usize) -> usize;
    /// Renders a conversation with the assistant's next turn opened, in which these tools may be called.
    fn render(&self, messages: &[Message], tools: &[Value]) -> Result<Rendered, TokenizerError>;
}

impl Templater for Tokenizer {
    fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError> {
        self.encode_rendered(rendered)
    }

    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_plain(text)
    }

    fn decode_raw(&self, ids: &[u32]) -> String {
        self.decode_raw(ids)
    }

    fn most_bytes(&self, tokens: usize) -> usize {
        self.most_bytes(tokens)
    }

    /// A template without support for tools gets their descriptions as text.
    fn render(&self, messages: &[Message], tools: &[Value]) -> Result<Rendered, TokenizerError> {
        let tools = Some(tools).filter(|tools| !tools.is_empty());
        match tools {
            Some(tools) if !self.takes_tools() => {
                self.render_chat(&ChatInput::open(&plain_conversation(messages, tools)))
            }
            _ => {
                let tools = tools.map(<[Value]>::to_vec);
                self.render_chat(&ChatInput { tools, ..ChatInput::open(messages) })
            }
        }
    }
}

/// Renders the prompt of a turn as its model sees it, with the assistant's turn opened, and with the text that the reply
/// continues. Used to train on replies of a script or an endpoint.
///
/// # Errors
///
/// See [`Tokenizer::render_chat`].
pub fn render_turn(tokenizer: &Tokenizer, turn: &Turn) -> Result<Rendered, TokenizerError> {
    match turn.prompt.split_last() {
        Some((Message { role: Role::Assistant, content }, before)) => {
            let rendered = Templater::render(tokenizer, before, &turn.tools)?;
            Ok(rendered.followed_by(&tokenizer.spelled(content)))
        }
        _ => Templater::render(tokenizer, &turn.prompt, &turn.tools),
    }
}

/// Size of the context, and the part that a prompt must leave free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptRoom {
    pub(crate) context: usize,
    pub(crate) max_tokens: usize,
    pub(crate) overflow: Overflow,
    pub(crate) history: History,
}

/// A prompt that fits, and the conversation up to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NextPrompt {
    pub(crate) messages: Vec<Message>,
    pub(crate) ids: Vec<u32>,
    pub(crate) rendered: String,
    /// Number of characters cut from observations.
    pub(crate) shortened: usize,
    /// True if the conversation was not empty and had to be rendered again.
    pub(crate) forked: bool,
}

/// Adds `prompt` to a conversation. If the rendering of the longer conversation begins with the tokens so far, ids are
/// appended; otherwise everything is encoded again (`forked`). With [`History::Append`] they are appended in either case, if
/// the template closes the reply as the model did. A prompt that continues the last reply is always appended, without a template.
///
/// # Errors
///
/// A fault of kind `overflow` if the prompt leaves no room for `max_tokens` and observations may not be shortened, or
/// do not suffice; of kind `worker` if the template or the tokenizer fails, or `program` for a program's messages.
pub(crate) fn next_prompt(
    templater: &impl Templater,
    conversation: &Conversation,
    prompt: &Prompt,
    stop_ids: &[u32],
    room: PromptRoom,
) -> Result<NextPrompt, Fault> {
    let stops = Stops::new(templater, conversation, stop_ids);
    let composer = Composer { templater, conversation, stops, room };
    let nothing = prompt.observations.is_empty() && prompt.results.is_empty();
    match composer.fit(prompt, usize::MAX) {
        Err(fault) if exceeds(&fault) && room.overflow != Overflow::Error && !nothing => {}
        whole => return whole,
    }
    let mut best = composer.fit(prompt, 0).map_err(|fault| {
        let even = if exceeds(&fault) { "even without its observations, " } else { "" };
        Fault::new(fault.kind, format!("{even}{}", fault.message))
    })?;
    let observations = prompt.observations.iter().map(|range| &prompt.user[range.clone()]);
    let texts = observations.chain(prompt.results.iter().map(String::as_str));
    let lengths = texts.map(|text| text.chars().count());
    let (mut fitting, mut exceeding) = (0, lengths.max().unwrap_or(0));
    while exceeding - fitting > 1 {
        let middle = usize::midpoint(fitting, exceeding);
        match composer.fit(prompt, middle) {
            Ok(next) => (best, fitting) = (next, middle),
            Err(fault) if exceeds(&fault) => exceeding = middle,
            Err(fault) => return Err(fault),
        }
    }
    Ok(best)
}

/// Returns the number of tokens of a prompt that begins a conversation, be it more than the context has.
///
/// # Errors
///
/// A fault of kind `overflow` if the prompt has more bytes than are encoded; else as [`next_prompt`].
pub(crate) fn prompt_tokens(
    templater: &impl Templater,
    prompt: &Prompt,
    room: PromptRoom,
) -> Result<usize, Fault> {
    let begun = Conversation::default();
    let rendered = templater.render(&begun.messages_with(prompt), begun.tools_with(prompt));
    let rendered = rendered.map_err(|error| template(error, prompt))?;
    room.check_bytes(templater, rendered.text())?;
    let ids = templater.encode_rendered(&rendered).map_err(|error| template(error, prompt))?;
    Ok(ids.len())
}

/// Returns the prompt of a text that the model continues, without a chat template.
///
/// # Errors
///
/// A fault of kind `overflow` if the text leaves no room for `max_tokens`; of kind `program` if it has no tokens.
pub(crate) fn text_prompt(
    tokenizer: &Tokenizer,
    conversation: &Conversation,
    prompt: &Prompt,
    room: PromptRoom,
) -> Result<NextPrompt, Fault> {
    let messages = conversation.messages_with(prompt);
    let rendered: String = messages.iter().map(|message| message.content.as_str()).collect();
    room.check_bytes(tokenizer, &rendered)?;
    let ids = tokenizer.encode_framed(&rendered).map_err(|error| template(error, prompt))?;
    if ids.is_empty() {
        return Err(Fault::new(FaultKind::Program, "the text has no tokens"));
    }
    room.fitting(NextPrompt { messages, ids, rendered, shortened: 0, forked: false })
}

/// Truncates observations and results to `longest` characters each. Returns the prompt and the number of characters
/// removed.
fn cut_results(prompt: &Prompt, longest: usize) -> (Prompt, usize) {
    let (mut user, mut cut, mut done) = (String::new(), 0, 0);
    for range in &prompt.observations {
        user.push_str(&prompt.user[done..range.start]);
        user.push_str(shorten(&prompt.user[range.clone()], longest, &mut cut));
        done = range.end;
    }
    user.push_str(&prompt.user[done..]);
    let results = prompt.results.iter();
    let results = results.map(|result| shorten(result, longest, &mut cut).to_owned()).collect();
    (Prompt { user, results, ..prompt.clone() }, cut)
}

/// Returns the first `longest` characters of a text, and adds the number of the others to `cut`.
fn shorten<'t>(text: &'t str, longest: usize, cut: &mut usize) -> &'t str {
    let end = text.char_indices().nth(longest).map_or(text.len(), |(at, _)| at);
    *cut += text[end..].chars().count();
    &text[..end]
}

/// Texts of stop ids.
struct Stops {
    /// True if a stop id ended the last reply.
    ended: bool,
    /// Text of the stop id that ended the last reply; empty if the reply was truncated.
    said: String,
    /// Texts of all stop ids.
    all: Vec<String>,
}

impl Stops {
    fn new(templater: &impl Templater, conversation: &Conversation, stop_ids: &[u32]) -> Self {
        let said = conversation.ids.last().filter(|id| stop_ids.contains(id));
        let ended = said.is_some();
        let said = said.map(|id| templater.decode_raw(&[*id])).unwrap_or_default();
        let all = stop_ids.iter().map(|id| templater.decode_raw(&[*id]));
        Self { ended, said, all: all.filter(|stop| !stop.is_empty()).collect() }
    }

    /// Returns what follows the tokens so far in a text that follows the reply; `None` if the template adds anything else than
    /// a stop token.
    fn text_after<'t>(&self, text: &'t str) -> Option<&'t str> {
        match text.strip_prefix(self.said.as_str()) {
            Some(rest) => Some(rest),
            None => self.all.iter().any(|stop| text.starts_with(stop)).then_some(text),
        }
    }
}

/// Stand-in for the last reply, which no message contains.
const MARK: &str = "\u{f8ff}the reply\u{f8ff}";

/// Everything that the next prompt depends on beside its text.
struct Composer<'c, T> {
    templater: &'c T,
    conversation: &'c Conversation,
    stops: Stops,
    room: PromptRoom,
}

impl<T: Templater> Composer<'_, T> {
    /// Returns a prompt that fits, with observations and results of at most `longest` characters.
    fn fit(&self, prompt: &Prompt, longest: usize) -> Result<NextPrompt, Fault> {
        let (prompt, shortened) = cut_results(prompt, longest);
        let next = self.room.fitting(self.compose(&prompt)?)?;
        let shortened = shortened + next.shortened;
        Ok(NextPrompt { shortened, ..next })
    }

    fn compose(&self, prompt: &Prompt) -> Result<NextPrompt, Fault> {
        let Self { templater, conversation, room, .. } = self;
        if let PromptForm::Continuation { max_tokens } = prompt.form {
            return self.continued(prompt, max_tokens);
        }
        let messages = conversation.messages_with(prompt);
        let tools = conversation.tools_with(prompt);
        let rendered = templater.render(&messages, tools);
        let rendered = rendered.map_err(|error| template(error, prompt))?;
        let from = self.continues(rendered.text());
        if from.is_none() && room.history == History::Append && !conversation.ids.is_empty() {
            let tail = self.tail(messages.clone(), tools);
            if let Some((closing, new)) = tail.map_err(|error| template(error, prompt))? {
                let ids = [conversation.ids.as_slice(), &self.encode(&new, prompt)?].concat();
                let reply = conversation.messages.last().map_or("", |last| last.content.as_str());
                let rendered = [conversation.rendered.as_str(), reply, &closing].concat();
                return Ok(NextPrompt { messages, ids, rendered, shortened: 0, forked: false });
            }
        }
        let mut ids = from.map(|_| conversation.ids.clone()).unwrap_or_default();
        ids.extend(self.encode(&rendered.after(from.unwrap_or(0)), prompt)?);
        let forked = from.is_none() && !conversation.messages.is_empty();
        Ok(NextPrompt { messages, ids, rendered: rendered.text().to_owned(), shortened: 0, forked })
    }

    /// Returns the prompt of a text that continues the last reply: the ids so far, without the stop id if one ended the reply, and
    /// those of the text, of which at most `max_tokens` are kept. A special token in the text is ordinary text. Of a text with more
    /// bytes than any that fits the context, as many are encoded.
    fn continued(&self, prompt: &Prompt, max_tokens: usize) -> Result<NextPrompt, Fault> {
        let Self { templater, conversation, .. } = self;
        let so_far = conversation.ids.split_last().zip(conversation.messages.last());
        let Some(((_, unended), reply)) = so_far else {
            let message = "a prompt continues a reply, but the conversation has none; ask first";
            return Err(Fault::new(FaultKind::Orchestra, message));
        };
        let most = templater.most_bytes(self.room.context);
        let encoded = &prompt.user[..prompt.user.floor_char_boundary(most)];
        let new = templater.encode_plain(encoded).map_err(|error| template(error, prompt))?;
        let kept = &new[..new.len().min(max_tokens)];
        let whole = kept.len() == new.len() && encoded.len() == prompt.user.len();
        let text = if whole { prompt.user.clone() } else { templater.decode_raw(kept) };
        let shortened = prompt.user.chars().count().saturating_sub(text.chars().count());
        let ids = [if self.stops.ended { unended } else { &conversation.ids[..] }, kept].concat();
        let rendered = [conversation.rendered.as_str(), &reply.content, &text].concat();
        let messages = conversation.messages_with(&Prompt { user: text, ..prompt.clone() });
        Ok(NextPrompt { messages, ids, rendered, shortened, forked: false })
    }

    fn encode(&self, new: &Rendered, prompt: &Prompt) -> Result<Vec<u32>, Fault> {
        self.room.check_bytes(self.templater, new.text())?;
        self.templater.encode_rendered(new).map_err(|error| template(error, prompt))
    }

    /// Returns the position at which a rendering continues after the tokens so far; `None` if it does not begin with them.
    ///
    /// The template closes the reply, usually with the stop token that the model sampled. A different stop token is
    /// appended. A template that adds anything else has changed the reply.
    fn continues(&self, text: &str) -> Option<usize> {
        let reply = self.conversation.messages.last()?;
        let rest = text.strip_prefix(self.conversation.rendered.as_str())?;
        let rest = rest.strip_prefix(reply.content.as_str());
        let rest = rest.filter(|_| reply.role == Role::Assistant)?;
        Some(text.len() - self.stops.text_after(rest)?.len())
    }

    /// Renders the conversation with a stand-in for its last reply. Returns what follows the reply, and what follows the tokens
    /// so far; `None` if the template does not show the reply once, or adds something to it.
    fn tail(
        &self,
        mut messages: Vec<Message>,
        tools: &[Value],
    ) -> Result<Option<(String, Rendered)>, TokenizerError> {
        let last = self.conversation.messages.len().checked_sub(1);
        let reply = last.and_then(|last| messages.get_mut(last));
        let Some(reply) = reply.filter(|reply| reply.role == Role::Assistant) else {
            return Ok(None);
        };
        MARK.clone_into(&mut reply.content);
        let rendered = self.templater.render(&messages, tools)?;
        let text = rendered.text();
        let mut places = text.match_indices(MARK);
        let (Some((at, _)), None) = (places.next(), places.next()) else { return Ok(None) };
        let closing = &text[at + MARK.len()..];
        let from = self.stops.text_after(closing).map(|rest| text.len() - rest.len());
        Ok(from.map(|from| (closing.to_owned(), rendered.after(from))))
    }
}

/// Returns the fault of messages that the template or the tokenizer rejects. Ready messages are those of a program.
#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn template(error: TokenizerError, prompt: &Prompt) -> Fault {
    let ready = !prompt.messages.is_empty();
    let kind = if ready { FaultKind::Program } else { FaultKind::Worker };
    Fault::new(kind, error.to_string())
}

/// Returns true for the fault of a prompt that does not fit.
fn exceeds(fault: &Fault) -> bool {
    fault.kind == FaultKind::Overflow
}

impl PromptRoom {
    /// Returns a prompt that leaves room for `max_tokens`.
    fn fitting(self, next: NextPrompt) -> Result<NextPrompt, Fault> {
        let tokens = next.ids.len();
        if tokens + self.max_tokens <= self.context {
            return Ok(next);
        }
        Err(self.overflow(&format!("{tokens} tokens")))
    }

    /// Fails for a text with more bytes than any that fits the context: encoding it would take much memory and time.
    fn check_bytes(self, templater: &impl Templater, text: &str) -> Result<(), Fault> {
        let (bytes, most) = (text.len(), templater.most_bytes(self.context));
        if bytes <= most {
            return Ok(());
        }
        Err(self.overflow(&format!("{bytes} bytes (more than {most} are not encoded)")))
    }

    /// Returns the fault of a prompt of this size.
    fn overflow(self, size: &str) -> Fault {
        let Self { context, max_tokens, overflow, .. } = self;
        let or = match overflow {
            Overflow::Error => "set `rollout.overflow = \"truncate_observation\"`",
            Overflow::TruncateObservation => "mark what may be cut as `#[input(observation)]`",
        };
        let message = format!(
            "a prompt of {size} leaves no room for `sampling.max_tokens` = {max_tokens} in a context of {context}; lower \
             `sampling.max_tokens`, or {or}"
        );
        Fault::new(FaultKind::Overflow, message)
    }
}

#[cfg(test)]
mod tests;
