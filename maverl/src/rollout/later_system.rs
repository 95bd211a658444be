//! System messages after the first message, which some chat templates refuse, and some leave out.

use crate::text::{ChatInput, ChatMessage, Tokenizer};

/// Returns true if the chat template shows a system message that comes after others.
pub fn takes_later_system(tokenizer: &Tokenizer) -> bool {
    const TEXT: &str = "a system message after others";
    let messages = [("user", "x"), ("assistant", "y"), ("system", TEXT), ("user", "z")];
    let messages = messages.map(|(role, text)| ChatMessage::new(role, text));
    let rendered = tokenizer.render_chat(&ChatInput::open(messages));
    rendered.is_ok_and(|rendered| rendered.text().contains(TEXT))
}
