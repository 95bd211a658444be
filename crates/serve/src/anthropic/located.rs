//! Values of a request with their paths, which errors name.

use serde_json::{Map, Value};

use crate::openai::fields::show_value;
use crate::refusal::Refusal;

/// A value and its path in the request, such as `messages[3].content[1]`.
#[derive(Debug, Clone)]
pub(super) struct Located<'v> {
    pub(super) value: &'v Value,
    path: String,
}

impl<'v> Located<'v> {
    /// Creates the value of a field of the request.
    pub(super) fn new(path: &str, value: &'v Value) -> Self {
        Self { value, path: path.to_owned() }
    }

    /// Creates the error about the value.
    pub(super) fn error(&self, what: &str) -> Refusal {
        Refusal::field(&self.path, what)
    }

    /// Creates the error about a value of another kind. `wanted` says what to write instead.
    pub(super) fn wrong(&self, wanted: &str) -> Refusal {
        Refusal::field_value(&self.path, self.value, wanted)
    }

    /// Returns a field of the object; `None` if it is missing or null.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(Self { value, path: format!("{}.{name}", self.path) })
    }

    /// Returns a field that must be there. `wanted` says what to write.
    pub(super) fn required(&self, name: &str, wanted: &str) -> Result<Self, Refusal> {
        self.object()?;
        self.get(name).ok_or_else(|| {
            let path = format!("{}.{name}", self.path);
            Refusal::field(&path, &format!("is missing; write {wanted}"))
        })
    }

    /// Returns the object.
    pub(super) fn object(&self) -> Result<&'v Map<String, Value>, Refusal> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// Returns the text.
    pub(super) fn text(&self) -> Result<&'v str, Refusal> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    /// Returns the truth value of a field; a missing one is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        let Some(flag) = self.get(name) else { return Ok(false) };
        flag.value.as_bool().ok_or_else(|| flag.wrong("true or false"))
    }

    /// Returns the `type` of the object.
    pub(super) fn kind(&self, wanted: &str) -> Result<&'v str, Refusal> {
        self.required("type", wanted)?.text()
    }

    /// Creates the error about an object of a type that is not read here.
    pub(super) fn other_kind(&self, wanted: &str) -> Refusal {
        let kind = show_value(&self.value["type"]);
        self.error(&format!("is of type {kind}; this server reads {wanted}"))
    }

    /// Returns the elements of the list.
    pub(super) fn items(&self, wanted: &str) -> Result<Vec<Self>, Refusal> {
        let list = self.value.as_array().ok_or_else(|| self.wrong(wanted))?;
        let items = list.iter().enumerate();
        Ok(items.map(|(i, value)| Self { value, path: format!("{}[{i}]", self.path) }).collect())
    }
}
