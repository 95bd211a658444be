//! Types of the answers of the interface, inferred from answers: `web/api.d.ts`, which the checker of the scripts reads.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::*;

/// Objects whose keys are names of seats, policies, metrics, files or numbers.
const NAMED: [&str; 8] =
    ["seats", "columns", "weights", "data", "metrics", "pass", "bytes", "samples"];
/// The types: a name, and paths whose answers are of it.
const TYPES: [(&str, &[&str]); 17] = [
    ("Runs", &["runs"]),
    ("Run", &["runs/0", "runs/1"]),
    ("Config", &["runs/0/config"]),
    ("Series", &["runs/0/series"]),
    ("Episodes", &["runs/0/episodes?limit=500"]),
    ("Episode", &["runs/0/episodes/train/2/0", "runs/0/episodes/train/2/5"]),
    ("Turn", &["runs/0/episodes/train/2/0/turns/0"]),
    (
        "Tokens",
        &["runs/0/episodes/train/2/0/turns/0/tokens", "runs/0/episodes/train/2/0/turns/1/tokens"],
    ),
    ("Spans", &["runs/0/spans"]),
    ("Clock", &["runs/0/clock/2"]),
    ("Team", &["runs/0/team", "runs/1/team"]),
    ("Replies", &["runs/0/replies", "runs/1/replies"]),
    ("Step", &["runs/0/steps/1", "runs/0/steps/2"]),
    ("Largest", &["runs/0/groups"]),
    ("Groups", &["runs/0/groups/2"]),
    ("Group", &["runs/0/groups/2/0", "runs/0/groups/2/3"]),
    ("Comparison", &["compare?runs=0,1"]),
];

/// Types of a value in some answers.
#[derive(Default)]
struct Shape {
    plain: BTreeSet<&'static str>,
    /// Items of arrays.
    items: Option<Box<Shape>>,
    /// Values of objects whose keys are names.
    values: Option<Box<Shape>>,
    /// Number of other objects, and their fields with the number of those that have each.
    objects: usize,
    fields: BTreeMap<String, (usize, Shape)>,
}

impl Shape {
    /// Adds a value that is under a key.
    fn add(&mut self, key: &str, value: &Value) {
        match value {
            Value::Null => drop(self.plain.insert("null")),
            Value::Bool(_) => drop(self.plain.insert("boolean")),
            Value::Number(_) => drop(self.plain.insert("number")),
            Value::String(_) => drop(self.plain.insert("string")),
            Value::Array(all) => {
                let items = self.items.get_or_insert_default();
                all.iter().for_each(|value| items.add("", value));
            }
            Value::Object(map) if NAMED.contains(&key) => {
                let values = self.values.get_or_insert_default();
                map.values().for_each(|value| values.add("", value));
            }
            Value::Object(map) => {
                self.objects += 1;
                for (key, value) in map {
                    let (n, shape) = self.fields.entry(key.clone()).or_default();
                    *n += 1;
                    shape.add(key, value);
                }
            }
        }
    }

    /// Returns the type, with fields that are indented.
    fn text(&self, depth: usize) -> String {
        let mut parts = Vec::new();
        if let Some(items) = &self.items {
            let items = items.text(depth);
            let whole = if items.contains(" | ") && !items.starts_with('{') {
                format!("({items})")
            } else {
                items
            };
            parts.push(if whole.starts_with('{') {
                format!("Array<{whole}>")
            } else {
                format!("{whole}[]")
            });
        }
        if let Some(values) = &self.values {
            parts.push(format!("Record<string, {}>", values.text(depth)));
        }
        if self.objects > 0 {
            let mut fields = String::from("{\n");
            for (key, (n, shape)) in &self.fields {
                let word = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                let key = if word { key.clone() } else { format!("{key:?}") };
                let may = if *n < self.objects { "?" } else { "" };
                let indent = "  ".repeat(depth + 1);
                writeln!(fields, "{indent}{key}{may}: {};", shape.text(depth + 1)).unwrap();
            }
            parts.push(format!("{fields}{}}}", "  ".repeat(depth)));
        }
        parts.extend(self.plain.iter().map(|name| (*name).to_owned()));
        if parts.is_empty() { "unknown".to_owned() } else { parts.join(" | ") }
    }
}

#[test]
fn the_types_of_the_scripts_are_those_of_the_answers() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    drop(Written::new(&home.path().join("b")));
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let mut text = "// Answers of the interface below `api/`. Written by the test `the_types_of_the_scripts_are_those_of_the_answers`\n\
                    // with MAVERL_RECORD=1, from the answers on the run of the tests.\n"
        .to_owned();
    for (name, paths) in TYPES {
        let mut shape = Shape::default();
        for path in paths {
            let (status, answer) = ask(&viewer, &format!("api/{path}"));
            assert_eq!(status, 200, "{path}: {answer}");
            shape.add("", &answer);
        }
        writeln!(
            text,
            "\n/** Answer of `{}`. */\nexport type {name} = {};",
            paths[0],
            shape.text(0)
        )
        .unwrap();
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/web/api.d.ts");
    if std::env::var_os("MAVERL_RECORD").is_some() {
        fs::write(file, &text).unwrap();
    }
    let known = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().zip(known.lines()).find(|(new, old)| new != old);
    assert!(
        known == text,
        "web/api.d.ts is stale, first at {line:?}: set MAVERL_RECORD=1 and run this test"
    );
}
