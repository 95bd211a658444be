//! Conversations of rows: messages with everything that chat templates read besides, and no key that nothing reads.

use serde_json::{Map, Value};

use super::jsonl::named;
use super::messages::{CHATML, Marked, brief, chat_message, messages, unmarked};
use crate::config::TaskConfig;
use crate::text::{ChatInput, ChatMessage};

/// Keys of a row that are variables of chat templates.
const VARIABLES: [&str; 4] = ["tools", "documents", "chat_template", "chat_template_kwargs"];
/// Keys of a row that say where it is from.
const NOTES: [&str; 6] = ["id", "meta", "source", "split", "maverl", "score"];

/// A row of a file of conversations.
pub(super) struct ConversationRow<'t> {
    object: Map<String, Value>,
    task: &'t TaskConfig,
}

impl<'t> ConversationRow<'t> {
    /// Creates a row with the names of `task.keys`, without its null and ignored keys. `read` are the keys of its kind, besides
    /// those of every row.
    pub(super) fn new(
        mut object: Map<String, Value>,
        task: &'t TaskConfig,
        read: &[&str],
    ) -> Result<Self, String> {
        named(&mut object, &task.keys)?;
        if read.contains(&"messages")
            && let Some(Value::Array(mut list)) = object.remove(CHATML)
        {
            list.iter_mut().for_each(chat_message);
            object.entry("messages").or_insert(Value::Array(list));
        }
        object.retain(|key, value| !value.is_null() && !task.ignore.contains(key));
        let all = [read, &VARIABLES, &NOTES].concat();
        let unknown = object.keys().map(String::as_str).filter(|key| !all.contains(key));
        let unknown: Vec<&str> = unknown.collect();
        if unknown.is_empty() {
            return Ok(Self { object, task });
        }
        Err(format!(
            "a row has `{}`, which is not read; it may have `{}`. `task.keys` names columns that the file calls otherwise, \
             `task.ignore = {:?}` leaves these out, and a variable of the chat template goes into `chat_template_kwargs`",
            unknown.join("`, `"),
            all.join("`, `"),
            unknown
        ))
    }

    /// Returns a value.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key)
    }

    /// Returns true if the row has a key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    /// Returns the names of the keys, for messages.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.object.keys().map(String::as_str).collect()
    }

    /// Returns the value of its key `split`; one that is no text, as JSON.
    pub(super) fn split(&self) -> Option<String> {
        let own = self.get("split")?;
        Some(own.as_str().map_or_else(|| own.to_string(), str::to_owned))
    }

    /// Returns true if the row is in a split: in that of its key `split`, or in every one without.
    pub(super) fn is_in(&self, split: &str) -> bool {
        split == super::split::ALL || self.get("split").is_none_or(|own| own == split)
    }

    /// Reads a value as messages, with their marks.
    pub(super) fn marked_messages(&self, key: &str, role: &str) -> Result<Vec<Marked>, String> {
        self.get(key).map_or(Ok(Vec::new()), |value| messages(value, key, role, &self.task.ignore))
    }

    /// Reads a value as messages that have no marks.
    pub(super) fn messages(&self, key: &str, role: &str) -> Result<Vec<ChatMessage>, String> {
        unmarked(self.marked_messages(key, role)?, key)
    }

    /// Returns a conversation with the row's variables of chat templates.
    pub(super) fn chat(&self, messages: Vec<ChatMessage>) -> Result<ChatInput, String> {
        let variables = match self.parsed_value("chat_template_kwargs")? {
            None => Map::new(),
            Some(Value::Object(variables)) => variables,
            Some(other) => {
                return Err(format!(
                    "`chat_template_kwargs` is {}; write an object",
                    brief(&other)
                ));
            }
        };
        let chat_template = match self.get("chat_template") {
            None => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(other) => {
                return Err(format!("`chat_template` is {}; write its name", brief(other)));
            }
        };
        Ok(ChatInput {
            messages,
            tools: self.objects("tools")?,
            documents: self.objects("documents")?,
            add_generation_prompt: false,
            chat_template,
            chat_template_kwargs: variables,
        })
    }

    /// Reads a list of objects; none if it is missing or empty.
    fn objects(&self, key: &str) -> Result<Option<Vec<Value>>, String> {
        match self.parsed_value(key)? {
            None => Ok(None),
            Some(Value::Array(list)) => match list.iter().position(|one| !one.is_object()) {
                Some(i) => Err(format!("`{key}[{i}]` is {}; write an object", brief(&list[i]))),
                None => Ok(Some(list).filter(|list| !list.is_empty())),
            },
            Some(other) => Err(format!("`{key}` is {}; write a list of objects", brief(&other))),
        }
    }

    /// Returns a value. One that is a text is parsed: files of columns have no objects of different keys.
    fn parsed_value(&self, key: &str) -> Result<Option<Value>, String> {
        let Some(Value::String(text)) = self.get(key) else { return Ok(self.get(key).cloned()) };
        match serde_json::from_str(text) {
            Ok(Value::Null) => Ok(None),
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(format!("`{key}` is a text that is no JSON: {error}")),
        }
    }
}

/// Refuses a reply that begins with the prompt that it follows.
pub(super) fn follows(
    prompt: &[ChatMessage],
    reply: &[ChatMessage],
    key: &str,
) -> Result<(), String> {
    let repeats = !prompt.is_empty() && reply.len() > prompt.len() && reply.starts_with(prompt);
    let mut meeting = [prompt.last(), reply.first()].into_iter();
    if repeats || meeting.all(|message| message.is_some_and(|it| it.role() == "user")) {
        Err(format!(
            "`{key}` is a whole conversation, and the row has a `prompt`; leave one out, as by `task.ignore = [\"prompt\"]`"
        ))
    } else {
        Ok(())
    }
}
