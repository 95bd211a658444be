//! Shapes of published models, and their configurations.

use serde_json::{Value, json};

use crate::files::StoredDtype;
use crate::files::create::{self, Size};

/// Family of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlankFamily {
    Qwen2,
    Qwen3,
    /// Llama 3.2, with its scaling of positions.
    Llama,
    /// Mistral 7B v0.3, without a window.
    Mistral,
    SmolLm3,
    Gemma2,
    Gemma3,
    Olmo3,
    /// Phi-4-mini, with factors of LongRoPE that are like its own.
    Phi3,
    /// Qwen3 with 128 experts, each an eighth as wide as a dense MLP.
    Qwen3Moe,
    /// gpt-oss with 32 experts.
    GptOss,
    /// Qwen3.5, with so many value heads in layers without attention.
    Qwen35 {
        value_heads: usize,
    },
    /// Qwen3.5 with 256 experts and a shared one, each as wide as `intermediate_size` says.
    Qwen35Moe,
    Lfm2,
}

/// Shape of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Name; empty for a shape of a size alone.
    pub name: &'static str,
    /// Size.
    pub size: Size,
    pub(super) family: BlankFamily,
    /// Width of a head.
    pub(super) head_dim: usize,
    /// True if the head is the embedding.
    pub(super) tied: bool,
}

impl From<Size> for Shape {
    /// Returns the shape of a Qwen2 model.
    fn from(size: Size) -> Self {
        let head_dim = size.hidden_size.checked_div(size.num_attention_heads).unwrap_or(0);
        Self { name: "", size, family: BlankFamily::Qwen2, head_dim, tied: true }
    }
}

#[cfg(all(test, feature = "candle"))]
impl Shape {
    /// Returns the shape with another size, and heads of 128 elements.
    pub(crate) fn resized(self, size: Size) -> Self {
        Self { size, head_dim: 128, ..self }
    }
}

/// Shapes by name: those of published models, from their `config.json`, and two that are quick to measure (1.1 M and 26.8 M
/// parameters).
pub const SHAPES: &[Shape] = &[
    qwen2("qwen2.5-0.5b", 151_936, 896, 24, [14, 2, 64], 4864),
    qwen2("qwen2.5-1.5b", 151_936, 1536, 28, [12, 2, 128], 8960),
    qwen2("qwen2.5-3b", 151_936, 2048, 36, [16, 2, 128], 11_008),
    Shape { tied: false, ..qwen2("qwen2.5-7b", 152_064, 3584, 28, [28, 4, 128], 18_944) },
    qwen3("qwen3-0.6b", 1024, 28, [16, 8, 128], 3072),
    qwen3("qwen3-1.7b", 2048, 28, [16, 8, 128], 6144),
    qwen3("qwen3-4b", 2560, 36, [32, 8, 128], 9728),
    Shape { tied: false, ..qwen3("qwen3-8b", 4096, 36, [32, 8, 128], 12_288) },
    llama("llama3.2-1b", 2048, 16, [32, 8, 64], 8192),
    llama("llama3.2-3b", 3072, 28, [24, 8, 128], 8192),
    of_family(
        BlankFamily::Mistral,
        false,
        32_768,
        qwen2("mistral-7b", 32_768, 4096, 32, [32, 8, 128], 14_336),
    ),
    of_family(
        BlankFamily::SmolLm3,
        true,
        65_536,
        qwen2("smollm3-3b", 128_256, 2048, 36, [16, 4, 128], 11_008),
    ),
    of_family(
        BlankFamily::Gemma2,
        true,
        8192,
        qwen2("gemma2-2b", 256_000, 2304, 26, [8, 4, 256], 9216),
    ),
    of_family(
        BlankFamily::Gemma3,
        true,
        32_768,
        qwen2("gemma3-1b", 262_144, 1152, 26, [4, 1, 256], 6912),
    ),
    of_family(
        BlankFamily::Olmo3,
        false,
        65_536,
        qwen2("olmo3-7b", 100_278, 4096, 32, [32, 32, 128], 11_008),
    ),
    of_family(
        BlankFamily::Phi3,
        true,
        131_072,
        qwen2("phi4-mini", 200_064, 3072, 32, [24, 8, 128], 8192),
    ),
    of_family(
        BlankFamily::Qwen3Moe,
        false,
        40_960,
        qwen2("qwen3-30b-a3b", 151_936, 2048, 48, [32, 4, 128], 6144),
    ),
    of_family(
        BlankFamily::GptOss,
        false,
        131_072,
        qwen2("gpt-oss-20b", 201_088, 2880, 24, [64, 8, 64], 2880),
    ),
    of_family(
        BlankFamily::Qwen35 { value_heads: 16 },
        true,
        262_144,
        qwen2("qwen3.5-0.8b", 248_320, 1024, 24, [8, 2, 256], 3584),
    ),
    of_family(
        BlankFamily::Qwen35 { value_heads: 32 },
        false,
        262_144,
        qwen2("qwen3.5-9b", 248_320, 4096, 32, [16, 4, 256], 12_288),
    ),
    of_family(
        BlankFamily::Qwen35Moe,
        false,
        262_144,
        qwen2("qwen3.5-35b-a3b", 248_320, 2048, 40, [16, 2, 256], 512),
    ),
    of_family(
        BlankFamily::Lfm2,
        true,
        128_000,
        qwen2("lfm2-1.2b", 65_536, 2048, 16, [32, 8, 64], 12_288),
    ),
    with_context(512, qwen2("bench-s", 1024, 128, 4, [4, 2, 32], 512)),
    with_context(512, qwen2("bench-m", 8192, 512, 8, [8, 2, 64], 1408)),
];

/// Returns a shape of Qwen2.5. Heads are those of queries, those of keys, and their width.
const fn qwen2(
    name: &'static str,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    [num_attention_heads, num_key_value_heads, head_dim]: [usize; 3],
    intermediate_size: usize,
) -> Shape {
    let size = Size {
        vocab_size,
        hidden_size,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads,
        intermediate_size,
        max_position_embeddings: 32_768,
    };
    Shape { name, size, family: BlankFamily::Qwen2, head_dim, tied: true }
}

/// Returns a shape of Qwen3.
const fn qwen3(
    name: &'static str,
    hidden_size: usize,
    layers: usize,
    heads: [usize; 3],
    intermediate_size: usize,
) -> Shape {
    let shape = qwen2(name, 151_936, hidden_size, layers, heads, intermediate_size);
    Shape { family: BlankFamily::Qwen3, ..with_context(40_960, shape) }
}

/// Returns a shape of Llama 3.2.
const fn llama(
    name: &'static str,
    hidden_size: usize,
    layers: usize,
    heads: [usize; 3],
    intermediate_size: usize,
) -> Shape {
    let shape = qwen2(name, 128_256, hidden_size, layers, heads, intermediate_size);
    Shape { family: BlankFamily::Llama, ..with_context(131_072, shape) }
}

/// Returns a shape of another family, with a tied head or not, and another context.
const fn of_family(
    family: BlankFamily,
    tied: bool,
    max_position_embeddings: usize,
    shape: Shape,
) -> Shape {
    Shape { family, tied, ..with_context(max_position_embeddings, shape) }
}

/// Returns a shape with another context.
const fn with_context(max_position_embeddings: usize, shape: Shape) -> Shape {
    Shape { size: Size { max_position_embeddings, ..shape.size }, ..shape }
}

/// Context of Phi-4-mini before LongRoPE.
const PHI_ORIGINAL: usize = 4096;

/// Returns the configuration in the format of transformers 5.
pub(super) fn configuration(shape: &Shape, dtype: StoredDtype) -> Value {
    let mut config = create::qwen2(shape.size, dtype, "rope_parameters", &rope(shape));
    config["tie_word_embeddings"] = shape.tied.into();
    let (kind, architecture) = match shape.family {
        BlankFamily::Qwen2 => return config,
        BlankFamily::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        BlankFamily::Llama => ("llama", "LlamaForCausalLM"),
        BlankFamily::Mistral => ("mistral", "MistralForCausalLM"),
        BlankFamily::SmolLm3 => ("smollm3", "SmolLM3ForCausalLM"),
        BlankFamily::Gemma2 => ("gemma2", "Gemma2ForCausalLM"),
        BlankFamily::Gemma3 => ("gemma3_text", "Gemma3ForCausalLM"),
        BlankFamily::Olmo3 => ("olmo3", "Olmo3ForCausalLM"),
        BlankFamily::Phi3 => ("phi3", "Phi3ForCausalLM"),
        BlankFamily::Qwen3Moe => ("qwen3_moe", "Qwen3MoeForCausalLM"),
        BlankFamily::GptOss => ("gpt_oss", "GptOssForCausalLM"),
        BlankFamily::Qwen35 { .. } => ("qwen3_5_text", "Qwen3_5ForCausalLM"),
        BlankFamily::Qwen35Moe => ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
        BlankFamily::Lfm2 => ("lfm2", "Lfm2ForCausalLM"),
    };
    config["model_type"] = kind.into();
    config["architectures"] = json!([architecture]);
    config["head_dim"] = shape.head_dim.into();
    config["attention_bias"] = matches!(shape.family, BlankFamily::GptOss).into();
    let own = own_keys(shape);
    let own = own.as_object().into_iter().flatten();
    if let Some(keys) = config.as_object_mut() {
        if !matches!(shape.family, BlankFamily::Qwen3 | BlankFamily::Qwen3Moe) {
            keys.shift_remove("use_sliding_window");
        }
        for (key, value) in own {
            match value {
                Value::Null
                    if ["hidden_act", "rms_norm_eps", "intermediate_size"]
                        .contains(&key.as_str()) =>
                {
                    drop(keys.shift_remove(key))
                }
                value => drop(keys.insert(key.clone(), value.clone())),
            }
        }
    }
    config
}

/// Returns the rotary embedding of a shape.
fn rope(shape: &Shape) -> Value {
    let pairs = shape.head_dim * 3 / 8;
    let growing = |most: f64| {
        (0..pairs).map(|i| 1.0 + (most - 1.0) * i as f64 / pairs as f64).collect::<Vec<f64>>()
    };
    match shape.family {
        BlankFamily::Qwen2
        | BlankFamily::Qwen3
        | BlankFamily::Qwen3Moe
        | BlankFamily::Mistral
        | BlankFamily::Lfm2 => {
            json!({ "rope_type": "default", "rope_theta": 1e6 })
        }
        BlankFamily::Llama => json!({
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }),
        BlankFamily::SmolLm3 => json!({ "rope_type": "default", "rope_theta": 5e6 }),
        BlankFamily::Qwen35 { .. } | BlankFamily::Qwen35Moe => {
            json!({ "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25 })
        }
        BlankFamily::Gemma2 => json!({ "rope_type": "default", "rope_theta": 1e4 }),
        BlankFamily::Gemma3 => json!({
            "full_attention": { "rope_type": "default", "rope_theta": 1e6 },
            "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
        }),
        BlankFamily::Olmo3 => json!({
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192,
                "attention_factor": 1.207_944_154_167_983_5, "beta_fast": 32.0, "beta_slow": 1.0,
            },
            "sliding_attention": { "rope_type": "default", "rope_theta": 5e5 },
        }),
        BlankFamily::GptOss => json!({
            "rope_type": "yarn", "rope_theta": 1.5e5, "factor": 32.0, "original_max_position_embeddings": 4096,
            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
        }),
        BlankFamily::Phi3 => json!({
            "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
            "short_factor": vec![1.0; pairs], "long_factor": growing(48.0),
            "original_max_position_embeddings": PHI_ORIGINAL,
        }),
    }
}

/// Returns the keys that a family has besides those of Qwen2.
fn own_keys(shape: &Shape) -> Value {
    match shape.family {
        BlankFamily::Qwen2 | BlankFamily::Qwen3 => json!({}),
        BlankFamily::Llama => json!({ "rms_norm_eps": 1e-5, "mlp_bias": false }),
        BlankFamily::Mistral => json!({ "rms_norm_eps": 1e-5, "sliding_window": null }),
        BlankFamily::SmolLm3 => json!({
            "mlp_bias": false, "no_rope_layer_interval": 4, "use_sliding_window": false, "sliding_window": null,
        }),
        BlankFamily::Gemma2 => json!({
            "hidden_act": null, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        }),
        BlankFamily::Gemma3 => json!({
            "hidden_act": null, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
            "sliding_window": 512, "sliding_window_pattern": 6,
        }),
        BlankFamily::Olmo3 => json!({ "sliding_window": 4096 }),
        BlankFamily::Qwen3Moe => json!({
            "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
            "moe_intermediate_size": shape.size.intermediate_size / 8, "mlp_only_layers": [],
        }),
        BlankFamily::GptOss => json!({
            "rms_norm_eps": 1e-5, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
            "swiglu_limit": 7.0,
        }),
        BlankFamily::Qwen35 { value_heads } => delta_keys(value_heads),
        BlankFamily::Qwen35Moe => {
            let width = shape.size.intermediate_size;
            let mut keys = delta_keys(32);
            for (key, value) in [
                ("intermediate_size", Value::Null),
                ("num_experts", 256.into()),
                ("num_experts_per_tok", 8.into()),
                ("moe_intermediate_size", width.into()),
                ("shared_expert_intermediate_size", width.into()),
            ] {
                keys[key] = value;
            }
            keys
        }
        BlankFamily::Lfm2 => json!({
            "rms_norm_eps": null, "norm_eps": 1e-5, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3,
            "conv_bias": false, "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
        }),
        BlankFamily::Phi3 => json!({
            "rms_norm_eps": 1e-5, "sliding_window": null, "original_max_position_embeddings": PHI_ORIGINAL,
        }),
    }
}

/// Returns the keys of Gated DeltaNet.
fn delta_keys(value_heads: usize) -> Value {
    json!({
        "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_num_key_heads": 16,
        "linear_num_value_heads": value_heads, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    })
}
