//! Data files: text, compressed text, or Parquet, read row by row.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::bounds::{Bounded, Bounds};
use super::error::DataError;
use super::object::{KeyPath, distinct, distinct_object, with_numbers_as_written};
use super::parquet;
use super::parsed::{NumberedText, ParsedRows};
use super::rows::{Elements, Lines, RowError};
use crate::config::DataFormat;

/// Name of a row in messages.
pub(super) const ROW: &str = "JSON object";
/// First bytes of a gzip file.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Byte order mark.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// A file with its path and limits.
pub(super) struct DataFile {
    path: PathBuf,
    bounds: Bounds,
    parquet: bool,
}

/// A row with its number, or the error in its place.
type NumberedRow<T> = Result<(usize, T), DataError>;
/// Rows in file order.
type NumberedRows<'f, T> = Box<dyn Iterator<Item = NumberedRow<T>> + 'f>;

/// Reads the text of a file, decompressed if needed, without a byte order mark.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bounds = Bounds::default();
    let mut text = String::new();
    unpack_file(path, &bounds)?.read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => io::Error::other(bounds.too_long(size(path))),
        _ => error,
    })?;
    Ok(text)
}

/// Reads the bytes of a file, decompressed if needed, without a byte order mark.
fn unpack_file(path: &Path, bounds: &Bounds) -> io::Result<Box<dyn BufRead>> {
    let packed = is_packed(path)?;
    let file = BufReader::new(std::fs::File::open(path)?);
    let mut text: Box<dyn BufRead> = if packed {
        let bounded = Bounded::new(MultiGzDecoder::new(file), bounds.unpacked);
        Box::new(BufReader::with_capacity(1 << 16, bounded))
    } else {
        Box::new(file)
    };
    if text.fill_buf()?.starts_with(MARK) {
        text.consume(MARK.len());
    }
    Ok(text)
}

/// Returns true if a file is compressed.
fn is_packed(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(path)?.take(GZIP.len() as u64).read_to_end(&mut start)?;
    Ok(start == GZIP)
}

/// Returns the size on disk in bytes.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

impl DataFile {
    pub(super) fn open(path: &Path, bounds: Bounds) -> Result<Self, DataError> {
        let recognized = std::fs::File::open(path).and_then(|mut it| parquet::recognized(&mut it));
        let path = path.to_owned();
        match recognized {
            Ok(parquet) => Ok(Self { path, bounds, parquet }),
            Err(source) => Err(DataError::Read { path, source }),
        }
    }

    /// Returns the names of the values of columns that have numbers for them, as a Parquet file of the hub states them.
    pub(super) fn class_labels(&self) -> Vec<(String, Vec<String>)> {
        let open = self.parquet.then(|| std::fs::File::open(&self.path).ok()).flatten();
        open.map(parquet::class_labels).unwrap_or_default()
    }

    /// Returns the file name without extension; the source of tasks that name none.
    pub(super) fn stem(&self) -> String {
        let name = self.path.with_extension("");
        let packed = self.path.extension().is_some_and(|ending| ending == "gz");
        let stem = if packed { name.file_stem() } else { name.file_name() };
        stem.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the path, for messages.
    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the place of a row, for messages.
    pub(super) fn location(&self, line: usize) -> String {
        format!("{}:{line}", self.shown())
    }

    pub(super) fn damaged(&self, line: usize, message: impl Into<String>) -> DataError {
        DataError::Damaged { path: self.path.clone(), line, message: message.into() }
    }

    fn failed(&self, source: io::Error) -> DataError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::FileTooLarge => {
                DataError::TooLong { message: self.bounds.too_long(size(&path)), path }
            }
            _ => DataError::Read { path, source },
        }
    }

    fn wrong(&self, wrong: parquet::WrongParquet) -> DataError {
        let path = self.path.clone();
        match wrong {
            parquet::WrongParquet::TooLong(message) => DataError::TooLong { path, message },
            parquet::WrongParquet::Damaged(message) => DataError::Parquet { path, message },
            parquet::WrongParquet::Io(error) => self.failed(error),
        }
    }

    fn packed(&self) -> Result<bool, DataError> {
        is_packed(&self.path).map_err(|error| self.failed(error))
    }

    fn bytes(&self) -> Result<Box<dyn BufRead>, DataError> {
        unpack_file(&self.path, &self.bounds).map_err(|error| self.failed(error))
    }

    /// Returns the bytes from the first non-blank one, and that byte.
    fn begin(&self) -> Result<(Box<dyn BufRead>, Option<u8>), DataError> {
        let mut bytes = self.bytes()?;
        loop {
            let buffer = bytes.fill_buf().map_err(|error| self.failed(error))?;
            if buffer.is_empty() {
                return Ok((bytes, None));
            }
            match buffer.iter().position(|byte| !byte.is_ascii_whitespace()) {
                Some(at) => {
                    let first = buffer[at];
                    bytes.consume(at);
                    return Ok((bytes, Some(first)));
                }
                None => {
                    let blank = buffer.len();
                    bytes.consume(blank);
                }
            }
        }
    }

    /// Returns the form of the file, never `Auto`: the configured form, or the one detected from the content.
    pub(super) fn form(&self, asked: DataFormat) -> Result<DataFormat, DataError> {
        if asked != DataFormat::Auto {
            return Ok(asked);
        }
        if self.parquet {
            return Ok(of_rows(self.rows("row")?.next().and_then(Result::ok).as_ref()));
        }
        match self.begin()? {
            (_, None) => Ok(DataFormat::Jsonl),
            (_, Some(b'[')) => {
                Ok(of_rows(self.rows("list of JSON objects")?.next().and_then(Result::ok).as_ref()))
            }
            // One object per line, or a single object. In doubt, an unreadable line is reported by its number.
            (bytes, Some(b'{')) => match serde_json::Deserializer::from_reader(bytes)
                .into_iter::<FormatProbe>()
                .next()
            {
                Some(Err(error)) if error.to_string().starts_with(SQUAD) => Ok(DataFormat::Squad),
                _ => Ok(DataFormat::Jsonl),
            },
            (bytes, Some(_)) => {
                let mut start = Vec::new();
                bytes.take(80).read_to_end(&mut start).map_err(|error| self.failed(error))?;
                let start: String = String::from_utf8_lossy(&start).chars().take(20).collect();
                Err(self.damaged(1, format!(
                    "starts with {start:?}; a data file is Parquet or holds JSON: `{{` or `[`, or such a text packed by gzip"
                )))
            }
        }
    }

    /// Parses the whole file as one JSON value of a form.
    pub(super) fn parse<T: DeserializeOwned>(&self, form: &str) -> Result<T, DataError> {
        let file = Self { bounds: self.bounds.of_value(), path: self.path.clone(), ..*self };
        serde_json::from_reader(file.bytes()?).map_err(|error| match error.io_error_kind() {
            Some(kind) => file.failed(kind.into()),
            None => self.damaged(error.line().max(1), format!("no {form}: {error}")),
        })
    }

    /// Reads each row with its number: the index in a Parquet file or a list, else the line.
    pub(super) fn rows<'f, T: DeserializeOwned + 'f>(
        &'f self,
        form: &'f str,
    ) -> Result<NumberedRows<'f, T>, DataError> {
        self.rows_as_written(form, Vec::new())
    }

    fn no_row(&self, number: usize, form: &str, error: &serde_json::Error) -> DataError {
        // The position inside the row is useless if the row is one line.
        self.damaged(number, format!("no {form}: {error}"))
    }

    /// Reads each row as [`File::rows`] does. Numbers at these paths of a JSON text are texts as they are written.
    pub(super) fn rows_as_written<'f, T: DeserializeOwned + 'f>(
        &'f self,
        form: &'f str,
        paths: Vec<KeyPath>,
    ) -> Result<NumberedRows<'f, T>, DataError> {
        if self.parquet {
            let open = std::fs::File::open(&self.path).map_err(|error| self.failed(error))?;
            let rows = parquet::rows(open, self.bounds).map_err(|wrong| self.wrong(wrong))?;
            return Ok(Box::new((1..).zip(rows).map(move |(number, row)| {
                let row = row.map_err(|wrong| self.wrong(wrong))?;
                let row = T::deserialize(Value::Object(row));
                Ok((number, row.map_err(|error| self.no_row(number, form, &error))?))
            })));
        }
        Ok(Box::new(self.texts()?.map(move |text| {
            let (number, text) = text?;
            let row = distinct(&with_numbers_as_written(&text, &paths));
            Ok((number, row.map_err(|error| self.no_row(number, form, &error))?))
        })))
    }

    /// Reads each row as `read` does from its number and its JSON object, several at once. Numbers at these paths of a JSON text
    /// are texts as they are written.
    pub(super) fn objects<'f, T: Send + 'f>(
        &'f self,
        form: &'f str,
        paths: Vec<KeyPath>,
        read: impl Fn(usize, Map<String, Value>) -> Result<T, DataError> + Sync + 'f,
    ) -> Result<Box<dyn Iterator<Item = Result<T, DataError>> + 'f>, DataError> {
        if self.parquet {
            return Ok(Box::new(self.rows_as_written(form, paths)?.map(move |row| {
                let (number, row) = row?;
                read(number, row)
            })));
        }
        Ok(Box::new(ParsedRows::new(self.texts()?, move |number: usize, text: &[u8]| {
            let row = distinct_object(&with_numbers_as_written(text, &paths));
            read(number, row.map_err(|error| self.no_row(number, form, &error))?)
        })))
    }

    /// Reads the text of each row of a file that is not Parquet, with its number.
    fn texts(&self) -> Result<Box<dyn Iterator<Item = NumberedText> + '_>, DataError> {
        let (bytes, first) = self.begin()?;
        let most = if self.packed()? { self.bounds.rows() } else { u64::MAX };
        let mut count = 0;
        let texts: Box<dyn Iterator<Item = RowText>> = match first {
            Some(b'[') => Box::new(Elements::new(bytes, self.bounds.row)),
            // Lines are counted from the start of the file.
            _ => Box::new(Lines::new(self.bytes()?, self.bounds.row)),
        };
        Ok(Box::new(texts.map(move |text| {
            count += 1;
            if count > most {
                let (path, message) = (self.path.clone(), self.bounds.too_many(size(&self.path)));
                return Err(DataError::TooLong { path, message });
            }
            text.map_err(|error| match error {
                RowError::Io(error) => self.failed(error),
                RowError::TooLong(number) => self.damaged(number, self.bounds.row_too_long()),
                RowError::NoList(number, what) => self.damaged(number, what),
            })
        })))
    }
}

/// Text of a row with its number.
type RowText = Result<(usize, Vec<u8>), RowError>;

/// Detects the form of a list of rows from its first row: those of HotpotQA have paragraphs beside the question.
fn of_rows(first: Option<&(usize, Map<String, Value>)>) -> DataFormat {
    let context = first.and_then(|(_, row)| row.get("context"));
    if context.is_some_and(|context| context.is_array() || context.is_object()) {
        DataFormat::Hotpot
    } else {
        DataFormat::Jsonl
    }
}

/// Error with which [`FormatProbe`] reports the list of a SQuAD file.
const SQUAD: &str = "a list of articles";

/// Parses an object without keeping any of it, up to a list under `data`.
struct FormatProbe;

impl<'de> Deserialize<'de> for FormatProbe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FirstKeys;

        impl<'de> Visitor<'de> for FirstKeys {
            type Value = FormatProbe;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FormatProbe, A::Error> {
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "data" => {
                            map.next_value::<NoList>()?;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(FormatProbe)
            }
        }

        deserializer.deserialize_map(FirstKeys)
    }
}

/// Any value but a list.
struct NoList;

impl<'de> Deserialize<'de> for NoList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Other;

        impl<'de> Visitor<'de> for Other {
            type Value = NoList;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("anything but a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<NoList, A::Error> {
                Err(A::Error::custom(SQUAD))
            }
        }

        deserializer.deserialize_any(Other)
    }
}
