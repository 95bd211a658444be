//! Training forward pass, and its backward pass.
//!
//! With checkpointing (Chen et al., 2016, arXiv:1604.06174) the intermediate results of a layer are not kept. The
//! backward pass recomputes them from the layer's input: the same operations on the same numbers, so the gradient is
//! the same to the bit.

use crate::files::ModelError;
use crate::net::decoder::{Decoder, Saved};
use crate::net::experts::{BalanceTerm, PackedRoutes, RouterLoad};
use crate::net::gradients::Gradients;
use crate::net::ops::{Backend, Cpu, Ops};
use crate::net::pool::Pool;
use crate::net::rows::Rows;

/// Results of a forward pass, kept for the backward pass.
pub struct Tape<'a, O: Ops = Cpu> {
    decoder: &'a Decoder<O>,
    at: O::Placed<'a>,
    layers: Vec<Kept<O>>,
    /// Tokens of the routers of experts, if their loads are wanted.
    routed: Option<RoutedTokens<'a>>,
    /// Loads of the layers with experts, if they are wanted, with the numbers of the layers.
    loads: Vec<(usize, RouterLoad)>,
    /// Output of the layers, `[N, D]`.
    last: O::Stream,
    /// Hidden states after the last norm, `[N, D]`.
    hidden: O::Act,
}

/// Tokens of a pass for the routers of experts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoutedTokens<'a> {
    /// Number of texts with each token, `[N]`.
    pub(crate) counts: &'a [f32],
    /// Derivative of the loss that balances the load by the probability of each expert, `[E]`, if there is such a loss.
    pub(crate) slopes: Option<&'a [f32]>,
    /// Experts that the tokens have in place of those of the routers, if there are any.
    pub(crate) routes: Option<&'a PackedRoutes>,
}

/// Kept results of a layer.
enum Kept<O: Ops> {
    All(Box<Saved<O>>),
    Input(O::Stream),
}

impl<'a, O: Ops> Tape<'a, O> {
    /// Runs the decoder on rows.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range, or the device fails.
    pub fn record(
        decoder: &'a Decoder<O>,
        rows: Rows<'a>,
        checkpointing: bool,
        pool: &mut Pool<O>,
    ) -> Result<Self, ModelError> {
        Self::record_routed(decoder, rows, None, checkpointing, pool)
    }

    /// Runs the decoder on rows, and sums the loads of experts.
    ///
    /// # Errors
    ///
    /// See [`Tape::record`].
    pub(crate) fn record_routed(
        decoder: &'a Decoder<O>,
        rows: Rows<'a>,
        routed: Option<RoutedTokens<'a>>,
        checkpointing: bool,
        pool: &mut Pool<O>,
    ) -> Result<Self, ModelError> {
        decoder.check(rows.ids, rows.positions)?;
        let at = decoder.ops().place(rows)?;
        let mut x = decoder.embed(&at, pool)?;
        let (mut layers, mut loads) = (Vec::with_capacity(decoder.layers()), Vec::new());
        let routes = routed.and_then(|tokens| tokens.routes);
        for index in 0..decoder.layers() {
            let (out, saved) = decoder.layer(index, x, (&at, routes), pool)?;
            if let (Some(tokens), Some(experts)) = (routed, saved.experts()) {
                loads.push((index, experts.load(tokens.counts)));
            }
            layers.push(if checkpointing {
                Kept::Input(saved.keep_input(pool))
            } else {
                Kept::All(Box::new(saved))
            });
            x = out;
        }
        let hidden = decoder.last_norm(&x, pool)?;
        Ok(Self { decoder, at, layers, routed, loads, last: x, hidden })
    }

    /// Returns the hidden states after the last norm, `[N, D]`.
    pub fn hidden(&self) -> &O::Act {
        &self.hidden
    }

    /// Returns the loads of the layers with experts, with the numbers of the layers.
    pub(crate) fn loads(&self) -> &[(usize, RouterLoad)] {
        &self.loads
    }

    /// Adds the gradients of every trained weight, from that of the hidden states `[N, D]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn backward(
        self,
        dhidden: &O::Act,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let Self { decoder, at, layers, routed, last, hidden, .. } = self;
        let balance = routed.and_then(|RoutedTokens { counts, slopes, .. }| {
            Some(BalanceTerm { slopes: slopes?, counts })
        });
        let routes = routed.and_then(|tokens| tokens.routes);
        let mut dx = decoder.last_norm_backward(&last, dhidden, gradients, pool)?;
        pool.give([hidden]);
        pool.give_streams([last]);
        for (index, kept) in layers.into_iter().enumerate().rev() {
            let saved = match kept {
                Kept::All(saved) => *saved,
                Kept::Input(x) => {
                    let (out, saved) = decoder.layer(index, x, (&at, routes), pool)?;
                    pool.give_streams([out]);
                    saved
                }
            };
            dx = decoder.layer_backward(index, saved, &at, (dx, balance), gradients, pool)?;
        }
        decoder.embed_backward(&at, &mut dx, gradients)?;
        pool.give_streams([dx]);
        Ok(())
    }
}

/// Returns the first layer of a decoder whose result for rows has a number that is not finite, if there is one.
///
/// # Errors
///
/// See [`Tape::record`].
pub(crate) fn first_overflow<O: Backend>(
    decoder: &Decoder<O>,
    rows: Rows<'_>,
    routes: Option<&PackedRoutes>,
    pool: &mut Pool<O>,
) -> Result<Option<usize>, ModelError> {
    decoder.check(rows.ids, rows.positions)?;
    let at = decoder.ops().place(rows)?;
    let mut x = decoder.embed(&at, pool)?;
    for index in 0..decoder.layers() {
        let (out, saved) = decoder.layer(index, x, (&at, routes), pool)?;
        let input = saved.keep_input(pool);
        pool.give_streams([input]);
        // A norm of finite numbers is finite.
        let normed = decoder.last_norm(&out, pool)?;
        let overflowed = decoder.ops().read(&normed)?.iter().any(|number| !number.is_finite());
        pool.give([normed]);
        if overflowed {
            pool.give_streams([out]);
            return Ok(Some(index));
        }
        x = out;
    }
    pool.give_streams([x]);
    Ok(None)
}
