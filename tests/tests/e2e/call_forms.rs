//! Training of a model whose chat template writes calls in the form of Qwen3.5.

use std::fs;

use maverl::task::Action;
use maverl_tests::lab::{Lab, Run};
use serde_json::{Value, json};

use crate::lab;

const DEMONSTRATIONS: &str = r#"
steps = 24
[task]
data = "demonstrations.jsonl"
tasks_per_step = 16
[orchestra]
name = "tools/act"
[environment]
name = "tools"
tools = ["calculator"]
[models.tiny]
path = "qwen"
optim = { lr = 1e-3 }
[algorithm]
name = "sft"
train_on = "replies"
"#;

const ACT: &str = r#"
[task]
data = "sums.jsonl"
tasks_per_step = 4
group_size = 8
[orchestra]
name = "tools/act"
max_turns = 2
[environment]
name = "tools"
tools = ["calculator"]
[sampling]
max_tokens = 80
[models.tiny]
path = "qwen"
optim = { lr = 2e-4 }
[eval]
before_and_after = false
"#;

/// Writes the built-in model with the template, demonstrations of a calculator, and tasks.
fn write_files(lab: &Lab) {
    lab.run(&["export", "--model", "builtin:generalist", "--out", "qwen"]).succeeded();
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/formats/qwen_xml.jinja");
    lab.write("qwen/chat_template.jinja", &fs::read_to_string(template).unwrap());
    let config = lab.path("qwen/tokenizer_config.json");
    let mut config_of: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    config_of.as_object_mut().unwrap().remove("chat_template");
    fs::write(config, config_of.to_string()).unwrap();
    let calculator = json!({ "type": "function", "function": {
        "name": "calculator", "description": "The exact value of numbers with + - * / ^ ( ).",
        "parameters": {
            "type": "object", "properties": { "expression": { "type": "string" } },
            "required": ["expression"], "additionalProperties": false,
        },
    } });
    let sums = (1..20).flat_map(|a| (1..20).map(move |b| (a, b)));
    let demonstration = |(a, b): (i32, i32)| {
        let ask = format!(
            "Question: What is {a} + {b}?\nCall tools as needed.\nWhat is the answer? Reply <answer>words</answer>."
        );
        let function =
            json!({ "name": "calculator", "arguments": { "expression": format!("{a} + {b}") } });
        let messages = json!([
            { "role": "user", "content": ask },
            { "role": "assistant", "content": "", "tool_calls": [{ "type": "function", "function": function }] },
            { "role": "tool", "content": (a + b).to_string() },
            { "role": "assistant", "content": format!("<answer>{}</answer>", a + b) },
        ]);
        format!("{}\n", json!({ "messages": messages, "tools": [calculator] }))
    };
    lab.write("demonstrations.jsonl", &sums.clone().map(demonstration).collect::<String>());
    let task = |(a, b): (i32, i32)| {
        let split = ["train", "test"][((a + b) % 2) as usize];
        let task = json!({ "question": format!("What is {a} + {b}?"), "answers": [(a + b).to_string()], "split": split });
        format!("{task}\n")
    };
    lab.write("sums.jsonl", &sums.map(task).collect::<String>());
    lab.write("demonstrations.toml", DEMONSTRATIONS);
    lab.write("act.toml", ACT);
}

/// Returns the share of malformed replies of a step, and of episodes in which a call was read.
fn shares(run: &Run) -> [f64; 2] {
    let malformed = run.steps()[0]["rollout/tools/caller/reply_error_rate"].as_f64().unwrap();
    let episodes = run.episodes(1);
    let is_read = |act: &maverl::trajectory::Act| matches!(act.action, Action::Tool { .. });
    let read = episodes.iter().filter(|episode| episode.acts.iter().any(is_read)).count();
    [malformed, read as f64 / episodes.len() as f64]
}

#[test]
#[ignore = "second tier: takes half a minute"]
fn a_model_with_the_template_of_qwen_3_5_learns_its_form_of_calls_and_they_are_read() {
    let lab = lab();
    write_files(&lab);
    let act = |out: &str, model: &str, steps: &str| {
        let path = format!("models.tiny.path={model:?}");
        lab.run(&["train", "act.toml", "--out", out, "--steps", steps, "--set", &path]).succeeded();
        Run(lab.path(out))
    };
    let before = shares(&act("before", "qwen", "1"));
    lab.run(&["train", "demonstrations.toml", "--out", "learned"]).succeeded();
    lab.run(&["export", "--run", "learned", "--out", "taught"]).succeeded();
    lab.run(&["inspect", "taught"]).succeeded().prints(&["qwen_xml (from the chat template)"]);
    let run = act("after", "taught", "4");
    let after = shares(&run);
    println!("malformed replies and episodes with a call, before and after: {before:?}, {after:?}");
    assert!(before[1] == 0.0 && after[1] > 0.5, "{before:?}, {after:?}");
    assert!(after[0] < before[0] / 2.0, "{before:?}, {after:?}");
    assert_eq!(run.steps().len(), 4);
}
