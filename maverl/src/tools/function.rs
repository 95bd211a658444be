//! Rust functions as tools: what `#[tool]` registers.

use std::collections::BTreeMap;
use std::fmt::Display;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Schema, SchemaError, Tool};
use crate::agent::Show;

/// What a call gives, or what was wrong with it, in words for the model.
pub type ToolFuture = BoxFuture<'static, Result<String, String>>;

/// A function declared with `#[tool]`.
#[derive(Clone, Copy)]
pub struct Declared {
    /// How it is called.
    pub name: &'static str,
    /// What it does, for the model: the function's documentation.
    pub description: &'static str,
    /// Source file, as the compiler was given it.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// The Rust path of the function.
    pub item: &'static str,
    /// The schema of its argument.
    pub schema: fn() -> Value,
    /// Calls it with arguments. What is wrong is said in words for the model.
    pub call: fn(Map<String, Value>) -> ToolFuture,
}

inventory::collect!(Declared);

impl Declared {
    /// What a model is told of it.
    ///
    /// # Errors
    ///
    /// If the schema of its argument has rules that are not kept here.
    pub fn tool(&self) -> Result<Tool, SchemaError> {
        let parameters = Schema::new((self.schema)())?;
        let (name, description) = (self.name.to_owned(), self.description.to_owned());
        Ok(Tool { name, description, parameters })
    }
}

/// Every function of the linked crates that is a tool, by name. Of two with one name, which [`Registry::collect`] refuses,
/// the one that comes first in the sources.
///
/// [`Registry::collect`]: ../registry/struct.Registry.html#method.collect
pub fn declared() -> BTreeMap<&'static str, &'static Declared> {
    let mut all: Vec<&Declared> = inventory::iter::<Declared>.into_iter().collect();
    all.sort_by_key(|one| (one.file, one.line));
    all.into_iter().rev().map(|one| (one.name, one)).collect()
}

/// What a tool takes: any struct with named fields that can be read, and whose schema is known.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the argument of a tool",
    label = "has no schema, or cannot be read",
    note = "add `#[derive(serde::Deserialize, schemars::JsonSchema)]` to `{Self}`"
)]
pub trait Arguments: Sized + Send + 'static {
    /// The schema, an object.
    fn schema() -> Value;

    /// Reads arguments that the schema allows.
    ///
    /// # Errors
    ///
    /// If they are none all the same, in words for the model.
    fn read(arguments: Map<String, Value>) -> Result<Self, String>;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> Arguments for T {
    fn schema() -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.meta_schema = None;
            settings.inline_subschemas = true;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
        if let Some(object) = schema.as_object_mut() {
            // Of its own, which is told to the model already, and of the type, which is none of its business.
            object.retain(|key, _| key != "title" && key != "description");
            object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            // What a function does not take is a mistake, not ignored.
            object.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        schema
    }

    fn read(arguments: Map<String, Value>) -> Result<Self, String> {
        serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())
    }
}

/// The argument of a tool that takes none.
#[derive(Deserialize, JsonSchema)]
pub struct NoArguments {}

/// What a tool gives: whatever can be shown, or an error in words for the model.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be what a tool gives",
    label = "cannot be shown to a model",
    note = "return `String`, a number, `bool`, `Option<_>` or `Vec<_>` of those, a type with `impl maverl::Show`, or a \
            `Result` of one whose error can be displayed"
)]
pub trait ToolOutput: Send + 'static {
    /// As text.
    ///
    /// # Errors
    ///
    /// What went wrong, in words for the model.
    fn output(self) -> Result<String, String>;
}

impl<T: Show + Send + 'static> ToolOutput for T {
    fn output(self) -> Result<String, String> {
        Ok(self.show())
    }
}

impl<T: Show + Send + 'static, E: Display + Send + 'static> ToolOutput for Result<T, E> {
    fn output(self) -> Result<String, String> {
        self.map(|value| value.show()).map_err(|error| error.to_string())
    }
}
