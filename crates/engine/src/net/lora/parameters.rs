//! Corrections of experts that are one tensor for all experts of a layer (gpt-oss): PEFT's `target_parameters`.

use std::collections::BTreeSet;

use super::keys::CONFIG_FILE;
use super::patterns::{ModuleChoice, Patterns, names};
use super::target::ParameterPart;
use crate::files::parts::LinearShape;
use crate::files::{HfConfig, ModelError, ModelErrorKind};

/// Ends of the names of the tensors of experts.
const PARAMETERS: [&str; 2] = ["gate_up_proj", "down_proj"];

/// Map of an expert, with the name of the tensor of all experts that it is a part of.
struct PartMap<'a> {
    tensor: String,
    name: String,
    map: &'a LinearShape,
}

/// Returns the maps of experts that are parts of one tensor, in the order of layers.
fn part_maps(base: &HfConfig) -> Vec<PartMap<'_>> {
    let maps = base.linears().filter(|(_, map)| map.expert.is_some() && !base.adapts(map));
    let maps = maps.filter_map(|(name, map)| {
        let (experts, rest) = name.split_once(".experts.")?;
        let end = if rest.ends_with("down_proj") { PARAMETERS[1] } else { PARAMETERS[0] };
        Some(PartMap { tensor: format!("{experts}.experts.{end}"), name, map })
    });
    maps.collect()
}

/// Splits names of target modules into those of linear maps and those of tensors of experts.
pub(crate) fn split_targets(base: &HfConfig, targets: Vec<String>) -> (Vec<String>, Vec<String>) {
    let tensors: BTreeSet<String> = part_maps(base).into_iter().map(|map| map.tensor).collect();
    let of_experts = |target: &String| tensors.iter().any(|tensor| names(target, tensor));
    let (parameters, modules) = targets.into_iter().partition(of_experts);
    (modules, parameters)
}

/// Returns how experts that are one tensor are corrected, in words for a message.
pub(super) fn in_words() -> String {
    let [two, down] = PARAMETERS;
    format!(
        ", and `{two}` and `{down}` of all experts of a layer, which are one tensor; routers have no adapters"
    )
}

/// Map of an expert that is corrected as a part of a tensor.
pub(super) struct ChosenPart<'a> {
    /// Name of the module.
    pub(super) name: String,
    pub(super) map: &'a LinearShape,
    /// Rank and alpha, where it has its own.
    pub(super) choice: ModuleChoice,
    /// Place in the correction of the tensor.
    pub(super) part: Option<ParameterPart>,
}

/// Returns the maps of experts that are corrected as parts of the tensors of `target_parameters`, in the order of layers.
///
/// # Errors
///
/// If an entry names no such tensor, or there is dropout, which PEFT does not have for them.
pub(super) fn chosen_parts<'a>(
    base: &'a HfConfig,
    patterns: &Patterns,
    dropout: f32,
) -> Result<Vec<ChosenPart<'a>>, ModelError> {
    let entries = &patterns.target_parameters;
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let maps = part_maps(base);
    let of_map = |entry: &String| maps.iter().any(|map| names(entry, &map.tensor));
    if let Some(unknown) = entries.iter().find(|entry| !of_map(entry)) {
        return Err(ModelError::no_match(format!(
            "`target_parameters` has {unknown:?}, which names no tensor of all experts of a layer; {}",
            if maps.is_empty() {
                "this model has none".to_owned()
            } else {
                format!("there are `experts.{}` and `experts.{}`", PARAMETERS[0], PARAMETERS[1])
            }
        )));
    }
    refuse_dropout(entries, dropout)?;
    let tensors: Vec<&str> = maps.iter().map(|map| map.tensor.as_str()).collect();
    let choices = patterns.choose(&[], &tensors).map_err(|(key, why)| {
        ModelError::new(ModelErrorKind::Invalid, format!("{CONFIG_FILE}: `{key}` wants {why}"))
    })?;
    let named = |tensor: &&str| entries.iter().any(|entry| names(entry, tensor));
    let chosen: BTreeSet<&str> = tensors.iter().copied().filter(named).collect();
    let corrected = maps.iter().zip(choices).filter(|(map, _)| chosen.contains(&*map.tensor));
    let parts = corrected.map(|(of, choice)| ChosenPart {
        name: of.name.clone(),
        map: of.map,
        choice,
        part: parameter_part(base, of, &chosen),
    });
    Ok(parts.collect())
}

/// Returns an error if there is dropout beside entries of `target_parameters`.
pub(super) fn refuse_dropout(entries: &[String], dropout: f32) -> Result<(), ModelError> {
    if entries.is_empty() || dropout == 0.0 {
        return Ok(());
    }
    Err(ModelError::no_match(format!(
        "`dropout` is {dropout}, which PEFT does not have for experts that are one tensor; set `dropout = 0`, or leave \
         `{}` out of `target_modules`",
        entries.join("`, `")
    )))
}

/// Returns the place of a map in the tensor of all experts. PEFT wraps the module of experts once for each of its tensors that
/// is corrected, `down_proj` outermost.
fn parameter_part(
    base: &HfConfig,
    of: &PartMap<'_>,
    chosen: &BTreeSet<&str>,
) -> Option<ParameterPart> {
    let (module, end) = of.tensor.rsplit_once('.')?;
    let within = end == PARAMETERS[0] && chosen.contains(&*format!("{module}.{}", PARAMETERS[1]));
    let experts = base.layers.iter().find_map(|layer| layer.mlp.experts())?.router.experts;
    Some(ParameterPart {
        holder: if within { format!("{module}.base_layer") } else { module.to_owned() },
        expert: usize::from(of.map.expert?),
        experts,
        first: usize::from(of.name.ends_with("up_proj")),
        step: if end == PARAMETERS[0] { 2 } else { 1 },
    })
}
