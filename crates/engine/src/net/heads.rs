//! Scalar heads on the hidden states of a decoder: values (one for each token) and rewards (one for each row); and one on the
//! log-probs of a reply's tokens, `w log p + b`.
//!
//! A head is on the trunk of the policy, where its gradient may be passed on or dropped, or on a trunk of its own
//! ([`ValueModel`]). It is stored in the model directory as `value_head.safetensors` or `reward_head.safetensors`, with
//! the tensors `value_head.weight [1, D]` and `value_head.bias [1]`, or `reward_head.weight [1, D]`, beside the files that
//! other tools read. A head of rewards has no bias, as those of `AutoModelForSequenceClassification`. That of log-probs has
//! `likelihood_head.weight [1, 1]` and `likelihood_head.bias [1]`.

use std::path::{Path, PathBuf};

use maverl_kernels::matmul::Precision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Shards;
use crate::files::save::{SavedTensor, TensorWriter};
use crate::files::{HfConfig, ModelError};
use crate::net::values::{Params, Tensor};
use crate::net::{Gradients, Model, Pool, Rows, Tape};

/// Kind of a head. A configuration chooses that of a verifier, which gives rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadKind {
    /// Expected return from each token on.
    #[serde(skip)]
    Value,
    /// A linear map of the hidden state of a token, without a bias.
    #[serde(rename = "linear")]
    Reward,
    /// A weight and a bias for the mean log-prob of the reply's tokens. The trunk is one that gives right replies, such as after
    /// supervised training.
    Likelihood,
}

impl HeadKind {
    /// Returns the name of its file and tensors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value_head",
            Self::Reward => "reward_head",
            Self::Likelihood => "likelihood_head",
        }
    }

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.safetensors", self.name()))
    }
}

/// Linear map to one number, `h · w + b` for values, `h · w` for rewards, and `w log p + b` for log-probs, in f32. Clones share
/// the parameters.
#[derive(Debug, Clone)]
pub struct ValueHead {
    kind: HeadKind,
    /// Weight `[1, D]`, then bias `[1]`, if it has one.
    params: Params,
}

impl ValueHead {
    /// Creates a head whose output is 0 everywhere, or of log-probs the log-prob.
    pub fn new(kind: HeadKind, trunk: &HfConfig) -> Self {
        match kind {
            HeadKind::Value | HeadKind::Reward => Self::of_width(kind, trunk.hidden_size),
            HeadKind::Likelihood => Self::of_likelihood([1.0, 0.0]),
        }
    }

    /// Creates a head of log-probs with a weight and a bias.
    pub(super) fn of_likelihood([weight, bias]: [f32; 2]) -> Self {
        let head = Self::of_width(HeadKind::Likelihood, 1);
        for ((_, var), value) in head.vars().iter().zip([weight, bias]) {
            var.update(|values| values[0] = value);
        }
        head
    }

    /// Returns the weight and the bias of a head of log-probs; `None` for other heads.
    pub fn likelihood(&self) -> Option<[f32; 2]> {
        let (weight, bias) = self.parts();
        (self.kind == HeadKind::Likelihood).then(|| [weight[0], bias[0]])
    }

    fn of_width(kind: HeadKind, width: usize) -> Self {
        let shapes = [("weight", vec![1, width]), ("bias", vec![1])].into_iter();
        let shapes = shapes.take(if kind == HeadKind::Reward { 1 } else { 2 });
        let named = shapes.map(|(part, shape)| (format!("{}.{part}", kind.name()), shape));
        Self { kind, params: Params::zeros(named) }
    }

    /// Reads the head in a model directory; `None` if the directory has none of this kind.
    ///
    /// # Errors
    ///
    /// If its file is damaged, or does not fit the trunk.
    pub fn load(kind: HeadKind, dir: &Path, trunk: &HfConfig) -> Result<Option<Self>, ModelError> {
        let file = kind.file(dir);
        if !file.is_file() {
            return Ok(None);
        }
        let shards = Shards::open_file(&file)?;
        let head = Self::new(kind, trunk);
        for ((name, var), part) in head.vars().iter().zip(["weight", "bias"]) {
            if let Some(found) = shards.shape(name).filter(|found| found != var.dims()) {
                let (place, shape) = (file.display(), var.dims());
                return Err(ModelError::no_match(format!(
                    "{place}: {part} is {found:?}; the trunk asks for {shape:?}"
                )));
            }
            var.load(&shards, name)?;
        }
        Ok(Some(head))
    }

    /// Writes the head into a model directory.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        self.save_with(dir, &mut TensorWriter::Direct)
    }

    /// Writes what [`ValueHead::save`] writes by a writer.
    pub(crate) fn save_with(
        &self,
        dir: &Path,
        writer: &mut TensorWriter,
    ) -> Result<(), ModelError> {
        let entries: Vec<SavedTensor<'_>> =
            self.vars().iter().map(|(name, var)| SavedTensor::tensor(name, var)).collect();
        writer.put(self.kind.file(dir), &entries)
    }

    /// Restores the parameters from a model directory.
    ///
    /// # Errors
    ///
    /// If the directory has no head of this kind and shape.
    pub fn restore(&self, dir: &Path) -> Result<(), ModelError> {
        let shards = Shards::open_file(&self.kind.file(dir))?;
        self.vars().iter().try_for_each(|(name, var)| var.load(&shards, name))
    }

    /// Multiplies the output by `by`, then adds `plus`, by changing the parameters. Without a bias, nothing is added.
    pub fn rescale(&self, by: f32, plus: f32) {
        self.vars()[0].1.update(|weight| weight.iter_mut().for_each(|w| *w *= by));
        if let Some((_, bias)) = self.vars().get(1) {
            bias.update(|bias| bias[0] = by * bias[0] + plus);
        }
    }

    /// Returns the kind of output.
    pub fn kind(&self) -> HeadKind {
        self.kind
    }

    /// Returns names and variables: `weight [1, D]`, then `bias [1]`, if it has one.
    pub fn vars(&self) -> &[(String, Tensor)] {
        self.params.vars()
    }

    /// Returns the array that holds them.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Computes the value of each token, `[N]`, from the hidden states `[N, D]` of packed rows, or from log-probs `[N]`.
    pub fn values(&self, hidden: &[f32]) -> Vec<f32> {
        let (weight, bias) = self.parts();
        let width = weight.len();
        let mut values = vec![bias[0]; hidden.len() / width];
        Precision::F32.add().nt(hidden, &weight, &mut values, hidden.len() / width, 1, width);
        values
    }

    /// Computes the gradient `[N, D]` of the hidden states from that of the values `[N]`. Adds the head's own
    /// gradients, in the order of [`ValueHead::vars`].
    ///
    /// ```text
    /// dh = dv wᵀ,   dw += Σ dv h,   db += Σ dv
    /// ```
    pub fn backward(
        &self,
        hidden: &[f32],
        dvalues: &[f32],
        gradients: &mut Gradients<'_>,
    ) -> Vec<f32> {
        let weight = self.parts().0;
        let (n, width) = (dvalues.len(), weight.len());
        if let Some(dw) = gradients.of(Some(0)) {
            Precision::F32.add().tn(dvalues, hidden, dw, 1, width, n);
        }
        if let Some(db) = self.has_bias().then(|| gradients.of(Some(1))).flatten() {
            db[0] += dvalues.iter().sum::<f32>();
        }
        dvalues.iter().flat_map(|dv| weight.iter().map(move |w| dv * w)).collect()
    }

    fn has_bias(&self) -> bool {
        self.vars().len() > 1
    }

    /// Returns the values of weight and bias.
    pub(super) fn parts(&self) -> (Vec<f32>, Vec<f32>) {
        let bias = self.vars().get(1).map_or_else(|| vec![0.0], |(_, bias)| bias.to_vec());
        (self.vars()[0].1.to_vec(), bias)
    }
}

/// A head on a trunk of its own.
pub struct ValueModel {
    /// Trunk; its output head is unused.
    pub model: Model,
    /// Head of values or rewards.
    pub head: ValueHead,
}

impl ValueModel {
    /// Runs the trunk on packed rows. Returns the tape for the backward pass, and the values of the tokens `[N]`.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range.
    pub fn values<'a>(
        &'a self,
        rows: Rows<'a>,
        pool: &mut Pool,
    ) -> Result<(Tape<'a>, Vec<f32>), ModelError> {
        let tape = Tape::record(&self.model.decoder, rows, false, pool)?;
        let values = self.head.values(tape.hidden());
        Ok((tape, values))
    }

    /// Adds the gradients of trunk and head from that of the values `[N]`. `trunk` is over [`Model::trainable`], `head`
    /// over [`ValueHead::params`]. A separate output head (`lm_head.weight`) gets no gradient: no value depends on it.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn backward(
        &self,
        tape: Tape<'_>,
        dvalues: &[f32],
        trunk: &mut Gradients<'_>,
        head: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Result<(), ModelError> {
        let dhidden = self.head.backward(tape.hidden(), dvalues, head);
        tape.backward(&dhidden, trunk, pool)
    }

    /// Writes trunk and head into a directory.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        self.model.save(dir)?;
        self.head.save(dir)
    }
}

#[cfg(test)]
mod tests;
