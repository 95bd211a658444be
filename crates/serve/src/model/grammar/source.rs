//! The text of a grammar, in llguidance's variant of Lark.

use serde_json::{Value, json};

use super::forms::push_call_rules;
use super::multiples::{argument_schema, compact_schema};
use super::style::Style;
use crate::openai::{StructuredForm, Tools};

/// Returns the grammar of a form. An answer of a form may be a call instead, if there are tools.
///
/// # Errors
///
/// For a schema with numbers that the lexer cannot count with.
pub(super) fn source(
    form: &StructuredForm,
    tools: &Tools,
    style: &Style,
) -> Result<String, String> {
    let mut rules = if style.thinking {
        style.thought_rules().to_vec()
    } else {
        vec!["start: body".to_owned()]
    };
    match form {
        StructuredForm::Json(schema) => {
            let either = if tools.declared.is_empty() { "answer" } else { "answer | calls" };
            rules.push(format!("body: {either}"));
            let schema = schema.clone().unwrap_or_else(|| json!({"type": "object"}));
            rules.push(format!("answer: %json {}", compact_schema(schema)?));
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
    style: &Style,
) -> Result<(), String> {
    let functions = tools.declared.iter().map(|tool| &tool["function"]);
    let functions = functions.filter(|function| name.is_none_or(|name| function["name"] == name));
    let functions: Vec<&Value> = functions.collect();
    // One call: a weak model would write the next one without end.
    if !style.form().is_json() {
        return push_call_rules(rules, &functions, style);
    }
    let tagged = r#"calls: "<tool_call>\n" call "\n</tool_call>""#;
    rules.push(if style.tagged { tagged } else { "calls: call" }.to_owned());
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
        rules.push(format!("arguments_{i}: %json {}", argument_schema(schema)?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use maverl::files::{ModelFiles, ModelSource};
    use maverl::text::Tokenizer;
    use maverl::tools::ReplyFormat;

    fn tools(names: &[&str], most: usize) -> Tools {
        let declared = names.iter().map(|name| {
            json!({"type": "function", "function": {"name": name, "parameters": {"properties": {}}}})
        });
        Tools { declared: declared.collect(), most, ..Tools::default() }
    }

    fn tokenizer() -> Tokenizer {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        Tokenizer::load(&files).unwrap()
    }

    /// Returns the style of a model that writes JSON.
    fn json_style(rendered: &str, thinking: bool) -> Style {
        Style::of(rendered, thinking, &Arc::default(), &tokenizer())
    }

    #[test]
    fn a_style_follows_the_prompt() {
        let hermes = json_style("within <tool_call></tool_call> tags", false);
        assert!(hermes.tagged && hermes.arguments == "arguments");
        let llama = json_style(r#"{"name": function name, "parameters": dictionary of .."#, true);
        assert!(!llama.tagged && llama.arguments == "parameters" && llama.thinking);
    }

    #[test]
    fn special_tokens_are_in_a_rule_by_their_ids() {
        let tokenizer = tokenizer();
        let id = tokenizer.stop_ids()[0];
        let token = tokenizer.decode_raw(&[id]);
        let format = ReplyFormat { kept: vec![id], ..ReplyFormat::default() };
        let style = Style::of("", false, &Arc::new(format), &tokenizer);
        assert_eq!(style.quote(&format!("a{token}b\n")), format!("\"a\" <[{id}]> \"b\\n\""));
        assert!(style.has_special(&format!("a{token}")) && style.quote("").is_empty());
    }

    #[test]
    fn a_grammar_has_the_rules_of_its_form() {
        let hermes = &json_style("<tool_call>", false);
        let forced =
            source(&StructuredForm::Call(Some("g".to_owned())), &tools(&["f", "g"], 9), hermes)
                .unwrap();
        assert!(forced.contains("call: call_0\n") && forced.contains("</tool_call>"), "{forced}");
        assert!(forced.contains(r#"{\"name\": \"g\", \"arguments\": "#), "{forced}");
        let any = source(&StructuredForm::Call(None), &tools(&["f", "g"], 9), hermes).unwrap();
        assert!(any.contains("call: call_0 | call_1"), "{any}");
        let one =
            source(&StructuredForm::Call(None), &tools(&["f"], 1), &json_style("", true)).unwrap();
        assert!(one.contains("thoughts[lazy]") && one.contains("calls: call\n"), "{one}");
        let both = source(&StructuredForm::Json(None), &tools(&["f"], 1), hermes).unwrap();
        assert!(both.contains("body: answer | calls"), "{both}");
        let alone = source(&StructuredForm::Json(None), &Tools::default(), hermes).unwrap();
        assert!(alone.contains("body: answer\n"), "{alone}");
    }
}
