//! Models and adapters as GGUF files, which llama.cpp loads and programs that are built on it.
//!
//! One tensor is in memory at a time. Rows whose width is no multiple of a kind's blocks get another kind, as llama.cpp's own
//! quantizer gives it, and the report counts them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use serde_json::Value;

use crate::files::gguf::write::{Change, Meta, WrittenNumbers, WrittenTensor, write_file};
use crate::files::gguf::{
    ArchitectureKeys, NumberKind, TokenizerFiles, architecture_keys, name_beside_layers,
    tokenizer_keys,
};
use crate::files::save::HostTensor as _;
use crate::files::{ModelError, ModelErrorKind, ModelFiles};
use crate::net::Model;
use crate::text::{Tokenizer, template_sources};

/// Options of a GGUF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufOptions {
    /// NumberKind of all matrices; of `Q4K`, `Q5K` and `Q6K`, embedding and head are `Q6K`. Vectors are always f32.
    pub kind: NumberKind,
    /// Name of the way to split texts, where llama.cpp's is not known (`tokenizer.ggml.pre`).
    pub pre: Option<String>,
    /// Name of the model.
    pub name: String,
}

/// Content of a file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufReport {
    /// Number of matrices.
    pub matrices: usize,
    /// Number of matrices of another kind than was asked for, by their width and kind.
    pub others: BTreeMap<(usize, NumberKind), usize>,
    /// Size of the file.
    pub bytes: u64,
}

impl Model {
    /// Writes the base as a GGUF file, with the tokenizer and the chat templates of `files`.
    ///
    /// # Errors
    ///
    /// If llama.cpp has no such architecture or tokenizer, a number is not finite, or the file cannot be written.
    pub fn save_gguf(
        &self,
        path: &Path,
        files: &ModelFiles,
        options: &GgufOptions,
    ) -> Result<GgufReport, ModelError> {
        self.require_weights()?;
        let refused = |what: String| ModelError::new(ModelErrorKind::Argument, what);
        let mut keys = architecture_keys(&self.config).map_err(refused)?;
        let tensors = self.gguf_tensors(&mut keys, options.kind).map_err(refused)?;
        let mut metadata = general(&keys, "model", &options.name);
        metadata.push(("general.file_type".to_owned(), Meta::Whole(file_type(options.kind))));
        metadata.push(("general.quantization_version".to_owned(), Meta::Whole(2)));
        metadata.append(&mut keys.keys);
        let tokenizer = Tokenizer::load(files)?;
        let json: Value = tokenizer
            .to_json()
            .map_err(|error| ModelError::invalid_at(files.describe(), error))
            .and_then(|json| {
                serde_json::from_str(&json).map_err(|e| ModelError::invalid_at(files.describe(), e))
            })?;
        let named = tokenizer.named_tokens();
        let of_tokenizer = TokenizerFiles {
            tokenizer: &json,
            named: named.map(|(name, token)| (name.to_owned(), token.to_owned())).collect(),
            templates: template_sources(files)?,
            ends: tokenizer.stop_ids().to_vec(),
            pre: options.pre.as_deref(),
        };
        let rows = self.config.vocab_size;
        metadata.extend(tokenizer_keys(&of_tokenizer, rows).map_err(refused)?);
        written(path, &metadata, &tensors, options.kind)
    }

    /// Returns the tensors of a file.
    fn gguf_tensors<'a>(
        &'a self,
        keys: &mut ArchitectureKeys,
        kind: NumberKind,
    ) -> Result<Vec<WrittenTensor<'a>>, String> {
        let mut tensors: Vec<WrittenTensor<'a>> = Vec::new();
        for (name, numbers) in keys.tensors.drain(..) {
            let (name, dims, numbers) =
                (name.to_owned(), vec![numbers.len()], WrittenNumbers::Own(numbers));
            tensors.push(WrittenTensor {
                name,
                dims,
                kind: NumberKind::F32,
                change: Change::None,
                numbers,
            });
        }
        for (name, var) in self.weights.vars() {
            let place = place(keys, name);
            let (own, expert) =
                place.ok_or_else(|| format!("tensor `{name}` has no name in llama.cpp"))?;
            // The maps of an expert follow each other.
            let known = tensors.iter_mut().rev().take(4).find(|tensor| tensor.name == own);
            if let Some(WrittenTensor { dims, numbers: WrittenNumbers::Tensors(parts), .. }) = known
            {
                dims[0] += 1;
                parts.push(var);
                continue;
            }
            let dims: Vec<usize> =
                expert.map(|_| 1).into_iter().chain(var.shape().iter().copied()).collect();
            let kind = kind_of(kind, &own, &dims);
            let change = self.change(keys, &own);
            let numbers = WrittenNumbers::Tensors(vec![var]);
            tensors.push(WrittenTensor { name: own, dims, kind, change, numbers });
        }
        Ok(tensors)
    }

    /// Returns how the numbers of a tensor differ in a file.
    fn change(&self, keys: &ArchitectureKeys, name: &str) -> Change {
        let part = name.rsplit('.').nth(1).unwrap_or_default();
        let heads = self.config.heads();
        match part {
            "attn_q" if keys.architecture.paired => Change::Pairs(heads.q),
            "attn_k" if keys.architecture.paired => Change::Pairs(heads.kv),
            _ if keys.architecture.one_plus && part.ends_with("norm") => Change::PlusOne,
            _ => Change::None,
        }
    }

    /// Writes the adapter as a GGUF file, for `llama-server --lora`. Its matrices have a kind without blocks.
    ///
    /// ```text
    /// W + alpha / r B A
    /// ```
    ///
    /// All maps have one alpha in a file: B is multiplied by what differs.
    ///
    /// # Errors
    ///
    /// If there is no adapter, llama.cpp has no such architecture, or the file cannot be written.
    pub fn save_gguf_adapter(
        &self,
        path: &Path,
        options: &GgufOptions,
    ) -> Result<GgufReport, ModelError> {
        let Some(adapter) = self.adapter() else {
            return Err(ModelError::wrong_argument("there is no adapter to write"));
        };
        let refused = |what: String| ModelError::new(ModelErrorKind::Argument, what);
        if options.kind.name().starts_with('Q') {
            return Err(refused("an adapter is written as f32, f16 or bf16".to_owned()));
        }
        let keys = architecture_keys(&self.config).map_err(refused)?;
        let alpha = adapter.config().alpha as f32;
        let mut tensors = Vec::new();
        for (target, ab) in adapter.pairs() {
            let name = place(&keys, &target.weight).filter(|(_, expert)| expert.is_none());
            let (name, _) =
                name.ok_or_else(|| refused(format!("`{}` has no name in llama.cpp", target.name)))?;
            let change = match self.change(&keys, &name) {
                Change::Pairs(heads) => Change::Pairs(heads),
                Change::None | Change::PlusOne => Change::None,
            };
            let factor = target.scale * target.rank as f32 / alpha;
            for (var, (end, change)) in ab.into_iter().zip([("a", Change::None), ("b", change)]) {
                let numbers = if end == "b" && (factor - 1.0).abs() > 1e-6 {
                    WrittenNumbers::Own(var.values().iter().map(|value| factor * value).collect())
                } else {
                    WrittenNumbers::Tensors(vec![var])
                };
                let (name, dims) = (format!("{name}.lora_{end}"), var.shape().to_vec());
                tensors.push(WrittenTensor { name, dims, kind: options.kind, change, numbers });
            }
        }
        let mut metadata = general(&keys, "adapter", &options.name);
        metadata.push(("adapter.type".to_owned(), Meta::Text("lora".to_owned())));
        metadata.push(("adapter.lora.alpha".to_owned(), Meta::Float(alpha)));
        metadata.push(("general.file_type".to_owned(), Meta::Whole(file_type(options.kind))));
        written(path, &metadata, &tensors, options.kind)
    }
}

/// Returns the keys that every file has.
fn general(keys: &ArchitectureKeys, kind: &str, name: &str) -> Vec<(String, Meta)> {
    let texts = [("architecture", keys.architecture.name), ("type", kind), ("name", name)];
    let keys = texts.map(|(key, text)| (format!("general.{key}"), Meta::Text(text.to_owned())));
    keys.into()
}

/// Returns the name of a tensor in a file, and the number of the expert that it belongs to.
fn place(keys: &ArchitectureKeys, name: &str) -> Option<(String, Option<usize>)> {
    let Some((_, rest)) = name.split_once(".layers.") else {
        return Some((name_beside_layers(name)?, None));
    };
    let (layer, rest) = rest.split_once('.')?;
    keys.architecture.name_in_layer(layer.parse().ok()?, rest)
}

/// Returns the kind of a tensor.
fn kind_of(kind: NumberKind, name: &str, dims: &[usize]) -> NumberKind {
    let [.., columns] = dims else { return NumberKind::F32 };
    if dims.len() < 2 || name.contains("ffn_gate_inp") {
        return NumberKind::F32;
    }
    let finer = matches!(kind, NumberKind::Q4K | NumberKind::Q5K)
        && (name.starts_with("token_embd") || name.starts_with("output."));
    if finer { NumberKind::Q6K.for_rows(*columns) } else { kind.for_rows(*columns) }
}

/// Returns the number of llama.cpp for the kind of most tensors (`llama.h`, `enum llama_ftype`).
fn file_type(kind: NumberKind) -> u32 {
    match kind {
        NumberKind::F32 => 0,
        NumberKind::F16 => 1,
        NumberKind::Q4_0 => 2,
        NumberKind::Q4_1 => 3,
        NumberKind::Q8_0 => 7,
        NumberKind::Q5_0 => 8,
        NumberKind::Q5_1 => 9,
        NumberKind::Q2K => 10,
        NumberKind::Q3K => 12,
        NumberKind::Q4K => 14,
        NumberKind::Q5K => 16,
        NumberKind::Q6K => 18,
        NumberKind::Bf16 => 32,
    }
}

/// Writes a file, and makes it durable.
fn written(
    path: &Path,
    metadata: &[(String, Meta)],
    tensors: &[WrittenTensor<'_>],
    kind: NumberKind,
) -> Result<GgufReport, ModelError> {
    let bytes = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        write_file(&mut out, metadata, tensors)?;
        out.flush()?;
        let file = out.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    });
    let bytes = bytes.map_err(|error| ModelError::cannot_do("write", path, error))?;
    let matrices = tensors.iter().filter(|tensor| tensor.dims.len() > 1);
    let mut others = BTreeMap::new();
    for tensor in matrices
        .clone()
        .filter(|tensor| tensor.dims.last().is_some_and(|columns| kind.for_rows(*columns) != kind))
    {
        let columns = tensor.dims.last().copied().unwrap_or_default();
        *others.entry((columns, tensor.kind)).or_default() += 1;
    }
    Ok(GgufReport { matrices: matrices.count(), others, bytes })
}

#[cfg(test)]
pub(super) mod tests;
