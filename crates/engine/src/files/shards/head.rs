//! The output head of a checkpoint whose `config.json` ties it to the embedding (reference: transformers 5
//! `PreTrainedModel.tie_weights`).
//!
//! ```text
//! stored                     read as
//! embedding alone            tied
//! head alone                 tied: the head is the embedding
//! both, equal                tied
//! both, different            untied, with a warning
//! ```

use super::index::{Form, Stored, numbers};
use super::{SCORE, Shards};
use crate::files::ModelFiles;
use crate::files::hf_config::{TensorNames, WITHIN};
use crate::files::{HfConfig, ModelError};

/// Numbers that are compared at once.
const CHUNK: usize = 1 << 16;

impl HfConfig {
    /// Reads the configuration of a model. A head that `config.json` ties is untied if the checkpoint stores another one
    /// ([`HfConfig::warning`]); of a model whose weights are not downloaded yet `config.json` alone decides.
    ///
    /// # Errors
    ///
    /// See [`HfConfig::parse`].
    pub fn load(files: &ModelFiles) -> Result<Self, ModelError> {
        let mut config = Self::parse(&files.require("config.json")?)
            .map_err(|e| ModelError::invalid_at(files.describe(), e))?;
        #[cfg(feature = "candle")]
        if let Some(file) = files.gguf()? {
            config.notes.extend(crate::files::gguf::read_config(file)?.1);
        }
        // Files that cannot be opened are an error of `Weights::load` and of the headers that `check` reads.
        let Ok(shards) = Shards::open(files) else { return Ok(config) };
        if !config.skipped.is_empty() {
            let stored = |names: &TensorNames| shards.tensors.contains_key(&names.embedding());
            config.names = WITHIN.into_iter().find(stored).unwrap_or(config.names);
        }
        config.classifies = shards.tensors.contains_key(SCORE);
        if config.tie_word_embeddings && shards.has_another_head(config.names) {
            (config.tie_word_embeddings, config.head_untied) = (false, true);
        }
        Ok(config)
    }

    /// Warning about a head that is read as untied although `config.json` ties it, about one that is not read, and about keys
    /// of other families.
    pub fn warning(&self) -> Option<String> {
        let untied = self.head_untied.then(|| {
            format!(
                "config.json has `tie_word_embeddings` true, and `{}` differs from `{}`: the head is not tied; write \
                 `\"tie_word_embeddings\": false`",
                self.names.head,
                self.names.embedding()
            )
        });
        let classifies = self.classifies.then(|| {
            format!(
                "the checkpoint classifies sequences: it has `{SCORE}`. It is read as a language model, without that head; \
                 its probabilities of tokens may mean nothing"
            )
        });
        let unread = (!self.unread.is_empty()).then(|| {
            format!(
                "config.json has {}, which `model_type` \"{}\" does not read: if the model is of another family, its numbers \
                 are others",
                self.unread.join(", "),
                self.model_type
            )
        });
        let notes =
            (!self.notes.is_empty()).then(|| format!("config.json: {}", self.notes.join("; ")));
        let all: Vec<String> =
            untied.into_iter().chain(classifies).chain(unread).chain(notes).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Shards {
    /// True if head and embedding are both stored, with the same shape and different numbers.
    fn has_another_head(&self, names: TensorNames) -> bool {
        match (self.tensors.get(&names.embedding()), self.tensors.get(names.head)) {
            (Some(embedding), Some(head)) => {
                embedding.shape == head.shape && !self.equal(embedding, head)
            }
            _ => false,
        }
    }

    /// True if two tensors of one shape have equal numbers as f32.
    fn equal(&self, a: &Stored, b: &Stored) -> bool {
        let (Form::Rows(type_a), Form::Rows(type_b)) = (a.form, b.form) else {
            let values = [a, b].map(|of| {
                let mut values = vec![0.0; of.shape.iter().product()];
                of.read(self.bytes(of), &mut values).then_some(values)
            });
            return values[0] == values[1];
        };
        let [of_a, of_b] = [a, b].map(|of| self.bytes(of).chunks(CHUNK * number_width(of)));
        let (mut x, mut y) = (vec![0.0; CHUNK], vec![0.0; CHUNK]);
        of_a.zip(of_b).all(|(of_a, of_b)| {
            let n = of_a.len() / number_width(a);
            let (x, y) = (&mut x[..n], &mut y[..n]);
            // Types that are not supported are refused when the tensors are read.
            !(numbers(type_a, of_a, x) && numbers(type_b, of_b, y)) || x == y
        })
    }

    /// The name under which a weight is stored: a tied head may be there in place of the embedding.
    pub(crate) fn stored_name<'n>(&self, config: &HfConfig, name: &'n str) -> &'n str {
        let swapped = config.tie_word_embeddings
            && name == config.names.embedding()
            && !self.tensors.contains_key(name)
            && self.tensors.contains_key(config.names.head);
        if swapped { config.names.head } else { name }
    }
}

/// Returns the bytes of a number of a tensor, at least one.
fn number_width(stored: &Stored) -> usize {
    (stored.span.len() / stored.shape.iter().product::<usize>().max(1)).max(1)
}
