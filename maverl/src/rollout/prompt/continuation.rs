//! Prompts that continue the model's last reply: its token ids, then those of a text, without a chat template.

use super::{NextPrompt, Templater, template};
use crate::agent::Prompt;
use crate::orchestra::Conversation;
use crate::trajectory::{Fault, FaultKind};

/// Returns the prompt of a text that continues the last reply: the ids so far, without the stop id if one ended the reply, and
/// those of the text, without what exceeds `max_tokens`. A special token in the text is ordinary text.
///
/// # Errors
///
/// A fault of kind `orchestra` if there is no reply with tokens; as `next_prompt` if the tokenizer fails.
pub(super) fn continued_prompt(
    templater: &impl Templater,
    conversation: &Conversation,
    prompt: &Prompt,
    (max_tokens, ended): (usize, bool),
) -> Result<NextPrompt, Fault> {
    let (Some((_, unended)), Some(reply)) =
        (conversation.ids.split_last(), conversation.messages.last())
    else {
        let message = "a prompt continues a reply, but the conversation has none; ask first";
        return Err(Fault::new(FaultKind::Orchestra, message));
    };
    let mut ids = if ended { unended } else { &conversation.ids }.to_vec();
    let new = templater.encode_plain(&prompt.user).map_err(|error| template(error, prompt))?;
    let kept = &new[..new.len().min(max_tokens)];
    let text =
        if kept.len() == new.len() { prompt.user.clone() } else { templater.decode_raw(kept) };
    let shortened = prompt.user.chars().count().saturating_sub(text.chars().count());
    ids.extend_from_slice(kept);
    let rendered = [conversation.rendered.as_str(), &reply.content, &text].concat();
    let messages = conversation.messages_with(&Prompt { user: text, ..prompt.clone() });
    Ok(NextPrompt { messages, ids, rendered, shortened, forked: false })
}
