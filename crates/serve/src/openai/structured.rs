//! Requests for replies of a given form: `response_format`, and calls that must be made.

use serde_json::Value;

use super::calls::ToolChoice;
use super::fields::show_value;
use crate::refusal::Refusal;
use maverl::text::ChatMessage;

/// Treatment of requests for a form of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Structured {
    /// Such a request is refused.
    #[default]
    Refuse,
    /// The form is described in the system section. Nothing enforces it.
    Prompt,
    /// Every token is one that the form allows.
    #[cfg(feature = "grammar")]
    Grammar,
}

/// A form that a request wants its reply to have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StructuredForm {
    /// A JSON value that satisfies this schema; `None` for any object.
    Json(Option<Value>),
    /// A call, of this tool if it is named.
    Call(Option<String>),
}

impl StructuredForm {
    /// Describes the form to the model.
    fn describe_form(&self) -> String {
        match self {
            Self::Json(None) => "Reply with one JSON object and nothing else.".to_owned(),
            Self::Json(Some(schema)) => format!(
                "Reply with one JSON value that satisfies this JSON schema, and nothing else:\n{schema}"
            ),
            Self::Call(None) => "Reply with a call of one of the tools.".to_owned(),
            Self::Call(Some(name)) => format!("Reply with a call of the tool `{name}`."),
        }
    }
}

/// Way in which a reply gets the form that a request wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct WantedForm {
    /// Words for the model.
    words: Option<String>,
    /// Form that is enforced.
    #[cfg(feature = "grammar")]
    pub(crate) enforced: Option<StructuredForm>,
}

impl WantedForm {
    /// Reads `response_format`. A demanded call comes before it.
    pub(crate) fn read(
        format: Option<&Value>,
        choice: &ToolChoice,
        structured: Structured,
    ) -> Result<Self, Refusal> {
        let call = match choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(StructuredForm::Call(None)),
            ToolChoice::Named(name) => Some(StructuredForm::Call(Some(name.clone()))),
        };
        if call.is_some() && structured == Structured::Refuse {
            let what = "demands a call, which this server does not enforce; write \"auto\", or start it with `--structured \
                        grammar`, or with `--structured prompt`, which asks the model for the call in words";
            return Err(unsupported_form("tool_choice", what));
        }
        let asked = format.map(form).transpose()?.flatten();
        if let Some(format) = format.filter(|_| asked.is_some() && structured == Structured::Refuse)
        {
            let what = format!(
                "is {}, which this server does not enforce; start it with `--structured grammar`, or with `--structured \
                 prompt`, which describes the form to the model in words",
                show_value(format)
            );
            return Err(unsupported_form("response_format", &what));
        }
        let form = call.or(asked);
        #[cfg(feature = "grammar")]
        if structured == Structured::Grammar {
            return Ok(Self { words: None, enforced: form });
        }
        Ok(Self {
            words: form.map(|form| form.describe_form()),
            #[cfg(feature = "grammar")]
            enforced: None,
        })
    }
}

/// Reads the form that `response_format` asks for.
fn form(format: &Value) -> Result<Option<StructuredForm>, Refusal> {
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(StructuredForm::Json(None))),
        Some("json_schema") => {
            let schema = &format["json_schema"]["schema"];
            if schema.is_null() {
                let what = "is missing; write `{\"type\": \"json_schema\", \"json_schema\": {\"name\": .., \"schema\": {..}}}`";
                return Err(Refusal::field("response_format.json_schema.schema", what));
            }
            Ok(Some(StructuredForm::Json(Some(schema.clone()))))
        }
        _ => Err(Refusal::field_value(
            "response_format",
            format,
            "`{\"type\": ..}` of text, json_object or json_schema",
        )),
    }
}

fn unsupported_form(name: &str, what: &str) -> Refusal {
    Refusal::field(name, what).with_code("unsupported_value")
}

/// Adds the wanted form to the system section of a conversation.
pub(crate) fn with_system(messages: Vec<ChatMessage>, wanted: &WantedForm) -> Vec<ChatMessage> {
    let Some(words) = &wanted.words else { return messages };
    let mut rest = messages.into_iter().peekable();
    let system = rest.next_if(|first| first.role() == "system");
    let text = system.as_ref().and_then(|message| message.get("content")).and_then(Value::as_str);
    let text = match text.filter(|text| !text.is_empty()) {
        Some(text) => format!("{text}\n\n{words}"),
        None => words.clone(),
    };
    std::iter::once(ChatMessage::new("system", text)).chain(rest).collect()
}
