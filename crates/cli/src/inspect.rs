//! `maverl inspect`: content of a model or adapter.

mod files;
mod layers;
mod replies;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use safetensors::tensor::Metadata;
use serde::Serialize;
use serde_json::Value;

use self::files::{FileReport, list_embedded, list_files};
use self::replies::ReplySummary;
use super::{Failure, models, paths, print, tell, terminal};
use layers::{LayerKind, numbers};
use maverl::files::{HfConfig, ModelFiles, ModelSource, Shards};
use maverl::net::LoraConfig;
use maverl::net::lora::{Patterns, WEIGHTS_FILE, is_adapter};
use maverl::output;
use maverl::plan::{bytes, count, weights};
use maverl::table::Table;
use maverl::text::{ChatInput, ChatMessage, Tokenizer};

/// Maximum number of characters shown of a template's first line.
const LINE: usize = 80;

#[derive(Args)]
pub(super) struct InspectArgs {
    /// Model or adapter: a directory, a GGUF file, `hf:ORG/NAME` or `hf:ORG/NAME@REVISION` on the hub (which is downloaded),
    /// or `builtin:tiny`.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Print the description as JSON.
    #[arg(long)]
    json: bool,
}

/// Describes a model or an adapter.
pub(super) fn inspect(args: &InspectArgs) -> Result<ExitCode, Failure> {
    let source = ModelSource::parse(&args.model)?;
    paths::model(&source)?;
    source.fetch()?;
    let adapter = match &source {
        ModelSource::Directory(dir) => Some(dir).filter(|dir| is_adapter(dir)),
        ModelSource::Builtin(_) | ModelSource::Gguf(_) | ModelSource::Hub(_) => None,
    };
    match adapter {
        Some(dir) => {
            let report = AdapterReport::read(dir)?;
            print(&if args.json { output::json(&report)? } else { report.text() })
        }
        None => {
            let report = ModelReport::read(&source)?;
            print(&if args.json { output::json(&report)? } else { report.text() })
        }
    }
}

/// Report of a model.
#[derive(Debug, Serialize)]
struct ModelReport {
    model: String,
    architecture: String,
    layers: usize,
    layer_kinds: Vec<LayerKind>,
    parameters: ModelParts,
    /// Number of values that are not read.
    skipped: u64,
    /// Number of values of each stored type.
    dtypes: BTreeMap<String, u64>,
    /// Bytes of each stored type, of a GGUF file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    bytes: BTreeMap<String, u64>,
    vocabulary: Vocabulary,
    /// True if the output head is the embedding.
    tied: bool,
    /// Maximum length of a sequence in tokens.
    context: usize,
    chat_template: Option<TemplateSummary>,
    /// Forms of calls and thoughts; `None` without a chat template.
    replies: Option<ReplySummary>,
    special_tokens: Vec<Special>,
    /// Ids that end a reply.
    stop_ids: Vec<u32>,
    files: Vec<FileReport>,
}

/// Number of values in each part of a model.
#[derive(Debug, Serialize)]
struct ModelParts {
    total: u64,
    embedding: u64,
    attention: u64,
    mlp: u64,
    norms: u64,
    /// Number of values of the head; 0 if it is the embedding.
    head: u64,
}

#[derive(Debug, Serialize)]
struct Vocabulary {
    /// Number of tokens of the tokenizer.
    tokens: usize,
    /// Number of rows of the embedding.
    rows: usize,
}

#[derive(Debug, Serialize)]
struct TemplateSummary {
    names: Vec<String>,
    /// File of the template.
    file: String,
    first_line: String,
    /// True if the prompt of the next turn begins with the previous prompt and reply; `None` if the template fails.
    prefix_preserving: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Special {
    name: String,
    token: String,
    id: Option<u32>,
}

impl ModelReport {
    fn read(source: &ModelSource) -> Result<Self, Failure> {
        let files = ModelFiles::new(source);
        let json = files.require("config.json")?;
        let config = HfConfig::load(&files)?;
        if let Some(warning) = config.warning() {
            tell(format_args!("warning: {}: {warning}", files.describe()));
        }
        weights::parameters(source).map_err(Failure)?;
        let shards = Shards::matching(&files, &config)?;
        let tokenizer = Tokenizer::load(&files)?;
        models::fits(&tokenizer, &config, &files)?;
        let json: Value = serde_json::from_slice(&json)?;
        let stored = shards.stored_types();
        let in_blocks = stored.iter().filter(|_| matches!(source, ModelSource::Gguf(_)));
        let named = json["architectures"][0].as_str().or_else(|| json["model_type"].as_str());
        Ok(Self {
            model: files.describe(),
            architecture: named.unwrap_or("(none)").to_owned(),
            layers: config.layers.len(),
            layer_kinds: config.layer_kinds().into_iter().map(LayerKind::new).collect(),
            skipped: numbers(shards.skipped(&config)),
            parameters: ModelParts::of(&config),
            dtypes: stored.iter().map(|(name, [n, _])| (name.clone(), *n)).collect(),
            bytes: in_blocks.map(|(name, [_, bytes])| (name.clone(), *bytes)).collect(),
            vocabulary: Vocabulary { tokens: tokenizer.len(), rows: config.vocab_size },
            tied: config.tie_word_embeddings,
            context: config.max_position_embeddings,
            chat_template: template(&files, &tokenizer)?,
            replies: tokenizer.require_template().is_ok().then(|| ReplySummary::of(&tokenizer)),
            special_tokens: special(&tokenizer),
            stop_ids: tokenizer.stop_ids().to_vec(),
            files: match (source, files.directory()) {
                (ModelSource::Gguf(file), _) => vec![FileReport::read(file)?],
                (_, Some(dir)) => list_files(dir)?,
                (_, None) => list_embedded(&files)?,
            },
        })
    }

    fn text(&self) -> String {
        let ModelParts { total, embedding, attention, mlp, norms, head } = &self.parameters;
        let parts =
            [("embedding", embedding), ("attention", attention), ("mlp", mlp), ("norms", norms)];
        let parts = parts.iter().map(|(name, n)| format!("{name} {}", count(**n)));
        let head =
            if self.tied { "head tied".to_owned() } else { format!("head {}", count(*head)) };
        let parts: Vec<String> = parts.chain([head]).collect();
        let Vocabulary { tokens, rows } = self.vocabulary;
        let mut lines = vec![
            ("model", self.model.clone()),
            ("architecture", format!("{}, {} layers", self.architecture, self.layers)),
            ("parameters", format!("{} ({total}): {}", count(*total), parts.join(", "))),
            ("stored as", stored_types(&self.dtypes, &self.bytes)),
            ("vocabulary", format!("{tokens} tokens, {rows} rows of the embedding")),
            ("context", format!("{} tokens", self.context)),
        ];
        lines.splice(2..2, self.layer_kinds.iter().map(|kind| ("layers", kind.text())));
        if self.skipped > 0 {
            lines.push(("not read", format!("{} numbers of vision", count(self.skipped))));
        }
        match &self.chat_template {
            None => lines.push(("chat template", "none".to_owned())),
            Some(TemplateSummary { names, file, first_line, prefix_preserving }) => {
                let preserving = match prefix_preserving {
                    Some(true) => "prefix-preserving",
                    Some(false) => {
                        "not prefix-preserving: what the model said is rendered otherwise later"
                    }
                    None => "it refuses the test for prefixes",
                };
                lines.push((
                    "chat template",
                    format!("{} in {file}; {preserving}", names.join(", ")),
                ));
                lines.push(("", first_line.clone()));
            }
        }
        lines.extend(self.replies.iter().flat_map(ReplySummary::lines));
        for Special { name, token, id } in &self.special_tokens {
            let id = id.map_or_else(|| "not in the vocabulary".to_owned(), |id| id.to_string());
            lines.push(("special", format!("{name} {token:?} ({id})")));
        }
        lines.push(("stop ids", format!("{:?}", self.stop_ids)));
        laid_out(&lines, &self.files)
    }
}

impl ModelParts {
    fn of(config: &HfConfig) -> Self {
        let table = (config.vocab_size * config.hidden_size) as u64;
        let head = if config.tie_word_embeddings { 0 } else { table };
        let (mut attention, mut mlp) = (0, 0);
        for layer in &config.layers {
            attention += numbers(layer.mixer.tensors());
            mlp += numbers(layer.mlp.tensors());
        }
        let total = numbers(config.tensors());
        let norms = total - table - head - attention - mlp;
        Self { total, embedding: table, attention, mlp, norms, head }
    }
}

/// Report of an adapter.
#[derive(Debug, Serialize)]
struct AdapterReport {
    adapter: String,
    /// Name of its base model in the adapter's configuration.
    base: Option<String>,
    rank: usize,
    alpha: f64,
    rslora: bool,
    /// Factor on the product of its matrices.
    scale: f32,
    target_modules: Vec<String>,
    /// Options that are selected by expressions.
    #[serde(skip_serializing_if = "Patterns::is_empty")]
    patterns: Patterns,
    parameters: u64,
    dtypes: BTreeMap<String, u64>,
    files: Vec<FileReport>,
}

impl AdapterReport {
    fn read(dir: &Path) -> Result<Self, Failure> {
        let config = LoraConfig::read(dir)?;
        let header = weights::file(&dir.join(WEIGHTS_FILE)).map_err(Failure)?;
        let dtypes = dtypes(&[header]);
        Ok(Self {
            adapter: dir.display().to_string(),
            base: models::base_name(dir)?,
            rank: config.rank,
            alpha: config.alpha,
            rslora: config.rslora,
            scale: config.scale(),
            parameters: dtypes.values().sum(),
            dtypes,
            target_modules: config.target_modules,
            patterns: config.patterns,
            files: list_files(dir)?,
        })
    }

    fn text(&self) -> String {
        let base = self.base.as_deref().unwrap_or("(not said)").to_owned();
        let kind = if self.rslora { "rank-stabilized LoRA" } else { "LoRA" };
        let Self { rank, alpha, scale, .. } = self;
        let mut lines = vec![
            ("adapter", self.adapter.clone()),
            ("base", base),
            ("kind", format!("{kind}, rank {rank}, alpha {alpha}, scale {scale}")),
            ("targets", self.patterns.module_words(&self.target_modules)),
            ("parameters", format!("{} ({})", count(self.parameters), self.parameters)),
            ("stored as", stored_types(&self.dtypes, &BTreeMap::new())),
        ];
        let Patterns { rank_pattern, alpha_pattern, .. } = &self.patterns;
        lines
            .extend(rank_pattern.iter().map(|(name, rank)| ("rank of", format!("{name}: {rank}"))));
        lines.extend(alpha_pattern.iter().map(|(name, a)| ("alpha of", format!("{name}: {a}"))));
        laid_out(&lines, &self.files)
    }
}

fn dtypes(headers: &[Metadata]) -> BTreeMap<String, u64> {
    let mut dtypes = BTreeMap::new();
    for info in headers.iter().flat_map(|header| header.tensors().into_values()) {
        let n = info.shape.iter().map(|&n| n as u64).product::<u64>();
        *dtypes.entry(format!("{:?}", info.dtype).to_lowercase()).or_default() += n;
    }
    dtypes
}

/// Formats how many values each type has, and their bytes where they are known.
fn stored_types(dtypes: &BTreeMap<String, u64>, sizes: &BTreeMap<String, u64>) -> String {
    let size = |dtype: &str| sizes.get(dtype).map_or(String::new(), |n| format!(", {}", bytes(*n)));
    match dtypes.iter().next() {
        Some((dtype, n)) if dtypes.len() == 1 && !sizes.is_empty() => {
            format!("{dtype} ({}{})", count(*n), size(dtype))
        }
        Some((dtype, _)) if dtypes.len() == 1 => dtype.clone(),
        _ => {
            let each =
                dtypes.iter().map(|(dtype, n)| format!("{dtype} ({}{})", count(*n), size(dtype)));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

fn special(tokenizer: &Tokenizer) -> Vec<Special> {
    let named = tokenizer.named_tokens();
    named
        .map(|(name, token)| Special {
            name: name.to_owned(),
            token: token.to_owned(),
            id: tokenizer.token_id(token),
        })
        .collect()
}

fn template(files: &ModelFiles, tokenizer: &Tokenizer) -> Result<Option<TemplateSummary>, Failure> {
    if tokenizer.template_names().is_empty() {
        return Ok(None);
    }
    let (file, source) = match files.read("chat_template.jinja")? {
        Some(source) => ("chat_template.jinja", String::from_utf8_lossy(&source).into_owned()),
        None => {
            let config = files.read("tokenizer_config.json")?.unwrap_or_default();
            let config: Value = serde_json::from_slice(&config).unwrap_or_default();
            let template = &config["chat_template"];
            let first = template.as_str().or_else(|| template[0]["template"].as_str());
            ("tokenizer_config.json", first.unwrap_or_default().to_owned())
        }
    };
    let first = source.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let end = first.char_indices().nth(LINE);
    let first_line = end.map_or(first.to_owned(), |(end, _)| format!("{}...", &first[..end]));
    let names = tokenizer.template_names().to_vec();
    let prefix_preserving = prefix_preserving(tokenizer);
    Ok(Some(TemplateSummary { names, file: file.to_owned(), first_line, prefix_preserving }))
}

/// Returns true if the prompt of the next turn begins with the previous prompt and the model's reply.
fn prefix_preserving(tokenizer: &Tokenizer) -> Option<bool> {
    let (ask, reply) = (ChatMessage::new("user", "one"), "<think>\ntwo\n</think>\n\nthree");
    let first = tokenizer.render_chat(&ChatInput::open([ask.clone()])).ok()?;
    let answer = ChatMessage::new("assistant", reply);
    let next = ChatInput::open([ask, answer, ChatMessage::new("user", "four")]);
    let next = tokenizer.render_chat(&next).ok()?;
    let rest = next.text().strip_prefix(first.text());
    Some(rest.is_some_and(|rest| rest.starts_with(reply)))
}

/// Formats a line for each label, and one for each file.
fn laid_out(lines: &[(&str, String)], files: &[FileReport]) -> String {
    let files = files.iter().map(|file| ("file", format!("{} {}", file.name, bytes(file.bytes))));
    let mut table = Table::without_frame(["", ""]).prose(&[1]);
    let mut last = "";
    for (label, value) in lines.iter().cloned().chain(files) {
        // A repeated label is left empty.
        table.row([if label == last { "" } else { label }, &value]);
        last = label;
    }
    table.draw(terminal::width())
}
