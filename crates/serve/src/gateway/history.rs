//! Conversations of an episode. A request whose messages extend one continues it with the exact token ids.
//!
//! Clients write a reply back in their own way: arguments of calls as another JSON text, other ids of calls, null for an
//! empty content, without the thoughts. Messages are therefore compared in a canonical form, and the conversation that is
//! continued has the reply as it was sampled.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use maverl::orchestra::Conversation;
use maverl::text::ChatMessage;

/// Digest of a conversation up to a message.
pub(super) type Hash = [u8; 32];

/// Conversations of an episode, by seat and digest.
#[derive(Default)]
pub(super) struct EpisodeHistory {
    nodes: BTreeMap<(usize, Hash), HistoryNode>,
    /// Canonical replies of each seat.
    replies: BTreeSet<(usize, Hash)>,
    /// Numbers of the calls that have one digest.
    numbers: BTreeMap<(usize, Hash), BTreeSet<u32>>,
}

/// A conversation that ends with a reply.
struct HistoryNode {
    /// Number of the call among those with the same digest.
    number: u32,
    conversation: Conversation,
}

/// Continuation of a conversation by a request.
#[derive(Debug, Default)]
pub(super) struct Continued {
    pub(super) conversation: Conversation,
    /// Number of messages of the request that the conversation has.
    pub(super) known: usize,
    /// The request has a reply of this seat.
    pub(super) carries: bool,
}

impl EpisodeHistory {
    /// Returns the conversation that a request of a seat continues: that with the most of its messages. An empty one if
    /// there is none.
    pub(super) fn find(&self, seat: usize, messages: &[ChatMessage], hashes: &[Hash]) -> Continued {
        let carries = messages.iter().any(|message| {
            message.role() == "assistant" && self.replies.contains(&(seat, digest(message)))
        });
        for known in (1..hashes.len()).rev() {
            if let Some(node) = self.nodes.get(&(seat, hashes[known])) {
                return Continued { conversation: node.conversation.clone(), known, carries };
            }
        }
        Continued { carries, ..Continued::default() }
    }

    /// Returns the lowest number that no other call with this digest has.
    pub(super) fn number(&mut self, seat: usize, call: Hash) -> u32 {
        let taken = self.numbers.entry((seat, call)).or_default();
        let free = (0..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
        taken.insert(free);
        free
    }

    /// Returns a number, because its call was not completed.
    pub(super) fn forget(&mut self, seat: usize, call: Hash, number: u32) {
        if let Some(taken) = self.numbers.get_mut(&(seat, call)) {
            taken.remove(&number);
        }
    }

    /// Adds the conversation after a reply, as the client was told it. Among equal replies to equal calls, that of the
    /// lowest number is kept, whichever came first.
    pub(super) fn insert(
        &mut self,
        seat: usize,
        (call, number): (Hash, u32),
        told: &ChatMessage,
        conversation: Conversation,
    ) {
        self.replies.insert((seat, digest(told)));
        let node = HistoryNode { number, conversation };
        let end = (seat, chained_digest(&call, told));
        if self.nodes.get(&end).is_none_or(|other| other.number > number) {
            self.nodes.insert(end, node);
        }
    }
}

/// Returns the digests of a request: of its tools, then up to each message. A text that is continued has others than a
/// conversation.
pub(super) fn hashes(tools: &[Value], messages: &[ChatMessage], continued: bool) -> Vec<Hash> {
    let tools: Vec<Value> = tools.iter().map(sort_keys).collect();
    let first = if continued { Value::from("text") } else { Value::from(tools) };
    let mut hashes = vec![Sha256::digest(first.to_string()).into()];
    for message in messages {
        hashes.push(chained_digest(&hashes[hashes.len() - 1], message));
    }
    hashes
}

/// Returns the digest of a conversation with one more message.
fn chained_digest(before: &Hash, message: &ChatMessage) -> Hash {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(digest(message));
    hash.finalize().into()
}

/// Returns the digest of a message alone.
fn digest(message: &ChatMessage) -> Hash {
    Sha256::digest(canonical(message).to_string()).into()
}

/// Returns the canonical form of a message: its role, its text without blanks at the ends, and its calls.
fn canonical(message: &ChatMessage) -> Value {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let calls = calls.map(|call| {
        let function = &call["function"];
        json!([function["name"], sort_keys(&function["arguments"])])
    });
    json!([message.role(), message.text().trim(), calls.collect::<Vec<_>>()])
}

/// Returns a value with the keys of objects in order.
fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let pairs: BTreeMap<&String, &Value> = map.iter().collect();
            let pairs = pairs.into_iter().map(|(key, value)| (key.clone(), sort_keys(value)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        Value::Array(values) => values.iter().map(sort_keys).collect(),
        other => other.clone(),
    }
}

/// Returns messages with the results of calls in the order of the calls, whatever order a client sends them in.
pub(super) fn order_results(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut ordered: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    let (mut ids, mut first): (Vec<String>, usize) = (Vec::new(), 0);
    for message in messages {
        if message.role() != "tool" {
            first = ordered.len() + 1;
            ids = call_ids(&message);
        }
        ordered.push(message);
        if first < ordered.len() {
            ordered[first..].sort_by_key(|message| {
                let id = message.get("tool_call_id").and_then(Value::as_str);
                ids.iter().position(|other| Some(other.as_str()) == id).unwrap_or(usize::MAX)
            });
        }
    }
    ordered
}

fn call_ids(message: &ChatMessage) -> Vec<String> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    calls.filter_map(|call| Some(call["id"].as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::new("user", text)
    }

    fn said(text: &str) -> ChatMessage {
        ChatMessage::new("assistant", text)
    }

    fn calls(id: &str, arguments: &Value) -> ChatMessage {
        let call = json!([{"id": id, "function": {"name": "add", "arguments": arguments}}]);
        ChatMessage::new("assistant", Value::Null).with("tool_calls", call)
    }

    /// A conversation that is known by its text.
    fn conversation(text: &str) -> Conversation {
        Conversation { rendered: text.to_owned(), ..Conversation::default() }
    }

    /// Adds a call of seat 0 with its reply.
    fn add(history: &mut EpisodeHistory, messages: &[ChatMessage], told: &ChatMessage, name: &str) {
        let call = hashes(&[], messages, false)[messages.len()];
        let number = history.number(0, call);
        history.insert(0, (call, number), told, conversation(name));
    }

    fn found(history: &EpisodeHistory, messages: &[ChatMessage]) -> (String, usize, bool) {
        let found = history.find(0, messages, &hashes(&[], messages, false));
        (found.conversation.rendered, found.known, found.carries)
    }

    #[test]
    fn a_reply_that_a_client_wrote_in_its_own_way_is_recognized() {
        let mut history = EpisodeHistory::default();
        add(&mut history, &[user("hi")], &calls("call_1", &json!({"x": 1, "y": [2]})), "first");
        let again = calls("other", &json!({"y": [2], "x": 1})).with("content", "  ");
        let messages = [user(" hi\n"), again, ChatMessage::tool("add", "3")];
        assert_eq!(found(&history, &messages), ("first".to_owned(), 2, true));
        let other = [user("hi"), calls("call_1", &json!({"x": 2, "y": [2]})), user("go on")];
        assert_eq!(found(&history, &other), (String::new(), 0, false));
    }

    #[test]
    fn the_longest_conversation_is_continued() {
        let mut history = EpisodeHistory::default();
        add(&mut history, &[user("1")], &said("a"), "first");
        add(&mut history, &[user("1"), said("a"), user("2")], &said("b"), "second");
        let messages = [user("1"), said("a"), user("2"), said("b"), user("3")];
        assert_eq!(found(&history, &messages), ("second".to_owned(), 4, true));
        assert_eq!(found(&history, &messages[..3]), ("first".to_owned(), 2, true));
    }

    #[test]
    fn a_compacted_conversation_carries_a_reply_and_continues_none() {
        let mut history = EpisodeHistory::default();
        add(&mut history, &[user("1")], &said("a"), "first");
        assert_eq!(found(&history, &[user("so far"), said("a"), user("2")]).1, 0);
        assert!(found(&history, &[user("so far"), said("a"), user("2")]).2);
        // A few-shot example is no reply.
        assert_eq!(found(&history, &[user("1"), said("x"), user("2")]), (String::new(), 0, false));
    }

    #[test]
    fn seats_and_tools_have_conversations_of_their_own() {
        let mut history = EpisodeHistory::default();
        add(&mut history, &[user("1")], &said("a"), "first");
        let messages = [user("1"), said("a"), user("2")];
        assert_eq!(history.find(1, &messages, &hashes(&[], &messages, false)).known, 0);
        let tools = [json!({"type": "function"})];
        assert_eq!(history.find(0, &messages, &hashes(&tools, &messages, false)).known, 0);
    }

    #[test]
    fn of_equal_replies_that_of_the_lowest_number_is_continued() {
        let mut history = EpisodeHistory::default();
        let call = hashes(&[], &[user("1")], false)[1];
        assert_eq!((history.number(0, call), history.number(0, call)), (0, 1));
        history.insert(0, (call, 1), &said("a"), conversation("second"));
        history.insert(0, (call, 0), &said("a"), conversation("first"));
        assert_eq!(found(&history, &[user("1"), said("a"), user("2")]).0, "first");
        history.forget(0, call, 0);
        assert_eq!((history.number(0, call), history.number(0, call)), (0, 2));
    }

    #[test]
    fn results_are_in_the_order_of_their_calls() {
        let call = |id: &str| json!({"id": id, "function": {"name": "f", "arguments": {}}});
        let asked = said("").with("tool_calls", json!([call("a"), call("b")]));
        let result = |id: &str, text: &str| ChatMessage::new("tool", text).with("tool_call_id", id);
        let sent = vec![user("1"), asked, result("b", "2"), result("a", "1"), user("and?")];
        let text = |message: &ChatMessage| message.get("content").cloned().unwrap_or_default();
        let texts: Vec<Value> = order_results(sent).iter().map(text).collect();
        assert_eq!(texts, ["1", "", "1", "2", "and?"]);
    }
}
