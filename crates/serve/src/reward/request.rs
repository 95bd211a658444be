//! Requests of the four protocols, as items to score.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::body::bound_values;
use crate::refusal::Refusal;
use maverl::agent::tag;
use maverl::data::{KeyPath, with_numbers_as_written};
use maverl::rollout::rewards::{ItemTask, ScoredItem, VerifierInput, protocol};
use maverl::trajectory::{Message, Role};

/// A path, and the protocol that is spoken there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RewardRoute {
    /// maverl.
    Score,
    /// MAPoRL.
    Predict,
    /// OpenRLHF.
    GetReward,
    /// slime.
    Rm,
}

/// Maximum number of items of a request.
const MOST_ITEMS: usize = 256;

/// A request of maverl.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScoreRequest {
    /// See [`protocol::VERSION`].
    protocol: u64,
    /// Replies to score.
    items: Vec<ScoredItem>,
}

/// Items of a request, with their ids.
pub(super) struct RequestedItems {
    pub(super) ids: Vec<String>,
    pub(super) items: Vec<Graded>,
}

/// A reply to score: as a verifier reads it, and as a judge does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Graded {
    pub(super) input: VerifierInput,
    /// The task, with its data.
    pub(super) task: ItemTask,
    pub(super) data: Map<String, Value>,
    /// The answer to judge.
    pub(super) answer: Option<String>,
}

/// A request of MAPoRL.
#[derive(Deserialize)]
struct Predict {
    query_responses: Vec<Vec<Message>>,
}

/// A request of OpenRLHF. Older versions send `query` alone.
#[derive(Deserialize)]
struct GetReward {
    query: Vec<String>,
    #[serde(default)]
    prompts: Vec<String>,
    #[serde(default)]
    labels: Vec<Value>,
}

/// A request of slime.
#[derive(Deserialize)]
struct Rm {
    prompt: Value,
    response: String,
    #[serde(default)]
    label: Value,
}

impl RewardRoute {
    pub(super) const ALL: [Self; 4] = [Self::Score, Self::Predict, Self::GetReward, Self::Rm];

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Score => "/v1/score",
            Self::Predict => "/predict",
            Self::GetReward => "/get_reward",
            Self::Rm => "/rm",
        }
    }

    /// Returns the place of references in a request. A number there is kept as it is written.
    fn references(self) -> Option<KeyPath> {
        let path: &[&str] = match self {
            Self::Score => &["items", "data", "answers"],
            Self::Predict => return None,
            Self::GetReward => &["labels"],
            Self::Rm => &["label"],
        };
        Some(path.iter().map(|key| (*key).to_owned()).collect())
    }

    /// Reads a request.
    pub(super) fn read(self, bytes: &[u8]) -> Result<RequestedItems, Refusal> {
        let items = match self {
            Self::Score => return read_request(bytes),
            Self::Predict => {
                let Predict { query_responses } = parse_body(self, bytes)?;
                let items = query_responses.into_iter().enumerate().map(|(i, messages)| {
                    conversation(messages, Map::new())
                        .ok_or_else(|| empty(format!("query_responses[{i}]")))
                });
                items.collect::<Result<_, _>>()?
            }
            Self::GetReward => {
                let request: GetReward = parse_body(self, bytes)?;
                request.items()?
            }
            Self::Rm => {
                let Rm { prompt, response, label } = parse_body(self, bytes)?;
                let mut messages = prompt_messages(prompt)?;
                messages.push(Message { role: Role::Assistant, content: response });
                conversation(messages, labeled_task(&label)).into_iter().collect()
            }
        };
        check_items(&items)?;
        Ok(RequestedItems { ids: Vec::new(), items })
    }
}

impl GetReward {
    fn items(self) -> Result<Vec<Graded>, Refusal> {
        let Self { query, prompts, labels } = self;
        for (name, n) in [("prompts", prompts.len()), ("labels", labels.len())] {
            if n != 0 && n != query.len() {
                let message = format!("`{name}` has {n} entries, `query` {}", query.len());
                return Err(Refusal::invalid(name, message));
            }
        }
        let items = query.into_iter().enumerate().map(|(i, text)| {
            let data = labels.get(i).map(labeled_task).unwrap_or_default();
            prompted_item(prompts.get(i).map_or("", String::as_str), text, data)
        });
        Ok(items.collect())
    }
}

/// Returns the item of a text that begins with a prompt; the rest is the reply.
fn prompted_item(prompt: &str, text: String, data: Map<String, Value>) -> Graded {
    let answer = Some(answer(text.strip_prefix(prompt).unwrap_or(&text)));
    let task = ItemTask { question: prompt.to_owned(), ..ItemTask::default() };
    Graded { input: VerifierInput::Text(text), task, data, answer }
}

/// Reads a request of maverl.
fn read_request(bytes: &[u8]) -> Result<RequestedItems, Refusal> {
    let ScoreRequest { protocol, items } = parse_body(RewardRoute::Score, bytes)?;
    if protocol != protocol::VERSION {
        let message = format!("`protocol` is {protocol}; {} is spoken here", protocol::VERSION);
        return Err(Refusal::invalid("protocol", message));
    }
    let ids: Vec<String> = items.iter().map(|item| item.id.clone()).collect();
    let mut sorted: Vec<&String> = ids.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let id: String = twice[0].chars().take(80).collect();
        let message = format!("two items have the id {id:?}; ids tell the answers apart");
        return Err(Refusal::invalid("items", message));
    }
    let items = items
        .into_iter()
        .enumerate()
        .map(|(i, item)| graded_item(&item).ok_or_else(|| empty(format!("items[{i}].completion"))));
    let items: Vec<Graded> = items.collect::<Result<_, Refusal>>()?;
    check_items(&items)?;
    Ok(RequestedItems { ids, items })
}

/// Returns an item of maverl's protocol; nothing if it has no reply.
fn graded_item(item: &ScoredItem) -> Option<Graded> {
    let (task, answer) = (item.task.clone().unwrap_or_default(), item.answer.clone());
    let data = item.data.clone();
    let read = conversation(item.conversation(), data)?;
    Some(Graded { task, answer: answer.or(read.answer), ..read })
}

/// Returns the item of a conversation whose last message is the reply; nothing if it has no messages.
fn conversation(messages: Vec<Message>, data: Map<String, Value>) -> Option<Graded> {
    let answer = Some(answer(&messages.last()?.content));
    let asked = messages.iter().rev().find(|message| message.role == Role::User);
    let question = asked.map(|message| message.content.clone()).unwrap_or_default();
    let task = ItemTask { question, ..ItemTask::default() };
    Some(Graded { input: VerifierInput::Conversation(messages), task, data, answer })
}

/// Returns the answer of a reply: the text between its only `<answer>` and `</answer>`, or else the whole.
fn answer(reply: &str) -> String {
    tag(reply, "answer").unwrap_or(reply).to_owned()
}

/// Returns the data of a task with a reference.
fn labeled_task(label: &Value) -> Map<String, Value> {
    let answers = match label {
        Value::Null => return Map::new(),
        Value::String(text) => json!([text]),
        Value::Array(_) => label.clone(),
        other => json!([other.to_string()]),
    };
    Map::from_iter([("answers".to_owned(), answers)])
}

/// Returns the messages of a prompt: a text of the user, or messages.
fn prompt_messages(prompt: Value) -> Result<Vec<Message>, Refusal> {
    match prompt {
        Value::String(content) => Ok(vec![Message { role: Role::User, content }]),
        messages => serde_json::from_value(messages).map_err(|error| {
            let message = format!("`prompt` is neither a text nor a list of messages: {error}");
            Refusal::invalid("prompt", message)
        }),
    }
}

fn parse_body<T: DeserializeOwned>(route: RewardRoute, bytes: &[u8]) -> Result<T, Refusal> {
    bound_values(bytes)?;
    let references: Vec<KeyPath> = route.references().into_iter().collect();
    let bytes = with_numbers_as_written(bytes, &references);
    serde_json::from_slice(&bytes).map_err(|error| {
        Refusal::malformed(format!("the body is no request of `{}`: {error}", route.path()))
    })
}

fn empty(param: String) -> Refusal {
    let message = format!("`{param}` is missing: there is no reply to score");
    Refusal::invalid(param, message)
}

fn check_items(items: &[Graded]) -> Result<(), Refusal> {
    let n = items.len();
    match n {
        0 => Err(Refusal::malformed("the request has no items")),
        n if n > MOST_ITEMS => {
            Err(Refusal::malformed(format!("the request has {n} items; {MOST_ITEMS} are allowed")))
        }
        _ => Ok(()),
    }
}
