//! Options that several routes have: sampling, choices, streaming, and what is reported of tokens.

use maverl_kernels::sample::derive_seed;
use serde_json::Value;

use super::fields::{Fields, shown};
use super::ids::draw_seed;
use super::limits::{
    MOST_CHOICES, MOST_LISTED, MOST_STOP_BYTES, MOST_STOP_IDS, MOST_STOPS, MOST_TOP,
};
use super::tokens::TokenForm;
use crate::refusal::Refusal;
use maverl::runtime::Sampling;

/// Sampling and stop conditions of a request.
#[derive(Debug)]
pub(crate) struct Common {
    /// Sampling, but for `max_tokens`.
    pub(crate) sampling: Sampling,
}

impl Common {
    /// Reads the sampling of a request to a model with `vocabulary` tokens. What is left out is that of OpenAI, not that of
    /// `generation_config.json`.
    pub(crate) fn read(fields: &mut Fields, vocabulary: usize) -> Result<Self, Refusal> {
        let most = f64::from(f32::MAX);
        let temperature = fields.number("temperature", 0.0, most)?.unwrap_or(1.0) as f32;
        let top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0) as f32;
        let top_k = fields.integer("top_k", -1, i64::from(u32::MAX))?.unwrap_or(0).max(0) as u32;
        let min_p = fields.number("min_p", 0.0, 1.0)?.unwrap_or(0.0) as f32;
        let repetition_penalty =
            fields.number("repetition_penalty", 1e-3, 1e3)?.unwrap_or(1.0) as f32;
        let stop = stops(fields)?;
        let stop_ids = fields.ids("stop_token_ids", vocabulary)?.unwrap_or_default();
        if stop_ids.len() > MOST_STOP_IDS {
            let what = format!("has {} ids; a request may have {MOST_STOP_IDS}", stop_ids.len());
            return Err(fields.error("stop_token_ids", &what));
        }
        let max_tokens = 1;
        Ok(Self {
            sampling: Sampling {
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty,
                max_tokens,
                stop,
                stop_ids,
            },
        })
    }
}

/// Reads `stop`: a text or a list of texts.
fn stops(fields: &mut Fields) -> Result<Vec<String>, Refusal> {
    let Some(value) = fields.take("stop") else { return Ok(Vec::new()) };
    let texts: Option<Vec<String>> = match &value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(list) => list.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let texts = texts.ok_or_else(|| fields.wrong("stop", &value, "a text or a list of texts"))?;
    if texts.len() > MOST_STOPS {
        let what = format!("has {} texts; a request may have {MOST_STOPS}", texts.len());
        return Err(fields.error("stop", &what));
    }
    if let Some(long) = texts.iter().find(|text| text.len() > MOST_STOP_BYTES) {
        let what = format!("has a text of {} bytes; one may have {MOST_STOP_BYTES}", long.len());
        return Err(fields.error("stop", &what));
    }
    if texts.iter().any(String::is_empty) {
        return Err(fields.error("stop", "has an empty text, which every reply contains"));
    }
    Ok(texts)
}

/// Maximum length of the completions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxTokens(Option<usize>);

impl MaxTokens {
    /// Reads `max_completion_tokens` if `names` has it, and `max_tokens`; the first of them counts.
    pub(crate) fn read(fields: &mut Fields, names: &[&str], least: i64) -> Result<Self, Refusal> {
        let mut found = None;
        for name in names {
            let given = fields.integer(name, least, i64::from(u32::MAX))?;
            found = found.or(given.map(|n| n as usize));
        }
        Ok(Self(found))
    }

    /// Returns the same, with a default for requests that have none.
    pub(crate) fn or(self, default: usize) -> Self {
        Self(Some(self.0.unwrap_or(default)))
    }

    /// Returns the requested length, if there is one.
    pub(crate) fn requested(self) -> Option<usize> {
        self.0
    }

    /// Returns the length for a prompt of `prompt` tokens: what was requested, or the rest of the context.
    pub(crate) fn within(self, prompt: usize, context: usize) -> Result<usize, Refusal> {
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
}

/// Returns the error of a request for more tokens than the context has.
///
/// The message begins as OpenAI's does: clients tell this error from others by its text.
pub(crate) fn too_many_tokens(prompt: usize, wanted: usize, context: usize) -> Refusal {
    exceeded(format!(
        "This model's maximum context length is {context} tokens. However, you requested {} tokens ({prompt} in the \
         prompt, {wanted} in the completion). Please reduce the length of the prompt or completion.",
        prompt.saturating_add(wanted)
    ))
}

/// Returns the error of a text that has more bytes than this server encodes.
pub(crate) fn too_many_bytes(bytes: usize, most: usize, context: usize) -> Refusal {
    exceeded(format!(
        "This model's maximum context length is {context} tokens. However, the prompt has {bytes} bytes, and no text of \
         more than {most} bytes is read for it (the context times the longest token). Please reduce the length of the prompt."
    ))
}

fn exceeded(message: String) -> Refusal {
    let refusal = Refusal::invalid("messages", message).with_code("context_length_exceeded");
    Refusal { retry: Some(false), ..refusal }
}

/// Number and seeds of the choices of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) n: u32,
    /// Seed of the request, drawn if it has none.
    pub(crate) seed: u64,
}

impl Choices {
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, Refusal> {
        let n = fields.integer("n", 1, MOST_CHOICES as i64)?.unwrap_or(1) as u32;
        Ok(Self { n, seed: fields.bits("seed")?.unwrap_or_else(draw_seed) })
    }

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

impl Streaming {
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, Refusal> {
        let stream = fields.flag("stream")?;
        let Some(mut options) = fields.object("stream_options")? else {
            return Ok(Self { stream, include_usage: false });
        };
        if !stream {
            return Err(fields.error("stream_options", "is for `stream`; set that to true"));
        }
        let include_usage = options.flag("include_usage")?;
        // Padding against observers of encrypted traffic; it changes no text.
        options.take("include_obfuscation");
        options.finish(false)?;
        Ok(Self { stream, include_usage })
    }
}

/// Reported facts about tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reported {
    pub(crate) logprobs: bool,
    pub(crate) top: usize,
    pub(crate) form: TokenForm,
    /// Token ids of the prompt and of each choice.
    pub(crate) ids: bool,
}

impl Reported {
    /// Reads the fields of chat completions: `logprobs` is a flag, `top_logprobs` a number.
    pub(crate) fn of_chat(fields: &mut Fields) -> Result<Self, Refusal> {
        let logprobs = fields.flag("logprobs")?;
        let top = fields.integer("top_logprobs", 0, MOST_TOP as i64)?.unwrap_or(0) as usize;
        if top > 0 && !logprobs {
            return Err(fields.error("top_logprobs", "is for `logprobs`; set that to true"));
        }
        Self { logprobs, top, ..Self::default() }.with_ids(fields)
    }

    /// Reads the fields of text completions: `logprobs` is a number.
    pub(crate) fn of_text(fields: &mut Fields) -> Result<Self, Refusal> {
        let top = match fields.take("logprobs") {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(0),
            Some(value) => {
                let top = value.as_u64().filter(|&top| top <= MOST_TOP as u64);
                Some(top.ok_or_else(|| {
                    let wanted = format!("a whole number from 0 to {MOST_TOP}");
                    fields.error("logprobs", &format!("is {}; write {wanted}", shown(&value)))
                })?)
            }
        };
        let logprobs = top.is_some();
        Self { logprobs, top: top.unwrap_or(0) as usize, ..Self::default() }.with_ids(fields)
    }

    /// Fails if the answer could list too many tokens: `tokens` in all choices, each with the most probable ones.
    pub(crate) fn bound(self, tokens: usize) -> Result<(), Refusal> {
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

    fn with_ids(self, fields: &mut Fields) -> Result<Self, Refusal> {
        let ids = fields.flag("return_token_ids")?;
        let form = match fields.flag("return_tokens_as_token_ids")? {
            true => TokenForm::Id,
            false => TokenForm::Text,
        };
        Ok(Self { form, ids, ..self })
    }
}
