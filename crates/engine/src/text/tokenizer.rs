//! Tokenizer: encoding, decoding, and the chat template of a model.

mod chat;
mod continuation;
mod detokenize;
mod remedy;
mod settings;
mod special;
mod stored;
mod template;
mod unread;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use tokenizers::{AddedToken, ModelWrapper};

pub use self::chat::{ChatInput, ChatMessage};
pub use self::continuation::Continuation;
pub use self::detokenize::Detokenizer;
pub(crate) use self::settings::FURTHER_TEMPLATES;
use self::settings::TokenizerSettings;
#[cfg(feature = "candle")]
pub(crate) use self::settings::template_sources;
pub use self::special::Rendered;
use self::special::Specials;
pub use self::stored::Piece;
use self::template::Templates;
use crate::files::ModelFiles;
use crate::files::{ModelError, ModelErrorKind};
use crate::message::Message;
use crate::text::TokenizerError;

/// A tokenizer with its chat template.
pub struct Tokenizer {
    tokenizer: tokenizers::Tokenizer,
    specials: Specials,
    templates: Option<Templates>,
    /// Variables of every template: special tokens by name.
    variables: Map<String, Value>,
    /// Additional template variables of the configuration.
    told: Map<String, Value>,
    stop_ids: Vec<u32>,
    /// True if tokens are byte-level: each token is a sequence of bytes.
    byte_level: bool,
    /// True if the chat template uses tools; computed on first use.
    takes_tools: OnceLock<bool>,
    /// Length in bytes of the longest token; computed on first use.
    longest: OnceLock<usize>,
    place: String,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and, if they exist, `tokenizer_config.json`, `special_tokens_map.json`,
    /// `chat_template.jinja`, `additional_chat_templates/`, `generation_config.json` and `config.json` of a model.
    ///
    /// Truncation, padding and dropout of `tokenizer.json` are turned off. The date in templates (`strftime_now`) is
    /// always 26 July 2024, so that a run is the same on every day; see [`Tokenizer::with_date`].
    ///
    /// # Errors
    ///
    /// If the tokenizer is missing or damaged, another file is damaged, or a chat template does not parse. A model
    /// without a template loads; only [`Tokenizer::render`] needs one.
    pub fn load(files: &ModelFiles) -> Result<Self, ModelError> {
        let place = files.describe();
        let json = match files.read("tokenizer.json")? {
            None if files.directory().is_some_and(|dir| dir.is_dir()) => {
                return Err(ModelError::new(ModelErrorKind::NotFound, remedy::no_tokenizer(files)));
            }
            _ => files.require("tokenizer.json")?,
        };
        let settings = TokenizerSettings::read(files)?;
        let (tokenizer, specials) = catch_panic(|| parse(&json, &settings))
            .and_then(|parsed| parsed)
            .map_err(|e| ModelError::invalid_at(format_args!("{place}: tokenizer.json"), e))?;
        let templates = (!settings.templates.is_empty())
            .then(|| Templates::parse(settings.templates))
            .transpose()
            .map_err(|e| ModelError::invalid_at(&place, e))?;
        let mut stop_ids = settings.stop_ids;
        let eos = settings.named.get("eos_token").and_then(|eos| tokenizer.token_to_id(eos));
        stop_ids.extend(eos.filter(|eos| !stop_ids.contains(eos)));
        let variables =
            settings.named.into_iter().map(|(name, token)| (name, Value::String(token))).collect();
        let bare = Self::without_template(tokenizer, specials, place);
        Ok(Self { templates, variables, stop_ids, ..bare })
    }

    /// Adds template variables, such as `enable_thinking`. Variables of a conversation
    /// ([`ChatInput::chat_template_kwargs`]) override them.
    #[must_use]
    pub fn with_template_kwargs(mut self, variables: &Map<String, Value>) -> Self {
        self.told.extend(variables.clone());
        self
    }

    /// Sets the date that chat templates get.
    #[must_use]
    pub fn with_date(mut self, now: jiff::civil::DateTime) -> Self {
        if let Some(templates) = &mut self.templates {
            templates.tell(now);
        }
        self
    }

    /// Encodes a text. Special tokens in it are recognized; none are added.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_text(text, false)
    }

    /// Encodes a text, with special tokens recognized, and adds the tokens that the tokenizer puts around a text (such
    /// as Llama's `<|begin_of_text|>`). The result equals `tokenizer(text)` of `transformers`.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode it.
    pub fn encode_framed(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_text(text, true)
    }

    /// Encodes untrusted text: a special token in it is ordinary text.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode it.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_rendered(&self.specials.all_spelled(text))
    }

    /// Encodes a rendered conversation. A special token is special where the template wrote it, and ordinary text where
    /// a message contains it. A conversation whose messages contain none has the same ids as in `transformers`.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode it.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError> {
        if rendered.spelled_ranges().is_empty() {
            return self.encode(rendered.text());
        }
        catch_panic(|| self.specials.encode(&self.tokenizer, rendered))?
    }

    fn encode_text(&self, text: &str, framed: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = catch_panic(|| self.tokenizer.encode_fast(text, framed))?
            .map_err(TokenizerError::of_encoding)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes ids without special tokens; U+FFFD if the tokenizer has no text for them.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.decode_ids(ids, true)
    }

    /// Decodes ids without special tokens but for `kept`: those of a form of replies.
    pub fn decode_keeping(&self, ids: &[u32], kept: &[u32]) -> String {
        if kept.is_empty() {
            return self.decode(ids);
        }
        let shown = ids.iter().copied().filter(|id| kept.contains(id) || !self.is_special(*id));
        self.decode_raw(&shown.collect::<Vec<_>>())
    }

    /// Decodes ids with special tokens; U+FFFD if the tokenizer has no text for them.
    pub fn decode_raw(&self, ids: &[u32]) -> String {
        self.decode_ids(ids, false)
    }

    fn decode_ids(&self, ids: &[u32], skip_special: bool) -> String {
        let text = catch_panic(|| self.tokenizer.decode(ids, skip_special).ok());
        text.ok().flatten().unwrap_or_else(|| char::REPLACEMENT_CHARACTER.to_string())
    }

    /// Returns a streaming decoder that omits special tokens.
    pub fn detokenizer(&self) -> Detokenizer<'_> {
        Detokenizer::new(self, false)
    }

    /// Returns a streaming decoder that keeps special tokens.
    pub fn detokenizer_raw(&self) -> Detokenizer<'_> {
        Detokenizer::new(self, true)
    }

    /// Returns the token of an id; `None` if the id is unknown, or special and `keep_special` is false.
    fn token(&self, id: u32, keep_special: bool) -> Option<String> {
        let token = self.tokenizer.id_to_token(id)?;
        let special = self.tokenizer.get_added_vocabulary().is_special_token(&token);
        (keep_special || !special).then_some(token)
    }

    /// Renders messages with the chat template; `generation_prompt` starts the assistant's next turn.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::render_chat`].
    pub fn render(
        &self,
        messages: &[Message],
        generation_prompt: bool,
    ) -> Result<Rendered, TokenizerError> {
        let add_generation_prompt = generation_prompt;
        self.render_chat(&ChatInput { add_generation_prompt, ..ChatInput::new(messages) })
    }

    /// Renders a conversation with the chat template.
    ///
    /// # Errors
    ///
    /// If the model has no chat template, or none of the name; if the template fails or raises; or if it does not copy
    /// a special token of a message unchanged.
    pub fn render_chat(&self, chat: &ChatInput) -> Result<Rendered, TokenizerError> {
        let Some(templates) = &self.templates else {
            return Err(TokenizerError::Template(self.no_template()));
        };
        let name = templates.choose(chat).map_err(|e| e.at(&self.place))?;
        let rendered = self.specials.render(&chat.variables(), |variables| {
            let mut all = self.variables.clone();
            all.extend(self.told.clone());
            all.extend(variables.clone());
            templates.render(name, &all)
        });
        rendered.map_err(|e| e.at(&self.place))
    }

    /// Returns true if the chat template uses the tools of a conversation.
    pub fn takes_tools(&self) -> bool {
        const NAME: &str = "name_of_a_tool";
        *self.takes_tools.get_or_init(|| {
            let parameters = json!({"type": "object", "properties": {}});
            let function = json!({"name": NAME, "description": "", "parameters": parameters});
            let tools = Some(vec![json!({"type": "function", "function": function})]);
            let asked = [ChatMessage::new("user", "x")];
            let rendered = self.render_chat(&ChatInput { tools, ..ChatInput::open(asked) });
            rendered.is_ok_and(|rendered| rendered.text().contains(NAME))
        })
    }

    /// Returns an error if the model has no chat template.
    ///
    /// # Errors
    ///
    /// If the model has no chat template.
    pub fn require_template(&self) -> Result<(), ModelError> {
        match self.templates {
            Some(_) => Ok(()),
            None => Err(ModelError::new(ModelErrorKind::Invalid, self.no_template())),
        }
    }

    /// Returns the names of the chat templates; a model's only one is `default`.
    pub fn template_names(&self) -> &[String] {
        self.templates.as_ref().map(Templates::names).unwrap_or_default()
    }

    /// Returns the ids that end a reply: `eos_token_id` of `generation_config.json` (or of `config.json`), and the
    /// tokenizer's own `eos_token`.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Iterates over named special tokens, with their names, such as `eos_token`.
    pub fn named_tokens(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().filter_map(|(name, token)| Some((name.as_str(), token.as_str()?)))
    }

    /// Returns the id of a token, special or not.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Returns true if an id is a token.
    pub fn has(&self, id: u32) -> bool {
        self.tokenizer.id_to_token(id).is_some()
    }

    /// Returns the size of the vocabulary, added tokens included.
    pub fn len(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// Returns true if the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest length in bytes of a text of `tokens` tokens: longer ones need not be encoded to know that they have
    /// more tokens.
    ///
    /// - A normalizer may shorten a text, to a quarter at most by Unicode's normal forms.
    /// - Tokenizers that drop characters, such as repeated blanks, may encode longer texts in fewer tokens. These texts are
    ///   beyond the bound too.
    pub fn most_bytes(&self, tokens: usize) -> usize {
        const SHORTENED: usize = 4;
        let ids = 0..u32::try_from(self.len()).unwrap_or(u32::MAX);
        let longest = *self
            .longest
            .get_or_init(|| ids.map(|id| self.token_bytes(id).len()).max().unwrap_or(1));
        let factor = if self.tokenizer.get_normalizer().is_some() { SHORTENED } else { 1 };
        tokens.saturating_mul(longest).saturating_mul(factor)
    }

    fn no_template(&self) -> String {
        remedy::no_template(&self.place)
    }
}

/// Creates a tokenizer as `transformers` does: adds the tokens of the configuration, and makes special every token that
/// it names or that ends a reply.
fn parse(
    json: &[u8],
    settings: &TokenizerSettings,
) -> Result<(tokenizers::Tokenizer, Specials), TokenizerError> {
    let json = std::str::from_utf8(json).map_err(TokenizerError::of_files)?;
    // `from_bytes` is generic: the reader of all kinds of tokenizers would be compiled again here.
    let mut tokenizer: tokenizers::Tokenizer = json.parse().map_err(TokenizerError::of_files)?;
    tokenizer.with_padding(None).with_truncation(None).map_err(TokenizerError::of_files)?;
    if let ModelWrapper::BPE(bpe) = tokenizer.get_model()
        && bpe.dropout.is_some()
    {
        let mut bpe = bpe.clone();
        bpe.dropout = None;
        tokenizer.with_model(bpe);
    }
    // Caches of words are of each thread, and grow with every text.
    let mut model = tokenizer.get_model().clone();
    model.resize_cache(0);
    tokenizer.with_model(model);
    add(&mut tokenizer, settings)?;
    let stops = settings.stop_ids.iter().filter_map(|&id| tokenizer.id_to_token(id));
    let special: Vec<String> =
        settings.named.values().chain(&settings.unnamed).cloned().chain(stops).collect();
    let added = tokenizer.get_added_tokens_decoder();
    let promoted: Vec<AddedToken> = special
        .into_iter()
        .filter_map(|token| {
            let id = tokenizer.token_to_id(&token)?;
            let known = added.get(&id).cloned();
            Some(known.unwrap_or_else(|| AddedToken::from(token, true)).special(true))
        })
        .filter(|token| !tokenizer.get_added_vocabulary().is_special_token(&token.content))
        .collect();
    tokenizer.add_special_tokens(promoted).map_err(TokenizerError::of_files)?;
    let specials = Specials::new(&tokenizer)?;
    Ok((tokenizer, specials))
}

/// Adds the tokens of `added_tokens_decoder` that `tokenizer.json` lacks.
fn add(
    tokenizer: &mut tokenizers::Tokenizer,
    settings: &TokenizerSettings,
) -> Result<(), TokenizerError> {
    for (&id, token) in &settings.added {
        let token: AddedToken = serde_json::from_value(token.clone())
            .map_err(|e| TokenizerError::Files(format!("`added_tokens_decoder` {id}: {e}")))?;
        if tokenizer.token_to_id(&token.content).is_some() {
            continue;
        }
        let content = token.content.clone();
        tokenizer.add_tokens([token]).map_err(TokenizerError::of_files)?;
        if tokenizer.token_to_id(&content) != Some(id) {
            return Err(TokenizerError::Files(format!(
                "`added_tokens_decoder` of `tokenizer_config.json` gives {content:?} the id {id}, which is not the next \
                 one that is free; save the tokenizer anew so that `tokenizer.json` holds all tokens"
            )));
        }
    }
    Ok(())
}

/// Runs work that may panic. `tokenizers` indexes and unwraps by the content of `tokenizer.json`, which cannot be
/// validated beforehand; a damaged file must not end the process.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, TokenizerError> {
    caught_in(work).map_err(|text| {
        TokenizerError::Files(format!(
            "the tokenizer panicked, as it does on damaged files: {text}"
        ))
    })
}

/// Returns the result of the work, or the message of its panic.
fn caught_in<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        text.to_owned()
    })
}

#[cfg(test)]
mod tests;
