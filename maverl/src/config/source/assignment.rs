//! Values outside of a file: variables of the environment, and `--set key=value`.

use std::ops::Range;

use figment::value::Value;

use super::layer::{LayerContent, SourceLayer};
use super::toml_value::toml_value;
use super::unread::UnreadValue;

/// Maximum number of parts of a key. Tables are merged, read and dropped one within another, on the stack.
const DEEPEST: usize = 32;

/// Environment variables that begin like keys and are none.
const RESERVED: &[&str] = &[
    "MAVERL_BINARY",
    "MAVERL_BROWSER",
    "MAVERL_EPISODE_URL",
    "MAVERL_FUZZ_CASES",
    "MAVERL_GATEWAY_KEY",
    "MAVERL_GATEWAY_URL",
    "MAVERL_JOB",
    "MAVERL_CUBLASLT",
    "MAVERL_FULL",
    "MAVERL_KERNELS",
    "MAVERL_LOCAL_RANK",
    "MAVERL_LOCAL_RANKS",
    "MAVERL_PICTURES",
    "MAVERL_RANK",
    "MAVERL_RANKS",
    "MAVERL_RECORD",
    "MAVERL_REQUIRE_NVRTC",
    "MAVERL_RUNS",
    "MAVERL_SIMD",
    "MAVERL_SITE_PACKAGES",
    "MAVERL_STARTED_BY",
    "MAVERL_STEP",
    "MAVERL_TEST_CRDS",
    "MAVERL_TEST_DATA",
    "MAVERL_TEST_PYTHON",
];

pub(super) fn is_key(name: &str) -> bool {
    name.starts_with("MAVERL_") && !RESERVED.contains(&name)
}

pub(super) fn read_variable(name: &str, value: &str) -> (SourceLayer, Option<UnreadValue>) {
    let path: Vec<String> =
        name["MAVERL_".len()..].to_lowercase().split("__").map(str::to_owned).collect();
    let text = format!("{name}={value}");
    assigned_layer("environment", text, path, 0..name.len(), name.len() + 1)
}

pub(super) fn read_assignment(text: &str) -> (SourceLayer, Option<UnreadValue>) {
    match split_assignment(text) {
        Some((path, equals)) => {
            assigned_layer("--set", text.to_owned(), path, 0..equals, equals + 1)
        }
        None => {
            let help = match text.split_once('=') {
                Some(_) => "write `--set task.group_size=4`".to_owned(),
                None => format!("write `--set {text}=VALUE`, without spaces around `=`"),
            };
            let what = "`--set` is given something that is not `key=value`".to_owned();
            let problem = (Some(0..text.len()), what, Some(help));
            (
                SourceLayer::new("--set".to_owned(), text.to_owned(), LayerContent::Nothing),
                Some(problem),
            )
        }
    }
}

fn assigned_layer(
    name: &str,
    text: String,
    path: Vec<String>,
    key: Range<usize>,
    start: usize,
) -> (SourceLayer, Option<UnreadValue>) {
    if path.len() > DEEPEST {
        let message = format!("a key of {} parts; no key has more than {DEEPEST}", path.len());
        let layer = SourceLayer::new(name.to_owned(), text, LayerContent::Nothing);
        return (layer, Some((Some(key), message, None)));
    }
    let value = start..text.len();
    let (content, problem) = match written_value(&text[value.clone()]) {
        Ok(parsed) => (LayerContent::Assignment { path, key, value, parsed }, None),
        Err(message) => {
            let help = unquoted_help(&text);
            (LayerContent::Nothing, Some((Some(value), message, help)))
        }
    };
    (SourceLayer::new(name.to_owned(), text, content), problem)
}

/// Returns help for a value whose quotes a shell has removed.
fn unquoted_help(assignment: &str) -> Option<String> {
    let (_, value) = assignment.split_once('=')?;
    let bare = value.starts_with(['[', '{']) && !value.contains(['"', '\'']);
    (bare && value.contains(char::is_alphabetic)).then(|| {
        "a shell takes quotes away: put the whole in single ones, as in `--set 'sampling.stop=[\"</a>\"]'`".to_owned()
    })
}

/// Parses a value outside of a file: TOML, or else plain text.
fn written_value(text: &str) -> Result<Value, String> {
    match text.trim().parse::<toml_edit::Value>() {
        Ok(value) => Ok(toml_value(&value)),
        Err(error) if text.trim_start().starts_with(['"', '\'', '[', '{']) => {
            Err(format!("the value is not TOML: {}", error.message().trim().replace('\n', "; ")))
        }
        Err(_) => Ok(text.trim().into()),
    }
}

/// Returns the keys before the first `=` outside of quotes, and its position. Quotes are as in TOML; only dots separate
/// keys.
fn split_assignment(text: &str) -> Option<(Vec<String>, usize)> {
    let mut path = vec![String::new()];
    let mut quote = None;
    for (at, c) in text.char_indices() {
        let last = path.last_mut()?;
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '.') => path.push(String::new()),
            (None, '=') => {
                let path: Vec<String> = path.iter().map(|key| key.trim().to_owned()).collect();
                return path.iter().all(|key| !key.is_empty()).then_some((path, at));
            }
            _ => last.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_split_at_dots_and_the_first_equals_sign_outside_of_quotes() {
        let cases = [
            ("steps=3", Some(("steps", 5))),
            ("task.data=a=b.jsonl", Some(("task|data", 9))),
            (
                "agents.math/solver.sampling.temperature=0.5",
                Some(("agents|math/solver|sampling|temperature", 39)),
            ),
            ("models.\"qwen2.5\".path=x", Some(("models|qwen2.5|path", 21))),
            ("agents.'a=b'.model = \"m\"", Some(("agents|a=b|model", 19))),
            ("steps", None),
            (".steps=3", None),
        ];
        for (text, expected) in cases {
            let expected =
                expected.map(|(path, at)| (path.split('|').map(str::to_owned).collect(), at));
            assert_eq!(split_assignment(text), expected, "{text}");
        }
    }
}
