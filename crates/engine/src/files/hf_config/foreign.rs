//! Keys of other families that change what their models compute, and that no supported family reads. A `config.json` with one
//! of them may be that of another family with its `model_type` changed; the numbers are then others than its own.

use serde_json::Value;

use super::families::FAMILIES;
use super::family::ModelFamily;
use super::reader::{ConfigReader, show_value};

/// Value of a key that changes nothing; null and a missing key never do.
#[derive(Clone, Copy)]
enum Neutral {
    /// False or 0.
    Off,
    /// 1, as a factor.
    One,
    /// A list of 1 or true, for every layer.
    AllOn,
    /// A list of "full_attention", for every layer.
    AllFull,
    /// A window as long as the longest sequence, or longer.
    Longest,
    /// The width of a head, of which the scale of attention is the root's inverse.
    HeadDim,
    /// The scale of attention itself.
    HeadScale,
    /// "silu".
    Silu,
    /// None.
    Never,
}

/// Sizes of a model that are neutral values.
#[derive(Clone, Copy)]
pub(super) struct NeutralSizes {
    /// Length of the longest sequence.
    pub(super) longest: usize,
    /// Width of a head.
    pub(super) head_dim: usize,
}

/// Keys, their neutral values, and families that use them.
const KEYS: [(&str, Neutral); 41] = [
    // Windows and positions: SmolLM3, Llama 4, Mistral, Gemma, Cohere 2.
    ("no_rope_layers", Neutral::AllOn),
    ("no_rope_layer_interval", Neutral::Off),
    ("sliding_window", Neutral::Longest),
    ("sliding_window_pattern", Neutral::One),
    ("layer_types", Neutral::AllFull),
    ("attention_chunk_size", Neutral::Longest),
    ("rope_local_base_freq", Neutral::Off),
    ("attn_temperature_tuning", Neutral::Off),
    ("use_bidirectional_attention", Neutral::Off),
    ("alibi", Neutral::Off),
    // Scales and bounds: Gemma 2, OLMo, Granite, MiniCPM, Cohere, Falcon-H1, Grok.
    ("attn_logit_softcapping", Neutral::Off),
    ("final_logit_softcapping", Neutral::Off),
    ("attn_logit_softcap", Neutral::Off),
    ("final_logit_softcap", Neutral::Off),
    ("router_logit_softcapping", Neutral::Off),
    ("query_pre_attn_scalar", Neutral::HeadDim),
    ("attention_multiplier", Neutral::HeadScale),
    ("clip_qkv", Neutral::Off),
    ("embedding_multiplier", Neutral::One),
    ("embedding_multiplier_scale", Neutral::One),
    ("residual_multiplier", Neutral::One),
    ("logits_scaling", Neutral::One),
    ("logit_scale", Neutral::One),
    ("output_multiplier_scale", Neutral::One),
    ("lm_head_multiplier", Neutral::One),
    ("key_multiplier", Neutral::One),
    ("attention_in_multiplier", Neutral::One),
    ("attention_out_multiplier", Neutral::One),
    ("mlp_multipliers", Neutral::Never),
    ("scale_emb", Neutral::One),
    ("scale_depth", Neutral::Never),
    ("dim_model_base", Neutral::Never),
    ("normalize_embedding", Neutral::Off),
    // Blocks: Gemma, Phi, Falcon, Llama 4, StableLM, Gemma 3n.
    ("hidden_activation", Neutral::Silu),
    ("activation_sparsity_pattern", Neutral::Never),
    ("use_parallel_residual", Neutral::Off),
    ("parallel_attn", Neutral::Off),
    ("use_qk_norm", Neutral::Off),
    ("qk_layernorm", Neutral::Off),
    ("num_kv_shared_layers", Neutral::Off),
    ("norm_reorder", Neutral::Off),
];

/// Keys within `rope_scaling` and `rope_parameters`, and the kinds of ropes that read them.
const ROPE_KEYS: [(&str, Neutral, &[&str]); 6] = [
    ("attention_factor", Neutral::One, &["yarn", "longrope", "su"]),
    ("mscale", Neutral::One, &["yarn"]),
    ("mscale_all_dim", Neutral::Off, &["yarn"]),
    ("long_factor", Neutral::Never, &["longrope", "su", "yarn"]),
    ("short_factor", Neutral::Never, &["longrope", "su", "yarn"]),
    ("llama_4_scaling_beta", Neutral::Off, &[]),
];

/// Keys of noise in training, which is not there.
const DROPOUTS: [&str; 3] = ["attention_dropout", "resid_pdrop", "embd_pdrop"];

/// Returns the keys of other families that would change the numbers, each with its value.
pub(super) fn unread(
    keys: &ConfigReader<'_>,
    family: &ModelFamily,
    sizes: NeutralSizes,
) -> Vec<String> {
    let mut found = Vec::new();
    for (key, neutral) in KEYS.into_iter().filter(|(key, _)| !family.reads.contains(key)) {
        let value = keys.value(key).filter(|value| !is_neutral(value, neutral, sizes));
        // A list of layers decides where there is one.
        let decided = key == "no_rope_layer_interval" && keys.value("no_rope_layers").is_some();
        found.extend(
            value.filter(|_| !decided).map(|value| format!("`{key}` ({})", show_value(value))),
        );
    }
    for place in ["rope_scaling", "rope_parameters"] {
        let Some(rope) = keys.value(place) else { continue };
        let kind = rope.get("rope_type").or_else(|| rope.get("type")).and_then(Value::as_str);
        for (key, neutral, kinds) in ROPE_KEYS {
            let read = kind.is_some_and(|kind| kinds.contains(&kind))
                || key == "llama_4_scaling_beta" && family.query_scale;
            let value = rope.get(key).filter(|_| !read);
            let value = value.filter(|value| !is_neutral(value, neutral, sizes));
            found.extend(value.map(|value| format!("`{place}.{key}` ({})", show_value(value))));
        }
    }
    found.extend(foreign_architecture(keys, family));
    found
}

/// Returns `architectures`, if its first entry is that of another family.
fn foreign_architecture(keys: &ConfigReader<'_>, family: &ModelFamily) -> Option<String> {
    let named = keys.value("architectures")?.get(0)?.as_str()?;
    let (start, _) = named.split_once("For")?;
    let other = |other: &ModelFamily| other.architecture == start;
    let own = start == family.architecture
        || family.name == "ministral" && start == "Mistral"
        || ["mistral", "ministral3"].contains(&family.name) && start == "Mistral3";
    (!own && FAMILIES.iter().any(other)).then(|| format!("`architectures` ({named})"))
}

/// Notes keys whose values have no effect.
pub(super) fn note_ignored(keys: &mut ConfigReader<'_>) {
    for key in DROPOUTS {
        if let Some(value) = keys.value(key).filter(|value| value.as_f64() != Some(0.0)) {
            keys.note(format!("`{key}` is {}, and there is no dropout", show_value(value)));
        }
    }
}

/// Returns true if a value changes nothing.
fn is_neutral(value: &Value, neutral: Neutral, sizes: NeutralSizes) -> bool {
    let (number, list) = (value.as_f64(), value.as_array());
    match neutral {
        _ if value.is_null() => true,
        Neutral::Off => value == &Value::Bool(false) || number == Some(0.0),
        Neutral::One => number == Some(1.0),
        Neutral::AllOn => list.is_some_and(|items| {
            items.iter().all(|item| item == &Value::Bool(true) || item.as_f64() == Some(1.0))
        }),
        Neutral::AllFull => {
            list.is_some_and(|items| items.iter().all(|item| item == "full_attention"))
        }
        Neutral::Longest => number.is_some_and(|n| n == 0.0 || n >= sizes.longest as f64),
        Neutral::HeadDim => number == Some(sizes.head_dim as f64),
        Neutral::HeadScale => {
            let scale = (sizes.head_dim as f64).sqrt().recip();
            number.is_some_and(|n| (n - scale).abs() <= 1e-6 * scale)
        }
        Neutral::Silu => value == "silu",
        Neutral::Never => false,
    }
}
