//! Descriptions of tools as text, for models whose chat template does not support tools.

use serde_json::Value;

/// Describes the tools, one line each, and the format of calls. `declarations` have the form of `Tool::declaration`.
pub fn describe(declarations: &[Value]) -> String {
    let lines: Vec<String> = declarations.iter().map(line).collect();
    format!(
        "You can call:\n{}\nCall with <tool_call>{{\"name\": .., \"arguments\": {{..}}}}</tool_call>.",
        lines.join("\n")
    )
}

/// Formats `name(field: type, other?: type): description`, and the descriptions of its fields.
fn line(declaration: &Value) -> String {
    let function = &declaration["function"];
    let parameters = &function["parameters"];
    let required = parameters["required"].as_array();
    let fields = parameters["properties"].as_object().into_iter().flatten();
    let signature = fields.clone().map(|(name, schema)| {
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
        format!("{name}{}: {}", if is_required { "" } else { "?" }, kind(schema))
    });
    let signature = signature.collect::<Vec<_>>().join(", ");
    let (name, about) = (trimmed_text(&function["name"]), trimmed_text(&function["description"]));
    let mut line = format!("{name}({signature}): {about}");
    for (name, schema) in fields.filter(|(_, schema)| schema["description"].is_string()) {
        line.push_str(&format!("\n  {name}: {}", trimmed_text(&schema["description"])));
    }
    line
}

fn trimmed_text(value: &Value) -> &str {
    value.as_str().unwrap_or_default().trim()
}

/// Formats the type of a field in its shortest form, or its whole schema if it has no type.
fn kind(schema: &Value) -> String {
    match (schema.get("enum"), schema.get("type")) {
        (Some(Value::Array(values)), _) | (None, Some(Value::Array(values))) => {
            let words =
                values.iter().map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
            words.collect::<Vec<_>>().join("|")
        }
        (_, Some(Value::String(name))) if name == "array" => {
            format!("[{}]", schema.get("items").map(kind).unwrap_or_default())
        }
        (_, Some(Value::String(name)))
            if name == "object" && schema.get("properties").is_some() =>
        {
            schema.to_string()
        }
        (_, Some(Value::String(name))) => name.clone(),
        _ => schema.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_a_line_with_its_fields_and_their_types() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "days": {"type": ["integer", "null"]},
                "unit": {"enum": ["C", "F"]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        });
        let function =
            json!({"name": "rain", "description": "Will it rain?", "parameters": parameters});
        let text = describe(&[json!({"type": "function", "function": function})]);
        let wanted = "rain(city: string, days?: integer|null, unit?: C|F, tags?: [string]): Will it rain?\n  city: where";
        assert!(text.contains(wanted), "{text}");
    }
}
