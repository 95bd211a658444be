//! The keys of a JSON object, read so that every problem is found at once.

use serde_json::{Map, Value};

/// Range of numbers that a model can compute with, for messages.
pub(in crate::files) const WITHIN_F32: &str = "from 1.5e-45 to 3.4e38";

/// Largest width of the residual stream, of all heads together, and of the MLP.
pub(in crate::files) const WIDEST: usize = 1 << 20;

/// Reads keys and notes what is wrong with them.
///
/// A key that is wrong reads as some harmless value, which nobody sees: there is a problem then.
pub(in crate::files) struct ConfigReader<'a> {
    json: &'a Map<String, Value>,
    /// Prefix of a key in messages: `rope_parameters.`, or nothing.
    place: &'static str,
    /// Values that were found, with those that are supported.
    pub(in crate::files) problems: Vec<String>,
    /// Sentences about keys that have no effect, or another one than one may think.
    pub(in crate::files) notes: Vec<String>,
}

impl<'a> ConfigReader<'a> {
    pub(in crate::files) fn new(json: &'a Map<String, Value>) -> Self {
        Self { json, place: "", problems: Vec::new(), notes: Vec::new() }
    }

    /// Reads an object within this one, if it is there; `place` is its key and a dot, after those of the objects around it.
    pub(in crate::files) fn read_within<R>(
        &mut self,
        place: &'static str,
        read: impl FnOnce(&mut ConfigReader<'a>) -> R,
    ) -> Option<R> {
        let key = place.trim_end_matches('.').rsplit('.').next()?;
        let Value::Object(json) = self.value(key)? else {
            self.wrong(key, "an object is needed");
            return None;
        };
        let mut inner = ConfigReader { json, place, problems: Vec::new(), notes: Vec::new() };
        let result = read(&mut inner);
        self.problems.append(&mut inner.problems);
        self.notes.append(&mut inner.notes);
        Some(result)
    }

    /// True if a key is there, if only with null.
    pub(in crate::files) fn has(&self, key: &str) -> bool {
        self.json.contains_key(key)
    }

    /// Returns the value of a key; `None` if it is null or missing.
    pub(in crate::files) fn value(&self, key: &str) -> Option<&'a Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    /// Every key and what it has.
    pub(in crate::files) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        self.json.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub(in crate::files) fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    /// Adds a sentence to a warning.
    pub(in crate::files) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Notes that a key has something else than what is needed or supported.
    pub(in crate::files) fn wrong(&mut self, key: &str, needed: &str) {
        let found = self.json.get(key).map_or_else(|| "missing".to_owned(), show_value);
        self.problem(format!("`{}{key}` is {found}; {needed}", self.place));
    }

    /// A text; none, if it is missing.
    pub(in crate::files) fn text(&mut self, key: &str) -> Option<&'a str> {
        let text = self.json.get(key)?.as_str();
        if text.is_none() {
            self.wrong(key, "a string is needed");
        }
        text
    }

    /// Yes or no; the default, if it is missing.
    pub(in crate::files) fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.json.get(key) {
            None => default,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.wrong(key, "true or false is needed");
                false
            }
        }
    }

    /// A positive number, as an f32 too; none, if it is missing.
    pub(in crate::files) fn number(&mut self, key: &str) -> Option<f64> {
        let number = self.json.get(key)?.as_f64().filter(|n| *n > 0.0);
        match number {
            Some(number) if is_positive(number) => return Some(number),
            Some(_) => self.wrong(key, &format!("a positive number {WITHIN_F32} is needed")),
            None => self.wrong(key, "a positive number is needed"),
        }
        None
    }

    /// A positive number; none, if it is missing or null.
    pub(in crate::files) fn optional_number(&mut self, key: &str) -> Option<f64> {
        self.value(key)?;
        self.number(key)
    }

    /// A positive number that must be there.
    pub(in crate::files) fn required_number(&mut self, key: &str) -> f64 {
        if !self.has(key) {
            self.wrong(key, "a positive number is needed");
        }
        self.number(key).unwrap_or(1.0)
    }

    /// A whole number from 1 to `most`; none, if it is missing or null.
    pub(in crate::files) fn optional_size(&mut self, key: &str, most: usize) -> Option<usize> {
        let size = self.value(key)?.as_u64().filter(|n| (1..=most as u64).contains(n));
        if size.is_none() {
            self.wrong(key, &format!("a whole number from 1 to {most} is needed"));
        }
        size.map(|size| size as usize)
    }

    /// A whole number from 1 to `most`, or the default, if it is missing.
    pub(in crate::files) fn size(&mut self, key: &str, default: usize, most: usize) -> usize {
        if self.json.get(key).is_some_and(Value::is_null) {
            self.wrong(key, &format!("a whole number from 1 to {most} is needed"));
        }
        self.optional_size(key, most).unwrap_or(default)
    }
}

/// Returns true for a number above 0 that is finite and above 0 as an f32 too: a model computes with these.
pub(in crate::files) fn is_positive(number: f64) -> bool {
    let number = number as f32;
    number.is_finite() && number > 0.0
}

/// A value in a message: short, whatever it is.
pub(in crate::files) fn show_value(value: &Value) -> String {
    const LONGEST: usize = 60;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > LONGEST => {
            format!("{:?}...", text.chars().take(LONGEST).collect::<String>())
        }
        value => value.to_string(),
    }
}
