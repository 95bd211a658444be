//! A model: configuration, weights, decoder and, if it has one, adapter.

use maverl_kernels::attention::Packing;
use std::path::Path;
use std::sync::Arc;

use maverl_hub::COMPANIONS;
use maverl_kernels::matmul::Precision;

use crate::files::save::{self, SaveOptions, StoredDtype, TensorWriter};
use crate::files::shards::SkippedTensors;
use crate::files::{HfConfig, ModelError, ModelErrorKind, ModelFiles, ModelSource, Shards};
use crate::net::copies;
use crate::net::decoder::{Context, Decoder};
use crate::net::lora::Adapter;
use crate::net::ops::{Cpu, Ops};
use crate::net::pool::Pool;
use crate::net::values::Params;
use crate::net::weights::{self, Weights};
use crate::text::FURTHER_TEMPLATES;

/// A model: configuration, weights, and the decoder over their storage.
///
/// Its trainable weights are its own or, if the base is frozen, those of an adapter. Clones share all of them.
#[derive(Clone)]
pub struct Model<O: Ops = Cpu> {
    /// Shape of the model.
    pub config: Arc<HfConfig>,
    /// Weights of the base.
    pub weights: Weights<O>,
    /// Decoder for rollout and training.
    pub decoder: Decoder<O>,
    pub(super) adapter: Option<Adapter<O>>,
    /// Name of the base in an adapter's configuration.
    pub(super) name: String,
    /// Files that are written back unchanged: configuration, tokenizer, template.
    pub(crate) companions: Arc<[(String, Vec<u8>)]>,
    /// Tensors that are written back unchanged: those of vision.
    pub(super) skipped: Arc<SkippedTensors>,
}

impl Model {
    /// Loads a model.
    ///
    /// # Errors
    ///
    /// See [`HfConfig::load`] and [`Weights::load`].
    pub fn load(files: &ModelFiles) -> Result<Self, ModelError> {
        Self::load_with(files, Weights::load)
    }

    /// Loads a model whose weights a function reads.
    pub(super) fn load_with(
        files: &ModelFiles,
        weights: impl FnOnce(&ModelFiles, &HfConfig) -> Result<Weights, ModelError>,
    ) -> Result<Self, ModelError> {
        let config = HfConfig::load(files)?;
        let weights = weights(files, &config)?;
        let mut companions = Vec::new();
        let names = COMPANIONS.iter().map(|name| (*name).to_owned());
        for name in names.chain(files.list(FURTHER_TEMPLATES)?) {
            if let Some(bytes) = files.read(&name)? {
                companions.push((name, bytes.into_owned()));
            }
        }
        // An absolute path can be opened from any directory.
        let absolute = files.path().and_then(|path| std::path::absolute(path).ok());
        let name = absolute.map_or_else(|| files.describe(), |path| path.display().to_string());
        let skipped = Arc::new(SkippedTensors::open(files, &config)?);
        Ok(Self { name, skipped, ..Self::new(config, weights, companions)? })
    }

    /// Creates a model without values, of which only shapes are used.
    ///
    /// # Errors
    ///
    /// If the configuration describes no model.
    #[cfg(feature = "cuda")]
    pub(crate) fn shaped(config: HfConfig) -> Result<Self, ModelError> {
        let weights = Weights::over(Params::shaped(config.tensors()));
        Self::new(config, weights, Vec::new())
    }

    /// Creates a model over given weights. `companions` are the files that a saved directory gets beside them.
    ///
    /// # Errors
    ///
    /// If the weights are not those of the configuration.
    pub fn new(
        config: HfConfig,
        weights: Weights,
        companions: Vec<(String, Vec<u8>)>,
    ) -> Result<Self, ModelError> {
        let config = Arc::new(config);
        let decoder = decoder(&config, &weights)?;
        let (name, companions, skipped) = (String::new(), companions.into(), Arc::default());
        Ok(Self { config, weights, decoder, adapter: None, name, companions, skipped })
    }

    /// Returns the model with products of another precision; its weights stay f32.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { decoder: self.decoder.with_precision(precision), ..self }
    }

    /// Returns the base of this model under an adapter from a PEFT directory.
    ///
    /// # Errors
    ///
    /// See [`Adapter::load`].
    pub fn load_adapter(&self, dir: &Path) -> Result<Self, ModelError> {
        Ok(self.with_adapter(Adapter::load(dir, &self.config)?))
    }

    /// Returns the model with a copy of its trainable weights; the base under an adapter stays shared.
    ///
    /// # Errors
    ///
    /// If the weights are not those of the configuration.
    pub fn duplicate(&self) -> Result<Self, ModelError> {
        match &self.adapter {
            Some(adapter) => Ok(self.with_adapter(adapter.duplicate())),
            None => {
                self.require_weights()?;
                self.over(self.weights.duplicate())
            }
        }
    }

    /// Returns the model for sequences longer than the original context of LongRoPE
    /// ([`HfConfig::with_long_rope`]).
    ///
    /// # Errors
    ///
    /// If the weights are not those of the configuration.
    pub fn with_long_rope(&self) -> Result<Self, ModelError> {
        self.require_weights()?;
        let config = Arc::new((*self.config).clone().with_long_rope());
        let decoder = decoder(&config, &self.weights)?.with_precision(self.decoder.precision());
        let base = Self { config, decoder, adapter: None, ..self.clone() };
        Ok(match &self.adapter {
            Some(adapter) => base.with_adapter(adapter.clone()),
            None => base,
        })
    }

    /// Returns the model over other weights, without an adapter.
    fn over(&self, weights: Weights) -> Result<Self, ModelError> {
        let decoder = decoder(&self.config, &weights)?.with_precision(self.decoder.precision());
        Ok(Self { weights, decoder, adapter: None, ..self.clone() })
    }

    /// Merges the adapter into a copy of the base. Returns the merged model, and the largest difference between the
    /// logits of the two models on a row of token ids.
    ///
    /// # Errors
    ///
    /// If there is no adapter, or the logits differ by more than a merge in f32 explains.
    pub fn merge(&self) -> Result<(Self, f32), ModelError> {
        let Some(adapter) = &self.adapter else {
            return Err(ModelError::wrong_argument("there is no adapter to merge"));
        };
        self.require_weights()?;
        let weights = self.weights.duplicate();
        adapter.add_to(&weights)?;
        let merged = self.over(weights)?;
        let (ours, theirs) = (self.probe()?, merged.probe()?);
        let size = ours.iter().fold(1.0_f32, |most, logit| most.max(logit.abs()));
        let differences = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
        // `max` would skip NaN.
        let worst = differences.fold(0.0_f32, |w, d| if d > w || d.is_nan() { d } else { w });
        if worst <= MERGE_TOLERANCE * size {
            Ok((merged, worst))
        } else {
            Err(ModelError::new(
                ModelErrorKind::Numeric,
                format!(
                    "the merged model's logits differ by {worst:e} from those with the adapter; at most {:e} was expected",
                    MERGE_TOLERANCE * size
                ),
            ))
        }
    }

    /// Computes the logits of a row of ids spread over the vocabulary.
    fn probe(&self) -> Result<Vec<f32>, ModelError> {
        let n = self.config.max_position_embeddings.min(32);
        let ids: Vec<u32> = (0..n).map(|i| (i * 7919 % self.config.vocab_size) as u32).collect();
        self.logits(&ids)
    }

    /// Computes the logits `[N, V]` of one row of token ids.
    ///
    /// # Errors
    ///
    /// If an id is not in the vocabulary, or the row is too long.
    pub fn logits(&self, ids: &[u32]) -> Result<Vec<f32>, ModelError> {
        let positions: Vec<u32> = (0..ids.len() as u32).collect();
        let (context, mut pool) = ([0, ids.len()], Pool::default());
        let context = Context::Packed(Packing::from_offsets(&context));
        let hidden = self.decoder.forward(ids, &positions, context, &mut pool)?;
        Ok(self.decoder.logits(&hidden, &mut pool))
    }

    /// Name of the base in an adapter's configuration.
    pub fn base_name(&self) -> &str {
        &self.name
    }

    /// Computes the SHA-256 over names, shapes and values of every weight, the adapter's after the base's.
    pub fn fingerprint(&self) -> String {
        let adapter = self.adapter.as_ref().map_or(&[][..], Adapter::vars);
        weights::hex(weights::hash_tensors(self.weights.hash(), adapter))
    }

    /// Returns the type in which the weights were stored, from `config.json`; f32 if it has none.
    pub fn stored_dtype(&self) -> StoredDtype {
        let config = self.companions.iter().find(|(name, _)| name == "config.json");
        config.and_then(|(_, config)| StoredDtype::of_config(config)).unwrap_or_default()
    }

    /// Writes the trainable weights into a directory, in f32: a Hugging Face model, or the adapter in PEFT's format.
    ///
    /// # Errors
    ///
    /// If a file cannot be written; the error names it.
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        self.save_with(dir, &mut TensorWriter::Direct)
    }

    /// Writes what [`Model::save`] writes, tensors by a writer.
    pub(crate) fn save_with(
        &self,
        dir: &Path,
        writer: &mut TensorWriter,
    ) -> Result<(), ModelError> {
        match &self.adapter {
            Some(adapter) => adapter.save_with(dir, &self.name, writer),
            None => self.save_full_with(dir, (&SaveOptions::default(), writer)),
        }
    }

    /// Writes the adapter as PEFT does, under a base of another name, and the base's tokenizer beside it.
    ///
    /// # Errors
    ///
    /// If there is no adapter, or a file cannot be written.
    pub fn save_adapter(&self, dir: &Path, base: &str) -> Result<(), ModelError> {
        let Some(adapter) = &self.adapter else {
            return Err(ModelError::wrong_argument("there is no adapter to write"));
        };
        adapter.save(dir, base)?;
        // What else there is makes a directory a model.
        let tokenizer = self.companions.iter().filter(|(name, _)| {
            !["config.json", "generation_config.json"].contains(&name.as_str())
        });
        tokenizer.into_iter().try_for_each(|(name, bytes)| companion(dir, name, bytes))
    }

    /// Writes the base as a Hugging Face model directory: configuration, tokenizer, template, weights.
    ///
    /// # Errors
    ///
    /// If a file cannot be written; the error names it.
    pub fn save_full(&self, dir: &Path, options: &SaveOptions) -> Result<(), ModelError> {
        self.save_full_with(dir, (options, &mut TensorWriter::Direct))
    }

    /// Writes what [`Model::save_full`] writes, tensors by a writer.
    fn save_full_with(
        &self,
        dir: &Path,
        (options, writer): (&SaveOptions, &mut TensorWriter),
    ) -> Result<(), ModelError> {
        if !self.weights.in_blocks() {
            self.require_weights()?;
        }
        for (name, bytes) in self.companions.iter() {
            match name.as_str() {
                "config.json" => {
                    let tied = self.config.tie_word_embeddings;
                    companion(dir, name, &save::configuration(bytes, options.dtype, tied))?;
                }
                _ => companion(dir, name, bytes)?,
            }
        }
        let own = self.config.saved_tensors(self.weights.vars());
        save::weights(dir, own, self.skipped.entries(), (options, writer))
    }

    /// Restores the trainable weights from a directory that [`Model::save`] wrote. A base in the blocks of a file is compared with it.
    ///
    /// # Errors
    ///
    /// If the directory does not hold weights of the same shape, or those of a base in blocks.
    pub fn restore(&self, dir: &Path) -> Result<(), ModelError> {
        match &self.adapter {
            Some(adapter) => adapter.restore(dir, &self.config),
            None => {
                let files = ModelFiles::new(&ModelSource::Directory(dir.to_owned()));
                if self.weights.in_blocks() {
                    return self.compare_with(&Shards::open(&files)?);
                }
                self.require_weights()?;
                self.weights.assign(&self.config, &Shards::open(&files)?)
            }
        }
    }
}

impl<O: Ops> Model<O> {
    /// Returns the base of this model under an adapter. The base is shared, not copied.
    #[must_use]
    pub fn with_adapter(&self, adapter: Adapter<O>) -> Self {
        let mut decoder = self.decoder.clone().frozen();
        adapter.attach(&mut decoder);
        Self { decoder, adapter: Some(adapter), ..self.clone() }
    }

    /// Returns the adapter, if the model has one.
    pub fn adapter(&self) -> Option<&Adapter<O>> {
        self.adapter.as_ref()
    }

    /// Returns the trainable weights: the adapter's, or without one every weight.
    pub fn trainable(&self) -> &Params<O> {
        self.adapter.as_ref().map_or(self.weights.params(), Adapter::params)
    }
}

/// Writes a file beside the weights. Only the folder of further templates may have to be made.
pub(super) fn companion(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), ModelError> {
    let path = dir.join(name);
    let folder = name
        .split_once('/')
        .map_or(Ok(()), |(folder, _)| std::fs::create_dir_all(dir.join(folder)));
    folder
        .and_then(|()| std::fs::write(&path, bytes))
        .map_err(|e| ModelError::cannot_do("write", &path, e))
}

/// Largest change of logits by a merge in f32, relative to the largest of them (or 1).
const MERGE_TOLERANCE: f32 = 1e-4;

/// Creates a decoder over weights, all of them trained.
///
/// # Errors
///
/// If the weights are not those of the configuration.
pub fn decoder(config: &Arc<HfConfig>, weights: &Weights) -> Result<Decoder, ModelError> {
    copies::decoder_on(&Cpu::default(), config, weights)
}
