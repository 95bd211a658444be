//! Compressed content of files, with a checksum, and lines of JSON in it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{At, RunDirError, damaged_error};

/// Compression level.
pub(super) const LEVEL: i32 = 3;

/// Begins a frame with a checksum.
pub(super) fn begin_frame<W: Write>(out: W) -> io::Result<zstd::Encoder<'static, W>> {
    let mut frame = zstd::Encoder::new(out, LEVEL)?;
    frame.include_checksum(true)?;
    Ok(frame)
}

/// Compresses bytes as a frame.
pub(super) fn pack_bytes<W: Write>(out: W, bytes: &[u8]) -> io::Result<W> {
    let mut frame = begin_frame(out)?;
    frame.write_all(bytes)?;
    frame.finish()
}

/// Compresses values as lines of JSON in a frame.
pub(super) fn pack_lines(values: impl IntoIterator<Item = impl Serialize>) -> io::Result<Vec<u8>> {
    let mut frame = begin_frame(Vec::new())?;
    for value in values {
        serde_json::to_writer(&mut frame, &value)?;
        frame.write_all(b"\n")?;
    }
    frame.finish()
}

/// Reads the values of a file of compressed lines of JSON. An error about a line names it.
pub(super) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunDirError> {
    let file = File::open(path).at("open", path)?;
    let text = BufReader::new(zstd::Decoder::new(file).at("read", path)?);
    let mut values = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let value = serde_json::from_str(&line.at("read", path)?);
        values.push(value.map_err(|e| damaged_error(path, format!("line {}: {e}", i + 1)))?);
    }
    Ok(values)
}
