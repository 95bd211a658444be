//! Tasks that the server of an environment has.

use serde_json::{Map, Value};

use super::error::DataError;
use super::jsonl;
use super::row::Row;
use crate::builtin::resets::QUESTION;
use crate::config::{ServedTasks, TaskConfig, TaskServer};

/// Keys of a question.
const QUESTIONS: [&str; 5] = ["question", "problem", "prompt", "text", "premise"];

/// Reads the tasks of a split of the server. Blocks the thread.
pub(super) fn tasks(
    config: &TaskConfig,
    server: &TaskServer,
    split: &str,
) -> Result<Vec<Row>, DataError> {
    read(config, server, split)
        .map_err(|message| DataError::Served { place: config.data.clone(), message })
}

fn read(config: &TaskConfig, server: &TaskServer, split: &str) -> Result<Vec<Row>, String> {
    let environment = server.environment;
    if split.is_empty() {
        let message =
            format!("the split is missing; write one of the server, as `{environment}:train`");
        return Err(message);
    }
    let chosen = &config.environment;
    if chosen.name.as_deref() != Some(environment) {
        return Err(format!(
            "these are tasks of the server of `environment.name = {environment:?}`; choose it, or name other data"
        ));
    }
    let ServedTasks { source, tasks } =
        (server.fetch)(&chosen.options, split, &jsonl::texts(&config.keys))?;
    let rows = (1..).zip(tasks).map(|(line, task)| {
        jsonl::keyed(object(task, line - 1), line, (&source, config))
            .map_err(|message| format!("task {line} of the server: {message}"))
    });
    rows.collect()
}

/// Returns a task as a row. A task that is no object is its value `task`. One without a question, as of a game, has that of
/// `builtin:resets`.
fn object(task: Value, index: usize) -> Map<String, Value> {
    let mut row = match task {
        Value::Object(row) => row,
        other => Map::from_iter([("task".to_owned(), other)]),
    };
    if !row.keys().any(|key| QUESTIONS.iter().any(|name| key.eq_ignore_ascii_case(name))) {
        row.insert("question".to_owned(), QUESTION.into());
    }
    row.entry("index").or_insert_with(|| index.into());
    row
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use serde_json::json;

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
        let told = |config: &TaskConfig| {
            let (server, split) = TaskServer::of_data(&config.data).unwrap();
            tasks(config, server, split).err().unwrap().to_string()
        };
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
