//! Rust functions as tools, registered by `#[tool]`.

use std::collections::BTreeMap;
use std::fmt::Display;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Schema, SchemaError, Tool};
use crate::IntoMap;
use crate::agent::Show;

/// Result of a call, or a description of the problem in words for the model.
pub type ToolFuture = BoxFuture<'static, Result<String, String>>;

/// A function declared with `#[tool]`.
#[derive(Clone, Copy)]
pub struct DeclaredTool {
    /// Name of the tool.
    pub name: &'static str,
    /// Description for the model: the function's documentation.
    pub description: &'static str,
    /// Source file, as the compiler was given it.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// The Rust path of the function.
    pub item: &'static str,
    /// The schema of its argument.
    pub schema: fn() -> Value,
    /// Calls the function with arguments. Errors are in words for the model.
    pub call: fn(Map<String, Value>) -> ToolFuture,
}

inventory::collect!(DeclaredTool);

impl DeclaredTool {
    /// Returns the declaration of the tool for a model.
    ///
    /// # Errors
    ///
    /// If the schema of its argument has unsupported keywords.
    pub fn tool(&self) -> Result<Tool, SchemaError> {
        let parameters = Schema::new((self.schema)())?;
        let (name, description) = (self.name.to_owned(), self.description.to_owned());
        Ok(Tool { name, description, parameters })
    }
}

/// Returns all functions of the linked crates that are tools, by name. Of two with the same name, which
/// [`Registry::collect`] rejects, the first in the sources.
///
/// [`Registry::collect`]: ../registry/struct.Registry.html#method.collect
pub fn declared_tools() -> BTreeMap<&'static str, &'static DeclaredTool> {
    let mut all: Vec<&DeclaredTool> = inventory::iter::<DeclaredTool>.into_iter().collect();
    all.sort_by_key(|one| (one.file, one.line));
    all.into_iter().rev().map(|one| (one.name, one)).into_map()
}

/// Argument of a tool: any struct with named fields that can be deserialized and has a supported schema.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the argument of a tool",
    label = "has no schema, or cannot be read",
    note = "add `#[derive(serde::Deserialize, schemars::JsonSchema)]` to `{Self}`"
)]
pub trait Arguments: Sized + Send + 'static {
    /// Returns the JSON Schema of the argument, an object.
    fn schema() -> Value;

    /// Deserializes arguments that satisfy the schema.
    ///
    /// # Errors
    ///
    /// If they cannot be deserialized nevertheless, in words for the model.
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
            // The tool's own description is in its declaration already; that of the argument type is irrelevant.
            object.retain(|key, _| key != "title" && key != "description");
            object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            // An unknown argument is an error, not ignored.
            object.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        schema
    }

    fn read(arguments: Map<String, Value>) -> Result<Self, String> {
        serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())
    }
}

/// Argument of a tool without arguments.
#[derive(Deserialize, JsonSchema)]
pub struct NoArguments {}

/// Result of a tool: any value that can be displayed, or an error in words for the model.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be what a tool gives",
    label = "cannot be shown to a model",
    note = "return `String`, a number, `bool`, `Option<_>` or `Vec<_>` of those, a type with `impl maverl::Show`, or a \
            `Result` of one whose error can be displayed"
)]
pub trait ToolOutput: Send + 'static {
    /// Converts the result to text.
    ///
    /// # Errors
    ///
    /// Description of the failure in words for the model.
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
