//! JSON messages between clients and servers of rewards: those of maverl, MAPoRL, OpenRLHF and slime.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client::start;
use crate::config::RewardProtocol;
use crate::trajectory::Message;

/// Version of maverl's messages.
pub const VERSION: u64 = 1;

/// A reply to score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoredItem {
    /// Id, unique in its request.
    #[serde(default)]
    pub id: String,
    /// Task of the episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ItemTask>,
    /// Data of the task, as far as it was sent.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
    /// Messages before the reply; with no `completion`, the last one is the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// The reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// The answer of the episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Seat that replied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
    /// Index of the turn in the episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<usize>,
}

/// Task of an [`ScoredItem`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ItemTask {
    /// Id.
    pub id: String,
    /// Data set.
    pub source: String,
    /// Question.
    pub question: String,
}

/// Answer of maverl's protocol.
#[derive(Debug, Deserialize)]
struct RewardAnswer {
    items: Vec<AnsweredItem>,
}

/// Reward of an item, or the reason for none. Unknown keys are later additions.
#[derive(Debug, Deserialize)]
struct AnsweredItem {
    id: String,
    #[serde(default)]
    reward: Option<f64>,
    #[serde(default)]
    error: Option<Value>,
}

/// Result of each item, in their order.
pub(crate) type Results = Vec<Result<f64, String>>;

/// Returns the number of items of a request.
pub(super) fn batch(protocol: RewardProtocol, most: usize) -> usize {
    match protocol {
        RewardProtocol::Rm => 1,
        _ => most,
    }
}

/// Returns the body of a request for items. Their ids become their places.
pub(super) fn body(protocol: RewardProtocol, items: &mut [ScoredItem]) -> Value {
    items.iter_mut().enumerate().for_each(|(i, item)| item.id = i.to_string());
    match protocol {
        RewardProtocol::Score => json!({"protocol": VERSION, "items": items}),
        RewardProtocol::Predict => {
            json!({"query_responses": items.iter().map(ScoredItem::conversation).collect::<Vec<_>>()})
        }
        RewardProtocol::GetReward => {
            json!({"query": items.iter().map(ScoredItem::text).collect::<Vec<_>>()})
        }
        RewardProtocol::Rm => {
            let item = items.first();
            let texts = item.map(|item| (item.prompt(), item.reply()));
            let (prompt, response) = texts.unwrap_or_default();
            let label = item.and_then(|item| item.data.values().next());
            json!({"prompt": prompt, "response": response, "label": label})
        }
    }
}

impl ScoredItem {
    /// Returns the messages with the reply as the last one.
    pub fn conversation(&self) -> Vec<Message> {
        let reply = self.completion.iter();
        let reply = reply.map(|content| Message {
            role: crate::trajectory::Role::Assistant,
            content: content.clone(),
        });
        self.messages.iter().cloned().chain(reply).collect()
    }

    /// Returns the texts of the messages before the reply, with a blank line between them.
    fn prompt(&self) -> String {
        let texts: Vec<&str> = self.messages.iter().map(|message| &*message.content).collect();
        texts.join("\n\n")
    }

    fn reply(&self) -> String {
        self.completion.clone().unwrap_or_default()
    }

    /// Returns the texts of the messages and the reply, with a blank line between them.
    fn text(&self) -> String {
        format!("{}\n\n{}", self.prompt(), self.reply())
    }
}

/// Reads the answer to a request for `n` items.
///
/// # Errors
///
/// If it is not an answer to that request. A failed item is the error of that item.
pub(super) fn results(protocol: RewardProtocol, text: &str, n: usize) -> Result<Results, String> {
    match protocol {
        RewardProtocol::Score => {
            by_id(parse(text, "{\"items\": [{\"id\": .., \"reward\": ..}]}")?, n)
        }
        RewardProtocol::Predict => list(text, n, "result"),
        RewardProtocol::GetReward => list(text, n, "rewards"),
        RewardProtocol::Rm => {
            let wanted = "a number, or {\"reward\": ..}";
            let value: Value = parse(text, wanted)?;
            let number = value.as_f64().or_else(|| value["reward"].as_f64());
            let number = number.or_else(|| value["score"].as_f64());
            let number = number.ok_or_else(|| unreadable(text, wanted, "there is no number"));
            Ok(vec![Ok(number?)])
        }
    }
}

/// Reads an answer of the form `wanted`.
fn parse<T: DeserializeOwned>(text: &str, wanted: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| unreadable(text, wanted, error))
}

fn unreadable(text: &str, wanted: &str, error: impl Display) -> String {
    format!("answered {}, not `{wanted}`: {error}", start(text))
}

/// Reads the rewards of `n` items from a list with a key.
fn list(text: &str, n: usize, key: &str) -> Result<Results, String> {
    let wanted = format!("{{\"{key}\": [..]}}");
    let value: Value = parse(text, &wanted)?;
    let found: Vec<f64> = serde_json::from_value(value[key].clone())
        .map_err(|error| unreadable(text, &wanted, error))?;
    if found.len() == n {
        Ok(found.into_iter().map(Ok).collect())
    } else {
        Err(format!("answered {} rewards to {n} items", found.len()))
    }
}

/// Sorts the items of an answer by their ids, which are their places.
fn by_id(answered: RewardAnswer, n: usize) -> Result<Results, String> {
    let mut results: Vec<Option<Result<f64, String>>> = (0..n).map(|_| None).collect();
    for AnsweredItem { id, reward, error } in answered.items {
        let place: Option<usize> = id.parse().ok().filter(|place| *place < n);
        let Some(place) = place.filter(|place| place.to_string() == id) else {
            return Err(format!("answered an item {}, which was not sent", start(&id)));
        };
        let result = match (reward, error) {
            (Some(reward), None) => Ok(reward),
            (_, Some(error)) => Err(format!("item {id}: {}", start(&reason(&error)))),
            (None, None) => Err(format!("item {id} has neither a `reward` nor an `error`")),
        };
        if results[place].replace(result).is_some() {
            return Err(format!("answered item {id} twice"));
        }
    }
    let results = results.into_iter().enumerate();
    Ok(results
        .map(|(i, result)| result.unwrap_or_else(|| Err(format!("item {i} was not answered"))))
        .collect())
}

/// Returns the text of an error: its `message`, or all of it.
fn reason(error: &Value) -> String {
    let text = error["message"].as_str().or_else(|| error.as_str());
    text.map_or_else(|| error.to_string(), str::to_owned)
}
