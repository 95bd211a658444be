//! Files of a model directory, as a GGUF file has their content.

use std::borrow::Cow;

use super::config::read_config;
use super::file::GgufFile;
use super::tokenizer::{generation_config, tokenizer_config, tokenizer_json};
use crate::files::ModelError;

/// Returns the content of the file of a model directory that says what a GGUF file says; `None` if there is none.
///
/// # Errors
///
/// If the file lacks what it needs, or has what is not supported.
pub(crate) fn content(
    file: &GgufFile,
    name: &str,
) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
    let json = match name {
        "config.json" => read_config(file)?.0,
        "tokenizer.json" => tokenizer_json(file)?,
        "tokenizer_config.json" => tokenizer_config(file)?,
        "generation_config.json" => generation_config(file),
        _ => return Ok(None),
    };
    Ok(Some(Cow::Owned(format!("{json:#}\n").into_bytes())))
}
