//! Way in which a model writes calls and thoughts, for the rules of its grammar.

use std::sync::Arc;

use serde_json::Value;

use maverl::text::Tokenizer;
use maverl::tools::{CallFormat, ReplyFormat};

/// Way in which a model writes.
#[derive(Debug, Clone)]
pub(in crate::model) struct Style {
    /// Calls cannot be taken for an answer in JSON.
    pub(in crate::model) tagged: bool,
    /// Name of the arguments in a call.
    pub(super) arguments: &'static str,
    /// The reply begins within thoughts, which are free.
    pub(super) thinking: bool,
    format: Arc<ReplyFormat>,
    /// Special tokens that the form is written with.
    special: Vec<(String, u32)>,
}

impl Style {
    /// Returns the style that a rendered prompt asks for, of a model with this form of replies.
    pub(in crate::model) fn of(
        rendered: &str,
        thinking: bool,
        format: &Arc<ReplyFormat>,
        tokenizer: &Tokenizer,
    ) -> Self {
        let hermes = format.calls.is_json() && rendered.contains("<tool_call>");
        let llama = format.calls.is_json()
            && !hermes
            && (format.calls == CallFormat::Llama3Json
                || rendered.contains("\"parameters\": dictionary"));
        let special = format
            .kept
            .iter()
            .map(|&id| (String::from_utf8_lossy(&tokenizer.token_bytes(id)).into_owned(), id));
        Self {
            tagged: hermes || !(format.calls.is_json() || format.calls == CallFormat::Pythonic),
            arguments: if llama { "parameters" } else { "arguments" },
            thinking,
            format: Arc::clone(format),
            special: special.collect(),
        }
    }

    /// Returns the form of calls.
    pub(super) fn form(&self) -> CallFormat {
        self.format.calls
    }

    /// Returns true if a text contains a special token.
    pub(super) fn has_special(&self, text: &str) -> bool {
        self.special.iter().any(|(token, _)| text.contains(token.as_str()))
    }

    /// Returns true if this token is special.
    pub(super) fn has_token(&self, token: &str) -> bool {
        self.special.iter().any(|(other, _)| other == token)
    }

    /// Returns a text as a rule has it: in quotes, with special tokens by their ids.
    pub(super) fn quote(&self, text: &str) -> String {
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let places = self
                .special
                .iter()
                .filter_map(|(token, id)| Some((rest.find(token.as_str())?, token.len(), *id)));
            let Some((at, len, id)) = places.min() else {
                parts.push(Value::from(rest).to_string());
                break;
            };
            if at > 0 {
                parts.push(Value::from(&rest[..at]).to_string());
            }
            parts.push(format!("<[{id}]>"));
            rest = &rest[at + len..];
        }
        parts.join(" ")
    }

    /// Returns the rules of a reply that begins within thoughts.
    pub(super) fn thought_rules(&self) -> [String; 2] {
        let close = self.format.thoughts.close.as_str();
        if self.has_special(close) {
            let start = format!("start: (thoughts)? {} body", self.quote(close));
            return [start, r"thoughts: /(.|\n)+/".to_owned()];
        }
        let blank = if self.format.thoughts.is_think() { r#" "\n\n""# } else { "" };
        let start = format!("start: thoughts{blank} body");
        [start, format!(r"thoughts[lazy]: /(.|\n)*{}/", escaped(close))]
    }
}

/// Returns a text within a regular expression of a rule.
pub(super) fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => "\\n".to_owned(),
            c if c.is_ascii_punctuation() && !"<>_:=".contains(c) => format!("\\{c}"),
            c => c.to_string(),
        })
        .collect()
}
