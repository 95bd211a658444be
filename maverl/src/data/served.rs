//! Tasks of a server of OpenEnv, by its Task API: `data = "openenv:SPLIT"`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::DataError;
use super::jsonl;
use super::object::{KeyPath, distinct, with_numbers_as_written};
use super::row::Row;
use crate::builtin::resets::QUESTION;
use crate::client::{Client, DEFAULT_TIMEOUT_S, DEFAULT_URL, addresses, key};
use crate::config::{SERVED, TaskConfig};

/// Name of the environment of a server with tasks.
const ENVIRONMENT: &str = "openenv";
/// Keys of a question.
const QUESTIONS: [&str; 5] = ["question", "problem", "prompt", "text", "premise"];

/// Options of the environment that say where its server is.
#[derive(Deserialize)]
#[serde(default)]
struct Server {
    url: String,
    key_env: String,
    timeout_s: f64,
}

impl Default for Server {
    fn default() -> Self {
        let url = DEFAULT_URL.to_owned();
        Self { url, key_env: String::new(), timeout_s: DEFAULT_TIMEOUT_S }
    }
}

/// Reads the tasks of a split of the server. Blocks the thread.
pub(super) fn tasks(config: &TaskConfig) -> Result<Vec<Row>, DataError> {
    read(config).map_err(|message| DataError::Served { place: config.data.clone(), message })
}

fn read(config: &TaskConfig) -> Result<Vec<Row>, String> {
    let split = config.data.strip_prefix(SERVED).unwrap_or_default();
    if split.is_empty() {
        return Err("the split is missing; write one of the server, as `openenv:train`".to_owned());
    }
    if config.environment.name.as_deref() != Some(ENVIRONMENT) {
        let message = "these are tasks of the server of `environment.name = \"openenv\"`; choose it, or name other data";
        return Err(message.to_owned());
    }
    let options = Value::Object(config.environment.options.clone());
    let server: Server = serde_json::from_value(options).map_err(|error| error.to_string())?;
    let (http, _) = addresses(&server.url).map_err(|what| format!("`environment.url` {what}"))?;
    let key = key(&server.key_env)?;
    let timeout = Duration::try_from_secs_f64(server.timeout_s).map_err(|e| e.to_string())?;
    let client = |path: &str| Client::new(format!("{http}/{path}"), key.clone(), timeout, 0, 1);
    let names: Vec<String> = parsed("list_environments", &client("list_environments").get()?)?;
    let Some(name) = names.into_iter().next() else {
        return Err(format!("the server at {http} lists no environment"));
    };
    let path = format!("{name}/tasks");
    let answer = client(&path).ask(&json!({ "split": split }))?;
    let texts = jsonl::texts(&config.keys).into_iter();
    let texts: Vec<KeyPath> = texts.map(|path| [vec!["tasks".to_owned()], path].concat()).collect();
    let answer = with_numbers_as_written(answer.as_bytes(), &texts);
    let answer = distinct(&answer).map_err(|error| format!("the answer of `/{path}`: {error}"));
    let mut answer: Value = answer?;
    let Value::Array(tasks) = answer["tasks"].take() else {
        return Err(format!("`/{path}` of the server at {http} answered without a list `tasks`"));
    };
    let row = |(line, task): (usize, Value)| {
        jsonl::keyed(object(task, line - 1), line, (&name, config))
            .map_err(|message| format!("task {line} of the server: {message}"))
    };
    (1..).zip(tasks).map(row).collect()
}

fn parsed<T: serde::de::DeserializeOwned>(path: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("the answer of `/{path}`: {error}"))
}

/// Returns a task as a row. A task that is no object is its value `task`. One without a question, as of a game, has that of
/// `builtin:resets`.
fn object(task: Value, index: usize) -> Map<String, Value> {
    let mut row = match task {
        Value::Object(row) => row,
        other => Map::from_iter([("task".to_owned(), other)]),
    };
    let asks = |key: &String| QUESTIONS.iter().any(|name| key.eq_ignore_ascii_case(name));
    if !row.keys().any(asks) {
        row.insert("question".to_owned(), QUESTION.into());
    }
    row.entry("index").or_insert_with(|| index.into());
    row
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::client::testing::{response, serve};
    use crate::config::Named;

    fn config(data: &str, name: &str, url: &str) -> TaskConfig {
        let options = Map::from_iter([("url".to_owned(), url.into())]);
        let environment = Named { name: Some(name.to_owned()), options };
        TaskConfig { data: data.to_owned(), environment, ..TaskConfig::default() }
    }

    #[test]
    fn tasks_of_a_server_are_rows_and_games_have_a_question() {
        let (url, log) = serve(|_, request| match request.route() {
            "/list_environments" => response(200, "[\"games\"]"),
            _ => response(
                200,
                r#"{"tasks": [{"id": "a", "question": "Who?", "level": 2}, {"board": 3}, 7], "env_name": "games"}"#,
            ),
        });
        let config = config("openenv:train", "openenv", &url);
        let tasks = super::super::load(&config, super::super::split::ALL, Path::new("")).unwrap();
        let read: Vec<_> = tasks
            .iter()
            .map(|task| (task.id.as_str(), task.source.as_str(), task.question.as_str()))
            .collect();
        assert_eq!(
            read,
            [("a", "games", "Who?"), ("2", "games", QUESTION), ("3", "games", QUESTION)]
        );
        assert_eq!(tasks[0].level(), Some(2));
        assert_eq!((&tasks[1].data["board"], &tasks[1].data["index"]), (&json!(3), &json!(1)));
        assert_eq!(tasks[2].data["task"], 7);
        let asked = log.lock().unwrap();
        assert_eq!(asked[1].route(), "/games/tasks");
        assert_eq!(asked[1].body, json!({"split": "train"}));
    }

    #[test]
    fn a_server_without_tasks_is_an_error_that_names_the_data() {
        let told = |config: &TaskConfig| tasks(config).err().unwrap().to_string();
        let (url, _) = serve(|_, _| response(404, "{\"detail\": \"no tasks\"}"));
        let missing = told(&config("openenv:train", "openenv", &url));
        assert!(missing.starts_with("`openenv:train`: "), "{missing}");
        assert!(
            missing.contains("/list_environments") && missing.contains("no tasks"),
            "{missing}"
        );
        let (url, _) = serve(|_, _| response(200, "[]"));
        assert!(told(&config("openenv:train", "openenv", &url)).contains("no environment"));
        assert!(told(&config("openenv:", "openenv", &url)).contains("the split is missing"));
        assert!(told(&config("openenv:train", "math", &url)).contains("environment.name"));
        assert!(told(&config("openenv:train", "openenv", "x")).contains("`environment.url` is"));
    }
}
