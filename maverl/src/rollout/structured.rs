//! Conversations of models whose replies a chat template does not copy, such as the messages of gpt-oss.

use serde_json::Value;

use crate::rollout::plain::plain_conversation;
use crate::rollout::prompt::Templater;
use crate::text::{ChatInput, ChatMessage, Rendered, Tokenizer, TokenizerError};
use crate::tools::{CallFormat, Channel, ReplyFormat, split_channels};
use crate::trajectory::{Message, Role};

/// Tokenizer of a model with this form of replies.
pub(crate) struct FormattedTokenizer<'t> {
    pub(crate) tokenizer: &'t Tokenizer,
    pub(crate) format: &'t ReplyFormat,
}

impl Templater for FormattedTokenizer<'_> {
    fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError> {
        self.tokenizer.encode_rendered(rendered)
    }

    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.tokenizer.encode_plain(text)
    }

    fn decode_raw(&self, ids: &[u32]) -> String {
        self.tokenizer.decode_raw(ids)
    }

    fn most_bytes(&self, tokens: usize) -> usize {
        self.tokenizer.most_bytes(tokens)
    }

    /// Earlier replies in channels are given to the template as thoughts, content and calls.
    fn render(&self, messages: &[Message], tools: &[Value]) -> Result<Rendered, TokenizerError> {
        if self.format.calls != CallFormat::Harmony {
            return Templater::render(self.tokenizer, messages, tools);
        }
        let taken = tools.is_empty() || self.tokenizer.takes_tools();
        let plain = (!taken).then(|| plain_conversation(messages, tools));
        let messages = plain.as_deref().unwrap_or(messages).iter().map(chat_message);
        let tools = Some(tools.to_vec()).filter(|tools| taken && !tools.is_empty());
        self.tokenizer.render_chat(&ChatInput { tools, ..ChatInput::open(messages) })
    }
}

/// Returns a message in the form of chat templates, with the channels of a reply apart.
fn chat_message(message: &Message) -> ChatMessage {
    let parts = split_channels(&message.content);
    let in_channels = parts.iter().any(|part| part.body.len() < part.text.len());
    if message.role != Role::Assistant || !in_channels {
        return ChatMessage::from(message);
    }
    let (mut thoughts, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for part in parts {
        match (part.channel, part.call) {
            (Channel::Thoughts, _) => thoughts.push_str(part.body),
            (_, Some(Ok(call))) => calls.push(call),
            _ => content.push_str(part.body),
        }
    }
    let reply = ChatMessage::new("assistant", content);
    let reply = if thoughts.is_empty() { reply } else { reply.with("reasoning_content", thoughts) };
    calls.into_iter().fold(reply, |reply, call| reply.with_tool_call(call.name, call.arguments))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn assistant(content: &str) -> Message {
        Message { role: Role::Assistant, content: content.to_owned() }
    }

    #[test]
    fn a_reply_in_channels_reaches_the_template_in_parts() {
        let reply = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.add \
                     <|constrain|>json<|message|>{\"x\": 1}";
        let call = json!({"type": "function", "function": {"name": "add", "arguments": {"x": 1}}});
        let wanted = ChatMessage::new("assistant", "")
            .with("reasoning_content", "hm")
            .with("tool_calls", json!([call]));
        assert_eq!(chat_message(&assistant(reply)), wanted);
        let answer = assistant("<|channel|>final<|message|>4");
        assert_eq!(chat_message(&answer), ChatMessage::new("assistant", "4"));
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        for message in [
            assistant("4"),
            Message { role: Role::User, content: "<|channel|>final<|message|>4".to_owned() },
        ] {
            assert_eq!(chat_message(&message), ChatMessage::from(&message));
        }
    }
}
