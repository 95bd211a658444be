//! A request as a question for the team.

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::server::{ConversationReading, ServedTeam, TeamSettings};
use crate::openai::requests::{TeamFields, TeamRequest};
use crate::openai::{Choices, Fields, Nested, Streaming};
use crate::refusal::Refusal;
use maverl::runtime::Sampling;
use maverl::task::Task;
use maverl::text::ChatMessage;

/// A question for the team.
pub(super) struct TeamQuestion {
    pub(super) task: Task,
    pub(super) choices: Choices,
    pub(super) streaming: Streaming,
    /// The answer lists the turns.
    pub(super) turns: bool,
    temperature: Option<f32>,
    top_p: Option<f32>,
    max_tokens: Option<usize>,
}

impl TeamQuestion {
    pub(super) fn read(
        mut fields: Fields,
        team: &ServedTeam,
        settings: TeamSettings,
    ) -> Result<Self, Refusal> {
        if let Some(name) = fields.model()?.filter(|name| *name != team.name) {
            let shown: String = name.chars().take(80).collect();
            let message = format!("there is no model {shown:?}; there is `{}`", team.name);
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message);
            return Err(Refusal { param: Some("model".to_owned()), ..refusal });
        }
        let request: TeamRequest = fields.read()?;
        let (source, data, turns) = own_fields(request.maverl, team)?;
        fields.finish(settings.strict)?;
        let question = question(&request.messages.0, settings.history)
            .ok_or_else(|| fields.error("messages", "has no message of the user"))?;
        Ok(Self {
            task: Task { id: "request".to_owned(), source, question, data },
            choices: request.choices,
            streaming: request.streaming,
            turns,
            temperature: request.temperature.map(|value| value as f32),
            top_p: request.top_p.map(|value| value as f32),
            max_tokens: request.limit.requested_length(),
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

/// Reads the field `maverl`: the source and the data of the task, and whether turns are listed.
fn own_fields(
    given: Option<Nested<TeamFields>>,
    team: &ServedTeam,
) -> Result<(String, Map<String, Value>, bool), Refusal> {
    let first = team.plan.mixture.keys().next().cloned();
    let default = first.unwrap_or_else(|| "request".to_owned());
    let Some(Nested { value: own, rest }) = given else {
        return Ok((default, Map::new(), false));
    };
    let source = own.source.unwrap_or(default);
    let components = &team.plan.mixture;
    let name = source.split('/').next().unwrap_or_default();
    if !components.is_empty() && !components.contains_key(name) {
        let known: Vec<String> = components.keys().map(|name| format!("`{name}`")).collect();
        let what = format!("is {source:?}; write one of {}", known.join(", "));
        return Err(rest.error("source", &what));
    }
    rest.finish(true)?;
    Ok((source, own.data.unwrap_or_default(), own.turns))
}

/// Returns the question in a conversation: the only message of the user, after a system message if there is one; or, of a
/// longer one, its transcript or its last message.
fn question(messages: &[ChatMessage], history: ConversationReading) -> Option<String> {
    let users = messages.iter().filter(|message| message.role() == "user");
    let last = users.clone().next_back().map(ChatMessage::text)?;
    match (messages, history) {
        (_, ConversationReading::Last) => Some(last.to_owned()),
        ([user], _) if user.role() == "user" => Some(last.to_owned()),
        ([system, user], _) if system.role() == "system" && user.role() == "user" => {
            Some(format!("{}\n\n{last}", system.text()))
        }
        _ => Some(messages.iter().map(line).collect::<Vec<_>>().join("\n")),
    }
}

/// Returns a message as a line of a transcript.
fn line(message: &ChatMessage) -> String {
    let role = match message.role() {
        "user" => "User",
        "assistant" => "Assistant",
        "tool" => "Tool",
        _ => "System",
    };
    format!("{role}: {}", message.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_a_question_its_transcript_or_its_last_message() {
        let message = |role: &str, text: &str| ChatMessage::new(role, text);
        let talk = [message("user", "a?"), message("assistant", "b."), message("user", "c?")];
        let of = |messages: &[ChatMessage], history| question(messages, history);
        assert_eq!(of(&talk[..1], ConversationReading::Transcript).as_deref(), Some("a?"));
        assert_eq!(
            of(&talk, ConversationReading::Transcript).as_deref(),
            Some("User: a?\nAssistant: b.\nUser: c?")
        );
        assert_eq!(of(&talk, ConversationReading::Last).as_deref(), Some("c?"));
        let told = [message("system", "Be brief."), message("user", "a?")];
        assert_eq!(of(&told, ConversationReading::Transcript).as_deref(), Some("Be brief.\n\na?"));
        assert_eq!(of(&talk[1..2], ConversationReading::Transcript), None);
    }
}
