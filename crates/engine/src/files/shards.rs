//! Files of weights: safetensors, one file or shards, read as f32.

mod experts;
mod head;
mod index;
mod skipped;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::Dtype;

use crate::files::HfConfig;
use crate::files::ModelFiles;
use crate::files::{ModelError, ModelErrorKind};
use index::{Stored, stored_tensors};
use maverl_hub::{INDEX, SINGLE, open_file, weight_map};
pub(crate) use skipped::SkippedTensors;

/// Head of a model that classifies sequences; a reward model reads it.
pub(crate) const SCORE: &str = "score.weight";

/// The safetensors files of a checkpoint, memory-mapped.
pub struct Shards {
    files: Vec<Bytes>,
    tensors: BTreeMap<String, Stored>,
}

enum Bytes {
    Static(&'static [u8]),
    Mapped(Mmap),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl Shards {
    /// Opens the checkpoint of a model: `model.safetensors`, or the files of `model.safetensors.index.json`.
    ///
    /// # Errors
    ///
    /// Every file that is missing or is not safetensors, and every tensor that is not where the index says it is.
    pub fn open(files: &ModelFiles) -> Result<Self, ModelError> {
        let Some(dir) = files.directory() else {
            return match files.require(SINGLE)? {
                Cow::Borrowed(bytes) => Self::read(Bytes::Static(bytes), &files.describe()),
                Cow::Owned(_) => Err(ModelError::new(
                    ModelErrorKind::NotFound,
                    format!("{} is not embedded", files.describe()),
                )),
            };
        };
        if dir.join(SINGLE).is_file() {
            return Self::open_file(&dir.join(SINGLE));
        }
        let index = files.read(INDEX)?.ok_or_else(|| {
            let message = format!("{} has neither `{SINGLE}` nor `{INDEX}`", dir.display());
            ModelError::new(ModelErrorKind::NotFound, message)
        })?;
        Self::open_sharded(dir, &index).map_err(|what| {
            ModelError::new(ModelErrorKind::Invalid, format!("{}: {INDEX}: {what}", dir.display()))
        })
    }

    /// Opens the checkpoint of a model whose tensors are those that a configuration asks for.
    ///
    /// # Errors
    ///
    /// See [`Shards::open`]; every missing, extra or misshapen tensor at once.
    pub fn matching(files: &ModelFiles, config: &HfConfig) -> Result<Self, ModelError> {
        let shards = Self::open(files)?;
        shards
            .check(config)
            .map_err(|what| ModelError::no_match(format!("{}: {what}", files.describe())))?;
        Ok(shards)
    }

    /// Opens one file.
    ///
    /// # Errors
    ///
    /// If it is missing or is not safetensors.
    pub fn open_file(path: &Path) -> Result<Self, ModelError> {
        Self::read(Bytes::Mapped(map(path)?), &path.display().to_string())
    }

    fn read(bytes: Bytes, place: &str) -> Result<Self, ModelError> {
        let tensors = stored_tensors(bytes.as_slice(), 0).map_err(|what| {
            let message = format!("{place} is damaged or not safetensors: {what}");
            ModelError::new(ModelErrorKind::Invalid, message)
        })?;
        Ok(Self { files: vec![bytes], tensors })
    }

    fn open_sharded(dir: &Path, index: &[u8]) -> Result<Self, String> {
        let places = weight_map(index)?;
        let (mut shards, mut problems) =
            (Self { files: Vec::new(), tensors: BTreeMap::new() }, Vec::new());
        for file in places.values().collect::<BTreeSet<_>>() {
            let mut listed = places.iter().filter(|(_, place)| *place == file);
            match Self::open_file(&dir.join(file)) {
                Err(error) => {
                    problems.push(format!("{error}, where {} tensors should be", listed.count()))
                }
                Ok(shard) => {
                    let lost =
                        listed.by_ref().filter(|(name, _)| !shard.tensors.contains_key(*name));
                    problems.extend(lost.map(|(name, _)| format!("`{name}` is not in {file}")));
                    shards.add(shard, |name| places.get(name).is_none_or(|place| place == file));
                }
            }
        }
        if problems.is_empty() { Ok(shards) } else { Err(list_problems(&problems)) }
    }

    /// Takes over what another file holds, but for tensors that belong elsewhere.
    fn add(&mut self, shard: Self, belongs: impl Fn(&str) -> bool) {
        let base = self.files.len();
        self.files.extend(shard.files);
        for (name, stored) in shard.tensors {
            if belongs(&name) {
                self.tensors.insert(name, Stored { file: base + stored.file, ..stored });
            }
        }
    }

    /// The values of a tensor as f32.
    ///
    /// # Errors
    ///
    /// If it is not there, or its type is not f32, f16 or bf16.
    pub fn values(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let stored = self.stored_tensor(name)?;
        let mut values = vec![0.0; stored.shape.iter().product()];
        self.fill(name, &stored.shape, &mut values)?;
        Ok(values)
    }

    /// Writes the values of a tensor to a buffer of a shape.
    ///
    /// # Errors
    ///
    /// If it is not there, its type is not f32, f16 or bf16, or it has another number of values.
    pub fn fill(&self, name: &str, shape: &[usize], to: &mut [f32]) -> Result<(), ModelError> {
        let stored = self.stored_tensor(name)?;
        fits(stored.shape.iter().product(), shape)
            .map_err(|e| ModelError::new(e.kind(), format!("tensor `{name}`: {e}")))?;
        if numbers(stored.dtype, self.bytes(stored), to) {
            return Ok(());
        }
        let what = format!("{:?} is not supported; f32, f16 or bf16 are", stored.dtype);
        Err(ModelError::no_match(format!("tensor `{name}`: {what}")))
    }

    fn stored_tensor(&self, name: &str) -> Result<&Stored, ModelError> {
        self.tensors
            .get(name)
            .ok_or_else(|| ModelError::no_match(format!("tensor `{name}`: missing")))
    }

    fn bytes(&self, stored: &Stored) -> &[u8] {
        &self.files[stored.file].as_slice()[stored.span.clone()]
    }

    /// Names in all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Names and shapes of the tensors that a model of a configuration does not read, and that a saved one has unchanged.
    pub(crate) fn skipped(&self, config: &HfConfig) -> Vec<(String, Vec<usize>)> {
        let skipped = self.tensors.iter().filter(|(name, _)| config.skips(name));
        skipped.map(|(name, stored)| (name.clone(), stored.shape.clone())).collect()
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors.get(name).map(|stored| stored.shape.clone())
    }

    /// Holds the tensors against those that a configuration asks for.
    fn check(&self, config: &HfConfig) -> Result<(), String> {
        let (layers, found) = (config.layers.len(), self.tensors.len());
        if layers > found {
            return Err(format!("config.json asks for {layers} layers; there are {found} tensors"));
        }
        let (mut wanted, experts) = (self.wanted_tensors(config), self.expert_layout(config));
        // Checkpoints with a tied head may store it all the same.
        let head = config.names.head;
        if config.tie_word_embeddings && self.tensors.contains_key(head) {
            wanted.insert(head.to_owned(), vec![config.vocab_size, config.hidden_size]);
        }
        if self.tensors.contains_key(SCORE) {
            wanted.insert(SCORE.to_owned(), vec![1, config.hidden_size]);
        }
        let mut problems = Vec::new();
        if self.tensors.contains_key(SCORE)
            && wanted.keys().any(|name| !self.tensors.contains_key(name))
        {
            problems.push(format!(
                "it has `{SCORE}`: it classifies sequences, and is no language model"
            ));
        }
        for (name, shape) in &wanted {
            let Some(stored) = self.tensors.get(name) else {
                problems.push(format!("`{name}` {shape:?} is missing"));
                continue;
            };
            if stored.shape != *shape {
                let found = &stored.shape;
                problems.push(format!("`{name}` is {found:?}; config.json asks for {shape:?}"));
            }
            problems.extend(stored.type_problem(name, experts));
        }
        problems.extend(self.unwanted(config, &wanted));
        if problems.is_empty() { Ok(()) } else { Err(list_problems(&problems)) }
    }

    /// Returns the problems with tensors that a configuration does not ask for.
    fn unwanted(
        &self,
        config: &HfConfig,
        wanted: &BTreeMap<String, Vec<usize>>,
    ) -> impl Iterator<Item = String> {
        let (skipped, extra): (Vec<_>, Vec<_>) = self
            .tensors
            .iter()
            .filter(|(name, _)| !wanted.contains_key(*name))
            .partition(|(name, _)| config.skips(name));
        let skipped = skipped.into_iter().filter(|(_, stored)| !is_supported(stored.dtype));
        let skipped = skipped.map(|(name, stored)| {
            format!("`{name}` is {:?}; f32, f16 or bf16 are supported", stored.dtype)
        });
        // Old checkpoints store the frequencies of rotary positions, which `config.json` gives.
        let extra = extra.into_iter().filter(|(name, _)| !name.contains("rotary_emb.inv_freq"));
        let extra = extra.map(|(name, _)| format!("`{name}` is not part of this architecture"));
        skipped.chain(extra)
    }
}

/// Returns an error if the number of values does not fit the dimensions.
pub(crate) fn fits(values: usize, dims: &[usize]) -> Result<(), ModelError> {
    let wanted: usize = dims.iter().product();
    if values == wanted {
        return Ok(());
    }
    Err(ModelError::no_match(format!("{values} values for the shape {dims:?}, which has {wanted}")))
}

fn is_supported(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Writes numbers of a supported type as f32; false if the type is another.
fn numbers(dtype: Dtype, data: &[u8], to: &mut [f32]) -> bool {
    match dtype {
        Dtype::F32 => decode(data, to, f32::from_le_bytes),
        Dtype::F16 => decode(data, to, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => decode(data, to, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => return false,
    }
    true
}

/// Numbers of `N` little-endian bytes each.
fn decode<const N: usize>(data: &[u8], to: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    to.iter_mut().zip(data.as_chunks::<N>().0).for_each(|(to, bytes)| *to = number(*bytes));
}

/// Problems in one line; so many that nobody would read them are counted.
pub(crate) fn list_problems(problems: &[String]) -> String {
    const MOST: usize = 8;
    let text = problems[..problems.len().min(MOST)].join("; ");
    match problems.len().saturating_sub(MOST) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

#[allow(unsafe_code)] // weights are mapped, not copied
fn map(path: &Path) -> Result<Mmap, ModelError> {
    let file = open_file(path).map_err(|e| ModelError::at_path(path, e))?;
    // SAFETY: the map is read-only and lives no longer than this process needs it; a checkpoint that another process
    // cuts short while it is read can end this one (SIGBUS), as for every reader that maps its weights.
    unsafe { Mmap::map(&file) }.map_err(|e| ModelError::at_path(path, e))
}

#[cfg(test)]
mod tests;
