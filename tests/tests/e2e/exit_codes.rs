//! Exit codes of the commands, and of `inspect` for directories that other commands refuse.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use maverl_tests::lab::{Ended, Lab};
use serde_json::{Map, Value, json};

use crate::lab;

/// Changes the header of a model's weights.
fn change_header(dir: &Path, change: impl FnOnce(&mut Map<String, Value>)) {
    let path = dir.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let length = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Map<String, Value> = serde_json::from_slice(&bytes[8..length]).unwrap();
    change(&mut header);
    let header = Value::Object(header).to_string().into_bytes();
    let changed = [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[length..]].concat();
    fs::write(path, changed).unwrap();
}

/// Changes a key of a model's configuration.
fn set_key(dir: &Path, key: &str, value: Value) {
    let path = dir.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config[key] = value;
    fs::write(path, config.to_string()).unwrap();
}

/// Gives tensors other names.
fn rename(dir: &Path, from: &str, to: &str) {
    change_header(dir, |header| {
        *header = header.iter().map(|(name, it)| (name.replace(from, to), it.clone())).collect();
    });
}

/// Adds a tensor without values to each layer.
fn add_to_layers(dir: &Path, name: &str) {
    change_header(dir, |header| {
        let end = header.values().filter_map(|it| it["data_offsets"][1].as_u64()).max().unwrap();
        for layer in 0..2 {
            let entry = json!({ "dtype": "F32", "shape": [0], "data_offsets": [end, end] });
            header.insert(format!("model.layers.{layer}.{name}"), entry);
        }
    });
}

/// Ends of `inspect`, `score`, `generate` and `export` for a directory.
fn ends(lab: &Lab, dir: &str) -> [Ended; 4] {
    let out = format!("{dir}-out");
    [
        &["inspect", dir][..],
        &["score", "--model", dir, "--input", "texts.jsonl", "--output", &format!("{out}.jsonl")],
        &["generate", "--model", dir, "--prompt", "question", "--max-tokens", "2"],
        &["export", "--model", dir, "--out", &out],
    ]
    .map(|args| lab.run(args))
}

#[test]
fn inspect_fails_for_every_directory_that_score_generate_and_export_refuse() {
    let lab = lab();
    lab.write("texts.jsonl", "{\"text\": \"question answer\"}\n");
    type Change = fn(&Path);
    let refused: [(&str, Change); 24] = [
        ("a norm before the MLP, as Gemma 2 has", |dir| {
            add_to_layers(dir, "pre_feedforward_layernorm.weight")
        }),
        ("a norm after the MLP, as Gemma 2 has", |dir| {
            add_to_layers(dir, "post_feedforward_layernorm.weight")
        }),
        ("a norm after attention alone, as OLMo has", |dir| {
            rename(dir, "input_layernorm", "post_feedforward_layernorm")
        }),
        ("norms of queries", |dir| add_to_layers(dir, "self_attn.q_norm.weight")),
        ("norms of heads that are missing", |dir| set_key(dir, "model_type", json!("qwen3"))),
        ("biases of another family", |dir| set_key(dir, "model_type", json!("llama"))),
        ("a bias that is missing", |dir| {
            set_key(dir, "model_type", json!("llama"));
            set_key(dir, "attention_bias", json!(true));
        }),
        ("experts", |dir| add_to_layers(dir, "mlp.experts.0.gate_proj.weight")),
        ("a bias of the head", |dir| rename(dir, "model.norm.weight", "lm_head.bias")),
        ("a part of a larger model", |dir| rename(dir, "model.", "language_model.model.")),
        ("names of another library", |dir| rename(dir, "model.layers", "transformer.h")),
        ("a layer too many", |dir| set_key(dir, "num_hidden_layers", json!(1))),
        ("a layer too few", |dir| set_key(dir, "num_hidden_layers", json!(3))),
        ("another width", |dir| set_key(dir, "intermediate_size", json!(47))),
        ("a row too many", |dir| set_key(dir, "vocab_size", json!(279))),
        ("other heads", |dir| set_key(dir, "num_key_value_heads", json!(2))),
        ("another activation", |dir| set_key(dir, "hidden_act", json!("gelu"))),
        ("quantized", |dir| set_key(dir, "quantization_config", json!({"quant_method": "gptq"}))),
        ("another type of numbers", |dir| {
            change_header(dir, |header| {
                for entry in header.values_mut().filter(|entry| entry["dtype"] == "F32") {
                    entry["dtype"] = json!("I32");
                }
            });
        }),
        ("a template that is not closed", |dir| {
            fs::write(dir.join("chat_template.jinja"), "{% if messages %}").unwrap();
        }),
        ("an index alone that leads elsewhere", |dir| {
            fs::rename(dir.join("model.safetensors"), dir.join("weights.safetensors")).unwrap();
            let index =
                json!({ "weight_map": { "model.norm.weight": "../model/model.safetensors" } });
            fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
        }),
        ("a vocabulary without an end", |dir| {
            fs::remove_file(dir.join("tokenizer.json")).unwrap();
            std::os::unix::fs::symlink("/dev/zero", dir.join("tokenizer.json")).unwrap();
        }),
        ("a configuration that is a pipe", |dir| {
            fs::remove_file(dir.join("config.json")).unwrap();
            let made = std::process::Command::new("mkfifo").arg(dir.join("config.json")).status();
            assert!(made.unwrap().success());
        }),
        ("weights that are a device", |dir| {
            fs::remove_file(dir.join("model.safetensors")).unwrap();
            std::os::unix::fs::symlink("/dev/zero", dir.join("model.safetensors")).unwrap();
        }),
    ];
    for (n, (name, change)) in refused.into_iter().enumerate() {
        let dir = format!("refused-{n}");
        lab.model(&dir, 64);
        change(&lab.path(&dir));
        for (command, ended) in
            ["inspect", "score", "generate", "export"].iter().zip(ends(&lab, &dir))
        {
            let orderly = ended.stderr.contains("error: ") && !ended.stderr.contains("panicked at");
            assert!(ended.code == Some(1) && orderly, "{name}: {command}: {ended}");
        }
    }
    let used: [(&str, Change); 4] = [
        ("as it is", |_| ()),
        ("a key of another family, with a warning", |dir| {
            set_key(dir, "attn_logit_softcapping", json!(50.0));
        }),
        ("positions that older versions stored", |dir| {
            add_to_layers(dir, "self_attn.rotary_emb.inv_freq");
        }),
        ("a template that refuses what it is shown", |dir| {
            fs::write(dir.join("chat_template.jinja"), "{{ raise_exception('no') }}").unwrap();
        }),
    ];
    for (n, (name, change)) in used.into_iter().enumerate() {
        let dir = format!("used-{n}");
        lab.model(&dir, 64);
        change(&lab.path(&dir));
        for (command, ended) in
            ["inspect", "score", "generate", "export"].iter().zip(ends(&lab, &dir))
        {
            assert_eq!(ended.code, Some(0), "{name}: {command}: {ended}");
        }
    }
}

#[test]
fn a_key_of_another_family_is_named_by_every_command_that_reads_the_model() {
    let lab = lab();
    lab.write("texts.jsonl", "{\"text\": \"question answer\"}\n");
    lab.model("odd", 256);
    set_key(&lab.path("odd"), "attn_logit_softcapping", json!(50.0));
    let [inspect, score, generate, export] = ends(&lab, "odd");
    let check = lab.run(&["check", "run.toml", "--set", "models.tiny.path=\"odd\""]);
    for (command, ended) in [
        ("inspect", inspect),
        ("score", score),
        ("generate", generate),
        ("export", export),
        ("check", check),
    ] {
        let ended = ended.succeeded();
        let words = format!("{} {}", ended.stdout, ended.stderr);
        let words = words.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>();
        let text = words.join(" ");
        for part in ["`attn_logit_softcapping` (50.0)", "does not read"] {
            assert!(text.contains(part), "{command}: {part:?} is missing in\n{ended}");
        }
    }
}

/// Returns the names of the commands, as the help lists them.
pub(crate) fn listed(lab: &Lab) -> BTreeSet<String> {
    let help = lab.run(&["--help"]).succeeded().stdout;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let named = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_command_ends_with_0_if_it_did_its_work_with_1_if_not_and_with_2_for_wrong_arguments() {
    let lab = lab();
    lab.train("run", &["steps=1", "eval.before_and_after=false"]);
    lab.write("graded.jsonl", "{\"answer\": \"1\", \"truth\": \"2\"}\n");
    lab.write("texts.jsonl", "{\"text\": \"question answer\"}\n");
    lab.write("broken.jsonl", "{\"text\": \n");
    let cases: &[(i32, &[&str])] = &[
        (1, &["new", "not a name"]),
        (0, &["list"]),
        (2, &["list", "more"]),
        (0, &["examples"]),
        (1, &["examples", "example:nothing"]),
        (0, &["doctor"]),
        (2, &["doctor", "more"]),
        (0, &["explain", "steps"]),
        (1, &["explain", "no_such_key"]),
        (0, &["schema"]),
        (0, &["check", "run.toml"]),
        (1, &["check", "run.toml", "--set", "steps=many"]),
        (1, &["check", "run.toml", "--set", "steps=many", "--json"]),
        (1, &["check", "nowhere.toml"]),
        (1, &["train", "nowhere.toml"]),
        (1, &["train", "run.toml", "--out", "run"]),
        (1, &["train", "--resume", "nowhere"]),
        (0, &["eval", "--run", "run"]),
        (1, &["eval", "--run", "nowhere"]),
        (0, &["info"]),
        (0, &["info", "run"]),
        (1, &["info", "nowhere"]),
        (0, &["runs", "."]),
        (1, &["runs", "model"]),
        (1, &["track", "run", "--to", "mlflow"]),
        (2, &["track", "run", "--to", "nothing"]),
        (0, &["replay", "run", "1"]),
        (1, &["replay", "run", "99"]),
        (0, &["view", "run", "--static", "page.html"]),
        (1, &["view", "nowhere", "--static", "page.html"]),
        (0, &["show", "run", "1", "--worst", "1"]),
        (1, &["show", "run", "99"]),
        (2, &["show", "run", "1", "--worst", "0"]),
        (0, &["extract", "run", "metrics", "--out", "metrics.csv"]),
        (1, &["extract", "run", "metrics", "--out", "no/folder/metrics.csv"]),
        (2, &["extract", "run", "nothing", "--out", "nothing.csv"]),
        (0, &["generate", "--model", "model", "--prompt", "question", "--max-tokens", "2"]),
        (1, &["generate", "--model", "nowhere", "--prompt", "question"]),
        (2, &["generate", "--model", "model", "--prompt", "question", "--max-tokens", "0"]),
        (0, &["score", "--model", "model", "--input", "texts.jsonl", "--output", "scores.jsonl"]),
        (1, &["score", "--model", "model", "--input", "broken.jsonl", "--output", "none.jsonl"]),
        (0, &["grade", "math", "--input", "graded.jsonl", "--output", "grades.jsonl"]),
        (1, &["grade", "math", "--input", "broken.jsonl", "--output", "none.jsonl"]),
        (0, &["collect", "--from", "run", "--as", "sft", "--out", "rows"]),
        (1, &["collect", "--from", "run", "--as", "sft", "--out", "rows"]),
        (1, &["collect", "--from", "run", "--as", "sft", "--out", "none", "--min-reward", "9"]),
        (0, &["data", "texts.jsonl"]),
        (1, &["data", "nowhere.jsonl"]),
        (2, &["data", "texts.jsonl", "--rows", "0"]),
        (0, &["inspect", "model"]),
        (1, &["inspect", "rows"]),
        (0, &["export", "--run", "run", "--out", "exported"]),
        (1, &["export", "--run", "run", "--out", "exported"]),
        (1, &["export", "--run", "run", "--checkpoint", "77", "--out", "none"]),
        (1, &["new-model", "--like", "bench-s", "--out", "exported"]),
        (2, &["new-model", "--like", "no-shape", "--out", "none"]),
        (1, &["serve", "model", "--model", "nowhere", "--address", "127.0.0.1:0"]),
        (1, &["serve", "model", "--model", "model", "--address", "192.0.2.1:0"]),
        (1, &["serve", "team", "nowhere.toml", "--address", "127.0.0.1:0"]),
        (1, &["serve", "environment", "nowhere.toml", "--address", "127.0.0.1:0"]),
        (1, &["serve", "retriever", "nowhere.jsonl", "--address", "127.0.0.1:0"]),
        (1, &["serve", "reward", "--judge", "nobody", "--address", "127.0.0.1:0"]),
        (1, &["serve", "train", "--model", "nowhere", "--out", "o", "--address", "127.0.0.1:0"]),
        (0, &["launch", "slurm", "run.toml"]),
        (1, &["launch", "jobset", "run.toml"]),
        (1, &["launch", "slurm", "nowhere.toml"]),
        (2, &["launch", "nothing", "run.toml"]),
        (2, &["bench", "nothing"]),
        (2, &["gpu", "check"]),
        (2, &["device", "nothing"]),
        (1, &["device", "check", "cpu"]),
        (0, &["completions", "bash"]),
        (2, &["completions", "command.com"]),
        (0, &["help", "train"]),
        (2, &["help", "nothing"]),
        (2, &["nothing"]),
        (2, &[]),
    ];
    for (code, args) in cases {
        let ended = lab.run(args);
        assert_eq!(ended.code, Some(*code), "{}: {ended}", args.join(" "));
        assert!(!ended.stderr.contains("panicked at"), "{}: {ended}", args.join(" "));
        if *code != 0 && !args.is_empty() && !args.contains(&"--json") {
            assert!(ended.stderr.contains("error: "), "{}: {ended}", args.join(" "));
        }
    }
    let tried: BTreeSet<String> =
        cases.iter().filter_map(|(_, args)| args.first()).map(|name| (*name).to_owned()).collect();
    let known = listed(&lab);
    assert!(known.len() > 20, "{known:?}");
    assert_eq!(known.difference(&tried).collect::<Vec<_>>(), Vec::<&String>::new());
    for name in known.iter().filter(|name| *name != "help") {
        let ended = lab.run(&[name, "--no-such-argument"]);
        assert_eq!(ended.code, Some(2), "{name}: {ended}");
    }
}
