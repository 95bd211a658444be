//! Matrices of an adapter in files of PEFT, where those of experts that are one tensor are joined.

use std::collections::BTreeMap;

use super::target::{LoraFactor, LoraTarget, ParameterPart, stored_factor};
use crate::files::save::SavedTensor;
use crate::files::{ModelError, Shards};
use crate::net::values::Tensor;

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
