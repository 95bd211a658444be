//! Forms of thoughts before an answer.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Form of the thoughts before an answer: `auto`, `think`, `none`, `harmony`, or the texts around them, `OPEN CLOSE`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum ThoughtFormat {
    /// The form in which the chat template renders thoughts.
    #[default]
    Auto,
    /// Replies have no thoughts.
    None,
    /// Thoughts are messages of the channel `analysis`: gpt-oss.
    Harmony,
    /// Thoughts are between two texts.
    Tags(ThoughtTags),
}

/// Texts around thoughts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThoughtTags {
    /// Text before them. It may be the end of the prompt instead.
    pub open: String,
    /// Text after them.
    pub close: String,
}

impl ThoughtTags {
    /// Texts of known families: Qwen 3, DeepSeek R1, GLM, Kimi and MiniMax; Magistral; Gemma 4.
    pub(super) const KNOWN: [[&'static str; 2]; 3] =
        [["<think>", "</think>"], ["[THINK]", "[/THINK]"], ["<|channel>thought\n", "<channel|>"]];
    /// Tokens in texts of known families, as vocabularies have them.
    pub(super) const TOKENS: [&'static str; 6] =
        ["<think>", "</think>", "[THINK]", "[/THINK]", "<|channel>", "<channel|>"];

    pub(super) fn new(open: &str, close: &str) -> Self {
        Self { open: open.to_owned(), close: close.to_owned() }
    }

    /// Returns `<think>` and `</think>`.
    pub fn think() -> Self {
        let [open, close] = Self::KNOWN[0];
        Self::new(open, close)
    }

    /// Returns true for `<think>`, the form that agents and environments read.
    pub fn is_think(&self) -> bool {
        *self == Self::think()
    }

    /// Returns a reply without the thoughts at its front, if it is not known how its prompt ends. A closing text after the
    /// first call, at `first_call`, belongs to the call unless the reply begins with the opening.
    pub(super) fn after_thoughts<'r>(&self, reply: &'r str, first_call: Option<usize>) -> &'r str {
        let opened = reply.trim_start().starts_with(self.open.as_str());
        match reply.find(self.close.as_str()) {
            Some(at) if opened || first_call.is_none_or(|call| at < call) => {
                &reply[at + self.close.len()..]
            }
            _ => reply,
        }
    }

    /// Divides a reply into its thoughts, if it begins with them, and its answer. With `thinking`, the prompt ends with their
    /// opening.
    pub(super) fn split_thoughts<'r>(&self, reply: &'r str, thinking: bool) -> SplitReply<'r> {
        let inside = reply.trim_start().strip_prefix(self.open.as_str());
        let Some(inside) = inside.or_else(|| thinking.then_some(reply)) else {
            return SplitReply { thoughts: None, closed: true, answer: reply };
        };
        match inside.split_once(self.close.as_str()) {
            Some((thoughts, answer)) => {
                SplitReply { thoughts: Some(thoughts), closed: true, answer }
            }
            None => SplitReply { thoughts: Some(inside), closed: false, answer: "" },
        }
    }
}

/// Thoughts and answer of a reply.
pub(super) struct SplitReply<'r> {
    pub(super) thoughts: Option<&'r str>,
    /// The thoughts have an end.
    pub(super) closed: bool,
    pub(super) answer: &'r str,
}

impl fmt::Display for ThoughtFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Harmony => f.write_str("harmony"),
            Self::Tags(tags) if tags.is_think() => f.write_str("think"),
            Self::Tags(ThoughtTags { open, close }) => write!(f, "{} {}", open.trim_end(), close),
        }
    }
}

impl From<ThoughtFormat> for String {
    fn from(format: ThoughtFormat) -> Self {
        format.to_string()
    }
}

impl TryFrom<String> for ThoughtFormat {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::None),
            "harmony" => return Ok(Self::Harmony),
            "think" => return Ok(Self::Tags(ThoughtTags::think())),
            _ => {}
        }
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            [open, close] if open != close => {
                let known = ThoughtTags::KNOWN
                    .iter()
                    .find(|[other, end]| other.trim_end() == open && *end == close);
                let open = known.map_or(open, |[open, _]| open);
                Ok(Self::Tags(ThoughtTags::new(open, close)))
            }
            _ => Err(format!(
                "{text:?} is no form of thoughts; write auto, think, none, harmony, or the two texts around them with a \
                 blank between, as \"<think> </think>\""
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_form_of_thoughts_is_a_name_or_two_texts() {
        for text in ["auto", "think", "none", "harmony", "[THINK] [/THINK]", "<a> </a>"] {
            let format = ThoughtFormat::try_from(text.to_owned()).unwrap();
            assert_eq!(format.to_string(), text);
        }
        let gemma = ThoughtFormat::try_from("<|channel>thought <channel|>".to_owned()).unwrap();
        assert_eq!(
            gemma,
            ThoughtFormat::Tags(ThoughtTags::new("<|channel>thought\n", "<channel|>"))
        );
        for text in ["", "thinking", "<a> <b> <c>", "x x"] {
            assert!(ThoughtFormat::try_from(text.to_owned()).unwrap_err().contains("is no form"));
        }
    }
}
