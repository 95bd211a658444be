//! Activation memory of an update: everything but weights, moments and summed gradients.

use maverl_kernels::matmul::{PackedWeight, Precision};
use serde::Serialize;

use super::numbers::NUMBER;
use crate::files::HfConfig;
use crate::files::parts::{LayerShape, Maps, Mixer, Mlp};
use crate::net::KvStore;

/// Bytes that one micro-batch of `tokens` tokens takes, `targets` of them learned, at its worst moment. The low-rank
/// products of an adapter are small and left out.
///
/// N tokens, M targets, L layers; widths D (hidden), Q (queries), K (keys), F (MLP, or the experts of a token), C and Z (queries
/// with keys and values, and values of Gated DeltaNet); V vocabulary:
///
/// - kept by a layer for its way back: N times what its parts save ([`LayerShape::saved`](crate::files::parts::LayerShape));
///   only one layer's at a time with checkpointing, which keeps N D of the others;
/// - used by every layer on its way: N (3 D + F), the columns of a fused map, inputs of experts, and the input of a norm after
///   it, and on its way back N (D + 2 Q + 2 K + 2 F) more, less the buffers that can be used again; Gated DeltaNet takes
///   N (2 C + Z) in place of N F, and on its way back N (D + 4 C + 2 Z) and the gradients of each value head more; a short
///   convolution takes 4 N D in place of N (2 Q + 2 K), as no buffer of width D can be used for one of width F;
/// - under the head: M D twice, and N D, or the logits of some rows and the head as products read it.
pub fn activation_bytes(
    shape: &HfConfig,
    tokens: usize,
    targets: usize,
    checkpointing: bool,
    precision: Precision,
) -> u64 {
    let [n, m, layers] = [tokens, targets, shape.layers.len()].map(|count| count as u128);
    let [d, v] = [shape.hidden_size, shape.vocab_size].map(|width| width as u128);
    let heads = shape.heads();
    let [q, k] = [heads.q, heads.kv].map(|count| (count * heads.dim) as u128);
    let f = widest_layer(shape, |layer| layer.mlp.width_of_token());
    let mixing = f.max(widest_layer(shape, |layer| mixing_numbers(layer)[0]));

    let kept = if checkpointing {
        (layers - 1) * n * d + n * widest_layer(shape, LayerShape::saved_numbers)
    } else {
        n * shape.layers.iter().map(|layer| layer.saved_numbers() as u128).sum::<u128>()
    };
    let there = kept + n * (3 * d + mixing + widest_layer(shape, passing_numbers));
    let queries = if (q..=q + q / 2).contains(&d) { 0 } else { 2 * q };
    let of_mixer = (2 * k + queries).max(widest_layer(shape, conv_numbers));
    let of_layer = d + 2 * f + of_mixer;
    let back = n * of_layer.max(d + widest_layer(shape, |layer| mixing_numbers(layer)[1]));

    let head = PackedWeight::packed_bytes(precision, shape.vocab_size, shape.hidden_size) as u128
        / u128::from(NUMBER);
    let logits = m.min(((1 << 21) / v).clamp(128, 512)) * v;
    let under_head = there + 2 * m * d + (n * d).max(logits + head);
    let bytes = under_head.max(there + back + 2 * m * d + n * d) * u128::from(NUMBER);
    // Numbers of tokens that no machine has room for are refused by what compares this with its memory.
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Bytes that Muon takes beside gradients and moments, for the largest matrix of a layer `[rows, columns]`, k the smaller of the two:
/// the direction and the next one, the product of the direction with itself, and the square of that product.
pub fn muon_bytes(shape: &HfConfig) -> u64 {
    let heads = shape.heads();
    let rows = widest_layer(shape, mapped_rows).max((heads.q * heads.dim) as u128);
    let columns = shape.hidden_size as u128;
    let k = rows.min(columns);
    let bytes = 2 * (rows * columns + k * k) * u128::from(NUMBER);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Rows of a layer's largest map of the MLP; 0 for experts, which are stacked.
fn mapped_rows(layer: &LayerShape) -> usize {
    match &layer.mlp {
        Mlp::Gated(mlp) if matches!(mlp.gate_up, Maps::Fused(..)) => 2 * mlp.width,
        Mlp::Gated(mlp) => mlp.width,
        Mlp::Experts(_) => 0,
    }
}

/// Numbers of a token that a layer's fused maps, its experts' inputs and its norms after attention and MLP take on their way.
fn passing_numbers(layer: &LayerShape) -> usize {
    let joined = match &layer.mlp {
        Mlp::Gated(mlp) if matches!(mlp.gate_up, Maps::Fused(..)) => 2 * mlp.width,
        Mlp::Gated(_) => 0,
        // Inputs of the experts, and on the way back their gradients and those of the results.
        Mlp::Experts(experts) => 3 * experts.router.chosen * experts.scores.input,
    };
    let of_conv = match &layer.mixer {
        Mixer::ShortConv(net) if matches!(net.inputs, Maps::Fused(..)) => 3 * net.out.input,
        _ => 0,
    };
    joined + of_conv + layer.after_mlp.map_or(0, |norm| norm.width)
}

/// Numbers of a token that a short convolution takes on its way back.
fn conv_numbers(layer: &LayerShape) -> usize {
    match &layer.mixer {
        Mixer::ShortConv(net) => 4 * net.out.input,
        Mixer::Attention(_) | Mixer::DeltaNet(_) => 0,
    }
}

/// Numbers of a token that Gated DeltaNet takes on its way and on its way back.
fn mixing_numbers(layer: &LayerShape) -> [usize; 2] {
    match &layer.mixer {
        Mixer::Attention(_) | Mixer::ShortConv(_) => [0; 2],
        Mixer::DeltaNet(net) => {
            let (heads, mixed, values) =
                (net.heads, net.heads.mixed_width(), net.heads.values_width());
            let of_heads = heads.values * (2 * heads.key_dim + heads.value_dim + 2);
            [2 * mixed + values, 4 * mixed + 2 * values + of_heads]
        }
    }
}

/// The largest of a width of all layers.
fn widest_layer(shape: &HfConfig, width: fn(&LayerShape) -> usize) -> u128 {
    shape.layers.iter().map(|layer| width(layer) as u128).max().unwrap_or(0)
}

/// Bytes of the keys and values of a sequence on the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TokenBytes {
    /// Bytes of each token, but in layers with a window. With recurrent layers as much again is for states, which get half of the
    /// memory.
    pub all: u64,
    /// Bytes of each of the last tokens in layers with a window.
    pub windowed: u64,
    /// Maximum number of these tokens: those of a window and of a pass.
    pub window: u64,
}

impl TokenBytes {
    /// Returns those of a model, for passes of at most so many tokens of prompts.
    pub fn of(shape: &HfConfig, pass: usize) -> Self {
        let store = KvStore::new(shape);
        let [both, part] =
            [store.block_bytes(), store.window_bytes()].map(|bytes| bytes / KvStore::TOKENS);
        let all = if shape.is_recurrent() { 2 * (both - part) } else { both - part };
        let window = shape.evicted_window().map_or(0, |keys| keys + pass + 2 * KvStore::TOKENS);
        Self { all: all as u64, windowed: part as u64, window: window as u64 }
    }

    /// Returns those on a GPU, which has numbers of half the size, and keeps all of them.
    #[must_use]
    pub fn on_gpu(self) -> Self {
        Self { all: self.each() / 2, windowed: 0, window: 0 }
    }

    /// Returns the bytes of one of the last tokens.
    pub(crate) fn each(self) -> u64 {
        self.all + self.windowed
    }

    /// Returns the number of tokens of a sequence that fit a number of bytes.
    pub fn tokens_in(self, bytes: u64) -> u64 {
        let tokens = bytes / self.each().max(1);
        if tokens <= self.window {
            return tokens;
        }
        (bytes - self.window * self.windowed) / self.all.max(1)
    }
}

/// Bytes of the linear maps of a model as products of few rows read them, which are kept while agents speak.
pub fn packed_bytes(shape: &HfConfig, precision: Precision) -> u64 {
    let maps = shape.layers.iter().flat_map(|layer| layer.packed_linears());
    let dims = maps.map(|map| [map.output, map.input]);
    let dims = dims.chain([[shape.vocab_size, shape.hidden_size]]);
    dims.map(|[output, input]| PackedWeight::packed_bytes(precision, output, input) as u64).sum()
}
