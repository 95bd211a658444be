//! Compressed content of files, with a checksum, and lines of JSON in it.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::RunDirError;
use super::lines::PackedLines;

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

/// Reads the values of a file of compressed lines of JSON, which are of limited length. An error about a line names it.
pub(super) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunDirError> {
    let (mut lines, mut line, mut values) = (PackedLines::open(path)?, Vec::new(), Vec::new());
    while lines.read(&mut line)? {
        values.push(serde_json::from_slice(&line).map_err(|error| lines.damaged_line(error))?);
    }
    Ok(values)
}
