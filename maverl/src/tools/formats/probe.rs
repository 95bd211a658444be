//! The form of calls and thoughts that a chat template renders.
//!
//! A template is asked, not its name: it renders a turn with two calls, and the form is the one whose reader returns exactly
//! these calls from the turn. Fine-tuned and renamed models need no list of names.

use serde_json::{Map, Value, json};

use super::thoughts::ThoughtTags;
use super::{CallFormat, calls};
use crate::text::{ChatInput, ChatMessage, Tokenizer};
use crate::tools::Call;

/// Question before the turn.
const QUESTION: &str = "question of the probe";
/// Answer in place of the turn.
const ANSWER: &str = "answer of the probe";
/// Thoughts before the answer.
const THOUGHTS: &str = "thoughts of the probe";
/// Longest quotation of a turn, in characters.
const QUOTED: usize = 200;

/// Result of asking a template for its form of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateCalls {
    /// The template renders calls in this form.
    Found(CallFormat),
    /// The template takes no tools: they are described in the prompt, with the form of Hermes.
    NoTools,
    /// The template takes tools, and renders calls in an unknown form: the beginning of such a turn.
    Unknown(String),
    /// The template takes tools, and renders no calls.
    NoCalls,
}

impl TemplateCalls {
    /// Returns the form, if the template has a known one.
    pub fn found(&self) -> Option<CallFormat> {
        match self {
            Self::Found(format) => Some(*format),
            _ => None,
        }
    }

    /// Returns a warning about a template whose calls are not read, and its remedy.
    pub fn warning(&self) -> Option<String> {
        let what = match self {
            Self::Found(_) | Self::NoTools => return None,
            Self::Unknown(turn) => format!("renders calls in an unknown form, {turn:?}"),
            Self::NoCalls => "takes tools, and renders no calls".to_owned(),
        };
        Some(format!(
            "the chat template {what}: calls of replies are read in the forms of Hermes and Llama 3, and any other is text; \
             set `calls` if the model writes another known form"
        ))
    }
}

/// Form of the thoughts that a template renders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplateThoughts {
    Tags(ThoughtTags),
    Harmony,
}

/// Asks a template for its form of calls.
pub fn template_calls(tokenizer: &Tokenizer) -> TemplateCalls {
    if !tokenizer.takes_tools() {
        return TemplateCalls::NoTools;
    }
    let mut unknown = None;
    for variant in ProbeVariant::all() {
        let Some(turn) = variant.render(tokenizer) else { continue };
        if let Some(format) = variant.read(&turn) {
            return TemplateCalls::Found(format);
        }
        if unknown.is_none() && turn.contains("probe_a") {
            unknown = Some(turn.trim().chars().take(QUOTED).collect());
        }
    }
    unknown.map_or(TemplateCalls::NoCalls, TemplateCalls::Unknown)
}

/// Asks a template for its form of thoughts; `None` if it renders none, or in an unknown form.
pub(super) fn template_thoughts(tokenizer: &Tokenizer) -> Option<TemplateThoughts> {
    let answer = ChatMessage::new("assistant", ANSWER).with("reasoning_content", THOUGHTS);
    let input = ChatInput::new([ChatMessage::new("user", QUESTION), answer]);
    let rendered = tokenizer.render_chat(&input).ok()?;
    let (before, after) = rendered.text().split_once(THOUGHTS)?;
    if before.ends_with("analysis<|message|>") {
        return Some(TemplateThoughts::Harmony);
    }
    let fits = |[open, close]: &&[&str; 2]| {
        before.trim_end().ends_with(open.trim_end()) && after.trim_start().starts_with(close)
    };
    let [open, close] = ThoughtTags::KNOWN.iter().find(fits)?;
    Some(TemplateThoughts::Tags(ThoughtTags::new(open, close)))
}

/// A way in which templates accept calls.
#[derive(Debug, Clone, Copy)]
struct ProbeVariant {
    /// One turn has both calls, or the first one only.
    both: bool,
    /// Arguments are an object, or its text.
    object: bool,
    /// Ids name the function, as those of Kimi.
    named: bool,
    /// The content is an empty text, or missing.
    empty: bool,
}

impl ProbeVariant {
    /// Returns every variant, the usual ones first.
    fn all() -> impl Iterator<Item = Self> {
        let choices = [true, false];
        choices.into_iter().flat_map(move |both| {
            choices.into_iter().flat_map(move |object| {
                [false, true].into_iter().flat_map(move |named| {
                    choices.into_iter().map(move |empty| Self { both, object, named, empty })
                })
            })
        })
    }

    /// Returns the calls of the turn.
    fn calls(self) -> Vec<Call> {
        let arguments = json!({"x": 1, "y": "a <b>", "z": [true, null]});
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let first = Call { name: "probe_a".to_owned(), arguments };
        let second = Call { name: "probe_b".to_owned(), arguments: Map::new() };
        if self.both { vec![first, second] } else { vec![first] }
    }

    /// Renders a conversation whose last turn has the calls. Returns what follows the beginning of the turn, or the question.
    fn render(self, tokenizer: &Tokenizer) -> Option<String> {
        let content = if self.empty { Value::from("") } else { Value::Null };
        let written: Vec<Value> =
            self.calls().iter().enumerate().map(|(i, call)| self.written(i, call)).collect();
        let turn = ChatMessage::new("assistant", content).with("tool_calls", written);
        let whole = conversation(tokenizer, turn)?;
        let answered = conversation(tokenizer, ChatMessage::new("assistant", ANSWER));
        let begin =
            answered.as_deref().and_then(|text| text.split_once(ANSWER)).map(|(begin, _)| begin);
        let turn = begin.and_then(|begin| whole.strip_prefix(begin));
        let turn = turn.or_else(|| Some(whole.rsplit_once(QUESTION)?.1));
        turn.map(str::to_owned)
    }

    /// Returns a call in the form of chat templates.
    fn written(self, index: usize, Call { name, arguments }: &Call) -> Value {
        let arguments = Value::Object(arguments.clone());
        let arguments = if self.object { arguments } else { arguments.to_string().into() };
        // Mistral's templates demand ids of nine letters and digits.
        let id = if self.named {
            format!("functions.{name}:{index}")
        } else {
            format!("probe000{index}")
        };
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    /// Returns the form in which a turn has the calls.
    fn read(self, turn: &str) -> Option<CallFormat> {
        let (wanted, tools) = (self.calls(), declarations());
        CallFormat::ALL.into_iter().find(|format| {
            let found: Result<Vec<Call>, _> = calls(turn, *format, &tools).into_iter().collect();
            found.is_ok_and(|found| found == wanted)
        })
    }
}

/// Renders the question and a turn.
fn conversation(tokenizer: &Tokenizer, turn: ChatMessage) -> Option<String> {
    let input = ChatInput {
        tools: Some(declarations()),
        ..ChatInput::new([ChatMessage::new("user", QUESTION), turn])
    };
    tokenizer.render_chat(&input).ok().map(|rendered| rendered.text().to_owned())
}

/// Returns the tools of the probe.
fn declarations() -> Vec<Value> {
    let properties = json!({"x": {"type": "integer"}, "y": {"type": "string"}, "z": {"type": "array", "items": {}}});
    [("probe_a", properties), ("probe_b", json!({}))]
        .map(|(name, properties)| {
            let parameters = json!({"type": "object", "properties": properties});
            json!({"type": "function", "function": {"name": name, "description": "", "parameters": parameters}})
        })
        .to_vec()
}
