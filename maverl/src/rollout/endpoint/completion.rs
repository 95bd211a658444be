//! Parsing of chat completions of a server.

use serde::Deserialize;
use serde_json::Value;

use crate::client;

/// Largest plausible token count.
const MOST_TOKENS: f64 = 1e12;

/// A parsed answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EndpointCompletion {
    /// The reply, or the reason for its absence. Only text is a reply: a missing text is an error, not an empty reply.
    pub(super) reply: Result<Reply, String>,
    /// Prompt and sampled tokens; `None` if the server does not count them, or sends an invalid number.
    pub(super) usage: Option<[u64; 2]>,
}

/// Reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) text: String,
    /// True if the reply was truncated.
    pub(super) truncated: bool,
}

impl Reply {
    /// Returns the reply up to the first of some strings that is complete in it, which belongs to the reply.
    pub(super) fn cut_after(mut self, stop: &[String]) -> Self {
        let found = stop.iter().filter(|stop| !stop.is_empty());
        let ends = found.filter_map(|stop| Some(self.text.find(stop.as_str())? + stop.len()));
        if let Some(end) = ends.min() {
            self.text.truncate(end);
            self.truncated = false;
        }
        self
    }
}

#[derive(Deserialize)]
struct EndpointAnswer {
    choices: Vec<EndpointChoice>,
    #[serde(default)]
    usage: Value,
}

/// Servers omit missing fields or write null.
#[derive(Deserialize)]
struct EndpointChoice {
    #[serde(default)]
    message: Value,
    #[serde(default)]
    finish_reason: Value,
}

impl EndpointCompletion {
    /// Reads the body of an answer.
    ///
    /// # Errors
    ///
    /// If the body is not a chat completion.
    pub(super) fn read(body: &str) -> Result<Self, String> {
        let EndpointAnswer { choices, usage } = serde_json::from_str(body).map_err(|error| {
            format!("answered {}, no chat completion: {error}", client::start(body))
        })?;
        let counts = [&usage["prompt_tokens"], &usage["completion_tokens"]].map(tokens);
        let usage = match counts {
            [Some(given), Some(made)] => Some([given, made]),
            _ => None,
        };
        let first = choices.into_iter().next().ok_or("answered with no choice");
        Ok(Self { reply: first.map_err(str::to_owned).and_then(reply), usage })
    }
}

/// Reads a token count.
fn tokens(count: &Value) -> Option<u64> {
    let count = count.as_f64().filter(|n| (0.0..=MOST_TOKENS).contains(n) && n.fract() == 0.0)?;
    Some(count as u64)
}

fn reply(EndpointChoice { message, finish_reason }: EndpointChoice) -> Result<Reply, String> {
    let refusal = message["refusal"].as_str().filter(|refusal| !refusal.is_empty());
    let refusal = refusal.map(str::to_owned).or_else(|| part(&message["content"], "refusal"));
    if let Some(refusal) = refusal {
        return Err(format!("refused: {}", client::start(&refusal)));
    }
    if finish_reason == "content_filter" {
        return Err("its content filter took the reply".to_owned());
    }
    let calls = is_called(&message["tool_calls"]) || is_called(&message["function_call"]);
    let text = match &message["content"] {
        Value::String(text) => Some(text.clone()),
        content => part(content, "text"),
    };
    match text {
        Some(text) if !(calls && text.trim().is_empty()) => {
            Ok(Reply { text, truncated: finish_reason == "length" })
        }
        _ if calls => Err("answered with tool calls and no text: nothing here carries them out; \
                           start the server without a parser of tool calls"
            .to_owned()),
        _ if finish_reason == "length" => {
            Err("answered with no text before `max_tokens` were used up, as models do that \
             think first; raise `max_tokens`"
                .to_owned())
        }
        _ => Err(format!(
            "answered with no text: `message` is {}",
            client::start(&message.to_string())
        )),
    }
}

/// Returns true for a call, or a list of some.
fn is_called(value: &Value) -> bool {
    value.is_object() || value.as_array().is_some_and(|calls| !calls.is_empty())
}

/// Joins the texts of one kind in a content of parts; `None` if the content is not a list, or has none of them.
fn part(content: &Value, kind: &str) -> Option<String> {
    let parts = content.as_array()?.iter().filter(|part| part["type"] == kind);
    let texts: Vec<&str> = parts.filter_map(|part| part[kind].as_str()).collect();
    (!texts.is_empty()).then(|| texts.concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Reads the reply of an answer with this message and finish reason.
    fn read(message: &str, finish: &str) -> Result<(String, bool), String> {
        let body = format!(
            r#"{{"choices": [{{"index": 0, "message": {message}, "finish_reason": {finish}}}]}}"#
        );
        let reply = EndpointCompletion::read(&body).unwrap().reply;
        reply.map(|reply| (reply.text, reply.truncated))
    }

    #[test]
    fn an_answer_without_a_text_is_no_reply() {
        for (message, finish, wanted) in [
            (
                r#"{"role": "assistant", "content": null}"#,
                r#""stop""#,
                "answered with no text: `message` is",
            ),
            (r#"{"role": "assistant"}"#, r#""stop""#, "answered with no text: `message` is"),
            (
                r#"{"content": 3}"#,
                "null",
                "answered with no text: `message` is \"{\\\"content\\\":3}\"",
            ),
            (r#"{"content": []}"#, r#""stop""#, "answered with no text"),
            (
                r#"{"content": [{"type": "thinking", "thinking": "hm"}]}"#,
                r#""stop""#,
                "answered with no text",
            ),
            ("null", r#""stop""#, "answered with no text: `message` is \"null\""),
            (r#"{"content": null}"#, r#""length""#, "raise `max_tokens`"),
            (
                r#"{"content": null, "tool_calls": [{"function": {"name": "f"}}]}"#,
                r#""tool_calls""#,
                "answered with tool calls and no text",
            ),
            (
                r#"{"content": " \n", "tool_calls": [{}]}"#,
                r#""stop""#,
                "answered with tool calls and no text",
            ),
            (r#"{"function_call": {"name": "f"}}"#, r#""function_call""#, "tool calls and no text"),
            (r#"{"content": null, "refusal": "I cannot."}"#, r#""stop""#, "refused: \"I cannot.\""),
            (r#"{"content": "", "refusal": "I cannot."}"#, r#""stop""#, "refused: \"I cannot.\""),
            (
                r#"{"content": [{"type": "refusal", "refusal": "No."}]}"#,
                r#""stop""#,
                "refused: \"No.\"",
            ),
            (r#"{"content": "Sure"}"#, r#""content_filter""#, "its content filter took the reply"),
        ] {
            let error = read(message, finish).unwrap_err();
            assert!(error.contains(wanted), "{message}: {error}");
        }
    }

    #[test]
    fn a_text_is_a_reply_however_it_is_wrapped() {
        let reply = |text: &str, truncated| Ok((text.to_owned(), truncated));
        assert_eq!(
            read(r#"{"content": "yes", "refusal": null, "tool_calls": []}"#, "null"),
            reply("yes", false)
        );
        assert_eq!(read(r#"{"content": "ye"}"#, r#""length""#), reply("ye", true));
        assert_eq!(
            read(r#"{"content": "yes", "tool_calls": [{}]}"#, r#""stop""#),
            reply("yes", false)
        );
        // The model ended its turn at once: the reply is empty.
        assert_eq!(read(r#"{"content": ""}"#, r#""stop""#), reply("", false));
        let parts = r#"{"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ye"}, {"type": "text", "text": "s"}]}"#;
        assert_eq!(read(parts, "7"), reply("yes", false));
    }

    #[test]
    fn counts_that_are_none_cost_no_reply() {
        for (usage, counts) in [
            (r#", "usage": {"prompt_tokens": 30, "completion_tokens": 10}"#, Some([30, 10])),
            (r#", "usage": {"prompt_tokens": 30.0, "completion_tokens": 10}"#, Some([30, 10])),
            ("", None),
            (r#", "usage": null"#, None),
            (r#", "usage": 3"#, None),
            (r#", "usage": []"#, None),
            (r#", "usage": {"prompt_tokens": 30}"#, None),
            (r#", "usage": {"prompt_tokens": -1, "completion_tokens": 10}"#, None),
            (r#", "usage": {"prompt_tokens": "30", "completion_tokens": null}"#, None),
            (
                r#", "usage": {"prompt_tokens": 1e300, "completion_tokens": 18446744073709551615}"#,
                None,
            ),
            (r#", "usage": {"prompt_tokens": 1.5, "completion_tokens": 1}"#, None),
        ] {
            let body = format!(r#"{{"choices": [{{"message": {{"content": "yes"}}}}]{usage}}}"#);
            let EndpointCompletion { reply, usage: found } =
                EndpointCompletion::read(&body).unwrap();
            assert_eq!((reply.unwrap().text.as_str(), found), ("yes", counts), "{usage}");
        }
    }

    #[test]
    fn what_is_no_completion_is_shown() {
        for (body, wanted) in [
            ("<html>", "answered \"<html>\", no chat completion: "),
            (r#"{"error": {"message": "quota"}}"#, "missing field `choices`"),
            (r#"{"choices": null}"#, "no chat completion"),
        ] {
            let error = EndpointCompletion::read(body).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
        let none = EndpointCompletion::read(r#"{"choices": []}"#).unwrap();
        assert_eq!(none.reply, Err("answered with no choice".to_owned()));
    }
}
