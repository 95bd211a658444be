//! Families of models, a row each.

use super::family::{
    Bias, DefaultSizes, ExpertFamily, ModelFamily, NormNames, OtherMixer, PLAIN, PartNames, QkNorm,
    Ropes, Softcaps, Windows,
};
use super::reader::ConfigReader;
use crate::files::parts::{Activation, Gain};

/// The families, sorted by name.
pub(super) const FAMILIES: [ModelFamily; 16] = [
    // Gemma 2 (arXiv:2408.00118), transformers `Gemma2Config`.
    ModelFamily {
        name: "gemma2",
        architecture: "Gemma2",
        windows: Windows::Pattern { every: 2, key: None },
        softcaps: Softcaps {
            scores: Some(("attn_logit_softcapping", 50.0)),
            logits: Some(("final_logit_softcapping", Some(30.0))),
        },
        reads: &[
            WINDOW,
            TYPES,
            "query_pre_attn_scalar",
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "hidden_activation",
            "use_bidirectional_attention",
        ],
        defaults: DefaultSizes {
            vocab_size: 256_000,
            max_position_embeddings: 8192,
            ..GEMMA_SIZES
        },
        ..GEMMA
    },
    // Gemma 3 (arXiv:2503.19786), transformers `Gemma3TextConfig`; with vision, this is in `Gemma3Config`.
    ModelFamily {
        name: "gemma3_text",
        architecture: "Gemma3",
        beyond_f16: true, // huggingface/transformers#36822
        qk_norm: QkNorm::Head,
        windows: Windows::Pattern { every: 6, key: Some("sliding_window_pattern") },
        ropes: Ropes::ByLayer {
            theta: 1e6,
            window_theta: 1e4,
            window_key: Some("rope_local_base_freq"),
        },
        softcaps: Softcaps { scores: None, logits: Some(("final_logit_softcapping", None)) },
        reads: &[
            WINDOW,
            TYPES,
            "sliding_window_pattern",
            "rope_local_base_freq",
            "query_pre_attn_scalar",
            "final_logit_softcapping",
            "hidden_activation",
            "use_bidirectional_attention",
        ],
        ..GEMMA
    },
    // gpt-oss (arXiv:2508.10925), transformers `GptOssConfig`.
    ModelFamily {
        name: "gpt_oss",
        architecture: "GptOss",
        attention_bias: Bias::Unless("attention_bias"),
        windows: Windows::Pattern { every: 2, key: None },
        ropes: Ropes::GptOss,
        sinks: true,
        experts: ExpertFamily::GptOss,
        reads: &[WINDOW, TYPES],
        defaults: DefaultSizes {
            hidden_size: 2880,
            num_hidden_layers: 36,
            num_attention_heads: 64,
            num_key_value_heads: Some(8),
            head_dim: Some(64),
            intermediate_size: 2880,
            vocab_size: 201_088,
            max_position_embeddings: 131_072,
            rms_norm_eps: 1e-5,
            sliding_window: Some(128),
            ..PLAIN.defaults
        },
        ..PLAIN
    },
    // LFM2 (arXiv:2511.23404), transformers `Lfm2Config`.
    ModelFamily {
        name: "lfm2",
        architecture: "Lfm2",
        norms: NormNames {
            before_mixer: Some("operator_norm"),
            before_mlp: Some("ffn_norm"),
            ..PLAIN.norms
        },
        qk_norm: QkNorm::Head,
        other_mixer: OtherMixer::ShortConv,
        names: PartNames {
            o: "self_attn.out_proj",
            qk_norms: ["self_attn.q_layernorm", "self_attn.k_layernorm"],
            mlp: ["feed_forward.w1", "feed_forward.w3", "feed_forward.w2"],
            last_norm: "embedding_norm",
            eps: "norm_eps",
            tied: Some("tie_embedding"),
        },
        ropes: Ropes::One { theta: 1e6 },
        reads: &[TYPES],
        defaults: DefaultSizes {
            hidden_size: 2560,
            num_key_value_heads: Some(8),
            intermediate_size: 12_288,
            vocab_size: 65_536,
            max_position_embeddings: 128_000,
            rms_norm_eps: 1e-5,
            tied: true,
            ..PLAIN.defaults
        },
        ..PLAIN
    },
    // Llama 3 and its kin (arXiv:2407.21783), transformers `LlamaConfig`.
    ModelFamily {
        name: "llama",
        architecture: "Llama",
        attention_bias: Bias::Key("attention_bias"),
        mlp_bias: Bias::Key("mlp_bias"),
        ..PLAIN
    },
    // Ministral 8B, transformers `MinistralConfig`; `MistralConfig` with `layer_types` is read as this.
    ModelFamily {
        name: "ministral",
        architecture: "Ministral",
        windows: Windows::All,
        reads: &[WINDOW, TYPES],
        ..MISTRAL
    },
    // Ministral 3, transformers `Ministral3Config`; with vision, this is in `Mistral3Config`.
    ModelFamily {
        name: "ministral3",
        architecture: "Ministral3",
        ropes: Ropes::Ministral3,
        query_scale: true,
        defaults: DefaultSizes {
            num_hidden_layers: 34,
            head_dim: Some(128),
            vocab_size: 131_072,
            max_position_embeddings: 262_144,
            rms_norm_eps: 1e-5,
            sliding_window: None,
            ..MISTRAL.defaults
        },
        ..MISTRAL
    },
    // Mistral 7B (arXiv:2310.06825), transformers `MistralConfig`.
    ModelFamily { name: "mistral", architecture: "Mistral", ..MISTRAL },
    // OLMo 3, transformers `Olmo3Config`.
    ModelFamily {
        name: "olmo3",
        architecture: "Olmo3",
        norms: NormNames {
            before_mixer: None,
            after_mixer: Some("post_attention_layernorm"),
            before_mlp: None,
            after_mlp: Some("post_feedforward_layernorm"),
        },
        qk_norm: QkNorm::All,
        attention_bias: Bias::Key("attention_bias"),
        windows: Windows::Pattern { every: 4, key: None },
        ropes: Ropes::ByLayer { theta: 5e5, window_theta: 5e5, window_key: None },
        reads: &[WINDOW, TYPES],
        defaults: DefaultSizes {
            vocab_size: 50_304,
            rms_norm_eps: 1e-5,
            sliding_window: Some(4096),
            ..PLAIN.defaults
        },
        ..PLAIN
    },
    // Phi-3 and Phi-4-mini (arXiv:2404.14219, arXiv:2503.01743), transformers `Phi3Config`.
    ModelFamily {
        name: "phi3",
        architecture: "Phi3",
        fused: true,
        windows: Windows::All,
        ropes: Ropes::Phi,
        reads: &[WINDOW],
        defaults: DefaultSizes {
            hidden_size: 3072,
            intermediate_size: 8192,
            vocab_size: 32_064,
            max_position_embeddings: 4096,
            rms_norm_eps: 1e-5,
            ..PLAIN.defaults
        },
        ..PLAIN
    },
    // Qwen2 and Qwen2.5 (arXiv:2407.10671), transformers `Qwen2Config`.
    ModelFamily { name: "qwen2", architecture: "Qwen2", attention_bias: Bias::Inputs, ..QWEN },
    // The dense Qwen3 (arXiv:2505.09388), transformers `Qwen3Config`.
    ModelFamily {
        name: "qwen3",
        architecture: "Qwen3",
        attention_bias: Bias::Key("attention_bias"),
        qk_norm: QkNorm::Head,
        defaults: DefaultSizes { head_dim: Some(128), ..QWEN.defaults },
        ..QWEN
    },
    // Qwen3.5 with experts, transformers `Qwen3_5MoeTextConfig`; with vision, this is in `Qwen3_5MoeConfig`.
    ModelFamily {
        name: "qwen3_5_moe_text",
        architecture: "Qwen3_5Moe",
        experts: ExpertFamily::Qwen35,
        defaults: DefaultSizes {
            hidden_size: 2048,
            num_hidden_layers: 40,
            num_key_value_heads: Some(2),
            ..QWEN_3_5.defaults
        },
        ..QWEN_3_5
    },
    // The dense Qwen3.5, transformers `Qwen3_5TextConfig`; with vision, this is in `Qwen3_5Config`.
    ModelFamily { name: "qwen3_5_text", architecture: "Qwen3_5", ..QWEN_3_5 },
    // Qwen3 with experts (arXiv:2505.09388), transformers `Qwen3MoeConfig`.
    ModelFamily {
        name: "qwen3_moe",
        architecture: "Qwen3Moe",
        attention_bias: Bias::Key("attention_bias"),
        qk_norm: QkNorm::Head,
        windows: Windows::IfUsed,
        experts: ExpertFamily::Qwen,
        reads: &[WINDOW],
        defaults: DefaultSizes {
            hidden_size: 2048,
            num_hidden_layers: 24,
            num_key_value_heads: Some(4),
            intermediate_size: 6144,
            ..QWEN.defaults
        },
        ..PLAIN
    },
    // SmolLM3, transformers `SmolLM3Config`.
    ModelFamily {
        name: "smollm3",
        architecture: "SmolLM3",
        attention_bias: Bias::Key("attention_bias"),
        mlp_bias: Bias::Key("mlp_bias"),
        windows: Windows::WithoutRope,
        ropes: Ropes::SomeLayers { theta: 2e6 },
        reads: &[WINDOW, TYPES, "no_rope_layers", "no_rope_layer_interval"],
        defaults: DefaultSizes {
            hidden_size: 2048,
            num_hidden_layers: 36,
            num_attention_heads: 16,
            num_key_value_heads: Some(4),
            vocab_size: 128_256,
            max_position_embeddings: 32_768,
            tied: true,
            ..PLAIN.defaults
        },
        ..PLAIN
    },
];

/// Families whose configuration may contain that of a decoder as `text_config`: the outer `model_type`, the inner one where it
/// is missing, and whether the head is the embedding where no key says so.
pub(super) const NESTED: [(&str, &str, bool); 4] = [
    ("gemma3", "gemma3_text", true),
    ("mistral3", "ministral3", false),
    ("qwen3_5", "qwen3_5_text", false),
    ("qwen3_5_moe", "qwen3_5_moe_text", false),
];

/// The names of the families.
pub(super) const NAMES: [&str; FAMILIES.len()] = {
    let mut names = [""; FAMILIES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = FAMILIES[index].name;
        index += 1;
    }
    names
};

/// Key of the number of keys of a window.
pub(super) const WINDOW: &str = "sliding_window";
/// Key of the kind of each layer.
pub(super) const TYPES: &str = "layer_types";
/// Kind of a layer with attention to all earlier tokens.
pub(super) const FULL: &str = "full_attention";

/// The sizes of Qwen2 and Qwen3.
const QWEN: ModelFamily = ModelFamily {
    windows: Windows::Late,
    reads: &[WINDOW, TYPES],
    defaults: DefaultSizes {
        null_head_dim: false,
        num_key_value_heads: Some(32),
        intermediate_size: 22_016,
        vocab_size: 151_936,
        max_position_embeddings: 32_768,
        sliding_window: Some(4096),
        ..PLAIN.defaults
    },
    ..PLAIN
};

/// Gated DeltaNet in three of four layers, an output gate in the others, `1 + w`; the sizes of Qwen3.5-9B.
const QWEN_3_5: ModelFamily = ModelFamily {
    gain: Gain::OnePlus,
    qk_norm: QkNorm::Head,
    gate: true,
    other_mixer: OtherMixer::DeltaNet,
    attention_bias: Bias::Key("attention_bias"),
    ropes: Ropes::Partial { theta: 1e4, share: 0.25 },
    reads: &[TYPES],
    defaults: DefaultSizes {
        num_attention_heads: 16,
        num_key_value_heads: Some(4),
        head_dim: Some(256),
        intermediate_size: 12_288,
        vocab_size: 248_320,
        max_position_embeddings: 32_768,
        ..PLAIN.defaults
    },
    ..PLAIN
};

/// A window in all layers; the sizes of Mistral 7B.
const MISTRAL: ModelFamily = ModelFamily {
    windows: Windows::All,
    reads: &[WINDOW],
    defaults: DefaultSizes {
        num_key_value_heads: Some(8),
        intermediate_size: 14_336,
        max_position_embeddings: 131_072,
        sliding_window: Some(4096),
        ..PLAIN.defaults
    },
    ..PLAIN
};

/// Norms before and after attention and MLP, with `1 + w`; GeGLU; scaled embeddings and queries.
const GEMMA: ModelFamily = ModelFamily {
    norms: NormNames {
        before_mixer: Some("input_layernorm"),
        after_mixer: Some("post_attention_layernorm"),
        before_mlp: Some("pre_feedforward_layernorm"),
        after_mlp: Some("post_feedforward_layernorm"),
    },
    gain: Gain::OnePlus,
    attention_bias: Bias::Key("attention_bias"),
    activation: ("hidden_activation", Activation::Gelu),
    scaled: true,
    defaults: GEMMA_SIZES,
    ..PLAIN
};

/// The sizes of Gemma 3.
const GEMMA_SIZES: DefaultSizes = DefaultSizes {
    hidden_size: 2304,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: Some(4),
    head_dim: Some(256),
    null_head_dim: false,
    intermediate_size: 9216,
    vocab_size: 262_208,
    max_position_embeddings: 131_072,
    rms_norm_eps: 1e-6,
    tied: true,
    sliding_window: Some(4096),
};

/// Reads the family of a configuration. `MistralConfig` with `layer_types` is that of Ministral.
pub(super) fn read_family(keys: &mut ConfigReader<'_>) -> ModelFamily {
    let name = keys.value("model_type").and_then(|name| name.as_str());
    let name = match name {
        Some("mistral") if keys.value(TYPES).is_some() => Some("ministral"),
        name => name,
    };
    FAMILIES.into_iter().find(|family| Some(family.name) == name).unwrap_or_else(|| {
        if NESTED.iter().any(|(outer, ..)| Some(*outer) == name) {
            let needed = "the configuration of its decoder is needed, an object `text_config`";
            keys.wrong("model_type", needed);
            return PLAIN;
        }
        let mut names: Vec<&str> =
            NAMES.into_iter().chain(NESTED.map(|(outer, ..)| outer)).collect();
        names.sort_unstable();
        keys.wrong("model_type", &format!("supported: \"{}\"", names.join("\", \"")));
        PLAIN
    })
}
