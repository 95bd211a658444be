//! Zip files without compression, by their central directory (PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3).

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of the record at the end, without its comment.
const END: usize = 22;
/// Longest comment.
const COMMENT: usize = 0xffff;
/// Value of a size that is in an extra field with 64 bits.
const IN_EXTRA: u64 = 0xffff_ffff;
/// Most files.
const MOST: usize = 1 << 18;

/// Places of the files in a zip file, by name.
pub(super) struct Archive<'a> {
    files: BTreeMap<&'a str, Range<usize>>,
}

/// Returns a number of `N` bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(wide))
}

/// Returns a number of `N` bytes as a size.
fn size<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(number::<N>(bytes, at)?).ok()
}

impl<'a> Archive<'a> {
    /// Reads the places of all files.
    ///
    /// # Errors
    ///
    /// If it is no zip file, is damaged, or has compressed files.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let damaged = || "it is no zip file, or damaged".to_owned();
        let (count, mut at) = directory(bytes).ok_or_else(damaged)?;
        if count > MOST {
            return Err(format!("it has {count} files; at most {MOST} are read"));
        }
        let mut files = BTreeMap::new();
        for _ in 0..count {
            let (name, entry, next) = entry(bytes, at).ok_or_else(damaged)?;
            let place = entry.ok_or_else(|| format!("`{name}` is compressed, or damaged"))?;
            files.insert(name, place);
            at = next;
        }
        Ok(Self { files })
    }

    /// Returns the place of a file's content.
    pub(super) fn content(&self, name: &str) -> Option<Range<usize>> {
        self.files.get(name).cloned()
    }

    /// Returns the folder of all files, with its slash, and the place of the program.
    pub(super) fn program(&self) -> Result<(&'a str, Range<usize>), String> {
        let mut programs = self
            .files
            .iter()
            .filter_map(|(name, place)| Some((name.strip_suffix("data.pkl")?, place.clone())));
        programs.next().ok_or_else(|| "it has no `data.pkl`".to_owned())
    }
}

/// Returns how many files there are, and where their directory begins.
fn directory(bytes: &[u8]) -> Option<(usize, usize)> {
    let last = bytes.len().checked_sub(END)?;
    let first = last.saturating_sub(COMMENT);
    let end = (first..=last).rev().find(|at| bytes[*at..].starts_with(b"PK\x05\x06"))?;
    let (count, start) = (size::<2>(bytes, end + 10)?, number::<4>(bytes, end + 16)?);
    if count < 0xffff && start < IN_EXTRA {
        return Some((count, usize::try_from(start).ok()?));
    }
    let locator = end.checked_sub(20).filter(|at| bytes[*at..].starts_with(b"PK\x06\x07"))?;
    let record = size::<8>(bytes, locator + 8)?;
    bytes.get(record..)?.starts_with(b"PK\x06\x06").then_some(())?;
    Some((size::<8>(bytes, record.checked_add(32)?)?, size::<8>(bytes, record.checked_add(48)?)?))
}

/// Returns the name of an entry of the directory, the place of its content (`None` if it is compressed or damaged), and the next
/// entry.
fn entry(bytes: &[u8], at: usize) -> Option<(&str, Option<Range<usize>>, usize)> {
    bytes.get(at..)?.starts_with(b"PK\x01\x02").then_some(())?;
    let field = |from: usize| at.checked_add(from);
    let [name, extra, comment] = [28, 30, 32].map(|from| size::<2>(bytes, field(from)?));
    let (name, extra, comment) = (name?, extra?, comment?);
    let start = field(46)?;
    let text = std::str::from_utf8(bytes.get(start..start.checked_add(name)?)?).ok()?;
    let next = start + name + extra + comment;
    let extra = bytes.get(start + name..start + name + extra)?;
    let sizes = [24, 20, 42].map(|from| number::<4>(bytes, field(from)?));
    let plain = number::<2>(bytes, field(10)?)? == 0;
    let content = plain.then(|| content(bytes, extra, sizes)).flatten();
    Some((text, content, next))
}

/// Returns the place of a content, from its size, its compressed size and the place of its own header.
fn content(bytes: &[u8], extra: &[u8], sizes: [Option<u64>; 3]) -> Option<Range<usize>> {
    let mut wide = wide_sizes(extra);
    let [length, stored, header] = sizes.map(|size| match size? {
        IN_EXTRA => wide.next(),
        size => Some(size),
    });
    (length? == stored?).then_some(())?;
    let (length, header) = (usize::try_from(length?).ok()?, usize::try_from(header?).ok()?);
    bytes.get(header..)?.starts_with(b"PK\x03\x04").then_some(())?;
    let skipped =
        size::<2>(bytes, header.checked_add(26)?)? + size::<2>(bytes, header.checked_add(28)?)?;
    let start = header.checked_add(30)?.checked_add(skipped)?;
    let end = start.checked_add(length).filter(|end| *end <= bytes.len())?;
    Some(start..end)
}

/// Iterates over the sizes of 64 bits in an extra field.
fn wide_sizes(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut found: &[u8] = &[];
    while let (Some(kind), Some(length)) = (number::<2>(extra, 0), size::<2>(extra, 2)) {
        let Some(content) = extra.get(4..4 + length) else { break };
        if kind == 1 {
            found = content;
            break;
        }
        extra = &extra[4 + length..];
    }
    found.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}
