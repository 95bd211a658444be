//! GgufHeader of a GGUF file: metadata, and places of tensors (reference: ggml/docs/gguf.md). Versions 1 to 3, little-endian.
//!
//! The header is untrusted: lengths are compared with the bytes that are there, texts and lists stay where they are in the file,
//! and tensors must not overlap as a whole, so that what is read is bounded by the size of the file.

use std::collections::BTreeMap;
use std::ops::Range;

use super::kinds::{NAMES, NumberKind};
use crate::files::error::list_problems;

/// First bytes of a file.
const MAGIC: &[u8] = b"GGUF";
/// Most keys of metadata.
const MOST_KEYS: usize = 1 << 14;
/// Most tensors.
const MOST_TENSORS: usize = 1 << 17;
/// Most dimensions of a tensor.
const MOST_DIMS: u32 = 4;
/// Number of the type of texts.
const TEXT: u32 = 8;
/// Number of the type of lists.
const LIST: u32 = 9;

/// A value of metadata.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MetaValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Flag(bool),
    /// Bytes of a text in the file.
    Text(Range<usize>),
    List(MetaList),
}

/// A list of metadata, by its place in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetaList {
    /// Number of the elements' type.
    element: u32,
    count: usize,
    start: usize,
    /// True if lengths have 64 bits.
    wide: bool,
}

/// Place and shape of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorPlace {
    pub(crate) kind: NumberKind,
    /// Dimensions, the longest distance in memory first.
    pub(crate) dims: Vec<usize>,
    /// Bytes in the file.
    pub(crate) span: Range<usize>,
}

/// Metadata and tensors of a file.
#[derive(Debug, Default)]
pub(crate) struct GgufHeader {
    pub(crate) metadata: BTreeMap<String, MetaValue>,
    pub(crate) tensors: BTreeMap<String, TensorPlace>,
}

impl GgufHeader {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// The damage, or each tensor of a kind that is not read.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err("it does not begin with GGUF".to_owned());
        };
        let version = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let wide = match version {
            Some(1) => false,
            Some(2 | 3) => true,
            Some(other) if (1..=3).contains(&other.swap_bytes()) => {
                return Err("it is big-endian; little-endian files are read".to_owned());
            }
            other => {
                let found = other.map_or("missing".to_owned(), |version| version.to_string());
                return Err(format!("its version is {found}; 1, 2 and 3 are read"));
            }
        };
        let mut cursor = HeaderCursor { bytes, at: MAGIC.len() + 4, wide };
        let tensors = cursor.count("tensors", MOST_TENSORS)?;
        let keys = cursor.count("keys", MOST_KEYS)?;
        let mut header = Self::default();
        for _ in 0..keys {
            let key = cursor.name()?;
            let kind = cursor.u32()?;
            let value = cursor.value(kind).map_err(|what| format!("`{key}`: {what}"))?;
            if header.metadata.insert(key.clone(), value).is_some() {
                return Err(format!("`{key}` is there twice"));
            }
        }
        header.read_tensors(&mut cursor, tensors)?;
        Ok(header)
    }

    /// Reads the places of tensors, after the metadata.
    fn read_tensors(&mut self, cursor: &mut HeaderCursor<'_>, count: usize) -> Result<(), String> {
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (name, listed) = cursor.tensor()?;
            match NumberKind::of_id(listed.kind) {
                Ok(kind) => found.push((name, kind, listed)),
                Err(what) => unread.push(format!("tensor `{name}` is {what}")),
            }
        }
        if !unread.is_empty() {
            return Err(format!("{}; read are {NAMES}", list_problems(&unread)));
        }
        let alignment = self.alignment()?;
        let start = cursor.at.next_multiple_of(alignment);
        let mut free = cursor.bytes.len().saturating_sub(start);
        for (name, kind, listed) in found {
            let place = listed
                .place(kind, alignment, start, cursor.bytes.len())
                .map_err(|what| format!("tensor `{name}`: {what}"))?;
            free = free.checked_sub(place.span.len()).ok_or("tensors overlap")?;
            if self.tensors.insert(name.clone(), place).is_some() {
                return Err(format!("tensor `{name}` is there twice"));
            }
        }
        Ok(())
    }

    /// Returns the multiple of bytes at which tensors begin.
    fn alignment(&self) -> Result<usize, String> {
        const KEY: &str = "general.alignment";
        match self.metadata.get(KEY) {
            None => Ok(32),
            Some(MetaValue::Unsigned(n)) if (8..=65_536).contains(n) && n.is_multiple_of(8) => {
                Ok(*n as usize)
            }
            Some(_) => Err(format!("`{KEY}` is no multiple of 8 up to 65536")),
        }
    }
}

/// Entry of a tensor in the header.
struct ListedTensor {
    /// Dimensions, the shortest distance in memory first.
    dims: Vec<usize>,
    /// Number of the kind.
    kind: u32,
    /// First byte after the header.
    offset: u64,
}

impl ListedTensor {
    /// Returns the place of the tensor in a file of so many bytes, whose tensors begin at `start`.
    fn place(
        mut self,
        kind: NumberKind,
        alignment: usize,
        start: usize,
        length: usize,
    ) -> Result<TensorPlace, String> {
        let columns = self.dims.first().copied().unwrap_or(1);
        if self.dims.contains(&0) {
            return Err("a dimension is 0".to_owned());
        }
        if !columns.is_multiple_of(kind.block()) {
            let (name, block) = (kind.name(), kind.block());
            return Err(format!(
                "rows of {columns} numbers are no multiple of {block}, a block of {name}"
            ));
        }
        let numbers = self.dims.iter().try_fold(1_usize, |n, dim| n.checked_mul(*dim));
        let offset = usize::try_from(self.offset).ok();
        if offset.is_some_and(|offset| !offset.is_multiple_of(alignment)) {
            return Err(format!("it begins at byte {}, no multiple of {alignment}", self.offset));
        }
        let span = numbers
            .and_then(|numbers| kind.bytes_of(numbers))
            .zip(offset.and_then(|offset| start.checked_add(offset)))
            .and_then(|(bytes, from)| Some(from..from.checked_add(bytes)?))
            .filter(|span| span.end <= length);
        let span =
            span.ok_or_else(|| format!("it ends after the file, which has {length} bytes"))?;
        self.dims.reverse();
        Ok(TensorPlace { kind, dims: self.dims, span })
    }
}

/// Position in a file.
struct HeaderCursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// True if lengths have 64 bits.
    wide: bool,
}

impl<'a> HeaderCursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end =
            end.ok_or_else(|| format!("it ends within its header, at {}", self.bytes.len()))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(*self.take(N)?.first_chunk().expect("as many bytes as were taken"))
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads a length, whose size depends on the version.
    fn length(&mut self) -> Result<usize, String> {
        let length = if self.wide { u64::from_le_bytes(self.array()?) } else { self.u32()?.into() };
        usize::try_from(length).map_err(|_| format!("a length is {length}"))
    }

    /// Reads how many of something there are.
    fn count(&mut self, what: &str, most: usize) -> Result<usize, String> {
        let count = self.length()?;
        if count <= most {
            Ok(count)
        } else {
            Err(format!("it has {count} {what}; at most {most} are read"))
        }
    }

    /// Reads a text, and returns its bytes' place.
    fn text(&mut self) -> Result<Range<usize>, String> {
        let length = self.length()?;
        let taken = self.take(length)?.len();
        Ok(self.at - taken..self.at)
    }

    /// Reads a text that names something.
    fn name(&mut self) -> Result<String, String> {
        let text = self.text()?;
        let text = std::str::from_utf8(&self.bytes[text]);
        text.map(str::to_owned).map_err(|_| "a name is not UTF-8".to_owned())
    }

    /// Reads a value of a type.
    fn value(&mut self, kind: u32) -> Result<MetaValue, String> {
        match kind {
            TEXT => Ok(MetaValue::Text(self.text()?)),
            LIST => Ok(MetaValue::List(self.list()?)),
            _ => {
                let width = width(kind).ok_or_else(|| format!("its type is {kind}"))?;
                Ok(scalar(kind, self.take(width)?))
            }
        }
    }

    /// Skips a list, and returns its place.
    fn list(&mut self) -> Result<MetaList, String> {
        let (element, count, wide) = (self.u32()?, self.length()?, self.wide);
        let list = MetaList { element, count, start: self.at, wide };
        if element == TEXT {
            for _ in 0..count {
                self.text()?;
            }
            return Ok(list);
        }
        let width = width(element).ok_or_else(|| format!("a list of type {element}"))?;
        self.take(count.checked_mul(width).ok_or("a list is too long")?)?;
        Ok(list)
    }

    /// Reads the entry of a tensor.
    fn tensor(&mut self) -> Result<(String, ListedTensor), String> {
        let (name, count) = (self.name()?, self.u32()?);
        if count > MOST_DIMS {
            return Err(format!(
                "tensor `{name}` has {count} dimensions; at most {MOST_DIMS} are read"
            ));
        }
        let dims = (0..count).map(|_| self.length()).collect::<Result<Vec<_>, _>>()?;
        let kind = self.u32()?;
        let offset = u64::from_le_bytes(self.array()?);
        Ok((name, ListedTensor { dims, kind, offset }))
    }
}

/// Returns the bytes of a value of a type other than text and list.
fn width(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Returns a value of as many bytes as its type has.
fn scalar(kind: u32, bytes: &[u8]) -> MetaValue {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let (bits, low) =
        (u64::from_le_bytes(wide), u32::from_le_bytes([wide[0], wide[1], wide[2], wide[3]]));
    match kind {
        1 => MetaValue::Signed(i64::from(wide[0] as i8)),
        3 => MetaValue::Signed(i64::from(low as u16 as i16)),
        5 => MetaValue::Signed(i64::from(low as i32)),
        6 => MetaValue::Float(f64::from(f32::from_bits(low))),
        7 => MetaValue::Flag(wide[0] != 0),
        11 => MetaValue::Signed(bits as i64),
        12 => MetaValue::Float(f64::from_bits(bits)),
        _ => MetaValue::Unsigned(bits),
    }
}

impl MetaList {
    /// Returns the elements of a list of texts; `None` if it is none, or one is not UTF-8.
    pub(crate) fn texts<'a>(&self, bytes: &'a [u8]) -> Option<Vec<&'a str>> {
        let mut cursor = HeaderCursor { bytes, at: self.start, wide: self.wide };
        let mut text = || std::str::from_utf8(&bytes[cursor.text().ok()?]).ok();
        (self.element == TEXT).then(|| (0..self.count).map(|_| text()).collect())?
    }

    /// Returns the elements of a list of numbers or flags; `None` if it is none.
    pub(crate) fn numbers(&self, bytes: &[u8]) -> Option<Vec<f64>> {
        let width = width(self.element)?;
        let bytes = &bytes[self.start..self.start + self.count * width];
        let numbers = bytes.chunks_exact(width).map(|bytes| scalar(self.element, bytes).number());
        numbers.collect()
    }
}

impl MetaValue {
    /// Returns a number, or a flag as 0 or 1.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Unsigned(n) => Some(*n as f64),
            Self::Signed(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            Self::Flag(flag) => Some(f64::from(u8::from(*flag))),
            Self::Text(_) | Self::List(_) => None,
        }
    }
}
