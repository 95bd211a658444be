//! Texts of a team as actions of OpenEnv, and observations of OpenEnv as texts.

use serde_json::{Map, Value, json};

/// Forms of actions and observations that are not the name of a field.
pub(super) const AUTO: &str = "auto";
pub(super) const JSON: &str = "json";

/// Fields of every action, which no action needs.
const COMMON: [&str; 2] = ["metadata", "type"];
/// Fields of observations that hold a text, in the order in which they are shown.
const TEXTS: [&str; 6] = ["text", "prompt", "message", "result", "stdout", "stderr"];
/// Field of observations of calls that repeats what was called.
const CALLED: &str = "tool_name";
/// Fields of observations that are not shown.
const HIDDEN: [&str; 3] = ["done", "reward", "metadata"];
/// Fields of actions that end an episode with an answer.
const ANSWERS: [&str; 2] = ["answer", "final_answer"];
/// Field that makes another one an answer.
const FINAL: &str = "final";

/// Fields of the actions of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ActionForm {
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl ActionForm {
    /// Reads the JSON Schema of actions.
    pub(super) fn of_schema(schema: &Value) -> Self {
        let mut properties = schema["properties"].as_object().cloned().unwrap_or_default();
        properties.retain(|name, _| !COMMON.contains(&name.as_str()));
        let required = schema["required"].as_array().into_iter().flatten();
        let required = required.filter_map(Value::as_str).filter(|name| !COMMON.contains(name));
        Self { properties, required: required.map(str::to_owned).collect() }
    }

    /// Returns true if the actions are calls of tools.
    pub(super) fn calls_tools(&self) -> bool {
        self.properties.contains_key("tool_name")
    }

    /// Returns the action that ends an episode with an answer, if the server has one: with a field for it, or with
    /// `final` beside the only required field.
    pub(super) fn answer(&self, text: &str) -> Option<Value> {
        let of_answers = ANSWERS.into_iter().find(|field| {
            self.properties.contains_key(*field) && self.required.iter().all(|name| name == field)
        });
        if let Some(field) = of_answers {
            return Some(json!({field: text}));
        }
        let last = self.properties.get(FINAL).and_then(kind) == Some("boolean");
        match self.required.as_slice() {
            [only] if last => Some(json!({only: text, FINAL: true})),
            _ => None,
        }
    }

    /// Returns the action of a text, or a description of what an action is.
    pub(super) fn action(&self, form: &str, text: &str) -> Result<Value, String> {
        if [AUTO, JSON].contains(&form)
            && let Some(action) = object(text)
        {
            return Ok(action);
        }
        let field = match (form, self.required.as_slice()) {
            (AUTO, [only]) => only,
            (AUTO | JSON, _) => return Err(self.description()),
            (field, _) => field,
        };
        let value = typed_value(self.properties.get(field).unwrap_or(&Value::Null), text)?;
        Ok(Value::Object(Map::from_iter([(field.to_owned(), value)])))
    }

    fn description(&self) -> String {
        let names = self.properties.keys().map(|name| {
            let optional = if self.required.contains(name) { "" } else { " (optional)" };
            format!("`{name}`{optional}")
        });
        let names: Vec<String> = names.collect();
        if names.is_empty() {
            "an action is a JSON object".to_owned()
        } else {
            format!("an action is a JSON object with {}", names.join(", "))
        }
    }
}

/// Returns a text that is a JSON object, in a fence or not.
fn object(text: &str) -> Option<Value> {
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let inner = fenced.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner));
    serde_json::from_str(inner.trim()).ok().filter(Value::is_object)
}

/// Returns a text as a value of a schema.
fn typed_value(schema: &Value, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let Some(kind @ ("integer" | "number" | "boolean")) = kind(schema) else {
        return Ok(Value::String(text.to_owned()));
    };
    match serde_json::from_str::<Value>(text) {
        Ok(value) if kind == "integer" && (value.is_i64() || value.is_u64()) => Ok(value),
        Ok(value) if kind == "number" && value.is_number() => Ok(value),
        Ok(value) if kind == "boolean" && value.is_boolean() => Ok(value),
        _ => Err(format!("an action is of type {kind}, as its JSON Schema says")),
    }
}

/// Returns the type of a schema; of several, the first that is not null.
fn kind(schema: &Value) -> Option<&str> {
    let several = schema["anyOf"].as_array().into_iter().flatten();
    let mut kinds = std::iter::once(schema).chain(several).filter_map(|one| one["type"].as_str());
    kinds.find(|kind| *kind != "null")
}

/// Returns the text of an observation: of a field, of all as JSON, or of the fields that hold texts.
pub(super) fn show_observation(form: &str, observation: &Value) -> String {
    match form {
        AUTO => auto(observation),
        JSON => compact(observation),
        field => text(&observation[field]),
    }
}

fn auto(observation: &Value) -> String {
    if let Some(error) = observation["error"]["message"].as_str() {
        return format!("error: {error}");
    }
    let texts = TEXTS.iter().map(|field| text(&observation[*field]));
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    if !texts.is_empty() {
        texts.join("\n")
    } else if is_silent(observation) {
        String::new()
    } else {
        compact(observation)
    }
}

/// Returns true if an observation has fields that hold texts, all of them empty, and shows nothing else.
fn is_silent(observation: &Value) -> bool {
    let fields = observation.as_object().into_iter().flatten();
    let shown = fields.filter(|(name, _)| !HIDDEN.contains(&name.as_str()) && *name != CALLED);
    let mut values = shown.map(|(_, value)| value).filter(|value| !value.is_null()).peekable();
    values.peek().is_some() && values.all(|value| value == "")
}

/// Returns the text of a value. A result of the Model Context Protocol is the texts of its content.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(result) if result.get("content").is_some_and(Value::is_array) => {
            let parts = value["content"].as_array().into_iter().flatten();
            let parts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
            parts.join("\n")
        }
        other => other.to_string(),
    }
}

fn compact(observation: &Value) -> String {
    let mut shown = observation.clone();
    if let Some(fields) = shown.as_object_mut() {
        fields.retain(|name, _| !HIDDEN.contains(&name.as_str()));
        if fields.is_empty() {
            return String::new();
        }
    }
    shown.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

    use super::*;

    fn form(properties: Value, required: Value) -> ActionForm {
        ActionForm::of_schema(&json!({"properties": properties, "required": required}))
    }

    #[test]
    fn a_text_is_the_only_required_field_or_a_json_object() {
        let one = form(
            json!({"message": {"type": "string"}, "final": {"type": "boolean"}, "metadata": {}}),
            json!(["message"]),
        );
        assert_eq!(one.action(AUTO, " hi "), Ok(json!({"message": "hi"})));
        let action = json!({"message": "hi", "final": true});
        for text in
            [action.to_string(), format!("```json\n{action}\n```"), format!("```{action}```")]
        {
            assert_eq!(one.action(AUTO, &text), Ok(action.clone()), "{text}");
        }
        assert_eq!(one.action("final", "true"), Ok(json!({"final": true})));
        assert_eq!(one.action("message", "{\"a\": 1}"), Ok(json!({"message": "{\"a\": 1}"})));
        let told = one.action(JSON, "hi").unwrap_err();
        assert_eq!(told, "an action is a JSON object with `message`, `final` (optional)");
        let several =
            form(json!({"row": {"type": "integer"}, "column": {}}), json!(["row", "column"]));
        assert!(several.action(AUTO, "3").unwrap_err().contains("`row`, `column`"));
        let none =
            form(json!({"code": {"anyOf": [{"type": "null"}, {"type": "string"}]}}), json!([]));
        assert!(none.action(AUTO, "x = 1").is_err());
        assert_eq!(none.action("code", "x = 1"), Ok(json!({"code": "x = 1"})));
    }

    #[test]
    fn a_text_becomes_a_value_of_the_type_that_the_schema_names() {
        let of = |kind: &str| form(json!({"move": {"type": kind}}), json!(["move"]));
        assert_eq!(of("integer").action(AUTO, " -4\n"), Ok(json!({"move": -4})));
        assert_eq!(of("number").action(AUTO, "0.5"), Ok(json!({"move": 0.5})));
        for text in ["four", "4.5", "", "\"4\""] {
            let told = of("integer").action(AUTO, text).unwrap_err();
            assert!(told.contains("of type integer"), "{text}: {told}");
        }
    }

    #[test]
    fn an_observation_shows_its_texts_or_else_its_fields() {
        let seen = json!({"prompt": "Play.", "stdout": "", "stderr": "warning", "legal_actions": [1], "metadata": {}});
        assert_eq!(show_observation(AUTO, &seen), "Play.\nwarning");
        assert_eq!(show_observation("legal_actions", &seen), "[1]");
        let fields = json!({"board": [0, 1], "metadata": {"a": 1}});
        assert_eq!(show_observation(AUTO, &fields), "{\"board\":[0,1]}");
        assert_eq!(show_observation(AUTO, &json!({"metadata": {}})), "");
        for silent in [
            json!({"text": "", "metadata": {}}),
            json!({"tool_name": "log", "result": "", "error": null}),
            json!({"stdout": "", "stderr": ""}),
        ] {
            assert_eq!(show_observation(AUTO, &silent), "", "{silent}");
        }
        let code = json!({"stdout": "", "stderr": "", "exit_code": 0});
        assert_eq!(show_observation(AUTO, &code), code.to_string());
        let called = json!({"tool_name": "add", "result": {"content": [{"type": "text", "text": "5"}]}, "error": null});
        assert_eq!(show_observation(AUTO, &called), "5");
        let failed =
            json!({"result": null, "error": {"error_type": "timeout", "message": "too slow"}});
        assert_eq!(show_observation(AUTO, &failed), "error: too slow");
    }

    #[test]
    fn an_answer_needs_a_field_that_is_enough_or_one_that_says_so() {
        let answer =
            |required: Value| form(json!({"answer": {}, "code": {}}), required).answer("4");
        assert_eq!(answer(json!([])), Some(json!({"answer": "4"})));
        assert_eq!(answer(json!(["answer"])), Some(json!({"answer": "4"})));
        assert_eq!(answer(json!(["code"])), None);
        let message = |last: Value| form(json!({"message": {}, "final": last}), json!(["message"]));
        let last = message(json!({"type": "boolean"})).answer("4");
        assert_eq!(last, Some(json!({"message": "4", "final": true})));
        assert_eq!(message(json!({"type": "string"})).answer("4"), None);
        assert!(form(json!({"tool_name": {}}), json!([])).calls_tools());
    }
}
