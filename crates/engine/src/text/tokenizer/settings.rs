//! Settings in files next to `tokenizer.json`: named special tokens, chat templates, and the ids that end a reply.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::files::ModelFiles;
use crate::files::{ModelError, ModelErrorKind};

/// Settings of a model's tokenizer.
#[derive(Default)]
pub(super) struct TokenizerSettings {
    /// Named special tokens, such as `eos_token`. Templates use these names.
    pub(super) named: BTreeMap<String, String>,
    /// Other special tokens.
    pub(super) unnamed: Vec<String>,
    /// Tokens that `tokenizer_config.json` adds, by id.
    pub(super) added: BTreeMap<u32, Value>,
    /// `eos_token_id` of `generation_config.json`, or else of `config.json`.
    pub(super) stop_ids: Vec<u32>,
    /// Chat templates by name; a model's only one is `default`.
    pub(super) templates: BTreeMap<String, String>,
}

impl TokenizerSettings {
    /// Reads the settings in both layouts: that of transformers 4 with `special_tokens_map.json`, and that of
    /// transformers 5.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is damaged, or has an invalid value; the error names file and key.
    pub(super) fn read(files: &ModelFiles) -> Result<Self, ModelError> {
        let config = object(files, "tokenizer_config.json")?;
        let older = object(files, "special_tokens_map.json")?;
        // If both name a token, the newer file's entry comes last and wins.
        let entries = older.iter().chain(&config);
        let named = entries.clone().filter(|(name, _)| name.ends_with("_token"));
        let named =
            named.filter_map(|(name, token)| Some((name.clone(), content(token)?.to_owned())));
        let lists = ["additional_special_tokens", "extra_special_tokens"];
        let unnamed = entries.filter(|(key, _)| lists.contains(&key.as_str()));
        let unnamed = unnamed.flat_map(|(_, list)| match list {
            Value::Array(tokens) => tokens.iter().filter_map(content).collect(),
            Value::Object(tokens) => tokens.values().filter_map(content).collect(),
            _ => Vec::new(),
        });
        let mut stop_ids = eos(&object(files, "generation_config.json")?)
            .map_err(|e| invalid_value(files, "generation_config.json", &e))?;
        if stop_ids.is_empty() {
            stop_ids = eos(&object(files, "config.json")?)
                .map_err(|e| invalid_value(files, "config.json", &e))?;
        }
        let templates = all_templates(files, &config)?;
        Ok(Self {
            named: named.collect(),
            unnamed: unnamed.map(str::to_owned).collect(),
            added: added_tokens(config.get("added_tokens_decoder"))
                .map_err(|e| invalid_value(files, "tokenizer_config.json", &e))?,
            stop_ids,
            templates,
        })
    }
}

/// Reads the chat templates of a model by name: those in files of their own, or else those of a `tokenizer_config.json`.
fn all_templates(
    files: &ModelFiles,
    config: &Map<String, Value>,
) -> Result<BTreeMap<String, String>, ModelError> {
    let templates = templates(files)?;
    if !templates.is_empty() {
        return Ok(templates);
    }
    in_config(config.get("chat_template"))
        .map_err(|e| invalid_value(files, "tokenizer_config.json", &e))
}

/// Reads the chat templates of a model by name.
///
/// # Errors
///
/// If a file cannot be read or is damaged.
#[cfg(feature = "candle")]
pub(crate) fn template_sources(files: &ModelFiles) -> Result<BTreeMap<String, String>, ModelError> {
    all_templates(files, &object(files, "tokenizer_config.json")?)
}

/// Reads a file with a JSON object; a missing file counts as empty.
fn object(files: &ModelFiles, name: &str) -> Result<Map<String, Value>, ModelError> {
    let Some(bytes) = files.read(name)? else { return Ok(Map::new()) };
    serde_json::from_slice(&bytes)
        .map_err(|e| ModelError::invalid_at(format_args!("{}: {name}", files.describe()), e))
}

/// Returns the error of a value in a file.
fn invalid_value(files: &ModelFiles, name: &str, what: &str) -> ModelError {
    let message = format!("{}: {name}: {what}", files.describe());
    ModelError::new(ModelErrorKind::Invalid, message)
}

/// Reads the text of a file.
fn utf8_text(files: &ModelFiles, name: &str, bytes: Vec<u8>) -> Result<String, ModelError> {
    String::from_utf8(bytes)
        .map_err(|e| ModelError::invalid_at(format_args!("{}: {name}", files.describe()), e))
}

/// Returns the content of a token: a string, or an object with `content`.
fn content(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str()).filter(|text| !text.is_empty())
}

/// Returns `eos_token_id`: null, a number, or a list of numbers.
fn eos(config: &Map<String, Value>) -> Result<Vec<u32>, String> {
    let value = config.get("eos_token_id").unwrap_or(&Value::Null);
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(many) => many.iter().map(eos_id).collect(),
        one => Ok(vec![eos_id(one)?]),
    }
}

fn eos_id(value: &Value) -> Result<u32, String> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| format!("`eos_token_id` is {value}, not an id or a list of ids"))
}

fn added_tokens(tokens: Option<&Value>) -> Result<BTreeMap<u32, Value>, String> {
    let entries = tokens.and_then(Value::as_object).into_iter().flatten();
    let entries = entries.map(|(id, token)| match id.parse() {
        Ok(id) => Ok((id, token.clone())),
        Err(_) => Err(format!("`added_tokens_decoder` has the key {id:?}, which is not an id")),
    });
    entries.collect()
}

/// Reads templates in files of their own, which take precedence over those in `tokenizer_config.json`.
fn templates(files: &ModelFiles) -> Result<BTreeMap<String, String>, ModelError> {
    let mut templates = BTreeMap::new();
    if let Some(bytes) = files.read(MAIN_TEMPLATE)? {
        let source = utf8_text(files, MAIN_TEMPLATE, bytes.into_owned())?;
        templates.insert("default".to_owned(), source);
    }
    for file in files.list(FURTHER_TEMPLATES)? {
        let name = Path::new(&file).file_stem().and_then(|stem| stem.to_str());
        if let (Some(name), Some(bytes)) =
            (name.filter(|_| file.ends_with(".jinja")), files.read(&file)?)
        {
            templates.insert(name.to_owned(), utf8_text(files, &file, bytes.into_owned())?);
        }
    }
    Ok(templates)
}

const MAIN_TEMPLATE: &str = "chat_template.jinja";

/// Folder of additional templates, one file each.
pub(crate) const FURTHER_TEMPLATES: &str = "additional_chat_templates";

/// Reads `chat_template`: a template, or a list of `{"name": ..., "template": ...}`.
fn in_config(value: Option<&Value>) -> Result<BTreeMap<String, String>, String> {
    match value {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::String(source)) => Ok([("default".to_owned(), source.clone())].into()),
        Some(Value::Array(entries)) => entries.iter().map(named_template).collect(),
        Some(_) => {
            Err("`chat_template` is neither a string nor a list of named templates".to_owned())
        }
    }
}

fn named_template(entry: &Value) -> Result<(String, String), String> {
    match (&entry["name"], &entry["template"]) {
        (Value::String(name), Value::String(template)) => Ok((name.clone(), template.clone())),
        _ => Err("an entry of the list `chat_template` lacks `name` or `template`, both strings"
            .to_owned()),
    }
}
