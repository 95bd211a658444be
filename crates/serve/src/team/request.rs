//! A request as a question for the team.

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::server::{History, ServedTeam, TeamSettings};
use crate::openai::{Choices, Fields, MaxTokens, Streaming, messages};
use crate::refusal::Refusal;
use maverl::runtime::Sampling;
use maverl::task::Task;
use maverl::text::ChatMessage;

/// Fields that a team does not have, beside those that no model has.
const OF_MODELS: [&str; 8] = [
    "tools",
    "tool_choice",
    "response_format",
    "logprobs",
    "top_logprobs",
    "return_token_ids",
    "stop",
    "reasoning_effort",
];

/// A question for the team.
pub(super) struct Question {
    pub(super) task: Task,
    pub(super) choices: Choices,
    pub(super) streaming: Streaming,
    /// The answer lists the turns.
    pub(super) turns: bool,
    temperature: Option<f32>,
    top_p: Option<f32>,
    max_tokens: Option<usize>,
}

impl Question {
    pub(super) fn read(
        mut fields: Fields,
        team: &ServedTeam,
        settings: TeamSettings,
    ) -> Result<Self, Refusal> {
        let fields = &mut fields;
        if let Some(name) = fields.text("model")?.filter(|name| *name != team.name) {
            let shown: String = name.chars().take(80).collect();
            let message = format!("there is no model {shown:?}; there is `{}`", team.name);
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message);
            return Err(Refusal { param: Some("model".to_owned()), ..refusal });
        }
        let messages = messages(fields)?;
        for name in OF_MODELS {
            let asked = fields.take(name).filter(|value| !is_nothing(value));
            if asked.is_some() {
                let what = "is not for a team, whose agents have prompts and tools of their own; leave it out";
                return Err(fields.error(name, what).with_code("unsupported_parameter"));
            }
        }
        let temperature = fields.number("temperature", 0.0, f64::from(f32::MAX))?;
        let top_p = fields.number("top_p", 0.0, 1.0)?;
        let limit = MaxTokens::read(fields, &["max_completion_tokens", "max_tokens"], 1)?;
        let choices = Choices::read(fields)?;
        let streaming = Streaming::read(fields)?;
        let (source, data, turns) = own(fields, team)?;
        fields.finish(settings.strict)?;
        let question = question(&messages, settings.history)
            .ok_or_else(|| fields.error("messages", "has no message of the user"))?;
        Ok(Self {
            task: Task { id: "request".to_owned(), source, question, data },
            choices,
            streaming,
            turns,
            temperature: temperature.map(|value| value as f32),
            top_p: top_p.map(|value| value as f32),
            max_tokens: limit.requested(),
        })
    }

    /// Applies the request to the sampling of a seat. Greedy seats stay greedy.
    pub(super) fn adjust(&self, sampling: &mut Sampling) {
        if sampling.temperature > 0.0 {
            sampling.temperature = self.temperature.unwrap_or(sampling.temperature);
            sampling.top_p = self.top_p.unwrap_or(sampling.top_p);
        }
        if let Some(most) = self.max_tokens {
            sampling.max_tokens = sampling.max_tokens.min(most);
        }
    }
}

/// Returns true for a value that asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Bool(asked) => !asked,
        Value::Array(list) => list.is_empty(),
        Value::String(word) => word == "none",
        Value::Number(number) => number.as_u64() == Some(0),
        other => other["type"] == "text",
    }
}

/// Reads the field `maverl`: the source and the data of the task, and whether turns are listed.
fn own(
    fields: &mut Fields,
    team: &ServedTeam,
) -> Result<(String, Map<String, Value>, bool), Refusal> {
    let first = team.plan.mixture.keys().next().cloned();
    let default = first.unwrap_or_else(|| "request".to_owned());
    let Some(mut own) = fields.object("maverl")? else { return Ok((default, Map::new(), false)) };
    let turns = own.flag("turns")?;
    let source = own.text("source")?.unwrap_or(default);
    let components = &team.plan.mixture;
    if !components.is_empty()
        && !components.contains_key(source.split('/').next().unwrap_or_default())
    {
        let known: Vec<String> = components.keys().map(|name| format!("`{name}`")).collect();
        return Err(
            own.error("source", &format!("is {source:?}; write one of {}", known.join(", ")))
        );
    }
    let data = match own.take("data") {
        None => Map::new(),
        Some(Value::Object(data)) => data,
        Some(other) => return Err(own.wrong("data", &other, "an object")),
    };
    own.finish(true)?;
    Ok((source, data, turns))
}

/// Returns the question in a conversation: the only message of the user, after a system message if there is one; or, of a
/// longer one, its transcript or its last message.
fn question(messages: &[ChatMessage], history: History) -> Option<String> {
    let text = |message: &ChatMessage| {
        message.get("content").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let users = messages.iter().filter(|message| message.role() == "user");
    let last = users.clone().next_back().map(text)?;
    match (messages, history) {
        (_, History::Last) => Some(last),
        ([user], _) if user.role() == "user" => Some(last),
        ([system, user], _) if system.role() == "system" && user.role() == "user" => {
            Some(format!("{}\n\n{last}", text(system)))
        }
        _ => {
            let line = |message: &ChatMessage| {
                let role = match message.role() {
                    "user" => "User",
                    "assistant" => "Assistant",
                    "tool" => "Tool",
                    _ => "System",
                };
                format!("{role}: {}", text(message))
            };
            Some(messages.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_a_question_its_transcript_or_its_last_message() {
        let message = |role: &str, text: &str| ChatMessage::new(role, text);
        let talk = [message("user", "a?"), message("assistant", "b."), message("user", "c?")];
        let of = |messages: &[ChatMessage], history| question(messages, history);
        assert_eq!(of(&talk[..1], History::Transcript).as_deref(), Some("a?"));
        assert_eq!(
            of(&talk, History::Transcript).as_deref(),
            Some("User: a?\nAssistant: b.\nUser: c?")
        );
        assert_eq!(of(&talk, History::Last).as_deref(), Some("c?"));
        let told = [message("system", "Be brief."), message("user", "a?")];
        assert_eq!(of(&told, History::Transcript).as_deref(), Some("Be brief.\n\na?"));
        assert_eq!(of(&talk[1..2], History::Transcript), None);
    }
}
