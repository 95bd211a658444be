#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::client::testing::{Log, Received, response as http, response_with, serve};
use crate::config::{RolloutServerConfig, ServerKind};
use crate::files::{HfConfig, ModelFiles, ModelSource};
use crate::runtime::{Completion, Finish, Generator as _, Request, RuntimeError, Sampling};
use crate::text::Tokenizer;

/// Prompt of every request.
const PROMPT: [u32; 3] = [5, 6, 7];
/// Label of the weights.
const LABEL: &str = "p-run-1";

fn tokenizer() -> Arc<Tokenizer> {
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    Arc::new(Tokenizer::load(&files).unwrap())
}

/// Returns the shape of a model with a vocabulary of 512 ids.
fn shape() -> HfConfig {
    let source = ModelSource::Builtin("tiny".to_owned());
    let mut shape = HfConfig::load(&ModelFiles::new(&source)).unwrap();
    shape.vocab_size = 512;
    shape
}

/// Returns a policy on servers, with an adapter or without, that gives up after `retries`.
fn remote(kind: ServerKind, urls: &[String], adapter: bool, retries: u32) -> RemotePolicy {
    let config = RolloutServerConfig {
        kind: Some(kind),
        urls: urls.to_vec(),
        model: Some("base".to_owned()),
        timeout_s: 1.0,
        retries,
        ..RolloutServerConfig::default()
    };
    RemotePolicy {
        policy: "p".to_owned(),
        servers: Arc::new(Servers::new("fast", &config, true).unwrap()),
        tokenizer: tokenizer(),
        context: 64,
        shape: shape(),
        adapter,
        weights: std::sync::RwLock::default(),
        older: tokio::sync::Mutex::default(),
        kept: 2,
        sampled: std::sync::Arc::default(),
    }
}

fn request(max_tokens: usize) -> Request {
    let sampling = Sampling { max_tokens, ..Sampling::default() };
    Request::new(PROMPT.to_vec(), Arc::new(sampling), 9)
}

/// Returns the answer of a server to a generation, as it was recorded: three tokens, the last one ends the reply.
fn recorded((kind, adapter): (ServerKind, bool)) -> Value {
    let stop = tokenizer().stop_ids()[0];
    let text = match kind {
        ServerKind::Vllm if !adapter => {
            r#"{"request_id":"generate-tokens-8a495ce22756d6c7","model":"base","created":1795700551,"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,"prompt_tokens_details":null,"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_id_logprobs":null,"prompt_token_ids":[5,6,7],"mm_placeholders":null,"metrics":null,"kv_transfer_params":null,"ec_transfer_params":null,"output_mode":"tokens","choices":[{"index":0,"finish_reason":"stop","stop_reason":null,"token_ids":[40,41,STOP],"routed_experts":null,"sampling_mask":null,"weight_versions":[{"version":"p-run-1","start":0,"end":3}],"logprobs":{"content":[{"token_id":40,"logprob":-0.5,"rank":1,"top_logprobs":[{"token_id":40,"logprob":-0.5,"rank":1}]},{"token_id":41,"logprob":-1.25,"rank":2,"top_logprobs":[{"token_id":41,"logprob":-1.25,"rank":2}]},{"token_id":STOP,"logprob":-0.0078125,"rank":1,"top_logprobs":[{"token_id":STOP,"logprob":-0.0078125,"rank":1}]}]}}]}"#
        }
        ServerKind::Sglang => {
            r#"{"text":" a b","output_ids":[40,41,STOP],"meta_info":{"id":"5e1d3f","finish_reason":{"type":"stop","matched":STOP},"prompt_tokens":3,"weight_version":"p-run-1","num_retractions":0,"input_token_logprobs":[],"output_token_logprobs":[[-0.5,40,null],[-1.25,41,null],[-0.0078125,STOP,null]],"completion_tokens":3,"cached_tokens":0,"e2e_latency":0.031}}"#
        }
        ServerKind::Vllm => {
            r#"{"id":"cmpl-7d","object":"text_completion","created":1760000000,"model":"p-run-1","choices":[{"index":0,"text":" a b","logprobs":{"text_offset":[0,2,4],"token_logprobs":[-0.5,-1.25,-0.0078125],"tokens":[" a"," b","<|im_end|>"],"top_logprobs":[{" a":-0.5},{" b":-1.25},{"<|im_end|>":-0.0078125}]},"finish_reason":"stop","stop_reason":null,"token_ids":[40,41,STOP],"prompt_logprobs":null,"prompt_token_ids":[5,6,7]}],"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,"prompt_tokens_details":null},"kv_transfer_params":null}"#
        }
    };
    serde_json::from_str(&text.replace("STOP", &stop.to_string())).unwrap()
}

/// Returns the answer of a server to the command that loads weights, as it was recorded.
fn loads(received: &Received) -> Option<Vec<u8>> {
    let body = &received.body;
    let name = body["lora_name"].as_str().unwrap_or_default();
    match received.route() {
        "/update_weights_from_disk" => Some(http(
            200,
            r#"{"success":true,"message":"Succeeded to update model weights. Weight version updated to p-run-1.","num_paused_requests":0}"#,
        )),
        "/load_lora_adapter" => Some(http(
            200,
            &format!(
                r#"{{"rid":null,"success":true,"error_message":"","loaded_adapters":{{"{name}":"/w"}}}}"#
            ),
        )),
        "/v1/load_lora_adapter" => {
            Some(http(200, &format!("Success: LoRA adapter '{name}' added successfully.")))
        }
        "/collective_rpc" => Some(http(200, r#"{"results":[null]}"#)),
        "/reset_prefix_cache" => Some(http(200, r#"{"success":true}"#)),
        "/update_weight_version" => {
            let version = body["new_version"].as_str().unwrap_or_default();
            Some(http(200, &format!(r#"{{"success":true,"new_version":"{version}"}}"#)))
        }
        "/unload_lora_adapter" => Some(http(200, r#"{"success":true,"loaded_adapters":{}}"#)),
        "/v1/unload_lora_adapter" => {
            Some(http(200, &format!("Success: LoRA adapter '{name}' removed successfully.")))
        }
        _ => None,
    }
}

/// Publishes weights and asks for a completion. Generations are answered by `behavior`, commands as recorded.
async fn ask(
    (kind, adapter): (ServerKind, bool),
    retries: u32,
    mut behavior: impl FnMut(usize) -> Vec<u8> + Send + 'static,
) -> (Result<Completion, String>, String, Log) {
    let mut generations = 0;
    let answer = move |_: usize, received: &Received| {
        loads(received).unwrap_or_else(|| {
            generations += 1;
            behavior(generations)
        })
    };
    let (url, received) = serve(answer);
    let remote = remote(kind, std::slice::from_ref(&url), adapter, retries);
    remote.publish(LABEL, "/w", 3).await.unwrap();
    let done = remote.generate(request(8)).await.map_err(|error| error.to_string());
    (done, url, received)
}

const KINDS: [(ServerKind, bool); 4] = [
    (ServerKind::Sglang, false),
    (ServerKind::Sglang, true),
    (ServerKind::Vllm, true),
    (ServerKind::Vllm, false),
];

#[tokio::test]
async fn a_completion_has_the_ids_log_probs_and_version_of_the_server() {
    for kind in KINDS {
        let (done, _, received) =
            ask(kind, 0, move |_| http(200, &recorded(kind).to_string())).await;
        let done = done.unwrap();
        let stop = tokenizer().stop_ids()[0];
        assert_eq!(done.ids, [40, 41, stop]);
        assert_eq!(done.logprobs, [-0.5, -1.25, -0.0078125]);
        assert_eq!((done.version, done.finish), (3, Finish::Stop));
        let received = received.lock().unwrap();
        let sent = &received.last().unwrap().body;
        let prompt = match kind {
            (ServerKind::Sglang, _) => "input_ids",
            (ServerKind::Vllm, true) => "prompt",
            (ServerKind::Vllm, false) => "token_ids",
        };
        assert_eq!(sent[prompt], json!(PROMPT));
    }
}

#[tokio::test]
async fn requests_and_commands_are_those_that_the_servers_document() {
    let (_, _, received) = ask(KINDS[0], 0, |_| http(200, &recorded(KINDS[0]).to_string())).await;
    let stop = tokenizer().stop_ids().to_vec();
    let expected = [
        (
            "/update_weights_from_disk",
            json!({"model_path": "/w", "weight_version": LABEL, "flush_cache": true}),
        ),
        (
            "/generate",
            json!({
                "input_ids": PROMPT,
                "sampling_params": {
                    "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
                    "max_new_tokens": 8, "stop_token_ids": stop, "skip_special_tokens": false, "no_stop_trim": true,
                    "sampling_seed": 4,
                },
                "return_logprob": true,
                "stream": false,
            }),
        ),
    ];
    for (found, (route, body)) in received.lock().unwrap().iter().zip(&expected) {
        assert_eq!((found.route(), &found.body), (*route, body));
    }
    let (_, _, received) = ask(KINDS[2], 0, |_| http(200, &recorded(KINDS[2]).to_string())).await;
    let expected = [
        ("/v1/load_lora_adapter", json!({"lora_name": LABEL, "lora_path": "/w"})),
        (
            "/v1/completions",
            json!({
                "model": LABEL, "prompt": PROMPT, "max_tokens": 8, "temperature": 1.0, "top_p": 1.0, "top_k": -1,
                "min_p": 0.0, "repetition_penalty": 1.0, "n": 1, "logprobs": 0, "return_token_ids": true, "seed": 4,
                "stop_token_ids": stop, "skip_special_tokens": false, "include_stop_str_in_output": true,
                "stream": false,
            }),
        ),
    ];
    for (found, (route, body)) in received.lock().unwrap().iter().zip(&expected) {
        assert_eq!((found.route(), &found.body), (*route, body));
    }
}

#[tokio::test]
async fn full_weights_of_vllm_have_a_version_that_no_answer_has_while_they_are_replaced() {
    let (_, _, received) = ask(KINDS[3], 0, |_| http(200, &recorded(KINDS[3]).to_string())).await;
    let stop = tokenizer().stop_ids().to_vec();
    let expected = [
        ("/update_weight_version", json!({"new_version": "p-run-1-incomplete"})),
        ("/collective_rpc", json!({"method": "reload_weights", "kwargs": {"weights_path": "/w"}})),
        ("/reset_prefix_cache", json!({})),
        ("/update_weight_version", json!({"new_version": LABEL})),
        (
            "/inference/v1/generate",
            json!({
                "model": "base", "token_ids": PROMPT, "return_token_ids": true, "stream": false,
                "sampling_params": {
                    "max_tokens": 8, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
                    "repetition_penalty": 1.0, "n": 1, "logprobs": 0, "seed": 4, "stop_token_ids": stop,
                    "skip_special_tokens": false, "include_stop_str_in_output": true,
                },
            }),
        ),
    ];
    let received = received.lock().unwrap();
    assert_eq!(received.len(), expected.len());
    for (found, (route, body)) in received.iter().zip(&expected) {
        assert_eq!((found.route(), &found.body), (*route, body));
    }
}

/// A change of a recorded answer, and the error that it causes.
type Case = (&'static str, Value, &'static str);

/// Ways in which an answer of SGLang is wrong: a place, its value, the error.
fn sglang_cases() -> Vec<Case> {
    let pairs = "/meta_info/output_token_logprobs";
    vec![
        (pairs, json!([[-0.5, 40, null]]), "gave 1 log-probs for 3 tokens"),
        (
            pairs,
            json!([[-0.5, 40, null], [-0.5, 41, null], [-0.1, 42, null], [-0.1, 43, null]]),
            "gave 4 log-probs for 3 tokens",
        ),
        (pairs, Value::Null, "answered without `meta_info.output_token_logprobs`"),
        (
            pairs,
            json!("none"),
            "answered with `meta_info.output_token_logprobs` = \"none\", no list",
        ),
        (
            "/meta_info/output_token_logprobs/1/0",
            Value::Null,
            "gave the log-prob null for token 2 of 3",
        ),
        (
            "/meta_info/output_token_logprobs/1/0",
            json!("NaN"),
            "gave the log-prob \"NaN\" for token 2 of 3",
        ),
        (
            "/meta_info/output_token_logprobs/2/0",
            json!(0.5),
            "gave the log-prob 0.5 for token 3 of 3",
        ),
        (
            "/meta_info/output_token_logprobs/0/1",
            json!(44),
            "log-probs of other token ids than `output_ids`",
        ),
        ("/output_ids/0", json!(-1), "log-probs of other token ids"),
        (
            "/meta_info/weight_version",
            json!("p-run-0"),
            "sampled with the weights \"p-run-0\", and `p-run-1` were published",
        ),
        ("/meta_info/weight_version", Value::Null, "sampled with the weights null"),
        ("/meta_info/prompt_tokens", json!(4), "read a prompt of 4 tokens, and 3 were sent"),
        (
            "/meta_info/finish_reason/type",
            json!("length"),
            "ended for its length after 3 tokens, and 8 were asked for",
        ),
        ("/meta_info/finish_reason/type", json!("other"), "ended for the reason \"other\""),
        (
            "/meta_info/finish_reason",
            json!({"type": "abort", "message": "queue full"}),
            "aborted the request: queue full",
        ),
        (
            "/meta_info/finish_reason",
            Value::Null,
            "answered without `meta_info.finish_reason.type`",
        ),
    ]
}

/// Ways in which an answer of vLLM is wrong.
fn vllm_cases() -> Vec<Case> {
    let (ids, logprobs) = ("/choices/0/token_ids", "/choices/0/logprobs/token_logprobs");
    vec![
        (ids, Value::Null, "answered without `token_ids`: it is too old"),
        (ids, json!([]), "gave no token"),
        (ids, json!([40, 41]), "gave 3 log-probs for 2 tokens"),
        (
            "/choices/0/token_ids/1",
            json!(900),
            "gave the token id 900, and the model has ids from 0 to 511",
        ),
        ("/choices/0/token_ids/1", json!("b"), "gave \"b\" as token 2 of 3"),
        ("/choices/0/token_ids/1", json!(1e12), "gave 1000000000000.0 as token 2 of 3"),
        ("/choices/0/token_ids/2", json!(40), "stopped after the token id 40"),
        ("/choices/0/logprobs", Value::Null, "answered without `logprobs.token_logprobs`"),
        (logprobs, json!([-0.5, null, -0.1]), "gave the log-prob null for token 2 of 3"),
        ("/model", json!("base"), "sampled with the model \"base\", not `p-run-1`"),
        ("/choices", json!([]), "gave 0 completions, not 1"),
        (
            "/choices/0/prompt_token_ids",
            json!([5, 6, 8]),
            "read another prompt than the one that was sent",
        ),
        ("/usage/prompt_tokens", json!(2), "read a prompt of 2 tokens, and 3 were sent"),
        ("/choices/0/finish_reason", json!("abort"), "aborted the request"),
        (
            "/choices/0/finish_reason",
            json!("content_filter"),
            "ended for the reason \"content_filter\"",
        ),
        ("", json!({"error": {"message": "no"}}), "answered without `model`"),
    ]
}

/// Ways in which an answer of vLLM with full weights is wrong.
fn vllm_whole_cases() -> Vec<Case> {
    let (ids, scored) = ("/choices/0/token_ids", "/choices/0/logprobs/content");
    let versions = "/choices/0/weight_versions";
    vec![
        (versions, Value::Null, "without `weight_versions`: it is older than vLLM 0.32"),
        (
            versions,
            json!([{"version": "default", "start": 0, "end": 3}]),
            "sampled with the weights \"default\", and `p-run-1` were published (1 attempt)",
        ),
        // The weights were replaced in the middle of the reply.
        (
            versions,
            json!([
                {"version": "p-run-1", "start": 0, "end": 2},
                {"version": "p-run-2-incomplete", "start": 2, "end": 3},
            ]),
            "sampled with the weights \"p-run-2-incomplete\"",
        ),
        (
            versions,
            json!([{"version": "p-run-1", "start": 0, "end": 2}]),
            "named the weights of other tokens than its 3",
        ),
        (
            versions,
            json!([{"version": "p-run-1", "start": 1, "end": 3}]),
            "named the weights of other tokens than its 3",
        ),
        (versions, json!([]), "named the weights of other tokens than its 3: []"),
        (ids, json!([]), "named the weights of other tokens than its 0"),
        (ids, Value::Null, "answered without `token_ids`"),
        ("/choices/0/token_ids/1", json!(900), "log-probs of other token ids than `token_ids`"),
        (scored, json!([]), "gave 0 log-probs for 3 tokens"),
        (scored, Value::Null, "answered without `logprobs.content`"),
        (
            "/choices/0/logprobs/content/1/logprob",
            Value::Null,
            "gave the log-prob null for token 2",
        ),
        ("/choices/0/logprobs/content/2/logprob", json!(0.5), "gave the log-prob 0.5 for token 3"),
        ("/model", json!("other"), "sampled with the model \"other\", not `base`"),
        ("/prompt_token_ids", json!([5, 6, 8]), "read another prompt than the one that was sent"),
        ("/usage/prompt_tokens", json!(4), "read a prompt of 4 tokens, and 3 were sent"),
        ("/choices/0/finish_reason", json!("abort"), "aborted the request"),
        ("/choices/0/finish_reason", json!("error"), "ended for the reason \"error\""),
        ("/choices", json!([]), "gave 0 completions, not 1"),
    ]
}

#[tokio::test]
async fn every_wrong_answer_is_an_error_that_names_the_server_and_what_is_wrong() {
    let sglang = sglang_cases().into_iter().map(|case| (KINDS[0], case));
    let vllm = vllm_cases().into_iter().map(|case| (KINDS[2], case));
    let whole = vllm_whole_cases().into_iter().map(|case| (KINDS[3], case));
    for (kind, (place, value, wanted)) in sglang.chain(vllm).chain(whole) {
        let mut answer = recorded(kind);
        *answer.pointer_mut(place).unwrap() = value;
        let (done, url, _) = ask(kind, 0, move |_| http(200, &answer.to_string())).await;
        let error = done.unwrap_err();
        let start = format!("policy `p`: rollout servers `fast`: {url}: ");
        assert!(error.starts_with(&start) && error.contains(wanted), "{place}: {error}");
    }
}

#[tokio::test]
async fn tokens_after_a_stop_id_or_beyond_the_limit_are_refused() {
    let kind = KINDS[2];
    let stop = tokenizer().stop_ids()[0];
    for (ids, wanted) in [
        (vec![40, stop, 41], format!("went on after token 2 of 3, the stop id {stop}")),
        (vec![40; 9], "gave 9 tokens, and at most 8 were asked for".to_owned()),
    ] {
        let mut answer = recorded(kind);
        answer["choices"][0]["logprobs"]["token_logprobs"] = json!(vec![-0.5; ids.len()]);
        answer["choices"][0]["token_ids"] = json!(ids);
        let (done, ..) = ask(kind, 0, move |_| http(200, &answer.to_string())).await;
        let error = done.unwrap_err();
        assert!(error.contains(&wanted), "{error}");
    }
    // As many as asked for.
    let mut answer = recorded(kind);
    answer["choices"][0]["logprobs"]["token_logprobs"] = json!(vec![-0.5; 8]);
    answer["choices"][0]["token_ids"] = json!(vec![40; 8]);
    answer["choices"][0]["finish_reason"] = json!("length");
    let (done, ..) = ask(kind, 0, move |_| http(200, &answer.to_string())).await;
    assert_eq!(done.unwrap().finish, Finish::Length);
}

#[tokio::test]
async fn a_failing_server_is_tried_again_and_named_when_it_goes_on_failing() {
    let good = |kind: (ServerKind, bool)| http(200, &recorded(kind).to_string());
    let cut = |kind: (ServerKind, bool)| {
        let text = recorded(kind).to_string();
        http(200, &text[..text.len() / 2])
    };
    let short = |kind: (ServerKind, bool)| {
        let whole = good(kind);
        whole[..whole.len() - 20].to_vec()
    };
    for kind in KINDS {
        let failures: [(Vec<u8>, &str); 7] = [
            (http(500, "Internal Server Error"), "status 500: \"Internal Server Error\""),
            (http(503, "{}"), "status 503"),
            (http(429, "slow"), "status 429"),
            (Vec::new(), ""),
            (short(kind), ""),
            (cut(kind), "no JSON: EOF while parsing"),
            (http(200, "<html>"), "answered \"<html>\", no JSON: expected value"),
        ];
        for (failure, wanted) in failures {
            let (once, later) = (failure.clone(), good(kind));
            let (done, ..) =
                ask(kind, 1, move |n| if n == 1 { once.clone() } else { later.clone() }).await;
            assert_eq!(done.unwrap().ids.len(), 3, "{wanted}");
            let (done, url, _) = ask(kind, 1, move |_| failure.clone()).await;
            let error = done.unwrap_err();
            assert!(error.contains(&url) && error.contains(wanted), "{error}");
            assert!(error.ends_with("(2 attempts)"), "{error}");
        }
    }
}

#[tokio::test]
async fn statuses_that_stay_are_not_tried_again() {
    for (status, wanted) in
        [(401, "status 401"), (302, "status 302, a redirect"), (413, "status 413")]
    {
        let (done, _, received) = ask(KINDS[2], 3, move |_| http(status, "{}")).await;
        let error = done.unwrap_err();
        assert!(error.contains(wanted), "{error}");
        assert_eq!(received.lock().unwrap().len(), 2, "{status}");
    }
}

#[tokio::test]
async fn nothing_is_asked_where_a_rollout_server_redirects_to() {
    let (elsewhere, asked) = serve(|_, _| http(200, "{}"));
    for kind in KINDS {
        for status in [301, 302, 303, 307, 308] {
            let moved = response_with(&format!("{status} X\r\nLocation: {elsewhere}/v1"), b"");
            let wanted = format!("status {status}, a redirect to ");
            // Of a generation, and of a command.
            let answer = moved.clone();
            let (done, ..) = ask(kind, 3, move |_| answer.clone()).await;
            let error = done.unwrap_err();
            assert!(error.contains(&wanted), "{error}");
            let (url, _) = serve(move |_, _| moved.clone());
            let remote = remote(kind.0, &[url], kind.1, 3);
            let error = remote.publish(LABEL, "/w", 0).await.unwrap_err().to_string();
            assert!(error.contains(&wanted), "{error}");
        }
    }
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_vllm_server_without_the_routes_of_full_weights_is_an_error_that_says_how_to_start_it() {
    let closed = r#"{"error":{"message":"Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.","type":"PermissionDeniedError","param":null,"code":403}}"#;
    let (done, url, received) = ask(KINDS[3], 3, |_| http(403, closed)).await;
    let error = done.unwrap_err();
    for part in [
        &*url,
        "/inference/v1/generate: status 403",
        "`VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(received.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_left_after_the_time_limit() {
    let (url, _) = serve(|_, received| {
        loads(received).unwrap_or_else(|| {
            std::thread::sleep(Duration::from_millis(1500));
            Vec::new()
        })
    });
    let remote = remote(ServerKind::Vllm, &[url], true, 0);
    remote.publish(LABEL, "/w", 0).await.unwrap();
    let error = remote.generate(request(8)).await.unwrap_err().to_string();
    assert!(error.contains("no answer within 1 s (1 attempt)"), "{error}");
}

#[tokio::test]
async fn a_lost_server_costs_nothing_while_another_one_answers() {
    let (good, received) = serve(|_, received| {
        loads(received).unwrap_or_else(|| http(200, &recorded(KINDS[2]).to_string()))
    });
    // Nobody listens at port 1.
    let gone = "http://127.0.0.1:1".to_owned();
    let remote = remote(ServerKind::Vllm, &[gone.clone(), good], true, 0);
    remote.publish(LABEL, "/w", 0).await.unwrap();
    for _ in 0..4 {
        remote.generate(request(8)).await.unwrap();
    }
    let generations = received
        .lock()
        .unwrap()
        .iter()
        .filter(|received| received.route() == vllm::GENERATE)
        .count();
    assert_eq!(generations, 4);
    let usage = remote.servers().take_usage();
    assert_eq!((usage.requests, usage.tokens), (4, 12));
    // The lost one is asked once, not for every request.
    assert_eq!(usage.failures, 1);
    let probes = remote.probe(0.6).await;
    assert_eq!(probes[0].0, gone);
    assert!(probes[0].1.is_err());
    // The recorded answer is one to another prompt than that of a probe.
    assert!(probes[1].1.as_ref().unwrap_err().starts_with("read another prompt"));
}

#[tokio::test]
async fn a_server_that_lost_its_adapter_gets_it_again() {
    for (kind, lost) in [
        (
            ServerKind::Vllm,
            http(
                404,
                r#"{"error":{"message":"The model `p-run-1` does not exist.","type":"NotFoundError","param":"model","code":404}}"#,
            ),
        ),
        (
            ServerKind::Sglang,
            http(
                400,
                r#"{"error":{"message":"The following requested LoRA adapters are not loaded: {'p-run-1'}"}}"#,
            ),
        ),
    ] {
        let good = http(200, &recorded((kind, true)).to_string());
        let (done, _, received) =
            ask((kind, true), 1, move |n| if n == 1 { lost.clone() } else { good.clone() }).await;
        assert_eq!(done.unwrap().ids.len(), 3);
        let received = received.lock().unwrap();
        let routes: Vec<bool> =
            received.iter().map(|of| of.route().ends_with("load_lora_adapter")).collect();
        assert_eq!(routes, [true, false, true, false]);
    }
}

#[tokio::test]
async fn a_server_that_restarted_gets_full_weights_again_in_all_commands() {
    let mut lost = recorded(KINDS[3]);
    lost["choices"][0]["weight_versions"][0]["version"] = json!("default");
    let good = recorded(KINDS[3]).to_string();
    let answer = move |n| http(200, &if n == 1 { lost.to_string() } else { good.clone() });
    let (done, _, received) = ask(KINDS[3], 1, answer).await;
    assert_eq!(done.unwrap().ids.len(), 3);
    let received = received.lock().unwrap();
    let reloads: Vec<usize> =
        (0..received.len()).filter(|&at| received[at].route() == "/collective_rpc").collect();
    assert_eq!((reloads, received.len()), (vec![1, 6], 10));
}

#[tokio::test]
async fn full_weights_are_complete_when_the_prefix_cache_is_reset() {
    let (url, received) = serve(|n, received| match (received.route(), n) {
        ("/reset_prefix_cache", 2) => http(200, r#"{"success":false}"#),
        _ => loads(received).unwrap(),
    });
    remote(ServerKind::Vllm, std::slice::from_ref(&url), false, 1)
        .publish(LABEL, "/w", 0)
        .await
        .unwrap();
    let received = received.lock().unwrap();
    let routes: Vec<&str> = received.iter().map(Received::route).collect();
    let [version, call, reset] = vllm_whole::COMMANDS;
    assert_eq!(routes, [version, call, reset, reset, version]);
    assert_eq!(received[4].body["new_version"], LABEL);
}

#[tokio::test]
async fn weights_that_no_server_loads_are_an_error_with_the_reason() {
    for (kind, adapter, answer, wanted) in [
        (
            ServerKind::Sglang,
            false,
            http(
                400,
                r#"{"success":false,"message":"Failed to update weights: size mismatch","num_paused_requests":0}"#,
            ),
            "/update_weights_from_disk: status 400",
        ),
        (
            ServerKind::Sglang,
            true,
            http(200, r#"{"success":false,"error_message":"LoRA is not enabled."}"#),
            "LoRA is not enabled.",
        ),
        (
            ServerKind::Vllm,
            true,
            http(404, r#"{"error":{"message":"No adapter found for /w"}}"#),
            "/v1/load_lora_adapter: status 404",
        ),
        (
            ServerKind::Vllm,
            false,
            http(404, r#"{"detail":"Not Found"}"#),
            "vLLM 0.32 or newer, started with `VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`",
        ),
        (
            ServerKind::Vllm,
            false,
            http(
                500,
                r#"{"error":{"message":"Call to collective_rpc method failed: Worker failed with error 'Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start or end with '-' or '.' and the maximum length is 96: '/w'.', please check the stack trace above for the root cause","type":"InternalServerError","param":null,"code":500}}"#,
            ),
            "Call to collective_rpc method failed: Worker failed",
        ),
        (
            ServerKind::Vllm,
            false,
            http(200, r#"{"success":false}"#),
            "not while it runs other requests",
        ),
    ] {
        let (url, _) = serve(move |_, _| answer.clone());
        let remote = remote(kind, std::slice::from_ref(&url), adapter, 1);
        let error = remote.publish(LABEL, "/w", 0).await.unwrap_err();
        let start = format!("{url}: it did not load `p-run-1` from /w: ");
        assert!(error.starts_with(&start) && error.contains(wanted), "{error}");
    }
}

#[tokio::test]
async fn a_directory_that_a_server_sees_late_is_loaded_when_it_is_there() {
    let missing = http(404, r#"{"error":{"message":"No adapter found for /w"}}"#);
    let (url, received) =
        serve(move |n, received| if n == 0 { missing.clone() } else { loads(received).unwrap() });
    remote(ServerKind::Vllm, &[url], true, 2).publish(LABEL, "/w", 0).await.unwrap();
    assert_eq!(received.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn the_newest_two_versions_of_an_adapter_stay_on_a_server() {
    let (url, received) = serve(|_, received| loads(received).unwrap());
    let remote = remote(ServerKind::Vllm, &[url], true, 0);
    for version in 0..4 {
        remote.publish(&format!("p-{version}"), "/w", version).await.unwrap();
    }
    let received = received.lock().unwrap();
    let unloaded = received.iter().filter(|of| of.route() == "/v1/unload_lora_adapter");
    let unloaded: Vec<&str> = unloaded.map(|of| of.body["lora_name"].as_str().unwrap()).collect();
    assert_eq!(unloaded, ["p-0", "p-1"]);
}

#[tokio::test]
async fn a_prompt_that_fills_the_context_is_an_overflow_and_no_request() {
    let (url, received) = serve(|_, _| Vec::new());
    let remote = remote(ServerKind::Vllm, &[url], false, 0);
    let error = remote.generate(Request { prompt: vec![1; 64], ..request(8) }).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Overflow { prompt: 64, context: 64 }), "{error}");
    assert!(received.lock().unwrap().is_empty());
}

/// Returns the answer of a server with experts of its tokens, or without any.
fn with_routes(kind: (ServerKind, bool), routes: Value) -> Vec<u8> {
    let mut answer = recorded(kind);
    match kind.0 {
        ServerKind::Sglang => answer["meta_info"]["routed_experts"] = routes,
        ServerKind::Vllm => answer["choices"][0]["routed_experts"] = routes,
    }
    http(200, &answer.to_string())
}

#[tokio::test]
async fn experts_of_all_tokens_but_the_last_are_asked_for_and_replayed_and_answers_without_them_refused()
 {
    // Three tokens of a prompt, two sampled ones with experts, in two layers with three of six experts.
    let experts = [0_u8, 1, 2, 5, 4, 3].repeat(5);
    for kind in KINDS {
        let wide: Vec<u8> = experts.iter().flat_map(|&e| i32::from(e).to_le_bytes()).collect();
        let sent = |short: usize| match kind.0 {
            ServerKind::Vllm => {
                let tokens = 5 - short;
                super::routes::tests::array(
                    "|u1",
                    &format!("{tokens}, 2, 3"),
                    &experts[..6 * tokens],
                )
            }
            ServerKind::Sglang => BASE64_STANDARD.encode(&wide[..wide.len() - 24 * short]).into(),
        };
        for (routes, problem) in [
            (sent(0), None),
            (Value::Null, Some("`--enable-return-routed-experts`")),
            (sent(1), Some("`routed_experts`")),
        ] {
            let (url, received) = serve(move |_: usize, received: &Received| {
                loads(received).unwrap_or_else(|| with_routes(kind, routes.clone()))
            });
            let mut remote = remote(kind.0, std::slice::from_ref(&url), kind.1, 0);
            remote.shape = super::routes::tests::shape();
            Arc::get_mut(&mut remote.servers).unwrap().router_replay = true;
            // The ids of the recorded answer are those of another vocabulary.
            remote.shape.vocab_size = 512;
            remote.publish(LABEL, "/w", 3).await.unwrap();
            let done = remote.generate(request(8)).await.map_err(|error| error.to_string());
            match problem {
                None => {
                    let found = done.unwrap().routes.unwrap();
                    assert_eq!((found.experts(), found.tokens()), (&experts[..], 5));
                }
                Some(problem) => {
                    let told = done.unwrap_err();
                    assert!(told.contains(problem) && told.contains(&url), "{told}");
                }
            }
            let received = received.lock().unwrap();
            let asked = &received.last().unwrap().body["return_routed_experts"];
            assert_eq!(*asked == true, kind.0 == ServerKind::Sglang);
        }
    }
}
