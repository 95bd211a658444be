//! Commands about models: `inspect`, `generate`, `score`, `export`, `new-model`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use maverl::files::{HfConfig, ModelFiles, ModelSource};
use maverl::text::Tokenizer;
use maverl_tests::lab::{Lab, Run};
use serde_json::{Value, json};

use crate::lab;

/// Returns the standard output of a successful command, as JSON.
fn json_of(lab: &Lab, args: &[&str]) -> Value {
    serde_json::from_str(&lab.run(args).succeeded().stdout).unwrap()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// Returns the rows of a JSONL file.
fn rows(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Writes an adapter for the test model, as PEFT does: rank 2, alpha 4, on `q_proj` and `down_proj`.
fn adapter(lab: &Lab, name: &str) -> PathBuf {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::<u8>::new());
    for layer in 0..2 {
        for (module, input, output) in [("self_attn.q_proj", 32, 32), ("mlp.down_proj", 48, 32)] {
            for (part, shape) in [("A", [2, input]), ("B", [output, 2])] {
                let start = data.len();
                let numbers = 0..shape[0] * shape[1];
                data.extend(
                    numbers.flat_map(|i| ((i * 37 % 101) as f32 / 200.0 - 0.25).to_le_bytes()),
                );
                let key =
                    format!("base_model.model.model.layers.{layer}.{module}.lora_{part}.weight");
                let entry =
                    json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
                header.insert(key, entry);
            }
        }
    }
    let header = Value::Object(header).to_string().into_bytes();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    let dir = lab.path(name);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("adapter_model.safetensors"), file).unwrap();
    let config = json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "model", "r": 2, "lora_alpha": 4,
        "target_modules": ["q_proj", "down_proj"], "bias": "none", "lora_dropout": 0.0
    });
    fs::write(dir.join("adapter_config.json"), config.to_string()).unwrap();
    dir
}

#[test]
fn inspect_says_what_a_model_is() {
    let lab = lab();
    let text = lab.run(&["inspect", "model"]).succeeded().stdout;
    for part in
        ["Qwen2ForCausalLM, 2 layers", "280 rows", "head tied", "prefix-preserving", "<|im_end|>"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let json = json_of(&lab, &["inspect", "model", "--json"]);
    let layer = 2 * 32 + (32 * 32 + 32) + 2 * (32 * 16 + 16) + 32 * 32 + 3 * 32 * 48;
    assert_eq!(json["parameters"]["total"], 280 * 32 + 2 * layer + 32);
    assert_eq!(json["parameters"]["embedding"], 280 * 32);
    assert_eq!(json["dtypes"]["f32"], json["parameters"]["total"]);
    assert_eq!((&json["context"], &json["tied"]), (&json!(256), &json!(true)));
    assert_eq!(json["chat_template"]["prefix_preserving"], true);
    assert_eq!(json["stop_ids"], json!([2]));
    let built_in = json_of(&lab, &["inspect", "builtin:tiny", "--json"]);
    assert_eq!(built_in["vocabulary"]["rows"], 800);
    lab.run(&["inspect", "builtin:huge"]).failed().says(&["builtin:tiny"]);
}

#[test]
fn inspect_says_in_which_form_a_model_writes_calls_and_thoughts() {
    let lab = lab();
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/formats");
    for (name, calls, thoughts) in [
        ("qwen_xml", "qwen_xml (from the chat template)", "think"),
        (
            "mistral",
            "mistral (from the chat template); no token of the vocabulary: `[TOOL_CALLS]`",
            "[THINK] [/THINK]",
        ),
        ("harmony", "harmony (from the chat template)", "harmony"),
    ] {
        fs::copy(formats.join(format!("{name}.jinja")), lab.path("model/chat_template.jinja"))
            .unwrap();
        let text = lab.run(&["inspect", "model"]).succeeded().stdout;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(calls) && text.contains(thoughts), "{name}: {text}");
        let json = json_of(&lab, &["inspect", "model", "--json"]);
        assert_eq!(
            (&json["replies"]["calls"], &json["replies"]["thoughts"]),
            (&json!(name), &json!(thoughts))
        );
    }
}

#[test]
fn inspect_prints_the_parts_of_the_layers_and_what_is_not_read() {
    let lab = lab();
    let inspect = |name: &str| {
        let model = reference_model(name).display().to_string();
        let json = json_of(&lab, &["inspect", &model, "--json"]);
        let text = lab.run(&["inspect", &model]).succeeded().stdout;
        let kinds = json["layer_kinds"].as_array().unwrap();
        let parts = kinds.iter().map(|kind| kind["parts"].as_str().unwrap().to_owned());
        (parts.collect::<Vec<_>>(), json, text)
    };
    let (parts, json, text) = inspect("gemma3");
    let common = "heads 2/1 of 16, scores times 0.2236068, q/k norm of each head, norms before and after (1 + w), GeGLU 64";
    assert_eq!(
        parts,
        [
            format!("window 7, rope 10000, {common}"),
            format!("full attention, rope 1000000 linear 8, {common}")
        ]
    );
    assert!(
        json["skipped"].as_u64().unwrap() > 500 && text.contains("numbers of vision"),
        "{text}"
    );
    let (parts, json, _) = inspect("phi3");
    let phi = "full attention, rope 10000 longrope, short factors of 0.75 of a head, heads 4/2 of 16, fused maps, norms before, SwiGLU 64";
    assert_eq!((parts, &json["context"]), (vec![phi.to_owned()], &json!(64)));
    let (parts, json, _) = inspect("smollm3");
    assert!(parts[0].starts_with("full attention, rope 2000000, heads 4/1 of 8"), "{parts:?}");
    assert!(parts[1].starts_with("full attention, no rope, heads 4/1 of 8"), "{parts:?}");
    assert_eq!(json["layer_kinds"][1]["layers"], json!([3]));
    let (parts, json, _) = inspect("qwen3_moe");
    let common =
        "full attention, rope 1000000, heads 4/2 of 16, q/k norm of each head, norms before";
    let experts = format!("{common}, 3 of 6 experts of SwiGLU 12");
    assert_eq!(parts, [experts, format!("{common}, SwiGLU 56")]);
    assert_eq!(json["layer_kinds"][1]["layers"], json!([1]));
    let (parts, json, text) = inspect("qwen3_5_moe");
    assert!(parts[1].ends_with(
        "output gate, norms before (1 + w), 2 of 8 experts of SwiGLU 12, a shared one of 12"
    ));
    assert!(json["skipped"].as_u64().unwrap() > 0 && text.contains("numbers of vision"), "{text}");
    let (parts, json, _) = inspect("gpt_oss");
    let common = "rope 150000 yarn 8, heads 4/2 of 16, sinks, norms before, 2 of 4 experts of SwiGLU 32 within 7";
    assert_eq!(parts, ["window 7", "full attention"].map(|kind| format!("{kind}, {common}")));
    assert_eq!(json["dtypes"]["f32"], json["parameters"]["total"]);
}

#[test]
fn score_uses_the_long_factors_of_longrope_if_a_row_needs_them() {
    let lab = lab();
    let model = reference_model("phi3").display().to_string();
    let reference = tensors(&reference_model("phi3").join("reference.safetensors"));
    let (ids, mask) = (&reference["long.input_ids"].1, &reference["long.attention_mask"].1);
    let given = ids.chunks(80).zip(mask.chunks(80)).map(|(ids, mask)| {
        let row = ids.iter().zip(mask).filter(|(_, mask)| **mask == 1.0);
        json!({ "input_ids": row.map(|(id, _)| *id as u64).collect::<Vec<_>>() }).to_string()
    });
    lab.write("in.jsonl", &given.collect::<Vec<_>>().join("\n"));
    let score = ["score", "--model", &model, "--input", "in.jsonl", "--output", "out.jsonl"];
    lab.run(&score).succeeded().says(&["the long factors of LongRoPE are used for all rows"]);
    for (row, scored) in rows(&lab.path("out.jsonl")).iter().enumerate() {
        let expected = &reference["long.logprobs"].1[row * 79..];
        for (found, expected) in floats(&scored["logprobs"]).iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "row {row}: {found}, {expected}");
        }
    }
}

#[test]
fn inspect_says_what_an_adapter_is_and_other_commands_ask_for_its_base() {
    let lab = lab();
    adapter(&lab, "lora");
    let json = json_of(&lab, &["inspect", "lora", "--json"]);
    let parameters = 2 * (2 * (32 + 32) + 2 * (48 + 32));
    assert_eq!((&json["rank"], &json["scale"]), (&json!(2), &json!(2.0)));
    assert_eq!((&json["base"], &json["parameters"]), (&json!("model"), &json!(parameters)));
    assert!(lab.run(&["inspect", "lora"]).succeeded().stdout.contains("rank 2, alpha 4, scale 2"));
    let args = ["generate", "--model", "lora", "--prompt", "x"];
    lab.run(&args).failed().says(&["lora is an adapter", "`--adapter`", "`--model`"]);
    let args = ["generate", "--model", "model", "--adapter", "model", "--prompt", "x"];
    lab.run(&args).failed().says(&["model is no adapter", "adapter_config.json"]);
}

#[test]
fn damaged_directories_end_with_one_message() {
    let lab = lab();
    type Damage = fn(&Path);
    let cases: [(Damage, &str); 6] = [
        (|dir| fs::remove_file(dir.join("config.json")).unwrap(), "config.json"),
        (|dir| fs::write(dir.join("config.json"), "{").unwrap(), "config.json"),
        (|dir| fs::remove_file(dir.join("tokenizer.json")).unwrap(), "tokenizer.json"),
        (|dir| fs::write(dir.join("tokenizer.json"), "{}").unwrap(), "tokenizer.json"),
        (|dir| fs::write(dir.join("model.safetensors"), "short").unwrap(), "model.safetensors"),
        (|dir| fs::write(dir.join("tokenizer_config.json"), "[").unwrap(), "tokenizer_config.json"),
    ];
    for (index, (damage, told)) in cases.iter().enumerate() {
        let name = format!("damaged-{index}");
        lab.model(&name, 64);
        damage(&lab.path(&name));
        lab.run(&["inspect", &name]).failed().says(&[told]);
        lab.run(&["generate", "--model", &name, "--prompt", "x"]).failed().says(&[told]);
        lab.run(&["export", "--model", &name, "--out", "out"]).failed();
        assert!(!lab.path("out").exists());
    }
    lab.run(&["inspect", "nowhere"]).failed().says(&["there is no directory `nowhere`"]);
}

const GENERATE: [&str; 5] = ["generate", "--model", "model", "--prompt", "who answers, Zoë?"];

#[test]
fn generate_streams_the_text_it_reports() {
    let lab = lab();
    let made = |more: &[&str]| {
        let json = json_of(&lab, &[&GENERATE[..], more, &["--json"]].concat());
        let text = lab.run(&[&GENERATE[..], more].concat()).succeeded().stdout;
        // Hidden characters are shown by their numbers.
        let shown = maverl::output::visible(json["text"].as_str().unwrap()).into_owned();
        assert_eq!(text, format!("{shown}\n"));
        json
    };
    let first = made(&["--seed", "1", "--max-tokens", "50"]);
    assert_eq!(first, made(&["--seed", "1", "--max-tokens", "50"]));
    assert_ne!(first["ids"], made(&["--seed", "2", "--max-tokens", "50"])["ids"]);
    let finish = first["finish_reason"].as_str().unwrap();
    assert!(finish == "stop" || (finish == "length" && ids(&first["ids"]).len() == 50));
    let greedy = made(&["--greedy", "--max-tokens", "9"]);
    assert_eq!(greedy["ids"], made(&["--temperature", "0", "--max-tokens", "9"])["ids"]);
    assert_eq!(greedy["ids"], made(&["--top-k", "1", "--seed", "5", "--max-tokens", "9"])["ids"]);
    let chat = made(&["--chat", "--system", "Be brief.", "--max-tokens", "3"]);
    assert_eq!(ids(&chat["prompt_ids"])[0], 1, "the template opens a turn");
    for wrong in [&["--greedy", "--top-k", "3"][..], &["--top-p", "0"], &["--system", "x"]] {
        assert_eq!(lab.run(&[&GENERATE[..], wrong].concat()).code, Some(2), "{wrong:?}");
    }
    lab.run(&["generate", "--model", "model", "--prompt", ""])
        .failed()
        .says(&["`--prompt` is empty"]);
    let long = "who ".repeat(300);
    let long = lab.run(&["generate", "--model", "model", "--prompt", &long]).failed();
    long.says(&["leaves no room in a context of 256"]);
}

#[test]
fn generate_and_score_agree_to_the_bit_with_and_without_an_adapter() {
    let lab = lab();
    adapter(&lab, "lora");
    let mut ids_of = Vec::new();
    for adapter in [&[][..], &["--adapter", "lora"]] {
        let args =
            [&GENERATE[..], adapter, &["--json", "--max-tokens", "60", "--seed", "3"]].concat();
        let made = json_of(&lab, &args);
        let (prompt, made_ids) = (ids(&made["prompt_ids"]), ids(&made["ids"]));
        let row = [&prompt[..], &made_ids].concat();
        lab.write("in.jsonl", &json!({ "input_ids": row }).to_string());
        let score = ["score", "--model", "model", "--input", "in.jsonl", "--output", "out.jsonl"];
        lab.run(&[&score[..], adapter].concat()).succeeded();
        let scored = &rows(&lab.path("out.jsonl"))[0];
        let logprobs = floats(&scored["logprobs"]);
        assert_eq!(logprobs.len() + 1, prompt.len() + made_ids.len());
        assert_eq!(floats(&scored["entropy"]).len(), prompt.len() + made_ids.len());
        assert_eq!(logprobs[prompt.len() - 1..], floats(&made["logprobs"]));
        ids_of.push(made_ids);
    }
    assert_ne!(ids_of[0], ids_of[1], "the adapter does something");
}

const SCORE: [&str; 7] =
    ["score", "--model", "model", "--input", "in.jsonl", "--output", "out.jsonl"];

#[test]
fn score_keeps_the_rows_and_does_not_depend_on_the_batches() {
    let lab = lab();
    // Some editors begin a file with a byte order mark.
    let mut text = String::from("\u{feff}");
    for i in 0..20 {
        let words = "what who when ".repeat(1 + i * 7 % 12);
        let row = match i % 3 {
            0 => json!({ "id": i, "text": words }),
            1 => json!({ "messages": [{ "role": "user", "content": words }], "id": i }),
            _ => json!({ "id": i, "logprobs": "old", "input_ids": [i, 7, 200, 3] }),
        };
        text.push_str(&format!("{row}\n\n"));
    }
    lab.write("in.jsonl", &text);
    let told = lab.run(&SCORE).succeeded().stdout;
    assert!(told.contains("scored 20 rows"), "{told}");
    let whole = fs::read(lab.path("out.jsonl")).unwrap();
    let scored = rows(&lab.path("out.jsonl"));
    for (i, row) in scored.iter().enumerate() {
        let n = ids(&row["input_ids"]).len();
        assert_eq!((&row["id"], floats(&row["logprobs"]).len()), (&json!(i), n - 1));
        assert!(floats(&row["entropy"]).iter().all(|&entropy| entropy > 0.0));
    }
    assert_eq!(
        scored[0].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["id", "text", "input_ids", "logprobs", "entropy"]
    );
    for tokens in ["1", "60"] {
        lab.run(&[&SCORE[..], &["--batch-tokens", tokens]].concat()).succeeded();
        assert_eq!(fs::read(lab.path("out.jsonl")).unwrap(), whole);
    }
    // The output can be scored again.
    let again = ["score", "--model", "model", "--input", "out.jsonl", "--output"];
    lab.run(&[&again[..], &["again.jsonl"]].concat()).succeeded();
    assert_eq!(rows(&lab.path("again.jsonl")), scored);
    let same = lab.run(&[&again[..], &["./out.jsonl"]].concat()).failed();
    same.says(&["`--output` ./out.jsonl is `--input` out.jsonl"]);
}

#[test]
fn every_row_that_cannot_be_scored_is_named_and_nothing_is_written() {
    let lab = lab();
    let bad = [
        ("{\"input_ids\": [1, 280]}", "there is no token 280; the model has 280"),
        ("{\"input_ids\": [1, -2]}", "`input_ids` is no list of token ids"),
        ("{\"input_ids\": []}", "no tokens"),
        ("{\"text\": 3}", "`text` is 3"),
        ("{\"txt\": \"a\"}", "a row has no key `txt`; it has"),
        ("{\"id\": \"a\"}", "no `input_ids`, `text` or `messages`"),
        ("{\"messages\": [{\"content\": \"a\"}]}", "a message has no `role`"),
        ("{\"text\": \"a\", \"input_ids\": [1, 2]}", "`text` has other ids than `input_ids`"),
        ("[1]", "no JSON object"),
        ("{", "no JSON object"),
    ];
    let long = json!({ "input_ids": vec![5; 257] }).to_string();
    let mut lines = vec!["{\"text\": \"fine\"}"];
    lines.extend(bad.iter().map(|(line, _)| *line));
    lines.push(&long);
    lab.write("in.jsonl", &lines.join("\n"));
    let ended =
        lab.run(&SCORE).failed().says(&["11 of 12 rows", "in.jsonl:12: 257 tokens do not fit"]);
    for (index, (_, told)) in bad.iter().enumerate() {
        let line = format!("in.jsonl:{}: {told}", index + 2);
        assert!(ended.unwrapped().contains(&line), "{line:?} is missing in\n{ended}");
    }
    assert!(!lab.path("out.jsonl").exists() && !lab.path(".tmp-out.jsonl").exists());
    lab.write("in.jsonl", "\n");
    lab.run(&SCORE).failed().says(&["in.jsonl has no rows"]);
    let missing =
        ["score", "--model", "model", "--input", "nowhere.jsonl", "--output", "out.jsonl"];
    lab.run(&missing).failed().says(&["there is no file `nowhere.jsonl`"]);
}

#[test]
fn a_row_of_the_embedding_that_is_no_token_is_scored_as_it_is_sampled() {
    let lab = lab();
    let path = lab.path("model/tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let model = &mut tokenizer["model"];
    let vocabulary = model["vocab"].as_object_mut().unwrap();
    vocabulary.retain(|_, id| *id != 279);
    assert_eq!(vocabulary.len(), 279);
    model["merges"].as_array_mut().unwrap().pop();
    fs::write(&path, tokenizer.to_string()).unwrap();
    lab.write("in.jsonl", "{\"input_ids\": [1, 278]}\n{\"input_ids\": [1, 279]}\n");
    lab.run(&SCORE).succeeded();
    assert_eq!(rows(&lab.path("out.jsonl"))[1]["input_ids"], json!([1, 279]));
    // Ids can be given to `generate`, and what it makes of them is scored to the bit.
    let prompt = ["generate", "--model", "model", "--prompt-ids"];
    let more = ["--json", "--max-tokens", "40", "--seed", "3", "--temperature", "2"];
    let made = json_of(&lab, &[&prompt[..], &["1,279,5"], &more].concat());
    assert_eq!(ids(&made["prompt_ids"]), [1, 279, 5]);
    let row = [ids(&made["prompt_ids"]), ids(&made["ids"])].concat();
    lab.write("in.jsonl", &json!({ "input_ids": row }).to_string());
    lab.run(&SCORE).succeeded();
    assert_eq!(rows(&lab.path("out.jsonl"))[0]["input_ids"], json!(row));
    lab.run(&[&prompt[..], &["1,280"]].concat())
        .failed()
        .says(&["`--prompt-ids` has 280; the model has ids from 0 to 279"]);
    assert_eq!(lab.run(&[&prompt[..], &["1,x"]].concat()).code, Some(2));
    assert_eq!(lab.run(&[&prompt[..], &["1", "--prompt", "a"]].concat()).code, Some(2));
    assert_eq!(lab.run(&["generate", "--model", "model"]).code, Some(2));
}

#[test]
fn a_key_of_a_row_that_nothing_reads_is_refused_with_its_line_and_the_keys_there_are() {
    let lab = lab();
    let lines = [
        json!({"text": "a", "id": 1, "meta": {"from": "here"}}),
        json!({"messages": [{"role": "user", "content": "a"}], "enable_thinking": false}),
        json!({"text": "a", "tools": []}),
        json!({"messages": [{"role": "user", "content": "a"}], "tools": null, "chat_template_kwargs": {"enable_thinking": false}}),
    ];
    lab.write("in.jsonl", &lines.map(|line| line.to_string()).join("\n"));
    let ended = lab.run(&SCORE).failed().says(&[
        "2 of 4 rows",
        "in.jsonl:2: a row has no key `enable_thinking`; it has `id`, `meta`, `text`, `input_ids`",
        "goes into `chat_template_kwargs`",
        "in.jsonl:3: `tools` is for conversations, and the row has no `messages`",
    ]);
    assert!(!ended.stderr.contains("in.jsonl:4"), "{ended}");
}

#[test]
fn an_exported_model_is_the_model() {
    let lab = lab();
    lab.run(&["export", "--model", "model", "--out", "a"]).succeeded();
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"] {
        let read = |dir: &str| fs::read(lab.path(dir).join(file)).unwrap();
        assert_eq!(read("a"), read("model"), "{file}");
    }
    lab.run(&["export", "--model", "a", "--out", "b", "--max-shard-size", "40KB"]).succeeded();
    let shards = json_of(&lab, &["inspect", "b", "--json"]);
    let names =
        shards["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap());
    assert!(names.filter(|name| name.starts_with("model-0000")).count() > 1);
    lab.run(&["export", "--model", "b", "--out", "c"]).succeeded();
    let read = |dir: &str| fs::read(lab.path(dir).join("model.safetensors")).unwrap();
    assert_eq!(read("c"), read("model"));
    lab.run(&["export", "--model", "model", "--out", "half", "--dtype", "bf16"]).succeeded();
    let half = json_of(&lab, &["inspect", "half", "--json"]);
    assert_eq!(half["dtypes"]["bf16"], half["parameters"]["total"]);
    lab.run(&["export", "--model", "half", "--out", "again"]).succeeded();
    assert_eq!(read("again"), read("half"), "stored as it was");
    lab.run(&["export", "--model", "model", "--out", "a"]).failed().says(&["a is not empty"]);
    lab.run(&["export", "--model", "model", "--out", "run.toml"])
        .failed()
        .says(&["run.toml is not empty"]);
    lab.run(&["export", "--model", "model", "--out", "d", "--merge"]).failed().says(&["`--merge`"]);
}

#[test]
fn a_merged_model_speaks_as_the_one_with_the_adapter() {
    let lab = lab();
    adapter(&lab, "lora");
    let from = ["export", "--model", "model", "--adapter", "lora", "--out"];
    let told = lab.run(&[&from[..], &["merged", "--merge"]].concat()).succeeded().stdout;
    assert!(told.contains("no logit moves by more than"), "{told}");
    print!("{told}");
    let told =
        lab.run(&[&from[..], &["half", "--merge", "--dtype", "f16"]].concat()).succeeded().stdout;
    assert!(told.contains("before the weights are rounded") && told.contains("float16"), "{told}");
    print!("{told}");
    let said = |args: &[&str]| {
        let greedy = ["--greedy", "--max-tokens", "20", "--prompt", "what", "--json"];
        json_of(&lab, &[&["generate"], args, &greedy[..]].concat())["ids"].clone()
    };
    let apart = said(&["--model", "model", "--adapter", "lora"]);
    assert_eq!(apart, said(&["--model", "merged"]));
    assert_ne!(apart, said(&["--model", "model"]));
    // Without `--merge`, an adapter is exported as an adapter.
    lab.run(&[&from[..], &["apart"]].concat()).succeeded();
    let read = |dir: &str| json_of(&lab, &["inspect", dir, "--json"])["parameters"].clone();
    assert_eq!(read("apart"), read("lora"));
    assert_eq!(apart, said(&["--model", "model", "--adapter", "apart"]));
}

#[test]
fn a_policy_of_a_run_is_exported_from_the_checkpoint_that_is_named() {
    let lab = lab();
    let own = "agents.\"duo/closer\".worker_group=\"own\"";
    let run = lab.train("run", &[own, "eval.before_and_after=false", "checkpoint.keep=9"]);
    let from = ["export", "--run", "run", "--policy"];
    for (policy, checkpoint, step) in [("own", "last", 4), ("tiny", "2", 2)] {
        let out = format!("{policy}-{step}");
        lab.run(&[&from[..], &[policy, "--checkpoint", checkpoint, "--out", &out]].concat())
            .succeeded();
        let exported = fs::read(lab.path(&out).join("model.safetensors")).unwrap();
        assert_eq!(exported, run.weights(step, policy));
        assert!(!lab.path(&out).join("optimizer.safetensors").exists());
    }
    lab.run(&["export", "--run", "run", "--out", "x"])
        .failed()
        .says(&["`own`, `tiny`", "`--policy`"]);
    lab.run(&[&from[..], &["other", "--out", "x"]].concat()).failed().says(&["no policy `other`"]);
    let base = [&from[..], &["own", "--model", "model", "--out", "x"]].concat();
    lab.run(&base).failed().says(&["`--model` is the base of an adapter, and this policy is none"]);
    let best = [&from[..], &["own", "--checkpoint", "best", "--out", "x"]].concat();
    lab.run(&best).failed().says(&["best"]);
    lab.run(&["export", "--run", "model", "--out", "x"]).failed().says(&["not a run directory"]);
}

#[test]
fn a_policy_that_is_an_adapter_is_exported_as_one_or_merged_into_its_base() {
    let lab = lab();
    lab.train("run", &["models.tiny.lora={rank=2}", "eval.before_and_after=false"]);
    lab.run(&["export", "--run", "run", "--out", "apart"]).succeeded();
    let apart = json_of(&lab, &["inspect", "apart", "--json"]);
    assert_eq!(apart["rank"], 2);
    assert!(!lab.path("apart/optimizer.safetensors").exists());
    // It names its base, has its tokenizer, and says what it is.
    let base = fs::canonicalize(lab.path("model")).unwrap().display().to_string();
    assert_eq!(apart["base"], base);
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let read = |dir: &str| fs::read(lab.path(dir).join(file)).unwrap();
        assert_eq!(read("apart"), read("model"), "{file}");
    }
    assert!(!lab.path("apart/config.json").exists());
    let card = fs::read_to_string(lab.path("apart/README.md")).unwrap();
    for line in ["library_name: peft", "| base | model |", "| policy | `tiny` |", "| seed |"] {
        assert!(card.contains(line), "{line:?} is missing in\n{card}");
    }
    assert!(card.contains("| steps | 4 of 4 |") && !card.contains(&base), "{card}");
    let told =
        lab.run(&["export", "--run", "run", "--merge", "--out", "merged"]).succeeded().stdout;
    assert!(told.contains("no logit moves by more than"), "{told}");
    let said = |args: &[&str]| {
        let greedy = ["--greedy", "--max-tokens", "20", "--prompt", "what", "--json"];
        json_of(&lab, &[&["generate"], args, &greedy[..]].concat())["ids"].clone()
    };
    let merged = said(&["--model", "merged"]);
    assert_eq!(merged, said(&["--model", "model", "--adapter", "apart"]));
    fs::rename(lab.path("model"), lab.path("moved")).unwrap();
    let from = ["export", "--run", "run", "--merge", "--out", "again"];
    lab.run(&from).failed().says(&["has the base", "is not there", "`--model`"]);
    lab.run(&[&from[..], &["--model", "moved"]].concat()).succeeded();
    assert_eq!(merged, said(&["--model", "again"]));
}

#[test]
fn an_adapter_on_a_built_in_model_is_exported_with_its_base() {
    let lab = lab();
    let tiny = ["models.tiny.path=\"builtin:tiny\"", "models.tiny.lora={rank=2}"];
    lab.train("run", &[&tiny[..], &["eval.before_and_after=false", "steps=1"]].concat());
    let told = lab.run(&["export", "--run", "run", "--out", "apart"]).succeeded().stdout;
    let base = lab.path("apart/base");
    assert!(told.contains("Its base, builtin:tiny, is in"), "{told}");
    let named = json_of(&lab, &["inspect", "apart", "--json"])["base"].clone();
    let named = Path::new(named.as_str().unwrap());
    assert_eq!(fs::canonicalize(named).unwrap(), fs::canonicalize(&base).unwrap());
    let said = |model: &str| {
        let greedy = ["--greedy", "--max-tokens", "9", "--prompt", "what", "--json"];
        let args = [&["generate", "--adapter", "apart", "--model", model][..], &greedy].concat();
        json_of(&lab, &args)["ids"].clone()
    };
    assert_eq!(said("apart/base"), said("builtin:tiny"));
    // Nobody else could load it from the hub.
    let mut command = lab.command(&["export", "--run", "run", "--out", "b", "--push-to", "hf:a/b"]);
    command.env("HF_TOKEN", "secret").env("HF_ENDPOINT", "http://127.0.0.1:9");
    let ended = maverl_tests::lab::Ended::of(&command.output().unwrap()).failed();
    ended.says(&["the base of the adapter, builtin:tiny, is not on the hub", "`--merge`"]);
    assert!(!lab.path("b").exists());
}

#[test]
fn a_tied_head_that_differs_is_untied_with_a_warning_wherever_a_model_is_read() {
    let lab = lab();
    // The embedding of 280 tokens is tied; a head of zeros is stored beside it.
    let path = lab.path("model/model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let (header, data) = (&bytes[8..8 + length], &bytes[8 + length..]);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let end = data.len() + 4 * 280 * 32;
    header["lm_head.weight"] =
        json!({ "dtype": "F32", "shape": [280, 32], "data_offsets": [data.len(), end] });
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend([header.as_bytes(), data].concat());
    file.resize(file.len() + 4 * 280 * 32, 0);
    fs::write(&path, file).unwrap();
    let warning = "`lm_head.weight` differs from `model.embed_tokens.weight`: the head is not tied";
    let inspected = lab.run(&["inspect", "model", "--json"]).succeeded();
    assert!(inspected.unwrapped().contains(warning), "{inspected}");
    let report: Value = serde_json::from_str(&inspected.stdout).unwrap();
    assert_eq!(report["tied"], false);
    let checked = lab.run(&["check", "run.toml"]).succeeded();
    let words = checked.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the head is not tied"), "{checked}");
    let run = lab.train("run", &["eval.before_and_after=false", "steps=1"]);
    let saved = run.json("checkpoints/step-000001/policies/tiny/config.json");
    assert_eq!(saved["tie_word_embeddings"], false);
}

#[test]
fn a_new_model_has_the_shape_of_what_it_is_like() {
    let lab = lab();
    let new = ["new-model", "--like", "bench-s", "--out", "s", "--seed", "4"];
    lab.run(&new).succeeded();
    let json = json_of(&lab, &["inspect", "s", "--json"]);
    assert_eq!(json["parameters"]["total"], 1_116_288);
    assert_eq!(json["dtypes"]["bf16"], 1_116_288);
    let args =
        ["generate", "--model", "s", "--prompt", "who", "--chat", "--max-tokens", "3", "--json"];
    assert!(ids(&json_of(&lab, &args)["ids"]).len() <= 3);
    lab.run(&new).failed().says(&["s is not empty"]);
    assert_eq!(lab.run(&["new-model", "--like", "gpt", "--out", "t"]).code, Some(2));
}

/// Returns the reference model of a family.
fn reference_model(family: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let further = fixtures.join("families");
    // Some decoders are there within a larger model alone.
    let within = further.join(family.trim_end_matches("_text"));
    let mut dirs = [fixtures.join(family), further.join(family), within].into_iter();
    dirs.find(|dir| dir.exists()).expect("a fixture of each family")
}

/// Reads the tensors of a safetensors file by name: shape and values.
fn tensors(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<f64>)> {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let sizes =
        |value: &Value| -> Vec<usize> { ids(value).into_iter().map(|n| n as usize).collect() };
    let tensor = |(name, entry): (&String, &Value)| {
        let at = sizes(&entry["data_offsets"]);
        let data = &bytes[8 + length..][at[0]..at[1]];
        let numbers = match entry["dtype"].as_str().unwrap() {
            "I64" => data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
            "F32" => data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            _ => Vec::new(),
        };
        (name.clone(), (sizes(&entry["shape"]), numbers))
    };
    header
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "__metadata__")
        .map(tensor)
        .collect()
}

#[test]
fn scores_are_those_of_the_reference() {
    let lab = lab();
    for family in HfConfig::FAMILIES {
        let dir = reference_model(family);
        let reference = tensors(&dir.join("reference.safetensors"));
        let (shape, input) = &reference["right.input_ids"];
        let mask = &reference["right.attention_mask"].1;
        let width = shape[1];
        let mut text = String::new();
        for row in 0..shape[0] {
            let n = mask[row * width..(row + 1) * width].iter().sum::<f64>() as usize;
            let ids: Vec<u64> = input[row * width..][..n].iter().map(|&id| id as u64).collect();
            text.push_str(&format!("{}\n", json!({ "input_ids": ids })));
        }
        lab.write("in.jsonl", &text);
        let model = dir.display().to_string();
        lab.run(&["score", "--model", &model, "--input", "in.jsonl", "--output", "out.jsonl"])
            .succeeded();
        let mut worst = [0.0_f64; 2];
        for (row, scored) in rows(&lab.path("out.jsonl")).iter().enumerate() {
            let kinds = [("logprobs", width - 1), ("entropy", width)];
            for (worst, (kind, width)) in worst.iter_mut().zip(kinds) {
                let expected = &reference[&format!("right.{kind}")].1[row * width..];
                for (found, expected) in floats(&scored[kind]).iter().zip(expected) {
                    *worst = worst.max((f64::from(*found) - expected).abs());
                }
            }
        }
        println!("{family}: log-probs within {:.1e}, entropies within {:.1e}", worst[0], worst[1]);
        // The reference of Gated DeltaNet is itself 1e-4 off.
        let allowed = if family.starts_with("qwen3_5") { 2e-4 } else { 1e-4 };
        assert!(worst.iter().all(|&worst| worst < allowed), "{family}: {worst:?}");
    }
}

#[test]
fn conversations_have_the_ids_of_the_reference() {
    let lab = lab();
    for family in HfConfig::FAMILIES {
        let dir = reference_model(family);
        let reference: Value =
            serde_json::from_slice(&fs::read(dir.join("reference.json")).unwrap()).unwrap();
        let cases = reference["chat"].as_array().unwrap();
        let plain =
            |case: &&Value| case["add_generation_prompt"] == true && case["tools"].is_null();
        let messages = |case: &Value| case["messages"].as_array().unwrap().len();
        let case = cases.iter().filter(plain).min_by_key(|case| messages(case)).unwrap();
        let model = dir.display().to_string();
        let keys = ["messages", "tools", "add_generation_prompt"];
        let row: serde_json::Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), case[*key].clone())).collect();
        lab.write("in.jsonl", &format!("{}\n", Value::Object(row)));
        lab.run(&["score", "--model", &model, "--input", "in.jsonl", "--output", "out.jsonl"])
            .succeeded();
        assert_eq!(rows(&lab.path("out.jsonl"))[0]["input_ids"], case["ids"], "{family}");
    }
}

#[test]
fn the_adapter_of_the_reference_is_merged_without_moving_a_logit() {
    let lab = lab();
    let [model, lora] =
        ["qwen2", "qwen2/lora"].map(|name| reference_model(name).display().to_string());
    let args = ["export", "--model", &model, "--adapter", &lora, "--merge", "--out", "merged"];
    print!("{}", lab.run(&args).succeeded().stdout);
}

/// A template that opens a reply with a given variable.
const OPENING: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                       {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ opening }}{% endif %}";

#[test]
fn what_a_chat_template_is_told_reaches_rollouts_replays_completions_and_scores() {
    let lab = lab();
    lab.write("model/chat_template.jinja", OPENING);
    let prompt = |run: &Run| run.episodes(1)[0].turns[0].tokens.clone().unwrap().prompt;
    let plain = lab.train("plain", &["steps=1", "eval.before_and_after=false"]);
    let told =
        ["steps=1", "eval.before_and_after=false", "models.tiny.chat_template_kwargs.opening=zz"];
    let run = lab.train("told", &told);
    let (without, with) = (prompt(&plain), prompt(&run));
    assert_eq!(with[..without.len()], without);
    assert_eq!(with.len(), without.len() + 2, "the opening is two tokens");
    let resolved = String::from_utf8(run.bytes("resolved.toml")).unwrap();
    assert!(resolved.contains("opening = \"zz\""), "{resolved}");
    let episode = &run.episodes(1)[0];
    let name = format!("1/{}/{}", episode.task.id, episode.index);
    let replayed = json_of(&lab, &["replay", "told", &name, "--json"]);
    assert_eq!(replayed["identical"], true);

    let told = ["--chat-template-kwargs", r#"{"opening": "zz"}"#];
    let generate = [&GENERATE[..], &["--chat", "--json", "--max-tokens", "1"]].concat();
    let prompt = |args: &[&str]| ids(&json_of(&lab, args)["prompt_ids"]);
    let (without, with) = (prompt(&generate), prompt(&[&generate[..], &told].concat()));
    assert_eq!((&with[..without.len()], with.len()), (&without[..], without.len() + 2));
    let bare = lab.run(&[&GENERATE[..], &told].concat()).failed();
    bare.says(&["`--chat-template-kwargs` is for a chat template; add `--chat`"]);
    for wrong in ["[]", r#"{"messages": []}"#] {
        let args = [&generate[..], &["--chat-template-kwargs", wrong]].concat();
        assert_eq!(lab.run(&args).code, Some(2), "{wrong}");
    }

    let asked = json!({ "messages": [{ "role": "user", "content": "who" }], "add_generation_prompt": true });
    let mut own = asked.clone();
    own["chat_template_kwargs"] = json!({ "opening": "" });
    lab.write("in.jsonl", &format!("{asked}\n{own}\n"));
    lab.run(&[&SCORE[..], &told].concat()).succeeded();
    let scored = rows(&lab.path("out.jsonl"));
    let [told, own] = [0, 1].map(|row: usize| ids(&scored[row]["input_ids"]));
    assert_eq!((&told[..own.len()], told.len()), (&own[..], own.len() + 2));
}

/// Returns the texts that rows are scored as, with the model's own tokenizer.
fn scored_texts(lab: &Lab, text: &str) -> Vec<String> {
    lab.write("in.jsonl", text);
    lab.run(&SCORE).succeeded();
    let files = ModelFiles::new(&ModelSource::Directory(lab.path("model")));
    let tokenizer = Tokenizer::load(&files).unwrap();
    let decoded = |row: &Value| {
        let ids: Vec<u32> = ids(&row["input_ids"]).into_iter().map(|id| id as u32).collect();
        tokenizer.decode(&ids)
    };
    rows(&lab.path("out.jsonl")).iter().map(decoded).collect()
}

#[test]
fn null_keys_of_a_message_are_left_out_as_transformers_leaves_them_out() {
    let lab = lab();
    let template = "{% for m in messages %}[{{ m.role }}]{% if m.tool_calls is defined %}{{ m.tool_calls | length }} calls\
                    {% endif %}{{ m.content }}{% if m.name is defined %}named{% endif %}{% endfor %}";
    lab.write("model/chat_template.jinja", template);
    let [user, hi] =
        [json!({"role": "user", "content": "q"}), json!({"role": "assistant", "content": "hi"})];
    let with = |message: &Value, more: Value| -> Value {
        let mut message = message.as_object().unwrap().clone();
        message.extend(more.as_object().unwrap().clone());
        message.into()
    };
    let call = json!([{"type": "function", "function": {"name": "f", "arguments": {}}}]);
    let cases = [
        (
            json!([
                user,
                with(&hi, json!({"tool_calls": null, "function_call": null, "refusal": null})),
                user
            ]),
            "[user]q[assistant]hi[user]q",
        ),
        (json!([{"role": "system", "content": null}, user]), "[system][user]q"),
        (
            json!([user, {"role": "assistant", "content": null, "tool_calls": call}]),
            "[user]q[assistant]1 calls",
        ),
        (json!([with(&user, json!({"name": null}))]), "[user]q"),
        (json!([with(&user, json!({"name": "a", "audio": null}))]), "[user]qnamed"),
        (json!([user, with(&hi, json!({"tool_calls": []}))]), "[user]q[assistant]0 callshi"),
    ];
    let text: String =
        cases.iter().map(|(messages, _)| format!("{}\n", json!({"messages": messages}))).collect();
    let wanted: Vec<&str> = cases.iter().map(|(_, text)| *text).collect();
    assert_eq!(scored_texts(&lab, &text), wanted);
    // So are null keys of a row, as rows of a table have them; those that are copied stay.
    let row = json!({"messages": [user], "text": null, "input_ids": null, "tools": null, "documents": null,
        "add_generation_prompt": null, "chat_template": null, "chat_template_kwargs": null, "id": null});
    let plain = json!({"text": "[user]q", "messages": null, "tools": null});
    assert_eq!(scored_texts(&lab, &format!("{row}\n{plain}\n")), ["[user]q", "[user]q"]);
    assert!(rows(&lab.path("out.jsonl"))[0].as_object().unwrap().contains_key("id"));
}

#[test]
fn the_page_about_models_names_every_key_that_score_reads() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/models.md")).unwrap();
    let section = page.split("## Score").nth(1).unwrap().split("## ").next().unwrap().to_owned();
    let lab = lab();
    lab.write("in.jsonl", "{\"text\": \"a\", \"note\": 1}\n");
    let refused = lab.run(&SCORE).failed().says(&["a row has no key `note`; it has"]).unwrapped();
    let known = refused.split("it has ").nth(1).unwrap().split(". Whatever").next().unwrap();
    for key in known.split(", ") {
        let key = key.trim_matches(|c: char| c == '`' || c.is_whitespace());
        let named =
            section.contains(&format!("`{key}`")) || section.contains(&format!("{{\"{key}\":"));
        assert!(named, "the page does not name `{key}`");
    }
    assert!(
        section.contains("`id` and `meta` are copied")
            && section.contains("other keys are refused")
    );
    lab.write(
        "in.jsonl",
        "{\"text\": \"a\", \"id\": 18446744073709551616, \"meta\": {\"a\": [1]}}\n",
    );
    lab.run(&SCORE).succeeded();
    let row = &rows(&lab.path("out.jsonl"))[0];
    assert_eq!((&row["id"], &row["meta"]), (&json!("18446744073709551616"), &json!({"a": [1]})));
    lab.write("in.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n");
    lab.run(&SCORE).failed().says(&["in.jsonl:1: no JSON object: the key `text` is there twice"]);
}
