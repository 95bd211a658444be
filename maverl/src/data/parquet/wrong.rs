//! Reasons why a file in Parquet cannot be read.

use std::io;

/// Reason that a file, or a row of it, cannot be read.
#[derive(Debug)]
pub(in crate::data) enum WrongParquet {
    /// The file exceeds the bounds.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    TooLong(String),
    /// The file is damaged.
    Damaged(String),
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))] // nothing is read then
    Io(io::Error),
}
