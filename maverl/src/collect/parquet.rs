//! Rows of a data set as a Parquet file, with the columns as lists and structs that `datasets` and pyarrow read.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use crate::collect::rows::Row;

/// Rows of a row group.
const GROUP: usize = 1 << 16;

/// Type of a column, the same in every row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParquetColumn {
    Bool,
    Int,
    Float,
    Text,
    Bools,
    Ints,
    Floats,
    Texts,
    /// Messages: a list of `role` and `content`.
    Messages,
    /// Another value, as JSON in a text.
    Json,
}

/// Writes rows, compressed with zstd. Columns are those of the first row and then those that only later ones have; a row may
/// lack a column.
pub(super) fn write(rows: &[Row], file: File) -> Result<(), ParquetError> {
    let columns = columns(rows);
    let fields: Vec<TypePtr> =
        columns.iter().map(|(name, column)| column.field(name)).collect::<Result<_, _>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    for rows in rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        for (name, column) in &columns {
            let values: Vec<&Value> = rows.iter().map(|row| &row.columns[*name]).collect();
            for leaf in column.leaves() {
                let Some(mut out) = group.next_column()? else { break };
                column.leaf(&mut out, &values, leaf)?;
                out.close()?;
            }
        }
        group.close()?;
    }
    writer.close().map(drop)
}

/// Returns the columns of all rows with their types.
fn columns(rows: &[Row]) -> Vec<(&str, ParquetColumn)> {
    let mut columns: Vec<(&str, Vec<&Value>)> = Vec::new();
    for (name, value) in rows.iter().filter_map(|row| row.columns.as_object()).flatten() {
        match columns.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value),
            None => columns.push((name, vec![value])),
        }
    }
    columns.into_iter().map(|(name, values)| (name, ParquetColumn::of(&values))).collect()
}

impl ParquetColumn {
    fn of(values: &[&Value]) -> Self {
        let items = values.iter().filter_map(|value| value.as_array()).flatten();
        let items: Vec<&Value> = items.collect();
        match () {
            () if are_all(values, Value::is_boolean) => Self::Bool,
            () if are_all(values, Value::is_i64) => Self::Int,
            () if are_all(values, Value::is_number) => Self::Float,
            () if are_all(values, Value::is_string) => Self::Text,
            () if !are_all(values, Value::is_array) => Self::Json,
            () if are_all(&items, Value::is_boolean) => Self::Bools,
            () if are_all(&items, Value::is_i64) => Self::Ints,
            () if are_all(&items, Value::is_number) => Self::Floats,
            () if are_all(&items, Value::is_string) => Self::Texts,
            () if are_all(&items, is_message) => Self::Messages,
            () => Self::Json,
        }
    }

    /// Returns the field of the schema. A list that is there has no missing elements.
    fn field(self, name: &str) -> Result<TypePtr, ParquetError> {
        if matches!(self, Self::Bool | Self::Int | Self::Float | Self::Text | Self::Json) {
            return self.leaf_field(name, Repetition::OPTIONAL);
        }
        let required = Repetition::REQUIRED;
        let element = match self {
            Self::Messages => {
                let fields = self.leaves().iter().map(|name| self.leaf_field(name, required));
                let fields = fields.collect::<Result<_, _>>()?;
                group("element", required, ConvertedType::NONE, fields)?
            }
            _ => self.leaf_field("element", required)?,
        };
        let list = group("list", Repetition::REPEATED, ConvertedType::NONE, vec![element])?;
        group(name, Repetition::OPTIONAL, ConvertedType::LIST, vec![list])
    }

    /// Returns the field of a value, or of what a list or message holds.
    fn leaf_field(self, name: &str, repetition: Repetition) -> Result<TypePtr, ParquetError> {
        let (physical, converted) = match self {
            Self::Bool | Self::Bools => (Physical::BOOLEAN, ConvertedType::NONE),
            Self::Int | Self::Ints => (Physical::INT64, ConvertedType::NONE),
            Self::Float | Self::Floats => (Physical::DOUBLE, ConvertedType::NONE),
            _ => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let field = Type::primitive_type_builder(name, physical).with_repetition(repetition);
        field.with_converted_type(converted).build().map(Arc::new)
    }

    /// Returns the names of the columns that hold the values: those of a message, or one.
    fn leaves(self) -> &'static [&'static str] {
        if self == Self::Messages { &["role", "content"] } else { &[""] }
    }

    fn leaf(
        self,
        out: &mut SerializedColumnWriter<'_>,
        values: &[&Value],
        leaf: &str,
    ) -> Result<(), ParquetError> {
        match self {
            Self::Bool => single::<BoolType>(out, values, Value::as_bool),
            Self::Int => single::<Int64Type>(out, values, Value::as_i64),
            Self::Float => single::<DoubleType>(out, values, Value::as_f64),
            Self::Text => single::<ByteArrayType>(out, values, text_bytes),
            Self::Json => single::<ByteArrayType>(out, values, |value| {
                Some(ByteArray::from(value.to_string().into_bytes()))
            }),
            Self::Bools => several::<BoolType>(out, values, Value::as_bool),
            Self::Ints => several::<Int64Type>(out, values, Value::as_i64),
            Self::Floats => several::<DoubleType>(out, values, Value::as_f64),
            Self::Texts => several::<ByteArrayType>(out, values, text_bytes),
            Self::Messages => several::<ByteArrayType>(out, values, |one| text_bytes(&one[leaf])),
        }
    }
}

/// Returns the bytes of a text; none of them for another value.
fn text_bytes(value: &Value) -> Option<ByteArray> {
    value.as_str().or(Some("")).map(ByteArray::from)
}

fn are_all(values: &[&Value], is: fn(&Value) -> bool) -> bool {
    values.iter().all(|value| is(value))
}

fn group(
    name: &str,
    repetition: Repetition,
    converted: ConvertedType,
    fields: Vec<TypePtr>,
) -> Result<TypePtr, ParquetError> {
    let group = Type::group_type_builder(name).with_repetition(repetition);
    group.with_converted_type(converted).with_fields(fields).build().map(Arc::new)
}

fn is_message(value: &Value) -> bool {
    let fields = value.as_object();
    fields.is_some_and(|f| f.len() == 2 && f.get("role").is_some() && f.get("content").is_some())
}

/// Writes one value a row. Definition level 0 is a row without one.
fn single<T: DataType>(
    out: &mut SerializedColumnWriter<'_>,
    values: &[&Value],
    convert: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(!value.is_null())).collect();
    let there = values.iter().filter(|value| !value.is_null());
    let there: Vec<T::T> = there.map(|value| convert(value).unwrap_or_default()).collect();
    out.typed::<T>().write_batch(&there, Some(&levels), None).map(drop)
}

/// Writes a list a row. Definition level 0 is a row without one, 1 an empty list, 2 an element. Repetition level 0 begins a
/// row.
fn several<T: DataType>(
    out: &mut SerializedColumnWriter<'_>,
    values: &[&Value],
    convert: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let (mut there, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        if items.is_empty() {
            defined.push(i16::from(value.is_array()));
            repeated.push(0);
        }
        for (i, item) in items.iter().enumerate() {
            defined.push(2);
            repeated.push(i16::from(i > 0));
            there.push(convert(item).unwrap_or_default());
        }
    }
    out.typed::<T>().write_batch(&there, Some(&defined), Some(&repeated)).map(drop)
}
