//! Models of a configuration: everything in their files except the weights.

use std::collections::BTreeMap;
use std::path::Path;

use super::adapters::{AdapterStart, start_adapter};
use crate::check::purpose::Purpose;
use crate::config::source::missing::{self, WantedEntry};
use crate::config::source::{Problems, path, suggestion};
use crate::config::{Config, ModelConfig};
use crate::files::{HfConfig, ModelError, ModelFiles, Shards, builtin};
use crate::plan::{ModelSource, weights};
use crate::text::Tokenizer;
use crate::tools::{CallFormat, template_calls};

/// All models that can be opened.
pub(crate) type Models = BTreeMap<String, OpenedModel>;

/// A model with valid files.
pub(crate) struct OpenedModel {
    pub(crate) source: ModelSource,
    pub(crate) parameters: u64,
    pub(crate) shape: HfConfig,
    /// Tokenizer; `None` for a model on the hub that is not downloaded.
    pub(crate) tokenizer: Option<Tokenizer>,
    /// Adapter that adapters on this model start from.
    pub(crate) start: Option<AdapterStart>,
    /// Blocks of its GGUF file, if it is one.
    pub(crate) blocks: Option<ModelBlocks>,
}

/// Weights of a model that stay in the blocks of their file.
#[derive(Debug, Clone)]
pub(crate) struct ModelBlocks {
    /// Bytes of all weights in memory.
    pub(crate) bytes: u64,
    /// Kind of most numbers.
    pub(crate) kind: String,
}

/// Opens every model; what cannot be opened is reported, and what is odd about others added to the warnings.
pub(crate) fn open_models(
    config: &Config,
    base: &Path,
    purpose: Purpose,
    warnings: &mut Vec<String>,
    problems: &mut Problems<'_>,
) -> Models {
    let mut models = Models::new();
    for (name, model) in &config.models {
        let at = path(["models", name, "path"]);
        if problems.is_reported(&at) {
            continue;
        }
        let Some(source) = source(&model.path, &at, base, problems) else { continue };
        let start = start_adapter(name, model, base, problems);
        if let Some((message, help)) = missing(&model.path, &source, base) {
            problems.value(&at, message, help);
            continue;
        }
        let bare = purpose.is_elsewhere() && weights::absent(&source);
        match read(&source, bare) {
            Ok((parameters, shape, tokenizer)) => {
                warnings.extend(bare.then(|| without_weights(&source)));
                warnings.extend(shape.warning().map(|warning| format!("{source}: {warning}")));
                let tokenizer = tokenizer
                    .map(|tokenizer| tokenizer.with_template_kwargs(&model.chat_template_kwargs));
                warnings.extend(tokenizer.as_ref().and_then(|it| unread_calls(name, model, it)));
                let start = start.map(|start| start.compare_shape(&shape));
                let blocks = model_blocks(&source, &shape);
                let opened = OpenedModel { source, parameters, shape, tokenizer, start, blocks };
                models.insert(name.clone(), opened);
            }
            Err(wrong) => problems.value(&at, wrong.join("; "), help(&model.path, &source)),
        }
    }
    models
}

/// Returns the location of a model. An invalid name is reported.
fn source(
    given: &str,
    at: &[String],
    base: &Path,
    problems: &mut Problems<'_>,
) -> Option<ModelSource> {
    if let Some(name) = given.strip_prefix("builtin:") {
        if builtin::NAMES.contains(&name) {
            return Some(ModelSource::Builtin(name.to_owned()));
        }
        let message = format!("no built-in model is called {name:?}");
        problems.value(at, message, suggestion(name, builtin::NAMES.iter().copied()));
        return None;
    }
    if !given.starts_with("hf:") {
        return Some(ModelSource::at(base.join(given)));
    }
    let source = ModelSource::parse(given);
    source
        .map_err(|error| {
            let help = if cfg!(feature = "hub") {
                "`hf:ORG/NAME` or `hf:ORG/NAME@REVISION` names a model on the Hugging Face hub"
            } else {
                "or download the model, and write the path of its directory"
            };
            problems.value(at, error.to_string(), help.to_owned());
        })
        .ok()
}

/// Returns message and help for a model whose directory or file is not there.
fn missing(given: &str, source: &ModelSource, base: &Path) -> Option<(String, Option<String>)> {
    match source {
        ModelSource::Directory(dir) if !dir.is_dir() => {
            let (message, help) = nothing(given, dir, base);
            Some((message, Some(help)))
        }
        ModelSource::Gguf(file) if !file.is_file() => {
            let (given, wanted) = (Path::new(given), WantedEntry::Extension("gguf"));
            let help = missing::help(given, base, wanted);
            Some((missing::message(given, base, wanted), help))
        }
        _ => None,
    }
}

/// Returns message and help for a path that is not a directory.
fn nothing(given: &str, dir: &Path, base: &Path) -> (String, String) {
    let path = Path::new(given);
    if dir.is_file() {
        let message = format!("{} is a file; a model is a directory or a GGUF file", dir.display());
        let above = path.parent().unwrap_or(path).display();
        return (
            message,
            format!("name the directory that it is in, with `config.json`: `path = \"{above}\"`"),
        );
    }
    let message = missing::message(path, base, WantedEntry::Directory);
    let on_hub = missing::on_hub(path, base, |name| format!("`path = \"{name}\"`"));
    let help = match (missing::help(path, base, WantedEntry::Directory), on_hub) {
        (Some(help), _) if help.starts_with("did you mean") => help,
        (_, Some(on_hub)) => on_hub,
        (Some(help), None) if help.contains(" has no `") => format!("{help}; {RELATIVE}"),
        (Some(help), None) => help,
        (None, None) => RELATIVE.to_owned(),
    };
    (message, help)
}

const RELATIVE: &str = "`path` names a Hugging Face model directory, relative to the file that names it; `builtin:tiny` needs \
                        no files";

/// Returns help for a directory without `config.json`; `None` if it has one.
fn help(given: &str, source: &ModelSource) -> Option<String> {
    let ModelSource::Directory(dir) = source else { return None };
    if dir.join("config.json").is_file() {
        return None;
    }
    if dir.join("resolved.toml").is_file() {
        return Some(format!(
            "it is a run; a policy of a checkpoint is `{given}/checkpoints/STEP/policies/NAME`, or what `maverl export --run \
             {given} --out DIR` writes"
        ));
    }
    let inside = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let models = inside.filter(|entry| entry.path().join("config.json").is_file());
    let mut names: Vec<String> =
        models.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Some(match names.first() {
        Some(name) => format!("did you mean `{}`?", Path::new(given).join(name).display()),
        None => RELATIVE.to_owned(),
    })
}

/// Returns the warning about a chat template whose calls are not read.
fn unread_calls(name: &str, model: &ModelConfig, tokenizer: &Tokenizer) -> Option<String> {
    if model.calls.unwrap_or_default() != CallFormat::Auto {
        return None;
    }
    let warning = template_calls(tokenizer).warning()?;
    Some(format!("`models.{name}`: {warning}"))
}

/// Returns the warning about a model that can be planned with, but not trained.
fn without_weights(source: &ModelSource) -> String {
    format!(
        "{source} has no weights: its size is that of `config.json`, and `maverl train` needs `model.safetensors`, or \
         `model.safetensors.index.json` with its shards"
    )
}

/// Returns the number of parameters of a model, its shape, and its tokenizer; or all problems of its files. The number
/// of a `bare` model, which has no weights, is that of its configuration.
fn read(
    source: &ModelSource,
    bare: bool,
) -> Result<(u64, HfConfig, Option<Tokenizer>), Vec<String>> {
    let mut wrong: Vec<String> = Vec::new();
    let counted = match source {
        ModelSource::Directory(dir) if bare => weights::configured_parameters(dir, source),
        _ => weights::parameters(source),
    };
    let parameters = counted.map_err(|error| add_problem(error, &mut wrong));
    let shape = model_shape(source).map_err(|error| add_problem(error.to_string(), &mut wrong));
    let tokenizer = tokenizer(source).map_err(|error| add_problem(error.to_string(), &mut wrong));
    if let (Ok(shape), Ok(Some(tokenizer))) = (&shape, &tokenizer)
        && tokenizer.len() > shape.vocab_size
    {
        let (tokens, rows) = (tokenizer.len(), shape.vocab_size);
        let what =
            format!("{source}: the tokenizer has {tokens} tokens, the embedding {rows} rows");
        add_problem(what, &mut wrong);
    }
    match (parameters, shape, tokenizer) {
        (Ok(parameters), Ok(shape), Ok(tokenizer)) if wrong.is_empty() => {
            Ok((parameters, shape, tokenizer))
        }
        _ => Err(wrong),
    }
}

/// Adds a problem of a file. Of two messages about a file, the longer one has the remedy, and stays.
fn add_problem(what: String, problems: &mut Vec<String>) {
    problems.retain(|other| !what.starts_with(other.as_str()));
    if !problems.iter().any(|other| other.starts_with(&what)) {
        problems.push(what);
    }
}

/// Returns the blocks of a GGUF file, which was opened before; `None` of other sources.
fn model_blocks(source: &ModelSource, shape: &HfConfig) -> Option<ModelBlocks> {
    let ModelSource::Gguf(_) = source else { return None };
    let shards = Shards::open(&ModelFiles::new(source)).ok()?;
    let types = shards.stored_types().into_iter();
    let (kind, _) = types.max_by_key(|(_, [numbers, _])| *numbers)?;
    Some(ModelBlocks { bytes: shards.bytes_in_blocks(shape), kind: kind.to_uppercase() })
}

pub(crate) fn model_shape(source: &ModelSource) -> Result<HfConfig, ModelError> {
    HfConfig::load(&ModelFiles::new(source))
}

/// Loads a tokenizer and requires a chat template; `None` for a model on the hub that is not downloaded.
fn tokenizer(source: &ModelSource) -> Result<Option<Tokenizer>, ModelError> {
    if let ModelSource::Hub(snapshot) = source
        && !snapshot.dir.join("tokenizer.json").is_file()
    {
        return Ok(None);
    }
    let tokenizer = Tokenizer::load(&ModelFiles::new(source))?;
    tokenizer.require_template()?;
    Ok(Some(tokenizer))
}
