//! Preference pairs: two replies to one conversation, of which one is better.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::demonstration::{demonstration, messages};
use super::jsonl::{ROW, named};
use super::{Bounds, DataError, File};
use crate::trajectory::{Message, Role};

/// A conversation and two replies.
#[derive(Debug, Clone, PartialEq)]
pub struct PreferencePair {
    /// Prompt of the model.
    pub prompt: Vec<Message>,
    /// The better reply.
    pub chosen: String,
    /// The other reply.
    pub rejected: String,
}

/// Reads pairs in TRL's forms, one JSON object per line: `prompt`, `chosen` and `rejected`, each a text or messages; or
/// `chosen` and `rejected` alone, whole conversations that differ in the last message. `keys` maps these names to the file's
/// names.
///
/// # Errors
///
/// See [`DataError`]; a file without pairs is one.
pub fn preferences(
    path: &Path,
    keys: &BTreeMap<String, String>,
    bounds: Bounds,
) -> Result<Vec<PreferencePair>, DataError> {
    let file = File::open(path, bounds)?;
    let pairs: Vec<PreferencePair> = file
        .rows(ROW)?
        .map(|object| {
            let (line, mut object) = object?;
            let read = named(&mut object, keys).and_then(|()| pair(&object));
            read.map_err(|message| file.damaged(line, message))
        })
        .collect::<Result<_, _>>()?;
    if pairs.is_empty() {
        let wanted = "write one JSON object a line with `prompt`, `chosen` and `rejected`";
        let place = path.display().to_string();
        return Err(DataError::Empty { place, what: "pairs of replies", wanted });
    }
    Ok(pairs)
}

/// Reads a pair.
pub(super) fn pair(object: &Map<String, Value>) -> Result<PreferencePair, String> {
    let (Some(chosen), Some(rejected)) = (object.get("chosen"), object.get("rejected")) else {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        return Err(format!(
            "no `chosen` and `rejected` among {keys:?}; `task.keys = {{ chosen = \"..\", rejected = \"..\" }}` names them"
        ));
    };
    let prompt = match object.get("prompt") {
        Some(prompt) => messages(prompt, "prompt", Role::User)?,
        None => Vec::new(),
    };
    let whole = |reply: &Value, key: &str| {
        let reply = messages(reply, key, Role::Assistant)?;
        demonstration([prompt.as_slice(), &reply].concat())
            .map_err(|error| format!("`{key}`: {error}"))
    };
    let (chosen, rejected) = (whole(chosen, "chosen")?, whole(rejected, "rejected")?);
    if chosen.prompt != rejected.prompt {
        return Err("`chosen` and `rejected` reply to different conversations".to_owned());
    }
    if chosen.reply == rejected.reply {
        return Err("`chosen` and `rejected` are the same".to_owned());
    }
    Ok(PreferencePair { prompt: chosen.prompt, chosen: chosen.reply, rejected: rejected.reply })
}
