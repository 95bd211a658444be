//! Differences of the model families, and what is not supported in any of them.

use super::reader::{Reader, shown};

/// Properties of a family's decoder beside the sizes.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) qkv_bias: bool,
    pub(super) o_bias: bool,
    pub(super) mlp_bias: bool,
    pub(super) qk_norm: bool,
    /// The width of a head where no key gives it; the residual stream's over the number of heads, if this does not.
    pub(super) head_dim: Option<usize>,
    /// True if `head_dim` may be null, which means what its absence does.
    pub(super) null_head_dim: bool,
    /// Key and value heads where no key gives them; as many as query heads, if this does not.
    pub(super) num_key_value_heads: Option<usize>,
    /// Width of the MLP where no key gives it.
    pub(super) intermediate_size: usize,
    /// Rows of the embedding where no key gives them.
    pub(super) vocab_size: usize,
    /// Longest sequence where no key gives it.
    pub(super) max_position_embeddings: usize,
}

/// The families, sorted.
pub(super) const NAMES: &[&str] = &["llama", "qwen2", "qwen3"];

/// Reads what the family of a configuration says.
pub(super) fn read(keys: &mut Reader<'_>, layers: usize) -> Family {
    refuse_unsupported(keys);
    layer_types(keys, layers);
    match keys.value("model_type").and_then(|name| name.as_str()) {
        Some("llama") => llama(keys),
        Some("qwen2") => qwen2(keys, layers),
        Some("qwen3") => qwen3(keys, layers),
        _ => {
            keys.wrong("model_type", &format!("supported: \"{}\"", NAMES.join("\", \"")));
            PLAIN
        }
    }
}

/// No bias, no norm of queries and keys; the sizes of Llama.
const PLAIN: Family = Family {
    name: "llama",
    qkv_bias: false,
    o_bias: false,
    mlp_bias: false,
    qk_norm: false,
    head_dim: None,
    null_head_dim: true,
    num_key_value_heads: None,
    intermediate_size: 11_008,
    vocab_size: 32_000,
    max_position_embeddings: 2048,
};

/// The sizes of Qwen2 and Qwen3.
const QWEN: Family = Family {
    null_head_dim: false,
    num_key_value_heads: Some(32),
    intermediate_size: 22_016,
    vocab_size: 151_936,
    max_position_embeddings: 32_768,
    ..PLAIN
};

/// transformers `LlamaConfig`.
fn llama(keys: &mut Reader<'_>) -> Family {
    let bias = keys.flag("attention_bias");
    Family { qkv_bias: bias, o_bias: bias, mlp_bias: keys.flag("mlp_bias"), ..PLAIN }
}

/// transformers `Qwen2Config`: queries, keys and values always have a bias.
fn qwen2(keys: &mut Reader<'_>, layers: usize) -> Family {
    full_attention(keys, layers);
    Family { name: "qwen2", qkv_bias: true, ..QWEN }
}

/// transformers `Qwen3Config`: no bias by default, a norm over each head, and heads of 128.
fn qwen3(keys: &mut Reader<'_>, layers: usize) -> Family {
    full_attention(keys, layers);
    let bias = keys.flag("attention_bias");
    let head_dim = Some(128);
    Family { name: "qwen3", qkv_bias: bias, o_bias: bias, qk_norm: true, head_dim, ..QWEN }
}

/// Refuses a sliding window that some layer uses. `layer_types` decides; without it, layers from `max_window_layers` on
/// use one if `use_sliding_window` says so and `sliding_window` is not null.
fn full_attention(keys: &mut Reader<'_>, layers: usize) {
    if let Some(types) = keys.value("layer_types") {
        let types = types.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(other) = types.iter().find(|layer| layer.as_str() != Some("full_attention")) {
            let other = shown(other);
            keys.problem(format!("`layer_types` has {other}; supported: \"full_attention\""));
        }
        return;
    }
    let window = !keys.has("sliding_window") || keys.value("sliding_window").is_some();
    let first = match keys.has("max_window_layers") {
        true => keys.value("max_window_layers").and_then(|n| n.as_u64()),
        false => Some(28),
    };
    if keys.flag("use_sliding_window") && window && first.is_none_or(|n| n < layers as u64) {
        keys.wrong("use_sliding_window", "only full attention is supported");
    }
}

/// Refuses a list of layers that are not those of the model.
fn layer_types(keys: &mut Reader<'_>, layers: usize) {
    let listed = keys.value("layer_types").and_then(|types| types.as_array()).map(Vec::len);
    if let Some(n) = listed.filter(|n| *n != layers && keys.problems.is_empty()) {
        keys.problem(format!(
            "`layer_types` has {n} entries, `num_hidden_layers` is {layers}; write one for each layer"
        ));
    }
}

/// Refuses what would change the numbers and is not built.
fn refuse_unsupported(keys: &mut Reader<'_>) {
    for key in ["quantization_config", "compression_config"] {
        if keys.value(key).is_some() {
            keys.wrong(key, "weights of f32, f16 and bf16 are supported");
        }
    }
    for key in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if keys.value(key).is_some_and(|experts| experts.as_u64() != Some(0)) {
            keys.wrong(key, "mixtures of experts are not supported");
        }
    }
    if keys.text("hidden_act").is_some_and(|act| act != "silu") {
        keys.wrong("hidden_act", "supported: \"silu\"");
    }
}
