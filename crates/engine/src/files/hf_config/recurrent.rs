//! Layers without attention: which they are, and their sizes.

use maverl_kernels::recurrent::DeltaHeads;
use serde_json::Value;

use super::families::{FULL, TYPES};
use super::family::{ModelFamily, OtherMixer};
use super::reader::{ConfigReader, WIDEST, show_value};
use crate::files::parts::{
    Conv, DeltaNet, Gain, LinearShape, Maps, Mixer, MixerShape, NormShape, ShortConv, TensorShape,
};

/// Longest kernel of a convolution.
const LONGEST_KERNEL: usize = 64;
/// Key of the layers of LFM2 that have attention.
const ATTENTION_LAYERS: &str = "full_attn_idxs";

/// Sizes of a mixer without attention.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum RecurrentSizes {
    /// Heads and kernel of a Gated DeltaNet.
    DeltaNet(DeltaHeads, usize),
    /// Kernel of a short convolution, and true if its maps have a bias.
    ShortConv(usize, bool),
}

/// Reads the sizes of mixers without attention, if the family has any.
pub(super) fn read_recurrent(
    keys: &mut ConfigReader<'_>,
    family: &ModelFamily,
) -> Option<RecurrentSizes> {
    match family.other_mixer {
        OtherMixer::None => None,
        OtherMixer::DeltaNet => {
            let kernel = keys.size("linear_conv_kernel_dim", 4, LONGEST_KERNEL);
            Some(RecurrentSizes::DeltaNet(delta_heads(keys), kernel))
        }
        OtherMixer::ShortConv => {
            let kernel = keys.size("conv_L_cache", 3, LONGEST_KERNEL);
            Some(RecurrentSizes::ShortConv(kernel, keys.flag("conv_bias", false)))
        }
    }
}

fn delta_heads(keys: &mut ConfigReader<'_>) -> DeltaHeads {
    let heads = DeltaHeads {
        keys: keys.size("linear_num_key_heads", 16, WIDEST),
        values: keys.size("linear_num_value_heads", 32, WIDEST),
        key_dim: keys.size("linear_key_head_dim", 128, WIDEST),
        value_dim: keys.size("linear_value_head_dim", 128, WIDEST),
    };
    if !heads.values.is_multiple_of(heads.keys) {
        keys.problem(format!(
            "`linear_num_value_heads` ({}) is not a multiple of `linear_num_key_heads` ({})",
            heads.values, heads.keys
        ));
    }
    for (name, count, dim) in
        [("key", heads.keys, heads.key_dim), ("value", heads.values, heads.value_dim)]
    {
        if count.saturating_mul(dim) > WIDEST {
            keys.problem(format!(
                "`linear_num_{name}_heads` ({count}) of `linear_{name}_head_dim` ({dim}) are wider than {WIDEST}"
            ));
        }
    }
    heads
}

/// Reads which layers have no attention.
pub(super) fn recurrent_layers(
    keys: &mut ConfigReader<'_>,
    family: &ModelFamily,
    layers: usize,
) -> Vec<bool> {
    let found = match family.other_mixer {
        OtherMixer::None => return vec![false; layers],
        OtherMixer::DeltaNet => {
            let every = keys.size("full_attention_interval", 4, WIDEST);
            let pattern = (1..=layers).map(|layer| !layer.is_multiple_of(every)).collect();
            listed(keys, "linear_attention", layers).unwrap_or(pattern)
        }
        OtherMixer::ShortConv => {
            let indexed = indexed_layers(keys, layers);
            listed(keys, "conv", layers).unwrap_or(indexed)
        }
    };
    if keys.problems.is_empty() && !found.contains(&false) {
        keys.problem("no layer has attention; at least one is needed".to_owned());
    }
    found
}

/// Reads which layers have no attention from `layer_types`, if it is there.
fn listed(keys: &mut ConfigReader<'_>, kind: &str, layers: usize) -> Option<Vec<bool>> {
    let types = keys.value(TYPES)?;
    let types = types.as_array().map(Vec::as_slice).unwrap_or_default();
    if types.len() != layers && keys.problems.is_empty() {
        keys.problem(format!(
            "`{TYPES}` has {} entries, `num_hidden_layers` is {layers}; write one for each layer",
            types.len()
        ));
    }
    if let Some(other) = types.iter().find(|found| *found != FULL && *found != kind) {
        let other = show_value(other);
        keys.problem(format!("`{TYPES}` has {other}; supported: {FULL:?}, {kind:?}"));
    }
    let mut found: Vec<bool> = types.iter().map(|found| found == kind).collect();
    found.resize(layers, false);
    Some(found)
}

/// Reads which layers have no attention from the indices of those that have; without the key, all have.
fn indexed_layers(keys: &mut ConfigReader<'_>, layers: usize) -> Vec<bool> {
    let Some(value) = keys.value(ATTENTION_LAYERS) else { return vec![false; layers] };
    let indices: Option<Vec<u64>> =
        value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
    match indices {
        Some(indices) => (0..layers as u64).map(|layer| !indices.contains(&layer)).collect(),
        None => {
            keys.wrong(ATTENTION_LAYERS, "a list of indices of layers is needed");
            vec![false; layers]
        }
    }
}

/// Returns the mixer of a layer without attention.
pub(super) fn recurrent_mixer(recurrent: RecurrentSizes, hidden: usize, eps: f32) -> MixerShape {
    match recurrent {
        RecurrentSizes::DeltaNet(heads, kernel) => {
            Mixer::DeltaNet(delta_net(heads, kernel, hidden, eps))
        }
        RecurrentSizes::ShortConv(kernel, bias) => {
            Mixer::ShortConv(short_conv(kernel, bias, hidden))
        }
    }
}

fn delta_net(
    heads: DeltaHeads,
    kernel: usize,
    hidden: usize,
    eps: f32,
) -> DeltaNet<LinearShape, NormShape, TensorShape> {
    let (mixed, values) = (heads.mixed_width(), heads.values_width());
    let map = |name, output| LinearShape::new(name, output, hidden, false);
    let of_heads = |name| TensorShape { name, dims: vec![heads.values] };
    DeltaNet {
        heads,
        inputs: Maps::Split([
            map("linear_attn.in_proj_qkv", mixed),
            map("linear_attn.in_proj_z", values),
            map("linear_attn.in_proj_b", heads.values),
            map("linear_attn.in_proj_a", heads.values),
        ]),
        conv: Conv {
            kernel,
            weight: TensorShape { name: "linear_attn.conv1d.weight", dims: vec![mixed, 1, kernel] },
            bias: None,
        },
        a_log: of_heads("linear_attn.A_log"),
        dt_bias: of_heads("linear_attn.dt_bias"),
        // This norm alone has no `1 + w`.
        norm: NormShape {
            name: "linear_attn.norm",
            width: heads.value_dim,
            eps,
            gain: Gain::Weight,
        },
        out: LinearShape::new("linear_attn.out_proj", hidden, values, false),
    }
}

fn short_conv(kernel: usize, bias: bool, hidden: usize) -> ShortConv<LinearShape, TensorShape> {
    let weight = TensorShape { name: "conv.conv.weight", dims: vec![hidden, 1, kernel] };
    let of_bias = TensorShape { name: "conv.conv.bias", dims: vec![hidden] };
    let inputs = LinearShape::new("conv.in_proj", 3 * hidden, hidden, bias);
    ShortConv {
        inputs: Maps::Fused(inputs, [hidden; 3]),
        conv: Conv { kernel, weight, bias: bias.then_some(of_bias) },
        out: LinearShape::new("conv.out_proj", hidden, hidden, bias),
    }
}

/// Reads the width of the MLP of LFM2 (transformers `Lfm2MLP`): two thirds of the key's, times a factor, rounded up.
pub(super) fn adjusted_width(keys: &mut ConfigReader<'_>, default: usize) -> usize {
    let given = keys.size("intermediate_size", default, WIDEST);
    let given = keys.optional_size("block_ff_dim", WIDEST).unwrap_or(given);
    let factor = keys.optional_number("block_ffn_dim_multiplier");
    let of = keys.size("block_multiple_of", 256, WIDEST);
    if !keys.flag("block_auto_adjust_ff_dim", true) {
        return given;
    }
    let part = 2 * given / 3;
    let factor = if keys.has("block_ffn_dim_multiplier") { factor } else { Some(1.0) };
    let width = factor.map_or(part, |factor| (factor * part as f64) as usize);
    let width = width.checked_next_multiple_of(of).unwrap_or(usize::MAX);
    if !(1..=WIDEST).contains(&width) {
        keys.problem(format!(
            "`intermediate_size` ({given}) becomes {width} by the other `block_` keys; a width from 1 to {WIDEST} is needed"
        ));
    }
    width.clamp(1, WIDEST)
}
