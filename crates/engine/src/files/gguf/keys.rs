//! Keys of an architecture for the configuration of a model: what `config.rs` reads.

use super::config::{LONG_ROPE, ROPE_FREQS, query_scalar, window_period};
use super::names::Architecture;
use super::write::Meta;
use crate::files::HfConfig;
use crate::files::hf_config::{Rope, Scaling, Yarn};
use crate::files::parts::LayerShape;

/// Keys of a model's architecture, and tensors that transformers has in `config.json`.
pub(crate) struct ArchitectureKeys {
    pub(crate) architecture: &'static Architecture,
    pub(crate) keys: Vec<(String, Meta)>,
    /// Names and numbers of tensors of one dimension.
    pub(crate) tensors: Vec<(&'static str, Vec<f32>)>,
}

/// Returns the keys for a configuration.
///
/// # Errors
///
/// If no architecture computes what the model does.
pub(crate) fn architecture_keys(config: &HfConfig) -> Result<ArchitectureKeys, String> {
    let family = config.model_type;
    let architecture = Architecture::of_family(family).ok_or_else(|| {
        format!(
            "models of the family \"{family}\" are not written as GGUF; written are {}",
            Architecture::names()
        )
    })?;
    check_layers(config, architecture)?;
    let heads = config.heads();
    let mut all = ArchitectureKeys { architecture, keys: Vec::new(), tensors: Vec::new() };
    let width = mlp_width(config);
    for (key, value) in [
        ("block_count", config.layers.len()),
        ("context_length", config.whole_context),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", width),
        ("attention.head_count", heads.q),
        ("attention.head_count_kv", heads.kv),
        ("attention.key_length", heads.dim),
        ("attention.value_length", heads.dim),
        ("vocab_size", config.vocab_size),
    ] {
        all.whole(key, value)?;
    }
    all.float("attention.layer_norm_rms_epsilon", config.norm.eps);
    if let Some(window) = windows(config).flatten().next() {
        all.whole("attention.sliding_window", window)?;
    }
    if let Some(cap) = heads.scores.softcap {
        all.float("attn_logit_softcapping", cap);
    }
    if let Some(cap) = config.head_softcap {
        all.float("final_logit_softcapping", cap);
    }
    if let Some(experts) = config.layers.iter().find_map(|layer| layer.mlp.experts()) {
        all.whole("expert_count", experts.router.experts)?;
        all.whole("expert_used_count", experts.router.chosen)?;
        all.whole("expert_feed_forward_length", experts.experts[0].width)?;
    }
    all.add_ropes(config)?;
    Ok(all)
}

/// Returns the width of the MLP, of experts the width of all that a token has.
fn mlp_width(config: &HfConfig) -> usize {
    let widths = config.layers.iter().map(|layer| match layer.mlp.experts() {
        Some(experts) => experts.router.chosen * experts.experts[0].width,
        None => layer.mlp.gated().map_or(0, |mlp| mlp.width),
    });
    widths.max().unwrap_or(0)
}

/// Returns the window of each layer.
fn windows(config: &HfConfig) -> impl Iterator<Item = Option<usize>> {
    let attention = config.layers.iter().filter_map(|layer| layer.mixer.attention());
    attention.map(|attention| attention.heads.scores.window.map(|window| window.get() as usize))
}

/// Refuses layers that the architecture does not have.
fn check_layers(config: &HfConfig, architecture: &Architecture) -> Result<(), String> {
    let (family, name) = (config.model_type, architecture.name);
    let period = window_period(family);
    let fits = windows(config).enumerate().all(|(layer, window)| match family {
        "gemma2" | "gemma3_text" => window.is_some() != (layer + 1).is_multiple_of(period),
        // Without any window it is OLMo 2.
        "olmo3" => {
            windows(config).all(|window| window.is_none())
                || window.is_some() != (layer + 1).is_multiple_of(period)
        }
        "phi3" => true,
        _ => window.is_none_or(|window| window >= config.whole_context),
    });
    if !fits {
        return Err(format!(
            "the architecture {name} of llama.cpp has no such windows of attention"
        ));
    }
    let roped = |layer: &LayerShape| layer.mixer.attention().is_some_and(|of| of.rope.is_some());
    let ropes = config.layers.iter().enumerate().all(|(layer, shape)| match family {
        "smollm3" => roped(shape) != (layer + 1).is_multiple_of(4),
        _ => roped(shape),
    });
    if !ropes {
        return Err(format!(
            "the architecture {name} of llama.cpp has rotary positions in other layers"
        ));
    }
    let experts = |layer: &LayerShape| layer.mlp.experts().is_some();
    if name == "qwen3moe" && !config.layers.iter().all(|layer| experts(layer)) {
        return Err(format!("the architecture {name} of llama.cpp has experts in every layer"));
    }
    let heads = config.heads();
    let sizes = [config.layers.len() as u64, config.hidden_size as u64];
    let scalar = query_scalar(family, sizes, heads.q as u64, heads.dim as u64);
    let scale = libm::pow(scalar as f64, -0.5) as f32;
    if heads.scores.scale.is_some_and(|found| (found / scale - 1.0).abs() > 1e-5) {
        return Err(format!(
            "`query_pre_attn_scalar` is not {scalar}, as the architecture {name} of llama.cpp has it"
        ));
    }
    Ok(())
}

impl ArchitectureKeys {
    fn push(&mut self, key: &str, value: Meta) {
        self.keys.push((format!("{}.{key}", self.architecture.name), value));
    }

    fn whole(&mut self, key: &str, value: usize) -> Result<(), String> {
        let value = u32::try_from(value).map_err(|_| format!("{key} is {value}"))?;
        self.push(key, Meta::Whole(value));
        Ok(())
    }

    fn float(&mut self, key: &str, value: f32) {
        self.push(key, Meta::Float(value));
    }

    /// Adds the rotary embedding, that of full attention if windows have another.
    fn add_ropes(&mut self, config: &HfConfig) -> Result<(), String> {
        let Some(rope) = config.ropes.first() else { return Ok(()) };
        let head_dim = config.heads().dim;
        self.float("rope.freq_base", rope.theta as f32);
        self.whole("rope.dimension_count", rope.rotated_dim(head_dim))?;
        if let Some(window) = config.ropes.get(1) {
            if window.scaling != Scaling::None {
                return Err(
                    "the rope of windows is scaled, which llama.cpp does not have".to_owned()
                );
            }
            self.float("rope.freq_base_swa", window.theta as f32);
        }
        self.add_scaling(rope, head_dim, config.whole_context)
    }

    fn add_scaling(&mut self, rope: &Rope, head_dim: usize, context: usize) -> Result<(), String> {
        let kind = |name: &str| Meta::Text(name.to_owned());
        match &rope.scaling {
            Scaling::None => {}
            Scaling::Linear(factor) => {
                self.push("rope.scaling.type", kind("linear"));
                self.float("rope.scaling.factor", *factor);
            }
            Scaling::Llama3(_) => self.tensors.push((ROPE_FREQS, rope.divisors(head_dim))),
            Scaling::Yarn(yarn) if !yarn.truncate => {
                return Err(
                    "`truncate` of the rope is false, which llama.cpp does not have".to_owned()
                );
            }
            Scaling::Yarn(yarn) => {
                let usual = Yarn::usual_factor(yarn.factor, 1.0);
                self.push("rope.scaling.type", kind("yarn"));
                self.float("rope.scaling.factor", yarn.factor as f32);
                self.whole(
                    "rope.scaling.original_context_length",
                    yarn.original_max_position_embeddings,
                )?;
                let attention = f64::from(yarn.attention_factor) / usual;
                if (attention - 1.0).abs() > 1e-6 {
                    self.float("rope.scaling.attn_factor", attention as f32);
                }
                self.float("rope.scaling.yarn_beta_fast", yarn.beta_fast as f32);
                self.float("rope.scaling.yarn_beta_slow", yarn.beta_slow as f32);
            }
            Scaling::Long(long) if self.architecture.name == "phi3" => {
                self.push("rope.scaling.type", kind("longrope"));
                self.float("rope.scaling.attn_factor", long.attention_factor);
                self.whole(
                    "rope.scaling.original_context_length",
                    long.original_max_position_embeddings,
                )?;
                let factors = [&long.short_factor, &long.long_factor];
                self.tensors.extend(LONG_ROPE.into_iter().zip(factors.map(Clone::clone)));
            }
            Scaling::Long(long)
                if long.short_factor == long.long_factor && long.attention_factor == 1.0 =>
            {
                self.tensors.push((ROPE_FREQS, long.short_factor.clone()));
            }
            Scaling::Long(_) => {
                return Err(format!(
                    "the architecture {} of llama.cpp has no LongRoPE (context {context})",
                    self.architecture.name
                ));
            }
        }
        Ok(())
    }
}
