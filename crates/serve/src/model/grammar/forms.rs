//! Rules of a call in the form of a family: what is around its name and its arguments, and how these are written.

use serde_json::{Value, json};

use super::multiples::argument_schema;
use super::style::{Style, escaped};
use maverl::tools::CallFormat;

/// Texts around a call.
struct CallFrame {
    /// Before and after all calls.
    around: [&'static str; 2],
    /// Before and after the arguments of a call. `NAME` stands for its name.
    call: [&'static str; 2],
    arguments: ArgumentForm,
}

/// Way in which arguments are written.
#[derive(Clone, Copy)]
enum ArgumentForm {
    /// A JSON object.
    Json,
    /// Texts around each value, of which strings are written as they are. `KEY` stands for the name of an argument, and
    /// `TEXT` for true if it is a string.
    Tags([&'static str; 2]),
    /// `key=value`, with commas.
    Python,
    /// `{key:value}`, with quotes of their own.
    Gemma,
}

/// Returns the frame of a form.
fn frame(format: CallFormat) -> CallFrame {
    let (around, call, arguments) = match format {
        CallFormat::QwenXml => (
            ["<tool_call>\n", "\n</tool_call>"],
            ["<function=NAME>\n", "</function>"],
            ArgumentForm::Tags(["<parameter=KEY>\n", "\n</parameter>\n"]),
        ),
        CallFormat::Glm => (
            ["<tool_call>", "</tool_call>"],
            ["NAME\n", ""],
            ArgumentForm::Tags(["<arg_key>KEY</arg_key>\n<arg_value>", "</arg_value>\n"]),
        ),
        CallFormat::MinimaxM2 => (
            ["<minimax:tool_call>\n", "</minimax:tool_call>"],
            ["<invoke name=\"NAME\">\n", "</invoke>\n"],
            ArgumentForm::Tags(["<parameter name=\"KEY\">", "</parameter>\n"]),
        ),
        CallFormat::DeepseekDsml => (
            ["<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"],
            ["<｜DSML｜invoke name=\"NAME\">\n", "</｜DSML｜invoke>\n"],
            ArgumentForm::Tags([
                "<｜DSML｜parameter name=\"KEY\" string=\"TEXT\">",
                "</｜DSML｜parameter>\n",
            ]),
        ),
        CallFormat::Pythonic => (["[", "]"], ["NAME(", ")"], ArgumentForm::Python),
        CallFormat::Gemma4 => {
            (["", ""], ["<|tool_call>call:NAME", "<tool_call|>"], ArgumentForm::Gemma)
        }
        other => {
            let (around, call) = json_frame(other);
            (around, call, ArgumentForm::Json)
        }
    };
    CallFrame { around, call, arguments }
}

/// Returns what is around calls, and around the JSON arguments of a call.
fn json_frame(format: CallFormat) -> ([&'static str; 2], [&'static str; 2]) {
    match format {
        CallFormat::Mistral => {
            (["[TOOL_CALLS] [", "]"], ["{\"name\": \"NAME\", \"arguments\": ", "}"])
        }
        CallFormat::MistralV11 => (["", ""], ["[TOOL_CALLS]NAME[ARGS]", ""]),
        CallFormat::DeepseekV3 => (
            ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
            [
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n",
                "\n```<｜tool▁call▁end｜>",
            ],
        ),
        CallFormat::DeepseekV31 => (
            ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
            ["<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
        ),
        CallFormat::KimiK2 => (
            ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
            [
                "<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
            ],
        ),
        CallFormat::Harmony => {
            (["", ""], ["<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>", ""])
        }
        _ => (["<tool_call>\n", "\n</tool_call>"], ["{\"name\": \"NAME\", \"arguments\": ", "}"]),
    }
}

/// Adds the rules of one call of these functions, in the form of the model.
pub(super) fn push_call_rules(
    rules: &mut Vec<String>,
    functions: &[&Value],
    style: &Style,
) -> Result<(), String> {
    let CallFrame { around: [before, after], call: [open, close], arguments } = frame(style.form());
    let tag = (style.form() == CallFormat::Pythonic && style.has_token("<|tool_call_start|>"))
        .then_some(["<|tool_call_start|>[", "]<|tool_call_end|>"]);
    let [before, after] = tag.unwrap_or([before, after]);
    rules.push(format!("calls: {} call {}", style.quote(before), style.quote(after)));
    let each: Vec<String> = (0..functions.len()).map(|i| format!("call_{i}")).collect();
    rules.push(format!("call: {}", each.join(" | ")));
    let mut forms = FormRules { rules, style, count: 0 };
    for (i, function) in functions.iter().enumerate() {
        let name = function["name"].as_str().unwrap_or_default();
        let [open, close] = [open, close].map(|text| style.quote(&text.replace("NAME", name)));
        let inside = forms.arguments(&function["parameters"], arguments)?;
        forms.rules.push(format!("call_{i}: {open} {inside} {close}"));
    }
    Ok(())
}

/// Writer of the rules of arguments.
struct FormRules<'r> {
    rules: &'r mut Vec<String>,
    style: &'r Style,
    /// Number of rules with a name of their own.
    count: usize,
}

/// A property of an object: its rule, and true if it is required.
type PropertyRule = (String, bool);

impl FormRules<'_> {
    /// Returns the expression of the arguments of a call.
    fn arguments(&mut self, parameters: &Value, form: ArgumentForm) -> Result<String, String> {
        match form {
            ArgumentForm::Json => {
                let mut schema = parameters.clone();
                // Arguments are an object in every case.
                if let Value::Object(schema) = &mut schema {
                    schema.entry("type").or_insert_with(|| "object".into());
                }
                self.json_rule(schema)
            }
            ArgumentForm::Tags(tags) => {
                let each = self.properties(parameters, |rules, key, schema| {
                    rules.tagged_value(key, schema, tags)
                })?;
                let each = each.into_iter().map(
                    |(rule, required)| {
                        if required { rule } else { format!("({rule})?") }
                    },
                );
                Ok(each.collect::<Vec<_>>().join(" "))
            }
            ArgumentForm::Python => {
                let each = self.properties(parameters, |rules, key, schema| {
                    Ok(format!(
                        "{} {}",
                        Value::from(format!("{key}=")),
                        rules.python_value(schema)?
                    ))
                })?;
                Ok(comma_separated(each, "\", \""))
            }
            ArgumentForm::Gemma => self.gemma_object(parameters),
        }
    }

    /// Returns the rule of each property.
    fn properties(
        &mut self,
        parameters: &Value,
        mut rule: impl FnMut(&mut Self, &str, &Value) -> Result<String, String>,
    ) -> Result<Vec<PropertyRule>, String> {
        let required = parameters["required"].as_array();
        let is_required = |key: &str| required.is_some_and(|all| all.iter().any(|one| one == key));
        let properties = parameters["properties"].as_object().into_iter().flatten();
        properties
            .map(|(key, schema)| {
                if schema.get("$ref").is_some() {
                    let what = "is a `$ref`, and calls in the form of this model need its type";
                    return Err(format!("the argument `{key}` {what}"));
                }
                Ok((rule(self, key, schema)?, is_required(key)))
            })
            .collect()
    }

    /// Adds a rule of JSON, and returns its name.
    fn json_rule(&mut self, schema: Value) -> Result<String, String> {
        let schema = argument_schema(schema)?;
        Ok(self.new_rule(&format!("%json {schema}")))
    }

    fn new_rule(&mut self, text: &str) -> String {
        let name = format!("part_{}", self.count);
        self.count += 1;
        self.rules.push(format!("{name}: {text}"));
        name
    }

    /// Returns the expression of a value between tags.
    fn tagged_value(
        &mut self,
        key: &str,
        schema: &Value,
        [open, close]: [&str; 2],
    ) -> Result<String, String> {
        let text = is_text(schema);
        let open = open.replace("KEY", key).replace("TEXT", if text { "true" } else { "false" });
        let (open, end) = (self.style.quote(&open), self.style.quote(close));
        if !text {
            return Ok(format!("{open} {} {end}", self.json_rule(schema.clone())?));
        }
        if let Some(words) = schema["enum"].as_array() {
            let words = words.iter().filter_map(Value::as_str).map(|word| self.style.quote(word));
            return Ok(format!("{open} ({}) {end}", words.collect::<Vec<_>>().join(" | ")));
        }
        if self.style.has_special(close) {
            return Ok(format!("{open} (/[^<]{}/)? {end}", repetition(schema, 1)));
        }
        let name = format!("part_{}[lazy]", self.count);
        let rule = format!("{name}: /(.|\\n){}{}/", repetition(schema, 0), escaped(close));
        self.rules.push(rule);
        self.count += 1;
        Ok(format!("{open} {}", name.trim_end_matches("[lazy]")))
    }

    /// Returns the expression of a Python literal.
    fn python_value(&mut self, schema: &Value) -> Result<String, String> {
        match schema["type"].as_str() {
            Some("boolean") => Ok("(\"True\" | \"False\")".to_owned()),
            Some("null") => Ok("\"None\"".to_owned()),
            _ => self.json_rule(schema.clone()),
        }
    }

    fn gemma_object(&mut self, schema: &Value) -> Result<String, String> {
        let each = self.properties(schema, |rules, key, schema| {
            Ok(format!("{} {}", Value::from(format!("{key}:")), rules.gemma_value(schema)?))
        })?;
        Ok(format!("\"{{\" {} \"}}\"", comma_separated(each, "\",\"")))
    }

    /// Returns the expression of a value of Gemma 4.
    fn gemma_value(&mut self, schema: &Value) -> Result<String, String> {
        const QUOTE: &str = "<|\"|>";
        let choices = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
        if let Some(choices) = choices {
            let each: Result<Vec<String>, String> =
                choices.iter().map(|choice| self.gemma_value(choice)).collect();
            return Ok(format!("({})", each?.join(" | ")));
        }
        if let Some(values) = schema["enum"].as_array() {
            let each = values.iter().map(|value| match value {
                Value::String(text) => self.style.quote(&format!("{QUOTE}{text}{QUOTE}")),
                other => Value::from(other.to_string()).to_string(),
            });
            return Ok(format!("({})", each.collect::<Vec<_>>().join(" | ")));
        }
        if let Some(names) = schema["type"].as_array() {
            let each = names.iter().map(|name| {
                let mut one = schema.clone();
                one["type"] = name.clone();
                self.gemma_value(&one)
            });
            return Ok(format!("({})", each.collect::<Result<Vec<_>, _>>()?.join(" | ")));
        }
        match schema["type"].as_str() {
            Some("object") => self.gemma_object(schema),
            Some("array") => {
                let item = self.gemma_value(schema.get("items").unwrap_or(&Value::Null))?;
                let item = self.new_rule(&item);
                Ok(format!("\"[\" ({item} (\",\" {item})*)? \"]\""))
            }
            Some("integer" | "number" | "boolean" | "null") => self.json_rule(schema.clone()),
            _ => {
                let quote = self.style.quote(QUOTE);
                let free = if self.style.has_special(QUOTE) { r"(.|\n)" } else { "[^<]" };
                Ok(format!("{quote} (/{free}{}/)? {quote}", repetition(schema, 1)))
            }
        }
    }
}

/// Returns the repetition of a character in the text of a schema, up to its `maxLength`. Larger bounds would take much memory,
/// and are left to the check of the arguments.
fn repetition(schema: &Value, least: usize) -> String {
    const LONGEST: u64 = 256;
    match schema["maxLength"].as_u64().filter(|most| (1..=LONGEST).contains(most)) {
        Some(most) => format!("{{{least},{most}}}"),
        None if least == 0 => "*".to_owned(),
        None => "+".to_owned(),
    }
}

/// Returns true for a schema whose values are written as texts.
fn is_text(schema: &Value) -> bool {
    match &schema["type"] {
        Value::String(name) => name == "string",
        Value::Array(names) => names.contains(&json!("string")),
        _ => schema["enum"].as_array().is_none_or(|values| values.iter().all(Value::is_string)),
    }
}

/// Returns the expression of properties with a separator between those that are there, the required ones first.
fn comma_separated(each: Vec<PropertyRule>, separator: &str) -> String {
    let (required, optional): (Vec<_>, Vec<_>) =
        each.into_iter().partition(|(_, required)| *required);
    let further = |rules: &[PropertyRule]| {
        rules.iter().map(|(rule, _)| format!(" ({separator} {rule})?")).collect::<String>()
    };
    if required.is_empty() {
        let starts = (0..optional.len())
            .map(|i| format!("({}{})", optional[i].0, further(&optional[i + 1..])));
        let starts: Vec<String> = starts.collect();
        return if starts.is_empty() {
            String::new()
        } else {
            format!("({})?", starts.join(" | "))
        };
    }
    let rules: Vec<&str> = required.iter().map(|(rule, _)| rule.as_str()).collect();
    rules.join(&format!(" {separator} ")) + &further(&optional)
}
