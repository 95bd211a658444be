//! Reads values of layers into types.
//!
//! Each method takes the one form that its types are written in, and one function makes the error for every other. The
//! deserializer of figment offers each type every form of value, so that each type has code for all of them.

use std::collections::btree_map;
use std::fmt::{self, Display};
use std::{iter, slice};

use figment::error::Kind;
use figment::value::{Dict, Num, Value};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

/// Reads a value.
///
/// # Errors
///
/// The first key or value that is not of the type, with its path.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Box<figment::Error>> {
    T::deserialize(KeyReader(value)).map_err(|UnreadTable(error)| error)
}

/// The error of [`read`]; boxed, so that results are small.
#[derive(Debug)]
struct UnreadTable(Box<figment::Error>);

impl UnreadTable {
    fn of(kind: Kind) -> Self {
        Self(Box::new(kind.into()))
    }

    /// Adds the key or the index that leads to the place.
    fn within(mut self, key: &str) -> Self {
        self.0.path.insert(0, key.to_owned());
        self
    }
}

impl Display for UnreadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for UnreadTable {}

impl Error for UnreadTable {
    fn custom<T: Display>(message: T) -> Self {
        Self::of(Kind::Message(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::of(Kind::InvalidType(found.into(), expected.to_string()))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::of(Kind::InvalidValue(found.into(), expected.to_string()))
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::of(Kind::InvalidLength(length, expected.to_string()))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::of(Kind::UnknownVariant(variant.to_owned(), known))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::of(Kind::UnknownField(field.to_owned(), known))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of(Kind::MissingField(field.into()))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::of(Kind::DuplicateField(field))
    }
}

/// A value to read.
struct KeyReader<'v>(&'v Value);

impl<'v> KeyReader<'v> {
    /// Returns the error of a value that has another form than its type.
    fn wrong_form(&self, expected: &dyn Expected) -> UnreadTable {
        UnreadTable::of(Kind::InvalidType(self.0.to_actual(), expected.to_string()))
    }

    fn truth<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::Bool(_, value) => visitor.visit_bool(*value),
            _ => Err(self.wrong_form(&visitor)),
        }
    }

    fn number<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::Num(_, Num::I64(value)) => visitor.visit_i64(*value),
            Value::Num(_, Num::F64(value)) => visitor.visit_f64(*value),
            // Numbers of JSON, which are unsigned where they can be.
            Value::Num(_, Num::U64(value)) => visitor.visit_u64(*value),
            _ => Err(self.wrong_form(&visitor)),
        }
    }

    fn text<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::String(_, text) => visitor.visit_str(text),
            _ => Err(self.wrong_form(&visitor)),
        }
    }

    fn list<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::Array(_, items) => visitor.visit_seq(Items(items.iter().enumerate())),
            _ => Err(self.wrong_form(&visitor)),
        }
    }

    fn table<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::Dict(_, dict) => visitor.visit_map(Entries::of(dict)),
            _ => Err(self.wrong_form(&visitor)),
        }
    }
}

/// Methods of a deserializer that read one form.
macro_rules! read_as {
    ($form:ident: $($method:ident($($argument:ty),*))*) => {
        $(fn $method<V: Visitor<'v>>(self, $(_: $argument,)* visitor: V) -> Result<V::Value, UnreadTable> {
            self.$form(visitor)
        })*
    };
}

impl<'v> Deserializer<'v> for KeyReader<'v> {
    type Error = UnreadTable;

    read_as!(truth: deserialize_bool());
    read_as!(number: deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64());
    read_as!(number: deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64());
    read_as!(number: deserialize_f32() deserialize_f64());
    read_as!(text: deserialize_str() deserialize_string() deserialize_identifier());
    read_as!(list: deserialize_seq() deserialize_tuple(usize));
    read_as!(table: deserialize_map() deserialize_struct(&'static str, &'static [&'static str]));

    forward_to_deserialize_any! { <V: Visitor<'v>> char bytes byte_buf unit unit_struct tuple_struct }

    fn deserialize_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::Bool(..) => self.truth(visitor),
            Value::Num(..) => self.number(visitor),
            Value::String(..) => self.text(visitor),
            Value::Array(..) => self.list(visitor),
            Value::Dict(..) => self.table(visitor),
            Value::Char(_, char) => visitor.visit_char(*char),
            Value::Empty(..) => visitor.visit_unit(),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::Empty(..) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'v>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, UnreadTable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'v>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, UnreadTable> {
        match self.0 {
            Value::String(_, name) => visitor.visit_enum(StrDeserializer::new(name)),
            Value::Dict(_, dict) => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries::of(dict)))
            }
            _ => Err(self.wrong_form(&visitor)),
        }
    }
}

/// Entries of a table.
struct Entries<'v> {
    entries: btree_map::Iter<'v, String, Value>,
    /// The entry whose key was read.
    current: Option<(&'v String, &'v Value)>,
}

impl<'v> Entries<'v> {
    fn of(dict: &'v Dict) -> Self {
        Self { entries: dict.iter(), current: None }
    }
}

impl<'v> MapAccess<'v> for Entries<'v> {
    type Error = UnreadTable;

    fn next_key_seed<K: DeserializeSeed<'v>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, UnreadTable> {
        self.current = self.entries.next();
        let Some((key, _)) = self.current else { return Ok(None) };
        match seed.deserialize(StrDeserializer::new(key)) {
            Ok(read) => Ok(Some(read)),
            Err(error) => Err(UnreadTable::within(error, key)),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'v>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, UnreadTable> {
        let (key, value) = self.current.expect("serde reads a key before its value");
        seed.deserialize(KeyReader(value)).map_err(|error| error.within(key))
    }
}

/// Items of a list, with their indices.
struct Items<'v>(iter::Enumerate<slice::Iter<'v, Value>>);

impl<'v> SeqAccess<'v> for Items<'v> {
    type Error = UnreadTable;

    fn next_element_seed<T: DeserializeSeed<'v>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, UnreadTable> {
        let Some((index, item)) = self.0.next() else { return Ok(None) };
        match seed.deserialize(KeyReader(item)) {
            Ok(read) => Ok(Some(read)),
            Err(error) => Err(error.within(&index.to_string())),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}
