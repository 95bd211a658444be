//! The gated delta rule on a machine. Gates and states are f32; the buffers of activations hold their bits, two elements each.

use std::sync::PoisonError;

use maverl_kernels::cuda::{DeltaGates, DeltaSlices, DeltaTargets, state_words};
use maverl_kernels::recurrent::DeltaHeads;

use super::recurrent::StateSlots;
use super::{
    Device, DeviceKv, DeviceNumbers, DevicePlaced, Runner, machine_error, sum, with_weight,
};
use crate::net::gradients::Gradients;
use crate::net::ops::{Buffer, DeltaInputs, DeltaWeights, Done};

/// Elements of the bits of an f32.
const WORDS: usize = 2;

impl<M: Runner> Device<M> {
    /// Normalizes queries and keys, and computes the gates of the state.
    pub(super) fn delta_inputs_of(
        &self,
        raw: &DeviceNumbers<M, u16>,
        gates: [&DeviceNumbers<M, u16>; 2],
        net: &DeltaWeights<Self>,
    ) -> Done<DeltaInputs<Self>> {
        let mut mixed = self.take(raw.len())?;
        let words = WORDS * gates[0].len();
        let [mut decay, mut beta] = [self.take(words)?, self.take(words)?];
        let (given, to) = (raw.read()?, [decay.write()?, beta.write()?]);
        let of_keys = mixed.write()?;
        with_gates(gates, net, |gates| {
            self.kernels.delta_inputs(given, gates, net.heads, of_keys, to).map_err(machine_error)
        })?;
        Ok(DeltaInputs { mixed, decay, beta })
    }

    /// Computes the gradients of [`Device::delta_inputs_of`] by `raw`, `a` and `b`, from those of its result.
    pub(super) fn delta_inputs_of_back(
        &self,
        (raw, gates): (&DeviceNumbers<M, u16>, [&DeviceNumbers<M, u16>; 2]),
        net: &DeltaWeights<Self>,
        gradients: DeltaInputs<Self>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<[DeviceNumbers<M, u16>; 3]> {
        let DeltaInputs { mixed: mut draw, decay: log_decay, beta } = gradients;
        let [mut da, mut db] = [self.take(gates[0].len())?, self.take(gates[1].len())?];
        let values = net.heads.values;
        let [mut of_log, mut of_bias] = [self.zeros(values)?, self.zeros(values)?];
        let of_gates = [log_decay.read()?, beta.read()?];
        let to = [da.write()?, db.write()?];
        let parts = [Some(of_log.write()?), Some(of_bias.write()?)];
        let (given, of_keys) = (raw.read()?, draw.write()?);
        with_gates(gates, net, |gates| {
            self.kernels
                .delta_inputs_back((given, gates, net.heads), of_keys, of_gates, to, parts)
                .map_err(machine_error)
        })?;
        for (param, part) in [(&net.a_log, &of_log), (&net.dt_bias, &of_bias)] {
            if let Some(to) = sum(sums, param)? {
                self.kernels.axpy(1.0, part.read()?, to).map_err(machine_error)?;
            }
        }
        Ok([draw, da, db])
    }

    /// Computes the rule of packed rows. Also returns the states after each span.
    pub(super) fn delta_rule_of_rows(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        at: &DevicePlaced<'_, M>,
    ) -> Done<[DeviceNumbers<M, u16>; 2]> {
        let layout = self.delta_layout(at)?;
        let mut states = self.take(layout.span_count() * state_words(heads))?;
        let mut out = self.take(inputs.beta.len() / WORDS * heads.value_dim)?;
        self.kernels
            .delta_rule(slices(inputs, heads)?, layout, states.write()?, out.write()?)
            .map_err(machine_error)?;
        Ok([out, states])
    }

    /// Computes the gradients of [`Device::delta_rule_of_rows`] by its inputs.
    pub(super) fn delta_rule_of_rows_back(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        [states, dout]: [&DeviceNumbers<M, u16>; 2],
        at: &DevicePlaced<'_, M>,
    ) -> Done<DeltaInputs<Self>> {
        let DeltaInputs { mixed, decay, beta } = inputs;
        let [mut mixed, mut decay, mut beta] =
            [self.take(mixed.len())?, self.take(decay.len())?, self.take(beta.len())?];
        let to =
            DeltaTargets { mixed: mixed.write()?, log_decay: decay.write()?, beta: beta.write()? };
        let (given, layout) = ([states.read()?, dout.read()?], self.delta_layout(at)?);
        self.kernels
            .delta_rule_back(slices(inputs, heads)?, layout, given, to)
            .map_err(machine_error)?;
        Ok(DeltaInputs { mixed, decay, beta })
    }

    /// Computes the rule of new tokens, and advances the states of their sequences.
    pub(super) fn delta_rule_of_sequences(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        (kv, layer): (&DeviceKv<M>, usize),
        at: &DevicePlaced<'_, M>,
    ) -> Done<DeviceNumbers<M, u16>> {
        let mut out = self.take(inputs.beta.len() / WORDS * heads.value_dim)?;
        let StateSlots { array, stride, starts, .. } = &kv.states;
        let mut array = array.lock().unwrap_or_else(PoisonError::into_inner);
        let states = (array.write()?, *stride, starts[layer][1]);
        self.kernels
            .delta_rule_cached(slices(inputs, heads)?, self.state_layout(at)?, states, out.write()?)
            .map_err(machine_error)?;
        Ok(out)
    }
}

/// Returns the inputs of the rule as kernels read them.
fn slices<M: Runner>(inputs: &DeltaInputs<Device<M>>, heads: DeltaHeads) -> Done<DeltaSlices<'_>> {
    let DeltaInputs { mixed, decay, beta } = inputs;
    Ok(DeltaSlices { mixed: mixed.read()?, decay: decay.read()?, beta: beta.read()?, heads })
}

/// Calls `f` with the inputs `a` and `b` of the gates and their weights.
fn with_gates<M: Runner, R>(
    [a, b]: [&DeviceNumbers<M, u16>; 2],
    net: &DeltaWeights<Device<M>>,
    f: impl FnOnce(DeltaGates<'_>) -> Done<R>,
) -> Done<R> {
    let inputs = [a.read()?, b.read()?];
    with_weight(&net.a_log, |a_log| {
        with_weight(&net.dt_bias, |dt_bias| f(DeltaGates { inputs, a_log, dt_bias }))
    })
}
