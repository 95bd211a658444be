//! Heads of one number on the hidden states of a decoder: values (one for each token) and rewards (one for each row).
//!
//! A head sits on the trunk of the policy, with or without sending its gradient there, or on a trunk of its own
//! ([`Critic`]). It is kept in the model directory as `value_head.safetensors` or `reward_head.safetensors`, with the
//! tensors `value_head.weight [1, D]` and `value_head.bias [1]` (`reward_head` likewise), beside what other tools read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{Tensor, Var};

use crate::model::save::{self, Entry};
use crate::model::weights::Shards;
use crate::model::{Context, HfConfig, Model, ModelError, nn};

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// The return that is expected from each token on.
    Value,
    /// How good a whole row is.
    Reward,
}

impl HeadKind {
    /// What its file and tensors are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value_head",
            Self::Reward => "reward_head",
        }
    }

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.safetensors", self.name()))
    }
}

/// Where the gradient of a head ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gradient {
    /// In the trunk's weights.
    Trunk,
    /// In the head's own.
    Head,
}

/// `h · w + b`: a linear map to one number, as f32 variables. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Head {
    kind: HeadKind,
    /// Names and variables: the weight `[1, D]`, then the bias `[1]`.
    vars: Vec<(String, Var)>,
}

impl Head {
    /// A head that says 0 of everything.
    ///
    /// # Errors
    ///
    /// If memory cannot be had.
    pub fn new(kind: HeadKind, trunk: &HfConfig) -> Result<Self, ModelError> {
        let width = trunk.hidden_size;
        let values = [nn::tensor(vec![0.0; width], (1, width))?, nn::tensor(vec![0.0], 1)?];
        Self::over(kind, values)
    }

    fn over(kind: HeadKind, [weight, bias]: [Tensor; 2]) -> Result<Self, ModelError> {
        let var = |part: &str, tensor: &Tensor| {
            Ok::<_, ModelError>((format!("{}.{part}", kind.name()), Var::from_tensor(tensor)?))
        };
        Ok(Self { kind, vars: vec![var("weight", &weight)?, var("bias", &bias)?] })
    }

    /// Reads the head that a model directory holds; `None` if it holds none of this kind.
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
        let part = |part: &str, shape: &[usize]| -> Result<Tensor, ModelError> {
            let tensor = shards.tensor(&format!("{}.{part}", kind.name()))?;
            if tensor.dims() == shape {
                return Ok(tensor);
            }
            let (place, found) = (file.display(), tensor.dims());
            Err(ModelError(format!("{place}: {part} is {found:?}; the trunk asks for {shape:?}")))
        };
        let head = [part("weight", &[1, trunk.hidden_size])?, part("bias", &[1])?];
        Self::over(kind, head).map(Some)
    }

    /// Writes the head into a model directory.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        let entries: Vec<Entry<'_>> =
            self.vars.iter().map(|(name, var)| Entry::tensor(name, var.as_tensor())).collect();
        save::one_file(&self.kind.file(dir), &entries)
    }

    /// What it says.
    pub fn kind(&self) -> HeadKind {
        self.kind
    }

    /// Names and variables: `weight [1, D]`, then `bias [1]`.
    pub fn vars(&self) -> &[(String, Var)] {
        &self.vars
    }

    /// A number for each token, `[N]`, from the hidden states `[N, D]` of packed rows.
    ///
    /// # Errors
    ///
    /// If the widths differ.
    pub fn values(&self, hidden: &Tensor, gradient: Gradient) -> Result<Tensor, ModelError> {
        let hidden = match gradient {
            Gradient::Trunk => hidden.clone(),
            Gradient::Head => hidden.detach(),
        };
        let [(_, weight), (_, bias)] = &self.vars[..] else {
            return Err(ModelError("a head is a weight and a bias".to_owned()));
        };
        Ok(nn::linear_bias(&hidden, weight, Some(bias))?.flatten_all()?)
    }

    /// A number for each row, `[R]`: that of its last token. Row `r` is the tokens `offsets[r]..offsets[r + 1]`.
    ///
    /// # Errors
    ///
    /// If the widths differ, or a row is empty.
    pub fn scores(
        &self,
        hidden: &Tensor,
        offsets: &[usize],
        gradient: Gradient,
    ) -> Result<Tensor, ModelError> {
        if offsets.windows(2).any(|row| row[0] >= row[1]) {
            return Err(ModelError("a row without tokens has no score".to_owned()));
        }
        let last: Arc<[u32]> = offsets.iter().skip(1).map(|&end| end as u32 - 1).collect();
        self.values(&nn::pick(hidden, &last)?, gradient)
    }
}

/// A head on a trunk of its own.
pub struct Critic {
    /// The trunk; its output head is not used.
    pub model: Model,
    /// The head.
    pub head: Head,
}

impl Critic {
    /// The numbers of packed rows, `[N]`, with a gradient to the trunk. `ids` and `positions` are `[N]`; row `r` is the
    /// tokens `offsets[r]..offsets[r + 1]`.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range.
    pub fn values(
        &self,
        ids: &Arc<[u32]>,
        positions: &Arc<[u32]>,
        offsets: &Arc<[usize]>,
    ) -> Result<Tensor, ModelError> {
        let hidden = self.model.tracked.forward(ids, positions, Context::Packed(offsets))?;
        self.head.values(&hidden, Gradient::Trunk)
    }

    /// Names and variables of the trunk's trainable weights that reach the head, and of the head. A separate output head
    /// (`lm_head.weight`) is not among them: no value depends on it.
    pub fn trainable(&self) -> impl Iterator<Item = &(String, Var)> {
        let trunk = self.model.trainable().iter().filter(|(name, _)| name != "lm_head.weight");
        trunk.chain(self.head.vars())
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use maverl_kernels::sample::uniform;

    use super::*;
    use crate::model::{ModelFiles, ModelSource};

    fn random(seed: u64, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        let values = (0..n as u64).map(|i| uniform(seed, i) as f32 - 0.5).collect();
        nn::tensor(values, shape).unwrap()
    }

    fn tiny() -> Model {
        Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
    }

    fn head(kind: HeadKind, width: usize) -> Head {
        Head::over(kind, [random(1, &[1, width]), random(2, &[1])]).unwrap()
    }

    /// `Σ c (h · w + b)` in f64.
    fn reference(h: &[f64], w: &[f64], b: f64, c: &[f64]) -> f64 {
        let value = |row: &[f64]| row.iter().zip(w).map(|(h, w)| h * w).sum::<f64>() + b;
        h.chunks_exact(w.len()).zip(c).map(|(row, c)| c * value(row)).sum()
    }

    fn wide(tensor: &Tensor) -> Vec<f64> {
        let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        values.into_iter().map(f64::from).collect()
    }

    fn close(ours: &Tensor, at: &[f64], f: impl Fn(&[f64]) -> f64) {
        for (i, ours) in wide(ours).iter().enumerate() {
            let moved = |h: f64| {
                let mut at = at.to_vec();
                at[i] += h;
                f(&at)
            };
            let expected = (moved(1e-4) - moved(-1e-4)) / 2e-4;
            assert!((ours - expected).abs() < 1e-5, "{ours} is not {expected}");
        }
    }

    #[test]
    fn gradients_agree_with_central_differences_and_end_where_they_are_to() {
        let head = head(HeadKind::Value, 12);
        let hidden = Var::from_tensor(&random(3, &[5, 12])).unwrap();
        let c = random(4, &[5]);
        let [h, w, b, wc] =
            [hidden.as_tensor(), head.vars()[0].1.as_tensor(), head.vars()[1].1.as_tensor(), &c]
                .map(wide);
        for gradient in [Gradient::Trunk, Gradient::Head] {
            let values = head.values(&hidden, gradient).unwrap();
            assert_eq!(values.dims(), [5]);
            let loss = (values * &c).unwrap().sum_all().unwrap();
            let expected = reference(&h, &w, b[0], &wc);
            assert!((f64::from(loss.to_scalar::<f32>().unwrap()) - expected).abs() < 1e-5);
            let grads = loss.backward().unwrap();
            close(grads.get(&head.vars()[0].1).unwrap(), &w, |w| reference(&h, w, b[0], &wc));
            close(grads.get(&head.vars()[1].1).unwrap(), &b, |b| reference(&h, &w, b[0], &wc));
            match (gradient, grads.get(&hidden)) {
                (Gradient::Trunk, Some(dh)) => close(dh, &h, |h| reference(h, &w, b[0], &wc)),
                (Gradient::Head, None) => {}
                (_, found) => panic!("{gradient:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_row_is_scored_at_its_last_token_and_alone_as_in_a_batch() {
        let head = head(HeadKind::Reward, 12);
        let hidden = random(3, &[20, 12]);
        let values = head.values(&hidden, Gradient::Head).unwrap().to_vec1::<f32>().unwrap();
        let scores = head.scores(&hidden, &[0, 7, 8, 20], Gradient::Head).unwrap();
        assert_eq!(scores.to_vec1::<f32>().unwrap(), [values[6], values[7], values[19]]);
        for (i, value) in values.iter().enumerate() {
            let alone = head.values(&hidden.narrow(0, i, 1).unwrap(), Gradient::Head).unwrap();
            assert_eq!(alone.to_vec1::<f32>().unwrap(), [*value]);
        }
        assert!(head.scores(&hidden, &[0, 7, 7], Gradient::Head).is_err());
    }

    #[test]
    fn a_head_written_and_read_back_is_the_same_to_the_bit() {
        let model = tiny();
        let dir = tempfile::tempdir().unwrap();
        let load = |kind| Head::load(kind, dir.path(), &model.config);
        assert!(load(HeadKind::Value).unwrap().is_none());
        for kind in [HeadKind::Value, HeadKind::Reward] {
            let head = head(kind, model.config.hidden_size);
            head.save(dir.path()).unwrap();
            let read = load(kind).unwrap().unwrap();
            for ((name, ours), (other, read)) in head.vars().iter().zip(read.vars()) {
                assert_eq!((name, wide(ours)), (other, wide(read)));
            }
        }
        head(HeadKind::Value, model.config.hidden_size + 1).save(dir.path()).unwrap();
        let error = load(HeadKind::Value).unwrap_err().0;
        assert!(error.contains("value_head.safetensors: weight is [1, "), "{error}");
    }

    #[test]
    fn every_weight_of_a_critic_gets_a_gradient_and_it_is_saved_whole() {
        let model = tiny();
        let head = head(HeadKind::Value, model.config.hidden_size);
        let critic = Critic { model, head };
        let ids: Arc<[u32]> = (1..20).collect();
        let positions: Arc<[u32]> = (0..19).collect();
        let values = critic.values(&ids, &positions, &[0, 19].into()).unwrap();
        let grads = values.sum_all().unwrap().backward().unwrap();
        for (name, var) in critic.trainable() {
            assert!(grads.get(var).is_some(), "{name} got no gradient");
        }
        let dir = tempfile::tempdir().unwrap();
        critic.save(dir.path()).unwrap();
        let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
        let model = Model::load(&files).unwrap();
        let head = Head::load(HeadKind::Value, dir.path(), &model.config).unwrap().unwrap();
        let read = Critic { model, head };
        let again = read.values(&ids, &positions, &[0, 19].into()).unwrap();
        assert_eq!(wide(&again), wide(&values));
    }

    #[test]
    fn a_new_head_says_zero() {
        let model = tiny();
        let head = Head::new(HeadKind::Value, &model.config).unwrap();
        let hidden = random(1, &[3, model.config.hidden_size]);
        assert_eq!(wide(&head.values(&hidden, Gradient::Trunk).unwrap()), [0.0; 3]);
    }
}
