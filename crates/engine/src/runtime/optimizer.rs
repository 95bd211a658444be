//! AdamW, with moments in 32 or 8 bits, or Muon on the parameters of one model, in place, with its state.
//!
//! With `dist.shard = "optimizer"` (ZeRO-1), a rank has the moments of one range of each unit of the parameters. It updates
//! these, and all ranks gather the weights. The squares of the norm are summed range by range also without it, so that both
//! have the same bits. Muon needs whole matrices and moments in 8 bits whole blocks, so these are not divided.

mod eight_bit;
mod shards;

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use crate::files::save::StoredDtype;
use crate::files::{ModelError, Shards};
use crate::net::gradients::common;
use crate::net::memory::OptimizerPart;
use crate::net::ops::{Cpu, Ops};
use crate::net::{Gradients, Params};
use crate::runtime::peers::Peers;
use crate::runtime::{OptimOptions, OptimizerKind, SavedMoments};
use eight_bit::EightBitMoments;
pub(crate) use shards::ShardMoments;

/// Moments of parameters, and the number of steps.
pub(crate) struct Optimizer<O: Ops = Cpu> {
    options: OptimOptions,
    ops: O,
    params: Params<O>,
    /// Ranks that may each have the moments of a shard of the parameters.
    peers: Peers,
    /// Ranges of the parameters that each rank owns, by unit, if ranks divide the moments.
    units: Vec<Vec<Range<usize>>>,
    /// Ranges of the parameters whose moments are here.
    own: Vec<Range<usize>>,
    /// Moments of these ranges; none if they have 8 bits.
    m: Vec<O::Sums>,
    v: Vec<O::Sums>,
    /// Moments of all parameters, if they have 8 bits.
    eight_bit: Option<EightBitMoments>,
    /// Root mean square of the last updates of matrices before the learning rate, if Muon makes them.
    muon_rms: Option<f64>,
    /// Array of zeros for the gradients of the next step, if there is one already.
    zeros: Option<O::Sums>,
    /// Number of steps that the moments have.
    pub(crate) step: u64,
    /// Number of steps since training began, which random numbers depend on. It is that of the moments, unless a checkpoint had
    /// none.
    pub(crate) taken: u64,
}

impl<O: Ops> Optimizer<O> {
    /// Creates zero moments, which `peers` may divide among them.
    ///
    /// Fails if Muon or moments in 8 bits are to be divided.
    pub(crate) fn new(
        ops: &O,
        options: OptimOptions,
        params: Params<O>,
        peers: Peers,
    ) -> Result<Self, ModelError> {
        let whole = match options.kind {
            OptimizerKind::Adamw => None,
            OptimizerKind::Muon => Some("Muon updates whole matrices"),
            OptimizerKind::Adamw8bit => Some("moments in 8 bits have whole blocks"),
        };
        if let Some(whole) = whole.filter(|_| peers.of_shards().is_some()) {
            let what = format!("{whole}, and `dist.shard` divides them among ranks");
            return Err(ModelError::wrong_argument(what));
        }
        let in_codes = options.kind == OptimizerKind::Adamw8bit;
        let (units, own) = match peers.of_shards() {
            Some(channel) => {
                let units = peers.owned_of_units(&params);
                let own = units.iter().map(|unit| unit[channel.rank()].clone()).collect();
                (units, own)
            }
            None if in_codes => (Vec::new(), Vec::new()),
            None => (Vec::new(), iter::once(0..params.elements()).collect()),
        };
        let (m, v) = (zeros_of(ops, &own)?, zeros_of(ops, &own)?);
        let eight_bit = in_codes.then(|| EightBitMoments::zeros(&params));
        let (ops, muon_rms, zeros) = (ops.clone(), None, None);
        Ok(Self {
            options,
            ops,
            params,
            peers,
            units,
            own,
            m,
            v,
            eight_bit,
            muon_rms,
            zeros,
            step: 0,
            taken: 0,
        })
    }

    /// Returns the root mean square of the last updates of matrices before the learning rate, if Muon makes them.
    pub(crate) fn muon_rms(&self) -> Option<f64> {
        self.muon_rms
    }

    /// Sets the options of the next steps. The moments stay.
    pub(crate) fn set_options(&mut self, options: OptimOptions) {
        self.options = options;
    }

    /// Creates gradients of zeros for the optimized parameters.
    pub(crate) fn gradients<'p>(
        &mut self,
        params: &'p Params<O>,
    ) -> Result<Gradients<'p, O>, ModelError> {
        match self.zeros.take().filter(|_| params.elements() == self.params.elements()) {
            Some(zeros) => Ok(Gradients::over(params, zeros)),
            None => Gradients::on(&self.ops, params),
        }
    }

    /// Takes one step. `norm` is the norm of all gradients that are clipped together. The gradients are those of the loss times
    /// `loss_scale`, a power of two, and `norm` is that without it.
    pub(crate) fn apply(
        &mut self,
        gradients: Gradients<'_, O>,
        lr: f64,
        (norm, loss_scale): (f64, f32),
    ) -> Result<(), ModelError> {
        let elements = gradients.elements();
        let mut grad = gradients.into_all()?;
        if elements != self.params.elements() {
            return Err(ModelError::wrong_argument("these weights are not trained"));
        }
        self.count_step();
        let (adamw, factor) = self.options.step(lr, norm);
        let scale = factor / loss_scale;
        let muon = self.options.muon(lr);
        let Self { ops, params, peers, units, own, m, v, eight_bit, step, .. } = self;
        let parts = muon.map(|muon| (muon, optimizer_parts(params)));
        let tensors = eight_bit.as_ref().map(|_| optimizer_parts(params));
        let mut weights = params.write();
        let step = (*step, scale);
        if let Some((moments, parts)) = eight_bit.as_mut().zip(tensors) {
            let gradients = ops.read_sums(&grad)?;
            ops.update_weights(&mut weights, &mut |weights| {
                moments.step(&adamw, step, &parts, (weights, &gradients));
                Ok(())
            })?;
        } else if let (Some((muon, parts)), [m], [v]) = (parts, &mut m[..], &mut v[..]) {
            let both = (&mut *weights, &mut grad);
            let squares = ops.muon((&muon, &adamw), step, &parts, both, [m, v])?;
            let matrices = parts.iter().filter(|part| part.matrix.is_some());
            let elements: usize = matrices.map(|part| part.range.len()).sum();
            self.muon_rms = (elements > 0).then(|| (squares / elements as f64).sqrt());
        } else {
            let moments = m.iter_mut().zip(v);
            for (range, (m, v)) in own.iter().zip(moments).filter(|(own, _)| !own.is_empty()) {
                ops.adamw(&adamw, step, range.clone(), (&mut *weights, &mut grad), [m, v])?;
            }
            peers.spread(ops, &mut weights, units)?;
        }
        drop(weights);
        self.zeros = self.ops.reuse(grad);
        Ok(())
    }

    /// Takes one step on the parameters that this rank owns alone, which lie one after the other in an array of their own.
    pub(crate) fn apply_to_owned(
        &mut self,
        owned: &Params<O>,
        gradients: Gradients<'_, O>,
        lr: f64,
        norm: f64,
    ) -> Result<(), ModelError> {
        let mut grad = gradients.into_all()?;
        self.count_step();
        let (adamw, scale) = self.options.step(lr, norm);
        let Self { ops, own, m, v, step, .. } = self;
        let (mut weights, mut end) = (owned.write(), 0);
        let moments = m.iter_mut().zip(v);
        for (range, (m, v)) in own.iter().zip(moments).filter(|(own, _)| !own.is_empty()) {
            let place = end..end + range.len();
            end = place.end;
            ops.adamw(&adamw, (*step, scale), place, (&mut *weights, &mut grad), [m, v])?;
        }
        Ok(())
    }

    fn count_step(&mut self) {
        self.step += 1;
        self.taken += 1;
    }

    /// Returns the number of steps that belongs to the moments of a checkpoint. Moments that are not written are those before
    /// the first step.
    pub(crate) fn saved_step(&self, saved: SavedMoments) -> u64 {
        if saved == SavedMoments::None { 0 } else { self.step }
    }

    /// Reads the moments for a checkpoint, those of other ranks as they are written. Before the first step they are zero, and none
    /// is written. Moments in 8 bits are written as they are, unless there are to be none.
    pub(crate) fn moments(&self, saved: SavedMoments) -> Result<ShardMoments<'_, O>, ModelError> {
        let dtype = match saved {
            SavedMoments::F32 => Some(StoredDtype::F32),
            SavedMoments::Bf16 => Some(StoredDtype::Bf16),
            SavedMoments::None => None,
        };
        let written = dtype.filter(|_| self.step > 0);
        let both = if written.is_some() { self.read()? } else { [Vec::new(), Vec::new()] };
        let ranges = (self.units.as_slice(), self.own.as_slice());
        let moments = ShardMoments::new(&self.params, both, ranges, self.peers.clone(), written);
        Ok(moments.with_eight_bit(self.eight_bit.as_ref()))
    }

    /// Sends the moments of this rank to rank 0, which writes those of all.
    pub(crate) fn share(&self) -> Result<(), ModelError> {
        match self.peers.of_shards() {
            Some(channel) => shards::serve(channel, &self.read()?, &self.own),
            None => Ok(()),
        }
    }

    /// Reads both moments of the ranges of this rank.
    fn read(&self) -> Result<[Vec<Cow<'_, [f32]>>; 2], ModelError> {
        let read = |of| self.ops.read_sums(of);
        let both = [&self.m, &self.v].map(|of| of.iter().map(read).collect());
        let [m, v]: [Result<_, ModelError>; 2] = both;
        Ok([m?, v?])
    }

    /// Restores the moments of this rank and the number of steps, as if training had begun with them.
    pub(crate) fn restore(&mut self, saved: &Shards, step: u64) -> Result<(), ModelError> {
        if step == 0 {
            return self.reset();
        }
        (self.step, self.taken) = (step, step);
        if self.eight_bit.is_some() {
            self.eight_bit = Some(EightBitMoments::restored(&self.params, saved)?);
            return Ok(());
        }
        (self.m, self.v) = (self.restored_moments(saved, "m")?, self.restored_moments(saved, "v")?);
        Ok(())
    }

    /// Begins again: no step, and moments of zero.
    pub(crate) fn reset(&mut self) -> Result<(), ModelError> {
        (self.step, self.taken) = (0, 0);
        if let Some(moments) = &mut self.eight_bit {
            *moments = EightBitMoments::zeros(&self.params);
            return Ok(());
        }
        (self.m, self.v) = (zeros_of(&self.ops, &self.own)?, zeros_of(&self.ops, &self.own)?);
        Ok(())
    }

    /// Reads the moments of a kind, as far as they are those of this rank.
    fn restored_moments(&self, saved: &Shards, kind: &str) -> Result<Vec<O::Sums>, ModelError> {
        let moments = self.own.iter().map(|own| self.restored_range(saved, kind, own));
        moments.collect()
    }

    /// Reads the moments of a kind in a range.
    fn restored_range(
        &self,
        saved: &Shards,
        kind: &str,
        own: &Range<usize>,
    ) -> Result<O::Sums, ModelError> {
        let mut values = vec![0.0; own.len()];
        for (name, var) in self.params.vars() {
            let (place, name) = (var.range(), format!("{kind}.{name}"));
            let here = common(&place, own);
            if here.is_empty() {
                continue;
            }
            let to = &mut values[here.start - own.start..here.end - own.start];
            if here == place {
                saved.fill(&name, var.dims(), to)?;
            } else {
                let mut whole = vec![0.0; place.len()];
                saved.fill(&name, var.dims(), &mut whole)?;
                let from = here.start - place.start;
                to.copy_from_slice(&whole[from..from + here.len()]);
            }
        }
        self.ops.sums_of(values)
    }
}

/// Creates moments of zero for ranges.
fn zeros_of<O: Ops>(ops: &O, ranges: &[Range<usize>]) -> Result<Vec<O::Sums>, ModelError> {
    ranges.iter().map(|range| ops.sums(range.len())).collect()
}

/// Returns the tensors of parameters, with the shapes of those that Muon updates.
fn optimizer_parts<O: Ops>(params: &Params<O>) -> Vec<OptimizerPart> {
    let vars = params.vars().iter();
    vars.map(|(name, var)| OptimizerPart {
        range: var.range(),
        matrix: matrix_shape(name, var.dims()),
    })
    .collect()
}

/// Returns rows and columns of a matrix of a layer. Embeddings, heads, biases and norms are none, nor are the factors of adapters,
/// convolutions, and experts, which are stacked.
fn matrix_shape(name: &str, dims: &[usize]) -> Option<(usize, usize)> {
    let of_layer = name.contains(".layers.") && name.ends_with(".weight");
    let other = ["lora_", "conv"].iter().any(|part| name.contains(part));
    match dims {
        &[rows, columns] if of_layer && !other => Some((rows, columns)),
        _ => None,
    }
}
