//! Requests as tables: a struct whose fields have the names, types and bounds of the request's.
//!
//! [`request!`] declares a struct, and reads it from [`Fields`] in the order of the table. serde's derive is not used, because
//! its errors have no value and, in flattened structs, no name. And what is left in [`Fields`] is judged by name and value:
//! some fields have no effect, and others are refused unless they ask for nothing.

use serde_json::{Map, Value};

use super::fields::{Fields, token_ids};
use crate::refusal::Refusal;

/// Type of a field of a request, or of several fields with a table of their own.
pub(crate) trait RequestField: Sized {
    /// Takes the field `name`. A table of its own takes all its fields, and ignores the name.
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal>;
}

/// Type of a field whose number is between two bounds, both included.
pub(crate) trait BoundedField<B>: Sized {
    /// Takes the field `name`.
    fn read_within(fields: &mut Fields, name: &str, low: B, high: B) -> Result<Self, Refusal>;
}

/// Declares a request: `name: Type` is a field, `name: Type [low, high]` one with a number between bounds, and a field whose
/// type is a table has the fields of that table. `Type: name, name;` after the struct are fields that are checked alone.
macro_rules! request {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty $([$low:expr, $high:expr])?,)*
        }
        $($check:ty: $($checked:ident),+;)*
    ) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[$doc])* pub(crate) $field: $type,)*
        }

        impl $crate::openai::request::RequestField for $name {
            fn read_field(fields: &mut $crate::openai::fields::Fields,
                _: &str,
            ) -> Result<Self, $crate::refusal::Refusal> {
                let request = Self {
                    $($field: request!(@take fields, $field, $type $(, $low, $high)?)?,)*
                };
                $($(request!(@take fields, $checked, $check)?;)+)*
                Ok(request)
            }
        }
    };
    (@take $fields:ident, $field:ident, $type:ty) => {
        <$type as $crate::openai::request::RequestField>::read_field($fields, stringify!($field))
    };
    (@take $fields:ident, $field:ident, $type:ty, $low:expr, $high:expr) => {
        <$type as $crate::openai::request::BoundedField<_>>::read_within(
            $fields,
            stringify!($field),
            $low,
            $high,
        )
    };
}
pub(crate) use request;

impl Fields {
    /// Reads a table.
    pub(crate) fn read<T: RequestField>(&mut self) -> Result<T, Refusal> {
        T::read_field(self, "")
    }

    /// Takes the name of the model, which is found before the other fields are read.
    pub(crate) fn model(&mut self) -> Result<Option<String>, Refusal> {
        Option::read_field(self, "model")
    }
}

impl RequestField for Option<Value> {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        Ok(fields.take(name))
    }
}

impl RequestField for Option<String> {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        fields.take_as(name, "a text", |value| match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        })
    }
}

impl RequestField for Option<bool> {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        fields.take_as(name, "true or false", |value| value.as_bool().ok_or(value))
    }
}

/// A missing field is false.
impl RequestField for bool {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        Ok(Option::read_field(fields, name)?.unwrap_or(false))
    }
}

/// A number of 64 bits; a negative one is read in two's complement.
impl RequestField for Option<u64> {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        fields.take_as(name, "a whole number of 64 bits", |value| {
            let bits = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
            bits.ok_or(value)
        })
    }
}

impl RequestField for Option<Map<String, Value>> {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        fields.take_as(name, "an object", |value| match value {
            Value::Object(map) => Ok(map),
            other => Err(other),
        })
    }
}

impl BoundedField<f64> for Option<f64> {
    fn read_within(fields: &mut Fields, name: &str, low: f64, high: f64) -> Result<Self, Refusal> {
        let wanted = if high == f64::from(f32::MAX) {
            format!("a number from {low}")
        } else {
            format!("a number from {low} to {high}")
        };
        fields.take_as(name, &wanted, |value| {
            value.as_f64().filter(|number| (low..=high).contains(number)).ok_or(value)
        })
    }
}

impl BoundedField<i64> for Option<i64> {
    fn read_within(fields: &mut Fields, name: &str, low: i64, high: i64) -> Result<Self, Refusal> {
        let wanted = if high == i64::MAX {
            format!("a whole number from {low}")
        } else {
            format!("a whole number from {low} to {high}")
        };
        fields.take_as(name, &wanted, |value| {
            value.as_i64().filter(|number| (low..=high).contains(number)).ok_or(value)
        })
    }
}

/// Bounds are not negative.
impl BoundedField<usize> for Option<usize> {
    fn read_within(
        fields: &mut Fields,
        name: &str,
        low: usize,
        high: usize,
    ) -> Result<Self, Refusal> {
        let [low, high] = [low, high].map(|bound| i64::try_from(bound).unwrap_or(i64::MAX));
        Ok(Option::<i64>::read_within(fields, name, low, high)?.map(|number| number as usize))
    }
}

/// A field without effect.
#[derive(Debug)]
pub(crate) struct Unused;

impl RequestField for Unused {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        drop(fields.take(name));
        Ok(Self)
    }
}

/// An object in a request, with a table of its own.
#[derive(Debug)]
pub(crate) struct Nested<T> {
    pub(crate) value: T,
    /// Fields of the object that the table does not have.
    pub(crate) rest: Fields,
}

impl<T: RequestField> Nested<T> {
    /// Reads an object.
    pub(crate) fn read(mut rest: Fields) -> Result<Self, Refusal> {
        Ok(Self { value: rest.read()?, rest })
    }
}

impl<T: RequestField> RequestField for Option<Nested<T>> {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        let map: Option<Map<String, Value>> = Option::read_field(fields, name)?;
        map.map(|map| Nested::read(fields.inner(name, map))).transpose()
    }
}

/// A list of token ids, which is read once the vocabulary is known.
#[derive(Debug)]
pub(crate) struct TokenIds {
    /// Path of the field.
    path: String,
    value: Option<Value>,
}

impl RequestField for TokenIds {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        Ok(Self { path: fields.path(name), value: fields.take(name) })
    }
}

impl TokenIds {
    /// Returns the ids, all below `vocabulary`; `None` if the field is missing.
    pub(crate) fn below(&self, vocabulary: usize) -> Result<Option<Vec<u32>>, Refusal> {
        let ids = self.value.as_ref().map(|value| token_ids(value, vocabulary)).transpose();
        ids.map_err(|what| self.error(&what))
    }

    /// Returns the ids of a field that must be there.
    pub(crate) fn required_ids(&self, vocabulary: usize) -> Result<Vec<u32>, Refusal> {
        let ids = self.below(vocabulary)?;
        ids.ok_or_else(|| self.error("is missing; write a list of token ids"))
    }

    /// Creates the error about the field.
    pub(crate) fn error(&self, what: &str) -> Refusal {
        Refusal::field(&self.path, what)
    }
}
