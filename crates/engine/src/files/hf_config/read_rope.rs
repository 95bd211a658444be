//! Rotary embeddings as `config.json` asks for them.

use super::family::{ModelFamily, Ropes};
use super::read_scaling::{LONGEST, ORIGINAL, RopeSizes, Surroundings, scaling};
use super::reader::ConfigReader;
use super::rope::{Rope, Scaling, Yarn};
use crate::files::parts::QueryScale;

/// The share of a head that is rotated.
const PARTIAL: &str = "partial_rotary_factor";
/// Key of transformers 5.
const NEW: &str = "rope_parameters.";
/// Key of transformers 4.
const OLD: &str = "rope_scaling.";

/// Base and other values within an object of a rotary embedding.
#[derive(Default)]
struct Inside {
    theta: Option<f64>,
    partial: Option<f64>,
    scaling: Option<Scaling>,
    beta: Option<f64>,
}

/// Reads the rotary embeddings of a model: that of all layers, or of full attention and then of windows. Also returns the
/// factors of queries.
pub(super) fn read_ropes(
    keys: &mut ConfigReader<'_>,
    family: &ModelFamily,
    sizes: RopeSizes,
) -> (Vec<Rope>, Option<QueryScale>) {
    let phi = matches!(family.ropes, Ropes::Phi);
    let in_part = phi || matches!(family.ropes, Ropes::Partial { .. });
    let outside = Surroundings {
        sizes,
        original: keys.value(ORIGINAL).and_then(|n| Some(n.as_u64()?.max(1) as usize)),
        partial: read_partial(keys, in_part),
        truncate: None,
        phi,
        in_part,
    };
    match family.ropes {
        Ropes::One { theta } | Ropes::SomeLayers { theta } => {
            (vec![one_rope(keys, outside, theta).0], None)
        }
        Ropes::Phi => {
            let original = outside.original.or(Some(4096));
            (vec![one_rope(keys, Surroundings { original, ..outside }, 10_000.0).0], None)
        }
        Ropes::ByLayer { theta, window_theta, window_key } => {
            (two_ropes(keys, outside, [theta, window_theta], window_key), None)
        }
        Ropes::Partial { theta, share } => {
            let partial = outside.partial.or(Some(share));
            (vec![one_rope(keys, Surroundings { partial, ..outside }, theta).0], None)
        }
        Ropes::Ministral3 => ministral3_rope(keys, outside),
        Ropes::GptOss => (vec![gpt_oss_rope(keys, outside)], None),
    }
}

/// Reads `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (transformers 4). The original context is
/// `original_max_position_embeddings` beside them, or else within them, or else the longest sequence.
fn one_rope(keys: &mut ConfigReader<'_>, outside: Surroundings, default: f64) -> (Rope, Inside) {
    let (new, old) = (keys.value("rope_parameters"), keys.value("rope_scaling"));
    if new.is_some() && old.is_some() && new != old {
        keys.problem(
            "`rope_parameters` and `rope_scaling` are both there and differ; keep one".to_owned(),
        );
    }
    let place = if new.is_some() { NEW } else { OLD };
    let mut inside = keys.read_within(place, |keys| inside(keys, outside)).unwrap_or_default();
    // Without scaling nobody asks for the context before it.
    if inside.scaling.as_ref().is_some_and(uses_original) && keys.has(ORIGINAL) {
        keys.size(ORIGINAL, outside.sizes.context, LONGEST);
    }
    // Null is no base, but one within counts for it.
    let null = keys.has("rope_theta") && keys.value("rope_theta").is_none();
    let top = if null && inside.theta.is_some() { None } else { keys.number("rope_theta") };
    if let (Some(top), Some(inner)) = (top, inside.theta)
        && top != inner
    {
        keys.problem(format!("`rope_theta` is {top} and `{place}rope_theta` is {inner}; keep one"));
    }
    let rope = Rope {
        theta: inside.theta.or(top).unwrap_or(default),
        partial: inside.partial.or(outside.partial).unwrap_or(1.0),
        scaling: inside.scaling.take().unwrap_or(Scaling::None),
    };
    check_partial(keys, &rope, outside.sizes.head_dim);
    (rope, inside)
}

/// Reads the rotary embeddings of full attention and of windows. `rope_scaling` of transformers 4 is that of full attention.
fn two_ropes(
    keys: &mut ConfigReader<'_>,
    outside: Surroundings,
    [theta, window_theta]: [f64; 2],
    window_key: Option<&'static str>,
) -> Vec<Rope> {
    if keys.value("rope_parameters").is_some() {
        let ropes = keys
            .read_within(NEW, |keys| by_layer(keys, outside, [theta, window_theta]))
            .unwrap_or_default();
        check_beside(keys, &ropes, window_key);
        return ropes;
    }
    let (full, _) = one_rope(keys, outside, theta);
    let local = window_key.map(|key| keys.number(key));
    if local.is_none() && full.theta != window_theta {
        keys.note(format!(
            "`rope_theta` is {}: transformers 5 reads it for full attention alone, and windows have {window_theta}; to have it \
             for both, write `rope_parameters` with an object for each",
            full.theta
        ));
    }
    vec![full, Rope::plain(local.flatten().unwrap_or(window_theta))]
}

/// Reports keys of transformers 4 beside `rope_parameters` for each kind of layer that say something else. `ropes` are those of full
/// attention and of windows.
fn check_beside(keys: &mut ConfigReader<'_>, ropes: &[Rope], window_key: Option<&'static str>) {
    for (key, rope) in [Some("rope_theta"), window_key].into_iter().zip(ropes) {
        let Some(key) = key else { continue };
        if let Some(theta) = keys.number(key).filter(|theta| *theta != rope.theta) {
            keys.problem(format!(
                "`{key}` is {theta}, and `rope_parameters` has {} for these layers; keep one",
                rope.theta
            ));
        }
    }
    if keys.value("rope_scaling").is_some_and(|value| !value.is_null()) {
        keys.problem(
            "`rope_scaling` beside `rope_parameters` for each kind of layer: write it in `rope_parameters.full_attention`"
                .to_owned(),
        );
    }
}

/// Reads the objects of `rope_parameters` for both kinds of layers.
fn by_layer(keys: &mut ConfigReader<'_>, outside: Surroundings, thetas: [f64; 2]) -> Vec<Rope> {
    const KINDS: [&str; 2] =
        ["rope_parameters.full_attention.", "rope_parameters.sliding_attention."];
    for (key, value) in keys.entries() {
        let known = ["full_attention", "sliding_attention", "truncate"].contains(&key);
        if !known && (value.is_object() || ["rope_type", "type", "rope_theta"].contains(&key)) {
            keys.wrong(key, "supported: objects `full_attention` and `sliding_attention`");
        }
    }
    // Where there is an object for each kind of layer, transformers reads this key beside them, and not within.
    let outside = Surroundings { truncate: Some(keys.flag("truncate", true)), ..outside };
    let ropes = KINDS.into_iter().zip(thetas).map(|(place, theta)| {
        let inside = keys.read_within(place, |keys| inside(keys, outside)).unwrap_or_default();
        Rope {
            theta: inside.theta.unwrap_or(theta),
            partial: inside.partial.unwrap_or(1.0),
            scaling: inside.scaling.unwrap_or(Scaling::None),
        }
    });
    let ropes: Vec<Rope> = ropes.collect();
    ropes.iter().for_each(|rope| check_partial(keys, rope, outside.sizes.head_dim));
    ropes
}

/// Reads the rotary embedding of Ministral 3, and the factors of queries.
fn ministral3_rope(
    keys: &mut ConfigReader<'_>,
    outside: Surroundings,
) -> (Vec<Rope>, Option<QueryScale>) {
    if keys.value("rope_parameters").is_none() && keys.value("rope_scaling").is_none() {
        let yarn = Yarn {
            factor: 16.0,
            attention_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            original_max_position_embeddings: 16_384,
        };
        let rope = Rope { scaling: Scaling::Yarn(yarn), ..Rope::plain(1e6) };
        return (vec![rope], Some(QueryScale { beta: 0.1, original: 16_384.0 }));
    }
    let (rope, inside) = one_rope(keys, outside, 1e6);
    let original = match &rope.scaling {
        Scaling::Yarn(yarn) => yarn.original_max_position_embeddings,
        _ => outside.sizes.context,
    };
    if inside.beta.is_none() {
        keys.problem(
            "`rope_parameters.llama_4_scaling_beta` is missing; a positive number is needed"
                .to_owned(),
        );
    }
    let scale = QueryScale { beta: inside.beta.unwrap_or(0.1) as f32, original: original as f32 };
    (vec![rope], Some(scale))
}

/// Reads the rotary embedding of gpt-oss.
fn gpt_oss_rope(keys: &mut ConfigReader<'_>, outside: Surroundings) -> Rope {
    let (rope, _) = one_rope(keys, outside, 150_000.0);
    if keys.value("rope_parameters").is_some() || keys.value("rope_scaling").is_some() {
        return rope;
    }
    let yarn = Yarn {
        factor: 32.0,
        attention_factor: Yarn::usual_factor(32.0, 1.0) as f32,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: false,
        original_max_position_embeddings: 4096,
    };
    Rope { scaling: Scaling::Yarn(yarn), ..rope }
}

/// Reads the share of a head that is rotated. Other families than Phi and Qwen3.5 rotate whole heads.
fn read_partial(keys: &mut ConfigReader<'_>, in_part: bool) -> Option<f64> {
    let whole = keys.value(PARTIAL).is_none_or(|part| part.as_f64() == Some(1.0));
    if !in_part && !whole {
        keys.wrong(PARTIAL, "supported: 1");
        return None;
    }
    keys.optional_number(PARTIAL)
}

/// Returns true if a kind of scaling depends on the context before it.
fn uses_original(scaling: &Scaling) -> bool {
    !matches!(scaling, Scaling::None | Scaling::Linear(_))
}

/// Refuses a share of a head that has no pairs, or of which LongRoPE has another number of factors.
fn check_partial(keys: &mut ConfigReader<'_>, rope: &Rope, head_dim: usize) {
    if !keys.problems.is_empty() {
        return;
    }
    let rotated = rope.rotated_dim(head_dim);
    // Of heads that are rotated as a whole an odd width is the problem.
    let whole = rope.partial == 1.0;
    if !whole && (rotated < 2 || rotated > head_dim || !rotated.is_multiple_of(2)) {
        keys.problem(format!(
            "`{PARTIAL}` is {}, which rotates {rotated} of {head_dim} elements of a head; an even number is needed",
            rope.partial
        ));
        return;
    }
    if let Scaling::Long(long) = &rope.scaling {
        for (key, factors) in
            [("short_factor", &long.short_factor), ("long_factor", &long.long_factor)]
        {
            if factors.len() != rotated / 2 {
                keys.problem(format!(
                    "`{key}` of the rope has {} entries; {} are needed, half of the rotated elements of a head",
                    factors.len(),
                    rotated / 2
                ));
            }
        }
    }
}

/// Reads an object of a rotary embedding.
fn inside(keys: &mut ConfigReader<'_>, outside: Surroundings) -> Inside {
    // Families with several kinds of layers have an object for each.
    if let Some((key, _)) = keys.entries().find(|(_, value)| value.is_object()) {
        keys.wrong(key, "one rope for all layers is supported");
    }
    Inside {
        scaling: scaling(keys, outside),
        theta: keys.number("rope_theta"),
        partial: read_partial(keys, outside.in_part),
        beta: keys.optional_number("llama_4_scaling_beta"),
    }
}
