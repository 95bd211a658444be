//! `config.json` of a Hugging Face model directory.

use serde_json::Value;

/// The shape of a Qwen2-family decoder, as `config.json` gives it (transformers 4 and 5 spellings).
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// Width of the residual stream, D.
    pub hidden_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Rows of the embedding, V; may exceed the tokenizer's tokens.
    pub vocab_size: usize,
    /// Longest sequence.
    pub max_position_embeddings: usize,
    /// Added to the mean square.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// The output head is the embedding.
    pub tie_word_embeddings: bool,
}

/// Why a `config.json` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("config.json: {0}")]
pub struct HfConfigError(
    /// Which key, what was found, what is supported.
    pub String,
);

impl HfConfig {
    /// Reads a `config.json`.
    ///
    /// # Errors
    ///
    /// If it is not JSON, lacks a key, or asks for something that is not supported; the key is named.
    pub fn parse(text: &[u8]) -> Result<Self, HfConfigError> {
        let json: Value =
            serde_json::from_slice(text).map_err(|e| HfConfigError(format!("not JSON: {e}")))?;
        supported(&json)?;
        let hidden_size = size(&json, "hidden_size")?;
        let num_attention_heads = size(&json, "num_attention_heads")?;
        let config = Self {
            hidden_size,
            num_hidden_layers: size(&json, "num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: optional_size(&json, "num_key_value_heads")?
                .unwrap_or(num_attention_heads),
            head_dim: optional_size(&json, "head_dim")?
                .unwrap_or(hidden_size / num_attention_heads),
            intermediate_size: size(&json, "intermediate_size")?,
            vocab_size: size(&json, "vocab_size")?,
            max_position_embeddings: size(&json, "max_position_embeddings")?,
            rms_norm_eps: number(&json, "rms_norm_eps")?.unwrap_or(1e-6) as f32,
            rope_theta: rope_theta(&json)?,
            tie_word_embeddings: json
                .get("tie_word_embeddings")
                .and_then(Value::as_bool)
                .unwrap_or(false),
        };
        config.check()
    }

    fn check(self) -> Result<Self, HfConfigError> {
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err(HfConfigError(format!(
                "`num_attention_heads` ({}) is not a multiple of `num_key_value_heads` ({})",
                self.num_attention_heads, self.num_key_value_heads
            )));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return Err(HfConfigError(format!(
                "`head_dim` is {}; rotary heads have an even width",
                self.head_dim
            )));
        }
        Ok(self)
    }

    /// The name and shape of every tensor of a checkpoint, in a fixed order.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (d, ff) = (self.hidden_size, self.intermediate_size);
        let (q, kv) =
            (self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim);
        let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab_size, d])];
        for layer in 0..self.num_hidden_layers {
            let mut add = |name: &str, shape: &[usize]| {
                tensors.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            add("input_layernorm.weight", &[d]);
            for (name, out) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
                add(&format!("self_attn.{name}.weight"), &[out, d]);
                add(&format!("self_attn.{name}.bias"), &[out]);
            }
            add("self_attn.o_proj.weight", &[d, q]);
            add("post_attention_layernorm.weight", &[d]);
            add("mlp.gate_proj.weight", &[ff, d]);
            add("mlp.up_proj.weight", &[ff, d]);
            add("mlp.down_proj.weight", &[d, ff]);
        }
        tensors.push(("model.norm.weight".to_owned(), vec![d]));
        if !self.tie_word_embeddings {
            tensors.push(("lm_head.weight".to_owned(), vec![self.vocab_size, d]));
        }
        tensors
    }
}

fn supported(json: &Value) -> Result<(), HfConfigError> {
    let model_type = json.get("model_type").and_then(Value::as_str).unwrap_or("(none)");
    if model_type != "qwen2" {
        return Err(HfConfigError(format!(
            "`model_type` is \"{model_type}\"; supported: \"qwen2\""
        )));
    }
    if json.get("use_sliding_window").and_then(Value::as_bool) == Some(true) {
        return Err(HfConfigError(
            "`use_sliding_window` is true; only full attention is supported".to_owned(),
        ));
    }
    if json.get("quantization_config").is_some_and(|q| !q.is_null()) {
        return Err(HfConfigError(
            "`quantization_config` is set; only f32, f16 and bf16 weights are supported".to_owned(),
        ));
    }
    match json.get("hidden_act").and_then(Value::as_str) {
        None | Some("silu") => Ok(()),
        Some(act) => Err(HfConfigError(format!("`hidden_act` is \"{act}\"; supported: \"silu\""))),
    }
}

/// `rope_parameters.rope_theta` (transformers 5) or `rope_theta` (transformers 4).
fn rope_theta(json: &Value) -> Result<f64, HfConfigError> {
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(rope) = json.get(key).filter(|rope| !rope.is_null()) else { continue };
        let kind = rope
            .get("rope_type")
            .or_else(|| rope.get("type"))
            .and_then(Value::as_str)
            .unwrap_or("default");
        if kind != "default" {
            return Err(HfConfigError(format!(
                "`{key}.rope_type` is \"{kind}\"; supported: \"default\""
            )));
        }
        if let Some(theta) = number(rope, "rope_theta")? {
            return Ok(theta);
        }
    }
    number(json, "rope_theta")?.ok_or_else(|| {
        HfConfigError("neither `rope_parameters.rope_theta` nor `rope_theta` is there".to_owned())
    })
}

fn number(json: &Value, key: &str) -> Result<Option<f64>, HfConfigError> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
            _ => Err(HfConfigError(format!("`{key}` is {value}; a positive number is needed"))),
        },
    }
}

fn optional_size(json: &Value, key: &str) -> Result<Option<usize>, HfConfigError> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(size) if size > 0 && size <= 1 << 32 => Ok(Some(size as usize)),
            _ => Err(HfConfigError(format!("`{key}` is {value}; a positive integer is needed"))),
        },
    }
}

fn size(json: &Value, key: &str) -> Result<usize, HfConfigError> {
    optional_size(json, key)?.ok_or_else(|| HfConfigError(format!("`{key}` is missing")))
}
