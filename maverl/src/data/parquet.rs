//! Parquet files: a row is the JSON object of its columns.

#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
mod quiet;
#[cfg(feature = "parquet")]
mod thrift;
mod wrong;

use std::fs::File;
use std::io::{self, Read, Seek};

use serde_json::{Map, Value};

use super::bounds::Bounds;
pub(super) use wrong::WrongParquet;

/// First bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// Rows in file order.
pub(super) type ParquetRows = Box<dyn Iterator<Item = Result<Map<String, Value>, WrongParquet>>>;

/// Returns true for a Parquet file. Rewinds the file to its first byte.
pub(super) fn recognized(file: &mut File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start == MAGIC)
}

/// Returns the rows in file order. A column without a value is omitted, and so is a field of a struct.
///
/// # Errors
///
/// A description of the damage, or that the file exceeds the bounds.
#[cfg(feature = "parquet")]
pub(super) fn rows(mut file: File, bounds: Bounds) -> Result<ParquetRows, WrongParquet> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    pages::schema(&mut file)?;
    let packed = file.metadata().map_err(WrongParquet::Io)?.len();
    let again = file.try_clone().map_err(WrongParquet::Io)?;
    // The crate trusts the metadata of the file; a damaged one must not end the process.
    let reader = quiet::caught(|| {
        let reader = SerializedFileReader::new(again).map_err(|error| damaged(&error))?;
        let metadata = reader.metadata();
        let rows: i64 = metadata.row_groups().iter().map(|group| group.num_rows()).sum();
        // A wrong count could lead to an endless loop.
        if rows != metadata.file_metadata().num_rows() {
            let message = "its parts have another number of rows than the whole".to_owned();
            return Err(WrongParquet::Damaged(message));
        }
        pages::sizes(&mut file, metadata, &bounds)?;
        Ok(reader)
    });
    let mut rows = reader.map_err(WrongParquet::Damaged)??.into_iter();
    let (mut number, mut unpacked, mut ended) = (0, 0_u64, false);
    Ok(Box::new(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let row = quiet::caught(|| rows.next().map(|row| row.map(|row| row.to_json_value())));
        let row = match row {
            Ok(None) => return None,
            Ok(Some(Ok(row))) => {
                let row = present(row);
                let size = size(&row);
                unpacked = unpacked.saturating_add(size);
                number += 1;
                match row {
                    _ if number > bounds.rows() => {
                        Err(WrongParquet::TooLong(bounds.too_many(packed)))
                    }
                    _ if size > bounds.row => Err(WrongParquet::TooLong(bounds.row_too_long())),
                    _ if unpacked > bounds.unpacked => {
                        Err(WrongParquet::TooLong(bounds.too_long(packed)))
                    }
                    Value::Object(row) => Ok(row),
                    _ => Ok(Map::new()),
                }
            }
            Ok(Some(Err(error))) => Err(damaged(&error)),
            Err(panic) => Err(WrongParquet::Damaged(panic)),
        };
        ended = row.is_err();
        Some(row)
    })))
}

/// Returns the names of the values of columns that have numbers for them: `ClassLabel` in the metadata of `datasets`. What
/// cannot be read has none.
#[cfg(feature = "parquet")]
pub(super) fn class_labels(mut file: File) -> Vec<(String, Vec<String>)> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    if pages::schema(&mut file).is_err() {
        return Vec::new();
    }
    let metadata = quiet::caught(|| {
        let reader = SerializedFileReader::new(file).ok()?;
        let pairs = reader.metadata().file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == "huggingface")?.value.clone()
    });
    let metadata = metadata.ok().flatten().and_then(|text| serde_json::from_str(&text).ok());
    let metadata: Value = metadata.unwrap_or_default();
    let features = metadata["info"]["features"].as_object().into_iter().flatten();
    let labels = features.filter(|(_, feature)| feature["_type"] == "ClassLabel");
    let labels = labels.filter_map(|(column, feature)| {
        let names = feature["names"].as_array()?.iter();
        Some((column.clone(), names.filter_map(|name| name.as_str().map(str::to_owned)).collect()))
    });
    labels.collect()
}

#[cfg(not(feature = "parquet"))]
pub(super) fn class_labels(_: File) -> Vec<(String, Vec<String>)> {
    Vec::new()
}

#[cfg(feature = "parquet")]
fn damaged(error: &parquet::errors::ParquetError) -> WrongParquet {
    WrongParquet::Damaged(error.to_string())
}

/// Returns the approximate size of a value in bytes.
#[cfg(feature = "parquet")]
fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() as u64 + size(value)).sum()
        }
        Value::Array(items) => items.iter().map(|item| 8 + size(item)).sum(),
        _ => 8,
    }
}

/// Removes the fields of a value that are null.
#[cfg(feature = "parquet")]
fn present(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(key, value)| (key, present(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(present).collect(),
        value => value,
    }
}

#[cfg(not(feature = "parquet"))]
pub(super) fn rows(_: File, _: Bounds) -> Result<ParquetRows, WrongParquet> {
    Err(WrongParquet::Damaged(
        concat!("write JSONL; ", crate::lacks_feature!("parquet")).to_owned(),
    ))
}

#[cfg(all(test, feature = "parquet"))]
mod tests;
