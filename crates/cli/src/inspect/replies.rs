//! Form in which a model writes calls and thoughts, as its chat template renders them.

use serde::Serialize;

use maverl::text::Tokenizer;
use maverl::tools::{CallFormat, ReplyFormat, TemplateCalls, ThoughtFormat, template_calls};

/// Forms of the replies of a model.
#[derive(Debug, Serialize)]
pub(super) struct ReplySummary {
    /// Name of the form of calls; `None` if the template renders calls in no known form.
    calls: Option<String>,
    /// Reason for the form of calls.
    reason: String,
    /// Texts with which calls are written that are no tokens of the vocabulary.
    missing_tokens: Vec<String>,
    /// Form of thoughts.
    thoughts: String,
}

impl ReplySummary {
    pub(super) fn of(tokenizer: &Tokenizer) -> Self {
        let format = ReplyFormat::of_model(tokenizer, CallFormat::Auto, &ThoughtFormat::Auto);
        let asked = match format.calls {
            CallFormat::Harmony => TemplateCalls::Found(CallFormat::Harmony),
            _ => template_calls(tokenizer),
        };
        let (calls, reason) = match &asked {
            TemplateCalls::Found(_) => (asked.found(), "from the chat template".to_owned()),
            TemplateCalls::NoTools => {
                let reason = "described in the prompt: the chat template takes no tools";
                (Some(CallFormat::Hermes), reason.to_owned())
            }
            _ => (None, asked.warning().unwrap_or_default()),
        };
        let tokens = asked.found().map_or(&[][..], CallFormat::tokens).iter();
        let missing = tokens.filter(|token| tokenizer.token_id(token).is_none());
        let thoughts = match format.calls {
            CallFormat::Harmony => ThoughtFormat::Harmony,
            _ => ThoughtFormat::Tags(format.thoughts),
        };
        Self {
            calls: calls.map(CallFormat::name),
            reason,
            missing_tokens: missing.map(|token| (*token).to_owned()).collect(),
            thoughts: thoughts.to_string(),
        }
    }

    /// Returns the lines of a report, each with its label.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let Self { calls, reason, missing_tokens, thoughts } = self;
        let mut text = match calls {
            Some(name) => format!("{name} ({reason})"),
            None => reason.clone(),
        };
        if !missing_tokens.is_empty() {
            let missing: Vec<String> =
                missing_tokens.iter().map(|token| format!("`{token}`")).collect();
            text += &format!("; no token of the vocabulary: {}", missing.join(", "));
        }
        vec![("calls", text), ("thoughts", thoughts.clone())]
    }
}
