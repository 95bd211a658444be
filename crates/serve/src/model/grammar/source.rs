//! The text of a grammar, in llguidance's variant of Lark.

use serde_json::{Value, json};

use super::multiples::check_multiples;
use crate::openai::{StructuredForm, Tools};

/// Way in which a model writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Style {
    /// Calls have the tags of Hermes; otherwise a call is the whole reply.
    pub(in crate::model) tagged: bool,
    /// Name of the arguments in a call.
    arguments: &'static str,
    /// The reply begins within thoughts, which are free.
    thinking: bool,
}

impl Style {
    /// Returns the style that a rendered prompt asks for.
    pub(in crate::model) fn of(rendered: &str, thinking: bool) -> Self {
        let tagged = rendered.contains("<tool_call>");
        let llama = !tagged && rendered.contains("\"parameters\": dictionary");
        Self { tagged, arguments: if llama { "parameters" } else { "arguments" }, thinking }
    }
}

/// Returns the grammar of a form. An answer of a form may be a call instead, if there are tools.
///
/// # Errors
///
/// For a schema with numbers that the lexer cannot count with.
pub(super) fn source(form: &StructuredForm, tools: &Tools, style: Style) -> Result<String, String> {
    let mut rules = if style.thinking {
        vec![
            r#"start: thoughts "\n\n" body"#.to_owned(),
            r"thoughts[lazy]: /(.|\n)*<\/think>/".to_owned(),
        ]
    } else {
        vec!["start: body".to_owned()]
    };
    match form {
        StructuredForm::Json(schema) => {
            let either = if tools.declared.is_empty() { "answer" } else { "answer | calls" };
            rules.push(format!("body: {either}"));
            let schema = schema.clone().unwrap_or_else(|| json!({"type": "object"}));
            rules.push(format!("answer: %json {}", compact(schema)?));
            if !tools.declared.is_empty() {
                calls(&mut rules, tools, None, style)?;
            }
        }
        StructuredForm::Call(name) => {
            rules.push("body: calls".to_owned());
            calls(&mut rules, tools, name.as_deref(), style)?;
        }
    }
    Ok(rules.join("\n"))
}

/// Adds the rules of a call: of one tool, or of any.
fn calls(
    rules: &mut Vec<String>,
    tools: &Tools,
    name: Option<&str>,
    style: Style,
) -> Result<(), String> {
    // One call: a weak model would write the next one without end.
    let tagged = r#"calls: "<tool_call>\n" call "\n</tool_call>""#;
    rules.push(if style.tagged { tagged } else { "calls: call" }.to_owned());
    let functions = tools.declared.iter().map(|tool| &tool["function"]);
    let functions = functions.filter(|function| name.is_none_or(|name| function["name"] == name));
    let functions: Vec<&Value> = functions.collect();
    let each: Vec<String> = (0..functions.len()).map(|i| format!("call_{i}")).collect();
    rules.push(format!("call: {}", each.join(" | ")));
    for (i, function) in functions.into_iter().enumerate() {
        let begin = format!("{{\"name\": {}, \"{}\": ", function["name"], style.arguments);
        rules.push(format!("call_{i}: {} arguments_{i} \"}}\"", Value::from(begin)));
        let mut schema = function["parameters"].clone();
        // Arguments are an object in every case.
        if let Value::Object(schema) = &mut schema {
            schema.entry("type").or_insert_with(|| "object".into());
        }
        rules.push(format!("arguments_{i}: %json {}", compact(schema)?));
    }
    Ok(())
}

/// Returns a schema whose values have one form: on one line, with a blank after each comma and colon. Where blanks are free,
/// a weak model writes them without end.
fn compact(schema: Value) -> Result<Value, String> {
    check_multiples(&schema)?;
    let Value::Object(mut schema) = schema else { return Ok(schema) };
    let spelled =
        json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
    schema.insert("x-guidance".to_owned(), spelled);
    Ok(Value::Object(schema))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn tools(names: &[&str], most: usize) -> Tools {
        let declared = names.iter().map(|name| {
            json!({"type": "function", "function": {"name": name, "parameters": {"properties": {}}}})
        });
        Tools { declared: declared.collect(), most, ..Tools::default() }
    }

    #[test]
    fn a_style_follows_the_prompt() {
        let hermes = Style::of("within <tool_call></tool_call> tags", false);
        assert!(hermes.tagged && hermes.arguments == "arguments");
        let llama = Style::of(r#"{"name": function name, "parameters": dictionary of .."#, true);
        assert!(!llama.tagged && llama.arguments == "parameters" && llama.thinking);
    }

    #[test]
    fn a_grammar_has_the_rules_of_its_form() {
        let hermes = Style::of("<tool_call>", false);
        let forced =
            source(&StructuredForm::Call(Some("g".to_owned())), &tools(&["f", "g"], 9), hermes)
                .unwrap();
        assert!(forced.contains("call: call_0\n") && forced.contains("</tool_call>"), "{forced}");
        assert!(forced.contains(r#"{\"name\": \"g\", \"arguments\": "#), "{forced}");
        let any = source(&StructuredForm::Call(None), &tools(&["f", "g"], 9), hermes).unwrap();
        assert!(any.contains("call: call_0 | call_1"), "{any}");
        let one =
            source(&StructuredForm::Call(None), &tools(&["f"], 1), Style::of("", true)).unwrap();
        assert!(one.contains("thoughts[lazy]") && one.contains("calls: call\n"), "{one}");
        let both = source(&StructuredForm::Json(None), &tools(&["f"], 1), hermes).unwrap();
        assert!(both.contains("body: answer | calls"), "{both}");
        let alone = source(&StructuredForm::Json(None), &Tools::default(), hermes).unwrap();
        assert!(alone.contains("body: answer\n"), "{alone}");
    }
}
