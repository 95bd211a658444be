//! Lists of tables with a `kind`.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Key, OutOfRange, Settings, Table, Tagged, TaggedConfig};

/// One or several tables with a `kind`, as users write them: a table or the name of a kind stands for a list of one. An empty
/// list is not written, and so is inherited.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaggedListConfig(pub Vec<TaggedConfig>);

impl<'de> Deserialize<'de> for TaggedListConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableOrList;

        impl<'de> Visitor<'de> for TableOrList {
            type Value = TaggedListConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a kind, a table with `kind`, or a list of these")
            }

            fn visit_str<E>(self, kind: &str) -> Result<TaggedListConfig, E> {
                let one = TaggedConfig { kind: Some(kind.to_owned()), ..TaggedConfig::default() };
                Ok(TaggedListConfig(vec![one]))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TaggedListConfig, A::Error> {
                let one = TaggedConfig::deserialize(MapAccessDeserializer::new(map))?;
                Ok(TaggedListConfig(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut items: A,
            ) -> Result<TaggedListConfig, A::Error> {
                let mut tables = Vec::new();
                while let Some(table) = items.next_element()? {
                    tables.push(table);
                }
                let empty =
                    "an empty list: write the name of a kind that does nothing, such as \"none\"";
                if tables.is_empty() {
                    Err(A::Error::custom(empty))
                } else {
                    Ok(TaggedListConfig(tables))
                }
            }
        }

        deserializer.deserialize_any(TableOrList)
    }
}

impl Serialize for TaggedListConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            tables => tables.serialize(serializer),
        }
    }
}

impl JsonSchema for TaggedListConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TaggedListConfig".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<TaggedConfig>();
        json_schema!({ "anyOf": [table, { "type": "array", "items": table, "minItems": 1 }] })
    }
}

/// Which keys there are depends on the kinds: see [`Tagged::KINDS`].
impl Table for TaggedListConfig {
    const NAME: &'static str = "TaggedListConfig";

    const KEYS: &'static [Key] = &[];

    fn defaults() -> Value {
        Value::Object(serde_json::Map::new())
    }

    fn out_of_range(&self) -> Vec<OutOfRange> {
        Vec::new()
    }
}

/// A list of tables of which the default kind does nothing: it is left out, and stands for an empty list. Keys of a single
/// table are inherited as those of a table alone; a list replaces what it would inherit.
impl<T: Tagged + Clone + PartialEq> Settings for Vec<T> {
    type Partial = TaggedListConfig;

    fn over(ours: &TaggedListConfig, base: &TaggedListConfig) -> TaggedListConfig {
        match (ours.0.as_slice(), base.0.as_slice()) {
            ([], _) => base.clone(),
            ([own], [inherited]) => TaggedListConfig(vec![T::over(own, inherited)]),
            _ => ours.clone(),
        }
    }

    fn resolve(partial: &TaggedListConfig, default: Self) -> Self {
        let tables = match (partial.0.as_slice(), default.as_slice()) {
            ([], _) => return default,
            ([own], [inherited]) => vec![T::resolve(own, inherited.clone())],
            (tables, _) => tables.iter().map(|own| T::resolve(own, T::default())).collect(),
        };
        let mut tables: Self = tables;
        tables.retain(|table| *table != T::default());
        tables
    }

    fn written(&self) -> TaggedListConfig {
        match self.as_slice() {
            [] => TaggedListConfig(vec![T::default().written()]),
            tables => TaggedListConfig(tables.iter().map(T::written).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::json;

    /// Change of a number.
    #[derive(Debug, Clone, PartialEq, Settings)]
    #[settings(crate = crate)]
    enum Change {
        /// Nothing.
        #[setting(default)]
        None,
        /// It is bounded.
        Bound(Bound),
    }

    /// A bound.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
    #[serde(default, deny_unknown_fields)]
    #[settings(crate = crate)]
    struct Bound {
        /// Upper end.
        #[setting(default = 1.0)]
        high: f64,
        /// Lower end.
        #[setting(default = 0.0)]
        low: f64,
    }

    fn read(text: &str) -> Result<TaggedListConfig, toml::de::Error> {
        let table: toml::Table = format!("change = {text}").parse().unwrap();
        table["change"].clone().try_into()
    }

    fn resolved(ours: &str, base: &str) -> Vec<Change> {
        let [ours, base] = [ours, base].map(|text| read(text).unwrap());
        Vec::resolve(&<Vec<Change> as Settings>::over(&ours, &base), Vec::new())
    }

    fn bound(low: f64, high: f64) -> Change {
        Change::Bound(Bound { high, low })
    }

    #[test]
    fn a_name_a_table_and_a_list_are_read_and_the_default_kind_is_left_out() {
        assert_eq!(resolved("\"none\"", "\"bound\""), []);
        assert_eq!(resolved("\"bound\"", "\"none\""), [bound(0.0, 1.0)]);
        let two = "[{ kind = \"bound\", high = 2 }, \"none\", \"bound\"]";
        assert_eq!(resolved(two, "\"none\""), [bound(0.0, 2.0), bound(0.0, 1.0)]);
        assert!(read("[]").unwrap_err().to_string().contains("an empty list"));
        assert!(read("3").unwrap_err().to_string().contains("a list of these"));
    }

    #[test]
    fn keys_of_one_table_are_inherited_and_a_list_replaces_what_was_there() {
        let base = "{ kind = \"bound\", high = 3 }";
        assert_eq!(resolved("{ low = 0.5 }", base), [bound(0.5, 3.0)]);
        assert_eq!(
            resolved("[{ kind = \"bound\" }, { kind = \"bound\" }]", base),
            vec![bound(0.0, 1.0); 2]
        );
        let unwritten = TaggedListConfig::default();
        let base = read(base).unwrap();
        assert_eq!(<Vec<Change> as Settings>::over(&unwritten, &base), base);
    }

    #[test]
    fn what_is_written_out_is_read_as_the_same() {
        for list in [vec![], vec![bound(0.0, 2.0)], vec![bound(0.0, 2.0), bound(0.5, 1.0)]] {
            let written = list.written();
            let text: TaggedListConfig = serde_json::from_value(json(&written)).unwrap();
            assert_eq!(<Vec<Change> as Settings>::resolve(&text, Vec::new()), list);
        }
        assert_eq!(json(&Vec::<Change>::new().written()), "none");
    }
}
