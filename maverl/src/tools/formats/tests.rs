#![allow(clippy::unwrap_used)]

mod cases;
mod fuzz;
mod replies;

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::*;
use crate::files::{ModelFiles, ModelSource};
use crate::text::{ChatInput, ChatMessage, Tokenizer};
use crate::tools::{Call, CallError};

/// Returns the number of cases of a test: `few` in the first tier, `many` in the second (`MAVERL_FULL`).
fn case_count(few: usize, many: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { many } else { few }
}

/// Loads the built-in tokenizer with a template of `tests/fixtures/formats`.
fn tokenizer(template: &str) -> Tokenizer {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/formats");
    let source = std::fs::read_to_string(fixtures.join(format!("{template}.jinja"))).unwrap();
    with_template(&source)
}

/// Loads the built-in tokenizer with this template.
fn with_template(source: &str) -> Tokenizer {
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let dir = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "config.json"] {
        std::fs::write(dir.path().join(name), files.require(name).unwrap()).unwrap();
    }
    std::fs::write(dir.path().join("chat_template.jinja"), source).unwrap();
    Tokenizer::load(&ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()))).unwrap()
}

/// Templates, with the form of their calls.
const TEMPLATES: [(&str, CallFormat); 15] = [
    ("hermes", CallFormat::Hermes),
    ("llama3_json", CallFormat::Llama3Json),
    ("qwen_xml", CallFormat::QwenXml),
    ("mistral", CallFormat::Mistral),
    ("mistral_v11", CallFormat::MistralV11),
    ("pythonic", CallFormat::Pythonic),
    ("pythonic_tagged", CallFormat::Pythonic),
    ("gemma4", CallFormat::Gemma4),
    ("glm", CallFormat::Glm),
    ("deepseek_v3", CallFormat::DeepseekV3),
    ("deepseek_v31", CallFormat::DeepseekV31),
    ("deepseek_dsml", CallFormat::DeepseekDsml),
    ("kimi_k2", CallFormat::KimiK2),
    ("minimax_m2", CallFormat::MinimaxM2),
    ("harmony", CallFormat::Harmony),
];

/// Renders a turn with calls, without the beginning and the end of its message.
fn render_calls(
    tokenizer: &Tokenizer,
    format: CallFormat,
    calls: &[Call],
    tools: &[Value],
) -> String {
    let written: Vec<Value> =
        calls.iter().enumerate().map(|(i, call)| written_call(format, i, call)).collect();
    let message = ChatMessage::new("assistant", "").with("tool_calls", written);
    let input = ChatInput {
        tools: Some(tools.to_vec()),
        ..ChatInput::new([ChatMessage::new("user", "q"), message])
    };
    let rendered = tokenizer.render_chat(&input).unwrap();
    let opened = ChatInput {
        tools: Some(tools.to_vec()),
        ..ChatInput::open([ChatMessage::new("user", "q")])
    };
    let opened = tokenizer.render_chat(&opened).unwrap();
    let turn = rendered.text().strip_prefix(opened.text()).unwrap();
    turn.strip_suffix("<|im_end|>\n").unwrap_or(turn).to_owned()
}

fn written_call(format: CallFormat, index: usize, Call { name, arguments }: &Call) -> Value {
    let id = match format {
        CallFormat::KimiK2 => format!("functions.{name}:{index}"),
        _ => format!("probe000{index}"),
    };
    let arguments = match format {
        CallFormat::DeepseekV31 => Value::from(Value::Object(arguments.clone()).to_string()),
        _ => Value::Object(arguments.clone()),
    };
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn call(name: &str, arguments: Value) -> Call {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    Call { name: name.to_owned(), arguments }
}

/// Declares tools by the schemas of their arguments.
fn declare(tools: &[(&str, Value)]) -> Vec<Value> {
    let declare = |(name, properties): &(&str, Value)| {
        let parameters = json!({"type": "object", "properties": properties});
        json!({"type": "function", "function": {"name": name, "description": "", "parameters": parameters}})
    };
    tools.iter().map(declare).collect()
}

/// A source of numbers for random cases.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}
