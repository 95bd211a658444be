//! Objects of JSON. `serde_json::json!` expands each key to an insertion, the check of its value, and the drop of what was
//! there; `object!` makes an array of references, and one function makes the object.

use serde::Serialize;
use serde_json::{Map, Value};

/// Makes an object of JSON: `object!({ "key": value, .. })`.
macro_rules! object {
    ({ $($key:tt : $value:expr),* $(,)? }) => {
        $crate::json::object(&[$(($key, &$value as &dyn $crate::json::ToJson)),*])
    };
}

/// Value of a field. Without the type of the value, an object is made by one function for all types.
pub(crate) trait ToJson {
    /// Returns the value as JSON.
    fn json(&self) -> Value;
}

impl<T: Serialize> ToJson for T {
    #[inline(never)]
    fn json(&self) -> Value {
        value(self)
    }
}

/// Returns the JSON of a value; null if it has none, as a map whose keys are no text.
pub(crate) fn value<T: Serialize + ?Sized>(of: &T) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// Returns an object of keys and values.
#[inline(never)]
pub(crate) fn object(parts: &[(&str, &dyn ToJson)]) -> Value {
    let parts = parts.iter().map(|(key, value)| ((*key).to_owned(), value.json()));
    Value::Object(parts.collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn an_object_is_that_of_the_macro_of_serde_json() {
        let (text, none) = ("x", None::<u8>);
        let made = object!({ "b": text, "a": [1, 2], "n": none, "v": Value::Null, "o": object!({}), "f": f64::NAN, text: 1 });
        let expected =
            json!({ "b": text, "a": [1, 2], "n": null, "v": null, "o": {}, "f": f64::NAN, "x": 1 });
        assert_eq!(made.to_string(), expected.to_string());
    }
}
