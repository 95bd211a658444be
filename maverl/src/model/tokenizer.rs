//! Text to ids and back, and the chat template of a model.

use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind, State, context};

use crate::model::ModelError;
use crate::model::files::ModelFiles;
use crate::trajectory::Message;

/// A tokenizer with its chat template.
pub struct Tokenizer {
    tokenizer: tokenizers::Tokenizer,
    template: Option<Environment<'static>>,
    bos: Option<String>,
    eos: Option<String>,
    stop_ids: Vec<u32>,
    place: String,
}

/// Why a text could not be encoded or a conversation rendered.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(
    /// What happened.
    pub String,
);

impl Tokenizer {
    /// Reads `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` and `generation_config.json` of a model.
    ///
    /// # Errors
    ///
    /// If the tokenizer is missing or damaged, or the chat template does not parse. A model without a template loads;
    /// only [`Tokenizer::render`] needs one.
    pub fn load(files: &ModelFiles) -> Result<Self, ModelError> {
        let place = files.describe();
        let failed =
            |file: &str, e: &dyn std::fmt::Display| ModelError(format!("{place}: {file}: {e}"));
        let tokenizer = tokenizers::Tokenizer::from_bytes(files.require("tokenizer.json")?)
            .map_err(|e| failed("tokenizer.json", &e))?;
        let json = |file: &str| -> Result<serde_json::Value, ModelError> {
            match files.read(file)? {
                None => Ok(serde_json::Value::Null),
                Some(bytes) => serde_json::from_slice(&bytes).map_err(|e| failed(file, &e)),
            }
        };
        let (config, generation) =
            (json("tokenizer_config.json")?, json("generation_config.json")?);
        let source = match files.read("chat_template.jinja")? {
            Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            None => template_source(&config["chat_template"]),
        };
        let template =
            source.map(parse_template).transpose().map_err(|e| failed("chat template", &e))?;
        let (bos, eos) = (special(&config["bos_token"]), special(&config["eos_token"]));
        let mut stop_ids = ids(&generation["eos_token_id"]);
        if stop_ids.is_empty() {
            stop_ids.extend(eos.as_deref().and_then(|eos| tokenizer.token_to_id(eos)));
        }
        Ok(Self { tokenizer, template, bos, eos, stop_ids, place })
    }

    /// Ids of a text, special tokens in it recognized, none added.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self
            .tokenizer
            .encode(text, false)
            .map_err(|e| TokenizerError(format!("cannot encode: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of ids, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, true).unwrap_or_default()
    }

    /// Text of ids, special tokens kept.
    pub fn decode_raw(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, false).unwrap_or_default()
    }

    /// Renders a conversation with the chat template; `generation_prompt` opens the assistant's next turn.
    ///
    /// # Errors
    ///
    /// If the model has no chat template, or the template fails or raises.
    pub fn render(
        &self,
        messages: &[Message],
        generation_prompt: bool,
    ) -> Result<String, TokenizerError> {
        let Some(template) = &self.template else {
            return Err(TokenizerError(self.no_template()));
        };
        let context = context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => generation_prompt,
            bos_token => self.bos.as_deref().unwrap_or(""),
            eos_token => self.eos.as_deref().unwrap_or(""),
        };
        let failed = |e: Error| TokenizerError(format!("{}: chat template: {e:#}", self.place));
        template.get_template("chat").map_err(failed)?.render(context).map_err(failed)
    }

    /// Checks that conversations can be rendered at all.
    ///
    /// # Errors
    ///
    /// If the model has no chat template.
    pub fn require_template(&self) -> Result<(), ModelError> {
        if self.template.is_some() { Ok(()) } else { Err(ModelError(self.no_template())) }
    }

    /// Ids that end a reply: `eos_token_id` of `generation_config.json`, else the tokenizer's end of sequence.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Entries of the vocabulary, added tokens included.
    pub fn len(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// Whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn no_template(&self) -> String {
        format!(
            "{}: no chat template: neither `chat_template.jinja` nor `chat_template` in `tokenizer_config.json`; an \
             instruction-tuned model has one, a base model needs one added",
            self.place
        )
    }
}

/// A template is a string, or a list of named ones of which `default` is taken.
fn template_source(value: &serde_json::Value) -> Option<String> {
    if let Some(source) = value.as_str() {
        return Some(source.to_owned());
    }
    let named = value.as_array()?.iter().find(|entry| entry["name"] == "default")?;
    Some(named["template"].as_str()?.to_owned())
}

/// A special token is a string, or an object with `content`.
fn special(value: &serde_json::Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    let id = |value: &serde_json::Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value.as_array() {
        Some(many) => many.iter().filter_map(id).collect(),
        None => id(value).into_iter().collect(),
    }
}

/// A template environment that behaves as the one of transformers.
fn parse_template(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax =
        minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("the template raised: {message}")))
    });
    // Training templates mark assistant spans; our masks come from the token ids themselves.
    let source = ["generation", "endgeneration"].iter().fold(source, |source, tag| {
        source
            .replace(&format!("{{% {tag} %}}"), "")
            .replace(&format!("{{%- {tag} %}}"), "")
            .replace(&format!("{{%- {tag} -%}}"), "")
    });
    environment.add_template_owned("chat", source)?;
    Ok(environment)
}

/// `json.dumps(value, ensure_ascii=False)`, which transformers installs as `tojson`.
#[expect(clippy::needless_pass_by_value, reason = "as templates hand over arguments")]
fn tojson(_: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<String, Error> {
    let failed = |e: serde_json::Error| Error::new(ErrorKind::BadSerialization, e.to_string());
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let json = serde_json::to_value(value).map_err(failed)?;
    let mut out = Vec::new();
    let written = match indent {
        None => serde::Serialize::serialize(
            &json,
            &mut serde_json::Serializer::with_formatter(&mut out, PythonJson),
        ),
        Some(indent) => {
            let indent = " ".repeat(indent);
            let pretty = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            serde::Serialize::serialize(
                &json,
                &mut serde_json::Serializer::with_formatter(&mut out, pretty),
            )
        }
    };
    written.map_err(failed)?;
    String::from_utf8(out).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))
}

/// `", "` and `": "` between items, as Python writes them.
struct PythonJson;

impl serde_json::ser::Formatter for PythonJson {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
