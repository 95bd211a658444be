//! Options of PEFT that choose modules, ranks and scales by name (reference: peft `check_target_module_exists`,
//! `get_pattern_key`). Expressions are Python's: what the two languages read differently is refused.

use fancy_regex::{Regex, RegexBuilder};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::keys::{MAX_RANK, found_value, off, value_of};

/// Modules by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Modules {
    /// Whole names, or their ends after a dot.
    Named(Vec<String>),
    /// A regular expression for the whole name.
    Matching(String),
}

/// Which modules an adapter corrects beside `target_modules`, and ranks and scales of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Patterns {
    /// A regular expression for the whole name of a module, in place of a list of ends; `all-linear` means every linear map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_modules: Option<String>,
    /// Modules that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_modules: Option<Modules>,
    /// Layers that are corrected; without it all are. A module that is listed by its whole name is corrected anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers_to_transform: Option<Vec<i64>>,
    /// Expressions for what stands before a layer's number; without any, the first number between dots is the layer's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers_pattern: Vec<String>,
    /// Ranks by expressions for the end of a name after a dot; the first that matches counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rank_pattern: Vec<(String, usize)>,
    /// The same for alphas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alpha_pattern: Vec<(String, f64)>,
    /// Ends of the names of tensors of all experts of a layer that are corrected, sorted (`experts.gate_up_proj`). Modules that are
    /// left out and layers have no effect on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target_parameters: Vec<String>,
}

/// Treatment of a module.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ModuleChoice {
    pub(super) corrected: bool,
    /// Where it has its own.
    pub(super) rank: Option<usize>,
    pub(super) alpha: Option<f64>,
}

/// A key of `adapter_config.json`, and what is wanted in place of what it has.
type Wrong = (&'static str, String);

/// PEFT's rule for lists: the whole name, or its end after a dot.
pub(super) fn names(entry: &str, module: &str) -> bool {
    module.strip_suffix(entry).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl Patterns {
    /// True if modules, ranks and scales are those of the other keys alone.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The modules that are corrected, in words; `named` are the entries of a list of target modules.
    pub fn module_words(&self, named: &[String]) -> String {
        let named = [named, &self.target_parameters].concat();
        let mut text = self.target_modules.clone().unwrap_or_else(|| named.join(", "));
        if let Some(layers) = &self.layers_to_transform {
            text += &format!(" in layers {layers:?}");
        }
        match &self.exclude_modules {
            None => {}
            Some(Modules::Named(names)) => text += &format!(" without {}", names.join(", ")),
            Some(Modules::Matching(expression)) => text += &format!(" without {expression}"),
        }
        text
    }

    /// Reads the keys of an `adapter_config.json`; `expression` is that of `target_modules`, if it has one.
    pub(super) fn read(
        json: &Map<String, Value>,
        expression: Option<String>,
    ) -> Result<Self, String> {
        let of_layers = value_of(json, "layers_to_transform");
        let layers = match of_layers {
            value if off(value) => None,
            Value::Number(layer) => layer.as_i64().map(|layer| vec![layer]),
            value => value.as_array().and_then(|l| l.iter().map(Value::as_i64).collect()),
        };
        if layers.is_none() && !off(of_layers) {
            return Err(found_value(
                json,
                "layers_to_transform",
                "the number of a layer, or a list of them",
            ));
        }
        let layers_pattern = match value_of(json, "layers_pattern") {
            Value::String(text) if text.is_empty() => Vec::new(),
            Value::String(text) => vec![text.clone()],
            value if off(value) => Vec::new(),
            value => texts(value).ok_or_else(|| {
                found_value(json, "layers_pattern", "a name such as \"layers\", or a list of them")
            })?,
        };
        for key in ["layers_to_transform", "layers_pattern"] {
            if expression.is_some() && !value_of(json, key).is_null() {
                return Err(found_value(json, key, "none where `target_modules` is an expression"));
            }
        }
        if !layers_pattern.is_empty() && of_layers.is_null() {
            return Err(found_value(json, "layers_pattern", "`layers_to_transform` beside it"));
        }
        let exclude_modules = modules(value_of(json, "exclude_modules")).ok_or_else(|| {
            found_value(json, "exclude_modules", "a list of module names, or a regular expression")
        })?;
        let ranks = of_patterns(json, "rank_pattern", "ranks from 1", |rank| {
            rank.as_u64().filter(|r| (1..=MAX_RANK).contains(r))
        })?;
        let alpha_pattern = of_patterns(json, "alpha_pattern", "numbers above 0", |alpha| {
            alpha.as_f64().filter(|a| a.is_finite() && *a > 0.0)
        })?;
        Ok(Self {
            target_parameters: target_parameters(json)?,
            target_modules: expression,
            exclude_modules,
            layers_to_transform: layers,
            layers_pattern,
            rank_pattern: ranks.into_iter().map(|(key, rank)| (key, rank as usize)).collect(),
            alpha_pattern,
        })
    }

    /// True if every linear map is meant.
    pub(super) fn all_linear(&self) -> bool {
        self.target_modules.as_ref().is_some_and(|text| text.eq_ignore_ascii_case("all-linear"))
    }

    /// Chooses among modules; `named` are the entries of a list of target modules. One expression at a time is compiled, for
    /// all modules.
    ///
    /// # Errors
    ///
    /// An expression that is none, or that takes too long.
    pub(super) fn choose(
        &self,
        named: &[String],
        modules: &[&str],
    ) -> Result<Vec<ModuleChoice>, Wrong> {
        let targets = match self.target_modules.as_ref().filter(|_| !self.all_linear()) {
            Some(text) => Some(matches("target_modules", text, &whole_expression(text), modules)?),
            None => None,
        };
        let excluded = match &self.exclude_modules {
            None => vec![false; modules.len()],
            Some(Modules::Named(entries)) => {
                modules.iter().map(|name| entries.iter().any(|e| names(e, name))).collect()
            }
            Some(Modules::Matching(text)) => {
                matches("exclude_modules", text, &whole_expression(text), modules)?
            }
        };
        let in_layers = self.in_layers(modules)?;
        let ranks = first("rank_pattern", &self.rank_pattern, modules)?;
        let alphas = first("alpha_pattern", &self.alpha_pattern, modules)?;
        let choices = modules.iter().enumerate().map(|(index, name)| {
            let corrected = match &targets {
                Some(targets) => targets[index],
                None if self.all_linear() => true,
                // A whole name counts in every layer.
                None if named.iter().any(|entry| entry == name) => true,
                None => in_layers[index] && named.iter().any(|entry| names(entry, name)),
            };
            let corrected = corrected && !excluded[index];
            ModuleChoice { corrected, rank: ranks[index], alpha: alphas[index] }
        });
        Ok(choices.collect())
    }

    /// True if each module is in a layer that is corrected.
    fn in_layers(&self, modules: &[&str]) -> Result<Vec<bool>, Wrong> {
        const KEY: &str = "layers_pattern";
        let Some(wanted) = &self.layers_to_transform else { return Ok(vec![true; modules.len()]) };
        let expressions = match &self.layers_pattern[..] {
            [] => vec![(String::new(), r"\A.*?\.[^.]*\.(?P<idx>\d+)\.".to_owned())],
            // Not a group of its own in PEFT either.
            patterns => patterns
                .iter()
                .map(|text| (text.clone(), format!(r"\A(?:(?:^|.*?\.){text}\.(?P<idx>\d+)\.)")))
                .collect(),
        };
        // The first expression that matches decides, with a number or without.
        let mut decided: Vec<Option<bool>> = vec![None; modules.len()];
        for (text, expression) in expressions {
            let compiled = compile(KEY, &text, &expression)?;
            for (name, decided) in modules.iter().zip(&mut decided).filter(|(_, d)| d.is_none()) {
                let found = compiled.captures(name).map_err(|error| too_long(KEY, &error))?;
                *decided = found.map(|found| {
                    let layer = found.name("idx").and_then(|idx| idx.as_str().parse().ok());
                    layer.is_some_and(|layer: i64| wanted.contains(&layer))
                });
            }
        }
        Ok(decided.into_iter().map(|decided| decided == Some(true)).collect())
    }

    /// The keys of an `adapter_config.json`.
    pub(super) fn json(&self, target_modules: &[String]) -> Vec<(&'static str, Value)> {
        let ranks = self.rank_pattern.iter().map(|(key, r)| (key.clone(), json!(r)));
        let alphas = self.alpha_pattern.iter().map(|(key, a)| (key.clone(), number(*a)));
        let layers = &self.layers_pattern;
        let of_experts = Some(&self.target_parameters).filter(|names| !names.is_empty());
        let of_experts = of_experts.map(|names| ("target_parameters", json!(names)));
        let keys = [
            ("alpha_pattern", alphas.collect()),
            ("exclude_modules", json!(self.exclude_modules)),
            ("layers_pattern", if layers.is_empty() { Value::Null } else { json!(layers) }),
            ("layers_to_transform", json!(self.layers_to_transform)),
            ("rank_pattern", ranks.collect()),
            (
                "target_modules",
                match &self.target_modules {
                    Some(expression) => json!(expression),
                    None => json!(target_modules),
                },
            ),
        ];
        keys.into_iter().chain(of_experts).collect()
    }
}

/// A number as PEFT writes it: 8, not 8.0.
pub(super) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value < 1e15 { json!(value as u64) } else { json!(value) }
}

/// Reads the names of tensors of all experts, sorted.
fn target_parameters(json: &Map<String, Value>) -> Result<Vec<String>, String> {
    const KEY: &str = "target_parameters";
    let mut names = match texts(value_of(json, KEY)) {
        Some(names) => names,
        None if off(value_of(json, KEY)) => Vec::new(),
        None => {
            let wanted = "a list of names of tensors, such as [\"mlp.experts.down_proj\"]";
            return Err(found_value(json, KEY, wanted));
        }
    };
    names.sort();
    Ok(names)
}

/// An expression for a whole name.
fn whole_expression(text: &str) -> String {
    format!(r"\A(?:{text})\z")
}

/// The value of the first expression that matches the end of each module's name, after a dot.
fn first<T: Copy>(
    key: &'static str,
    values: &[(String, T)],
    modules: &[&str],
) -> Result<Vec<Option<T>>, Wrong> {
    let mut found = vec![None; modules.len()];
    for (text, value) in values {
        let matching = matches(key, text, &format!(r"\A(.*\.)?({text})$"), modules)?;
        let hits = found.iter_mut().zip(matching).filter(|(found, hit)| *hit && found.is_none());
        hits.for_each(|(found, _)| *found = Some(*value));
    }
    Ok(found)
}

/// True if an expression that was made of `text` matches each module.
fn matches(
    key: &'static str,
    text: &str,
    expression: &str,
    modules: &[&str],
) -> Result<Vec<bool>, Wrong> {
    let expression = compile(key, text, expression)?;
    let found = modules.iter().map(|name| expression.is_match(name));
    found.map(|hit| hit.map_err(|error| too_long(key, &error))).collect()
}

fn too_long(key: &'static str, error: &fancy_regex::Error) -> Wrong {
    (key, format!("an expression that ends: {error}"))
}

/// Largest expression, compiled.
const LARGEST: usize = 1 << 18;

fn compile(key: &'static str, text: &str, expression: &str) -> Result<Regex, Wrong> {
    let compiled = if ambiguous(text) {
        Err("write `[`, `&&`, `--` and `~~` within brackets with backslashes".to_owned())
    } else {
        // By itself first: a bracket that is not closed must not end with what stands around.
        build_regex(text).and_then(|_| build_regex(expression)).map_err(|error| error.to_string())
    };
    compiled.map_err(|why| (key, format!("a regular expression; {text:?} is none: {why}")))
}

fn build_regex(text: &str) -> Result<Regex, fancy_regex::Error> {
    let mut builder = RegexBuilder::new(text);
    builder.delegate_size_limit(LARGEST).delegate_dfa_size_limit(1 << 12).build()
}

/// A list of names or an expression; `Some(None)` if it is off, `None` if it is something else.
pub(super) fn modules(value: &Value) -> Option<Option<Modules>> {
    match value {
        Value::String(text) if text.is_empty() => Some(None),
        Value::String(text) => Some(Some(Modules::Matching(text.clone()))),
        value if off(value) => Some(None),
        value => Some(Some(Modules::Named(texts(value)?))),
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// An object of numbers by expressions, in its order: the first that matches counts.
fn of_patterns<T>(
    json: &Map<String, Value>,
    key: &str,
    wanted: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<(String, T)>, String> {
    let value = value_of(json, key);
    if off(value) {
        return Ok(Vec::new());
    }
    let pairs = value.as_object().and_then(|pairs| {
        pairs.iter().map(|(name, value)| Some((name.clone(), read(value)?))).collect()
    });
    pairs.ok_or_else(|| {
        found_value(json, key, &format!("an object of {wanted} by names of modules"))
    })
}

/// True if brackets hold what Python reads as characters and this language as sets.
fn ambiguous(text: &str) -> bool {
    let (mut within, mut characters) = (false, text.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '[' if within => return true,
            '[' => {
                within = true;
                // A bracket that stands first is a character.
                characters.next_if_eq(&'^');
                characters.next_if_eq(&']');
            }
            ']' => within = false,
            '&' | '-' | '~' if within && characters.peek() == Some(&character) => return true,
            _ => {}
        }
    }
    false
}
