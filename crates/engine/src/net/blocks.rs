//! Models whose matrices stay in the blocks of a GGUF file, which is a fraction of the memory of f32.
//!
//! Products and lookups compute the numbers of some rows at a time (`files/gguf/matrix.rs`), and keep none. Such a
//! base is frozen: adapters on it are trained (QLoRA: Dettmers et al., 2023, arXiv:2305.14314, section 3).

use crate::files::save::HostTensor as _;
use crate::files::{ModelError, ModelFiles, Shards};
use crate::net::model::Model;
use crate::net::ops::Ops;
#[cfg(feature = "candle")]
use crate::net::weights::Weights;

impl Model {
    /// Loads the model of a GGUF file. Matrices stay in the blocks of the file; norms and biases are f32. Only devices of candle
    /// compute with it.
    ///
    /// # Errors
    ///
    /// See [`Model::load`]; also if the files are no GGUF file.
    #[cfg(feature = "candle")]
    pub(crate) fn load_blocks(files: &ModelFiles) -> Result<Self, ModelError> {
        if files.gguf()?.is_some() {
            return Self::load_with(files, Weights::load_blocks);
        }
        Err(ModelError::wrong_argument(format!(
            "{} is no GGUF file, whose blocks `dtype = \"file\"` keeps: write `dtype = \"f32\"`",
            files.describe()
        )))
    }

    /// Returns the error of a program that has no kernels for blocks.
    #[cfg(not(feature = "candle"))]
    pub(crate) fn load_blocks(files: &ModelFiles) -> Result<Self, ModelError> {
        let lacks = maverl_settings::lacks_feature!("candle");
        let message = format!("{}: `dtype = \"file\"`: {lacks}", files.describe());
        Err(ModelError::wrong_argument(message))
    }
}

impl Model {
    /// Compares a base in blocks, which never changes, with the checkpoint of it that [`Model::save`] wrote in f32. One tensor of each
    /// is in memory at a time.
    ///
    /// # Errors
    ///
    /// If a tensor is missing, or has other bits.
    pub(super) fn compare_with(&self, shards: &Shards) -> Result<(), ModelError> {
        let layout = shards.expert_layout(&self.config);
        for (name, var) in self.weights.vars() {
            let mut stored = vec![0.0; var.elem_count()];
            shards.fill_tensor(&self.config, layout, (name, var.dims()), &mut stored)?;
            let (mut bits, mut same) = (stored.iter().map(|value| value.to_bits()), false);
            var.read(&mut |own| {
                same = own.iter().all(|value| bits.next() == Some(value.to_bits()))
            });
            if !same {
                return Err(ModelError::no_match(format!(
                    "`{name}` has other numbers in the checkpoint than in {}, which was another file then",
                    self.name
                )));
            }
        }
        Ok(())
    }
}

impl<O: Ops> Model<O> {
    /// Returns an error if matrices of the model stay in the blocks of a file.
    pub(super) fn require_values(&self) -> Result<(), ModelError> {
        if !self.weights.in_blocks() {
            return Ok(());
        }
        Err(ModelError::wrong_argument(
            "weights in the blocks of a GGUF file are frozen, and multiplied by candle alone: train an adapter on the device \
             \"candle:cpu\", or write `dtype = \"f32\"`",
        ))
    }
}
