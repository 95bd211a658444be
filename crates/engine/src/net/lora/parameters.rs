//! Corrections of experts that are one tensor for all experts of a layer (gpt-oss): PEFT's `target_parameters`.
//!
//! PEFT has a pair of matrices for each such tensor, `[experts, inputs, outputs]` (peft `ParamWrapper`). Of `E` experts, rank `r`:
//!
//! ```text
//! A [r E, I]: row e r + ρ is row ρ of expert e        B [O, r E]: column ρ E + e is column ρ of expert e
//! ```
//!
//! Gates and ups alternate in the outputs of `gate_up_proj`, and have one A. In memory each expert has an A and a B of its own,
//! and the two maps of `gate_up_proj` have an A together.

use std::collections::{BTreeMap, BTreeSet};

use super::config::LoraTarget;
use super::patterns::names;
use super::{CONFIG_FILE, LoraConfig, LoraFactor, PREFIX};
use crate::files::parts::LinearShape;
use crate::files::save::SavedTensor;
use crate::files::{HfConfig, ModelError, ModelErrorKind, Shards};
use crate::net::values::Tensor;

/// Ends of the names of the tensors of experts.
const PARAMETERS: [&str; 2] = ["gate_up_proj", "down_proj"];

/// Place of the correction of an expert's map in that of the tensor of all experts.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterPart {
    /// Name of the module that has the correction in files.
    holder: String,
    /// Number of the expert, and of all experts.
    expert: usize,
    experts: usize,
    /// First output, and distance of outputs.
    first: usize,
    step: usize,
}

impl ParameterPart {
    /// Returns true if A is that of the map before.
    pub(super) fn shares_a(&self) -> bool {
        self.first > 0
    }

    /// Returns the name of a factor in files, with the prefix of PEFT, and its shape.
    fn stored(&self, factor: LoraFactor, target: &LoraTarget) -> (String, [usize; 2]) {
        let all = target.rank * self.experts;
        let (end, shape) = match factor {
            LoraFactor::A => ("lora_A", [all, target.input]),
            LoraFactor::B => ("lora_B", [target.output * self.step, all]),
        };
        (format!("{PREFIX}{}.{end}.weight", self.holder), shape)
    }

    /// Calls `take` with the index of each number of a factor, and that of it in files.
    fn each_number(
        &self,
        factor: LoraFactor,
        target: &LoraTarget,
        mut take: impl FnMut(usize, usize),
    ) {
        let Self { expert, experts, first, step, .. } = *self;
        let LoraTarget { rank, input, output, .. } = *target;
        match factor {
            LoraFactor::A => {
                (0..rank * input).for_each(|index| take(index, expert * rank * input + index));
            }
            LoraFactor::B => (0..output * rank).for_each(|index| {
                let (row, column) = (first + index / rank * step, index % rank);
                take(index, row * rank * experts + column * experts + expert);
            }),
        }
    }
}

/// Returns the name of a factor of a target in files, and its shape.
pub(super) fn stored_factor(factor: LoraFactor, target: &LoraTarget) -> (String, [usize; 2]) {
    match &target.part {
        Some(part) => part.stored(factor, target),
        None => (format!("{PREFIX}{}", factor.name(target)), factor.shape(target)),
    }
}

/// Factors of files, of which those of experts are parts. The last of each kind is kept, as many targets have parts of it.
pub(super) struct StoredFactors<'a> {
    shards: &'a Shards,
    last: [(String, Vec<f32>); 2],
}

impl<'a> StoredFactors<'a> {
    pub(super) fn new(shards: &'a Shards) -> Self {
        Self { shards, last: Default::default() }
    }

    /// Writes the values of a factor to a buffer of its shape.
    pub(super) fn fill(
        &mut self,
        factor: LoraFactor,
        target: &LoraTarget,
        to: &mut [f32],
    ) -> Result<(), ModelError> {
        let (name, shape) = stored_factor(factor, target);
        let Some(part) = &target.part else { return self.shards.fill(&name, &shape, to) };
        let (last, whole) = &mut self.last[usize::from(matches!(factor, LoraFactor::B))];
        if *last != name {
            whole.resize(shape.iter().product(), 0.0);
            self.shards.fill(&name, &shape, whole)?;
            *last = name;
        }
        part.each_number(factor, target, |index, stored| to[index] = whole[stored]);
        Ok(())
    }
}

/// Returns the tensors to be written for targets with their factors.
pub(super) fn saved_factors<'a>(
    pairs: impl Iterator<Item = (&'a LoraTarget, [&'a Tensor; 2])>,
) -> Vec<SavedTensor<'a>> {
    /// Parts of a tensor.
    type Parts<'a> = Vec<(&'a ParameterPart, &'a LoraTarget, &'a Tensor)>;
    let (mut saved, mut places) = (Vec::new(), BTreeMap::new());
    let mut joined: Vec<(LoraFactor, String, [usize; 2], Parts<'_>)> = Vec::new();
    for (target, pair) in pairs {
        for (factor, tensor) in [LoraFactor::A, LoraFactor::B].into_iter().zip(pair) {
            let (name, shape) = stored_factor(factor, target);
            let Some(part) = &target.part else {
                saved.push(SavedTensor::tensor(name, tensor));
                continue;
            };
            let place = *places.entry(name.clone()).or_insert(joined.len());
            if place == joined.len() {
                joined.push((factor, name, shape, Vec::new()));
            }
            joined[place].3.push((part, target, tensor));
        }
    }
    saved.extend(joined.into_iter().map(|(factor, name, shape, parts)| {
        SavedTensor::computed(name, &shape, move || {
            let mut values = vec![0.0; shape.iter().product()];
            for (part, target, tensor) in &parts {
                let own = tensor.values();
                part.each_number(factor, target, |index, stored| values[stored] = own[index]);
            }
            values
        })
    }));
    saved
}

/// Map of an expert, with the name of the tensor of all experts that it is a part of.
struct PartMap<'a> {
    tensor: String,
    name: String,
    map: &'a LinearShape,
}

/// Returns the maps of experts that are parts of one tensor, in the order of layers.
fn part_maps(base: &HfConfig) -> Vec<PartMap<'_>> {
    let maps = base.linears().filter(|(_, map)| map.expert.is_some() && !base.adapts(map));
    let maps = maps.filter_map(|(name, map)| {
        let (experts, rest) = name.split_once(".experts.")?;
        let end = if rest.ends_with("down_proj") { PARAMETERS[1] } else { PARAMETERS[0] };
        Some(PartMap { tensor: format!("{experts}.experts.{end}"), name, map })
    });
    maps.collect()
}

/// Splits names of target modules into those of linear maps and those of tensors of experts.
pub(crate) fn split_targets(base: &HfConfig, targets: Vec<String>) -> (Vec<String>, Vec<String>) {
    let tensors: BTreeSet<String> = part_maps(base).into_iter().map(|map| map.tensor).collect();
    let of_experts = |target: &String| tensors.iter().any(|tensor| names(target, tensor));
    let (parameters, modules) = targets.into_iter().partition(of_experts);
    (modules, parameters)
}

/// Returns how experts that are one tensor are corrected, in words for a message.
pub(super) fn in_words() -> String {
    let [two, down] = PARAMETERS;
    format!(
        ", and `{two}` and `{down}` of all experts of a layer, which are one tensor; routers have no adapters"
    )
}

impl LoraConfig {
    /// Returns the maps of experts that are corrected as parts of the tensors of `target_parameters`, in the order of layers.
    pub(super) fn parameter_targets(&self, base: &HfConfig) -> Result<Vec<LoraTarget>, ModelError> {
        let entries = &self.patterns.target_parameters;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let maps = part_maps(base);
        let of_map = |entry: &String| maps.iter().any(|map| names(entry, &map.tensor));
        if let Some(unknown) = entries.iter().find(|entry| !of_map(entry)) {
            return Err(ModelError::no_match(format!(
                "`target_parameters` has {unknown:?}, which names no tensor of all experts of a layer; {}",
                if maps.is_empty() {
                    "this model has none".to_owned()
                } else {
                    format!("there are `experts.{}` and `experts.{}`", PARAMETERS[0], PARAMETERS[1])
                }
            )));
        }
        if self.dropout > 0.0 {
            return Err(ModelError::no_match(format!(
                "`dropout` is {}, which PEFT does not have for experts that are one tensor; set `dropout = 0`, or leave \
                 `{}` out of `target_modules`",
                self.dropout,
                entries.join("`, `")
            )));
        }
        let tensors: Vec<&str> = maps.iter().map(|map| map.tensor.as_str()).collect();
        let choices = self.patterns.choose(&[], &tensors).map_err(|(key, why)| {
            ModelError::new(ModelErrorKind::Invalid, format!("{CONFIG_FILE}: `{key}` wants {why}"))
        })?;
        let chosen: BTreeSet<&str> = tensors
            .iter()
            .copied()
            .filter(|tensor| entries.iter().any(|entry| names(entry, tensor)))
            .collect();
        let corrected = maps.iter().zip(choices).filter(|(map, _)| chosen.contains(&*map.tensor));
        let targets = corrected.map(|(map, choice)| {
            let part = parameter_part(base, map, &chosen);
            LoraTarget { part, ..self.target(base, map.name.clone(), map.map, choice) }
        });
        Ok(targets.collect())
    }
}

/// Returns the place of a map in the tensor of all experts. PEFT wraps the module of experts once for each of its tensors that
/// is corrected, `down_proj` outermost.
fn parameter_part(
    base: &HfConfig,
    of: &PartMap<'_>,
    chosen: &BTreeSet<&str>,
) -> Option<ParameterPart> {
    let (module, end) = of.tensor.rsplit_once('.')?;
    let within = end == PARAMETERS[0] && chosen.contains(&*format!("{module}.{}", PARAMETERS[1]));
    let experts = base.layers.iter().find_map(|layer| layer.mlp.experts())?.router.experts;
    Some(ParameterPart {
        holder: if within { format!("{module}.base_layer") } else { module.to_owned() },
        expert: usize::from(of.map.expert?),
        experts,
        first: usize::from(of.name.ends_with("up_proj")),
        step: if end == PARAMETERS[0] { 2 } else { 1 },
    })
}
