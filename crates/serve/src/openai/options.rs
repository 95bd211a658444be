//! Options that several routes have: sampling, choices, streaming, and what is reported of tokens.

use maverl_kernels::sample::derive_seed;
use serde_json::Value;

use super::fields::Fields;
use super::ids::draw_seed;
use super::limits::{
    MOST_CHOICES, MOST_LISTED, MOST_STOP_BYTES, MOST_STOP_IDS, MOST_STOPS, MOST_TOKENS, MOST_TOP,
};
use super::request::{BoundedField as _, Nested, RequestField, TokenIds, Unused, request};
use super::tokens::TokenForm;
use crate::refusal::Refusal;
use maverl::runtime::Sampling;

request! {
    /// Sampling of a request, and the ends of its replies. What is left out is that of OpenAI, not that of
    /// `generation_config.json`.
    pub(crate) struct SampledFields {
        temperature: Option<f64> [0.0, f64::from(f32::MAX)],
        top_p: Option<f64> [0.0, 1.0],
        top_k: Option<i64> [-1, i64::from(u32::MAX)],
        min_p: Option<f64> [0.0, 1.0],
        repetition_penalty: Option<f64> [1e-3, 1e3],
        ends: EndFields,
    }
}

request! {
    /// Ends of replies.
    pub(crate) struct EndFields {
        stop: StopTexts,
        stop_token_ids: TokenIds,
    }
}

impl SampledFields {
    /// Returns the sampling, but for `max_tokens`, by a model with `vocabulary` tokens.
    pub(crate) fn sampling(&self, vocabulary: usize) -> Result<Sampling, Refusal> {
        let EndFields { stop: StopTexts(stop), stop_token_ids } = &self.ends;
        let stop_ids = stop_token_ids.below(vocabulary)?.unwrap_or_default();
        if stop_ids.len() > MOST_STOP_IDS {
            let what = format!("has {} ids; a request may have {MOST_STOP_IDS}", stop_ids.len());
            return Err(stop_token_ids.error(&what));
        }
        Ok(Sampling {
            temperature: self.temperature.unwrap_or(1.0) as f32,
            top_k: self.top_k.unwrap_or(0).max(0) as u32,
            top_p: self.top_p.unwrap_or(1.0) as f32,
            min_p: self.min_p.unwrap_or(0.0) as f32,
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0) as f32,
            max_tokens: 1,
            stop: stop.clone(),
            stop_ids,
        })
    }
}

/// `stop`: a text or a list of texts.
#[derive(Debug)]
pub(crate) struct StopTexts(pub(crate) Vec<String>);

impl RequestField for StopTexts {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        let texts = fields.take_as(name, "a text or a list of texts", |value| match &value {
            Value::String(text) => Ok(vec![text.clone()]),
            Value::Array(list) => texts_of(list).ok_or(value),
            _ => Err(value),
        });
        let texts = texts?.unwrap_or_default();
        if texts.len() > MOST_STOPS {
            let what = format!("has {} texts; a request may have {MOST_STOPS}", texts.len());
            return Err(fields.error(name, &what));
        }
        if let Some(long) = texts.iter().find(|text| text.len() > MOST_STOP_BYTES) {
            let what =
                format!("has a text of {} bytes; one may have {MOST_STOP_BYTES}", long.len());
            return Err(fields.error(name, &what));
        }
        if texts.iter().any(String::is_empty) {
            return Err(fields.error(name, "has an empty text, which every reply contains"));
        }
        Ok(Self(texts))
    }
}

fn texts_of(list: &[Value]) -> Option<Vec<String>> {
    list.iter().map(|one| one.as_str().map(str::to_owned)).collect()
}

request! {
    struct LimitFields {
        max_completion_tokens: Option<usize> [1, MOST_TOKENS],
        max_tokens: Option<usize> [1, MOST_TOKENS],
    }
}

/// Maximum length of the completions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxTokens(Option<usize>);

/// The first of `max_completion_tokens` and `max_tokens` counts.
impl RequestField for MaxTokens {
    fn read_field(fields: &mut Fields, _: &str) -> Result<Self, Refusal> {
        let LimitFields { max_completion_tokens, max_tokens } = fields.read()?;
        Ok(Self(max_completion_tokens.or(max_tokens)))
    }
}

impl From<Option<usize>> for MaxTokens {
    fn from(requested: Option<usize>) -> Self {
        Self(requested)
    }
}

impl MaxTokens {
    /// Returns the same, with a default for requests that have none.
    pub(crate) fn or(self, default: usize) -> Self {
        Self(Some(self.0.unwrap_or(default)))
    }

    /// Returns the requested length, if there is one.
    pub(crate) fn requested_length(self) -> Option<usize> {
        self.0
    }

    /// Returns true if a length is less than what was requested. Without a request, it is what the context leaves.
    pub(crate) fn is_cut_to(self, length: usize) -> bool {
        self.0.is_none_or(|wanted| wanted > length)
    }

    /// Returns the length for a prompt of `prompt` tokens: what was requested, or the rest of the context.
    pub(crate) fn length_within(self, prompt: usize, context: usize) -> Result<usize, Refusal> {
        let wanted = self.0.unwrap_or(1);
        if prompt == 0 {
            return Err(Refusal::malformed(
                "the prompt has no tokens; the model needs at least one",
            ));
        }
        if prompt.saturating_add(wanted.max(1)) <= context {
            return Ok(self.0.unwrap_or(context - prompt));
        }
        Err(too_many_tokens(prompt, wanted, context))
    }

    /// Returns the length for a prompt of `prompt` tokens: what was requested, or the rest of the context if that is less.
    pub(crate) fn length_up_to(self, prompt: usize, context: usize) -> Result<usize, Refusal> {
        let room = context.saturating_sub(prompt);
        if prompt > 0 && room == 0 {
            return Err(prompt_too_long(prompt, context));
        }
        Self(self.0.map(|wanted| wanted.min(room))).length_within(prompt, context)
    }
}

/// Returns the error of a prompt that leaves no room for a token.
fn prompt_too_long(prompt: usize, context: usize) -> Refusal {
    let most = context.saturating_sub(1);
    too_long(format!("prompt is too long: {prompt} tokens > {most} maximum"))
}

/// Returns the error of a request for more tokens than the context has.
///
/// The message begins as OpenAI's does: clients tell this error from others by its text.
pub(crate) fn too_many_tokens(prompt: usize, wanted: usize, context: usize) -> Refusal {
    too_long(format!(
        "This model's maximum context length is {context} tokens. However, you requested {} tokens ({prompt} in the \
         prompt, {wanted} in the completion). Please reduce the length of the prompt or completion.",
        prompt.saturating_add(wanted)
    ))
}

/// Returns the error of a text that has more bytes than this server encodes.
pub(crate) fn too_many_bytes(bytes: usize, most: usize, context: usize) -> Refusal {
    too_long(format!(
        "This model's maximum context length is {context} tokens. However, the prompt has {bytes} bytes, and no text of \
         more than {most} bytes is read for it (the context times the longest token). Please reduce the length of the prompt."
    ))
}

fn too_long(message: String) -> Refusal {
    let refusal = Refusal::invalid("messages", message).with_code("context_length_exceeded");
    Refusal { retry: Some(false), ..refusal }
}

request! {
    struct ChoiceFields {
        n: Option<usize> [1, MOST_CHOICES],
        seed: Option<u64>,
    }
}

/// Number and seeds of the choices of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) n: u32,
    /// Seed of the request, drawn if it has none.
    pub(crate) seed: u64,
}

impl RequestField for Choices {
    fn read_field(fields: &mut Fields, _: &str) -> Result<Self, Refusal> {
        let ChoiceFields { n, seed } = fields.read()?;
        Ok(Self { n: n.unwrap_or(1) as u32, seed: seed.unwrap_or_else(draw_seed) })
    }
}

impl Choices {
    /// Returns the seed of a choice: the first has that of the request, the others derive theirs.
    pub(crate) fn seed_of(self, choice: u32) -> u64 {
        match choice {
            0 => self.seed,
            i => derive_seed(self.seed, u64::from(i)),
        }
    }
}

/// Form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Streaming {
    pub(crate) stream: bool,
    /// A last chunk has the usage.
    pub(crate) include_usage: bool,
}

request! {
    struct StreamFields {
        stream: bool,
        stream_options: Option<Nested<StreamOptions>>,
    }
}

request! {
    struct StreamOptions {
        include_usage: bool,
    }
    // Padding against observers of encrypted traffic; it changes no text.
    Unused: include_obfuscation;
}

impl RequestField for Streaming {
    fn read_field(fields: &mut Fields, _: &str) -> Result<Self, Refusal> {
        let StreamFields { stream, stream_options } = fields.read()?;
        let Some(Nested { value: options, rest }) = stream_options else {
            return Ok(Self { stream, include_usage: false });
        };
        if !stream {
            return Err(fields.error("stream_options", "is for `stream`; set that to true"));
        }
        rest.finish(false)?;
        Ok(Self { stream, include_usage: options.include_usage })
    }
}

/// Echo of the prompt of a text completion. Without it, there must be a token to sample.
#[derive(Debug)]
pub(crate) struct Echoed {
    pub(crate) echo: bool,
    pub(crate) limit: MaxTokens,
}

impl RequestField for Echoed {
    fn read_field(fields: &mut Fields, _: &str) -> Result<Self, Refusal> {
        let echo = bool::read_field(fields, "echo")?;
        let least = usize::from(!echo);
        let most = Option::read_within(fields, "max_tokens", least, MOST_TOKENS)?;
        Ok(Self { echo, limit: MaxTokens(most) })
    }
}

request! {
    /// Reports of tokens that all routes have.
    pub(crate) struct TokenFields {
        return_token_ids: bool,
        return_tokens_as_token_ids: bool,
    }
}

/// `logprobs` of text completions: the number of the most probable tokens.
#[derive(Debug)]
pub(crate) struct TextTop(Option<usize>);

impl RequestField for TextTop {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        let wanted = format!("a whole number from 0 to {MOST_TOP}");
        let top = fields.take_as(name, &wanted, |value| match value {
            Value::Bool(listed) => Ok(listed.then_some(0)),
            value => {
                let top = value.as_u64().filter(|&top| top <= MOST_TOP as u64);
                top.map(|top| Some(top as usize)).ok_or(value)
            }
        });
        Ok(Self(top?.flatten()))
    }
}

/// Reported facts about tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReportedTokens {
    pub(crate) logprobs: bool,
    pub(crate) top: usize,
    pub(crate) form: TokenForm,
    /// Token ids of the prompt and of each choice.
    pub(crate) ids: bool,
}

impl ReportedTokens {
    /// Returns what a chat completion reports.
    pub(crate) fn of_chat(
        logprobs: bool,
        top: Option<usize>,
        tokens: &TokenFields,
    ) -> Result<Self, Refusal> {
        let top = top.unwrap_or(0);
        if top > 0 && !logprobs {
            let what = "is for `logprobs`; set that to true";
            return Err(Refusal::field("top_logprobs", what));
        }
        Ok(Self { logprobs, top, ..Self::of_tokens(tokens) })
    }

    /// Returns what a text completion reports.
    pub(crate) fn of_text(TextTop(top): &TextTop, tokens: &TokenFields) -> Self {
        Self { logprobs: top.is_some(), top: top.unwrap_or(0), ..Self::of_tokens(tokens) }
    }

    fn of_tokens(tokens: &TokenFields) -> Self {
        let by_id = tokens.return_tokens_as_token_ids;
        let form = if by_id { TokenForm::Id } else { TokenForm::Text };
        Self { form, ids: tokens.return_token_ids, ..Self::default() }
    }

    /// Fails if the answer could list too many tokens: `tokens` in all choices, each with the most probable ones.
    pub(crate) fn check_listed(self, tokens: usize) -> Result<(), Refusal> {
        let listed = tokens.saturating_mul(1 + self.top);
        if !(self.logprobs || self.ids) || listed <= MOST_LISTED {
            return Ok(());
        }
        let message = format!(
            "the answer could list {listed} tokens ({tokens} in all choices, each with {} most probable ones); \
             {MOST_LISTED} are allowed. Ask for fewer choices, tokens or log-probs in a request",
            self.top
        );
        Err(Refusal::invalid("logprobs", message))
    }
}
