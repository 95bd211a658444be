//! Decoder of a family of models, as its row describes it.

use crate::files::parts::{Activation, ExpertLayout, Gain};

/// Decoder of a family, beside the sizes that `config.json` gives.
pub(super) struct ModelFamily {
    /// `model_type`.
    pub(super) name: &'static str,
    /// Start of its entry of `architectures`.
    pub(super) architecture: &'static str,
    /// Names of the norms of a layer.
    pub(super) norms: NormNames,
    /// Factor of all norms.
    pub(super) gain: Gain,
    /// Norm of queries and keys.
    pub(super) qk_norm: QkNorm,
    /// True if attention has an output gate.
    pub(super) gate: bool,
    /// Mixer of the layers without attention.
    pub(super) other_mixer: OtherMixer,
    /// Names of maps and norms.
    pub(super) names: PartNames,
    /// Linear maps of attention that have a bias.
    pub(super) attention_bias: Bias,
    /// Linear maps of the MLP that have a bias.
    pub(super) mlp_bias: Bias,
    /// True if one map computes queries, keys and values, and one computes gate and up.
    pub(super) fused: bool,
    /// Key of the activation, and what it must be.
    pub(super) activation: (&'static str, Activation),
    /// Layers that have a window.
    pub(super) windows: Windows,
    /// Rotary embeddings.
    pub(super) ropes: Ropes,
    /// True for Gemma: queries are scaled by `query_pre_attn_scalar`, embeddings by the root of their width.
    pub(super) scaled: bool,
    /// True if activations are beyond the range of f16.
    pub(super) beyond_f16: bool,
    /// Bounds of scores and logits where no key gives them.
    pub(super) softcaps: Softcaps,
    /// True if queries are scaled by their positions.
    pub(super) query_scale: bool,
    /// True if each query head has a sink.
    pub(super) sinks: bool,
    /// Experts of the MLPs.
    pub(super) experts: ExpertFamily,
    /// Keys that this family reads, and that others warn of.
    pub(super) reads: &'static [&'static str],
    /// Sizes where no key gives them.
    pub(super) defaults: DefaultSizes,
}

/// Experts of a family, as their keys describe them.
#[derive(Clone, Copy)]
pub(super) enum ExpertFamily {
    /// No experts.
    None,
    /// Experts of Qwen3-MoE, in the layers that no key excepts.
    Qwen,
    /// Experts of Qwen3.5-MoE, in all layers, and a shared one.
    Qwen35,
    /// Experts of gpt-oss, with clamped gates and biases, in all layers.
    GptOss,
}

impl ExpertFamily {
    /// Returns the layout of the experts in files.
    pub(super) fn layout(self) -> ExpertLayout {
        match self {
            Self::None | Self::Qwen | Self::Qwen35 => ExpertLayout::Each,
            Self::GptOss => ExpertLayout::ByInputs,
        }
    }
}

/// Names of the norms of a layer; a norm without a name does not exist.
#[derive(Clone, Copy)]
pub(super) struct NormNames {
    pub(super) before_mixer: Option<&'static str>,
    pub(super) after_mixer: Option<&'static str>,
    pub(super) before_mlp: Option<&'static str>,
    pub(super) after_mlp: Option<&'static str>,
}

/// Names of maps and norms within a layer, of the norm after the layers, and of keys.
#[derive(Clone, Copy)]
pub(super) struct PartNames {
    /// Map of the attended values.
    pub(super) o: &'static str,
    /// Norms of queries and of keys.
    pub(super) qk_norms: [&'static str; 2],
    /// Maps of the MLP: gate, up and down.
    pub(super) mlp: [&'static str; 3],
    /// Norm after the layers.
    pub(super) last_norm: &'static str,
    /// Key of the constant of norms.
    pub(super) eps: &'static str,
    /// Key that counts before `tie_word_embeddings`.
    pub(super) tied: Option<&'static str>,
}

/// Mixer of the layers without attention.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OtherMixer {
    /// All layers have attention.
    None,
    /// Gated DeltaNet.
    DeltaNet,
    /// Short convolution. The width of the MLP is adjusted.
    ShortConv,
}

/// Norm of queries and keys.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum QkNorm {
    None,
    /// Of each head.
    Head,
    /// Of all heads together.
    All,
}

/// Linear maps with a bias.
#[derive(Clone, Copy)]
pub(super) enum Bias {
    /// No map.
    None,
    /// The maps of the input.
    Inputs,
    /// All maps, if the value of a key is true; without the key none.
    Key(&'static str),
    /// All maps, unless the value of a key is false.
    Unless(&'static str),
}

/// Layers with a window of `sliding_window` keys.
#[derive(Clone, Copy)]
pub(super) enum Windows {
    /// No layer.
    None,
    /// Every layer, unless `layer_types` is read and names others.
    All,
    /// Those of `layer_types`; without it, all but every so many. A key may give the number.
    Pattern { every: usize, key: Option<&'static str> },
    /// Those of `layer_types`; without it, those from `max_window_layers` on, if `use_sliding_window` is true.
    Late,
    /// Every layer, if `use_sliding_window` is true.
    IfUsed,
    /// Those of `layer_types`; without it, those without positions, if `use_sliding_window` is true.
    WithoutRope,
}

/// Rotary embeddings of a family, with the base where no key gives it.
#[derive(Clone, Copy)]
pub(super) enum Ropes {
    /// The same for all layers.
    One { theta: f64 },
    /// The same for all layers that `no_rope_layers` has with 1; the others have none.
    SomeLayers { theta: f64 },
    /// One for full attention, and one for windows. A key may give the base of the latter.
    ByLayer { theta: f64, window_theta: f64, window_key: Option<&'static str> },
    /// YaRN of Ministral 3, also where no key says so.
    Ministral3,
    /// YaRN of gpt-oss, also where no key says so.
    GptOss,
    /// LongRoPE under any of its names.
    Phi,
    /// The same for all layers, of a part of each head, whose share a key may give.
    Partial { theta: f64, share: f64 },
}

/// Bounds of scores and logits.
#[derive(Clone, Copy)]
pub(super) struct Softcaps {
    /// Key of the bound of scores, and its default.
    pub(super) scores: Option<(&'static str, f64)>,
    /// Key of the bound of logits, and its default.
    pub(super) logits: Option<(&'static str, Option<f64>)>,
}

/// Sizes where no key gives them.
#[derive(Clone, Copy)]
pub(super) struct DefaultSizes {
    /// Width of the residual stream.
    pub(super) hidden_size: usize,
    /// Number of layers.
    pub(super) num_hidden_layers: usize,
    /// Query heads.
    pub(super) num_attention_heads: usize,
    /// Key and value heads; as many as query heads, if this is none.
    pub(super) num_key_value_heads: Option<usize>,
    /// Width of a head; that of the residual stream over the number of heads, if this is none.
    pub(super) head_dim: Option<usize>,
    /// True if `head_dim` may be null, which means what its absence does.
    pub(super) null_head_dim: bool,
    /// Width of the MLP.
    pub(super) intermediate_size: usize,
    /// Rows of the embedding.
    pub(super) vocab_size: usize,
    /// Longest sequence.
    pub(super) max_position_embeddings: usize,
    /// Constant of norms.
    pub(super) rms_norm_eps: f64,
    /// True if the head is the embedding.
    pub(super) tied: bool,
    /// Keys of a window.
    pub(super) sliding_window: Option<usize>,
}

/// No bias, no norm of queries and keys, no window; the sizes of Llama.
pub(super) const PLAIN: ModelFamily = ModelFamily {
    name: "",
    architecture: "",
    norms: NormNames {
        before_mixer: Some("input_layernorm"),
        after_mixer: None,
        before_mlp: Some("post_attention_layernorm"),
        after_mlp: None,
    },
    gain: Gain::Weight,
    qk_norm: QkNorm::None,
    gate: false,
    other_mixer: OtherMixer::None,
    names: PartNames {
        o: "self_attn.o_proj",
        qk_norms: ["self_attn.q_norm", "self_attn.k_norm"],
        mlp: ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
        last_norm: "norm",
        eps: "rms_norm_eps",
        tied: None,
    },
    attention_bias: Bias::None,
    mlp_bias: Bias::None,
    fused: false,
    activation: ("hidden_act", Activation::Silu),
    windows: Windows::None,
    ropes: Ropes::One { theta: 10_000.0 },
    scaled: false,
    beyond_f16: false,
    softcaps: Softcaps { scores: None, logits: None },
    query_scale: false,
    sinks: false,
    experts: ExpertFamily::None,
    reads: &[],
    defaults: DefaultSizes {
        hidden_size: 4096,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        null_head_dim: true,
        intermediate_size: 11_008,
        vocab_size: 32_000,
        max_position_embeddings: 2048,
        rms_norm_eps: 1e-6,
        tied: false,
        sliding_window: None,
    },
};
