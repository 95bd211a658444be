//! The card of a data set: configurations in the YAML at the beginning of `README.md`.

use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, StrInput};
use serde_json::{Map, Value};

/// Maximum depth of a card's lists and tables.
const DEEPEST: usize = 64;

/// Key of the configurations.
const CONFIGS: &str = "configs";
/// Message about an alias (`*name`) among them.
const ALIAS: &str = "the `configs` of `README.md` have an alias of YAML (`*name`), which is not supported; name files instead, as \
                     `hf:ORG/NAME:GLOB`";

/// Patterns of the files of each split.
pub(super) type SplitPatterns = Vec<(String, Vec<String>)>;

/// A configuration that a card declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CardConfig {
    pub(super) name: String,
    /// True if it is the one that is meant if none is named.
    pub(super) is_default: bool,
    /// Folder of its files; empty for the repository itself.
    pub(super) folder: String,
    /// Its files; `None` if they are found by their names.
    pub(super) patterns: Option<SplitPatterns>,
}

/// Reads the configurations of a card; none if it declares none.
///
/// # Errors
///
/// The part of the card that cannot be read.
pub(super) fn card_configs(readme: &str) -> Result<Vec<CardConfig>, String> {
    let Some(text) = front_matter(readme) else { return Ok(Vec::new()) };
    let card = read_yaml(text)?;
    let Some(Value::Array(configs)) = card.get(CONFIGS) else { return Ok(Vec::new()) };
    let configs: Vec<CardConfig> = configs.iter().map(card_config).collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    match configs.iter().find(|config| !seen.insert(&config.name)) {
        Some(CardConfig { name, .. }) => Err(format!(
            "two configurations of `README.md` are named `{name}`; name files instead, as `hf:ORG/NAME:GLOB`"
        )),
        None => Ok(configs),
    }
}

/// Returns the number of rows of each split of a configuration, as far as the card has them.
pub(super) fn card_rows(readme: &str, config: &str) -> Vec<(String, u64)> {
    let card = front_matter(readme).and_then(|text| read_yaml(text).ok()).unwrap_or_default();
    let infos = match card.get("dataset_info") {
        Some(Value::Array(infos)) => infos.clone(),
        Some(info) => vec![info.clone()],
        None => Vec::new(),
    };
    let named = infos.iter().find(|info| info["config_name"].as_str().unwrap_or(config) == config);
    let splits = named.and_then(|info| info["splits"].as_array()).into_iter().flatten();
    let rows = splits.filter_map(|split| {
        let rows = split["num_examples"].as_str()?.parse().ok()?;
        Some((split["name"].as_str()?.to_owned(), rows))
    });
    rows.collect()
}

/// Returns the text between the first line and the next one, which are `---`.
fn front_matter(readme: &str) -> Option<&str> {
    let text = readme.strip_prefix('\u{feff}').unwrap_or(readme);
    let text = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"))?;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some(&text[..start]);
        }
        start += line.len();
    }
    None
}

fn card_config(config: &Value) -> Result<CardConfig, String> {
    let name = config["config_name"].as_str().unwrap_or("default").to_owned();
    let patterns = match config.get("data_files") {
        None => None,
        Some(files) => Some(split_patterns(files).ok_or_else(|| {
            format!("the `data_files` of the configuration `{name}` have no form that is read")
        })?),
    };
    let folder = config["data_dir"].as_str().unwrap_or_default();
    let folder = folder.trim_start_matches("./").trim_matches('/').to_owned();
    Ok(CardConfig { name, is_default: config["default"] == "true", folder, patterns })
}

/// Reads a pattern, a list of patterns, or a list of `split` and `path`.
fn split_patterns(files: &Value) -> Option<SplitPatterns> {
    let named = files.as_array().filter(|list| list.iter().any(Value::is_object));
    let Some(list) = named else {
        return Some(vec![("train".to_owned(), patterns(files)?)]);
    };
    let splits = list.iter().map(|one| {
        let split = one["split"].as_str()?.to_owned();
        Some((split, patterns(one.get("path")?)?))
    });
    splits.collect()
}

fn patterns(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(pattern) => Some(vec![pattern.clone()]),
        Value::Array(list) => list.iter().map(|one| Some(one.as_str()?.to_owned())).collect(),
        _ => None,
    }
}

/// Reads a YAML document. Every scalar is a text.
fn read_yaml(text: &str) -> Result<Value, String> {
    let mut reader = CardReader { events: Parser::new_from_str(text), has_alias: false };
    loop {
        match reader.next_event()? {
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
            event => return reader.value(event, DEEPEST),
        }
    }
}

struct CardReader<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// True if an alias was read.
    has_alias: bool,
}

impl<'t> CardReader<'t> {
    fn next_event(&mut self) -> Result<Event<'t>, String> {
        match self.events.next() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(format!(
                "the YAML of `README.md`, line {}: {}",
                error.marker().line() + 1,
                error.info()
            )),
            None => Ok(Event::StreamEnd),
        }
    }

    /// Reads the value that begins with an event.
    fn value(&mut self, event: Event<'t>, deepest: usize) -> Result<Value, String> {
        let Some(deeper) = deepest.checked_sub(1) else {
            return Err(format!("the YAML of `README.md` is more than {DEEPEST} levels deep"));
        };
        match event {
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next_event()? {
                        Event::SequenceEnd | Event::StreamEnd => return Ok(Value::Array(items)),
                        event => items.push(self.value(event, deeper)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut table = Map::new();
                loop {
                    let key = match self.next_event()? {
                        Event::MappingEnd | Event::StreamEnd => return Ok(Value::Object(table)),
                        event => self.value(event, deeper)?,
                    };
                    let event = self.next_event()?;
                    // Of the keys of the card itself, one is read.
                    let is_read = deepest == DEEPEST && key == CONFIGS;
                    if is_read {
                        self.has_alias = false;
                    }
                    let value = self.value(event, deeper)?;
                    if is_read && self.has_alias {
                        return Err(ALIAS.to_owned());
                    }
                    if let Value::String(key) = key {
                        table.insert(key, value);
                    }
                }
            }
            Event::Alias(_) => {
                self.has_alias = true;
                Ok(Value::Null)
            }
            _ => Ok(Value::Null),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn patterns_of(splits: &[(&str, &[&str])]) -> Option<SplitPatterns> {
        let splits = splits.iter().map(|(split, patterns)| {
            ((*split).to_owned(), patterns.iter().map(|one| (*one).to_owned()).collect())
        });
        Some(splits.collect())
    }

    #[test]
    fn configurations_are_read_in_every_form_of_their_files() {
        let card = "---\nlicense: mit\ndataset_info:\n- config_name: main\n  splits:\n  - name: train\n    num_examples: 7473\n\
                    configs:\n- config_name: main\n  default: true\n  data_files:\n  - split: train\n    path: main/train-*\n\
                    \x20 - split: test\n    path:\n    - main/a.jsonl\n    - main/b.jsonl\n- config_name: one\n  data_files: one.jsonl\n\
                    - config_name: list\n  data_files: [\"a.jsonl\", 'b.jsonl']\n- config_name: folder\n  data_dir: ./sub/\n---\n# Text\n";
        let configs = card_configs(card).unwrap();
        let names: Vec<_> = configs.iter().map(|it| (it.name.as_str(), it.is_default)).collect();
        assert_eq!(names, [("main", true), ("one", false), ("list", false), ("folder", false)]);
        let test: &[&str] = &["main/a.jsonl", "main/b.jsonl"];
        let main = patterns_of(&[("train", &["main/train-*"]), ("test", test)]);
        assert_eq!(configs[0].patterns, main);
        assert_eq!(configs[1].patterns, patterns_of(&[("train", &["one.jsonl"])]));
        assert_eq!(configs[2].patterns, patterns_of(&[("train", &["a.jsonl", "b.jsonl"])]));
        assert_eq!((configs[3].folder.as_str(), &configs[3].patterns), ("sub", &None));
        assert_eq!(card_rows(card, "main"), [("train".to_owned(), 7473)]);
    }

    #[test]
    fn a_card_without_yaml_declares_nothing_and_a_wrong_one_is_an_error() {
        for text in
            ["", "# Title\n", "---\nlicense: mit\n", "---\nlicense: mit\n---\n", "---\n---\n"]
        {
            assert_eq!(card_configs(text), Ok(Vec::new()), "{text}");
        }
        let told = card_configs("---\nconfigs: [\n---\n").unwrap_err();
        assert!(told.starts_with("the YAML of `README.md`, line "), "{told}");
        let told = card_configs("---\nconfigs:\n- data_files:\n  - split: a\n---\n").unwrap_err();
        assert!(told.contains("`data_files` of the configuration `default`"), "{told}");
        let told = card_configs(
            "---\nx: &f a.jsonl\ny: *f\nconfigs:\n- data_files: *f\n  default: true\n---\n",
        )
        .unwrap_err();
        assert!(told.contains("an alias of YAML (`*name`), which is not supported"), "{told}");
        // Elsewhere in the card, aliases do not matter.
        let card = "---\nx: &f a.jsonl\ny: *f\nconfigs:\n- data_files: &g a.jsonl\n---\n";
        assert_eq!(card_configs(card).unwrap().len(), 1);
        let card = "---\nconfigs:\n- data_files: a.jsonl\n- data_files: b.jsonl\n---\n";
        let told = card_configs(card).unwrap_err();
        assert!(
            told.starts_with("two configurations of `README.md` are named `default`"),
            "{told}"
        );
        let deep = format!("---\na: {}\n---\n", "[".repeat(100));
        assert!(card_configs(&deep).is_err());
    }
}
