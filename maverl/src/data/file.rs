//! A data file as it lies on disk: text, packed text, or Parquet.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::{Map, Value, json};

use super::{DataError, parquet};
use crate::config::DataFormat;

/// A file's content, and where it came from for messages.
pub(super) struct File {
    path: PathBuf,
    content: Content,
}

/// A row with its number, or why there is none.
type Numbered = Result<(usize, Map<String, Value>), DataError>;

enum Content {
    Text(String),
    /// Of a Parquet file.
    Rows(Vec<Map<String, Value>>),
}

/// The text of a file, unpacked where its name ends in `.gz`, without a byte order mark.
pub(crate) fn read_text(path: &Path) -> std::io::Result<String> {
    text(std::fs::File::open(path)?, path)
}

fn text(mut file: std::fs::File, path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    match path.extension().is_some_and(|ending| ending == "gz") {
        true => MultiGzDecoder::new(file).read_to_string(&mut text)?,
        false => file.read_to_string(&mut text)?,
    };
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, DataError> {
        let failed = |source| DataError::Read { path: path.to_owned(), source };
        let mut file = std::fs::File::open(path).map_err(failed)?;
        if parquet::recognized(&mut file).map_err(failed)? {
            let damaged = |message| DataError::Parquet { path: path.to_owned(), message };
            let content = Content::Rows(parquet::rows(file).map_err(damaged)?);
            return Ok(Self { path: path.to_owned(), content });
        }
        let content = Content::Text(text(file, path).map_err(failed)?);
        Ok(Self { path: path.to_owned(), content })
    }

    /// The last part of the path without its ending; the source of tasks that name none.
    pub(super) fn stem(&self) -> String {
        let name = self.path.with_extension("");
        let packed = self.path.extension().is_some_and(|ending| ending == "gz");
        let stem = if packed { name.file_stem() } else { name.file_name() };
        stem.unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(super) fn damaged(&self, line: usize, message: impl Into<String>) -> DataError {
        DataError::Damaged { path: self.path.clone(), line, message: message.into() }
    }

    /// A form other than `Auto`: what was asked for, or what the content looks like.
    pub(super) fn form(&self, asked: DataFormat) -> Result<DataFormat, DataError> {
        if asked != DataFormat::Auto {
            return Ok(asked);
        }
        let text = match &self.content {
            Content::Rows(rows) => return Ok(of_rows(rows.first())),
            Content::Text(text) => text.trim_start(),
        };
        if text.is_empty() {
            return Ok(DataFormat::Jsonl);
        }
        if let Some(list) = text.strip_prefix('[') {
            let first = serde_json::Deserializer::from_str(list).into_iter().next();
            return Ok(of_rows(first.and_then(Result::ok).as_ref()));
        }
        if !text.starts_with('{') {
            let start: String = text.chars().take(20).collect();
            let message =
                format!("starts with {start:?}; a data file is Parquet or holds JSON: `{{` or `[`");
            return Err(self.damaged(1, message));
        }
        // One object a line, or one object in all.
        let first = text.lines().next().unwrap_or_default();
        let whole = match serde_json::from_str::<Value>(first) {
            Ok(first) => first,
            Err(_) if text.lines().nth(1).is_some() => {
                serde_json::from_str(text).unwrap_or_default()
            }
            Err(_) => Value::Null,
        };
        let squad = whole.get("data").is_some_and(Value::is_array);
        Ok(if squad { DataFormat::Squad } else { DataFormat::Jsonl })
    }

    /// The whole file as one JSON value of a form.
    pub(super) fn parse<T: serde::de::DeserializeOwned>(&self, form: &str) -> Result<T, DataError> {
        match &self.content {
            Content::Text(text) => serde_json::from_str(text),
            Content::Rows(rows) => T::deserialize(json!(rows)),
        }
        .map_err(|error| self.damaged(error.line().max(1), format!("no {form}: {error}")))
    }

    /// Each row as a JSON object, with its number: of a Parquet file or a list its place, else its line.
    pub(super) fn objects(&self) -> Box<dyn Iterator<Item = Numbered> + '_> {
        let text = match &self.content {
            Content::Rows(rows) => return Box::new((1..).zip(rows.iter().cloned()).map(Ok)),
            Content::Text(text) => text,
        };
        if text.trim_start().starts_with('[') {
            return match self.parse::<Vec<_>>("list of JSON objects") {
                Ok(rows) => Box::new((1..).zip(rows).map(Ok)),
                Err(error) => Box::new(std::iter::once(Err(error))),
            };
        }
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        Box::new(lines.map(|(number, line)| {
            let object = serde_json::from_str(line)
                .map_err(|error| self.damaged(number, format!("no JSON object: {error}")))?;
            Ok((number, object))
        }))
    }
}

/// The form of a list of rows, by its first: those of HotpotQA have paragraphs beside the question.
fn of_rows(first: Option<&Map<String, Value>>) -> DataFormat {
    let context = first.and_then(|row| row.get("context"));
    match context.is_some_and(|context| context.is_array() || context.is_object()) {
        true => DataFormat::Hotpot,
        false => DataFormat::Jsonl,
    }
}
