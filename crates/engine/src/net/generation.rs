//! Models that only generate: a weight of a linear map has one form in memory, that for products of few rows.

use std::collections::BTreeSet;

use crate::files::ModelError;
use crate::net::copies;
use crate::net::model::Model;
use crate::net::ops::Ops;

impl Model {
    /// Returns the model for generation alone. The weights of its layers' maps are packed in the precision of products, and
    /// their f32 rows are freed with the last clone of this model. Results have the same bits. Embedding and head keep their
    /// rows, which the first lookup and log-probs read. A model with an adapter is returned as it is.
    ///
    /// # Errors
    ///
    /// If the weights are not those of the configuration.
    pub(crate) fn for_generation(self) -> Result<Self, ModelError> {
        if self.adapter.is_some() || !self.weights.is_whole() {
            return Ok(self);
        }
        let packed: BTreeSet<_> =
            self.decoder.layer_maps().filter_map(|map| map.weight().slot()).collect();
        let weights = self.weights.keep(|slot| !packed.contains(&slot));
        let decoder = copies::decoder_on(self.decoder.ops(), &self.config, &weights)?;
        for (from, to) in self.decoder.layer_maps().zip(decoder.layer_maps()) {
            from.move_packed(to, |weight| self.decoder.ops().pack(weight));
        }
        Ok(Self { weights, decoder, ..self })
    }
}

impl<O: Ops> Model<O> {
    /// Returns an error if the model only generates, so that it has not all weights.
    pub(super) fn require_weights(&self) -> Result<(), ModelError> {
        self.require_values()?;
        if self.weights.is_whole() {
            return Ok(());
        }
        Err(ModelError::wrong_argument(
            "a model that only generates has packed weights alone; load it again from its files",
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use maverl_kernels::matmul::Precision;

    use super::*;
    use crate::files::{ModelFiles, ModelSource};

    #[test]
    fn a_model_that_only_generates_has_the_bits_of_the_model_and_one_form_of_its_maps() {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let ids: Vec<u32> = (0..40).map(|i| i * 31 % 500).collect();
        for precision in Precision::ALL {
            let model = Model::load(&files).unwrap().with_precision(precision);
            let (logits, fingerprint) = (model.logits(&ids).unwrap(), model.fingerprint());
            let (all, parameters) = (model.weights.params().elements(), model.weights.parameters());
            let served = model.for_generation().unwrap();
            assert_eq!(served.logits(&ids).unwrap(), logits);
            assert_eq!(served.fingerprint(), fingerprint);
            // A barrier drops the packed weights of maps that have rows, too.
            served.decoder.pack();
            served.decoder.unpack();
            assert_eq!(served.clone().for_generation().unwrap().logits(&ids).unwrap(), logits);
            assert_eq!(served.weights.parameters(), parameters);
            let kept = served.weights.params().elements();
            assert!(kept < all, "{kept} of {all} numbers are kept");
        }
    }

    #[test]
    fn what_needs_all_weights_is_refused_for_a_model_that_only_generates() {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let served = Model::load(&files).unwrap().for_generation().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let errors = [
            served.save(dir.path()).unwrap_err(),
            served.duplicate().err().unwrap(),
            served.copy(true).err().unwrap(),
            served.with_long_rope().err().unwrap(),
            served.restore(dir.path()).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains("load it again from its files"), "{error}");
        }
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
