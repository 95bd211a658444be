//! Objects of JSON. `serde_json::json!` expands each key to an insertion, the check of its value, and the drop of what was
//! there; `object!` makes an array of the values, and one function makes the object.

use serde::Serialize;
use serde_json::{Map, Value};

/// Makes an object of JSON: `object!({ "key": value, .. })`.
macro_rules! object {
    ({ $($key:tt : $value:expr),* $(,)? }) => {
        $crate::view::object::object(&mut [$(($key, $crate::view::object::value(&$value))),*])
    };
}

/// Returns the JSON of a value; null if it has none, as a map whose keys are no text.
#[inline(never)]
pub(super) fn value<T: Serialize + ?Sized>(of: &T) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// Returns an object of keys and values, which it takes.
#[inline(never)]
pub(super) fn object(parts: &mut [(&str, Value)]) -> Value {
    let mut map = Map::with_capacity(parts.len());
    for (key, value) in parts {
        map.insert((*key).to_owned(), value.take());
    }
    Value::Object(map)
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
