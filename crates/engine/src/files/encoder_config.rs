//! `config.json` of an encoder: a model of BERT's kind, whose tokens attend to all tokens of a text.
//!
//! | `model_type` | models | position of a token |
//! |---|---|---|
//! | `bert` | E5, BGE, GTE, MiniLM, Contriever | its place in the text |
//! | `distilbert` | DistilBERT, without types of tokens | its place in the text |
//! | `roberta`, `xlm-roberta` | multilingual E5, BGE-M3 | its place, after `pad_token_id` |

use serde_json::Value;

use crate::files::hf_config::reader::{ConfigReader, WIDEST};
use crate::files::{ModelError, ModelErrorKind, ModelFiles};

/// Most layers of an encoder.
const MOST_LAYERS: usize = 256;
/// Most rows of a table of embeddings.
const MOST_ROWS: usize = 1 << 24;

/// The shape of an encoder, as `config.json` gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    /// The family, one of [`EncoderConfig::FAMILIES`].
    pub model_type: &'static str,
    /// Width of the hidden states, D.
    pub hidden_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of heads of attention; it divides `hidden_size`.
    pub heads: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Rows of the table of tokens.
    pub vocab_size: usize,
    /// Rows of the table of positions.
    pub positions: usize,
    /// Rows of the table of types of tokens, of which the first is used; 0 if the family has none.
    pub types: usize,
    /// Token after which positions are counted, and whose own position it is; none if they are counted from 0.
    pub padding: Option<u32>,
    /// Constant added to the variance.
    pub eps: f32,
    /// Activation of the MLP.
    pub activation: EncoderActivation,
    pub(crate) names: &'static EncoderNames,
}

/// Activation of an encoder's MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderActivation {
    /// `z (1 + erf(z / √2)) / 2`.
    Gelu,
    /// `z (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2`.
    GeluTanh,
    /// `max(z, 0)`.
    Relu,
}

/// Names of the tensors of a layer, without their ends `.weight` and `.bias`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EncoderNames {
    /// Prefix that checkpoints of larger models have before every name.
    pub(crate) within: &'static str,
    /// Start of the name of a layer, before its number.
    pub(crate) layer: &'static str,
    pub(crate) query: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) output: &'static str,
    pub(crate) attention_norm: &'static str,
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
    pub(crate) norm: &'static str,
}

const BERT_NAMES: EncoderNames = EncoderNames {
    within: "bert.",
    layer: "encoder.layer.",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    up: "intermediate.dense",
    down: "output.dense",
    norm: "output.LayerNorm",
};

const DISTILBERT_NAMES: EncoderNames = EncoderNames {
    within: "distilbert.",
    layer: "transformer.layer.",
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    output: "attention.out_lin",
    attention_norm: "sa_layer_norm",
    up: "ffn.lin1",
    down: "ffn.lin2",
    norm: "output_layer_norm",
};

/// Keys and defaults of a family (transformers `BertConfig`, `DistilBertConfig`, `RobertaConfig`, `XLMRobertaConfig`).
struct EncoderFamily {
    name: &'static str,
    hidden: &'static str,
    layers: (&'static str, usize),
    heads: &'static str,
    intermediate: &'static str,
    activation: &'static str,
    vocab_size: usize,
    /// Default number of types of tokens; none if the family has no types.
    types: Option<usize>,
    /// Positions are counted after the padding token.
    after_padding: bool,
    names: &'static EncoderNames,
}

const BERT: EncoderFamily = EncoderFamily {
    name: "bert",
    hidden: "hidden_size",
    layers: ("num_hidden_layers", 12),
    heads: "num_attention_heads",
    intermediate: "intermediate_size",
    activation: "hidden_act",
    vocab_size: 30522,
    types: Some(2),
    after_padding: false,
    names: &BERT_NAMES,
};

const ROBERTA: EncoderFamily = EncoderFamily {
    name: "roberta",
    vocab_size: 50265,
    after_padding: true,
    names: &EncoderNames { within: "roberta.", ..BERT_NAMES },
    ..BERT
};

const FAMILIES: [EncoderFamily; 4] = [
    BERT,
    EncoderFamily {
        name: "distilbert",
        hidden: "dim",
        layers: ("n_layers", 6),
        heads: "n_heads",
        intermediate: "hidden_dim",
        activation: "activation",
        types: None,
        names: &DISTILBERT_NAMES,
        ..BERT
    },
    ROBERTA,
    EncoderFamily { name: "xlm-roberta", vocab_size: 30522, ..ROBERTA },
];

impl EncoderConfig {
    /// The families that are supported, as `model_type` has them.
    pub const FAMILIES: [&str; 4] = ["bert", "distilbert", "roberta", "xlm-roberta"];

    /// Reads the `config.json` of a model. Returns `None` if its `model_type` is none of [`EncoderConfig::FAMILIES`].
    ///
    /// # Errors
    ///
    /// If it is missing or not JSON, or asks for what is not supported; every such key is named.
    pub fn read(files: &ModelFiles) -> Result<Option<Self>, ModelError> {
        let bytes = files.require("config.json")?;
        let place = files.describe();
        let json: Value = serde_json::from_slice(&bytes)
            .map_err(|error| ModelError::invalid_at(format_args!("{place}: config.json"), error))?;
        let Some(json) = json.as_object() else { return Ok(None) };
        let name = json.get("model_type").and_then(Value::as_str);
        let Some(family) = FAMILIES.iter().find(|family| Some(family.name) == name) else {
            return Ok(None);
        };
        let mut keys = ConfigReader::new(json);
        let config = Self::read_keys(&mut keys, family);
        match &keys.problems[..] {
            [] => Ok(Some(config)),
            problems => {
                let message = format!("{place}: config.json: {}", problems.join("; "));
                Err(ModelError::new(ModelErrorKind::Invalid, message))
            }
        }
    }

    fn read_keys(keys: &mut ConfigReader<'_>, family: &EncoderFamily) -> Self {
        refuse_unsupported(keys);
        let distilled = family.types.is_none();
        let eps = if distilled { None } else { keys.number("layer_norm_eps") };
        let config = Self {
            model_type: family.name,
            hidden_size: keys.size(family.hidden, 768, WIDEST),
            layers: keys.size(family.layers.0, family.layers.1, MOST_LAYERS),
            heads: keys.size(family.heads, 12, WIDEST),
            intermediate_size: keys.size(family.intermediate, 3072, WIDEST),
            vocab_size: keys.size("vocab_size", family.vocab_size, MOST_ROWS),
            positions: keys.size("max_position_embeddings", 512, MOST_ROWS),
            types: family.types.map_or(0, |types| keys.size("type_vocab_size", types, MOST_ROWS)),
            padding: family.after_padding.then(|| read_padding(keys)),
            eps: eps.unwrap_or(1e-12) as f32,
            activation: read_activation(keys, family.activation),
            names: family.names,
        };
        // Sizes that are missing or wrong make no sense together either.
        if keys.problems.is_empty() && !config.hidden_size.is_multiple_of(config.heads) {
            let Self { hidden_size, heads, .. } = config;
            let (hidden, count) = (family.hidden, family.heads);
            keys.problem(format!(
                "`{hidden}` ({hidden_size}) is not a multiple of `{count}` ({heads})"
            ));
        }
        if keys.problems.is_empty() && config.longest() == 0 {
            keys.wrong("max_position_embeddings", "no position is left after `pad_token_id`");
        }
        config
    }

    /// Returns the largest number of tokens of a text.
    pub fn longest(&self) -> usize {
        let skipped = self.padding.map_or(0, |padding| padding as usize + 1);
        self.positions.saturating_sub(skipped)
    }

    /// Returns the name and shape of every tensor that is read, without the prefix that checkpoints of larger models have.
    pub(crate) fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (d, wide, names) = (self.hidden_size, self.intermediate_size, self.names);
        let mut tensors = vec![
            (format!("{}.weight", Self::WORDS), vec![self.vocab_size, d]),
            (format!("{}.weight", Self::POSITIONS), vec![self.positions, d]),
        ];
        if self.types > 0 {
            tensors.push((format!("{}.weight", Self::TYPES), vec![self.types, d]));
        }
        tensors.extend(weight_and_bias(Self::NORM, vec![d]));
        for layer in 0..self.layers {
            let maps = [names.query, names.key, names.value, names.output];
            let maps = maps.into_iter().map(|map| (map, vec![d, d]));
            let mlp = [(names.up, vec![wide, d]), (names.down, vec![d, wide])];
            let norms = [(names.attention_norm, vec![d]), (names.norm, vec![d])];
            for (module, shape) in maps.chain(mlp).chain(norms) {
                tensors.extend(weight_and_bias(&self.in_layer(layer, module), shape));
            }
        }
        tensors
    }

    /// Returns the name of a module of a layer.
    pub(crate) fn in_layer(&self, layer: usize, module: &str) -> String {
        format!("{}{layer}.{module}", self.names.layer)
    }

    pub(crate) const WORDS: &str = "embeddings.word_embeddings";
    pub(crate) const POSITIONS: &str = "embeddings.position_embeddings";
    pub(crate) const TYPES: &str = "embeddings.token_type_embeddings";
    pub(crate) const NORM: &str = "embeddings.LayerNorm";
}

/// Returns the names and shapes of the tensors of a module, by the shape of its weight.
fn weight_and_bias(module: &str, weight: Vec<usize>) -> [(String, Vec<usize>); 2] {
    let bias = vec![weight[0]];
    [(format!("{module}.weight"), weight), (format!("{module}.bias"), bias)]
}

/// Refuses what would change the numbers and is not built.
fn refuse_unsupported(keys: &mut ConfigReader<'_>) {
    if keys.text("position_embedding_type").is_some_and(|kind| kind != "absolute") {
        keys.wrong("position_embedding_type", "supported: \"absolute\"");
    }
    for (key, needed) in [
        ("is_decoder", "an encoder attends to all tokens"),
        ("add_cross_attention", "an encoder has one text"),
    ] {
        if keys.flag(key, false) {
            keys.wrong(key, needed);
        }
    }
    if keys.value("pruned_heads").and_then(Value::as_object).is_some_and(|heads| !heads.is_empty())
    {
        keys.wrong("pruned_heads", "layers with fewer heads than others are not supported");
    }
    if keys.value("quantization_config").is_some() {
        keys.wrong("quantization_config", "weights of f32, f16 and bf16 are supported");
    }
}

/// Reads the token after which positions are counted.
fn read_padding(keys: &mut ConfigReader<'_>) -> u32 {
    const KEY: &str = "pad_token_id";
    let Some(value) = keys.value(KEY) else { return 1 };
    let padding = value.as_u64().filter(|id| *id < MOST_ROWS as u64);
    if padding.is_none() {
        keys.wrong(KEY, "the id of a token is needed");
    }
    padding.unwrap_or(1) as u32
}

fn read_activation(keys: &mut ConfigReader<'_>, key: &str) -> EncoderActivation {
    match keys.text(key) {
        None | Some("gelu") => EncoderActivation::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh") => EncoderActivation::GeluTanh,
        Some("relu") => EncoderActivation::Relu,
        Some(_) => {
            keys.wrong(key, "supported: \"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", \"relu\"");
            EncoderActivation::Gelu
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::files::ModelSource;

    fn read(config: &Value) -> Result<Option<EncoderConfig>, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
        EncoderConfig::read(&files).map_err(|error| error.to_string())
    }

    #[test]
    fn a_missing_key_means_what_it_means_to_transformers() {
        let bert = read(&json!({"model_type": "bert"})).unwrap().unwrap();
        assert_eq!((bert.hidden_size, bert.layers, bert.heads, bert.types), (768, 12, 12, 2));
        assert_eq!((bert.longest(), bert.eps), (512, 1e-12));
        let small = json!({"model_type": "distilbert", "dim": 8, "n_heads": 2, "n_layers": 1});
        let small = read(&small).unwrap().unwrap();
        assert_eq!((small.hidden_size, small.types, small.padding), (8, 0, None));
        let roberta = json!({"model_type": "xlm-roberta", "max_position_embeddings": 514});
        assert_eq!(read(&roberta).unwrap().unwrap().longest(), 512);
        assert_eq!(FAMILIES.map(|family| family.name), EncoderConfig::FAMILIES);
        assert_eq!(read(&json!({"model_type": "qwen2"})), Ok(None));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name_and_all_at_once() {
        let message = read(&json!({
            "model_type": "bert",
            "position_embedding_type": "relative_key",
            "is_decoder": true,
            "hidden_act": "swish",
            "pruned_heads": {"1": [0]},
            "num_hidden_layers": 0,
        }));
        let message = message.unwrap_err();
        for found in [
            "`position_embedding_type` is \"relative_key\"; supported: \"absolute\"",
            "`is_decoder` is true",
            "`hidden_act` is \"swish\"",
            "`pruned_heads` is an object",
            "`num_hidden_layers` is 0",
        ] {
            assert!(message.contains(found), "{message}");
        }
        let odd = read(&json!({"model_type": "bert", "hidden_size": 10, "num_attention_heads": 4}));
        assert!(odd.unwrap_err().contains("(10) is not a multiple of `num_attention_heads` (4)"));
    }
}
