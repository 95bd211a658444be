//! Parquet files: a row is the JSON object of its columns.

use std::fs::File;
use std::io::{self, Read, Seek};

use serde_json::{Map, Value};

/// What a Parquet file begins with.
const MAGIC: &[u8] = b"PAR1";

/// Whether this is a Parquet file. The next byte to be read is the first afterwards.
pub(super) fn recognized(file: &mut File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start == MAGIC)
}

/// The rows, in their order. A column without a value is left out, and so is a field of a struct.
///
/// # Errors
///
/// What is damaged in the file.
#[cfg(feature = "parquet")]
pub(super) fn rows(file: File) -> Result<Vec<Map<String, Value>>, String> {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    // The crate indexes and unwraps by what a file says of itself; a damaged one must not end the process.
    match catch_unwind(AssertUnwindSafe(|| read(file))) {
        Ok(rows) => rows.map_err(|error| error.to_string()),
        Err(_) => Err("the reader panicked, as it does on damaged files".to_owned()),
    }
}

#[cfg(feature = "parquet")]
fn read(file: File) -> parquet::errors::Result<Vec<Map<String, Value>>> {
    use parquet::errors::ParquetError;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    let reader = SerializedFileReader::new(file)?;
    let meta = reader.metadata();
    let rows: i64 = meta.row_groups().iter().map(|group| group.num_rows()).sum();
    // Else it might go on for ever.
    if rows != meta.file_metadata().num_rows() {
        let message = "its parts have another number of rows than the whole".to_owned();
        return Err(ParquetError::General(message));
    }
    let rows = reader.get_row_iter(None)?.map(|row| match present(row?.to_json_value()) {
        Value::Object(row) => Ok(row),
        _ => Ok(Map::new()),
    });
    rows.collect()
}

/// A value without those of its fields that are null.
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
pub(super) fn rows(_: File) -> Result<Vec<Map<String, Value>>, String> {
    Err("this program was built without the feature `parquet` of maverl; write JSONL, or build it with \
         `features = [\"parquet\"]`"
        .to_owned())
}

#[cfg(all(test, feature = "parquet"))]
mod tests;
