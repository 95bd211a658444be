//! Rows of supervised training: what of a conversation is trained on, and what is refused by name.

use std::fs;
use std::path::Path;

use maverl_tests::lab::{Ended, Lab, Run};
use serde_json::{Value, json};

use crate::lab;

/// Longest sequence of the model in these tests.
const CONTEXT: usize = 512;

/// A laboratory with a model whose tokens are bytes, and whose template shows tools, calls and thoughts.
fn tools() -> Lab {
    let lab = lab();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tools");
    fs::create_dir(lab.path("tools")).unwrap();
    for file in fs::read_dir(fixture).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), lab.path("tools").join(file.file_name())).unwrap();
    }
    let config = fs::read_to_string(lab.path("tools/config.json")).unwrap();
    let context = format!("\"max_position_embeddings\": {CONTEXT}");
    lab.write("tools/config.json", &config.replace("\"max_position_embeddings\": 4096", &context));
    lab
}

/// Writes `rows.jsonl` and the configuration of an algorithm that trains on all of them in a step.
fn write(lab: &Lab, algorithm: &str, rows: &[Value]) {
    lab.write("rows.jsonl", &rows.iter().map(|row| format!("{row}\n")).collect::<String>());
    let n = rows.len();
    lab.write(
        "rows.toml",
        &format!(
            "steps = 1\n[task]\ndata = \"rows.jsonl\"\ntasks_per_step = {n}\nsplit = \"all\"\nshuffle = false\n[orchestra]\n\
             name = \"duo/relay\"\n[environment]\nname = \"letters\"\n[sampling]\nmax_tokens = 8\n[models.m]\n\
             path = \"tools\"\noptim = {{ lr = 1e-12 }}\n[algorithm]\nname = \"{algorithm}\"\n"
        ),
    );
}

fn trained(lab: &Lab, out: &str, set: &[&str]) -> Value {
    let mut args = vec!["train", "rows.toml", "--out", out];
    args.extend(set.iter().flat_map(|set| ["--set", *set]));
    lab.run(&args).succeeded();
    Run(lab.path(out)).rows().remove(0)
}

fn checked(lab: &Lab, set: &[&str]) -> Ended {
    let mut args = vec!["check", "rows.toml"];
    args.extend(set.iter().flat_map(|set| ["--set", *set]));
    lab.run(&args)
}

/// Returns the number of trained tokens of a row.
fn tokens(lab: &Lab, out: &str, row: &Value) -> f64 {
    write(lab, "sft", std::slice::from_ref(row));
    trained(lab, out, &[])["policy/m/tokens"].as_f64().unwrap()
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn reply(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

fn call(arguments: &Value) -> Value {
    json!({ "id": "c1", "type": "function", "function": { "name": "lookup", "arguments": arguments } })
}

fn lookup() -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let function = json!({ "name": "lookup", "description": "d", "parameters": parameters });
    json!([{ "type": "function", "function": function }])
}

#[test]
fn a_demonstration_of_a_call_trains_the_call_as_transformers_renders_it() {
    let lab = tools();
    let calls = json!({ "role": "assistant", "content": "", "tool_calls": [call(&json!({"city": "Rome"}))] });
    write(&lab, "sft", &[json!({ "messages": [user("hi"), calls], "tools": lookup() })]);
    let row = trained(&lab, "calls", &[]);
    // transformers 5.24 and torch on the same files: `<tool_call>..</tool_call><|im_end|>`.
    assert_eq!(row["policy/m/tokens"], 52.0);
    let loss = row["policy/m/pg_loss"].as_f64().unwrap();
    assert!((loss - 6.322_765).abs() < 1e-5, "{loss}");
    // The forms of OpenAI and of Parquet files: `content` is null, arguments and tools are texts.
    let text = call(&json!("{\"city\": \"Rome\"}"));
    let written =
        json!({ "role": "assistant", "content": null, "tool_calls": [text], "refusal": null });
    let tools = lookup().to_string();
    write(&lab, "sft", &[json!({ "messages": [user("hi"), written], "tools": tools, "id": 3 })]);
    assert_eq!(trained(&lab, "openai", &[])["policy/m/pg_loss"], row["policy/m/pg_loss"]);
}

#[test]
fn calls_are_trained_whole_in_pairs_and_in_self_play_too() {
    let lab = tools();
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call(&json!({"city": "Rome"}))] });
    let pair = |chosen: &Value, rejected: &Value| json!({ "prompt": [user("hi")], "chosen": chosen, "rejected": rejected, "tools": lookup() });
    // 52 tokens of the call, as of a demonstration, and three of the text with its end of turn.
    for (name, row) in [
        ("better", pair(&json!([calls]), &json!("no"))),
        ("worse", pair(&json!("no"), &json!([calls]))),
    ] {
        write(&lab, "dpo", &[row]);
        assert_eq!(trained(&lab, name, &[])["policy/m/tokens"], 52.0 + 3.0, "{name}");
    }
    // In self-play, a reply of at most eight tokens of its own is rejected.
    write(&lab, "spin", &[json!({ "messages": [user("hi"), calls], "tools": lookup() })]);
    let tokens = trained(&lab, "spin", &[])["policy/m/tokens"].as_f64().unwrap();
    assert!((52.0 + 1.0..=52.0 + 8.0).contains(&tokens), "{tokens}");
}

#[test]
fn variables_of_the_template_are_rendered_from_the_row_and_from_the_model() {
    let lab = tools();
    let template = fs::read_to_string(lab.path("tools/chat_template.jinja")).unwrap();
    let ends = template.replacen(
        "{{ m.content or \"\" }}",
        "{{ m.content or \"\" }}{% if m.role == \"assistant\" %}{{ mood }}{% endif %}",
        1,
    );
    let asks = ends.replace(
        "<|im_start|>assistant\n{% endif %}",
        "<|im_start|>assistant\n{% if mood is defined %}({{ mood }}){% endif %}{% endif %}",
    );
    assert_ne!(template, ends);
    lab.write("tools/chat_template.jinja", &ends);
    let row = |kwargs: Value| json!({ "messages": [user("a"), reply("one")], "chat_template_kwargs": kwargs });
    let of_model = "models.m.chat_template_kwargs={ mood = \"calm\" }";
    for (name, row, set, text) in [
        ("without", json!({ "messages": [user("a"), reply("one")] }), &[][..], "one"),
        ("row", row(json!({ "mood": "glad" })), &[], "oneglad"),
        ("texts", row(json!("{\"mood\": \"glad\"}")), &[], "oneglad"),
        ("model", json!({ "messages": [user("a"), reply("one")] }), &[of_model], "onecalm"),
        ("both", row(json!({ "mood": "merry" })), &[of_model], "onemerry"),
    ] {
        write(&lab, "sft", &[row]);
        let tokens = trained(&lab, &format!("mood-{name}"), set)["policy/m/tokens"].as_f64();
        assert_eq!(tokens, Some(text.len() as f64 + 1.0), "{name}");
    }
    // Prompts of agents have those of the model.
    lab.write("tools/chat_template.jinja", &asks);
    let prompt = |out: &str, more: &[&str]| {
        let set = ["models.tiny.path=\"tools\"", "steps=1", "eval.before_and_after=false"];
        let run = lab.train(out, &[&set[..], more].concat());
        run.episodes(1)[0].turns[0].tokens.as_ref().unwrap().prompt.len()
    };
    let of_model = "models.tiny.chat_template_kwargs={ mood = \"calm\" }";
    assert_eq!(prompt("calm", &[of_model]) - prompt("plain", &[]), "(calm)".len());
}

#[test]
fn each_message_is_trained_as_its_mark_says() {
    let lab = tools();
    let marked = |text: &str, key: &str, mark: Value| {
        let mut message = reply(text);
        message[key] = mark;
        message
    };
    // Each reply has its bytes and the end of turn.
    let (one, two) = (4.0, 6.0);
    let rows = [
        (json!([user("a"), reply("one"), user("b"), reply("three")]), two),
        (
            json!([user("a"), marked("one", "train", json!(true)), user("b"), reply("three")]),
            one + two,
        ),
        (json!([user("a"), marked("one", "weight", json!(0)), user("b"), reply("three")]), two),
        (
            json!([
                user("a"),
                marked("one", "weight", json!(1.0)),
                user("b"),
                marked("three", "weight", json!(0))
            ]),
            one,
        ),
        (json!([user("a"), reply("one"), user("b"), marked("three", "loss_mask", json!(0))]), one),
        (json!([user("a"), marked("one", "train", json!(null)), user("b"), reply("three")]), two),
    ];
    for (i, (messages, expected)) in rows.iter().enumerate() {
        let found = tokens(&lab, &format!("marks-{i}"), &json!({ "messages": messages }));
        assert_eq!(found, *expected, "{messages}");
    }
    // Thoughts are shown by the name that the template reads, whatever they are called in the row.
    for key in ["reasoning_content", "reasoning", "thinking"] {
        let row = json!({ "messages": [user("a"), marked("one", key, json!("hm"))] });
        assert_eq!(tokens(&lab, key, &row), 4.0 + 4.0, "{key}");
    }
}

#[test]
fn a_row_that_is_longer_than_the_context_is_an_error_left_out_or_cut() {
    let lab = tools();
    let long = "hi ".repeat(300);
    let sft = |text: &str| json!({ "messages": [user(text), reply("yes")] });
    let dpo = |text: &str| json!({ "prompt": text, "chosen": "yes", "rejected": "no, no" });
    let judged = |text: &str| {
        [true, false].map(|right| {
        json!({ "prompt": text, "completion": if right { "yes" } else { "no" }, "label": right })
    })
    };
    let verifier: Vec<Value> = ["a", "b", &long].iter().flat_map(|text| judged(text)).collect();
    let cases = [
        ("sft", vec![sft("a"), sft(&long), sft("b")], 1),
        ("spin", vec![sft("a"), sft(&long), sft("b")], 1),
        ("dpo", vec![dpo("a"), dpo(&long), dpo("b")], 1),
        ("verifier", verifier, 2),
    ];
    for (algorithm, rows, unfit) in cases {
        write(&lab, algorithm, &rows);
        let first = rows.iter().position(|row| row.to_string().len() > CONTEXT).unwrap() + 1;
        let counted =
            format!("{unfit} of {} rows are longer than the context of {CONTEXT}", rows.len());
        let place = format!("rows.jsonl:{first} (");
        checked(&lab, &[]).failed().says(&[&counted, &place, "task.overlong"]);
        let refused = lab.run(&["train", "rows.toml", "--out", "refused"]);
        refused.failed().says(&[&counted, &place, "task.overlong"]);
        assert!(!lab.path("refused").exists(), "{algorithm}");
        for (value, what) in [("drop", "they are left out"), ("truncate", "they are cut")] {
            let set = format!("task.overlong=\"{value}\"");
            checked(&lab, &[&set]).succeeded().prints(&[&counted, what]);
            let row = trained(&lab, &format!("{algorithm}-{value}"), &[&set]);
            let loss = ["policy/m/loss", "policy/m/pg_loss", "verifier/loss"]
                .iter()
                .find_map(|key| row[*key].as_f64());
            assert!(loss.is_some_and(f64::is_finite), "{algorithm} {value}: {row}");
        }
    }
    // The beginning of the prompt is cut, and the whole reply is trained on.
    write(&lab, "sft", &[sft(&long)]);
    let set = "task.overlong=\"truncate\"";
    assert_eq!(trained(&lab, "cut", &[set])["policy/m/tokens"], 4.0);
    write(&lab, "sft", &[json!({ "prompt": "a", "completion": long })]);
    assert_eq!(trained(&lab, "reply", &[set])["policy/m/tokens"], (CONTEXT - 1) as f64);
    checked(&lab, &["task.overlong=\"drop\""]).failed().says(&["1 of 1 rows are longer"]);
}

#[test]
fn what_a_template_does_not_show_is_refused_with_its_row() {
    let lab = tools();
    let plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or \"\" }}<|im_end|>\n{% endfor %}\
                 {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    lab.write("tools/chat_template.jinja", plain);
    let calls = json!({ "role": "assistant", "content": "x", "tool_calls": [call(&json!({}))] });
    let thinks = json!({ "role": "assistant", "content": "x", "thinking": "hm" });
    for (row, key) in [
        (json!({ "messages": [user("a"), calls] }), "`tool_calls`"),
        (json!({ "messages": [user("a"), thinks] }), "`thinking`"),
        (json!({ "messages": [user("a"), reply("b")], "tools": lookup() }), "`tools`"),
    ] {
        write(&lab, "sft", &[json!({ "prompt": "a", "completion": "b" }), row]);
        checked(&lab, &[]).failed().says(&["rows.jsonl:2: ", "does not show", key]);
    }
}

#[test]
fn messages_before_a_question_that_no_agent_gets_are_a_warning() {
    let lab = lab();
    let system = json!({ "role": "system", "content": "Use \\boxed{}." });
    let before = json!([system, user("My number is 7."), reply("ok"), user("Add one.")]);
    let rows =
        [json!({ "prompt": before, "answer": "8" }), json!({ "prompt": "2 + 2?", "answer": "4" })];
    lab.write("asked.jsonl", &rows.iter().map(|row| format!("{row}\n")).collect::<String>());
    let set = [
        "--set",
        "task.data=\"asked.jsonl\"",
        "--set",
        "task.split=\"all\"",
        "--set",
        "eval.before_and_after=false",
        "--set",
        "eval.every=0",
    ];
    let args = [&["check", "run.toml"][..], &set].concat();
    lab.run(&args).succeeded().prints(&[
        "1 of 2 tasks have a system message before the question",
        "1 of 2 tasks have messages before the question",
        "a field `history`",
        "`{{ system }}`",
    ]);
    let node = "orchestra={name=\"workflow/graph\",nodes=[{id=\"a\",role=\"{{ system }}\",prompt=\"{{ question }}\"}]}";
    let flow = [&args[..], &["--set", node]].concat();
    let ended =
        lab.run(&flow).succeeded().prints(&["1 of 2 tasks have messages before the question"]);
    assert!(!ended.stdout.contains("have a system message"), "{ended}");
}
