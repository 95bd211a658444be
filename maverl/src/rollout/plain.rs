//! Conversations with tools as plain text, for chat templates and servers without support for tools.

use serde_json::Value;

use crate::tools::describe;
use crate::trajectory::{Message, Role};

/// Converts a conversation to one without tools: they are described in the system section, and the results of calls are
/// user messages in Hermes' tags. A conversation without tools is unchanged.
pub fn plain_conversation(messages: &[Message], tools: &[Value]) -> Vec<Message> {
    if tools.is_empty() {
        return messages.to_vec();
    }
    let mut told = Vec::with_capacity(messages.len() + 1);
    let mut rest = messages;
    let mut system = describe(tools);
    if let [Message { role: Role::System, content }, after @ ..] = messages {
        (system, rest) = (format!("{content}\n\n{system}"), after);
    }
    told.push(Message { role: Role::System, content: system });
    let mut after_result = false;
    for message in rest {
        let result = message.role == Role::Tool;
        let content = if result {
            format!("<tool_response>\n{}\n</tool_response>", message.content)
        } else {
            message.content.clone()
        };
        let role = if result { Role::User } else { message.role };
        match told.last_mut() {
            // Templates require user and assistant to alternate.
            Some(last) if after_result && role == Role::User => {
                last.content.push('\n');
                last.content.push_str(&content);
            }
            _ => told.push(Message { role, content }),
        }
        after_result = result;
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(role: Role, content: &str) -> Message {
        Message { role, content: content.to_owned() }
    }

    fn tools() -> Vec<Value> {
        let parameters = json!({"properties": {"x": {"type": "integer"}}, "required": ["x"]});
        let function = json!({"name": "add", "description": "Adds.", "parameters": parameters});
        vec![json!({"type": "function", "function": function})]
    }

    #[test]
    fn tools_and_results_are_told_in_words() {
        let messages = [
            said(Role::System, "Be brief."),
            said(Role::User, "1 + 1?"),
            said(Role::Assistant, "<tool_call>..</tool_call>"),
            said(Role::Tool, "2"),
            said(Role::Tool, "3"),
            said(Role::User, "Go on."),
        ];
        let told = plain_conversation(&messages, &tools());
        let roles: Vec<Role> = told.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::User]);
        assert!(told[0].content.starts_with("Be brief.\n\n"), "{}", told[0].content);
        assert!(told[0].content.contains("add(x: integer): Adds."), "{}", told[0].content);
        let response = "<tool_response>\n2\n</tool_response>\n<tool_response>\n3\n</tool_response>";
        assert_eq!(told[3].content, format!("{response}\nGo on."));
    }

    #[test]
    fn what_was_told_stays_when_a_conversation_grows() {
        let mut messages = vec![said(Role::User, "1 + 1?"), said(Role::Assistant, "call")];
        let before = plain_conversation(&messages, &tools());
        messages.push(said(Role::Tool, "2"));
        let after = plain_conversation(&messages, &tools());
        assert_eq!(after[..before.len()], before);
        assert_eq!(after.len(), before.len() + 1);
    }

    #[test]
    fn a_conversation_without_tools_is_as_it_was() {
        let messages = [said(Role::User, "hi"), said(Role::Assistant, "ho")];
        assert_eq!(plain_conversation(&messages, &[]), messages);
    }
}
