//! Subset of Thrift's compact protocol that finds numbers in headers of Parquet files.

/// Maximum depth of nested structs that are skipped.
const DEEPEST: usize = 32;

/// Reader of a struct's bytes.
pub(super) struct ThriftReader<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// Number and type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) id: i64,
    pub(super) kind: u8,
}

pub(super) const I32: u8 = 5;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

impl<'b> ThriftReader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Reads the next field of a struct after that of number `last` (0 at its start), which becomes its number.
    /// `Some(None)` at the end; `None` if the bytes end or are invalid.
    pub(super) fn field(&mut self, last: &mut i64) -> Option<Option<Field>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *last = match byte >> 4 {
            0 => self.number()?,
            delta => *last + i64::from(delta),
        };
        Some(Some(Field { id: *last, kind: byte & 0x0f }))
    }

    /// Reads the head of a list: the number of elements, and their type.
    pub(super) fn list(&mut self) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        let size = match byte >> 4 {
            15 => self.varint()?,
            size => u64::from(size),
        };
        Some((size, byte & 0x0f))
    }

    /// Reads a number of 16, 32 or 64 bits.
    pub(super) fn number(&mut self) -> Option<i64> {
        let bits = self.varint()?;
        Some((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    /// Skips a value.
    pub(super) fn skip(&mut self, kind: u8) -> Option<()> {
        self.skip_to(kind, DEEPEST)
    }

    fn skip_to(&mut self, kind: u8, deepest: usize) -> Option<()> {
        let deeper = deepest.checked_sub(1)?;
        match kind {
            // The value of a boolean is encoded in its type.
            1 | 2 => {}
            3 => self.pass(1)?,
            4..=6 => drop(self.varint()?),
            7 => self.pass(8)?,
            8 => {
                let length = self.varint()?;
                self.pass(length)?;
            }
            LIST | 10 => {
                let (size, kind) = self.list()?;
                // In a list a boolean is a byte.
                let kind = if kind <= 2 { 3 } else { kind };
                for _ in 0..size {
                    self.skip_to(kind, deeper)?;
                }
            }
            11 => {
                let size = self.varint()?;
                let kinds = if size > 0 { self.byte()? } else { 0 };
                for _ in 0..size {
                    self.skip_to(kinds >> 4, deeper)?;
                    self.skip_to(kinds & 0x0f, deeper)?;
                }
            }
            STRUCT => {
                let mut last = 0;
                while let Some(Field { kind, .. }) = self.field(&mut last)? {
                    self.skip_to(kind, deeper)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        let at = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (at <= self.bytes.len()).then(|| self.at = at)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}
