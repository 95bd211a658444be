//! Replies in the forms of families, cut at every character.

use std::path::PathBuf;

use maverl::text::{ChatInput, ChatMessage};
use maverl::tools::ThoughtFormat;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const TEMPLATES: [&str; 15] = [
    "hermes",
    "llama3_json",
    "qwen_xml",
    "mistral",
    "mistral_v11",
    "pythonic",
    "pythonic_tagged",
    "gemma4",
    "glm",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_dsml",
    "kimi_k2",
    "minimax_m2",
    "harmony",
];

/// Loads the built-in tokenizer with a template of `tests/fixtures/formats`.
fn tokenizer_of(template: &str) -> Tokenizer {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/formats");
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let dir = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "config.json"] {
        std::fs::write(dir.path().join(name), files.require(name).unwrap()).unwrap();
    }
    let source = fixtures.join(format!("{template}.jinja"));
    std::fs::copy(source, dir.path().join("chat_template.jinja")).unwrap();
    Tokenizer::load(&ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()))).unwrap()
}

/// Renders a reply with these calls.
fn render(tokenizer: &Tokenizer, message: ChatMessage, tools: &[Value]) -> String {
    let asked = [ChatMessage::new("user", "q")];
    let tools = Some(tools.to_vec());
    let open = ChatInput { tools: tools.clone(), ..ChatInput::open(asked.clone()) };
    let open = tokenizer.render_chat(&open).unwrap();
    let whole = ChatInput { tools, ..ChatInput::new(asked).with_message(message) };
    let whole = tokenizer.render_chat(&whole).unwrap();
    let reply = whole.text().strip_prefix(open.text()).unwrap();
    reply.trim_end_matches("<|im_end|>\n").to_owned()
}

/// Returns a call as a template gets it.
fn written(template: &str, index: usize, text: &str) -> Value {
    let id = if template == "kimi_k2" { format!("functions.f:{index}") } else { "a".to_owned() };
    let arguments = json!({"text": text, "n": index});
    let arguments =
        if template == "deepseek_v31" { arguments.to_string().into() } else { arguments };
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}})
}

/// Texts of arguments: quotes, ends of lines, and tags of no form with text arguments.
fn texts() -> impl Strategy<Value = Vec<String>> {
    let pieces = vec![
        "a",
        " b ",
        "\n",
        "\"",
        "'",
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        "é",
        "語",
        "<",
        ">",
        "<b>",
        "</think>",
        "True",
        "1",
        "<function=g>",
        "[TOOL_CALLS]",
        "<|end|>",
        "[/THINK]",
    ];
    let text = prop::collection::vec(prop::sample::select(pieces), 0..6);
    prop::collection::vec(text.prop_map(|pieces| pieces.concat()), 1..3)
}

#[test]
fn calls_that_a_template_renders_are_read_however_the_reply_is_cut() {
    let full = std::env::var_os("MAVERL_FULL").is_some();
    let config = Config {
        cases: if full { 1000 } else { 12 },
        failure_persistence: None,
        ..Config::default()
    };
    let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}});
    let declaration =
        json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    for template in TEMPLATES {
        let tokenizer = tokenizer_of(template);
        let format = ReplyFormat::of_model(&tokenizer, CallFormat::Auto, &ThoughtFormat::Auto);
        let shape = ReplyTextShape {
            format: Arc::new(format),
            tools: vec![declaration.clone()].into(),
            ..chat()
        };
        let mut runner = TestRunner::new_with_rng(
            config.clone(),
            proptest::test_runner::TestRng::deterministic_rng(Default::default()),
        );
        runner
            .run(&texts(), |texts| {
                let calls = texts.iter().enumerate().map(|(i, text)| written(template, i, text));
                let message =
                    ChatMessage::new("assistant", "").with("tool_calls", calls.collect::<Vec<_>>());
                let reply = render(&tokenizer, message, std::slice::from_ref(&declaration));
                let arguments =
                    texts.iter().enumerate().map(|(i, text)| json!({"text": text, "n": i}));
                let wanted: Vec<ReplyPart> =
                    arguments.map(|arguments| call("f", &arguments)).collect();
                let cut: Vec<String> = reply.chars().map(String::from).collect();
                let cut: Vec<&str> = cut.iter().map(String::as_str).collect();
                for pieces_of_reply in [&cut[..], &[reply.as_str()]] {
                    let mut parts = pieces(&tokenizer, pieces_of_reply, &[], shape.clone());
                    parts.retain(
                        |part| !matches!(part, ReplyPart::Content(text) if text.trim().is_empty()),
                    );
                    prop_assert_eq!(&parts, &wanted, "{}: {}", template, reply);
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn thoughts_text_and_calls_of_each_form_are_told_apart() {
    let parameters = json!({"type": "object", "properties": {}});
    let declaration =
        json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    for template in TEMPLATES {
        let tokenizer = tokenizer_of(template);
        let format = ReplyFormat::of_model(&tokenizer, CallFormat::Auto, &ThoughtFormat::Auto);
        let tools: Arc<[Value]> = vec![declaration.clone()].into();
        let shape =
            ReplyTextShape { format: Arc::new(format), tools: Arc::clone(&tools), ..chat() };
        // Templates with bare calls, and that of gpt-oss, render text after calls or none.
        let answer = ChatMessage::new("assistant", "Yes < no.").with("reasoning_content", "hm <b>");
        let reply = render(&tokenizer, answer, &tools);
        let reply = reply.trim_end_matches("<|return|>");
        let thoughts = ["llama3_json", "pythonic"].iter().all(|other| *other != template);
        let wanted = if thoughts { vec!["hm <b>", "Yes < no."] } else { vec!["Yes < no."] };
        for cut in 0..=reply.len() {
            let Some((first, second)) = reply.split_at_checked(cut) else { continue };
            let parts = pieces(&tokenizer, &[first, second], &[], shape.clone());
            let texts: Vec<&str> = parts
                .iter()
                .map(|part| match part {
                    ReplyPart::Content(text) | ReplyPart::Reasoning(text) => text.trim(),
                    ReplyPart::Call(call) => panic!("{call:?}"),
                })
                .collect();
            assert_eq!(texts, wanted, "{template}: {first:?} {second:?}");
        }
    }
}
