//! Files of weights: safetensors, one file or shards, read as f32.

mod blocks;
mod experts;
#[cfg(feature = "candle")]
mod gguf;
mod head;
mod index;
mod pickled;
mod skipped;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use memmap2::Mmap;

pub(crate) use crate::files::error::list_problems;
use crate::files::map::map_file;
use crate::files::{HfConfig, ModelError, ModelErrorKind, ModelFiles};
use index::{Stored, stored_tensors};
use maverl_hub::{INDEX, PICKLED, PICKLED_INDEX, SINGLE, weight_map};
pub(crate) use skipped::SkippedTensors;

/// Head of a model that classifies sequences; a reward model reads it.
pub(crate) const SCORE: &str = "score.weight";

/// The files of a checkpoint, memory-mapped.
pub struct Shards {
    files: Vec<Bytes>,
    tensors: BTreeMap<String, Stored>,
}

enum Bytes {
    Static(&'static [u8]),
    Mapped(Mmap),
    #[cfg(feature = "candle")]
    Shared(std::sync::Arc<Mmap>),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Mapped(map) => map,
            #[cfg(feature = "candle")]
            Self::Shared(map) => map,
        }
    }
}

impl Shards {
    /// Opens the checkpoint of a model: a GGUF file, `model.safetensors`, the files of `model.safetensors.index.json`,
    /// `pytorch_model.bin`, or the files of `pytorch_model.bin.index.json`, whichever is there first.
    ///
    /// # Errors
    ///
    /// Every file that is missing or damaged, and every tensor that is not where the index says it is.
    pub fn open(files: &ModelFiles) -> Result<Self, ModelError> {
        #[cfg(feature = "candle")]
        if let Some(file) = files.gguf()? {
            return Ok(Self::of_gguf(file));
        }
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
        if let Some(bytes) = files.read(INDEX)? {
            return Self::open_indexed(dir, (INDEX, &bytes), Self::open_file);
        }
        if dir.join(PICKLED).is_file() {
            return Self::open_pickled(&dir.join(PICKLED));
        }
        if let Some(bytes) = files.read(PICKLED_INDEX)? {
            return Self::open_indexed(dir, (PICKLED_INDEX, &bytes), Self::open_pickled);
        }
        let message = format!("{} has neither `{SINGLE}` nor `{INDEX}`", dir.display());
        Err(ModelError::new(ModelErrorKind::NotFound, message))
    }

    /// Opens the files of a directory that an index names.
    fn open_indexed(
        dir: &Path,
        (index, bytes): (&str, &[u8]),
        open: fn(&Path) -> Result<Self, ModelError>,
    ) -> Result<Self, ModelError> {
        Self::open_sharded(dir, bytes, open).map_err(|what| {
            let message = format!("{}: {index}: {what}", dir.display());
            ModelError::new(ModelErrorKind::Invalid, message)
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
        Self::read(Bytes::Mapped(map_file(path)?), &path.display().to_string())
    }

    fn read(bytes: Bytes, place: &str) -> Result<Self, ModelError> {
        let tensors = stored_tensors(bytes.as_slice(), 0).map_err(|what| {
            let message = format!("{place} is damaged or not safetensors: {what}");
            ModelError::new(ModelErrorKind::Invalid, message)
        })?;
        Ok(Self { files: vec![bytes], tensors })
    }

    /// Opens the files that an index names, each by a function.
    fn open_sharded(
        dir: &Path,
        index: &[u8],
        open: fn(&Path) -> Result<Self, ModelError>,
    ) -> Result<Self, String> {
        let places = weight_map(index)?;
        let (mut shards, mut problems) =
            (Self { files: Vec::new(), tensors: BTreeMap::new() }, Vec::new());
        for file in places.values().collect::<BTreeSet<_>>() {
            let mut listed = places.iter().filter(|(_, place)| *place == file);
            match open(&dir.join(file)) {
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
        if stored.read(self.bytes(stored), to) {
            return Ok(());
        }
        let what = format!("{} is not supported; f32, f16 or bf16 are", stored.form.name());
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
    pub fn skipped(&self, config: &HfConfig) -> Vec<(String, Vec<usize>)> {
        let skipped = self.tensors.iter().filter(|(name, _)| config.skips(name));
        skipped.map(|(name, stored)| (name.clone(), stored.shape.clone())).collect()
    }

    /// Returns how many numbers there are of each type, and their bytes.
    pub fn stored_types(&self) -> BTreeMap<String, [u64; 2]> {
        let mut types = BTreeMap::new();
        for stored in self.tensors.values() {
            let [numbers, bytes]: &mut [u64; 2] = types.entry(stored.form.name()).or_default();
            *numbers += stored.shape.iter().product::<usize>() as u64;
            *bytes += stored.span.len() as u64;
        }
        types
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
        let skipped = skipped.into_iter().filter(|(_, stored)| !stored.form.is_supported());
        let skipped = skipped.map(|(name, stored)| {
            let found = stored.form.name().to_uppercase();
            format!("`{name}` is {found}; f32, f16 or bf16 are supported")
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

#[cfg(test)]
mod tests;
