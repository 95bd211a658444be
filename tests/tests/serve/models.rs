//! Adapters, calls of tools, and streamed answers of models and teams.

use maverl::trajectory::Tokens;
use maverl_tests::lab::Run;
use serde_json::{Value, json};

use super::{Server, lab, without_key};

/// Returns the events of a streamed answer without the last one, which is `[DONE]`.
fn streamed(server: &Server, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let line = "POST /v1/chat/completions HTTP/1.1\r\n";
    let (status, text) = server.exchange(line, &body.to_string());
    assert_eq!(status, 200, "{text}");
    let (mut rest, mut joined) = (text.as_str(), String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        joined.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
    }
    let events: Vec<&str> = joined.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (done, events) = events.split_last().unwrap();
    assert_eq!(*done, "[DONE]", "{joined}");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Returns the choices with an index in chunks.
fn choices(chunks: &[Value], index: usize) -> impl Iterator<Item = &Value> {
    let all = chunks.iter().filter_map(|chunk| chunk["choices"].as_array()).flatten();
    all.filter(move |choice| choice["index"] == index)
}

/// Joins a text of the deltas of a choice.
fn joined(chunks: &[Value], index: usize, key: &str) -> String {
    choices(chunks, index).filter_map(|choice| choice["delta"][key].as_str()).collect()
}

#[test]
fn a_streamed_answer_of_a_team_joined_is_the_whole_one() {
    let lab = lab();
    lab.train("run", &["steps=1", "eval.before_and_after=false"]);
    let server = Server::start(&lab, &["team", "--run", "run", "--show-turns"]);
    let mut texts = 0;
    for (seed, n) in [(1, 1), (2, 1), (3, 4), (4, 1)] {
        let body = json!({
            "seed": seed, "n": n, "maverl": {"turns": true},
            "messages": [{"role": "user", "content": format!("question {seed}?")}],
        });
        let (status, whole) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{whole}");
        let chunks = streamed(&server, &body);
        for index in 0..n {
            let message = &whole["choices"][index]["message"];
            for key in ["content", "reasoning_content"] {
                let text = joined(&chunks, index, key);
                assert_eq!(text, message[key].as_str().unwrap(), "{seed} {index} {key}");
                texts += usize::from(!text.is_empty());
            }
            let ends = choices(&chunks, index).filter(|choice| choice["finish_reason"] == "stop");
            assert_eq!(ends.count(), 1);
        }
        let last = chunks.last().unwrap();
        assert_eq!((&last["usage"], &last["maverl"]), (&whole["usage"], &whole["maverl"]));
    }
    println!("{texts} texts are equal");
    assert!(texts >= 7, "{texts}");
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
}

/// Returns a message whose parts are those of a stream, joined as clients do: its text, its thoughts, and the last `maverl`.
fn joined_message(text: &str) -> (String, String, Value) {
    let (mut texts, mut maverl) = ([String::new(), String::new()], Value::Null);
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(line).unwrap();
        for (text, key) in texts.iter_mut().zip(["text", "thinking"]) {
            text.push_str(event["delta"][key].as_str().unwrap_or_default());
        }
        if event["type"] == "message_delta" {
            maverl = event["maverl"].clone();
        }
    }
    let [text, thoughts] = texts;
    (text, thoughts, maverl)
}

#[test]
fn a_team_says_the_same_in_a_message_as_in_a_chat_completion() {
    let lab = lab();
    lab.train("run", &["steps=1", "eval.before_and_after=false"]);
    let server = Server::start(&lab, &["team", "--run", "run", "--show-turns"]);
    for seed in 1..4 {
        let user = json!({"role": "user", "content": format!("question {seed}?")});
        let system = "Be brief.";
        let turns = json!({"turns": true});
        let chat = json!({
            "seed": seed, "max_tokens": 24, "maverl": turns, "messages": [{"role": "system", "content": system}, user],
        });
        let (_, chat) = server.post("/v1/chat/completions", &chat);
        let mut asked = json!({"seed": seed, "max_tokens": 24, "maverl": turns, "system": system, "messages": [user]});
        let (status, message) = server.post("/v1/messages", &asked);
        assert_eq!(status, 200, "{message}");
        assert_eq!(message["maverl"], chat["maverl"]);
        let said = &chat["choices"][0]["message"];
        let blocks = message["content"].as_array().unwrap();
        assert_eq!(blocks.last().unwrap()["text"], said["content"]);
        assert_eq!(blocks[0]["thinking"], said["reasoning_content"]);
        let usage = ["input_tokens", "output_tokens"].map(|key| message["usage"][key].clone());
        assert_eq!(
            usage,
            ["prompt_tokens", "completion_tokens"].map(|key| chat["usage"][key].clone())
        );
        asked["stream"] = true.into();
        let line = "POST /v1/messages HTTP/1.1\r\n";
        let (status, text) = server.exchange(line, &asked.to_string());
        assert_eq!(status, 200, "{text}");
        let (text, thoughts, maverl) = joined_message(&text);
        assert_eq!(
            (text.as_str(), thoughts.as_str()),
            (said["content"].as_str().unwrap(), said["reasoning_content"].as_str().unwrap())
        );
        assert_eq!(maverl, chat["maverl"]);
    }
    let tool = json!({"name": "f", "input_schema": {}});
    let asked =
        json!({"max_tokens": 8, "messages": [{"role": "user", "content": "x"}], "tools": [tool]});
    let (status, refused) = server.post("/v1/messages", &asked);
    assert_eq!((status, &refused["type"]), (400, &json!("error")));
    assert!(
        refused["error"]["message"].as_str().unwrap().starts_with("`tools` is not for a team"),
        "{refused}"
    );
    let (status, refused) = server.post("/v1/messages/count_tokens", &asked);
    assert_eq!((status, &refused["error"]["type"]), (404, &json!("not_found_error")));
    assert_eq!(server.stop(), Some(0));
}

/// Ids and log-probs that a served model samples for a recorded prompt.
fn generated(server: &Server, model: &str, tokens: &Tokens) -> (Vec<u32>, Vec<f32>) {
    let stops: Vec<u32> = (200..256).collect();
    let params = json!({
        "temperature": tokens.temperature, "max_tokens": 16, "seed": tokens.seed, "stop_token_ids": stops, "logprobs": 0,
    });
    let body = json!({"model": model, "token_ids": tokens.prompt, "sampling_params": params});
    let (status, answer) = server.post("/inference/v1/generate", &body);
    assert_eq!(status, 200, "{answer}");
    let choice = &answer["choices"][0];
    let logprobs = choice["logprobs"]["content"].as_array().unwrap();
    let logprobs = logprobs.iter().map(|entry| entry["logprob"].as_f64().unwrap() as f32);
    (serde_json::from_value(choice["token_ids"].clone()).unwrap(), logprobs.collect())
}

#[test]
fn an_adapter_is_served_by_its_name_as_it_was_trained_beside_its_base() {
    let lab = lab();
    let set = ["models.tiny.lora.rank=4", "checkpoint.keep=9", "eval.before_and_after=false"];
    let run = lab.train("run", &set);
    let exported = ["export", "--run", "run", "--checkpoint", "2", "--out", "adapters/judge"];
    std::fs::create_dir(lab.path("adapters")).unwrap();
    lab.run(&exported).succeeded();
    let adapter = "judge=adapters/judge";
    let server = Server::start(
        &lab,
        &["model", "--model", "model", "--adapter", adapter, "--allow-adapters", "adapters"],
    );
    let listed = || {
        let (_, models) = server.get("/v1/models");
        let models = models["data"].as_array().unwrap().clone();
        let of = |model: &Value| (model["id"].clone(), model["parent"].clone());
        models.iter().map(of).collect::<Vec<_>>()
    };
    let begin = vec![(json!("model"), Value::Null), (json!("judge"), json!("model"))];
    assert_eq!(listed(), begin);
    let load = json!({"lora_name": "again", "lora_path": "judge"});
    assert_eq!(server.post("/v1/load_lora_adapter", &load).0, 200);
    assert_eq!(listed(), [&begin[..], &[(json!("again"), json!("model"))]].concat());
    // Step 3 was played with the weights of checkpoint 2.
    let turns = run.episodes(3).into_iter().flat_map(|episode| episode.turns);
    let (mut compared, mut different) = (0, 0);
    for tokens in turns.filter_map(|turn| turn.tokens) {
        let expected = (tokens.completion.clone(), tokens.logprobs.clone());
        assert_eq!(generated(&server, "judge", &tokens), expected);
        assert_eq!(generated(&server, "again", &tokens), expected);
        different += usize::from(generated(&server, "model", &tokens) != expected);
        compared += 1;
    }
    println!("{compared} turns are those of the adapter; {different} are others of the base");
    assert!(compared > 8 && different * 2 > compared, "{compared} {different}");
    // A chat completion names it too, and its metrics.
    let body = json!({"model": "judge", "messages": [{"role": "user", "content": "question?"}], "max_tokens": 4});
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!((status, &answer["model"]), (200, &json!("judge")), "{answer}");
    let label = "maverl_requests_total{model=\"judge\",route=\"chat\",code=\"200\"}";
    assert_eq!(server.metric(label), 1.0);
    for path in ["../model", "/etc", "none"] {
        let load = json!({"lora_name": "other", "lora_path": path});
        let (status, answer) = server.post("/v1/load_lora_adapter", &load);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("lora_path")), "{answer}");
    }
    let unload = |name: &str| server.post("/v1/unload_lora_adapter", &json!({"lora_name": name}));
    assert_eq!((unload("again").0, unload("judge").0, unload("again").0), (200, 400, 404));
    assert_eq!(listed(), begin);
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
}

/// A team whose one agent calls tools.
const CALLS: &str = r#"
seed = 7
steps = 1
[task]
data = "builtin:tools"
tasks_per_step = 8
group_size = 4
max_level = 1
[orchestra]
name = "tools/act"
[environment]
name = "tools"
[sampling]
max_tokens = 80
[models.tiny]
path = "builtin:generalist"
[eval]
before_and_after = false
every = 0
"#;

/// Returns the only call of a reply that is nothing else.
fn call(reply: &str) -> Option<Value> {
    let call = reply.trim().strip_prefix("<tool_call>")?.strip_suffix("</tool_call>")?;
    serde_json::from_str(call).ok()
}

#[test]
fn a_call_that_a_run_sampled_is_one_of_the_served_model_whole_and_streamed() {
    let lab = lab();
    lab.write("tools.toml", CALLS);
    lab.run(&["train", "tools.toml", "--out", "tools"]).succeeded();
    let server = Server::start(&lab, &["model", "--model", "builtin:generalist"]);
    let (mut calls, mut compared) = (0, 0);
    for turn in Run(lab.path("tools")).episodes(1).into_iter().flat_map(|episode| episode.turns) {
        let recorded = serde_json::to_value(&turn).unwrap();
        let tokens = turn.tokens.unwrap();
        let body = json!({
            "model": "generalist", "messages": recorded["prompt"], "tools": recorded["tools"], "max_tokens": 80,
            "temperature": tokens.temperature, "seed": tokens.seed, "return_token_ids": true,
        });
        // Later turns go on with the ids that were sampled, which a text may not give.
        if turn.prompt.len() > 1 {
            continue;
        }
        let (status, whole) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{whole}");
        assert_eq!(whole["prompt_token_ids"], json!(tokens.prompt));
        let choice = &whole["choices"][0];
        assert_eq!(choice["token_ids"], json!(tokens.completion));
        compared += 1;
        let Some(expected) = call(&turn.reply) else { continue };
        calls += 1;
        let called = &choice["message"]["tool_calls"];
        assert_eq!(choice["finish_reason"], "tool_calls", "{}", turn.reply);
        assert_eq!(called.as_array().map(Vec::len), Some(1), "{called}");
        let function = &called[0]["function"];
        let arguments = function["arguments"].as_str().unwrap();
        assert_eq!(function["name"], expected["name"]);
        assert_eq!(serde_json::from_str::<Value>(arguments).unwrap(), expected["arguments"]);
        assert!(choice["message"]["content"].is_null());
        let chunks = streamed(&server, &body);
        let deltas =
            choices(&chunks, 0).filter_map(|choice| choice["delta"]["tool_calls"].as_array());
        let deltas: Vec<Value> = deltas.flatten().cloned().collect();
        let mut with_index = called[0].clone();
        with_index["index"] = 0.into();
        assert_eq!(deltas, [with_index]);
        assert_eq!(joined(&chunks, 0, "content"), "");
        let reasons = choices(&chunks, 0).filter_map(|choice| choice["finish_reason"].as_str());
        assert_eq!(reasons.collect::<Vec<_>>(), ["tool_calls"]);
    }
    println!("{compared} replies are those of the run, {calls} of them calls");
    assert!(calls > 3, "{calls} of {compared}");
    assert_eq!(server.stop(), Some(0));
}
