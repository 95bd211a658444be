//! Rotary position embedding (Su et al., 2021, arXiv:2104.09864) as a `config.json` asks for it.

use super::LONGEST;
use super::reader::ConfigReader;

/// The frequencies at which positions turn the pairs of a head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base of the frequencies. **(default: `10000`)**
    pub theta: f64,
    /// Scaling of low frequencies for sequences longer than the first ones trained on.
    pub llama3: Option<Llama3>,
}

/// The scaling of Llama 3.1 and later (reference: transformers `_compute_llama3_parameters`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3 {
    /// Divisor of the lowest frequencies.
    pub factor: f32,
    /// Waves longer than the original context over this are scaled.
    pub low_freq_factor: f32,
    /// Waves shorter than the original context over this stay as they are.
    pub high_freq_factor: f32,
    /// The context before scaling.
    pub original_max_position_embeddings: usize,
}

impl Rope {
    /// The frequencies of a head, `[head_dim / 2]`; the arithmetic is `f32`, as in transformers.
    ///
    /// ```text
    /// fᵢ = theta^(−2i / head_dim)
    /// ```
    pub fn inv_freq(&self, head_dim: usize) -> Vec<f32> {
        let theta = self.theta as f32;
        let plain =
            (0..head_dim / 2).map(|i| libm::powf(theta, (2 * i) as f32 / head_dim as f32).recip());
        plain.map(|f| self.llama3.map_or(f, |llama3| llama3.scale_frequency(f))).collect()
    }

    /// Reads `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (transformers 4). The original context
    /// is `original_max_position_embeddings` beside them, or else within them, or else `context`.
    pub(super) fn read(keys: &mut ConfigReader<'_>, context: usize) -> Self {
        let (new, old) = (keys.value("rope_parameters"), keys.value("rope_scaling"));
        if new.is_some() && old.is_some() && new != old {
            keys.problem(
                "`rope_parameters` and `rope_scaling` are both there and differ; keep one"
                    .to_owned(),
            );
        }
        let place = if new.is_some() { "rope_parameters." } else { "rope_scaling." };
        whole_head(keys);
        let fallback = (!keys.has(ORIGINAL)).then_some(context);
        let (inner, mut llama3) =
            keys.read_within(place, |keys| inside(keys, fallback)).unwrap_or_default();
        if let (Some(llama3), None) = (&mut llama3, fallback) {
            llama3.original_max_position_embeddings = keys.size(ORIGINAL, context, LONGEST);
        }
        // Null is no base, but one within counts for it.
        let null = keys.has("rope_theta") && keys.value("rope_theta").is_none();
        let top = if null && inner.is_some() { None } else { keys.number("rope_theta") };
        if let (Some(top), Some(inner)) = (top, inner)
            && top != inner
        {
            keys.problem(format!(
                "`rope_theta` is {top} and `{place}rope_theta` is {inner}; keep one"
            ));
        }
        Self { theta: inner.or(top).unwrap_or(10_000.0), llama3 }
    }
}

/// The context before scaling.
const ORIGINAL: &str = "original_max_position_embeddings";

/// Refuses heads of which a part does not turn.
fn whole_head(keys: &mut ConfigReader<'_>) {
    const KEY: &str = "partial_rotary_factor";
    if keys.value(KEY).is_some_and(|part| part.as_f64() != Some(1.0)) {
        keys.wrong(KEY, "supported: 1");
    }
}

/// Base and scaling within `rope_parameters`; without `fallback` the original context is not read here.
fn inside(keys: &mut ConfigReader<'_>, fallback: Option<usize>) -> (Option<f64>, Option<Llama3>) {
    // Families with several kinds of layers have an object for each.
    if let Some((key, _)) = keys.entries().find(|(_, value)| value.is_object()) {
        keys.wrong(key, "one rope for all layers is supported");
    }
    whole_head(keys);
    let kind = if keys.has("rope_type") { "rope_type" } else { "type" };
    let llama3 = match keys.value(kind).map(|kind| kind.as_str()) {
        None if !keys.has(kind) => None,
        Some(Some("default")) => None,
        Some(Some("llama3")) => Some(Llama3::read(keys, fallback)),
        _ => {
            keys.wrong(kind, "supported: \"default\", \"llama3\"");
            None
        }
    };
    (keys.number("rope_theta"), llama3)
}

impl Llama3 {
    fn read(keys: &mut ConfigReader<'_>, fallback: Option<usize>) -> Self {
        let (low, high) =
            (keys.required_number("low_freq_factor"), keys.required_number("high_freq_factor"));
        if keys.problems.is_empty() && high <= low {
            keys.wrong("high_freq_factor", &format!("it must exceed `low_freq_factor` ({low})"));
        }
        Self {
            factor: keys.required_number("factor") as f32,
            low_freq_factor: low as f32,
            high_freq_factor: high as f32,
            original_max_position_embeddings: fallback
                .map_or(1, |context| keys.size(ORIGINAL, context, LONGEST)),
        }
    }

    /// A frequency whose wave is long against the original context is divided by the factor, one whose wave is short is
    /// not, and between them goes a straight line.
    fn scale_frequency(&self, f: f32) -> f32 {
        let context = self.original_max_position_embeddings as f32;
        let wave = 2.0 * std::f32::consts::PI / f;
        if wave < context / self.high_freq_factor {
            return f;
        }
        if wave > context / self.low_freq_factor {
            return f / self.factor;
        }
        let smooth = (context / wave - self.low_freq_factor)
            / (self.high_freq_factor - self.low_freq_factor);
        (1.0 - smooth) * f / self.factor + smooth * f
    }
}
