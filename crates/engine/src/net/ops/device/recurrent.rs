//! Operations of recurrent mixers and of output gates, by the kernels of a machine, and the states of sequences.

use std::sync::{Mutex, OnceLock, PoisonError};

use maverl_kernels::attention::{Packing, Segment};
use maverl_kernels::cuda::{ConvInput, ConvLayout, DeltaLayout, StateLayout, tokens_before};
use maverl_kernels::recurrent::DeltaHeads;

use super::{
    Device, DeviceKv, DeviceNumbers, DevicePlaced, Runner, machine_error, misused_error, sum,
    with_weight,
};
use crate::files::HfConfig;
use crate::files::parts::Conv;
use crate::net::gradients::Gradients;
use crate::net::ops::{Buffer, DeltaInputs, DeltaWeights, Done, RecurrentOps};
use crate::net::pool::Pool;
use crate::net::values::Param;

/// Numbers that the states of a slot are a multiple of.
const STEP: usize = 4;
/// Slots of the first allocation of states.
const FIRST_SLOTS: usize = 16;

/// Order of the tokens of a pass, for layers that carry a state from token to token. It is copied to the machine at first use.
pub(super) struct TokenOrder<M: Runner> {
    /// Bounds of packed nodes, and their parents.
    nodes: (Vec<usize>, Vec<Option<usize>>),
    /// Number of new tokens of each cached sequence, and its slot of states.
    new: Vec<[usize; 2]>,
    conv: OnceLock<ConvLayout<M>>,
    delta: OnceLock<DeltaLayout<M>>,
    states: OnceLock<StateLayout<M>>,
}

impl<M: Runner> Default for TokenOrder<M> {
    fn default() -> Self {
        let (conv, delta, states) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { nodes: Default::default(), new: Vec::new(), conv, delta, states }
    }
}

impl<M: Runner> TokenOrder<M> {
    /// Returns the order of packed rows.
    pub(super) fn of_rows(packing: Packing<'_>) -> Self {
        let nodes = (packing.offsets.to_vec(), packing.parents.to_vec());
        Self { nodes, ..Self::default() }
    }

    /// Returns the packing of rows.
    fn packing(&self) -> Done<Packing<'_>> {
        let (offsets, parents) = &self.nodes;
        if offsets.is_empty() {
            return Err(misused_error(
                "a recurrent layer of packed rows for the tokens of a cache",
            ));
        }
        Ok(Packing { offsets, parents })
    }

    /// Returns the order of new tokens of cached sequences. The first slot of an array is one of zeros.
    pub(super) fn of_segments(segments: &[Segment<'_>]) -> Self {
        let new = segments.iter().map(|of| [of.new_tokens, of.state as usize + 1]);
        Self { new: new.collect(), ..Self::default() }
    }
}

/// States of sequences in recurrent layers, in slots. Their array is replaced by one of twice the size where it is full.
#[derive(Debug)]
pub(super) struct StateSlots<M: Runner> {
    /// Locked, as states are advanced through a shared reference. The first slot is one of zeros.
    pub(super) array: Mutex<DeviceNumbers<M, f32>>,
    /// Numbers of a slot; 0 if no layer is recurrent.
    pub(super) stride: usize,
    /// Begins of the inputs of each layer's convolution, and of its state behind them.
    pub(super) starts: Vec<[usize; 2]>,
    /// Number of slots in use.
    count: usize,
}

impl<M: Runner> Default for StateSlots<M> {
    fn default() -> Self {
        Self { array: Mutex::default(), stride: 0, starts: Vec::new(), count: 0 }
    }
}

impl<M: Runner> StateSlots<M> {
    /// Returns the slots of a model, none of which is in use.
    pub(super) fn of(config: &HfConfig) -> Self {
        let (mut stride, mut starts) = (0, Vec::with_capacity(config.layers.len()));
        for layer in &config.layers {
            let [past, state] = layer.mixer.state_numbers().unwrap_or_default();
            starts.push([stride, stride + past]);
            stride += (past + state).next_multiple_of(STEP);
        }
        Self { stride, starts, ..Self::default() }
    }

    /// Returns true if no layer is recurrent.
    pub(super) fn is_empty(&self) -> bool {
        self.stride == 0
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.stride * size_of::<f32>()
    }

    /// Frees every slot.
    pub(super) fn clear(&mut self) {
        (self.array, self.count) = (Mutex::default(), 0);
    }

    /// Adds a slot of zeros.
    pub(super) fn add(&mut self, device: &Device<M>) -> Done<u32> {
        let array = self.array.get_mut().unwrap_or_else(PoisonError::into_inner);
        let room = array.len() / self.stride.max(1);
        if self.count + 1 >= room {
            let mut more = device.zeros((2 * room).max(FIRST_SLOTS) * self.stride)?;
            if room > 0 {
                device.kernels.grow_states(array.read()?, more.write()?).map_err(machine_error)?;
            }
            *array = more;
        }
        self.count += 1;
        let slot = self.count as u32 - 1;
        self.copy(device, [None, Some(slot)])?;
        Ok(slot)
    }

    /// Copies the states of one slot to another; those of none are zeros.
    pub(super) fn copy(&mut self, device: &Device<M>, slots: [Option<u32>; 2]) -> Done<()> {
        let places = slots.map(|slot| slot.map_or(0, |slot| slot as usize + 1));
        let array = self.array.get_mut().unwrap_or_else(PoisonError::into_inner);
        device.kernels.copy_slot(array.write()?, places, self.stride).map_err(machine_error)
    }
}

impl<M: Runner> RecurrentOps for Device<M> {
    fn apply_gate(&self, x: &Self::Act, gate: &Self::Act, _: &mut Pool<Self>) -> Done<Self::Act> {
        let mut y = self.take(x.len())?;
        self.kernels.apply_gate([x.read()?, gate.read()?], y.write()?).map_err(machine_error)?;
        Ok(y)
    }

    fn apply_gate_back(
        &self,
        [x, gate]: [&Self::Act; 2],
        dout: &Self::Act,
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]> {
        let [mut dx, mut dgate] = [self.take(x.len())?, self.take(x.len())?];
        let given = [x.read()?, gate.read()?, dout.read()?];
        self.kernels
            .apply_gate_back(given, [dx.write()?, dgate.write()?])
            .map_err(machine_error)?;
        Ok([dx, dgate])
    }

    fn multiply(&self, a: &Self::Act, b: &Self::Act, _: &mut Pool<Self>) -> Done<Self::Act> {
        let mut y = self.take(a.len())?;
        self.kernels.multiply([a.read()?, b.read()?], y.write()?).map_err(machine_error)?;
        Ok(y)
    }

    fn silu(&self, x: &Self::Act, _: &mut Pool<Self>) -> Done<Self::Act> {
        let mut y = self.take(x.len())?;
        self.kernels.silu(x.read()?, y.write()?).map_err(machine_error)?;
        Ok(y)
    }

    fn silu_back(&self, x: &Self::Act, mut gradient: Self::Act) -> Done<Self::Act> {
        self.kernels.silu_back(x.read()?, gradient.write()?).map_err(machine_error)?;
        Ok(gradient)
    }

    fn convolve(
        &self,
        x: &Self::Act,
        conv: &Conv<Param<Self>>,
        at: &DevicePlaced<'_, M>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut y = self.take(x.len())?;
        let (given, to, layout) = (x.read()?, y.write()?, self.conv_layout(conv, at)?);
        with_conv(conv, |of| self.kernels.convolve(given, of, layout, to).map_err(machine_error))?;
        Ok(y)
    }

    fn convolve_back(
        &self,
        x: &Self::Act,
        conv: &Conv<Param<Self>>,
        dy: &Self::Act,
        at: &DevicePlaced<'_, M>,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut dx = self.take(x.len())?;
        let (given, layout) = ([x.read()?, dy.read()?], self.conv_layout(conv, at)?);
        if let Some(bias) = &conv.bias
            && let Some(db) = sum(sums, bias)?
        {
            self.kernels.sum_rows(dy.read()?, db).map_err(machine_error)?;
        }
        let (to, dw) = (dx.write()?, sum(sums, &conv.weight)?);
        with_conv(conv, |of| {
            self.kernels.convolve_back(given, of, layout, to, dw).map_err(machine_error)
        })?;
        Ok(dx)
    }

    fn convolve_cached(
        &self,
        x: &Self::Act,
        conv: &Conv<Param<Self>>,
        (kv, layer): (&DeviceKv<M>, usize),
        at: &DevicePlaced<'_, M>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut y = self.take(x.len())?;
        let StateSlots { array, stride, starts, .. } = &kv.states;
        let mut array = array.lock().unwrap_or_else(PoisonError::into_inner);
        let states = (array.write()?, *stride, starts[layer][0]);
        let (given, to, layout) = (x.read()?, y.write()?, self.state_layout(at)?);
        with_conv(conv, |of| {
            self.kernels.convolve_cached(given, of, layout, states, to).map_err(machine_error)
        })?;
        Ok(y)
    }

    fn delta_inputs(
        &self,
        raw: &Self::Act,
        gates: [&Self::Act; 2],
        net: &DeltaWeights<Self>,
        _: &mut Pool<Self>,
    ) -> Done<DeltaInputs<Self>> {
        self.delta_inputs_of(raw, gates, net)
    }

    fn delta_inputs_back(
        &self,
        (raw, gates): (&Self::Act, [&Self::Act; 2]),
        net: &DeltaWeights<Self>,
        gradients: DeltaInputs<Self>,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; 3]> {
        self.delta_inputs_of_back((raw, gates), net, gradients, sums)
    }

    fn delta_rule(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        at: &DevicePlaced<'_, M>,
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]> {
        self.delta_rule_of_rows(inputs, heads, at)
    }

    fn delta_rule_back(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        states_and_dout: [&Self::Act; 2],
        at: &DevicePlaced<'_, M>,
        _: &mut Pool<Self>,
    ) -> Done<DeltaInputs<Self>> {
        self.delta_rule_of_rows_back(inputs, heads, states_and_dout, at)
    }

    fn delta_rule_cached(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        cache: (&DeviceKv<M>, usize),
        at: &DevicePlaced<'_, M>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        self.delta_rule_of_sequences(inputs, heads, cache, at)
    }
}

impl<M: Runner> Device<M> {
    /// Returns packed rows as a convolution reads them. All convolutions of a model have one kernel.
    fn conv_layout<'p>(
        &self,
        conv: &Conv<Param<Self>>,
        at: &'p DevicePlaced<'_, M>,
    ) -> Done<&'p ConvLayout<M>> {
        let order = &at.tokens().order;
        if let Some(layout) = order.conv.get() {
            return Ok(layout);
        }
        let before = tokens_before(order.packing()?);
        let made = self.kernels.conv_layout(&before, conv.kernel).map_err(machine_error)?;
        Ok(order.conv.get_or_init(|| made))
    }

    /// Returns packed rows as the delta rule walks them.
    pub(super) fn delta_layout<'p>(&self, at: &'p DevicePlaced<'_, M>) -> Done<&'p DeltaLayout<M>> {
        let order = &at.tokens().order;
        if let Some(layout) = order.delta.get() {
            return Ok(layout);
        }
        let made = self.kernels.delta_layout(order.packing()?).map_err(machine_error)?;
        Ok(order.delta.get_or_init(|| made))
    }

    /// Returns new tokens as layers behind the states of their sequences read them.
    pub(super) fn state_layout<'p>(&self, at: &'p DevicePlaced<'_, M>) -> Done<&'p StateLayout<M>> {
        let order = &at.tokens().order;
        if let Some(layout) = order.states.get() {
            return Ok(layout);
        }
        let made = self.kernels.state_layout(&order.new).map_err(machine_error)?;
        Ok(order.states.get_or_init(|| made))
    }
}

/// Calls `f` with the weights of a convolution.
fn with_conv<M: Runner, R>(
    conv: &Conv<Param<Device<M>>>,
    f: impl FnOnce(ConvInput<'_>) -> Done<R>,
) -> Done<R> {
    let (of, kernel) = (&conv.weight, conv.kernel);
    with_weight(of, |w| match &conv.bias {
        None => f(ConvInput { w, bias: None, kernel }),
        Some(bias) => with_weight(bias, |bias| f(ConvInput { w, bias: Some(bias), kernel })),
    })
}
