//! Settings that are declared once, by `#[derive(Settings)]`: what is generated for them, and what it uses.

mod read;
mod tagged;

use std::fmt::{Debug, Display};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use serde::{Serialize, Serializer};
use serde_json::Value;

pub use maverl_macros::Settings;
pub(crate) use read::read;
pub use tagged::{NoKeys, OpenKind, TableKind, Tagged, TaggedConfig};

#[doc(hidden)]
pub use serde_json::Value as Json;

/// A table as users write it; implemented by the derive.
#[doc(hidden)]
pub trait Table {
    /// Name of the type.
    const NAME: &'static str;

    /// Every key, in the order of declaration.
    const KEYS: &'static [Key];

    /// Defaults by key, those of tables inside as objects.
    fn defaults() -> Value;

    /// Numbers out of their range, those of tables inside as well.
    fn out_of_range(&self) -> Vec<OutOfRange>;
}

/// Resolved settings; implemented by the derive for a struct with a partial form.
pub trait Settings: Default + Sized {
    /// The form that users write: keys that are left out are inherited.
    type Partial: Table + Default + PartialEq + Serialize;

    /// Values of `ours`, and where one is left out, that of `base`.
    fn over(ours: &Self::Partial, base: &Self::Partial) -> Self::Partial;

    /// Values of `partial`, and where one is left out, that of `default`.
    fn resolve(partial: &Self::Partial, default: Self) -> Self;

    /// The same as a user would write it.
    fn written(&self) -> Self::Partial;
}

/// A table that may be left out.
impl<T: Table> Table for Option<T> {
    const NAME: &'static str = T::NAME;

    const KEYS: &'static [Key] = T::KEYS;

    fn defaults() -> Value {
        T::defaults()
    }

    fn out_of_range(&self) -> Vec<OutOfRange> {
        self.as_ref().map(T::out_of_range).unwrap_or_default()
    }
}

/// A key of a table of settings.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(hidden)]
pub struct Key {
    /// Its name in the table.
    pub name: &'static str,
    /// Its documentation.
    pub doc: &'static str,
    /// `agent`, `policy`, `team`, or `run`, which may change when a run is resumed.
    pub level: &'static str,
    /// Numbers that are accepted, if not all of the type.
    pub range: Option<Range>,
    /// It is a table of settings.
    pub table: bool,
    /// Value that the reference shows for a key without a default, or for a table.
    pub example: Option<&'static str>,
    /// Conditions on other keys of the table under which this one has no effect.
    pub idle: &'static [Idle],
}

impl Key {
    /// A key with its documentation alone.
    pub const fn documented(name: &'static str, doc: &'static str) -> Self {
        let (range, table, example) = (None, false, None);
        Self { name, doc, level: "team", range, table, example, idle: &[] }
    }

    /// The first sentence of its documentation, as the reference has it: without a capital and a full stop.
    pub fn meaning(&self) -> String {
        let paragraph = self.doc.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let sentence = paragraph.split(". ").next().unwrap_or_default().trim_end_matches('.');
        let mut chars = sentence.chars();
        let (first, rest) = (chars.next(), chars.as_str());
        // A name with further capitals, as KL and AdamW, stays.
        let word = rest.split(' ').next().unwrap_or_default();
        match first.filter(|_| !word.contains(char::is_uppercase)) {
            Some(first) => first.to_lowercase().collect::<String>() + rest,
            None => sentence.to_owned(),
        }
    }
}

/// A condition on another key of a table, under which a key has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Idle {
    /// The key has no effect where the condition holds; otherwise where it does not hold.
    pub holds: bool,
    /// The other key with its value or with a list of values, as TOML.
    pub condition: &'static str,
}

impl Idle {
    /// Returns the other key and its values; `None` if the condition is no TOML, which a test excludes.
    pub(crate) fn parts(&self) -> Option<(String, Vec<Value>)> {
        let condition: toml::Table = self.condition.parse().ok()?;
        let (key, value) = condition.into_iter().next()?;
        match json(&value) {
            Value::Array(values) => Some((key, values)),
            value => Some((key, vec![value])),
        }
    }

    /// Returns the reason why the key has no effect in a table with these values, if it has none.
    pub(crate) fn reason(&self, table: &Value) -> Option<String> {
        let (key, values) = self.parts()?;
        let found = table.get(&key)?;
        let equal = |value: &&Value| match (value.as_f64(), found.as_f64()) {
            (Some(value), Some(found)) => value == found,
            _ => *value == found,
        };
        let holds = values.iter().find(equal);
        let shown =
            |value: &Value| value.as_f64().map_or_else(|| value.to_string(), |n| n.to_string());
        match (self.holds, holds) {
            (true, Some(value)) => Some(format!("`{key}` is {}", shown(value))),
            (false, None) => {
                let values: Vec<String> = values.iter().map(shown).collect();
                Some(format!("`{key}` is not {}", values.join(" or ")))
            }
            _ => None,
        }
    }
}

/// A range of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(hidden)]
pub struct Range {
    /// The lower end.
    pub from: Option<Bound>,
    /// The upper end.
    pub to: Option<Bound>,
    /// Whole numbers only.
    pub whole: bool,
}

/// An end of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(hidden)]
pub struct Bound {
    /// The number.
    pub value: f64,
    /// It is inside.
    pub included: bool,
}

impl Range {
    /// Returns true if a number is inside. No infinite number is.
    pub fn contains(&self, x: f64) -> bool {
        let above = |b: Bound| x > b.value || (b.included && x == b.value);
        let below = |b: Bound| x < b.value || (b.included && x == b.value);
        x.is_finite() && self.from.is_none_or(above) && self.to.is_none_or(below)
    }

    /// The range in words: of one number, or of each of several.
    pub fn words(&self, several: bool) -> String {
        let kind = match (self.whole, self.to) {
            (true, _) => "whole ",
            (false, None) => "finite ",
            (false, Some(_)) => "",
        };
        let noun = if several { format!("{kind}numbers") } else { format!("a {kind}number") };
        let from = self.from.map(|b| (if b.included { "from" } else { "above" }, b));
        let to = self.to.map(|b| (if b.included { "to" } else { "below" }, b));
        match (from, to) {
            (None, None) => noun,
            (Some((word, b)), None) => format!("{noun} {word} {}", b.value),
            (None, Some(("to", b))) => format!("{noun} up to {}", b.value),
            (None, Some((_, b))) => format!("{noun} below {}", b.value),
            (Some(("from", a)), Some(("to", b))) => {
                format!("{noun} from {} to {}", a.value, b.value)
            }
            (Some(("from", a)), Some((_, b))) => {
                format!("{noun} from {} to below {}", a.value, b.value)
            }
            (Some((_, a)), Some(("to", b))) => {
                format!("{noun} above {} and at most {}", a.value, b.value)
            }
            (Some((_, a)), Some((_, b))) => {
                format!("{noun} above {} and below {}", a.value, b.value)
            }
        }
    }

    /// Numbers of a value that are outside.
    pub fn check<N: Numbers>(&self, key: &'static str, value: &N) -> Vec<OutOfRange> {
        let numbers = value.numbers();
        let several = numbers.len() > 1;
        let outside = numbers.into_iter().filter(|(number, _)| !self.contains(*number));
        let report = |(_, found)| OutOfRange {
            key: vec![key],
            found,
            several,
            expected: self.words(several),
        };
        outside.map(report).collect()
    }
}

/// A number out of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
pub struct OutOfRange {
    /// Parts of the key.
    pub key: Vec<&'static str>,
    /// The number.
    pub found: String,
    /// It is one of several that the key has.
    pub several: bool,
    /// The range, in words.
    pub expected: String,
}

impl OutOfRange {
    /// The problem after the name of its key: "is 2; expected a number from 0 to 1".
    pub fn message(&self) -> String {
        let verb = if self.several { "holds" } else { "is" };
        format!("{verb} {}; expected {}", self.found, self.expected)
    }

    /// The same of a table in another one.
    #[must_use]
    pub fn within(mut self, table: &'static str) -> Self {
        self.key.insert(0, table);
        self
    }
}

/// A value of one number or more.
#[doc(hidden)]
pub trait Numbers {
    /// Each number, and as a user would write it.
    fn numbers(&self) -> Vec<(f64, String)>;
}

impl Numbers for f64 {
    fn numbers(&self) -> Vec<(f64, String)> {
        vec![(*self, number(*self, *self))]
    }
}

impl Numbers for f32 {
    fn numbers(&self) -> Vec<(f64, String)> {
        vec![(f64::from(*self), number(*self, f64::from(*self)))]
    }
}

impl Numbers for (f64, f64) {
    fn numbers(&self) -> Vec<(f64, String)> {
        [self.0.numbers(), self.1.numbers()].concat()
    }
}

impl<N: Numbers> Numbers for Option<N> {
    fn numbers(&self) -> Vec<(f64, String)> {
        self.as_ref().map(N::numbers).unwrap_or_default()
    }
}

impl Numbers for usize {
    fn numbers(&self) -> Vec<(f64, String)> {
        vec![(*self as f64, self.to_string())]
    }
}

impl Numbers for NonZeroUsize {
    fn numbers(&self) -> Vec<(f64, String)> {
        self.get().numbers()
    }
}

impl Numbers for NonZeroU32 {
    fn numbers(&self) -> Vec<(f64, String)> {
        vec![(f64::from(self.get()), self.to_string())]
    }
}

impl Numbers for NonZeroU64 {
    fn numbers(&self) -> Vec<(f64, String)> {
        vec![(self.get() as f64, self.to_string())]
    }
}

/// 1e-6 rather than 0.000001, and 1 rather than 1.0.
fn number<T: Debug + Display>(written: T, value: f64) -> String {
    let small = value != 0.0 && value.abs() < 1e-4;
    if small { format!("{written:?}") } else { written.to_string() }
}

/// A table as JSON.
#[doc(hidden)]
pub fn json<T: Serialize>(table: &T) -> Value {
    serde_json::to_value(table).unwrap_or_default()
}

/// Returns true if nothing is written.
#[doc(hidden)]
pub fn is_empty<P: Default + PartialEq>(partial: &P) -> bool {
    *partial == P::default()
}

/// Writes an `f32` as the shortest decimal that reads back as it: 0.8, not 0.800000011920929.
///
/// # Errors
///
/// Those of the serializer.
#[doc(hidden)]
pub fn short<S: Serializer>(value: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    value
        .map(|value| value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
        .serialize(serializer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Settings of each kind.
    #[derive(Debug, Clone, PartialEq, Settings)]
    #[settings(partial = "OuterConfig", level = "team")]
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
    #[settings(partial = "InnerConfig", level = "agent")]
    struct Inner {
        /// Upper limit.
        #[setting(default = 1.0, range = above(1.0)..)]
        limit: f32,
    }

    #[test]
    fn what_is_left_out_is_inherited_and_then_has_its_default() {
        let base =
            OuterConfig { coef: Some(0.25), parts: NonZeroUsize::new(3), ..Default::default() };
        let own = OuterConfig { coef: Some(0.75), ..Default::default() };
        let resolved = Outer::from(&own.over(&base));
        let expected =
            Outer { coef: 0.75, rates: (0.9, 0.999), parts: 3, inner: Inner { limit: 2.0 } };
        assert_eq!(resolved, expected);
        assert_eq!(Outer::from(&OuterConfig::from(&resolved)), expected);
        assert!(OuterConfig::default().is_empty() && !own.is_empty());
    }

    #[test]
    fn a_number_out_of_its_range_is_found_with_its_key_and_the_range_in_words() {
        let wrong: OuterConfig =
            toml::from_str("coef = 0.0\nrates = [0.5, 1.0]\nparts = 65\ninner.limit = 1e-6")
                .unwrap();
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
        let keys: Vec<(&str, &str, String)> =
            OuterConfig::KEYS.iter().map(|key| (key.name, key.level, key.meaning())).collect();
        let expected = [
            ("coef", "team", "KL coefficient".to_owned()),
            ("rates", "policy", "both rates".to_owned()),
            ("parts", "team", "number of parts".to_owned()),
            ("inner", "team", "a table".to_owned()),
        ];
        assert_eq!(keys, expected);
    }
}
