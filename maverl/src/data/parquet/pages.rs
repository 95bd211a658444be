//! Decompressed size of a Parquet file, from its footer and the headers of its pages: the crate that reads it allocates
//! the sizes that they state.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use flate2::bufread::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::thrift::{Field, I32, LIST, STRUCT, ThriftReader};
use super::wrong::WrongParquet;
use crate::data::bounds::Bounds;

/// Maximum depth of nested columns.
const DEEPEST: usize = 64;
/// Maximum size in bytes of a footer and of a page header.
const FOOTER: u64 = 64 << 20;
const HEADER: u64 = 16 << 20;
/// Memory in bytes of a list's value when its row is read, whatever its size in the file.
const VALUE: u64 = 64;

/// Contents of a page header.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    packed: u64,
    unpacked: u64,
    values: u64,
    /// Number of bytes at the start of the page that are never compressed.
    levels: u64,
    /// Size of the header itself in bytes.
    header: u64,
}

/// Rejects a schema that is nested so deeply that reading it would overflow the stack.
pub(super) fn schema(file: &mut File) -> Result<(), WrongParquet> {
    let footer = footer(file).map_err(WrongParquet::Io)?;
    match footer.as_deref().map(depth) {
        Some(Some(depth)) if depth > DEEPEST => Err(WrongParquet::Damaged(format!(
            "its columns are nested {depth} deep; {DEEPEST} are read"
        ))),
        // The crate reports other problems.
        _ => Ok(()),
    }
}

/// Reads the bytes of the footer; `None` if there is none.
fn footer(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let size = file.metadata()?.len();
    if size < 12 {
        return Ok(None);
    }
    let mut end = [0; 8];
    file.seek(SeekFrom::Start(size - 8))?;
    file.read_exact(&mut end)?;
    let [a, b, c, d, ..] = end;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    if length + 8 > size || length > FOOTER {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(size - 8 - length))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    file.rewind()?;
    Ok(Some(bytes))
}

/// Returns the maximum depth of the columns of a footer.
fn depth(footer: &[u8]) -> Option<usize> {
    let mut reader = ThriftReader::new(footer);
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        if field != (Field { id: 2, kind: LIST }) {
            reader.skip(field.kind)?;
            continue;
        }
        let (size, kind) = reader.list()?;
        if kind != STRUCT {
            return None;
        }
        // Number of remaining children of each open group.
        let (mut open, mut deepest): (Vec<i64>, _) = (Vec::new(), 0);
        for _ in 0..size {
            let children = children(&mut reader)?;
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
            }
            deepest = deepest.max(open.len());
            while open.last().is_some_and(|left| *left <= 0) {
                open.pop();
            }
        }
        return Some(deepest);
    }
    None
}

/// Returns the number of children of a schema element.
fn children(reader: &mut ThriftReader<'_>) -> Option<i64> {
    let (mut last, mut children) = (0, 0);
    while let Some(Field { id, kind }) = reader.field(&mut last)? {
        match (id, kind) {
            (5, I32) => children = reader.number()?,
            _ => reader.skip(kind)?,
        }
    }
    Some(children)
}

/// Rejects a file whose pages exceed the limits, or their stated sizes.
pub(super) fn sizes(
    file: &mut File,
    metadata: &ParquetMetaData,
    bounds: &Bounds,
) -> Result<(), WrongParquet> {
    let packed = file.metadata().map_err(WrongParquet::Io)?.len();
    let (mut unpacked, mut values) = (0_u64, 0_u64);
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let listed = column.column_descr().max_rep_level() > 0;
        let (mut at, end) = range(column).ok_or_else(|| damaged("a column of negative size"))?;
        while at < end {
            let page = page(file, at)?;
            if column.compression() == Compression::GZIP(Default::default()) {
                packed_by_gzip(file, at, &page)?;
            }
            unpacked = unpacked.saturating_add(page.unpacked);
            values = values.saturating_add(if listed { page.values } else { 0 });
            at = at.saturating_add(page.header).saturating_add(page.packed);
        }
        if unpacked > bounds.unpacked || values > bounds.unpacked / VALUE {
            return Err(WrongParquet::TooLong(bounds.too_long(packed)));
        }
    }
    file.rewind().map_err(WrongParquet::Io)
}

fn damaged(what: &str) -> WrongParquet {
    WrongParquet::Damaged(what.to_owned())
}

/// Returns the byte range of a column's pages.
fn range(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let (start, length) =
        (u64::try_from(start).ok()?, u64::try_from(column.compressed_size()).ok()?);
    Some((start, start.checked_add(length)?))
}

/// Reads the header of the page at an offset.
fn page(file: &mut File, at: u64) -> Result<Page, WrongParquet> {
    let mut length = 1 << 10;
    loop {
        file.seek(SeekFrom::Start(at)).map_err(WrongParquet::Io)?;
        let mut bytes = Vec::new();
        file.by_ref().take(length).read_to_end(&mut bytes).map_err(WrongParquet::Io)?;
        match header(&bytes) {
            Some(page) => return Ok(page),
            // The header may be longer than the bytes read.
            None if bytes.len() as u64 == length && length < HEADER => length *= 16,
            None => return Err(damaged("the header of a page cannot be read")),
        }
    }
}

/// Parses a page's header: fields 2 and 3 are its sizes, and 5 or 8 a struct about its contents.
fn header(bytes: &[u8]) -> Option<Page> {
    let mut reader = ThriftReader::new(bytes);
    let (mut page, mut last) = (Page::default(), 0);
    while let Some(Field { id, kind }) = reader.field(&mut last)? {
        match (id, kind) {
            (2, I32) => page.unpacked = u64::try_from(reader.number()?).ok()?,
            (3, I32) => page.packed = u64::try_from(reader.number()?).ok()?,
            (5, STRUCT) => contents(&mut reader, &mut page, &[])?,
            (8, STRUCT) => contents(&mut reader, &mut page, &[5, 6])?,
            _ => reader.skip(kind)?,
        }
    }
    page.header = reader.position() as u64;
    Some(page)
}

/// Parses the contents of a page header: field 1 is the number of values. Some fields are lengths of levels, which
/// version 2 does not compress.
fn contents(reader: &mut ThriftReader<'_>, page: &mut Page, levels: &[i64]) -> Option<()> {
    let mut last = 0;
    while let Some(Field { id, kind }) = reader.field(&mut last)? {
        match (id, kind) {
            (1, I32) => page.values = u64::try_from(reader.number()?).ok()?,
            (id, I32) if levels.contains(&id) => {
                page.levels += u64::try_from(reader.number()?).ok()?;
            }
            _ => reader.skip(kind)?,
        }
    }
    Some(())
}

/// Rejects a page that gzip decompresses to more than its header states: the crate decompresses all of it.
fn packed_by_gzip(file: &mut File, at: u64, page: &Page) -> Result<(), WrongParquet> {
    let start = at.saturating_add(page.header).saturating_add(page.levels);
    file.seek(SeekFrom::Start(start)).map_err(WrongParquet::Io)?;
    let packed = io::BufReader::new(file.take(page.packed.saturating_sub(page.levels)));
    let most = page.unpacked.saturating_add(1);
    // Invalid gzip data is left to the crate, which decompresses no more of it than this function.
    match io::copy(&mut MultiGzDecoder::new(packed).take(most), &mut io::sink()) {
        Ok(length) if length == most => Err(damaged("a page unpacks to more than its header says")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a footer of a schema in which each group has one child.
    fn nested(depth: usize) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xfc];
        let mut size = depth + 1;
        while size >= 0x80 {
            bytes.push(size as u8 | 0x80);
            size >>= 7;
        }
        bytes.push(size as u8);
        for _ in 0..depth {
            // Field 4 is the name, field 5 the number of children.
            bytes.extend([0x48, 1, b'a', 0x15, 2, 0]);
        }
        bytes.extend([0x48, 1, b'b', 0, 0]);
        bytes
    }

    #[test]
    fn the_depth_of_a_schema_is_counted_before_anybody_descends() {
        for levels in [1, 3, 14, 100, 100_000] {
            assert_eq!(depth(&nested(levels)), Some(levels));
        }
        let cut = nested(200);
        assert_eq!(depth(&cut[..cut.len() / 2]), None);
    }

    #[test]
    fn sizes_and_values_are_found_in_a_header() {
        // Type 0, 300 bytes uncompressed, 10 compressed, a checksum, and a data page of 1000 values with statistics.
        let bytes = [
            &[0x15, 0, 0x15, 0xd8, 0x04, 0x15, 20, 0x15, 2][..],
            &[0x1c, 0x15, 0xd0, 0x0f, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c, 0x18, 1, b'x', 0, 0, 0],
            b"the page",
        ]
        .concat();
        let page = header(&bytes);
        assert_eq!(
            page,
            Some(Page { packed: 10, unpacked: 300, values: 1000, levels: 0, header: 26 })
        );
        assert_eq!(header(&bytes[..20]), None);
        // A page of version 2, with 3 and 4 bytes of levels.
        let bytes = [
            &[0x15, 6, 0x15, 0xd8, 0x04, 0x15, 20, 0x5c][..],
            &[0x15, 8, 0x15, 0, 0x15, 8, 0x15, 0, 0x15, 6, 0x15, 8, 0x11, 0, 0],
        ]
        .concat();
        let page = header(&bytes);
        assert_eq!(
            page,
            Some(Page { packed: 10, unpacked: 300, values: 4, levels: 7, header: 23 })
        );
    }
}
