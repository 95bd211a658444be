//! JSON objects of rows: doubled keys are refused, and numbers that are answers or ids are texts as they are written.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// Depth of a text from which numbers are left to the parser, which refuses it.
const DEEPEST: usize = 128;

/// Reads a JSON object in which no key is there twice. A number below one of the keys `texts` is a text as it is written, if a
/// number of 64 bits would be written in another way.
///
/// ```
/// use maverl::data::object;
///
/// assert_eq!(object("{\"answer\": 0.10}", &["answer"]).unwrap()["answer"], "0.10");
/// let error = object("{\"answer\": \"2\", \"answer\": \"3\"}", &[]).unwrap_err();
/// assert!(error.starts_with("the key `answer` is there twice; keep one"));
/// ```
///
/// # Errors
///
/// The problem and its position in the text.
pub fn object(text: &str, texts: &[&str]) -> Result<Map<String, Value>, String> {
    let paths: Vec<KeyPath> = texts.iter().map(|key| vec![(*key).to_owned()]).collect();
    let text = with_numbers_as_written(text.as_bytes(), &paths);
    distinct(&text).map_err(|error| error.to_string())
}

/// Reads a JSON value in which no object has a key twice. A parser alone would take the last value of the key.
pub(crate) fn distinct<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    let Distinct(value) = serde_json::from_slice(text)?;
    // An error of the type has its position if the text is read again.
    T::deserialize(value).or_else(|_| serde_json::from_slice(text))
}

/// Reads a JSON object in which no object has a key twice, as [`distinct`] does.
pub(super) fn distinct_object(text: &[u8]) -> serde_json::Result<Map<String, Value>> {
    match serde_json::from_slice(text)? {
        Distinct(Value::Object(object)) => Ok(object),
        Distinct(_) => serde_json::from_slice(text),
    }
}

/// Any JSON value without doubled keys.
struct Distinct(Value);

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctVisitor).map(Distinct)
    }
}

struct DistinctVisitor;

impl<'de> Visitor<'de> for DistinctVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = match object.entry(key) {
                Entry::Vacant(place) => place,
                Entry::Occupied(found) => {
                    let key = found.key();
                    let message = format!("the key `{key}` is there twice; keep one");
                    return Err(A::Error::custom(message));
                }
            };
            let Distinct(value) = map.next_value()?;
            place.insert(value);
        }
        Ok(Value::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Distinct(value)) = items.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }
}

/// Keys that lead to a value, from the outermost; lists between them do not count.
pub type KeyPath = Vec<String>;

/// An object or a list that is open.
struct Level<'t> {
    list: bool,
    /// True between a comma or the start of an object and the next colon.
    before_key: bool,
    /// The last key in quotation marks; empty before the first.
    key: &'t [u8],
}

impl<'t> Level<'t> {
    fn new(list: bool) -> Self {
        Self { list, before_key: !list, key: &[] }
    }

    /// Passes a token that opens and closes nothing.
    fn pass(&mut self, byte: u8, token: &'t [u8]) {
        match byte {
            b',' => self.before_key = !self.list,
            b':' => self.before_key = false,
            b'"' if self.before_key => self.key = token,
            _ => {}
        }
    }
}

/// Returns a JSON text whose numbers at these paths, or below them, are texts as they are written, except those that a parser
/// would write in the same way: a number of 64 bits may be another one.
pub fn with_numbers_as_written<'t>(text: &'t [u8], paths: &[KeyPath]) -> Cow<'t, [u8]> {
    if paths.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut written, mut copied) = (Vec::new(), 0);
    let (mut levels, mut at) = (Vec::<Level<'t>>::new(), 0);
    while let Some(byte) = text.get(at) {
        let end = match byte {
            b'"' => at + length_of_text(&text[at..]),
            b'-' | b'0'..=b'9' => at + length_of_number(&text[at..]),
            _ => at + 1,
        };
        let token = &text[at..end];
        match byte {
            b'{' | b'[' if levels.len() == DEEPEST => return Cow::Borrowed(text),
            b'{' | b'[' => levels.push(Level::new(*byte == b'[')),
            b'}' | b']' => drop(levels.pop()),
            _ => levels.last_mut().into_iter().for_each(|level| level.pass(*byte, token)),
        }
        let number = matches!(byte, b'-' | b'0'..=b'9');
        if number && !is_kept(token) && paths.iter().any(|path| leads_to(path, &levels)) {
            written.extend_from_slice(&text[copied..at]);
            written.push(b'"');
            written.extend_from_slice(token);
            written.push(b'"');
            copied = end;
        }
        at = end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    written.extend_from_slice(&text[copied..]);
    Cow::Owned(written)
}

/// Returns true for a number that a parser writes as it is, and for one that is malformed.
fn is_kept(token: &[u8]) -> bool {
    let short = token.len() < 19 && token.iter().all(u8::is_ascii_digit);
    short && (token[0] != b'0' || token.len() == 1)
        || serde_json::from_slice::<IgnoredAny>(token).is_err()
        || serde_json::from_slice::<Number>(token)
            .is_ok_and(|number| number.to_string().as_bytes() == token)
}

/// Returns the length of the text in quotation marks at the start.
fn length_of_text(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Returns the length of the number at the start.
fn length_of_number(text: &[u8]) -> usize {
    let end = text.iter().position(|it| !(it.is_ascii_digit() || b"+-.eE".contains(it)));
    end.unwrap_or(text.len())
}

/// Returns true if a path leads to the place in these open objects, or to one around it.
fn leads_to(path: &[String], levels: &[Level<'_>]) -> bool {
    let keys = levels.iter().filter(|level| !level.list);
    let mut keys =
        keys.map(|level| serde_json::from_slice::<String>(level.key).unwrap_or_default());
    path.iter().all(|wanted| keys.next().is_some_and(|key| key.eq_ignore_ascii_case(wanted)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_doubled_key_is_an_error_at_every_depth_and_in_every_spelling() {
        let twice = |text: &str| object(text, &[]).unwrap_err();
        for (text, key) in [
            (r#"{"answer": "2", "answer": "3"}"#, "answer"),
            (r#"{"answer": "2", "answer": "2"}"#, "answer"),
            (r#"{"question": "?", "answer": 1, "question": null}"#, "question"),
            (r#"{"a": {"b": 1, "b": 2}}"#, "b"),
            (r#"{"messages": [{"role": "user", "role": "assistant"}]}"#, "role"),
            (r#"{"answer": 1, "\u0061nswer": 2}"#, "answer"),
            (r#"{"": 1, "": 2}"#, ""),
            (r#"{"a": [[{"x": [], "x": {}}]]}"#, "x"),
            (r#"{"id": 1, "x": {"id": 1}, "id": 2}"#, "id"),
            (r#"{"ä": true, "ä": false}"#, "ä"),
        ] {
            let found = twice(text);
            assert!(
                found.starts_with(&format!("the key `{key}` is there twice")),
                "{text}: {found}"
            );
        }
        // The same key in different objects, and another spelling, are no doubles.
        for text in [
            r#"{"a": {"b": 1}, "c": {"b": 1}}"#,
            r#"{"a": [{"b": 1}, {"b": 1}]}"#,
            r#"{"answer": 1, "Answer": 2}"#,
        ] {
            assert!(object(text, &[]).is_ok(), "{text}");
        }
        assert!(twice("[1]").starts_with("invalid type"));
        assert!(twice("{\"a\": }").starts_with("expected value"));
    }

    #[test]
    fn numbers_at_a_path_are_texts_where_a_parser_would_change_them() {
        let paths = [vec!["answer".to_owned()], vec!["a".to_owned(), "b".to_owned()]];
        let written = |text: &str| {
            String::from_utf8(with_numbers_as_written(text.as_bytes(), &paths).into_owned())
                .unwrap()
        };
        for (text, wanted) in [
            (r#"{"answer": 1.50}"#, r#"{"answer": "1.50"}"#),
            (r#"{"answer":[1e3,{"x":-0}]}"#, r#"{"answer":["1e3",{"x":"-0"}]}"#),
            (r#"{"Answer": 18446744073709551616}"#, r#"{"Answer": "18446744073709551616"}"#),
            (r#"{"\u0061nswer": 1E400}"#, r#"{"\u0061nswer": "1E400"}"#),
            (
                r#"{"a": {"b": 2.0, "c": 1.10, "b": 3.10}}"#,
                r#"{"a": {"b": 2.0, "c": 1.10, "b": "3.10"}}"#,
            ),
            (r#"{"q": "1.50 \" {", "answer": 7}"#, r#"{"q": "1.50 \" {", "answer": 7}"#),
        ] {
            assert_eq!(written(text), wanted);
        }
        // Others, malformed ones and texts that are cut are left as they are.
        for text in [
            r#"{"b": 1.50, "x": {"answer": 1.50}}"#,
            r#"{"answer": 1.2.3}"#,
            r#"{"answer": 01}"#,
            r#"{"answer": "1.50"#,
            r#"{"answer": "\"#,
            "]]}}1.50,:",
        ] {
            assert_eq!(written(text), text);
        }
        let deep = format!("{}1.50", "[".repeat(1000));
        assert_eq!(written(&deep), deep);
    }
}
