//! Files of `sentence-transformers` beside a model: how its hidden states become an embedding.
//!
//! | file | content |
//! |---|---|
//! | `modules.json` | steps: the transformer, a pooling, a norm |
//! | `PATH/config.json` | the pooling, where `PATH` is that of its step |
//! | `sentence_bert_config.json` | `max_seq_length` |

use serde_json::{Map, Value};

use crate::files::{ModelError, ModelErrorKind, ModelFiles};

/// Pooling of the hidden states of a text, as a model's files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentencePooling {
    /// Mean of the hidden states of all tokens.
    Mean,
    /// Hidden state of the first token.
    Cls,
    /// Hidden state of the last token.
    Last,
}

/// Steps from hidden states to an embedding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentenceFiles {
    /// Pooling; none if the model has no `modules.json`.
    pub pooling: Option<SentencePooling>,
    /// True if embeddings are scaled to length 1; none if the model has no `modules.json`.
    pub normalizes: Option<bool>,
    /// Maximum number of tokens of a text, if the model has one.
    pub max_tokens: Option<usize>,
}

impl SentenceFiles {
    /// Reads the files of a model. All are optional.
    ///
    /// # Errors
    ///
    /// If a file is damaged, or has a step or a pooling that is not supported.
    pub fn read(files: &ModelFiles) -> Result<Self, ModelError> {
        let mut found = Self::default();
        if let Some(settings) = read_object(files, "sentence_bert_config.json")? {
            if settings.get("do_lower_case") == Some(&Value::Bool(true)) {
                let what = "`do_lower_case` is true; let `tokenizer.json` convert to lower case";
                return Err(refused(files, "sentence_bert_config.json", what));
            }
            let longest = settings.get("max_seq_length").and_then(Value::as_u64);
            found.max_tokens = longest.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        }
        let Some(modules) = read_json(files, "modules.json")? else { return Ok(found) };
        let modules = modules.as_array().map(Vec::as_slice).unwrap_or_default();
        found.normalizes = Some(false);
        for (place, module) in modules.iter().enumerate() {
            let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
            let (kind, path) = (text("type"), text("path"));
            match (place, kind.rsplit('.').next().unwrap_or_default()) {
                (0, "Transformer") if path.is_empty() => {}
                (0, "Transformer") => {
                    let what = format!("the transformer is in the folder {path:?}; name that one");
                    return Err(refused(files, "modules.json", &what));
                }
                (1, "Pooling") if path.is_empty() || path == ".." || path.contains(['/', '\\']) => {
                    let what = format!(
                        "the pooling is in {path:?}; it must be in a folder beside this file"
                    );
                    return Err(refused(files, "modules.json", &what));
                }
                (1, "Pooling") => {
                    found.pooling = Some(read_pooling(files, &format!("{path}/config.json"))?);
                }
                (2, "Normalize") => found.normalizes = Some(true),
                _ => {
                    let what = format!(
                        "step {place} is {kind:?}; supported: a Transformer, a Pooling and a Normalize"
                    );
                    return Err(refused(files, "modules.json", &what));
                }
            }
        }
        if found.pooling.is_none() {
            return Err(refused(files, "modules.json", "there is no step Pooling"));
        }
        Ok(found)
    }
}

/// Reads a pooling, in the spelling with one key for each pooling or in the one with `pooling_mode`.
fn read_pooling(files: &ModelFiles, name: &str) -> Result<SentencePooling, ModelError> {
    let Some(settings) = read_object(files, name)? else {
        return Err(refused(files, name, "it is missing, and `modules.json` names it"));
    };
    if settings.get("include_prompt") == Some(&Value::Bool(false)) {
        let what = "`include_prompt` is false; only a pooling over all tokens is supported";
        return Err(refused(files, name, what));
    }
    let one = settings.get("pooling_mode").and_then(Value::as_str).map(str::to_owned);
    let flags = settings.iter().filter(|(_, value)| **value == Value::Bool(true));
    let flags = flags.filter_map(|(key, _)| key.strip_prefix("pooling_mode_"));
    let modes = one.map_or_else(|| flags.map(str::to_owned).collect(), |one| vec![one]);
    match modes.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["mean" | "mean_tokens"] => Ok(SentencePooling::Mean),
        ["cls" | "cls_token"] => Ok(SentencePooling::Cls),
        ["lasttoken"] => Ok(SentencePooling::Last),
        _ => {
            let what = format!("the pooling is {modes:?}; supported: mean, cls or lasttoken");
            Err(refused(files, name, &what))
        }
    }
}

fn read_json(files: &ModelFiles, name: &str) -> Result<Option<Value>, ModelError> {
    let Some(bytes) = files.read(name)? else { return Ok(None) };
    let place = files.describe();
    let json = serde_json::from_slice(&bytes);
    json.map(Some).map_err(|error| ModelError::invalid_at(format_args!("{place}: {name}"), error))
}

fn read_object(files: &ModelFiles, name: &str) -> Result<Option<Map<String, Value>>, ModelError> {
    match read_json(files, name)? {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(refused(files, name, "it is not a JSON object")),
    }
}

fn refused(files: &ModelFiles, name: &str, what: &str) -> ModelError {
    let message = format!("{}: {name}: {what}", files.describe());
    ModelError::new(ModelErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::files::ModelSource;

    /// Reads a directory with a `modules.json` of some kinds, and a configuration of the pooling.
    fn read(kinds: &[&str], pooling: &Value) -> Result<SentenceFiles, String> {
        let dir = tempfile::tempdir().unwrap();
        let modules = kinds.iter().enumerate().map(|(i, kind)| {
            let path = if i == 0 { String::new() } else { format!("{i}_{kind}") };
            json!({"idx": i, "path": path, "type": format!("sentence_transformers.models.{kind}")})
        });
        let modules = Value::from(modules.collect::<Vec<_>>()).to_string();
        std::fs::write(dir.path().join("modules.json"), modules).unwrap();
        std::fs::create_dir(dir.path().join("1_Pooling")).unwrap();
        std::fs::write(dir.path().join("1_Pooling/config.json"), pooling.to_string()).unwrap();
        let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
        SentenceFiles::read(&files).map_err(|error| error.to_string())
    }

    #[test]
    fn poolings_are_read_in_both_spellings() {
        let old = json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false});
        let read_old = read(&["Transformer", "Pooling"], &old).unwrap();
        assert_eq!(read_old.pooling, Some(SentencePooling::Cls));
        assert_eq!(read_old.normalizes, Some(false));
        let new = json!({"pooling_mode": "mean"});
        let read_new = read(&["Transformer", "Pooling", "Normalize"], &new).unwrap();
        assert_eq!(read_new.pooling, Some(SentencePooling::Mean));
        assert_eq!(read_new.normalizes, Some(true));
    }

    #[test]
    fn steps_and_poolings_that_are_not_supported_are_named() {
        let mean = json!({"pooling_mode": "mean"});
        let both =
            json!({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true, "other": 1});
        for (kinds, pooling, expected) in [
            (&["Transformer", "Pooling", "Dense"][..], &mean, "models.Dense\"; supported"),
            (&["Transformer"][..], &mean, "there is no step Pooling"),
            (
                &["Transformer", "Pooling"][..],
                &both,
                "the pooling is [\"cls_token\", \"max_tokens\"]",
            ),
        ] {
            let message = read(kinds, pooling).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
