#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

mod forms;

use super::*;
use maverl::files::{ModelFiles, ModelSource};
use maverl::text::Tokenizer;
use maverl::tools::Call;

fn tokenizer() -> Tokenizer {
    Tokenizer::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
}

/// Reads a text given in pieces.
fn pieces(
    tokenizer: &Tokenizer,
    pieces: &[&str],
    stops: &[String],
    shape: ReplyTextShape,
) -> Vec<ReplyPart> {
    let mut reader = ReplyText::new(tokenizer.detokenizer(), stops, shape);
    let mut parts = Vec::new();
    for piece in pieces {
        reader.read(piece);
        parts.extend(reader.take(false));
    }
    parts.extend(reader.finish());
    joined(parts)
}

/// Joins neighboring texts of one kind.
fn joined(parts: Vec<ReplyPart>) -> Vec<ReplyPart> {
    let mut all: Vec<ReplyPart> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(ReplyPart::Content(text)), ReplyPart::Content(more))
            | (Some(ReplyPart::Reasoning(text)), ReplyPart::Reasoning(more)) => {
                text.push_str(&more)
            }
            (_, part) => all.push(part),
        }
    }
    all
}

/// Returns the form of a model with these calls.
fn of_calls(calls: CallFormat) -> ReplyFormat {
    ReplyFormat { calls, ..ReplyFormat::default() }
}

fn content(text: &str) -> ReplyPart {
    ReplyPart::Content(text.to_owned())
}

fn call(name: &str, arguments: &serde_json::Value) -> ReplyPart {
    ReplyPart::Call(Call {
        name: name.to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
    })
}

/// Returns the shape of a chat with tools.
fn chat() -> ReplyTextShape {
    ReplyTextShape { thoughts: true, calls: usize::MAX, ..ReplyTextShape::default() }
}

#[test]
fn a_reply_is_told_apart_into_thoughts_answer_and_calls() {
    let tokenizer = tokenizer();
    let hermes = r#"<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>"#;
    let broken = r#"<tool_call>{"name": </tool_call>"#;
    let thoughts = |text: &str| ReplyPart::Reasoning(text.to_owned());
    for (text, expected) in [
        ("plain text", vec![content("plain text")]),
        ("", vec![]),
        ("a < b <tool", vec![content("a < b <tool")]),
        ("<think>\nhm</think>\n\nyes", vec![thoughts("hm"), content("yes")]),
        ("<think>\nhm", vec![thoughts("hm")]),
        ("no tag </think> here", vec![content("no tag </think> here")]),
        (&format!("I call. {hermes}"), vec![content("I call. "), call("f", &json!({"x": 1}))]),
        (&format!("{hermes}\n{hermes}"), vec![call("f", &json!({"x": 1})); 2]),
        (&format!("{hermes} then"), vec![content(" then"), call("f", &json!({"x": 1}))]),
        (&format!("{broken}{hermes}"), vec![content(broken), call("f", &json!({"x": 1}))]),
        (broken, vec![content(broken)]),
        (r#"{"name": "f", "parameters": {}}"#, vec![call("f", &json!({}))]),
        (r#"{"answer": 7}"#, vec![content(r#"{"answer": 7}"#)]),
        ("<think>a</think>{\"name\": \"f\"}", vec![thoughts("a"), call("f", &json!({}))]),
    ] {
        assert_eq!(pieces(&tokenizer, &[text], &[], chat()), expected, "{text}");
    }
    let one = ReplyTextShape { calls: 1, ..chat() };
    let two = format!("{hermes}{hermes}");
    assert_eq!(pieces(&tokenizer, &[&two], &[], one).len(), 1);
    let none = ReplyTextShape { calls: 0, ..chat() };
    assert_eq!(pieces(&tokenizer, &[hermes], &[], none), [content(hermes)]);
    let within = ReplyTextShape { thinking: true, ..chat() };
    let parts = pieces(&tokenizer, &["hm</think>yes"], &[], within);
    assert_eq!(parts, [thoughts("hm"), content("yes")]);
}

#[test]
fn a_call_that_cannot_be_read_is_text_and_those_beside_it_are_calls() {
    let tokenizer = tokenizer();
    let kimi = |name: &str, arguments: &str| {
        format!(
            "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
        )
    };
    let minimax = |name: &str, inside: &str| format!("<invoke name=\"{name}\">{inside}</invoke>");
    let harmony = |name: &str, arguments: &str| {
        format!(
            "<|start|>assistant<|channel|>commentary to=functions.{name}<|message|>{arguments}<|call|>"
        )
    };
    let object = |name: &str| format!("{{\"name\": \"{name}\", \"arguments\": {{}}}}");
    let (wrong, cut) = ("{\"name\": \"b\", \"arguments\": 3}", "{\"name\": \"b\", \"arg");
    let listed = |bad: &str| format!("[TOOL_CALLS] [{}, {bad}, {}]", object("a"), object("c"));
    for (format, text, calls, shown) in [
        (
            CallFormat::KimiK2,
            format!(
                "<|tool_calls_section_begin|>{}{}{}<|tool_calls_section_end|>",
                kimi("a", "{}"),
                kimi("b", "[1]"),
                kimi("c", "{}")
            ),
            &["a", "c"][..],
            "functions.b:0",
        ),
        (CallFormat::Mistral, listed(wrong), &["a", "c"], wrong),
        (CallFormat::Mistral, listed(cut), &["a"], cut),
        (
            CallFormat::MinimaxM2,
            format!(
                "<minimax:tool_call>{}{}{}</minimax:tool_call>",
                minimax("a", ""),
                minimax("b", "x"),
                minimax("c", "")
            ),
            &["a", "c"],
            "<invoke name=\"b\">x",
        ),
        (CallFormat::Pythonic, "[a(), b(1), c()]".to_owned(), &["a"], "b(1)"),
        (
            CallFormat::Harmony,
            harmony("a", "{}") + &harmony("b", "[1]") + &harmony("c", "{}"),
            &["a", "c"],
            "to=functions.b<|message|>[1]",
        ),
        (CallFormat::Harmony, harmony("a", "{}") + &harmony("", "{}"), &["a"], "to=functions.<|"),
        (
            CallFormat::Hermes,
            format!("<tool_call>{}\n{wrong}\n{}</tool_call>", object("a"), object("c")),
            &["a", "c"],
            wrong,
        ),
        (CallFormat::Llama3Json, format!("{}; {wrong}", object("a")), &["a"], wrong),
    ] {
        let shape = ReplyTextShape { format: Arc::new(of_calls(format)), ..chat() };
        let (mut names, mut content) = (Vec::new(), String::new());
        for part in pieces(&tokenizer, &[&text], &[], shape) {
            match part {
                ReplyPart::Call(call) => names.push(call.name),
                ReplyPart::Content(text) => content.push_str(&text),
                ReplyPart::Reasoning(text) => panic!("{text}"),
            }
        }
        assert_eq!(names, calls, "{text}");
        assert!(content.contains(shown), "{text}: {content}");
        let hidden = calls.iter().find(|name| content.contains(&format!("functions.{name}")));
        assert_eq!(hidden, None, "{text}: {content}");
    }
}

#[test]
fn a_tag_in_a_string_of_a_call_does_not_end_the_call_however_the_reply_is_cut() {
    let tokenizer = tokenizer();
    for within in ["see <tool_call> here", "</tool_call>", "</tool_call><tool_call>", "a </think>"]
    {
        let arguments = json!({"text": within});
        let object = json!({"name": "f", "arguments": arguments}).to_string();
        let wanted = call("f", &arguments);
        let hermes = format!("Well. <tool_call>\n{object}\n</tool_call>");
        let after = format!("{hermes} then");
        let cut: Vec<String> = hermes.chars().map(String::from).collect();
        let cut: Vec<&str> = cut.iter().map(String::as_str).collect();
        for (parts, expected) in [
            (vec![hermes.as_str()], vec![content("Well. "), wanted.clone()]),
            (cut, vec![content("Well. "), wanted.clone()]),
            (vec![&after], vec![content("Well.  then"), wanted.clone()]),
            (vec![&object], vec![wanted.clone()]),
        ] {
            assert_eq!(pieces(&tokenizer, &parts, &[], chat()), expected, "{parts:?}");
        }
    }
}

#[test]
fn a_reply_ends_before_the_first_stop_string() {
    let tokenizer = tokenizer();
    let stops = ["STOP".to_owned(), "\n\n".to_owned()];
    for (text, expected) in
        [("a STOP b", "a "), ("a\n\nSTOP", "a"), ("a STO", "a STO"), ("STOP", "")]
    {
        let parts = pieces(&tokenizer, &[text], &stops, ReplyTextShape::default());
        let found: String = parts
            .iter()
            .map(|part| match part {
                ReplyPart::Content(text) => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

/// Texts of which stop strings, tags and characters of several bytes are made.
fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        " ",
        "\n",
        "<",
        "think>",
        "</",
        "tool_call>",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"f\", \"arguments\": {}}",
        "{",
        "```",
        "é",
        "語",
        "ST",
        "OP",
        "STOP",
        "|python_tag|>",
        "<function=f>",
        "[TOOL_CALLS]",
        "f[ARGS]{}",
        "[f()]",
        "<|tool_call>call:f{}",
        "<｜tool▁call▁begin｜>",
        "<|channel|>",
        "<|start|>assistant",
        "final",
        "analysis",
        " to=functions.f",
        "<|message|>",
        "<|end|>",
    ])
}

#[test]
fn texts_that_follow_each_other_are_one_part_and_calls_stay_apart() {
    let content = |text: &str| ReplyPart::Content(text.to_owned());
    let reasoning = |text: &str| ReplyPart::Reasoning(text.to_owned());
    let call = || ReplyPart::Call(Call { name: "f".to_owned(), arguments: Default::default() });
    let mut parts = vec![reasoning("a")];
    ReplyPart::append(&mut parts, vec![reasoning("b"), content("c")]);
    ReplyPart::append(&mut parts, Vec::new());
    ReplyPart::append(&mut parts, vec![content("d"), call(), call(), content("e")]);
    ReplyPart::append(&mut parts, vec![content("f")]);
    let expected = [reasoning("ab"), content("cd"), call(), call(), content("ef")];
    assert_eq!(parts, expected);
}

#[test]
fn ends_of_lines_after_the_tag_of_thoughts_are_dropped_however_the_reply_is_cut() {
    let tokenizer = tokenizer_once();
    let shape = ReplyTextShape { calls: 0, ..chat() };
    let whole = pieces(tokenizer, &["<think>\n\nabc"], &[], shape.clone());
    assert_eq!(whole, [ReplyPart::Reasoning("abc".to_owned())]);
    for cut in [&["<think>", "\n\nabc"][..], &["<think>\n", "\n", "abc"]] {
        assert_eq!(pieces(tokenizer, cut, &[], shape.clone()), whole, "{cut:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn however_a_reply_is_cut_its_parts_are_the_same(
        fragments in prop::collection::vec(fragment(), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        thinking in any::<bool>(),
        thoughts in any::<bool>(),
        calls in prop::sample::select(vec![0, 1, usize::MAX]),
        tagged in any::<bool>(),
        format in prop::sample::select(CallFormat::ALL.to_vec()),
        stops in prop::sample::subsequence(vec!["STOP".to_owned(), "\n\n".to_owned(), "k>\n".to_owned(), "語a".to_owned()], 0..4),
    ) {
        let tokenizer = tokenizer_once();
        let text = fragments.concat();
        let format = Arc::new(of_calls(format));
        let shape = ReplyTextShape { thinking, thoughts, calls, tagged, format, ..ReplyTextShape::default() };
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let mut cuts: Vec<usize> = if places.is_empty() {
            Vec::new()
        } else {
            cuts.iter().map(|cut| *cut.get(&places)).collect()
        };
        cuts.sort_unstable();
        cuts.push(text.len());
        let (mut from, mut cut) = (0, Vec::new());
        for to in cuts {
            cut.push(&text[from..to]);
            from = to;
        }
        let whole = pieces(tokenizer, &[&text], &stops, shape.clone());
        prop_assert_eq!(pieces(tokenizer, &cut, &stops, shape), whole);
    }

    #[test]
    fn the_parts_of_sampled_tokens_joined_are_their_text(ids in prop::collection::vec(0..500_u32, 0..60)) {
        let tokenizer = tokenizer_once();
        let mut reader = ReplyText::new(tokenizer.detokenizer(), &[], ReplyTextShape::default());
        let mut parts: Vec<ReplyPart> = ids.iter().flat_map(|&id| reader.push(id)).collect();
        parts.extend(reader.finish());
        let text: String = parts.into_iter().map(|part| match part {
            ReplyPart::Content(text) => text,
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(text, tokenizer.decode(&ids));
    }
}

fn tokenizer_once() -> &'static Tokenizer {
    static ONCE: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    ONCE.get_or_init(tokenizer)
}
