//! Common arguments of commands about models: the model and its adapter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::failure::Failure;
use crate::cli::paths;
use crate::cli::terminal::tell;
use crate::files::{HfConfig, ModelFiles, ModelSource, read_file};
use crate::net::Model;
use crate::net::lora::is_adapter;
use crate::text::{ChatInput, Tokenizer};
use crate::tools::{CallFormat, ThoughtFormat};

/// Location of a model.
#[derive(Args, Debug, Clone)]
pub struct ModelArgs {
    /// Model: a Hugging Face directory, a GGUF file, `hf:ORG/NAME` or `hf:ORG/NAME@REVISION` on the hub, or `builtin:tiny`.
    #[arg(long, value_name = "MODEL")]
    model: String,
    /// Adapter on the model, a PEFT directory.
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// Additional variables of the chat template, a JSON object: `{"enable_thinking": false}`.
    #[arg(long, value_name = "JSON", value_parser = kwargs)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

impl ModelArgs {
    /// Loads the model, under the adapter if there is one, and its tokenizer.
    pub fn open(&self) -> Result<(Model, Arc<Tokenizer>), Failure> {
        let files = files(&self.model)?;
        let told = self.chat_template_kwargs.clone().unwrap_or_default();
        let tokenizer = Arc::new(Tokenizer::load(&files)?.with_template_kwargs(&told));
        let model = load(&files, self.adapter.as_deref())?;
        fits(&tokenizer, &model.config, &files)?;
        Ok((model, tokenizer))
    }
}

/// Checks that a tokenizer has no more tokens than the embedding has rows.
pub fn fits(tokenizer: &Tokenizer, config: &HfConfig, files: &ModelFiles) -> Result<(), Failure> {
    let (tokens, rows) = (tokenizer.len(), config.vocab_size);
    if tokens > rows {
        let place = files.describe();
        return Err(Failure(format!(
            "{place}: the tokenizer has {tokens} tokens, the embedding {rows} rows"
        )));
    }
    Ok(())
}

/// Parses variables of a chat template, except those that a conversation sets.
pub fn kwargs(text: &str) -> Result<Map<String, Value>, String> {
    let kwargs: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("no JSON object: {error}"))?;
    match kwargs.keys().find(|name| ChatInput::VARIABLES.contains(&name.as_str())) {
        Some(name) => Err(format!("`{name}` is what the conversation itself gives")),
        None => Ok(kwargs),
    }
}

/// Parses the name of a form of calls.
pub fn call_format(text: &str) -> Result<CallFormat, String> {
    serde_json::from_value(Value::from(text)).map_err(|_| {
        let names: Vec<String> = CallFormat::ALL.into_iter().map(CallFormat::name).collect();
        format!("no form of calls; write auto, {}", names.join(", "))
    })
}

/// Parses a form of thoughts.
pub fn thought_format(text: &str) -> Result<ThoughtFormat, String> {
    ThoughtFormat::try_from(text.to_owned())
}

/// Returns the source of a model. A directory must exist; a model on the hub need not be local yet.
pub fn source(path: &str) -> Result<ModelSource, Failure> {
    let source = ModelSource::parse(path)?;
    paths::model(&source)?;
    not_adapter(ModelFiles::new(&source))?;
    Ok(source)
}

/// Returns the files of a model, all present locally.
pub fn files(path: &str) -> Result<ModelFiles, Failure> {
    fetch_files(&source(path)?)
}

/// Returns the files of a source, after a download if they are on the hub.
pub fn fetch_files(source: &ModelSource) -> Result<ModelFiles, Failure> {
    source.fetch()?;
    not_adapter(ModelFiles::new(source))
}

fn not_adapter(files: ModelFiles) -> Result<ModelFiles, Failure> {
    match files.directory().filter(|dir| is_adapter(dir)) {
        None => Ok(files),
        Some(dir) => Err(Failure(format!(
            "{} is an adapter: give it as `--adapter`, and the model it is for as `--model`",
            dir.display()
        ))),
    }
}

/// Loads a model, with an adapter if one is given.
pub fn load(files: &ModelFiles, adapter: Option<&Path>) -> Result<Model, Failure> {
    let model = Model::load(files)?;
    if let Some(warning) = model.config.warning() {
        tell(format_args!("warning: {}: {warning}", files.describe()));
    }
    let Some(dir) = adapter else { return Ok(model) };
    paths::adapter(dir)?;
    Ok(model.load_adapter(dir)?)
}

/// Returns the name of the base model in an adapter's configuration.
pub fn base_name(dir: &Path) -> Result<Option<String>, Failure> {
    let path = dir.join(crate::net::lora::CONFIG_FILE);
    let read = read_file(&path).map_err(|e| e.to_string());
    let json = read.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string()));
    let json: Value = json.map_err(|e| Failure(format!("{}: {e}", path.display())))?;
    let (base, revision) = (json["base_model_name_or_path"].as_str(), json["revision"].as_str());
    Ok(base.map(|base| match revision {
        None => base.to_owned(),
        Some(revision) => format!("hf:{base}@{revision}"),
    }))
}
