//! `adapter_config.json`, and which linear maps it means.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::keys::{CONFIG_FILE, MAX_RANK, found_value, off, value_of};
use super::parameters::{ChosenPart, chosen_parts, in_words};
use super::patterns::{ModuleChoice, Modules, Patterns, modules, names, number};
use super::target::LoraTarget;
use crate::files::parts::LinearShape;
use crate::files::read_file;
use crate::files::{HfConfig, ModelError, ModelErrorKind};

/// The weights of an adapter.
pub const WEIGHTS_FILE: &str = "adapter_model.safetensors";

/// Configuration of an adapter: rank, scale and target modules.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoraConfig {
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The scale is `alpha / rank`, or `alpha / sqrt(rank)` with rslora.
    pub alpha: f64,
    /// Share of the inputs of A that is dropped in training; never in rollout.
    pub dropout: f32,
    /// Ends of the names of the linear maps that are corrected (`q_proj`, `self_attn.q_proj`), sorted.
    pub target_modules: Vec<String>,
    /// Rank-stabilized scale (Kalajdzievski, 2023).
    pub rslora: bool,
    /// Options that PEFT selects by expressions.
    #[serde(skip_serializing_if = "Patterns::is_empty")]
    pub patterns: Patterns,
}

/// True if a directory holds an adapter.
pub fn is_adapter(dir: &Path) -> bool {
    dir.join(CONFIG_FILE).is_file()
}

/// Names of the linear maps of a layer that every token passes, sorted: the values of `target_modules`, all of which
/// `"all-linear"` selects. A map whose name ends as that of an expert has its longer name: `mlp.gate_proj`.
pub fn linear_names(base: &HfConfig) -> Vec<String> {
    let of_experts = expert_names(base);
    let maps = base.linears().filter(|(_, map)| map.expert.is_none());
    let names: BTreeSet<String> = maps.map(|(name, _)| target_name(&name, &of_experts)).collect();
    names.into_iter().collect()
}

/// Returns the end of the name of a map that names no map of experts.
fn target_name(module: &str, of_experts: &BTreeSet<&str>) -> String {
    let last = last_part(module);
    let name = if of_experts.contains(last) { name_in_layer(module) } else { last };
    name.to_owned()
}

/// Returns the ends of the names of the maps of experts that adapters may correct.
fn expert_names(base: &HfConfig) -> BTreeSet<&'static str> {
    let maps = base.linears().filter(|(_, map)| map.expert.is_some() && base.adapts(map));
    maps.map(|(_, map)| last_part(map.name)).collect()
}

/// Returns what follows the last dot of a name.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// Returns what follows the number of the layer.
fn name_in_layer(module: &str) -> &str {
    let (_, rest) = module.split_once(".layers.").unwrap_or_default();
    rest.split_once('.').map_or(module, |(_, name)| name)
}

/// Returns which maps of experts and routers adapters do not correct, in words for a message.
fn unadapted(base: &HfConfig) -> String {
    if base.layers.iter().all(|layer| layer.mlp.experts().is_none()) {
        return String::new();
    }
    let of_experts: Vec<&str> = expert_names(base).into_iter().collect();
    if of_experts.is_empty() {
        return in_words();
    }
    let named = of_experts.join("`, `");
    format!(
        ", and `{named}` of experts (`experts.0.{}`: of one); routers have no adapters",
        of_experts[0]
    )
}

impl LoraConfig {
    /// By how much corrections are multiplied that have no rank or alpha of their own.
    pub fn scale(&self) -> f32 {
        self.scale_of(self.rank, self.alpha)
    }

    fn scale_of(&self, rank: usize, alpha: f64) -> f32 {
        let rank = rank as f64;
        (alpha / if self.rslora { rank.sqrt() } else { rank }) as f32
    }

    /// Returns a linear map that is corrected.
    fn target(
        &self,
        base: &HfConfig,
        name: String,
        map: &LinearShape,
        choice: ModuleChoice,
    ) -> LoraTarget {
        let weight = base.names.weight_of_module(&name);
        let rank = choice.rank.unwrap_or(self.rank);
        let scale = self.scale_of(rank, choice.alpha.unwrap_or(self.alpha));
        let (input, output) = (map.input, map.output);
        LoraTarget { name, weight, input, output, rank, scale, part: None }
    }

    /// The linear maps of a base that are corrected, in the order of its layers, those of tensors of all experts last.
    ///
    /// # Errors
    ///
    /// If an entry of `target_modules` or `target_parameters` names none, nothing is corrected, or PEFT has no such adapter.
    pub fn targets(&self, base: &HfConfig) -> Result<Vec<LoraTarget>, ModelError> {
        let all: Vec<(String, &LinearShape)> =
            base.linears().filter(|(_, map)| base.adapts(map)).collect();
        let mut entries = self.target_modules.iter();
        if let Some(unknown) = entries.find(|entry| !all.iter().any(|(name, _)| names(entry, name)))
        {
            let known = linear_names(base).join("`, `");
            return Err(ModelError::no_match(format!(
                "`target_modules` has {unknown:?}, which names no linear map of the model; there are `{known}`{}",
                unadapted(base)
            )));
        }
        let modules: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let choices = self.patterns.choose(&self.target_modules, &modules);
        let choices = choices.map_err(|(key, why)| {
            ModelError::new(ModelErrorKind::Invalid, format!("{CONFIG_FILE}: `{key}` wants {why}"))
        })?;
        // PEFT has experts as parameters of a module, which `all-linear` does not mean.
        let all_linear = self.patterns.all_linear();
        let chosen = all
            .into_iter()
            .zip(choices)
            .filter(|((_, map), choice)| choice.corrected && !(all_linear && map.expert.is_some()));
        let mut targets: Vec<LoraTarget> =
            chosen.map(|((name, map), choice)| self.target(base, name, map, choice)).collect();
        for ChosenPart { name, map, choice, part } in
            chosen_parts(base, &self.patterns, self.dropout)?
        {
            targets.push(LoraTarget { part, ..self.target(base, name, map, choice) });
        }
        if targets.is_empty() {
            return Err(ModelError::no_match(format!(
                "`target_modules`, `exclude_modules` and `layers_to_transform` leave no linear map of the model; there are \
                 `{}` in {} layers",
                linear_names(base).join("`, `"),
                base.layers.len()
            )));
        }
        Ok(targets)
    }

    /// The same with every target by its whole name, sorted, where expressions choose them.
    ///
    /// # Errors
    ///
    /// See [`LoraConfig::targets`].
    pub fn expand_targets(&self, base: &HfConfig) -> Result<Self, ModelError> {
        let Patterns { target_modules, exclude_modules, layers_to_transform, .. } = &self.patterns;
        let chosen =
            target_modules.is_some() || exclude_modules.is_some() || layers_to_transform.is_some();
        let mut target_modules: Vec<String> = if chosen {
            let targets = self.targets(base)?.into_iter().filter(|target| target.part.is_none());
            targets.map(|target| target.name).collect()
        } else {
            self.target_modules.clone()
        };
        target_modules.sort();
        Ok(Self { target_modules, ..self.clone() })
    }

    /// Number of parameters of an adapter of a base.
    ///
    /// # Errors
    ///
    /// See [`LoraConfig::targets`].
    pub fn parameters(&self, base: &HfConfig) -> Result<u64, ModelError> {
        let sizes = self.targets(base)?.into_iter().map(|target| {
            let input = if target.shares_a() { 0 } else { target.input };
            // A larger rank is refused; its size would be no number.
            (target.rank as u64).min(MAX_RANK) * (input + target.output) as u64
        });
        Ok(sizes.sum())
    }

    /// Describes the options that must be equal for the weights of one adapter to be valid in another.
    pub(super) fn shape(&self) -> String {
        let Self { rank, alpha, target_modules, rslora, patterns, .. } = self;
        let mut shape = format!(
            "rank {rank}, alpha {alpha}, rslora {rslora}, target_modules {}",
            target_modules.join(" ")
        );
        for (key, value) in patterns.json(&[]).iter().filter(|(_, value)| !off(value)) {
            shape += &format!(", {key} {value}");
        }
        shape
    }

    /// Reads the `adapter_config.json` of a PEFT directory.
    ///
    /// # Errors
    ///
    /// If it is not there, is damaged, or asks for what is not supported; the key is named.
    pub fn read(dir: &Path) -> Result<Self, ModelError> {
        let path = dir.join(CONFIG_FILE);
        let text = read_file(&path).map_err(|e| ModelError::at_path(&path, e))?;
        Self::parse(&text).map_err(|e| {
            ModelError::new(ModelErrorKind::Invalid, format!("{}: {e}", path.display()))
        })
    }

    /// Reads an `adapter_config.json`.
    ///
    /// # Errors
    ///
    /// The key that is missing, wrong or not supported, and what was found.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let json: Map<String, Value> =
            serde_json::from_slice(text).map_err(|e| format!("not a JSON object: {e}"))?;
        check_supported(&json)?;
        let rank = match json.get("r").and_then(Value::as_u64) {
            Some(rank) if (1..=MAX_RANK).contains(&rank) => rank as usize,
            _ => return Err(found_value(&json, "r", "a rank from 1")),
        };
        let alpha = match json.get("lora_alpha").and_then(Value::as_f64) {
            Some(alpha) if alpha.is_finite() && alpha > 0.0 => alpha,
            _ => return Err(found_value(&json, "lora_alpha", "a number above 0")),
        };
        let rslora = json.get("use_rslora").and_then(Value::as_bool).unwrap_or(false);
        let (target_modules, expression) = target_modules(&json)?;
        let patterns = Patterns::read(&json, expression)?;
        patterns.choose(&[], &[]).map_err(|(key, wanted)| found_value(&json, key, &wanted))?;
        Ok(Self { rank, alpha, dropout: 0.0, target_modules, rslora, patterns })
    }

    /// Writes the `adapter_config.json` of a PEFT directory.
    pub(super) fn write(&self, dir: &Path, base: &str) -> Result<(), ModelError> {
        let path = dir.join(CONFIG_FILE);
        let text = format!("{:#}\n", self.json(base));
        std::fs::write(&path, text).map_err(|e| ModelError::cannot_do("write", &path, e))
    }

    fn json(&self, base: &str) -> Value {
        // 0.05, not 0.05000000074505806.
        let dropout: f64 = self.dropout.to_string().parse().unwrap_or(f64::from(self.dropout));
        // A base on the hub is called as PEFT calls it.
        let hub = base.strip_prefix("hf:").and_then(|id| id.split_once('@'));
        let (base, revision) = hub.map_or((base, None), |(repo, commit)| (repo, Some(commit)));
        let mut json = json!({
            "alpha_pattern": {},
            "auto_mapping": null,
            "base_model_name_or_path": base,
            "bias": "none",
            "exclude_modules": null,
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "layers_pattern": null,
            "layers_to_transform": null,
            "lora_alpha": number(self.alpha),
            "lora_dropout": dropout,
            "modules_to_save": null,
            "peft_type": "LORA",
            "r": self.rank,
            "rank_pattern": {},
            "revision": revision,
            "target_modules": self.target_modules,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": self.rslora,
        });
        for (key, value) in self.patterns.json(&self.target_modules) {
            json[key] = value;
        }
        json
    }
}

/// Keys that are read here, or that do not change what a stored adapter computes.
const KNOWN: &[&str] = &[
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "target_parameters",
    "use_rslora",
];

/// Refuses every option that changes what an adapter computes and is not supported, also such as are not known yet: only
/// what is off (`null`, `false`, empty) can be passed over.
fn check_supported(json: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in json {
        let fine = match key.as_str() {
            key if KNOWN.contains(&key) => true,
            "peft_type" => value == "LORA",
            "task_type" => value.is_null() || value == "CAUSAL_LM",
            "bias" => value == "none",
            // Others change the base's weights too.
            "init_lora_weights" => value.is_boolean() || value == "gaussian",
            _ => off(value),
        };
        if !fine {
            let wanted = match key.as_str() {
                "peft_type" => "\"LORA\"",
                "task_type" => "\"CAUSAL_LM\"",
                "bias" => "\"none\"",
                "init_lora_weights" => "true, false or \"gaussian\"",
                _ => "an adapter without it",
            };
            return Err(found_value(json, key, wanted));
        }
    }
    if !json.contains_key("peft_type") {
        return Err(found_value(json, "peft_type", "\"LORA\""));
    }
    Ok(())
}

/// The list that PEFT writes, sorted, or the expression in its place.
fn target_modules(json: &Map<String, Value>) -> Result<(Vec<String>, Option<String>), String> {
    let wanted =
        "a list of module names, such as [\"q_proj\", \"v_proj\"], or a regular expression";
    let of_parameters = !off(value_of(json, "target_parameters"));
    if of_parameters && *value_of(json, "target_modules") == json!([]) {
        return Ok((Vec::new(), None));
    }
    match modules(value_of(json, "target_modules")).flatten() {
        Some(Modules::Matching(expression)) => Ok((Vec::new(), Some(expression))),
        Some(Modules::Named(mut names)) => {
            names.sort();
            names.dedup();
            Ok((names, None))
        }
        None => Err(found_value(json, "target_modules", wanted)),
    }
}
