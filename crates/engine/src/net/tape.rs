//! Training forward pass, and its backward pass.
//!
//! With checkpointing (Chen et al., 2016, arXiv:1604.06174) the intermediate results of a layer are not kept. The
//! backward pass recomputes them from the layer's input: the same operations on the same numbers, so the gradient is
//! the same to the bit. Several passes may go layer by layer together, as one after the other with the same sums.

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
    /// Output of the layers so far, `[N, D]`; on the way back, its gradient.
    stream: O::Stream,
    /// Hidden states after the last norm, `[N, D]`; empty before it.
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
        let mut tape = Self::begin(decoder, rows, routed, pool)?;
        for _ in 0..decoder.layers() {
            tape.run_layer(checkpointing, pool)?;
        }
        tape.run_last_norm(pool)?;
        Ok(tape)
    }

    /// Computes the embeddings of rows.
    ///
    /// # Errors
    ///
    /// See [`Tape::record`].
    pub(crate) fn begin(
        decoder: &'a Decoder<O>,
        rows: Rows<'a>,
        routed: Option<RoutedTokens<'a>>,
        pool: &mut Pool<O>,
    ) -> Result<Self, ModelError> {
        decoder.check(rows.ids, rows.positions)?;
        let at = decoder.ops().place(rows)?;
        let stream = decoder.embed(&at, pool)?;
        let (layers, loads) = (Vec::with_capacity(decoder.layers()), Vec::new());
        Ok(Self { decoder, at, layers, routed, loads, stream, hidden: O::Act::default() })
    }

    /// Runs the next layer. With `checkpointing`, only its input is kept.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn run_layer(
        &mut self,
        checkpointing: bool,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let (index, x) = (self.layers.len(), std::mem::take(&mut self.stream));
        let routes = self.routed.and_then(|tokens| tokens.routes);
        let (out, saved) = self.decoder.layer(index, x, (&self.at, routes), pool)?;
        if let (Some(tokens), Some(experts)) = (self.routed, saved.experts()) {
            self.loads.push((index, experts.load(tokens.counts)));
        }
        self.layers.push(if checkpointing {
            Kept::Input(saved.keep_input(pool))
        } else {
            Kept::All(Box::new(saved))
        });
        self.stream = out;
        Ok(())
    }

    /// Computes the hidden states, after all layers.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn run_last_norm(&mut self, pool: &mut Pool<O>) -> Result<(), ModelError> {
        self.hidden = self.decoder.last_norm(&self.stream, pool)?;
        Ok(())
    }

    /// Gives the hidden states back, which nothing reads any more.
    pub(crate) fn give_hidden(&mut self, pool: &mut Pool<O>) {
        pool.give([std::mem::take(&mut self.hidden)]);
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
        let mut tape = self;
        tape.last_norm_backward(dhidden, gradients, pool)?;
        while !tape.layers.is_empty() {
            tape.layer_backward(gradients, pool)?;
        }
        tape.embedding_backward(gradients, pool)
    }

    /// Adds the gradient of the last norm, from that of the hidden states `[N, D]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn last_norm_backward(
        &mut self,
        dhidden: &O::Act,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let last = std::mem::take(&mut self.stream);
        self.stream = self.decoder.last_norm_backward(&last, dhidden, gradients, pool)?;
        self.give_hidden(pool);
        pool.give_streams([last]);
        Ok(())
    }

    /// Adds the gradients of the last layer that has not added any.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn layer_backward(
        &mut self,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let Some(kept) = self.layers.pop() else { return Ok(()) };
        let (decoder, at, index) = (self.decoder, &self.at, self.layers.len());
        let routes = self.routed.and_then(|tokens| tokens.routes);
        let balance = self.routed.and_then(|RoutedTokens { counts, slopes, .. }| {
            Some(BalanceTerm { slopes: slopes?, counts })
        });
        let saved = match kept {
            Kept::All(saved) => *saved,
            Kept::Input(x) => {
                let (out, saved) = decoder.layer(index, x, (at, routes), pool)?;
                pool.give_streams([out]);
                saved
            }
        };
        let dy = std::mem::take(&mut self.stream);
        self.stream = decoder.layer_backward(index, saved, at, (dy, balance), gradients, pool)?;
        Ok(())
    }

    /// Adds the gradient of the embedding.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn embedding_backward(
        self,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let Self { decoder, at, mut stream, .. } = self;
        decoder.embed_backward(&at, &mut stream, gradients)?;
        pool.give_streams([stream]);
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
