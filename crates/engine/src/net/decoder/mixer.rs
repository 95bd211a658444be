//! Mixer of a layer with its norms and its residual sum, of any kind.

use crate::files::ModelError;
use crate::files::parts::{LayerShape, Mixer};
use crate::net::gradients::Gradients;
use crate::net::ops::Ops;
use crate::net::pool::{MixerInputs, Pool};

use super::attention::SavedAttention;
use super::delta_net::SavedDelta;
use super::layer::LayerPass;
use super::short_conv::SavedConv;

/// Results of a layer's mixer that its backward pass needs.
#[derive(Debug)]
pub(crate) enum SavedMixer<O: Ops> {
    Attention(SavedAttention<O>),
    Delta(SavedDelta<O>),
    Conv(SavedConv<O>),
}

impl<O: Ops> SavedMixer<O> {
    /// Returns all buffers but the layer's input to the pool.
    pub(super) fn keep_input(self, pool: &mut Pool<O>) -> O::Stream {
        match self {
            Self::Attention(saved) => saved.keep_input(pool),
            Self::Delta(saved) => saved.keep_input(pool),
            Self::Conv(saved) => saved.keep_input(pool),
        }
    }
}

impl LayerShape {
    /// Returns the numbers of a token that the mixer keeps for its backward pass.
    pub(super) fn mixer_saved(&self) -> usize {
        let width = self.stream_width();
        let mapped = self.after_mixer.map_or(0, |_| width);
        let kept = match &self.mixer {
            Mixer::Attention(attention) => attention.saved_numbers(),
            Mixer::DeltaNet(net) => net.saved_numbers(),
            Mixer::ShortConv(net) => net.saved_numbers(),
        };
        width + kept + mapped
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the residual stream `[N, D]` after the mixer of the layer, of packed rows.
    pub(super) fn mix(
        &self,
        x: O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedMixer<O>), ModelError> {
        match &self.layer.mixer {
            Mixer::Attention(attention) => {
                let (m, saved) = self.attend(attention, x, at, pool)?;
                Ok((m, SavedMixer::Attention(saved)))
            }
            Mixer::DeltaNet(net) => {
                let (m, saved) = self.run_delta(net, x, at, pool)?;
                Ok((m, SavedMixer::Delta(saved)))
            }
            Mixer::ShortConv(net) => {
                let (m, saved) = self.run_conv(net, x, at, pool)?;
                Ok((m, SavedMixer::Conv(saved)))
            }
        }
    }

    /// Adds the gradients of the mixer of the layer. Returns the gradient `[N, D]` of its input, from that of its result.
    pub(super) fn mix_backward(
        &self,
        saved: SavedMixer<O>,
        at: &O::Placed<'_>,
        dm: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        match (&self.layer.mixer, saved) {
            (Mixer::Attention(attention), SavedMixer::Attention(saved)) => {
                self.attend_backward(attention, saved, at, dm, gradients, pool)
            }
            (Mixer::DeltaNet(net), SavedMixer::Delta(saved)) => {
                self.delta_backward(net, saved, at, dm, gradients, pool)
            }
            (Mixer::ShortConv(net), SavedMixer::Conv(saved)) => {
                self.conv_backward(net, saved, at, dm, gradients, pool)
            }
            _ => unreachable!("results of another layer"),
        }
    }

    /// Computes the inputs of the mixer from the layer's input `x [N, D]`.
    pub(super) fn project(
        &self,
        x: &O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<MixerInputs<O>, ModelError> {
        match &self.layer.mixer {
            Mixer::Attention(attention) => {
                self.project_attention(attention, x, at, pool).map(MixerInputs::Attention)
            }
            Mixer::DeltaNet(net) => self.project_delta(net, x, pool).map(MixerInputs::Delta),
            Mixer::ShortConv(net) => self.project_conv(net, x, pool).map(MixerInputs::Conv),
        }
    }

    /// Computes what of the mixer depends on earlier tokens of a sequence and is computed in their order: writes keys and
    /// values to the cache, or advances the states.
    ///
    /// # Safety
    ///
    /// Meanwhile, nobody else reads or writes the blocks that receive tokens.
    #[allow(unsafe_code)] // threads append to different sequences of one cache
    pub(super) unsafe fn advance_cache(
        &self,
        inputs: &mut MixerInputs<O>,
        at: &O::Placed<'_>,
        cache: (&O::Kv, usize),
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        match (&self.layer.mixer, inputs) {
            (Mixer::Attention(_), MixerInputs::Attention(given)) => {
                let (kv, layer) = cache;
                // SAFETY: guaranteed by the caller.
                unsafe { self.ops.append(kv, layer, [&given.k, &given.v], at) }
            }
            (Mixer::DeltaNet(net), MixerInputs::Delta(given)) => {
                self.advance_delta(net, given, at, cache, pool)
            }
            (Mixer::ShortConv(net), MixerInputs::Conv(given)) => {
                self.advance_conv(net, given, at, cache, pool)
            }
            _ => unreachable!("inputs of another layer"),
        }
    }

    /// Computes the residual stream `[N, D]` after the mixer, of new tokens, after [`LayerPass::advance_cache`].
    pub(super) fn mix_cached(
        &self,
        x: O::Stream,
        inputs: MixerInputs<O>,
        at: &O::Placed<'_>,
        cache: (&O::Kv, usize),
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let (m, x) = match (&self.layer.mixer, inputs) {
            (Mixer::Attention(attention), MixerInputs::Attention(given)) => {
                let attended = self.attend_cached(attention.heads, &given.q, cache, at, pool)?;
                let attended = (attended, O::Lse::default());
                let (m, saved) = self.add_attended(attention, x, given, attended, pool)?;
                (m, saved.keep_input(pool))
            }
            (Mixer::DeltaNet(net), MixerInputs::Delta(given)) => {
                self.add_cached_delta(net, x, given, at, pool)?
            }
            (Mixer::ShortConv(net), MixerInputs::Conv(given)) => {
                self.add_cached_conv(net, x, given, pool)?
            }
            _ => unreachable!("inputs of another layer"),
        };
        pool.give_streams([x]);
        Ok(m)
    }
}
