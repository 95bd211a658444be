//! Chat completions in chunks.

use crate::openai::chat::{ChatChoice, ChatCompletion, ChoiceEnd, FinishReason, PartTokens};
use crate::openai::writer::{ChatWriter, ChunkWriter, Extra, Header, UsageChunks};
use crate::stream::Events;

/// Sends an answer in chunks; the last has the usage if it is wanted.
pub(super) async fn stream(answer: &ChatCompletion, usage: bool, events: &Events) {
    let ChatCompletion { id, created, model, prompt_token_ids, .. } = answer;
    let (id, created, model) = (id.clone(), *created, model.clone());
    let mut writer = ChunkWriter {
        header: Header { id, created, model, system_fingerprint: None },
        extra: Extra { maverl: None, prompt_token_ids: prompt_token_ids.clone() },
        usage: if usage { UsageChunks::Last } else { UsageChunks::None },
        events,
    };
    for choice in &answer.choices {
        if !write(&mut writer, choice).await {
            return;
        }
    }
    writer.finish(answer.usage, None).await;
}

/// Writes a choice. Returns false if the client is gone.
async fn write(writer: &mut impl ChatWriter, choice: &ChatChoice) -> bool {
    let index = choice.index;
    if !writer.begin(index).await {
        return false;
    }
    for delta in choice.deltas() {
        if !writer.add(index, delta, PartTokens::default()).await {
            return false;
        }
    }
    let reason = choice.finish_reason.unwrap_or(FinishReason::Stop);
    let (stop, token_ids) = (choice.stop_reason.clone(), choice.token_ids.clone());
    writer.end(index, ChoiceEnd { reason, stop, token_ids }).await
}
