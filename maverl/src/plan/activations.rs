//! What a training step holds beside weights, moments and summed gradients, from what the code keeps.

use super::summary::NUMBER;
use crate::model::HfConfig;

/// Bytes that one micro-batch of `tokens` tokens takes, `targets` of them learned, at its worst moment: what autograd
/// keeps, what the backward pass of one part holds for a moment, and gradients that are not yet added up. Under an adapter
/// no gradient of the base is built; those of the adapter itself are small and left out.
///
/// N tokens, M targets, L layers; widths D (hidden), Q (queries), K (keys), F (MLP); V vocabulary:
///
/// - kept between the parts: N D after the embedding and after each layer (twice after a trained embedding);
/// - kept by a layer: N (6 D + 3 Q + 3 K + 3 F), and N (Q + K) more where heads are normalized; only one layer's at a
///   time with checkpointing, else all of them;
/// - the worst moment is in the head, in the last layer (its MLP, or its attention), or in the embedding, where
///   autograd holds a gradient, the zeros it starts from, and their sum at once.
pub fn activation_bytes(
    shape: &HfConfig,
    tokens: usize,
    targets: usize,
    checkpointing: bool,
    adapter: bool,
) -> u64 {
    let [n, m, layers] = [tokens, targets, shape.num_hidden_layers].map(|count| count as u64);
    let [d, f, v] =
        [shape.hidden_size, shape.intermediate_size, shape.vocab_size].map(|width| width as u64);
    let [q, k] = [shape.num_attention_heads, shape.num_key_value_heads]
        .map(|heads| (heads * shape.head_dim) as u64);
    // Of weights, only trained ones have gradients.
    let trained = |weight: u64| if adapter { 0 } else { weight };

    let normalized = if shape.qk_norm { q + k } else { 0 };
    let layer = n * (6 * d + 3 * q + 3 * k + 3 * f + normalized);
    let kept_layers = if checkpointing { 0 } else { layers * layer };
    let twice = !adapter && !checkpointing;
    let cuts = n * d * (layers + 1 + u64::from(twice));

    let table = trained(v * d);
    let logits = m.min(((1 << 21) / v).clamp(128, 512)) * v;
    let head = (n + 2 * m) * d + (table + logits).max(3 * table).max(table + 3 * n * d);

    let map = trained(d * f);
    let down = 2 * n * d + (3 * n * f + map).max(n * f + 3 * map);
    let gated = n * d + map + 5 * n * f;
    let up = 3 * n * d + n * f + 5 * map;
    let attention = n * (d + 7 * q + 4 * k) + 3 * map;
    let backward = down.max(gated).max(up).max(attention);
    let one_layer = if checkpointing { layer } else { kept_layers };

    let worst =
        (cuts + kept_layers + head).max(cuts + one_layer + backward).max(2 * n * d + 3 * table);
    worst * NUMBER
}
