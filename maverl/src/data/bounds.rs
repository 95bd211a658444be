//! Size limits on data files: a file that is small on disk may be large in memory.

use std::io::{self, Read};

use crate::config::TaskConfig;

/// Minimum memory of a row in bytes.
const ROW: u64 = 256;
/// Ratio of memory to text of a file that is read as one value.
const VALUE: u64 = 8;

/// Size limits of a data file in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Limit of one row: a line, or an element of a list.
    pub row: u64,
    /// Limit of a compressed file after decompression. Uncompressed files have no limit.
    pub unpacked: u64,
    /// Keys that raise the limits: `task.max_row_mib` and `task.max_mib`. Empty if there are none.
    pub keys: [&'static str; 2],
}

impl Default for Bounds {
    /// 16 MiB per row and 1 GiB in total, which no key raises.
    fn default() -> Self {
        Self { row: 16 << 20, unpacked: 1 << 30, keys: [""; 2] }
    }
}

impl From<&TaskConfig> for Bounds {
    fn from(config: &TaskConfig) -> Self {
        Self {
            row: config.max_row_mib.get().saturating_mul(1 << 20),
            unpacked: config.max_mib.get().saturating_mul(1 << 20),
            keys: ["task.max_row_mib", "task.max_mib"],
        }
    }
}

impl Bounds {
    /// Returns the limits of a corpus, from the option of its environment.
    pub fn of_corpus(max_mib: u64) -> Self {
        let unpacked = max_mib.saturating_mul(1 << 20);
        Self { unpacked, keys: ["", "environment.max_mib"], ..Self::default() }
    }

    /// Returns the message about a row above the limit.
    pub(super) fn row_too_long(&self) -> String {
        let raise = raise(self.keys[0], "split it");
        format!("a row of more than {} MiB; {raise}", self.row >> 20)
    }

    /// Returns the message about a compressed file of `packed` bytes that exceeds the limit.
    pub(super) fn too_long(&self, packed: u64) -> String {
        let (most, raise) = (self.unpacked >> 20, raise(self.keys[1], "unpack it"));
        format!("it has {packed} bytes and unpacks to more than {most} MiB; {raise}")
    }

    /// Returns the maximum number of rows of a compressed file.
    pub(super) fn rows(&self) -> u64 {
        self.unpacked / ROW
    }

    /// Returns the message about a compressed file of `packed` bytes with more rows.
    pub(super) fn too_many(&self, packed: u64) -> String {
        let (most, raise) = (self.rows(), raise(self.keys[1], "unpack it"));
        format!("it has {packed} bytes and unpacks to more than {most} rows; {raise}")
    }

    /// Returns the limits of a file that is read as one value.
    pub(super) fn of_value(self) -> Self {
        Self { unpacked: self.unpacked / VALUE, ..self }
    }
}

/// Returns the remedy for an exceeded limit.
fn raise(key: &str, otherwise: &str) -> String {
    match key {
        "" => format!("{otherwise} if that is meant"),
        key => format!("raise `{key}` if that is meant"),
    }
}

/// A reader that fails with [`io::ErrorKind::FileTooLarge`] after a number of bytes.
pub(super) struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R> Bounded<R> {
    pub(super) fn new(inner: R, most: u64) -> Self {
        Self { inner, left: most }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        match self.left.checked_sub(n as u64) {
            Some(left) => self.left = left,
            None => return Err(io::ErrorKind::FileTooLarge.into()),
        }
        Ok(n)
    }
}
