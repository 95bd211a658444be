//! Families of models, a row each, and what is not supported in any of them.

use std::sync::Arc;

use maverl_kernels::attention::Heads;

use super::reader::{ConfigReader, show_value};
use crate::files::parts::{Attention, Layer, LayerShape, LinearShape, Mlp, NormShape};

/// Decoder of a family, beside the sizes that `config.json` gives.
pub(super) struct ModelFamily {
    /// `model_type`.
    pub(super) name: &'static str,
    /// Name of the norm before attention.
    before_attention: &'static str,
    /// Name of the norm before the MLP.
    before_mlp: &'static str,
    /// Linear maps of attention that have a bias.
    attention_bias: Bias,
    /// True if each head of queries and keys is normalized.
    qk_norm: bool,
    /// Linear maps of the MLP that have a bias.
    mlp_bias: Bias,
    /// Keys that this family reads, and that others warn of.
    pub(super) reads: &'static [&'static str],
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

/// Linear maps with a bias.
#[derive(Clone, Copy)]
enum Bias {
    /// No map.
    None,
    /// The maps of the input.
    Inputs,
    /// All maps, if the value of a key is true.
    Key(&'static str),
}

/// The families, sorted by name.
const FAMILIES: [ModelFamily; 3] = [
    // Llama 3 and its kin (arXiv:2407.21783), transformers `LlamaConfig`.
    ModelFamily {
        name: "llama",
        attention_bias: Bias::Key("attention_bias"),
        mlp_bias: Bias::Key("mlp_bias"),
        ..PLAIN
    },
    // Qwen2 and Qwen2.5 (arXiv:2407.10671), transformers `Qwen2Config`.
    ModelFamily { name: "qwen2", attention_bias: Bias::Inputs, ..QWEN },
    // The dense Qwen3 (arXiv:2505.09388), transformers `Qwen3Config`.
    ModelFamily {
        name: "qwen3",
        attention_bias: Bias::Key("attention_bias"),
        qk_norm: true,
        head_dim: Some(128),
        ..QWEN
    },
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

/// No bias, no norm of queries and keys; the sizes of Llama.
const PLAIN: ModelFamily = ModelFamily {
    name: "",
    before_attention: "input_layernorm",
    before_mlp: "post_attention_layernorm",
    attention_bias: Bias::None,
    qk_norm: false,
    mlp_bias: Bias::None,
    reads: &[],
    head_dim: None,
    null_head_dim: true,
    num_key_value_heads: None,
    intermediate_size: 11_008,
    vocab_size: 32_000,
    max_position_embeddings: 2048,
};

/// Key of the window of each layer.
const WINDOW: &str = "sliding_window";

/// The sizes of Qwen2 and Qwen3. Both read the keys of windows, which no layer may use.
const QWEN: ModelFamily = ModelFamily {
    reads: &[WINDOW, "layer_types"],
    null_head_dim: false,
    num_key_value_heads: Some(32),
    intermediate_size: 22_016,
    vocab_size: 151_936,
    max_position_embeddings: 32_768,
    ..PLAIN
};

/// Reads the family of a configuration, with biases.
pub(super) fn read(keys: &mut ConfigReader<'_>, layers: usize) -> (ModelFamily, Biases) {
    refuse_unsupported(keys);
    layer_types(keys, layers);
    let name = keys.value("model_type").and_then(|name| name.as_str());
    let found = FAMILIES.into_iter().find(|family| Some(family.name) == name);
    let family = found.unwrap_or_else(|| {
        keys.wrong("model_type", &format!("supported: \"{}\"", NAMES.join("\", \"")));
        PLAIN
    });
    if family.reads.contains(&WINDOW) {
        full_attention(keys, layers);
    }
    let [(qkv, o), (mlp, _)] = [family.attention_bias, family.mlp_bias].map(|bias| match bias {
        Bias::None => (false, false),
        Bias::Inputs => (true, false),
        Bias::Key(key) => {
            let all = keys.flag(key);
            (all, all)
        }
    });
    (family, Biases { qkv, o, mlp })
}

/// Linear maps of a model's layers that have a bias.
#[derive(Clone, Copy)]
pub(super) struct Biases {
    /// Maps to queries, keys and values.
    qkv: bool,
    /// Map of the attended values.
    o: bool,
    /// Maps of the MLP.
    mlp: bool,
}

/// Sizes of a model's layers.
#[derive(Clone, Copy)]
pub(super) struct LayerSizes {
    /// Width of the residual stream.
    pub(super) hidden: usize,
    pub(super) heads: Heads,
    /// Width of the MLP.
    pub(super) intermediate: usize,
    /// Constant of norms, added to the mean square.
    pub(super) eps: f32,
}

impl ModelFamily {
    /// Returns the layers of a model: so many of the same kind, which share memory.
    pub(super) fn layers(
        &self,
        layers: usize,
        sizes: LayerSizes,
        biases: Biases,
    ) -> Vec<Arc<LayerShape>> {
        let layer = Arc::new(self.layer(sizes, biases));
        vec![layer; layers]
    }

    fn layer(&self, sizes: LayerSizes, biases: Biases) -> LayerShape {
        let LayerSizes { hidden, heads, intermediate, eps } = sizes;
        let (queries, keys) = (heads.q * heads.dim, heads.kv * heads.dim);
        let [q_norm, k_norm] = ["self_attn.q_norm", "self_attn.k_norm"]
            .map(|name| self.qk_norm.then_some(NormShape { name, width: heads.dim, eps }));
        Layer {
            before_attention: NormShape { name: self.before_attention, width: hidden, eps },
            attention: Attention {
                heads,
                q: LinearShape::new("self_attn.q_proj", queries, hidden, biases.qkv),
                k: LinearShape::new("self_attn.k_proj", keys, hidden, biases.qkv),
                v: LinearShape::new("self_attn.v_proj", keys, hidden, biases.qkv),
                o: LinearShape::new("self_attn.o_proj", hidden, queries, biases.o),
                q_norm,
                k_norm,
            },
            before_mlp: NormShape { name: self.before_mlp, width: hidden, eps },
            mlp: Mlp {
                gate: LinearShape::new("mlp.gate_proj", intermediate, hidden, biases.mlp),
                up: LinearShape::new("mlp.up_proj", intermediate, hidden, biases.mlp),
                down: LinearShape::new("mlp.down_proj", hidden, intermediate, biases.mlp),
            },
        }
    }
}

/// Refuses a sliding window that some layer uses. `layer_types` decides; without it, layers from `max_window_layers` on
/// use one if `use_sliding_window` says so and `sliding_window` is not null.
fn full_attention(keys: &mut ConfigReader<'_>, layers: usize) {
    if let Some(types) = keys.value("layer_types") {
        let types = types.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(other) = types.iter().find(|layer| layer.as_str() != Some("full_attention")) {
            let other = show_value(other);
            keys.problem(format!("`layer_types` has {other}; supported: \"full_attention\""));
        }
        return;
    }
    let window = !keys.has("sliding_window") || keys.value("sliding_window").is_some();
    let first = if keys.has("max_window_layers") {
        keys.value("max_window_layers").and_then(|n| n.as_u64())
    } else {
        Some(28)
    };
    if keys.flag("use_sliding_window") && window && first.is_none_or(|n| n < layers as u64) {
        keys.wrong("use_sliding_window", "only full attention is supported");
    }
}

/// Refuses a list of layers that are not those of the model.
fn layer_types(keys: &mut ConfigReader<'_>, layers: usize) {
    let listed = keys.value("layer_types").and_then(|types| types.as_array()).map(Vec::len);
    if let Some(n) = listed.filter(|n| *n != layers && keys.problems.is_empty()) {
        keys.problem(format!(
            "`layer_types` has {n} entries, `num_hidden_layers` is {layers}; write one for each layer"
        ));
    }
}

/// Refuses what would change the numbers and is not built.
fn refuse_unsupported(keys: &mut ConfigReader<'_>) {
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
