//! Rows of JSON, each on a line of a file or of standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use maverl::output;
use serde::Serialize;

/// Where rows go.
pub(super) enum JsonLines {
    /// To a file.
    File(BufWriter<File>),
    /// To standard output. A reader that has closed it is no error.
    Output,
}

impl JsonLines {
    /// Opens a file; `-` is standard output.
    pub(super) fn open(out: &Path) -> io::Result<Self> {
        if out == Path::new("-") {
            return Ok(Self::Output);
        }
        Ok(Self::File(BufWriter::new(File::create(out)?)))
    }

    /// Writes a row. Numbers are written as in the files of the run, so a reader gets the same bits.
    pub(super) fn write_row(&mut self, row: &impl Serialize) -> io::Result<()> {
        match self {
            Self::File(file) => {
                serde_json::to_writer(&mut *file, row)?;
                file.write_all(b"\n")
            }
            Self::Output => output::print(&(output::json_line(row)? + "\n")),
        }
    }

    /// Writes what is still in memory.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::File(mut file) => file.flush(),
            Self::Output => Ok(()),
        }
    }
}
