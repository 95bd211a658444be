//! Adapters: trained low-rank corrections of a base whose own weights stay as they are (LoRA: Hu et al., 2021,
//! arXiv:2106.09685; rslora: Kalajdzievski, 2023, arXiv:2312.03732), read and written as PEFT does.
//!
//! ```text
//! Model::load(files)            the base
//!   .with_adapter(adapter)      the base's storage under an adapter: several adapters cost one base
//!   .load_adapter(dir)          the same, read from a PEFT directory
//!     .save(dir)                adapter_config.json and adapter_model.safetensors
//!     .merge()                  a model whose own weights hold the adapter, checked against the unmerged one
//! ```
//!
//! A directory that holds `adapter_config.json` is an adapter ([`is_adapter`]).

mod config;
mod keys;
mod parameters;
mod patterns;
mod stored;
mod target;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use maverl_kernels::matmul::Precision;
use maverl_kernels::sample::{derive_seed, uniform_number};

pub use config::{LoraConfig, WEIGHTS_FILE, is_adapter, linear_names};

pub use keys::{CONFIG_FILE, MAX_RANK};
use parameters::refuse_dropout;
pub(crate) use parameters::split_targets;
pub use patterns::{Modules, Patterns};
use stored::{StoredFactors, saved_factors};
use target::{LoraFactor, stored_factor};
pub use target::{LoraTarget, ParameterPart};

use crate::files::Shards;
use crate::files::save::TensorWriter;
use crate::files::shards::list_problems;
use crate::files::{HfConfig, ModelError};
use crate::net::Decoder;
use crate::net::linear::{Dropout, Lora};
use crate::net::ops::{Cpu, Ops};
use crate::net::values::{Params, Tensor};
use crate::net::weights::Weights;

/// The weights of an adapter, as f32 variables. Cloning shares them.
#[derive(Clone)]
pub struct Adapter<O: Ops = Cpu> {
    config: LoraConfig,
    targets: Vec<LoraTarget>,
    /// `NAME.lora_A.weight [r, I]` and `NAME.lora_B.weight [O, r]` of each target, in the order of the base's layers. A target that
    /// shares its A with the one before has B alone.
    params: Params<O>,
}

impl<O: Ops> Adapter<O> {
    /// Rank, scale, dropout and targets.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// Names (without PEFT's prefix) and variables, A before B, in the order of the base's layers.
    pub fn vars(&self) -> &[(String, Tensor<O>)] {
        self.params.vars()
    }

    /// Iterates over the linear maps that are corrected, in the order of the base's layers, each with its A and B.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&LoraTarget, [&Tensor<O>; 2])> {
        let vars = self.vars();
        let places = param_places(&self.targets);
        let targets = self.targets.iter().zip(places);
        targets.map(move |(target, ab)| (target, ab.map(|at| &vars[at].1)))
    }

    /// The array that holds them.
    pub fn params(&self) -> &Params<O> {
        &self.params
    }

    /// Puts the adapter on a decoder of its base, in place of one that is there.
    pub(super) fn attach(&self, decoder: &mut Decoder<O>) {
        let targets = self.targets.iter().zip(param_places(&self.targets));
        let targets: BTreeMap<&str, _> =
            targets.map(|(target, ab)| (target.name.as_str(), (ab, target))).collect();
        for (name, lora) in decoder.loras() {
            *lora = targets.get(name.as_str()).map(|&(ab, target)| {
                let [a, b] = ab.map(|index| self.params.param(index));
                Lora { a, b, scale: target.scale, dropout: None }
            });
        }
    }

    /// Copies the adapter on its device, for training or not.
    pub(super) fn copy(&self, ops: &O, trained: bool) -> Result<Self, ModelError> {
        Ok(self.over(self.params.copy(ops, trained)?))
    }

    /// Copies the adapter to the host.
    #[cfg(any(feature = "cuda", feature = "candle"))]
    pub(super) fn to_host(&self, ops: &O) -> Result<Adapter, ModelError> {
        Ok(self.over(self.params.to_host(ops)?))
    }

    /// Returns the adapter with other parameters of the same places.
    fn over<P: Ops>(&self, params: Params<P>) -> Adapter<P> {
        let Self { config, targets, params: _ } = self;
        Adapter { config: config.clone(), targets: targets.clone(), params }
    }
}

impl Adapter {
    /// A new adapter for a base: every A uniform in `±1 / sqrt(I)`, as PEFT draws it (He et al., 2015, with a = √5), every
    /// B zero, so that it changes nothing yet. Equal seeds give equal adapters.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub fn new(base: &HfConfig, config: LoraConfig, seed: u64) -> Result<Self, ModelError> {
        Self::build(base, config, |index, target, part, values| {
            if matches!(part, LoraFactor::A) {
                let bound = (target.input as f64).sqrt().recip();
                let stream = derive_seed(seed, index as u64);
                for (value, i) in values.iter_mut().zip(0..) {
                    *value = (bound * (2.0 * uniform_number(stream, i) - 1.0)) as f32;
                }
            }
            Ok(())
        })
    }

    /// Reads a PEFT directory for a base. Its dropout is not taken over: what trains the adapter says whether there is
    /// any.
    ///
    /// # Errors
    ///
    /// If the directory uses an option of PEFT that is not supported, or its tensors are not those of its configuration;
    /// all of them are named.
    pub fn load(dir: &Path, base: &HfConfig) -> Result<Self, ModelError> {
        let (config, shards) = open(dir, base)?;
        let mut stored = StoredFactors::new(&shards);
        Self::build(base, config, |_, target, part, values| stored.fill(part, target, values))
    }

    /// `fill` gets the index of a target and writes one of its matrices, which is zero.
    fn build(
        base: &HfConfig,
        config: LoraConfig,
        mut fill: impl FnMut(usize, &LoraTarget, LoraFactor, &mut [f32]) -> Result<(), ModelError>,
    ) -> Result<Self, ModelError> {
        let targets = config.targets(base)?;
        let parts = targets.iter().enumerate().flat_map(|(index, target)| {
            let a = (!target.shares_a()).then_some((index, LoraFactor::A));
            a.into_iter().chain([(index, LoraFactor::B)])
        });
        let parts: Vec<(usize, LoraFactor)> = parts.collect();
        let shapes = parts.iter().map(|&(index, part)| {
            let target = &targets[index];
            (part.name(target), part.shape(target).to_vec())
        });
        let params = Params::new(shapes, |at, values| {
            let (index, part) = parts[at];
            fill(index, &targets[index], part, values)
        });
        Ok(Self { params: params?, config, targets })
    }

    /// Copies the adapter to a device, for training or not.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn on<O: Ops>(&self, ops: &O, trained: bool) -> Result<Adapter<O>, ModelError> {
        Ok(self.over(self.params.on(ops, trained)?))
    }

    /// Returns the same weights with another dropout in training.
    ///
    /// # Errors
    ///
    /// If there is dropout, and the adapter corrects experts that are one tensor, for which PEFT has none.
    pub fn with_dropout(mut self, dropout: f32) -> Result<Self, ModelError> {
        refuse_dropout(&self.config.patterns.target_parameters, dropout)?;
        self.config.dropout = dropout;
        Ok(self)
    }

    /// Writes `adapter_config.json` and `adapter_model.safetensors`; `base` is what the configuration calls the base.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, dir: &Path, base: &str) -> Result<(), ModelError> {
        self.save_with(dir, base, &mut TensorWriter::Direct)
    }

    /// Writes what [`Adapter::save`] writes, tensors by a writer.
    pub(super) fn save_with(
        &self,
        dir: &Path,
        base: &str,
        writer: &mut TensorWriter,
    ) -> Result<(), ModelError> {
        self.config.write(dir, base)?;
        writer.put(dir.join(WEIGHTS_FILE), &saved_factors(self.pairs()))
    }

    /// Takes the values of an adapter of the same shape from a PEFT directory.
    ///
    /// # Errors
    ///
    /// If it is not there, or is another adapter.
    pub fn restore(&self, dir: &Path, base: &HfConfig) -> Result<(), ModelError> {
        let saved = Self::load(dir, base)?;
        let (ours, theirs) = (self.config.shape(), saved.config.shape());
        if ours != theirs {
            let place = dir.display();
            return Err(ModelError::no_match(format!(
                "{place} holds another adapter: {theirs}, not {ours}"
            )));
        }
        for ((_, var), (_, saved)) in self.vars().iter().zip(saved.vars()) {
            var.set(&saved.values())?;
        }
        Ok(())
    }

    /// A copy that shares nothing with this one.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { params: self.params.duplicate(), ..self.clone() }
    }

    /// Adds `scale · B A` to the weights of the base that it corrects.
    pub(super) fn add_to(&self, weights: &Weights) -> Result<(), ModelError> {
        let vars = weights.vars().iter().map(|(name, weight)| (name.as_str(), weight));
        let vars: BTreeMap<&str, &Tensor> = vars.collect();
        for (target, [a, b]) in self.pairs() {
            let name = &target.weight;
            let Some(weight) = vars.get(name.as_str()) else {
                return Err(ModelError::no_match(format!("the base has no weight `{name}`")));
            };
            let &LoraTarget { output: o, rank: r, input: i, scale, .. } = target;
            let mut delta = vec![0.0; o * i];
            let (a, b) = (a.values(), b.values());
            Precision::F32.set().nn(&b, &a, &mut delta, o, i, r);
            weight.update(|weight| {
                weight.iter_mut().zip(&delta).for_each(|(w, d)| *w += scale * d);
            });
        }
        Ok(())
    }
}

/// A decoder whose adapter drops a share `p` of its inputs, by a key for each token of the batch it is given next.
pub fn with_dropout<O: Ops>(decoder: &Decoder<O>, p: f32, keys: &Arc<[u64]>) -> Decoder<O> {
    let mut decoder = decoder.clone();
    for (place, (_, lora)) in decoder.loras().enumerate() {
        if let Some(lora) = lora {
            lora.dropout = Some(Dropout { p, place: place as u64, keys: Arc::clone(keys) });
        }
    }
    decoder
}

/// Returns the numbers of the parameters of each target, of A and of B.
fn param_places(targets: &[LoraTarget]) -> Vec<[usize; 2]> {
    let (mut a, mut next) = (0, 0);
    let places = targets.iter().map(|target| {
        if !target.shares_a() {
            (a, next) = (next, next + 1);
        }
        next += 1;
        [a, next - 1]
    });
    places.collect()
}

/// Configuration of a PEFT directory, after a check that its tensors are those of a base. No tensor is read.
///
/// # Errors
///
/// See [`Adapter::load`].
pub fn inspect(dir: &Path, base: &HfConfig) -> Result<LoraConfig, ModelError> {
    open(dir, base).map(|(config, _)| config)
}

fn open(dir: &Path, base: &HfConfig) -> Result<(LoraConfig, Shards), ModelError> {
    let config = LoraConfig::read(dir)?;
    let file = dir.join(WEIGHTS_FILE);
    let shards = Shards::open_file(&file)?;
    check(&shards, &config, base)
        .map_err(|problems| ModelError::no_match(format!("{}: {problems}", file.display())))?;
    Ok((config, shards))
}

/// Every tensor of the file that is missing, misshapen or not of this adapter.
fn check(shards: &Shards, config: &LoraConfig, base: &HfConfig) -> Result<(), String> {
    let targets = config.targets(base).map_err(|error| error.to_string())?;
    let mut problems = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for target in &targets {
        for part in [LoraFactor::A, LoraFactor::B] {
            let (name, wanted) = stored_factor(part, target);
            if known.contains(&name) {
                continue;
            }
            match shards.shape(&name) {
                None => problems.push(format!("`{name}` {wanted:?} is missing")),
                Some(found) if found != wanted => problems.push(format!(
                    "`{name}` is {found:?}; {CONFIG_FILE} and the base ask for {wanted:?}"
                )),
                Some(_) => {}
            }
            known.insert(name);
        }
    }
    for name in shards.names().filter(|name| !known.contains(*name)) {
        problems.push(format!("`{name}` is no correction of a target module"));
    }
    if problems.is_empty() { Ok(()) } else { Err(list_problems(&problems)) }
}

#[cfg(test)]
mod tests;
