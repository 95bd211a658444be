//! Declarations of structs.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroUsize;

use super::*;

/// Settings of each kind.
#[derive(Debug, Clone, PartialEq, Settings)]
#[settings(partial = "OuterConfig", level = "team", crate = crate)]
struct Outer {
    /// KL coefficient.
    #[setting(default = 0.5, range = above(0.0)..=1.0)]
    coef: f64,
    /// Both rates.
    #[setting(default = (0.9, 0.999), range = 0.0..1.0, level = "policy")]
    rates: (f64, f64),
    /// Number of parts.
    #[setting(default = 8, written = NonZeroUsize, range = 1..=64)]
    parts: usize,
    /// A table.
    #[setting(table, default = Inner { limit: 2.0 })]
    inner: Inner,
}

/// Settings of a table.
#[derive(Debug, Clone, PartialEq, Settings)]
#[settings(partial = "InnerConfig", level = "agent", crate = crate)]
struct Inner {
    /// Upper limit.
    #[setting(default = 1.0, range = above(1.0)..)]
    limit: f32,
}

#[test]
fn what_is_left_out_is_inherited_and_then_has_its_default() {
    let base = OuterConfig { coef: Some(0.25), parts: NonZeroUsize::new(3), ..Default::default() };
    let own = OuterConfig { coef: Some(0.75), ..Default::default() };
    let resolved = Outer::from(&own.over(&base));
    let expected = Outer { coef: 0.75, rates: (0.9, 0.999), parts: 3, inner: Inner { limit: 2.0 } };
    assert_eq!(resolved, expected);
    assert_eq!(Outer::from(&OuterConfig::from(&resolved)), expected);
    assert!(OuterConfig::default().is_empty() && !own.is_empty());
}

#[test]
fn a_number_out_of_its_range_is_found_with_its_key_and_the_range_in_words() {
    let wrong: OuterConfig =
        toml::from_str("coef = 0.0\nrates = [0.5, 1.0]\nparts = 65\ninner.limit = 1e-6").unwrap();
    let found: Vec<(String, String, String)> = wrong
        .out_of_range()
        .into_iter()
        .map(|wrong| (wrong.key.join("."), wrong.found, wrong.expected))
        .collect();
    let expected = [
        ("coef", "0", "a number above 0 and at most 1"),
        ("rates", "1", "numbers from 0 to below 1"),
        ("parts", "65", "a whole number from 1 to 64"),
        ("inner.limit", "1e-6", "a finite number above 1"),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn only_what_is_written_is_serialized_and_no_unknown_key_is_read() {
    let written = OuterConfig { coef: Some(0.1), ..Default::default() };
    assert_eq!(toml::to_string(&written).unwrap(), "coef = 0.1\n");
    assert!(toml::from_str::<OuterConfig>("ceof = 0.1").is_err());
    let defaults = r#"{"coef":0.5,"rates":[0.9,0.999],"parts":8,"inner":{"limit":2.0}}"#;
    assert_eq!(OuterConfig::defaults().to_string(), defaults);
}

#[test]
fn keys_have_their_level_and_their_meaning() {
    let keys = Description::of_keys(OuterConfig::KEYS, &OuterConfig::defaults());
    let keys: Vec<(String, &str, String)> =
        keys.into_iter().map(|key| (key.name.clone(), key.level, key.meaning())).collect();
    let expected = [
        ("coef", "team", "KL coefficient"),
        ("rates", "policy", "both rates"),
        ("parts", "team", "number of parts"),
        ("inner", "team", "a table"),
    ];
    let expected =
        expected.map(|(name, level, meaning)| (name.to_owned(), level, meaning.to_owned()));
    assert_eq!(keys, expected);
}
