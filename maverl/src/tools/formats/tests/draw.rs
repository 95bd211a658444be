//! Random calls, and the replies in which a template writes them. `tests/readers` has this file too.

use super::*;

/// Templates, with the form of their calls.
pub(super) const TEMPLATES: [(&str, CallFormat); 15] = [
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

/// Loads the built-in tokenizer with a template of `tests/fixtures/formats`.
pub(super) fn tokenizer(template: &str) -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TEMPLATE_DIR);
    let source = std::fs::read_to_string(path.join(format!("{template}.jinja"))).unwrap();
    with_template(&source)
}

/// Loads the built-in tokenizer with this template.
pub(super) fn with_template(source: &str) -> Tokenizer {
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let dir = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "config.json"] {
        std::fs::write(dir.path().join(name), files.require(name).unwrap()).unwrap();
    }
    std::fs::write(dir.path().join("chat_template.jinja"), source).unwrap();
    Tokenizer::load(&ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()))).unwrap()
}

/// Renders a turn with calls, without the beginning and the end of its message.
pub(super) fn render_calls(
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

/// Declares tools by the schemas of their arguments.
pub(super) fn declare(tools: &[(&str, Value)]) -> Vec<Value> {
    let declare = |(name, properties): &(&str, Value)| {
        let parameters = json!({"type": "object", "properties": properties});
        json!({"type": "function", "function": {"name": name, "description": "", "parameters": parameters}})
    };
    tools.iter().map(declare).collect()
}

/// Pieces of texts: quotes, ends of lines, escapes, tags of all forms, other scripts.
const PIECES: [&str; 38] = [
    "a",
    "two words",
    " ",
    "\n",
    "\t",
    "\"",
    "'",
    "\\",
    "\\n",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "=",
    "<",
    ">",
    "&",
    "é",
    "語",
    "🦀",
    "True",
    "null",
    "12",
    "```",
    "<tool_call>",
    "</tool_call>",
    "<function=f>",
    "</function>",
    "</parameter>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|tool_call_end|>",
    "</arg_value>",
    "<|call|>",
];
/// Further pieces of texts that only forms with escapes can write.
const TAGS: [&str; 5] = [
    "</parameter>\n<parameter=x>",
    "<｜tool▁call▁end｜>",
    "<tool_call|>",
    "</｜DSML｜parameter>",
    "<|message|>",
];

fn draw_text(draw: &mut Draw) -> String {
    (0..draw.below(6))
        .map(|_| if draw.below(12) == 0 { draw.pick(&TAGS) } else { draw.pick(&PIECES) })
        .collect()
}

fn draw_value(draw: &mut Draw, depth: usize) -> Value {
    match draw.below(if depth > 2 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => draw.pick(&[true, false]).into(),
        2 => draw.pick(&[0_i64, 7, -3, i64::MAX, 1 << 40]).into(),
        3 => draw.pick(&[0.5, -1.25, 1e300, 3.0e-9]).into(),
        4 | 5 => draw_text(draw).into(),
        6 => (0..draw.below(4)).map(|_| draw_value(draw, depth + 1)).collect(),
        _ => {
            let keys = ["a", "b_c", "long_key", "k0"];
            let pairs =
                (0..draw.below(3)).map(|i| (keys[i].to_owned(), draw_value(draw, depth + 1)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

/// Returns the type of a value in a schema.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Draws calls of tools that it declares.
pub(super) fn draw_calls(draw: &mut Draw) -> (Vec<Call>, Vec<Value>) {
    let names = ["add", "get_weather", "a-b", "ns.tool2"];
    let (mut calls, mut tools) = (Vec::new(), Vec::new());
    for name in names.iter().take(1 + draw.below(3)) {
        let keys = ["x", "city_name", "n2", "the_text"];
        let (mut arguments, mut properties) = (Map::new(), Map::new());
        for key in keys.iter().take(draw.below(5)) {
            let value = draw_value(draw, 0);
            properties.insert((*key).to_owned(), json!({"type": type_of(&value)}));
            arguments.insert((*key).to_owned(), value);
        }
        calls.push(Call { name: (*name).to_owned(), arguments });
        tools.extend(declare(&[(*name, Value::Object(properties))]));
    }
    (calls, tools)
}

/// Returns true for calls that a form has no way to write: it has no escapes, and a text contains what ends it.
pub(super) fn is_beyond(format: CallFormat, calls: &[Call]) -> bool {
    let text = Value::from(
        calls.iter().map(|call| Value::Object(call.arguments.clone())).collect::<Vec<_>>(),
    );
    let mut texts = Vec::new();
    collect_texts(&text, &mut texts);
    let ends = |close: &str, followers: &[&str]| {
        texts.iter().any(|text| {
            text.match_indices(close).any(|(at, _)| {
                let next = text[at + close.len()..].trim_start();
                next.is_empty() || followers.iter().any(|tag| next.starts_with(tag))
            })
        })
    };
    match format {
        CallFormat::QwenXml => {
            ends("</parameter>", &["<parameter", "</function>", "<function", "</tool_call>"])
        }
        CallFormat::MinimaxM2 => ends("</parameter>", &["<parameter"]),
        CallFormat::Glm => ends("</arg_value>", &["</tool_call>"]),
        CallFormat::DeepseekDsml => ends("</｜DSML｜parameter>", &[]),
        _ => false,
    }
}

pub(super) fn collect_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(object) => object.values().for_each(|value| collect_texts(value, texts)),
        _ => {}
    }
}

/// A source of numbers for random cases.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}
