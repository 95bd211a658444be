//! Commands that add a missing tokenizer or chat template to a model directory.

use crate::files::ModelFiles;

/// Tokenizer files that `transformers` converts to `tokenizer.json`.
const SLOW: [&str; 5] =
    ["tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt"];

/// Returns the message for a directory without `tokenizer.json`.
pub(super) fn no_tokenizer(files: &ModelFiles) -> String {
    let place = files.describe();
    let found =
        files.directory().and_then(|dir| SLOW.into_iter().find(|name| dir.join(name).is_file()));
    match found {
        Some(name) => format!(
            "{place} has no `tokenizer.json`; it has `{name}`, from which transformers writes one: `python -c \"from \
             transformers import AutoTokenizer; AutoTokenizer.from_pretrained('{place}').save_pretrained('{place}')\"`"
        ),
        None => format!(
            "{place} has no `tokenizer.json`; take it from the model that this one was made from: `hf download ORG/NAME \
             tokenizer.json tokenizer_config.json --local-dir {place}`"
        ),
    }
}

/// Returns the message for a model without a chat template.
pub(super) fn no_template(place: &str) -> String {
    let (dir, first) = match place.strip_prefix("hf:") {
        None => (place, String::new()),
        Some(id) => (
            "DIR",
            format!("`hf download {} --local-dir DIR`, and ", id.split('@').next().unwrap_or(id)),
        ),
    };
    format!(
        "{place}: no chat template: neither `chat_template.jinja` nor `chat_template` in `tokenizer_config.json`; a base \
         model has none and takes that of its instruction-tuned sibling: {first}`python -c \"from transformers import \
         AutoTokenizer; open('{dir}/chat_template.jinja', 'w').write(AutoTokenizer.from_pretrained('ORG/NAME-Instruct')\
         .chat_template)\"`"
    )
}
