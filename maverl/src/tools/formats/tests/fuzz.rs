//! Any text is read without a panic, in a time that is linear in its length.

use super::*;

/// Pieces of calls of all forms.
const PIECES: [&str; 63] = [
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "<function=f>",
    "</function>",
    "<parameter=",
    "<parameter=x>",
    "</parameter>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "f",
    "[f(",
    "x=",
    "1",
    "\"",
    "'",
    "\\",
    "\\u12",
    ")]",
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\n",
    " ",
    "```",
    "<|tool_call>",
    "call:f{",
    "<tool_call|>",
    "<|\"|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜DSML｜invoke name=\"f\">",
    "<｜DSML｜parameter name=\"x\" string=\"false\">",
    "</｜DSML｜parameter>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "functions.f:0",
    "<invoke name=\"f\">",
    "<parameter name=\"x\">",
    "<|channel|>",
    "<|start|>",
    "<|message|>",
    " to=functions.f",
    "<|call|>",
    "<|end|>",
    "<think>",
    "</think>",
    "é",
    "<|tool_call_start|>",
    "true",
    "→",
];

fn formats() -> impl Iterator<Item = CallFormat> {
    [CallFormat::Auto].into_iter().chain(CallFormat::ALL)
}

/// Reads a text in every way.
fn read_everything(text: &str, tools: &[Value]) {
    for format in formats() {
        calls(text, format, tools);
        let segments = split_calls(text, format, tools);
        let joined: String = segments.iter().map(|segment| segment.text).collect();
        assert_eq!(joined, text, "{format:?}");
        let canonical = ReplyFormat::of_calls(format);
        canonical.canonical_reply(text, "", tools);
    }
    let channels: String = split_channels(text).iter().map(|part| part.text).collect();
    assert_eq!(channels, text);
}

#[test]
fn any_text_is_read_whole_and_without_a_panic() {
    let tools = declare(&[("f", json!({"x": {"type": "integer"}, "y": {"type": "array"}}))]);
    let mut draw = Draw(11);
    // Each text is read in 15 forms: a million readings in the second tier.
    for _ in 0..case_count(300, 70_000) {
        let text: String = (0..draw.below(24)).map(|_| draw.pick(&PIECES)).collect();
        read_everything(&text, &tools);
    }
}

/// Returns the seconds in which a text is read, the best of three.
fn reading_time(text: &str, format: CallFormat, tools: &[Value]) -> f64 {
    let once = |_| {
        let begin = std::time::Instant::now();
        calls(text, format, tools);
        begin.elapsed().as_secs_f64()
    };
    (0..3).map(once).fold(f64::MAX, f64::min)
}

#[test]
#[ignore = "a measurement of time"]
fn four_times_the_text_takes_four_times_the_time() {
    let tools = declare(&[("f", json!({"x": {"type": "integer"}}))]);
    let mut draw = Draw(3);
    let mut units: Vec<String> = PIECES.iter().map(|piece| (*piece).to_owned()).collect();
    units.extend((0..60).map(|_| (0..2 + draw.below(4)).map(|_| draw.pick(&PIECES)).collect()));
    for format in formats() {
        let (mut short, mut long) = (0.0, 0.0);
        for unit in &units {
            let times = [1 << 14, 1 << 16]
                .map(|bytes| reading_time(&unit.repeat(bytes / unit.len()), format, &tools));
            if times[1] > 0.02 {
                println!("{format:?}: {unit:?}: {times:?}");
            }
            short += times[0];
            long += times[1];
        }
        println!("{format:?}: {short:.4} s, {long:.4} s for 4 times the text");
        assert!(long < 8.0 * short, "{format:?}: {short} s, {long} s");
    }
    let tags = "<tool_call>".repeat((1 << 20) / 11);
    println!("1 MB of <tool_call>: {:.4} s", reading_time(&tags, CallFormat::QwenXml, &tools));
}
