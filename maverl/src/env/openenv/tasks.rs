//! Tasks of a server, by OpenEnv's Task API: `data = "openenv:SPLIT"`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::{Client, DEFAULT_TIMEOUT_S, DEFAULT_URL, addresses, key};
use crate::data::{KeyPath, ServedTasks, TaskServer, distinct, with_numbers_as_written};

inventory::submit!(TaskServer { environment: "openenv", fetch: fetch_tasks });

/// Options of the environment that say where its server is.
#[derive(Deserialize)]
#[serde(default)]
struct ServerOptions {
    url: String,
    key_env: String,
    timeout_s: f64,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let url = DEFAULT_URL.to_owned();
        Self { url, key_env: String::new(), timeout_s: DEFAULT_TIMEOUT_S }
    }
}

/// Requests the tasks of a split of the first environment of the server.
fn fetch_tasks(
    options: &Map<String, Value>,
    split: &str,
    texts: &[KeyPath],
) -> Result<ServedTasks, String> {
    let options = Value::Object(options.clone());
    let server: ServerOptions =
        serde_json::from_value(options).map_err(|error| error.to_string())?;
    let (http, _) = addresses(&server.url).map_err(|what| format!("`environment.url` {what}"))?;
    let key = key(&server.key_env)?;
    let timeout = Duration::try_from_secs_f64(server.timeout_s).map_err(|e| e.to_string())?;
    let url = format!("{http}/list_environments");
    let names = Client::new(url, key.clone(), timeout, 0, 1).get()?;
    let names: Vec<String> = serde_json::from_str(&names)
        .map_err(|error| format!("the answer of `/list_environments`: {error}"))?;
    let Some(source) = names.into_iter().next() else {
        return Err(format!("the server at {http} lists no environment"));
    };
    let path = format!("{source}/tasks");
    let client = Client::new(format!("{http}/{path}"), key, timeout, 0, 1);
    let answer = client.ask(&json!({ "split": split }))?;
    let texts: Vec<KeyPath> =
        texts.iter().map(|path| [&["tasks".to_owned()], path.as_slice()].concat()).collect();
    let answer = with_numbers_as_written(answer.as_bytes(), &texts);
    let mut answer: Value =
        distinct(&answer).map_err(|error| format!("the answer of `/{path}`: {error}"))?;
    match answer["tasks"].take() {
        Value::Array(tasks) => Ok(ServedTasks { source, tasks }),
        _ => Err(format!("`/{path}` of the server at {http} answered without a list `tasks`")),
    }
}
