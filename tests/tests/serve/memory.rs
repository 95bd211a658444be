//! Memory of a server: texts that cannot fit, the largest request that is accepted, and many requests.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;

use maverl_tests::lab::stride;
use serde_json::{Value, json};

use super::{KEY, Server, lab};

/// Most that a request may add to the largest memory of a server, in KiB.
const LARGEST: u64 = 256 << 10;
/// Requests that fill what a server keeps.
const WARMUP: usize = 3000;
/// The growth of memory that is allowed after it, in KiB: that of the allocator.
const GROWTH: u64 = 2 << 10;

/// Returns a value of `/proc/PID/status` in KiB, if the system reports it.
fn status(server: &Server, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Sends requests all at once. Returns their answers.
fn all_at_once(server: &Server, path: &str, bodies: &[Value]) -> Vec<(u16, Value)> {
    let bodies: Vec<String> = bodies.iter().map(Value::to_string).collect();
    std::thread::scope(|scope| {
        let send = |body| {
            let line = format!("POST {path} HTTP/1.1\r\n");
            scope.spawn(move || server.send(&line, body))
        };
        let threads: Vec<_> = bodies.iter().map(|body| send(body.as_str())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn texts_that_cannot_fit_take_little_more_memory_than_their_bytes() {
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny", "--kv-mib", "4"]);
    let text = "ab ".repeat(2_700_000);
    let before = status(&server, "VmHWM");
    let chat = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 1});
    let plain = json!({"prompt": text, "max_tokens": 1});
    for (path, body) in [
        ("/v1/chat/completions", &chat),
        ("/v1/completions", &plain),
        ("/v1/responses", &json!({"input": text})),
        ("/tokenize", &plain),
    ] {
        for (status, answer) in all_at_once(&server, path, &vec![body.clone(); 3]) {
            assert_eq!(
                (status, &answer["error"]["code"]),
                (400, &json!("context_length_exceeded")),
                "{path}"
            );
        }
    }
    let (Some(before), Some(after)) = (before, status(&server, "VmHWM")) else { return };
    println!(
        "three texts of 8 MB at once on four routes: at most {before} KiB before, {after} KiB after"
    );
    assert!(after < before + LARGEST, "the largest memory grew from {before} KiB to {after} KiB");
    let rest = status(&server, "VmRSS").unwrap();
    assert!(
        rest < before + LARGEST / 4,
        "{rest} KiB stay of {after} KiB; before there were {before}"
    );
}

#[test]
fn questions_that_no_agent_can_read_take_bounded_memory() {
    let lab = lab();
    let server = Server::start(&lab, &["team", "run.toml"]);
    let question = |text: &str| json!({"messages": [{"role": "user", "content": text}]});
    assert_eq!(server.post("/v1/chat/completions", &question("1 + 1?")).0, 200);
    let before = status(&server, "VmHWM");
    let long = question(&"ab ".repeat(2_700_000));
    for (status, answer) in all_at_once(&server, "/v1/chat/completions", &vec![long; 3]) {
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status >= 400 && message.contains("8100"), "{status}: {message}");
        assert_eq!(answer["error"]["code"], "context_length_exceeded", "{message}");
    }
    let (Some(before), Some(after)) = (before, status(&server, "VmHWM")) else { return };
    println!("three questions of 8 MB at once: at most {before} KiB before, {after} KiB after");
    // An episode has some copies of its question: in the request, the task, the turn and its prompt.
    assert!(
        after < before + 2 * LARGEST,
        "the largest memory grew from {before} KiB to {after} KiB"
    );
}

#[test]
fn replies_of_which_a_model_of_rewards_reads_the_end_take_bounded_memory() {
    let lab = lab();
    lab.judged();
    lab.run(&["train", "judge.toml", "--out", "judge"]).succeeded();
    lab.run(&["export", "--run", "judge", "--verifier", "--out", "verifier"]).succeeded();
    let server = Server::start(&lab, &["reward", "--model", "verifier"]);
    let judged = |text: &str| {
        let messages = [json!({"role": "user", "content": "1 + 1?"})];
        let item = json!({"id": "a", "messages": messages, "completion": text});
        json!({"protocol": 1, "items": [item]})
    };
    assert_eq!(server.post("/v1/score", &judged("2")).0, 200);
    let before = status(&server, "VmHWM");
    for (status, answer) in
        all_at_once(&server, "/v1/score", &vec![judged(&"ab ".repeat(2_700_000)); 3])
    {
        assert!(status == 200 && answer["items"][0]["reward"].is_number(), "{status}: {answer}");
    }
    let (Some(before), Some(after)) = (before, status(&server, "VmHWM")) else { return };
    println!("three replies of 8 MB at once: at most {before} KiB before, {after} KiB after");
    assert!(
        after < before + 2 * LARGEST,
        "the largest memory grew from {before} KiB to {after} KiB"
    );
    let rest = status(&server, "VmRSS").unwrap();
    assert!(rest < before + LARGEST, "{rest} KiB stay; before there were {before}");
}

#[test]
fn the_page_about_servers_states_these_limits_of_memory() {
    let page = super::page().split_whitespace().collect::<Vec<_>>().join(" ");
    let mib = LARGEST >> 10;
    for stated in [
        format!("grows by less than {mib} MiB for three texts of 8 MB at once"),
        format!("by less than {} GiB for the largest request that it accepts", (4 * mib) >> 10),
        format!("less than {} MiB for three questions of 8 MB at once", 2 * mib),
        format!("that of rewards by less than {} MiB for three replies of 8 MB at once", 2 * mib),
    ] {
        assert!(page.contains(&stated), "{stated}");
    }
}

#[test]
fn the_largest_request_that_is_accepted_takes_bounded_memory() {
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny", "--kv-mib", "4"]);
    let (_, models) = server.get("/v1/models");
    let context = models["data"][0]["max_model_len"].as_u64().unwrap() as usize;
    // The whole context in each of 256 prompts, with an answer of as many listed tokens as are allowed, and a field of the rest.
    let prompts: Vec<Vec<usize>> =
        (0..256).map(|i| (0..context - 1).map(|j| (i * 31 + j * 7) % 400).collect()).collect();
    let body = json!({"prompt": prompts, "max_tokens": 1, "echo": true, "logprobs": 7, "user": "x".repeat(14 << 20)});
    let before = status(&server, "VmHWM");
    let (code, answer) = server.post("/v1/completions", &body);
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["choices"].as_array().unwrap().len(), 256);
    let (Some(before), Some(after)) = (before, status(&server, "VmHWM")) else { return };
    println!("the largest request: at most {before} KiB before, {after} KiB after");
    assert!(
        after < before + 4 * LARGEST,
        "the largest memory grew from {before} KiB to {after} KiB"
    );
}

/// Returns a path and a body of a request with words.
type Kind = fn(&str) -> (&'static str, Value);

/// Requests with new words to complete.
const COMPLETIONS: &[Kind] =
    &[|words| ("/v1/completions", json!({"prompt": words, "max_tokens": 2}))];

/// Requests of many kinds, accepted and refused.
const KINDS: &[Kind] = &[
    |words| {
        ("/v1/completions", json!({"prompt": words, "max_tokens": 2, "logprobs": 3, "echo": true}))
    },
    |words| ("/v1/completions", json!({"prompt": words, "max_tokens": 4, "stream": true})),
    |words| ("/v1/completions", json!({"prompt": "a", "max_tokens": 2, "stop": words})),
    |words| {
        ("/v1/completions", json!({"prompt": [words, "a"], "max_tokens": 2, "n": 2, "user": words}))
    },
    |words| ("/v1/completions", json!({"prompt": "a", "model": words})),
    |words| ("/v1/completions", json!({"prompt": "a", words: 1})),
    |words| {
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": words}], "max_tokens": 2}),
        )
    },
    |words| {
        let messages =
            json!([{"role": "system", "content": words}, {"role": "user", "content": "a"}]);
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 2, "stream": true}))
    },
    |words| {
        let function = json!({"name": "f", "description": words, "parameters": {"type": "object"}});
        let messages = json!([{"role": "user", "content": "a"}]);
        let tools = json!([{"type": "function", "function": function}]);
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 2, "tools": tools}))
    },
    |words| ("/v1/chat/completions", json!({"messages": words})),
    |words| ("/v1/responses", json!({"input": words, "max_output_tokens": 2})),
    |words| ("/tokenize", json!({"prompt": words})),
    |words| ("/detokenize", json!({"tokens": [words.len(), 5, 6]})),
    |words| {
        let ids: Vec<usize> = words.bytes().map(usize::from).collect();
        ("/inference/v1/generate", json!({"token_ids": ids, "sampling_params": {"max_tokens": 2}}))
    },
    |words| ("/v1/unload_lora_adapter", json!({"lora_name": words})),
    |words| ("/no/such/path", json!({"prompt": words})),
];

/// Sends requests of these kinds in turn, with new words, over one connection.
fn send_words(server: &Server, kinds: &[Kind], requests: std::ops::Range<usize>) {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for i in requests {
        let words: Vec<String> =
            (0..6).map(|j| format!("w{:x}", (i * 6 + j) * 2_654_435_761)).collect();
        let (path, body) = kinds[i % kinds.len()](&words.join(" "));
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let answer = answer(&mut answers);
        let refused = answer.starts_with("{\"error\"");
        assert!(kinds.len() > 1 || !refused, "{answer}");
    }
}

/// Reads an answer, and returns its body.
fn answer(from: &mut impl BufRead) -> String {
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let line = line.to_lowercase();
        if let Some(n) = line.strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
        chunked |= line.starts_with("transfer-encoding: chunked");
        if line.trim_end().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).unwrap();
    while chunked {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        from.read_exact(&mut chunk).unwrap();
        body.extend(&chunk[..size]);
        chunked = size > 0;
    }
    String::from_utf8(body).unwrap()
}

/// Asserts that requests of these kinds after a first round leave nothing in the memory of a server, but what its allocator keeps.
fn leave_nothing(kinds: &[Kind], first: usize, requests: usize) {
    let lab = lab();
    let server = Server::start(
        &lab,
        &["model", "--model", "builtin:tiny", "--kv-mib", "1", "--threads", "1"],
    );
    // It fills the cache of keys and values, and the buffers of each thread.
    send_words(&server, kinds, 0..first);
    let before = status(&server, "RssAnon");
    send_words(&server, kinds, first..first + requests);
    let (Some(before), Some(after)) = (before, status(&server, "RssAnon")) else { return };
    println!("{requests} requests: {before} KiB before, {after} KiB after");
    assert!(after < before + GROWTH, "memory grew from {before} KiB to {after} KiB");
}

#[test]
fn requests_with_new_words_leave_nothing_in_memory() {
    let requests = WARMUP / stride(10);
    leave_nothing(COMPLETIONS, requests, requests);
}

/// The servers have a thread each, and run at once.
#[test]
#[ignore = "second tier: takes minutes"]
fn two_hundred_thousand_requests_and_those_of_sixteen_kinds_leave_nothing_in_memory() {
    std::thread::scope(|scope| {
        let kinds = scope.spawn(|| leave_nothing(KINDS, WARMUP, 16 * WARMUP));
        leave_nothing(COMPLETIONS, WARMUP, 200_000);
        kinds.join().unwrap();
    });
}
