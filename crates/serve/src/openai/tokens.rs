//! Tokens and log-probs as OpenAI's protocol writes them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use maverl::runtime::Step;
use maverl::text::{Detokenizer, Tokenizer};

/// Form of a token in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TokenForm {
    /// Its text. Bytes that are no whole characters are shown as U+FFFD; `bytes` has them.
    #[default]
    Text,
    /// `token_id:5`.
    Id,
}

/// Returns a token as text.
pub(crate) fn token_text(tokenizer: &Tokenizer, id: u32, form: TokenForm) -> String {
    match form {
        TokenForm::Id => format!("token_id:{id}"),
        TokenForm::Text => String::from_utf8_lossy(&tokenizer.token_bytes(id)).into_owned(),
    }
}

/// A token with its log-prob, as chat completions list it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenLogprob {
    pub(crate) token: String,
    pub(crate) logprob: f64,
    pub(crate) bytes: Vec<u8>,
    /// The most probable tokens at its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top_logprobs: Option<Vec<TokenLogprob>>,
}

/// Tokens with their log-probs, as text completions list them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TextLogprobs {
    pub(crate) tokens: Vec<String>,
    pub(crate) token_logprobs: Vec<Option<f64>>,
    /// Log-probs by token, the most probable one first.
    pub(crate) top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Positions of the tokens in the text, in characters.
    pub(crate) text_offset: Vec<usize>,
}

impl TextLogprobs {
    /// Appends the tokens after these.
    pub(crate) fn append(&mut self, more: Self) {
        self.tokens.extend(more.tokens);
        self.token_logprobs.extend(more.token_logprobs);
        self.top_logprobs.extend(more.top_logprobs);
        self.text_offset.extend(more.text_offset);
    }
}

/// Returns a log-prob. The lowest are written as -9999: JSON has no infinity.
fn logprob(value: f32) -> f64 {
    f64::from(value.max(-9999.0))
}

/// Returns the entries of `logprobs.content` of chat completions.
pub(crate) fn chat_logprobs(
    tokenizer: &Tokenizer,
    steps: &[Step],
    form: TokenForm,
) -> Vec<TokenLogprob> {
    let entries = steps.iter().map(|step| {
        let top = step.top.iter().map(|&token| token_logprob(tokenizer, token, form));
        let own = token_logprob(tokenizer, (step.id, step.logprob), form);
        TokenLogprob { top_logprobs: Some(top.collect()), ..own }
    });
    entries.collect()
}

fn token_logprob(tokenizer: &Tokenizer, (id, value): (u32, f32), form: TokenForm) -> TokenLogprob {
    TokenLogprob {
        token: token_text(tokenizer, id, form),
        logprob: logprob(value),
        bytes: tokenizer.token_bytes(id),
        top_logprobs: None,
    }
}

/// Returns the name of a token in `logprobs` of text completions: its text, or its bytes if they are no whole characters, as
/// in OpenAI's protocol.
fn token_name(tokenizer: &Tokenizer, id: u32, form: TokenForm) -> String {
    let bytes = tokenizer.token_bytes(id);
    match (form, std::str::from_utf8(&bytes)) {
        (TokenForm::Id, _) => token_text(tokenizer, id, form),
        (TokenForm::Text, Ok(text)) => text.to_owned(),
        (TokenForm::Text, Err(_)) => {
            bytes.iter().fold("bytes:".to_owned(), |name, byte| format!("{name}\\x{byte:02x}"))
        }
    }
}

/// Writer of `logprobs` of a text completion, in one part or several.
pub(crate) struct TextLogprobsWriter<'t> {
    tokenizer: &'t Tokenizer,
    form: TokenForm,
    /// Number of tokens that are still those of the prompt.
    prompt: usize,
    /// Decoders of the prompt and of the reply.
    decoders: [Detokenizer<'t>; 2],
    /// Number of characters before the next token.
    offset: usize,
}

impl<'t> TextLogprobsWriter<'t> {
    /// Begins with an echoed prompt of these ids, which is this text; without ids, with the reply.
    pub(crate) fn new(
        tokenizer: &'t Tokenizer,
        form: TokenForm,
        (ids, text): (&[u32], &str),
    ) -> Self {
        // Tokens that the tokenizer puts around a text are no part of it.
        let prompt = if tokenizer.decode_raw(ids) == text {
            tokenizer.detokenizer_raw()
        } else {
            tokenizer.detokenizer()
        };
        let decoders = [prompt, tokenizer.detokenizer()];
        Self { tokenizer, form, prompt: ids.len(), decoders, offset: 0 }
    }

    /// Returns `logprobs` of the next tokens. `first` is the first token of an echoed prompt, which has no log-prob.
    pub(crate) fn part(&mut self, first: Option<u32>, steps: &[Step]) -> TextLogprobs {
        let mut part = TextLogprobs::default();
        if let Some(id) = first {
            part.tokens.push(token_name(self.tokenizer, id, self.form));
            part.token_logprobs.push(None);
            part.top_logprobs.push(None);
            part.text_offset.push(self.pass(id));
        }
        for step in steps {
            let (name, top) = self.top(step);
            part.tokens.push(name);
            part.token_logprobs.push(Some(logprob(step.logprob)));
            part.top_logprobs.push(Some(top));
            part.text_offset.push(self.pass(step.id));
        }
        part
    }

    /// Returns the position of a token in the text, in characters: that of the first one that is not complete before it.
    fn pass(&mut self, id: u32) -> usize {
        let before = self.offset;
        let of_reply = usize::from(self.prompt == 0);
        self.prompt = self.prompt.saturating_sub(1);
        self.offset += self.decoders[of_reply].push(id).chars().count();
        before
    }

    /// Returns the name of a token and the log-probs of the most probable ones, among which it always is. Of two tokens with one
    /// text, the less probable one is named by its id.
    fn top(&self, step: &Step) -> (String, Map<String, Value>) {
        let (mut top, mut own) = (Map::new(), None);
        let listed = step.top.iter().any(|&(id, _)| id == step.id);
        let sampled = (!listed).then_some((step.id, step.logprob));
        for (id, value) in step.top.iter().copied().chain(sampled) {
            let name = token_name(self.tokenizer, id, self.form);
            let name = if top.contains_key(&name) {
                token_text(self.tokenizer, id, TokenForm::Id)
            } else {
                name
            };
            if id == step.id {
                own = Some(name.clone());
            }
            top.insert(name, logprob(value).into());
        }
        (own.unwrap_or_default(), top)
    }
}
