//! Calls that a template renders are the calls that are read.

use super::*;

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

fn collect_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(object) => object.values().for_each(|value| collect_texts(value, texts)),
        _ => {}
    }
}

#[test]
fn the_form_of_a_template_is_found_by_its_rendering() {
    for (template, format) in TEMPLATES {
        let found = template_calls(&tokenizer(template));
        assert_eq!(found, TemplateCalls::Found(format), "{template}");
    }
}

#[test]
fn calls_that_a_template_renders_are_read() {
    let mut beyond = 0;
    for (template, format) in TEMPLATES {
        let tokenizer = tokenizer(template);
        let mut draw = Draw(7);
        for _ in 0..case_count(40, 1000) {
            let (wanted, tools) = draw_calls(&mut draw);
            if is_beyond(format, &wanted) {
                beyond += 1;
                continue;
            }
            let turn = render_calls(&tokenizer, format, &wanted, &tools);
            let found: Result<Vec<Call>, _> = calls(&turn, format, &tools).into_iter().collect();
            assert_eq!(found.as_ref(), Ok(&wanted), "{template}: {turn}");
        }
    }
    assert!(beyond < case_count(15 * 40, 15 * 1000) / 8, "{beyond} cases were left out");
}

#[test]
fn a_rendered_call_is_the_same_call_for_an_agent() {
    let tools = declare(&[("add", json!({"x": {"type": "integer"}, "note": {"type": "string"}}))]);
    let wanted =
        [call("add", json!({"x": 1, "note": "a </think> \"b\"\n"})), call("add", json!({}))];
    for (template, format) in TEMPLATES {
        let tokenizer = tokenizer(template);
        let reply = render_calls(&tokenizer, format, &wanted, &tools);
        let of_model = ReplyFormat::of_model(&tokenizer, CallFormat::Auto, &ThoughtFormat::Auto);
        let read = read(&of_model.canonical_reply(&reply, "", &tools));
        assert_eq!(read, wanted.clone().map(Ok), "{template}: {reply}");
    }
}

#[test]
fn thoughts_of_a_template_are_found_and_reach_agents_in_one_form() {
    for (template, _) in TEMPLATES {
        let tokenizer = tokenizer(template);
        let format = ReplyFormat::of_model(&tokenizer, CallFormat::Auto, &ThoughtFormat::Auto);
        let (open, close) = match template {
            "mistral" | "mistral_v11" => ("[THINK]", "[/THINK]"),
            "gemma4" => ("<|channel>thought\n", "<channel|>"),
            _ => ("<think>", "</think>"),
        };
        assert_eq!(format.thoughts, ThoughtTags::new(open, close), "{template}");
        let reply = match template {
            "harmony" => "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes".to_owned(),
            _ => format!("{open}hm{close}yes"),
        };
        let read = format.canonical_reply(&reply, "", &[]);
        let answer = read
            .split_once("</think>")
            .map(|(thoughts, answer)| (thoughts.contains("hm"), answer.trim()));
        assert_eq!(answer, Some((true, "yes")), "{template}: {read}");
        // A reply that begins within its thoughts, as the end of its prompt says.
        if template == "gemma4" || template == "mistral" {
            let reply = format!("hm{close}yes");
            let read = format.canonical_reply(&reply, &format!("question{open}"), &[]);
            assert_eq!(read, "<think>\nhm\n</think>\n\nyes", "{template}");
        }
    }
}
