//! GgufKeys of an architecture in a GGUF file, as the `config.json` of a model directory (reference: `llama-model.cpp`,
//! `load_arch_hparams`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::file::GgufFile;
use super::kinds::NumberKind;
use crate::files::ModelError;
use crate::files::hf_config::{Llama3, Rope, Scaling};

/// Tensor of divisors of the frequencies of a rope.
pub(crate) const ROPE_FREQS: &str = "rope_freqs.weight";
/// Tensors of the divisors of LongRoPE: up to the original context, and beyond it.
pub(crate) const LONG_ROPE: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

/// Reads keys of an architecture, and notes which.
struct GgufKeys<'a> {
    file: &'a GgufFile,
    read: BTreeSet<&'static str>,
    missing: Vec<String>,
}

impl GgufKeys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.file.architecture.name)
    }

    fn number(&mut self, key: &'static str) -> Option<f64> {
        self.read.insert(key);
        Some(decimal(self.file.number(&self.full(key))?))
    }

    fn whole(&mut self, key: &'static str) -> Option<u64> {
        self.read.insert(key);
        self.file.whole(&self.full(key))
    }

    fn text(&mut self, key: &'static str) -> Option<&str> {
        self.read.insert(key);
        self.file.text(&self.full(key))
    }

    /// Returns a whole number that must be there.
    fn required(&mut self, key: &'static str) -> u64 {
        let found = self.whole(key);
        if found.is_none() {
            self.missing.push(format!("`{}` is missing, or no whole number", self.full(key)));
        }
        found.unwrap_or(1)
    }

    /// Returns the keys of the architecture that were not read.
    fn unread(&self) -> Vec<String> {
        let start = self.full("");
        let own = self.file.header.metadata.keys().filter_map(|key| key.strip_prefix(&start));
        own.filter(|key| !self.read.contains(key)).map(|key| format!("`{start}{key}`")).collect()
    }
}

/// Returns the shortest decimal number that an f32 stands for.
fn decimal(number: f64) -> f64 {
    (number as f32).to_string().parse().unwrap_or(number)
}

/// Reads the configuration of a file, and what its owner should know of it.
///
/// # Errors
///
/// If keys or tensors are missing.
pub(crate) fn read_config(file: &GgufFile) -> Result<(Value, Vec<String>), ModelError> {
    let mut keys = GgufKeys { file, read: BTreeSet::new(), missing: Vec::new() };
    let embedding = file.tensors().get("token_embd.weight");
    let rows = embedding.and_then(|place| place.dims.first().copied());
    let rows = rows.ok_or_else(|| file.invalid("tensor `token_embd.weight` is missing"))?;
    let (name, family) = (file.architecture.name, file.architecture.family);
    let mut config = json!({
        "architectures": [format!("{}ForCausalLM", file.architecture.class)],
        "model_type": family,
        "dtype": match embedding.map(|place| place.kind) {
            Some(NumberKind::F16) => "float16",
            Some(NumberKind::Bf16) => "bfloat16",
            _ => "float32",
        },
        "vocab_size": rows,
        "tie_word_embeddings": !file.tensors().contains_key("output.weight"),
        "hidden_size": keys.required("embedding_length"),
        "intermediate_size": keys.required("feed_forward_length"),
        "num_hidden_layers": keys.required("block_count"),
        "num_attention_heads": keys.required("attention.head_count"),
        "max_position_embeddings": keys.required("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon").unwrap_or(1e-5),
    });
    let heads = config["num_attention_heads"].as_u64().unwrap_or(1).max(1);
    let kv = keys.whole("attention.head_count_kv").unwrap_or(heads);
    let usual = config["hidden_size"].as_u64().unwrap_or(1) / heads;
    let head_dim = keys.whole("attention.key_length").unwrap_or(usual);
    config["num_key_value_heads"] = kv.into();
    config["head_dim"] = head_dim.into();
    let rotated = keys.whole("rope.dimension_count").unwrap_or(head_dim);
    add_special_ids(file, &mut config);
    add_family(&mut keys, &mut config, head_dim);
    add_biases(file, &mut config);
    add_ropes(&mut keys, &mut config, [head_dim, rotated])?;
    if let Some(found) = keys.whole("attention.value_length").filter(|found| *found != head_dim) {
        keys.missing
            .push(format!("`{name}.attention.value_length` is {found}; {head_dim} is needed"));
    }
    // The embedding says it.
    keys.whole("vocab_size");
    if !keys.missing.is_empty() {
        return Err(file.invalid(keys.missing.join("; ")));
    }
    let unread = keys.unread();
    let note = (!unread.is_empty())
        .then(|| format!("keys of the GGUF file that are not read: {}", unread.join(", ")));
    Ok((config, note.into_iter().collect()))
}

/// Adds the ids of special tokens, as transformers writes them.
fn add_special_ids(file: &GgufFile, config: &mut Value) {
    for (name, key) in
        [("bos", "bos_token_id"), ("eos", "eos_token_id"), ("padding", "pad_token_id")]
    {
        if let Some(id) = file.whole(&format!("tokenizer.ggml.{name}_token_id")) {
            config[key] = id.into();
        }
    }
}

/// Adds what only some families have.
fn add_family(keys: &mut GgufKeys<'_>, config: &mut Value, head_dim: u64) {
    let family = keys.file.architecture.family;
    let layers = config["num_hidden_layers"].as_u64().unwrap_or(1);
    let activation = if family.starts_with("gemma") { "hidden_activation" } else { "hidden_act" };
    let name = if family.starts_with("gemma") { "gelu_pytorch_tanh" } else { "silu" };
    config[activation] = name.into();
    if matches!(family, "gemma2" | "gemma3_text" | "olmo3" | "phi3") {
        config["sliding_window"] = json!(keys.whole("attention.sliding_window"));
    }
    match family {
        "gemma2" | "gemma3_text" => {
            let cap = keys.number("attn_logit_softcapping");
            let usual = (family == "gemma2").then_some(50.0);
            if let Some(cap) = cap.or(usual) {
                config["attn_logit_softcapping"] = cap.into();
            }
            config["final_logit_softcapping"] =
                json!(keys.number("final_logit_softcapping").or(usual.map(|_| 30.0)));
            let sizes = [layers, config["hidden_size"].as_u64().unwrap_or(1)];
            let heads = config["num_attention_heads"].as_u64().unwrap_or(1);
            config["query_pre_attn_scalar"] = query_scalar(family, sizes, heads, head_dim).into();
            config["layer_types"] = layer_types(layers, window_period(family));
        }
        "olmo3" if config["sliding_window"].is_null() => {
            config["layer_types"] = layer_types(layers, 1);
        }
        "olmo3" => config["layer_types"] = layer_types(layers, window_period(family)),
        "qwen3_moe" => {
            config["num_experts"] = keys.required("expert_count").into();
            config["num_experts_per_tok"] = keys.required("expert_used_count").into();
            config["moe_intermediate_size"] = keys.required("expert_feed_forward_length").into();
            config["norm_topk_prob"] = true.into();
        }
        _ => {
            // Mixtures of experts of these families are refused by their configuration.
            if let Some(experts) = keys.whole("expert_count").filter(|experts| *experts > 0) {
                config["num_local_experts"] = experts.into();
            }
        }
    }
}

/// Returns the distance of layers with full attention in a family whose other layers have windows.
pub(super) fn window_period(family: &str) -> usize {
    match family {
        "gemma2" => 2,
        "gemma3_text" => 6,
        _ => 4,
    }
}

/// Returns the kind of each layer: full attention after `period` - 1 with windows.
fn layer_types(layers: u64, period: usize) -> Value {
    let layers = (1..=layers.min(1 << 10) as usize).map(|layer| {
        if layer.is_multiple_of(period) { "full_attention" } else { "sliding_attention" }
    });
    layers.collect::<Vec<_>>().into()
}

/// Returns the number whose root divides scores in Gemma: in the largest models the width of the stream over the heads, else the
/// width of a head (llama.cpp has no key for it).
pub(super) fn query_scalar(
    family: &str,
    [layers, hidden]: [u64; 2],
    heads: u64,
    head_dim: u64,
) -> u64 {
    let largest = if family == "gemma2" { 46 } else { 62 };
    if layers == largest { hidden / heads.max(1) } else { head_dim }
}

/// Adds which maps have biases, from the tensors that are there.
fn add_biases(file: &GgufFile, config: &mut Value) {
    let has = |name: &str| file.tensors().contains_key(name);
    let attention = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
    if attention && file.architecture.family != "qwen2" {
        config["attention_bias"] = true.into();
    }
    if has("blk.0.ffn_down.bias") {
        config["mlp_bias"] = true.into();
    }
}

/// Adds the rotary embeddings: one for all layers, or those of full attention and of windows. `sizes` are the width of a head
/// and how much of it is rotated.
fn add_ropes(
    keys: &mut GgufKeys<'_>,
    config: &mut Value,
    [head_dim, rotated]: [u64; 2],
) -> Result<(), ModelError> {
    let family = keys.file.architecture.family;
    let usual = if family == "gemma3_text" { 1e6 } else { 10_000.0 };
    let theta = keys.number("rope.freq_base").unwrap_or(usual);
    let mut rope = rope_scaling(keys, config, theta)?;
    rope.insert("rope_theta".to_owned(), theta.into());
    if rotated != head_dim {
        let partial = rotated as f64 / head_dim.max(1) as f64;
        rope.insert("partial_rotary_factor".to_owned(), partial.into());
    }
    config["rope_parameters"] = match family {
        "gemma3_text" | "olmo3" => {
            let own = keys.number("rope.freq_base_swa");
            let usual = if family == "olmo3" { theta } else { 10_000.0 };
            let window = json!({ "rope_type": "default", "rope_theta": own.unwrap_or(usual) });
            json!({ "full_attention": rope, "sliding_attention": window })
        }
        _ => rope.into(),
    };
    Ok(())
}

/// Returns the change of the frequencies.
fn rope_scaling(
    keys: &mut GgufKeys<'_>,
    config: &mut Value,
    theta: f64,
) -> Result<Map<String, Value>, ModelError> {
    let file = keys.file;
    let context = config["max_position_embeddings"].as_u64().unwrap_or(1);
    let kind = keys.text("rope.scaling.type").unwrap_or("none").to_owned();
    let factor = keys.number("rope.scaling.factor");
    let original = keys.whole("rope.scaling.original_context_length").unwrap_or(context);
    let attention = keys.number("rope.scaling.attn_factor");
    let betas =
        ["rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"].map(|key| keys.number(key));
    let mut rope = match (kind.as_str(), factor) {
        ("linear", Some(factor)) => json!({ "rope_type": "linear", "factor": factor }),
        ("yarn", Some(factor)) => json!({
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
            "beta_fast": betas[0].unwrap_or(32.0),
            "beta_slow": betas[1].unwrap_or(1.0),
        }),
        ("none" | "longrope", _) => json!({ "rope_type": "default" }),
        _ => {
            let what = format!("rope.scaling.type is {kind:?} with the factor {factor:?}");
            return Err(file.invalid(format!("{what}; read are none, linear, yarn and longrope")));
        }
    };
    if let ("yarn", Some(factor), Some(attention)) = (kind.as_str(), factor, attention) {
        rope["attention_factor"] = (attention * (0.1 * libm::log(factor.max(1.0)) + 1.0)).into();
    }
    if let Some(divisors) = file.row(ROPE_FREQS) {
        rope = frequencies(&divisors, theta, context);
    }
    if let [Some(short), Some(long)] = LONG_ROPE.map(|tensor| file.row(tensor)) {
        rope = json!({
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "attention_factor": attention.unwrap_or(1.0),
        });
        if file.architecture.family == "phi3" {
            config["original_max_position_embeddings"] = original.into();
        }
        rope["original_max_position_embeddings"] = original.into();
    }
    match rope {
        Value::Object(rope) => Ok(rope),
        _ => Ok(Map::new()),
    }
}

/// Returns the rotary embedding of divisors of frequencies of a base: that of Llama 3.1 if these are its divisors, else LongRoPE,
/// which has any.
fn frequencies(divisors: &[f32], theta: f64, context: u64) -> Value {
    let original = 8192;
    let factor = divisors.iter().copied().fold(1.0, f32::max);
    let (low_freq_factor, high_freq_factor) = (1.0, 4.0);
    let llama3 = Llama3 {
        factor,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings: original,
    };
    let rope = Rope { scaling: Scaling::Llama3(llama3), ..Rope::plain(theta) };
    let close = |(a, b): (f32, &f32)| (a / b - 1.0).abs() < 1e-4;
    if rope.divisors(2 * divisors.len()).into_iter().zip(divisors).all(close) {
        return json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original,
        });
    }
    json!({
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "attention_factor": 1.0,
        "original_max_position_embeddings": context,
    })
}
