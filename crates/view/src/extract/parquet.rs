//! Columns as a Parquet file.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::columns::{TableColumn, TableColumns};

/// Writes columns as one row group, compressed with zstd.
pub(crate) fn write_parquet(table: &TableColumns, file: File) -> Result<(), ParquetError> {
    let fields: Vec<TypePtr> = table
        .columns
        .iter()
        .map(|(name, column)| column_type(name, column).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, column) in &table.columns {
        let Some(mut out) = group.next_column()? else { break };
        match column {
            TableColumn::Bool(values) => {
                write_batch::<BoolType, _>(&mut out, values, |value| *value)?
            }
            TableColumn::Int(values) => {
                write_batch::<Int64Type, _>(&mut out, values, |value| *value)?
            }
            TableColumn::Float(values) => {
                write_batch::<DoubleType, _>(&mut out, values, |value| *value)?
            }
            TableColumn::Text(values) => {
                write_batch::<ByteArrayType, _>(&mut out, values, |text| {
                    ByteArray::from(text.as_str())
                })?;
            }
        }
        out.close()?;
    }
    group.close()?;
    writer.close().map(drop)
}

fn column_type(name: &str, column: &TableColumn) -> Result<Type, ParquetError> {
    let (physical, converted) = match column {
        TableColumn::Bool(_) => (Physical::BOOLEAN, ConvertedType::NONE),
        TableColumn::Int(_) => (Physical::INT64, ConvertedType::NONE),
        TableColumn::Float(_) => (Physical::DOUBLE, ConvertedType::NONE),
        TableColumn::Text(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    field.with_converted_type(converted).build()
}

/// Writes the values of a column. Definition level 0 is a row without a value.
fn write_batch<T: DataType, V>(
    out: &mut SerializedColumnWriter<'_>,
    values: &[Option<V>],
    convert: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let there: Vec<T::T> = values.iter().flatten().map(convert).collect();
    out.typed::<T>().write_batch(&there, Some(&levels), None).map(drop)
}
