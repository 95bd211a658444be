//! Layers of a model, from the row of its family and the keys of `config.json`.

use std::num::NonZeroU32;
use std::sync::Arc;

use maverl_kernels::attention::{Heads, Scores};

use super::experts::{ExpertSizes, read_experts};
use super::families::{FULL, TYPES, WINDOW};
use super::family::{Bias, ModelFamily, OtherMixer, QkNorm, Ropes, Windows};
use super::reader::{ConfigReader, show_value};
use super::recurrent::{RecurrentSizes, read_recurrent, recurrent_layers, recurrent_mixer};
use crate::files::parts::{
    Attention, GatedMlp, Layer, LayerShape, LinearShape, Maps, Mixer, Mlp, NormShape, QueryScale,
};

/// Largest window.
const WIDEST_WINDOW: usize = u32::MAX as usize;
/// Kind of a layer with a window.
const SLIDING: &str = "sliding_attention";

/// Sizes of a model's layers.
#[derive(Clone, Copy)]
pub(super) struct LayerSizes {
    /// Number of layers.
    pub(super) layers: usize,
    /// Width of the residual stream.
    pub(super) hidden: usize,
    pub(super) heads: Heads,
    /// Width of the MLP.
    pub(super) intermediate: usize,
    /// Constant of norms, added to the mean square.
    pub(super) eps: f32,
    /// Factors of queries.
    pub(super) query_scale: Option<QueryScale>,
}

/// Linear maps of a model's layers that have a bias.
#[derive(Clone, Copy)]
struct Biases {
    /// Maps to queries, keys and values.
    qkv: bool,
    /// Map of the attended values.
    o: bool,
    /// Maps of the MLP.
    mlp: bool,
}

/// Mixer and experts of a layer, which are all that differs between the layers of a model.
#[derive(Clone, Copy, PartialEq)]
struct LayerKind {
    /// Sizes of the mixer, if it is not attention.
    recurrent: Option<RecurrentSizes>,
    window: Option<NonZeroU32>,
    /// Index of the rotary embedding.
    rope: Option<usize>,
    /// True if the layer has experts.
    sparse: bool,
}

/// Reads the layers of a model. Equal ones share memory.
pub(super) fn read_layers(
    keys: &mut ConfigReader<'_>,
    family: &ModelFamily,
    sizes: LayerSizes,
) -> Vec<Arc<LayerShape>> {
    let biases = read_biases(keys, family);
    let scores = Scores {
        scale: query_scale(keys, family),
        softcap: family.softcaps.scores.and_then(|(key, default)| softcap(keys, key, default)),
        window: None,
    };
    let experts = read_experts(keys, family, [sizes.layers, sizes.intermediate]);
    let (experts, sparse) = experts.unzip();
    let mut kinds = layer_kinds(keys, family, sizes.layers);
    let sparse = sparse.unwrap_or_default();
    kinds.iter_mut().zip(sparse).for_each(|(kind, sparse)| kind.sparse = sparse);
    let mut made: Vec<(LayerKind, Arc<LayerShape>)> = Vec::new();
    let layers = kinds.into_iter().map(|kind| {
        if let Some((_, layer)) = made.iter().find(|(found, _)| *found == kind) {
            return Arc::clone(layer);
        }
        let heads = sizes.heads.with_scores(Scores { window: kind.window, ..scores });
        let experts = experts.filter(|_| kind.sparse);
        let layer = family.layer(LayerSizes { heads, ..sizes }, biases, kind, experts);
        made.push((kind, Arc::new(layer)));
        Arc::clone(&made[made.len() - 1].1)
    });
    layers.collect()
}

fn read_biases(keys: &mut ConfigReader<'_>, family: &ModelFamily) -> Biases {
    let [(qkv, o), (mlp, _)] = [family.attention_bias, family.mlp_bias].map(|bias| match bias {
        Bias::None => (false, false),
        Bias::Inputs => (true, false),
        Bias::Key(key) | Bias::Unless(key) => {
            let all = keys.flag(key, matches!(bias, Bias::Unless(_)));
            (all, all)
        }
    });
    Biases { qkv, o, mlp }
}

/// Returns the scale of scores, if it is not that of the heads' width: Gemma's `query_pre_attn_scalar^-1/2`.
fn query_scale(keys: &mut ConfigReader<'_>, family: &ModelFamily) -> Option<f32> {
    let scalar = family.scaled.then(|| keys.number("query_pre_attn_scalar").unwrap_or(256.0));
    scalar.map(|scalar| libm::pow(scalar, -0.5) as f32)
}

/// Reads a bound of scores or logits; null is none.
pub(super) fn softcap(
    keys: &mut ConfigReader<'_>,
    key: &str,
    default: impl Into<Option<f64>>,
) -> Option<f32> {
    if !keys.has(key) {
        return default.into().map(|cap| cap as f32);
    }
    keys.optional_number(key).map(|cap| cap as f32)
}

/// Reads the window and the rotary embedding of each layer.
fn layer_kinds(keys: &mut ConfigReader<'_>, family: &ModelFamily, layers: usize) -> Vec<LayerKind> {
    let (recurrent, sizes) = (recurrent_layers(keys, family, layers), read_recurrent(keys, family));
    let roped = roped_layers(keys, family, layers);
    let listed = listed_windows(keys, family, layers);
    let late = matches!(family.windows, Windows::Late | Windows::WithoutRope | Windows::IfUsed);
    let used = !late || keys.flag("use_sliding_window", false);
    let window = if used { window(keys, family) } else { None };
    // The layers of a pattern have windows whether there is a number or not.
    let of_pattern = matches!(family.windows, Windows::Pattern { .. });
    let is_listed = listed.is_some();
    let sliding = match listed {
        Some(listed) => listed,
        None if window.is_none() && !of_pattern => vec![false; layers],
        None => sliding_layers(keys, family, &roped),
    };
    if sliding.contains(&true) && window.is_none() {
        let why =
            if used { "`sliding_window` is null" } else { "`use_sliding_window` is not true" };
        keys.problem(if is_listed {
            format!("`{TYPES}` has {SLIDING:?}, and {why}")
        } else {
            format!("without `{TYPES}`, layers of \"{}\" have windows, and {why}", family.name)
        });
    }
    let of_windows = usize::from(matches!(family.ropes, Ropes::ByLayer { .. }));
    let kinds = sliding.into_iter().zip(roped).zip(recurrent);
    let kinds = kinds.map(|((sliding, roped), recurrent)| LayerKind {
        recurrent: sizes.filter(|_| recurrent),
        window: window.filter(|_| sliding),
        rope: roped.then_some(if sliding { of_windows } else { 0 }),
        sparse: false,
    });
    kinds.collect()
}

/// Reads the number of keys of a window; null is none.
fn window(keys: &mut ConfigReader<'_>, family: &ModelFamily) -> Option<NonZeroU32> {
    if matches!(family.windows, Windows::None) {
        return None;
    }
    let window = if keys.has(WINDOW) {
        keys.optional_size(WINDOW, WIDEST_WINDOW)
    } else {
        family.defaults.sliding_window
    };
    window.and_then(|window| NonZeroU32::new(u32::try_from(window).ok()?))
}

/// Reads which layers have a window from `layer_types`, if it is there and the family reads it.
fn listed_windows(
    keys: &mut ConfigReader<'_>,
    family: &ModelFamily,
    layers: usize,
) -> Option<Vec<bool>> {
    let types = keys.value(TYPES).filter(|_| family.other_mixer == OtherMixer::None)?;
    let types = types.as_array().map(Vec::as_slice).unwrap_or_default();
    if types.len() != layers && keys.problems.is_empty() {
        keys.problem(format!(
            "`{TYPES}` has {} entries, `num_hidden_layers` is {layers}; write one for each layer",
            types.len()
        ));
    }
    if !family.reads.contains(&TYPES) {
        return None;
    }
    if let Some(other) = types.iter().find(|kind| *kind != FULL && *kind != SLIDING) {
        let other = show_value(other);
        keys.problem(format!("`{TYPES}` has {other}; supported: {FULL:?}, {SLIDING:?}"));
    }
    let mut sliding: Vec<bool> = types.iter().map(|kind| kind == SLIDING).collect();
    sliding.resize(layers, false);
    Some(sliding)
}

/// Returns which layers have a window where `layer_types` is missing.
fn sliding_layers(keys: &mut ConfigReader<'_>, family: &ModelFamily, roped: &[bool]) -> Vec<bool> {
    let layers = roped.len();
    match family.windows {
        Windows::None => vec![false; layers],
        Windows::All | Windows::IfUsed => vec![true; layers],
        Windows::Pattern { every, key } => {
            let every = key.map_or(every, |key| keys.size(key, every, WIDEST_WINDOW));
            (1..=layers).map(|layer| !layer.is_multiple_of(every)).collect()
        }
        Windows::WithoutRope => roped.iter().map(|roped| !roped).collect(),
        Windows::Late => {
            let first = first_window(keys);
            (0..layers as i64).map(|layer| layer >= first).collect()
        }
    }
}

/// Reads the first layer of Qwen that has a window.
fn first_window(keys: &mut ConfigReader<'_>) -> i64 {
    const KEY: &str = "max_window_layers";
    if !keys.has(KEY) {
        return 28;
    }
    let first = keys.value(KEY).and_then(|first| first.as_i64());
    first.unwrap_or_else(|| {
        keys.wrong(KEY, "a whole number is needed");
        0
    })
}

/// Reads which layers have rotary positions. `no_rope_layers` has 1 for a layer that has them.
fn roped_layers(keys: &mut ConfigReader<'_>, family: &ModelFamily, layers: usize) -> Vec<bool> {
    const KEY: &str = "no_rope_layers";
    if !matches!(family.ropes, Ropes::SomeLayers { .. }) {
        return vec![true; layers];
    }
    let interval = keys.size("no_rope_layer_interval", 4, WIDEST_WINDOW);
    let Some(listed) = keys.value(KEY) else {
        return (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect();
    };
    let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let read: Option<Vec<bool>> = listed
        .iter()
        .map(|item| item.as_bool().or_else(|| Some(item.as_u64().filter(|one| *one <= 1)? == 1)))
        .collect();
    match read.filter(|read| read.len() == layers) {
        Some(read) => read,
        None => {
            keys.problem(format!(
                "`{KEY}` must be a list of 0 and 1, one for each of {layers} layers"
            ));
            vec![true; layers]
        }
    }
}

impl ModelFamily {
    /// Returns a layer of a kind, whose attention has the window of `sizes.heads`.
    fn layer(
        &self,
        sizes: LayerSizes,
        biases: Biases,
        kind: LayerKind,
        experts: Option<ExpertSizes>,
    ) -> LayerShape {
        let LayerSizes { hidden, intermediate, eps, .. } = sizes;
        let norm = |name: Option<&'static str>| {
            name.map(|name| NormShape { name, width: hidden, eps, gain: self.gain })
        };
        let mixer = match kind.recurrent {
            Some(recurrent) => recurrent_mixer(recurrent, hidden, eps),
            None => Mixer::Attention(self.attention(sizes, biases, kind.rope)),
        };
        Layer {
            before_mixer: norm(self.norms.before_mixer),
            mixer,
            after_mixer: norm(self.norms.after_mixer),
            before_mlp: norm(self.norms.before_mlp),
            mlp: match experts {
                None => Mlp::Gated(self.gated_mlp(hidden, intermediate, biases)),
                Some(experts) => Mlp::Experts(experts.shape(hidden)),
            },
            after_mlp: norm(self.norms.after_mlp),
        }
    }

    /// Returns attention with a rotary embedding.
    fn attention(
        &self,
        sizes: LayerSizes,
        biases: Biases,
        rope: Option<usize>,
    ) -> Attention<LinearShape, NormShape> {
        let LayerSizes { hidden, heads, eps, query_scale, .. } = sizes;
        let [q_norm, k_norm] = self.names.qk_norms;
        Attention {
            heads,
            qkv: self.query_key_value(hidden, heads, biases),
            o: LinearShape::new(self.names.o, hidden, heads.q * heads.dim, biases.o),
            q_norm: self.norm_of_heads(q_norm, heads.q, heads.dim, eps),
            k_norm: self.norm_of_heads(k_norm, heads.kv, heads.dim, eps),
            rope,
            query_scale,
            sinks: self.sinks,
            gate: self.gate,
        }
    }

    /// Returns the norm of `count` heads of queries or keys, if there is one.
    fn norm_of_heads(
        &self,
        name: &'static str,
        count: usize,
        dim: usize,
        eps: f32,
    ) -> Option<NormShape> {
        let width = match self.qk_norm {
            QkNorm::None => return None,
            QkNorm::Head => dim,
            QkNorm::All => count * dim,
        };
        Some(NormShape { name, width, eps, gain: self.gain })
    }

    fn query_key_value(&self, hidden: usize, heads: Heads, biases: Biases) -> Maps<LinearShape, 3> {
        let widths = [heads.q, heads.kv, heads.kv].map(|count| count * heads.dim);
        if self.fused {
            let all = widths.iter().sum();
            return Maps::Fused(
                LinearShape::new("self_attn.qkv_proj", all, hidden, biases.qkv),
                widths,
            );
        }
        let [mut q, k, v] = widths;
        if self.gate {
            q *= 2;
        }
        Maps::Split([
            LinearShape::new("self_attn.q_proj", q, hidden, biases.qkv),
            LinearShape::new("self_attn.k_proj", k, hidden, biases.qkv),
            LinearShape::new("self_attn.v_proj", v, hidden, biases.qkv),
        ])
    }

    fn gated_mlp(&self, hidden: usize, width: usize, biases: Biases) -> GatedMlp<LinearShape> {
        let [.., down] = self.names.mlp;
        GatedMlp {
            activation: self.activation.1,
            width,
            gate_up: self.gate_up(hidden, width, biases),
            down: LinearShape::new(down, hidden, width, biases.mlp),
        }
    }

    fn gate_up(&self, hidden: usize, width: usize, biases: Biases) -> Maps<LinearShape, 2> {
        if self.fused {
            let both = LinearShape::new("mlp.gate_up_proj", 2 * width, hidden, biases.mlp);
            return Maps::Fused(both, [width; 2]);
        }
        let [gate, up, _] = self.names.mlp;
        Maps::Split([gate, up].map(|name| LinearShape::new(name, width, hidden, biases.mlp)))
    }
}
