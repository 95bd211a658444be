//! A session: episodes one after another, each of which begins with a reset.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::frames::{Failed, FrameErrorCode, observation, tools};
use crate::body::bound_values;
use crate::environments::episode::EnvironmentEpisode;
use crate::environments::server::{EnvironmentServer, ServedEnvironment};
use maverl::task::{Action, Task};

/// A session of a client.
pub(super) struct OpenEnvSession {
    server: Arc<EnvironmentServer>,
    served: Arc<ServedEnvironment>,
    begun: Option<BegunEpisode>,
}

/// An episode that was begun.
struct BegunEpisode {
    id: Option<String>,
    steps: u64,
    done: bool,
    episode: EnvironmentEpisode,
}

/// Arguments of a reset.
#[derive(Debug, Default)]
struct Reset {
    seed: Option<u64>,
    id: Option<String>,
    task: Option<String>,
    index: Option<u64>,
    split: String,
}

/// An action of a step.
enum StepData {
    ListTools,
    Act(Action),
    /// A message, and true if it is the answer.
    Message(String, bool),
}

impl OpenEnvSession {
    pub(super) fn new(server: Arc<EnvironmentServer>, served: Arc<ServedEnvironment>) -> Self {
        Self { server, served, begun: None }
    }

    /// Answers a message; `None` if it closes the session.
    pub(super) async fn answer(&mut self, text: &str) -> Option<Value> {
        let message = match bound_values(text.as_bytes()) {
            Err(refusal) => Err(refusal.message),
            Ok(()) => serde_json::from_str::<Value>(text).map_err(|error| error.to_string()),
        };
        let answer = match message {
            Err(what) => {
                Err(Failed::new(FrameErrorCode::InvalidJson, format!("Invalid JSON: {what}")))
            }
            Ok(message) => {
                let data = message.get("data").cloned().unwrap_or_else(|| json!({}));
                match message["type"].as_str().unwrap_or_default() {
                    "close" => return None,
                    _ if !data.is_object() => {
                        Err(Failed::field("data", "Input should be a valid dictionary"))
                    }
                    "reset" => self.reset(&data).await,
                    "step" => self.step(data).await,
                    "state" => Ok(self.state()),
                    "mcp" => Ok(json!({"type": "mcp", "data": self.rpc(&data).await})),
                    other => {
                        let shown: String = other.chars().take(80).collect();
                        let message = format!("Unknown message type: {shown}");
                        Err(Failed::new(FrameErrorCode::UnknownType, message))
                    }
                }
            }
        };
        let code = answer.as_ref().err().map_or("", |failed| failed.code.name());
        self.server.count(code);
        Some(answer.unwrap_or_else(|failed| failed.frame()))
    }

    /// Closes the session of the environment.
    pub(super) async fn close(&mut self) {
        if let Some(BegunEpisode { episode, .. }) = self.begun.take() {
            // A client that closes a session gets no answer; the log has the failure.
            let _ = episode.close().await;
        }
    }

    async fn reset(&mut self, data: &Value) -> Result<Value, Failed> {
        let reset = Reset::read(data)?;
        self.close().await;
        let number = self.server.next_episode();
        let task = self.task(&reset, number)?;
        let seed = reset.seed.unwrap_or(number);
        let environment = Arc::clone(&self.served.environment);
        let (episode, question) = EnvironmentEpisode::open(environment, task, seed).await?;
        let fields = json!({"text": question, "tools": tools(&episode.tools(), "input_schema")});
        let mut metadata = Map::new();
        metadata.insert("task_id".to_owned(), episode.task().id.clone().into());
        self.begun = Some(BegunEpisode { id: reset.id, steps: 0, done: false, episode });
        Ok(observation(fields, None, false, metadata))
    }

    /// Returns the task of an episode: the one that the reset names, else that of its seed, else the next.
    fn task(&self, reset: &Reset, number: u64) -> Result<Task, Failed> {
        let tasks = &self.served.tasks;
        if let Some(id) = &reset.task {
            let shown: String = id.chars().take(80).collect();
            let task = tasks.find(id).cloned();
            return task.ok_or_else(|| {
                Failed::new(FrameErrorCode::Execution, format!("there is no task {shown:?}"))
            });
        }
        let split = tasks
            .split(&reset.split)
            .map_err(|what| Failed::new(FrameErrorCode::Execution, what))?;
        let count = split.len() as u64;
        match reset.index {
            Some(index) if index >= count => {
                let message = format!("there is no task {index}; the split has {count}");
                Err(Failed::new(FrameErrorCode::Execution, message))
            }
            index => {
                let place = index.or(reset.seed).unwrap_or(number) % count;
                Ok(split[place as usize].clone())
            }
        }
    }

    async fn step(&mut self, data: Value) -> Result<Value, Failed> {
        let step = StepData::read(data)?;
        if matches!(step, StepData::ListTools) {
            return Ok(observation(json!({"tools": self.tools()}), None, false, Map::new()));
        }
        let begun = self.begun.as_mut().filter(|begun| !begun.done);
        let over = "there is no open episode; send a reset first";
        let begun = begun.ok_or_else(|| Failed::new(FrameErrorCode::Execution, over))?;
        begun.steps += 1;
        match step {
            StepData::Act(Action::Tool { name, arguments }) => {
                let action = Action::Tool { name: name.clone(), arguments };
                let seen = begun.episode.act(action).await?;
                let fields = json!({"tool_name": name, "result": seen.text, "error": null});
                begun.observation_frame(fields, seen.done, None).await
            }
            StepData::Message(message, last) => {
                let answer = answer(&message, last || !self.served.acts);
                if answer.is_some() {
                    return begun.observation_frame(json!({"text": ""}), true, answer).await;
                }
                let seen = begun.episode.act(Action::Text(message.clone())).await?;
                begun.observation_frame(json!({"text": seen.text}), seen.done, Some(message)).await
            }
            StepData::Act(Action::Text(_)) | StepData::ListTools => {
                unreachable!("a text is a message, and the tools are listed above")
            }
        }
    }

    /// Lists the tools of the episode, or before one those of the first task.
    fn tools(&self) -> Vec<Value> {
        self.declared_tools("input_schema")
    }

    fn declared_tools(&self, schema: &str) -> Vec<Value> {
        let own = self.begun.as_ref().map(|begun| begun.episode.task());
        let task = own.or_else(|| self.served.tasks.split("").ok()?.first());
        task.map(|task| tools(&self.served.environment.tools(task), schema)).unwrap_or_default()
    }

    fn state(&self) -> Value {
        let begun = self.begun.as_ref();
        let data = json!({
            "episode_id": begun.and_then(|begun| begun.id.clone()),
            "step_count": begun.map_or(0, |begun| begun.steps),
            "task_id": begun.map(|begun| begun.episode.task().id.clone()),
        });
        json!({"type": "state", "data": data})
    }

    /// Answers a request of the Model Context Protocol.
    async fn rpc(&mut self, request: &Value) -> Value {
        let params = &request["params"];
        let result = match request["method"].as_str() {
            Some("tools/list") => Ok(json!({"tools": self.declared_tools("inputSchema")})),
            Some("tools/call") => {
                let data = json!({"type": "call_tool", "tool_name": params["name"], "arguments": params["arguments"]});
                let stepped = self.step(data).await.map(|frame| {
                    let text = &frame["data"]["observation"]["result"];
                    json!({"content": [{"type": "text", "text": text}], "isError": false})
                });
                stepped.map_err(|failed| json!({"code": -32000, "message": failed.message}))
            }
            Some(other) => {
                Err(json!({"code": -32601, "message": format!("Method not found: {other}")}))
            }
            None => Err(json!({"code": -32600, "message": "Invalid Request"})),
        };
        let (name, value) = match result {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        let mut answer = json!({"jsonrpc": "2.0", "id": request["id"]});
        answer[name] = value;
        answer
    }
}

impl BegunEpisode {
    /// Returns the frame of an observation. The last one has the score of the answer.
    async fn observation_frame(
        &mut self,
        fields: Value,
        done: bool,
        answer: Option<String>,
    ) -> Result<Value, Failed> {
        if !done {
            return Ok(observation(fields, None, false, Map::new()));
        }
        let score = self.episode.score(answer).await?;
        self.done = true;
        let mut metadata = score.metrics;
        metadata.insert("solved".to_owned(), score.solved.into());
        Ok(observation(fields, Some(score.reward), true, metadata))
    }
}

impl Reset {
    /// Names of the arguments.
    const KEYS: [&str; 5] = ["seed", "episode_id", "task_id", "index", "split"];

    fn read(data: &Value) -> Result<Self, Failed> {
        let mut keys = data.as_object().into_iter().flat_map(Map::keys);
        if let Some(other) = keys.find(|key| !Self::KEYS.contains(&key.as_str())) {
            let known = Self::KEYS.join("`, `");
            let shown: String = other.chars().take(80).collect();
            let problem = format!("a reset has no argument {shown:?}; its arguments are `{known}`");
            return Err(Failed { message: problem.clone(), ..Failed::field(other, &problem) });
        }
        let split = text_of(data, "split")?.unwrap_or_default();
        let (seed, index) = (number_of(data, "seed")?, number_of(data, "index")?);
        let (id, task) = (text_of(data, "episode_id")?, text_of(data, "task_id")?);
        Ok(Self { seed, id, task, index, split })
    }
}

fn number_of(data: &Value, name: &str) -> Result<Option<u64>, Failed> {
    match &data[name] {
        Value::Null => Ok(None),
        value => value.as_u64().map(Some).ok_or_else(|| {
            Failed::field(name, "Input should be an integer greater than or equal to 0")
        }),
    }
}

fn text_of(data: &Value, name: &str) -> Result<Option<String>, Failed> {
    match &data[name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(Failed::field(name, "Input should be a valid string")),
    }
}

impl StepData {
    fn read(data: Value) -> Result<Self, Failed> {
        let Value::Object(mut fields) = data else {
            return Err(Failed::field("data", "Input should be a valid dictionary"));
        };
        fields.remove("metadata");
        let kind = fields.remove("type");
        let step = match kind.as_ref().and_then(Value::as_str) {
            Some("list_tools") => Self::ListTools,
            Some("call_tool") => {
                let name = match fields.remove("tool_name") {
                    Some(Value::String(name)) => name,
                    _ => return Err(Failed::field("tool_name", "Field required")),
                };
                let arguments = match fields.remove("arguments") {
                    None | Some(Value::Null) => json!({}),
                    Some(arguments @ Value::Object(_)) => arguments,
                    Some(_) => {
                        return Err(Failed::field(
                            "arguments",
                            "Input should be a valid dictionary",
                        ));
                    }
                };
                Self::Act(Action::Tool { name, arguments })
            }
            Some(_) => {
                return Err(Failed::field("type", "Input should be 'list_tools' or 'call_tool'"));
            }
            None => {
                let message = match fields.remove("message") {
                    Some(Value::String(message)) => message,
                    Some(_) => {
                        return Err(Failed::field("message", "Input should be a valid string"));
                    }
                    None => return Err(Failed::field("message", "Field required")),
                };
                let last = match fields.remove("final") {
                    None | Some(Value::Null) => false,
                    Some(Value::Bool(last)) => last,
                    Some(_) => {
                        return Err(Failed::field("final", "Input should be a valid boolean"));
                    }
                };
                Self::Message(message, last)
            }
        };
        match fields.keys().next() {
            Some(name) => Err(Failed::field(name, "Extra inputs are not permitted")),
            None => Ok(step),
        }
    }
}

/// Returns the answer in a message: what stands between its tags, or all of it if it is the last.
fn answer(message: &str, last: bool) -> Option<String> {
    let tagged = message.split_once("<answer>").and_then(|(_, rest)| rest.split_once("</answer>"));
    match tagged {
        Some((inner, _)) => Some(inner.trim().to_owned()),
        None => last.then(|| message.trim().to_owned()),
    }
}
