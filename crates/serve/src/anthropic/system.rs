//! System messages in the middle of a conversation.

use maverl::text::ChatMessage;

/// Returns true if a system message comes after other messages.
pub(crate) fn has_later_system(messages: &[ChatMessage]) -> bool {
    messages.iter().skip(1).any(|message| message.role() == "system")
}

/// Returns a conversation whose later system messages are those of the user, for chat templates that refuse them.
///
/// The text of one opens the message of the user after it, or else ends that before it. Between other messages it is one
/// by itself.
pub(crate) fn without_later_system(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut told: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    // Texts of system messages that no message of the user has yet.
    let mut texts: Vec<String> = Vec::new();
    for message in messages {
        if message.role() == "system" && !told.is_empty() {
            texts.push(message.text().to_owned());
        } else if message.role() == "user" && !texts.is_empty() {
            texts.push(message.text().to_owned());
            told.push(user(&std::mem::take(&mut texts)));
        } else {
            end_with(&mut told, &mut texts);
            told.push(message);
        }
    }
    end_with(&mut told, &mut texts);
    told
}

/// Ends the last message with texts if it is one of the user, or adds one.
fn end_with(told: &mut Vec<ChatMessage>, texts: &mut Vec<String>) {
    if texts.is_empty() {
        return;
    }
    if let Some(last) = told.pop_if(|last| last.role() == "user") {
        texts.insert(0, last.text().to_owned());
    }
    told.push(user(&std::mem::take(texts)));
}

fn user(texts: &[String]) -> ChatMessage {
    ChatMessage::new("user", texts.join("\n\n"))
}
