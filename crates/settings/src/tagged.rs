//! Tables with a `kind`, which decides which keys they have.

use figment::value::Value as Figment;
use std::fmt;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Key, OutOfRange, Settings, Table, json, read};

/// A table with a `kind`, as users write it. `kind` is inherited if it is left out, and so are keys of the same kind. The
/// name of a kind alone stands for a table without other keys: `"none"` is `{ kind = "none" }`.
#[derive(Debug, Clone, PartialEq, Default, JsonSchema)]
pub struct TaggedConfig {
    /// Name of the kind.
    pub kind: Option<String>,
    /// Its keys, checked against the type that declares the kind.
    #[schemars(flatten)]
    pub settings: Map<String, Value>,
}

/// Reads the table form.
#[derive(Serialize, Deserialize)]
struct Whole {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(flatten)]
    settings: Map<String, Value>,
}

impl<'de> Deserialize<'de> for TaggedConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KindOrTable;

        impl<'de> Visitor<'de> for KindOrTable {
            type Value = TaggedConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a kind, or a table with `kind`")
            }

            fn visit_str<E>(self, kind: &str) -> Result<TaggedConfig, E> {
                Ok(TaggedConfig { kind: Some(kind.to_owned()), settings: Map::new() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TaggedConfig, A::Error> {
                let Whole { kind, settings } = Whole::deserialize(MapAccessDeserializer::new(map))?;
                Ok(TaggedConfig { kind, settings })
            }
        }

        deserializer.deserialize_any(KindOrTable)
    }
}

impl Serialize for TaggedConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Some(kind) if self.settings.is_empty() => serializer.serialize_str(kind),
            kind => {
                Whole { kind: kind.clone(), settings: self.settings.clone() }.serialize(serializer)
            }
        }
    }
}

impl TaggedConfig {
    /// A kind with settings.
    pub fn new<T: Serialize>(kind: &str, settings: &T) -> Self {
        let Value::Object(settings) = json(settings) else {
            return Self { kind: Some(kind.to_owned()), settings: Map::new() };
        };
        Self { kind: Some(kind.to_owned()), settings: without_nulls(settings) }
    }

    /// The kind, `default` if none is written.
    pub fn kind_or(&self, default: &str) -> String {
        self.kind.as_deref().unwrap_or(default).to_owned()
    }

    /// These settings over those of `base`, if both are of one kind; `default` is the kind of a table that names none.
    #[must_use]
    pub fn over(&self, base: &Self, default: &str) -> Self {
        let inherits = self.kind.is_none() || self.kind_or(default) == base.kind_or(default);
        if !inherits {
            return self.clone();
        }
        let kind = self.kind.clone().or_else(|| base.kind.clone());
        Self { kind, settings: merge_tables(base.settings.clone(), &self.settings) }
    }

    /// The settings over those of `base`; `base` itself if they are not of its type.
    pub fn read<T: Serialize + DeserializeOwned>(&self, base: T) -> T {
        let Value::Object(settings) = json(&base) else { return base };
        let settings = Figment::serialize(merge_tables(without_nulls(settings), &self.settings));
        settings.ok().and_then(|settings| read(&settings).ok()).unwrap_or(base)
    }
}

/// Values of `ours`, and where one is left out, that of `base`; also in tables inside.
fn merge_tables(mut base: Map<String, Value>, ours: &Map<String, Value>) -> Map<String, Value> {
    for (key, value) in ours {
        let value = match (base.remove(key), value) {
            (Some(Value::Object(base)), Value::Object(ours)) => {
                Value::Object(merge_tables(base, ours))
            }
            (_, value) => value.clone(),
        };
        base.insert(key.clone(), value);
    }
    base
}

/// Values that are there: TOML has no null.
fn without_nulls(mut settings: Map<String, Value>) -> Map<String, Value> {
    settings.retain(|_, value| !value.is_null());
    settings
}

/// Which keys there are depends on the kind: see [`Tagged::KINDS`].
impl Table for TaggedConfig {
    const NAME: &'static str = "TaggedConfig";

    const KEYS: &'static [Key] = &[];

    fn defaults() -> Value {
        Value::Object(Map::new())
    }

    fn out_of_range(&self) -> Vec<OutOfRange> {
        Vec::new()
    }
}

/// Settings of a table with a `kind`; implemented by the derive for an enum.
pub trait Tagged: Settings<Partial = TaggedConfig> {
    /// Every kind that the enum declares, in the order of declaration.
    const KINDS: &'static [TableKind];

    /// Name of the kind.
    fn kind(&self) -> &str;
}

/// A kind that the enum itself does not declare.
pub trait OpenKind {
    /// Name of the kind.
    fn kind(&self) -> &str;

    /// The table as a user would write it.
    fn written(&self) -> TaggedConfig;
}

/// A kind of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableKind {
    /// Its name.
    pub name: &'static str,
    /// Its documentation.
    pub doc: &'static str,
    /// Name of the type of its settings.
    pub table: &'static str,
    /// Its keys beside `kind`.
    pub keys: &'static [Key],
    /// Its defaults, an object.
    pub defaults: fn() -> Value,
    /// Reads settings: numbers out of their range, or the first key or value that is not of the type.
    pub read: fn(&Figment) -> Result<Vec<OutOfRange>, Box<figment::Error>>,
    /// Adds the schema of its settings to the definitions of a generator.
    pub define: fn(&mut SchemaGenerator),
}

impl TableKind {
    /// The kind with these settings.
    pub const fn of<T: Table + DeserializeOwned + JsonSchema>(
        name: &'static str,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            doc,
            table: T::NAME,
            keys: T::KEYS,
            defaults: T::defaults,
            read: |value| read::<T>(value).map(|settings| settings.out_of_range()),
            define: |generator| {
                generator.subschema_for::<T>();
            },
        }
    }
}

/// Settings of a kind without keys.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoKeys {}

impl Table for NoKeys {
    const NAME: &'static str = "NoKeys";

    const KEYS: &'static [Key] = &[];

    fn defaults() -> Value {
        Value::Object(Map::new())
    }

    fn out_of_range(&self) -> Vec<OutOfRange> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A gate.
    #[derive(Debug, Clone, PartialEq, Settings)]
    #[settings(crate = crate)]
    enum Gate {
        /// Always open.
        #[setting(default)]
        Open,
        /// Open up to a limit.
        Limit(Limit),
    }

    /// A limit.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
    #[serde(default, deny_unknown_fields)]
    #[settings(crate = crate)]
    struct Limit {
        /// Upper end.
        #[setting(default = 1.0, range = above(0.0)..)]
        high: f64,
        /// Lower end, in a table.
        #[setting(inner, default = Some(Low::default()))]
        low: Option<Low>,
    }

    /// A lower end.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
    #[serde(default, deny_unknown_fields)]
    #[settings(crate = crate)]
    struct Low {
        /// Its value.
        #[setting(default = 0.5, range = 0.0..=1.0)]
        at: f64,
        /// Its weight.
        #[setting(default = 2.0)]
        weight: f64,
    }

    fn table(text: &str) -> TaggedConfig {
        toml::from_str(text).unwrap()
    }

    fn limit(high: f64, at: f64, weight: f64) -> Gate {
        Gate::Limit(Limit { high, low: Some(Low { at, weight }) })
    }

    #[test]
    fn keys_are_inherited_from_a_table_of_the_same_kind_and_from_no_other() {
        let base = table("kind = \"limit\"\nhigh = 3.0\nlow = { at = 0.25 }");
        let resolved = |ours: &str| {
            let over = <Gate as Settings>::over(&table(ours), &base);
            Gate::resolve(&over, Gate::default())
        };
        assert_eq!(resolved(""), limit(3.0, 0.25, 2.0));
        assert_eq!(resolved("low = { weight = 1.0 }"), limit(3.0, 0.25, 1.0));
        assert_eq!(resolved("kind = \"limit\"\nhigh = 2.0"), limit(2.0, 0.25, 2.0));
        assert_eq!(resolved("kind = \"open\""), Gate::Open);
        let alone = <Gate as Settings>::over(&table("kind = \"limit\""), &table(""));
        assert_eq!(Gate::resolve(&alone, Gate::default()), limit(1.0, 0.5, 2.0));
    }

    #[test]
    fn what_is_written_out_is_the_same_table() {
        for gate in [Gate::Open, limit(3.0, 0.0, 1.5)] {
            // A kind without keys is written by its name, which is no document of its own.
            let written =
                toml::to_string(&Map::from_iter([("gate".to_owned(), json(&gate.written()))]));
            let read: toml::Table = written.clone().unwrap().parse().unwrap();
            let read: TaggedConfig = read["gate"].clone().try_into().unwrap();
            assert_eq!(Gate::resolve(&read, Gate::default()), gate, "{written:?}");
            assert_eq!(json(&gate), json(&gate.written()));
        }
    }

    #[test]
    fn settings_of_a_kind_are_read_with_the_place_of_what_is_wrong() {
        let [open, limit] = Gate::KINDS else { panic!("two kinds") };
        let read =
            |kind: &TableKind, value: Value| (kind.read)(&Figment::serialize(value).unwrap());
        let ranges = read(limit, serde_json::json!({ "high": 0.0, "low": { "at": 2.0 } })).unwrap();
        let keys: Vec<String> = ranges.iter().map(|wrong| wrong.key.join(".")).collect();
        assert_eq!(keys, ["high", "low.at"]);
        let error = read(limit, serde_json::json!({ "low": { "at": "2" } })).unwrap_err();
        assert_eq!(error.path, ["low", "at"]);
        assert!(read(open, serde_json::json!({ "high": 1.0 })).is_err());
        assert_eq!((limit.name, limit.doc), ("limit", "Open up to a limit."));
    }
}
