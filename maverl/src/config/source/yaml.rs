//! Configurations in YAML 1.2 (core schema), with the place of every key. Anchors, tags and `null` are refused: a
//! configuration means the same in TOML.

use std::ops::Range;

use figment::value::{Dict, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table};

use super::toml_value::toml_value;
use super::unread::UnreadValue;
use crate::IntoMap;

/// Tables and lists in each other.
const DEPTH: usize = 32;

/// A value and its place in the text.
#[derive(Debug)]
pub(super) struct YamlNode {
    span: Range<usize>,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Scalar(toml_edit::Value),
    List(Vec<YamlNode>),
    Table(Vec<YamlEntry>),
}

/// A key and its value.
#[derive(Debug)]
struct YamlEntry {
    name: String,
    span: Range<usize>,
    value: YamlNode,
}

/// The table that a text is.
pub(super) fn parse(name: &str, text: &str) -> Result<YamlNode, UnreadValue> {
    let mut reader = YamlReader::new(text);
    let node = reader.document().map_err(|(span, message, help)| {
        (span, format!("{name} is not a configuration in YAML: {message}"), help)
    })?;
    Ok(node)
}

impl YamlNode {
    /// The value as a layer has it.
    pub(super) fn dict(&self) -> Dict {
        match &self.data {
            Data::Table(entries) => {
                entries.iter().map(|entry| (entry.name.clone(), entry.value.value())).into_map()
            }
            Data::Scalar(_) | Data::List(_) => Dict::new(),
        }
    }

    fn value(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => toml_value(value),
            Data::List(items) => items.iter().map(Self::value).collect::<Vec<_>>().into(),
            Data::Table(_) => self.dict().into(),
        }
    }

    /// Key and value of the innermost entry on a path, which has indices for lists.
    pub(super) fn spans(&self, path: &[String]) -> Option<(Range<usize>, Range<usize>)> {
        let (first, rest) = path.split_first()?;
        if let Data::List(items) = &self.data {
            return items.get(first.parse::<usize>().ok()?)?.spans(rest);
        }
        let Data::Table(entries) = &self.data else { return None };
        let entry = entries.iter().find(|entry| entry.name == *first)?;
        entry.value.spans(rest).or_else(|| {
            let value = match entry.value.data {
                Data::Table(_) => entry.span.clone(),
                Data::Scalar(_) | Data::List(_) => entry.value.span.clone(),
            };
            Some((entry.span.clone(), value))
        })
    }

    /// The same in TOML.
    pub(super) fn document(&self) -> DocumentMut {
        let mut document = DocumentMut::new();
        *document.as_table_mut() = self.table();
        document
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        if let Data::Table(entries) = &self.data {
            for YamlEntry { name, value, .. } in entries {
                let item = match &value.data {
                    Data::Table(_) => Item::Table(value.table()),
                    Data::Scalar(_) | Data::List(_) => Item::Value(value.inline()),
                };
                table.insert(name, item);
            }
        }
        table
    }

    /// The same in a line.
    fn inline(&self) -> toml_edit::Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => Array::from_iter(items.iter().map(Self::inline)).into(),
            Data::Table(entries) => {
                let entries =
                    entries.iter().map(|entry| (entry.name.as_str(), entry.value.inline()));
                InlineTable::from_iter(entries).into()
            }
        }
    }
}

struct YamlReader<'t> {
    text: &'t str,
    /// Byte offset of each character.
    offsets: Vec<usize>,
    events: Parser<'t, saphyr_parser::StrInput<'t>>,
}

impl<'t> YamlReader<'t> {
    fn new(text: &'t str) -> Self {
        let offsets = text.char_indices().map(|(at, _)| at).collect();
        Self { text, offsets, events: Parser::new_from_str(text) }
    }

    /// The only document, a table.
    fn document(&mut self) -> Result<YamlNode, UnreadValue> {
        let mut found = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(_) if found.is_some() => {
                    let message = "it has several documents".to_owned();
                    return Err((
                        Some(span),
                        message,
                        Some("remove what follows `---`".to_owned()),
                    ));
                }
                Event::DocumentStart(_) => {}
                // What is empty is a configuration of defaults.
                Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty() => {}
                event => found = Some(self.node("the configuration", event, span, 0)?),
            }
        }
        match found {
            Some(node) if matches!(node.data, Data::Table(_)) => Ok(node),
            Some(node) => {
                let message = "it is no table of keys and values".to_owned();
                Err((Some(node.span), message, Some("write `steps: 100`".to_owned())))
            }
            None => Ok(YamlNode { span: 0..0, data: Data::Table(Vec::new()) }),
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Range<usize>), UnreadValue> {
        match self.events.next() {
            Some(Ok((event, span))) => {
                let span = self.bytes(span);
                Ok((event, span))
            }
            Some(Err(error)) => {
                let at = self.offset(error.marker().index());
                Err((Some(at..at), error.info().to_owned(), None))
            }
            None => Ok((Event::StreamEnd, self.text.len()..self.text.len())),
        }
    }

    fn offset(&self, index: usize) -> usize {
        self.offsets.get(index).copied().unwrap_or(self.text.len())
    }

    fn bytes(&self, span: Span) -> Range<usize> {
        self.offset(span.start.index())..self.offset(span.end.index())
    }

    /// The value that begins with an event; `key` is what messages call it.
    fn node(
        &mut self,
        key: &str,
        event: Event<'t>,
        span: Range<usize>,
        depth: usize,
    ) -> Result<YamlNode, UnreadValue> {
        let tagged = match &event {
            Event::Scalar(.., tag) | Event::SequenceStart(_, tag) | Event::MappingStart(_, tag) => {
                tag.is_some()
            }
            _ => false,
        };
        if tagged || depth > DEPTH {
            let message = if tagged {
                format!("{key} has a tag")
            } else {
                format!("{key} is more than {DEPTH} tables deep")
            };
            return Err((Some(span), message, tagged.then(|| "remove the tag".to_owned())));
        }
        let data = match event {
            Event::Scalar(text, style, ..) => Data::Scalar(scalar(key, &text, style, &span)?),
            Event::SequenceStart(..) => Data::List(self.list(key, depth)?),
            Event::MappingStart(..) => Data::Table(self.table(depth)?),
            Event::Alias(_) => {
                let message = format!("{key} is an alias");
                return Err((Some(span), message, Some("write the value again".to_owned())));
            }
            _ => return Err((Some(span), format!("{key} has no value"), None)),
        };
        Ok(YamlNode { span, data })
    }

    fn list(&mut self, key: &str, depth: usize) -> Result<Vec<YamlNode>, UnreadValue> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(key, event, span, depth + 1)?),
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<Vec<YamlEntry>, UnreadValue> {
        let mut entries: Vec<YamlEntry> = Vec::new();
        loop {
            let (name, span) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => return Ok(entries),
                (Event::Scalar(name, ..), span) => (name.into_owned(), span),
                (_, span) => return Err((Some(span), "a key is no text".to_owned(), None)),
            };
            if let Some(first) = entries.iter().find(|entry| entry.name == name) {
                let line = self.text[..first.span.start].matches('\n').count() + 1;
                let message = format!("`{name}` is set twice, first in line {line}");
                return Err((Some(span), message, Some("remove one of the two".to_owned())));
            }
            let (event, place) = self.next()?;
            let missing =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty());
            let place = if missing { span.clone() } else { place };
            let value = self.node(&format!("`{name}`"), event, place, depth + 1)?;
            entries.push(YamlEntry { name, span, value });
        }
    }
}

/// A scalar of the core schema.
fn scalar(
    key: &str,
    text: &str,
    style: ScalarStyle,
    span: &Range<usize>,
) -> Result<toml_edit::Value, UnreadValue> {
    if style != ScalarStyle::Plain {
        return Ok(text.into());
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => {
            let help = "write one behind `:`; without the line the key has its default".to_owned();
            return Err((Some(span.clone()), format!("{key} has no value"), Some(help)));
        }
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        ".inf" | "+.inf" => f64::INFINITY.into(),
        "-.inf" => f64::NEG_INFINITY.into(),
        ".nan" => f64::NAN.into(),
        text => number(text).unwrap_or_else(|| text.into()),
    })
}

/// A number as YAML writes it; `None` for a text.
fn number(text: &str) -> Option<toml_edit::Value> {
    if let Some(digits) = text.strip_prefix("0x") {
        return i64::from_str_radix(digits, 16).ok().map(Into::into);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return i64::from_str_radix(digits, 8).ok().map(Into::into);
    }
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    if !digits || !text.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    match text.parse::<i64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) => text.parse::<f64>().ok().map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_text_in_yaml_is_the_same_table_as_in_toml() {
        let yaml = "steps: 3\ntask:\n  data: tasks.jsonl\n  shuffle: false\nmodels:\n  tiny: {path: 'builtin:tiny', \
                    optim: {lr: 1e-4, betas: [0.9, 0.95]}}\nagents:\n  \"a/b\":\n    seats:\n      1:\n        frozen: true\n\
                    sampling:\n  stop:\n  - '1'\n  - é\n";
        let toml = "steps = 3\n[task]\ndata = \"tasks.jsonl\"\nshuffle = false\n[models.tiny]\npath = \"builtin:tiny\"\n\
                    optim = { lr = 1e-4, betas = [0.9, 0.95] }\n[agents.\"a/b\".seats.1]\nfrozen = true\n\
                    [sampling]\nstop = [\"1\", \"é\"]\n";
        let node = parse("run.yaml", yaml).unwrap();
        let text = node.document().to_string();
        assert_eq!(text.parse::<toml::Table>().unwrap(), toml.parse::<toml::Table>().unwrap());
        let path = ["sampling", "stop"].map(str::to_owned);
        let (key, _) = node.spans(&path).unwrap();
        assert_eq!(&yaml[key], "stop");
        let path = ["models", "tiny", "optim", "lr"].map(str::to_owned);
        let (key, value) = node.spans(&path).unwrap();
        assert_eq!((&yaml[key], &yaml[value]), ("lr", "1e-4"));
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_its_place() {
        for (text, place, part) in [
            ("steps: 3\nsteps: 4\n", "steps", "`steps` is set twice, first in line 1"),
            ("a: &x 1\nb: *x\n", "*x", "`b` is an alias"),
            ("a: !!str 1\n", "!!str 1", "`a` has a tag"),
            ("a:\nb: 1\n", "a", "`a` has no value"),
            ("a: null\n", "null", "`a` has no value"),
            ("- 1\n- 2\n", "", "no table of keys"),
            ("a: 1\n---\nb: 2\n", "---", "several documents"),
            ("a: [1, 2\n", "", "not a configuration in YAML"),
        ] {
            let (span, message, _) = parse("run.yaml", text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
            let found = &text[span.unwrap()];
            assert!(found.starts_with(place), "{text}: {found:?}");
        }
        let deep = "a: ".to_owned() + &"[".repeat(100) + &"]".repeat(100);
        assert!(parse("run.yaml", &deep).unwrap_err().1.contains("tables deep"));
        assert!(parse("run.yaml", "# nothing\n").unwrap().dict().is_empty());
    }
}
