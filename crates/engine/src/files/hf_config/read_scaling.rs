//! Scalings of rotary embeddings beyond the context that a model was trained for, as `config.json` asks for them.

use serde_json::Value;

use super::reader::{ConfigReader, WITHIN_F32, is_positive};
use super::rope::{Llama3, LongRope, Scaling, Yarn};

/// Most positions.
pub(super) const LONGEST: usize = 1 << 30;
/// The context before scaling.
pub(super) const ORIGINAL: &str = "original_max_position_embeddings";

/// Sizes of a model that the keys of a rotary embedding depend on.
#[derive(Clone, Copy)]
pub(super) struct RopeSizes {
    /// Longest sequence.
    pub(super) context: usize,
    /// Width of a head.
    pub(super) head_dim: usize,
}

/// Values outside of a rotary embedding's own object.
#[derive(Clone, Copy)]
pub(super) struct Surroundings {
    pub(super) sizes: RopeSizes,
    /// Context before scaling, if it is outside.
    pub(super) original: Option<usize>,
    /// Share of a head that is rotated, if it is outside.
    pub(super) partial: Option<f64>,
    /// Value of `truncate` outside, where that one counts.
    pub(super) truncate: Option<bool>,
    /// True if the kinds `su` and `yarn` mean LongRoPE.
    pub(super) phi: bool,
    /// True if a part of a head may be rotated.
    pub(super) in_part: bool,
}

/// Reads the kind of an object, and its keys.
pub(super) fn scaling(keys: &mut ConfigReader<'_>, outside: Surroundings) -> Option<Scaling> {
    const KINDS: &str =
        "supported: \"default\", \"dynamic\", \"linear\", \"llama3\", \"longrope\", \"yarn\"";
    let key = if keys.has("rope_type") { "rope_type" } else { "type" };
    let kind = match keys.value(key).map(Value::as_str) {
        None if !keys.has(key) => return None,
        Some(Some("su" | "yarn")) if outside.phi => "longrope",
        Some(Some(kind)) => kind,
        _ => "",
    };
    let original = match kind {
        "llama3" | "yarn" | "longrope" => {
            outside.original.unwrap_or_else(|| keys.size(ORIGINAL, outside.sizes.context, LONGEST))
        }
        _ => outside.sizes.context,
    };
    match kind {
        // Beyond `max_position_embeddings`, where its frequencies change, there are no positions.
        "default" | "dynamic" => Some(Scaling::None),
        "linear" => Some(Scaling::Linear(keys.required_number("factor") as f32)),
        "llama3" => Some(Scaling::Llama3(llama3(keys, original))),
        "yarn" => Some(Scaling::Yarn(yarn(keys, outside, original))),
        "longrope" => Some(Scaling::Long(long_rope(keys, outside, original))),
        _ => {
            keys.wrong(key, KINDS);
            None
        }
    }
}

fn llama3(keys: &mut ConfigReader<'_>, original_max_position_embeddings: usize) -> Llama3 {
    let (low, high) =
        (keys.required_number("low_freq_factor"), keys.required_number("high_freq_factor"));
    if keys.problems.is_empty() && high <= low {
        keys.wrong("high_freq_factor", &format!("it must exceed `low_freq_factor` ({low})"));
    }
    Llama3 {
        factor: keys.required_number("factor") as f32,
        low_freq_factor: low as f32,
        high_freq_factor: high as f32,
        original_max_position_embeddings,
    }
}

fn yarn(keys: &mut ConfigReader<'_>, outside: Surroundings, original: usize) -> Yarn {
    let growth = outside.sizes.context as f64 / original as f64;
    let factor = keys.optional_number("factor").unwrap_or(growth);
    let given = keys.optional_number("attention_factor");
    let both = coefficient(keys, "mscale").zip(coefficient(keys, "mscale_all_dim"));
    let attention_factor = given.unwrap_or_else(|| match both {
        Some((a, b)) => Yarn::usual_factor(factor, a) / Yarn::usual_factor(factor, b),
        None => Yarn::usual_factor(factor, 1.0),
    });
    let truncate = keys.flag("truncate", true);
    Yarn {
        factor,
        attention_factor: attention_factor as f32,
        beta_fast: keys.optional_number("beta_fast").unwrap_or(32.0),
        beta_slow: keys.optional_number("beta_slow").unwrap_or(1.0),
        truncate: outside.truncate.unwrap_or(truncate),
        original_max_position_embeddings: original,
    }
}

/// Reads a coefficient of YaRN's factor; 0 is none.
fn coefficient(keys: &mut ConfigReader<'_>, key: &str) -> Option<f64> {
    let zero = keys.value(key).is_some_and(|value| value.as_f64() == Some(0.0));
    if zero { None } else { keys.optional_number(key) }
}

fn long_rope(keys: &mut ConfigReader<'_>, outside: Surroundings, original: usize) -> LongRope {
    let growth = outside.sizes.context as f64 / original as f64;
    let growth = keys.optional_number("factor").unwrap_or(growth);
    let given = keys.optional_number("attention_factor");
    let factor = given.unwrap_or_else(|| LongRope::usual_factor(growth, original));
    LongRope {
        short_factor: divisors(keys, "short_factor"),
        long_factor: divisors(keys, "long_factor"),
        attention_factor: factor as f32,
        original_max_position_embeddings: original,
        long: false,
    }
}

/// Reads the divisors of frequencies.
fn divisors(keys: &mut ConfigReader<'_>, key: &str) -> Vec<f32> {
    let listed = keys.value(key).and_then(|list| list.as_array());
    let read = listed.and_then(|list| {
        let numbers = list.iter().map(|item| item.as_f64().filter(|divisor| *divisor > 0.0));
        numbers.collect::<Option<Vec<f64>>>()
    });
    let Some(read) = read else {
        keys.wrong(key, "a list of positive numbers is needed");
        return Vec::new();
    };
    if !read.iter().copied().all(is_positive) {
        keys.wrong(key, &format!("a list of positive numbers {WITHIN_F32} is needed"));
    }
    read.into_iter().map(|divisor| divisor as f32).collect()
}
