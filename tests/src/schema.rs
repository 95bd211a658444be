//! A validator of JSON Schema other than maverl's own reader of configurations.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// A compiled schema.
pub struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    /// Compiles a schema, which must be valid itself.
    pub fn new(schema: Value) -> Self {
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.add_resource("maverl.schema.json", schema).expect("the schema has a name");
        let index = compiler.compile("maverl.schema.json", &mut schemas);
        let index = index.unwrap_or_else(|error| panic!("the schema is not valid: {error:#}"));
        Self { schemas, index }
    }

    /// Returns what is wrong with a configuration in TOML, if something is.
    pub fn error(&self, toml: &str) -> Option<String> {
        let table: toml::Table = toml.parse().unwrap_or_else(|error| panic!("{error}\n{toml}"));
        let value = serde_json::to_value(table).expect("TOML has a form in JSON");
        self.schemas.validate(&value, self.index).err().map(|error| format!("{error:#}"))
    }

    /// Panics unless a configuration is valid.
    pub fn accepts(&self, toml: &str) {
        if let Some(error) = self.error(toml) {
            panic!("{error}\n{toml}");
        }
    }

    /// Panics if a configuration is valid.
    pub fn refuses(&self, toml: &str) {
        assert!(self.error(toml).is_some(), "the schema accepts\n{toml}");
    }
}
