//! Requests for replies of a given form: `response_format`, and calls that must be made.

use serde_json::{Value, json};

use super::fields::shown;
use super::{Fields, ToolChoice};
use crate::model::ChatMessage;
use crate::serve::Refusal;

/// Treatment of requests for a form of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::serve) enum Structured {
    /// Such a request is refused.
    #[default]
    Refuse,
    /// The form is described in the system section. Nothing enforces it.
    Prompt,
}

/// A form of the reply in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::serve) struct Wanted(Option<String>);

impl Wanted {
    /// Reads `response_format`.
    pub(in crate::serve) fn read(
        fields: &mut Fields,
        choice: &ToolChoice,
        structured: Structured,
    ) -> Result<Self, Refusal> {
        let mut wanted = match choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some("Reply with a call of one of the tools.".to_owned()),
            ToolChoice::Named(name) => Some(format!("Reply with a call of the tool `{name}`.")),
        };
        if wanted.is_some() && structured == Structured::Refuse {
            let what = "demands a call, which this server does not enforce; write \"auto\", or start it with `--structured \
                        prompt`, which asks the model for the call in words";
            return Err(unsupported(fields.error("tool_choice", what)));
        }
        let Some(format) = fields.take("response_format") else { return Ok(Self(wanted)) };
        let asked = match format["type"].as_str() {
            Some("text") => None,
            Some("json_object") => Some("Reply with one JSON object and nothing else.".to_owned()),
            Some("json_schema") => {
                let schema = &format["json_schema"]["schema"];
                let schema = if schema.is_null() { &json!({}) } else { schema };
                Some(format!(
                    "Reply with one JSON value that satisfies this JSON schema, and nothing else:\n{schema}"
                ))
            }
            _ => {
                return Err(fields.wrong(
                    "response_format",
                    &format,
                    "`{\"type\": ..}` of text, json_object or json_schema",
                ));
            }
        };
        if asked.is_some() && structured == Structured::Refuse {
            let what = format!(
                "is {}, which this server does not enforce; start it with `--structured prompt`, which describes the form to \
                 the model in words",
                shown(&format)
            );
            return Err(unsupported(fields.error("response_format", &what)));
        }
        wanted = wanted.or(asked);
        Ok(Self(wanted))
    }
}

fn unsupported(refusal: Refusal) -> Refusal {
    refusal.with_code("unsupported_value")
}

/// Adds the wanted form to the system section of a conversation.
pub(in crate::serve) fn with_system(
    messages: Vec<ChatMessage>,
    wanted: &Wanted,
) -> Vec<ChatMessage> {
    let Some(words) = &wanted.0 else { return messages };
    let mut rest = messages.into_iter().peekable();
    let system = rest.next_if(|first| first.role() == "system");
    let text = system.as_ref().and_then(|message| message.get("content")).and_then(Value::as_str);
    let text = match text.filter(|text| !text.is_empty()) {
        Some(text) => format!("{text}\n\n{words}"),
        None => words.clone(),
    };
    std::iter::once(ChatMessage::new("system", text)).chain(rest).collect()
}
