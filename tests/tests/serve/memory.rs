//! Memory of a server: texts that cannot fit, the largest request that is accepted, and many requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

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

/// Sends requests with new words over one connection.
fn send_words(server: &Server, requests: std::ops::Range<usize>) {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for i in requests {
        let words: Vec<String> =
            (0..6).map(|j| format!("w{:x}", (i * 6 + j) * 2_654_435_761)).collect();
        let body = json!({"prompt": words.join(" "), "max_tokens": 2}).to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            answers.read_line(&mut line).unwrap();
            if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        answers.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"{\"id\""), "{}", String::from_utf8_lossy(&answer));
    }
}

/// Asserts that requests with new words leave nothing in the memory of a server, but what its allocator keeps.
fn leave_nothing(requests: usize) {
    let lab = lab();
    let server = Server::start(
        &lab,
        &["model", "--model", "builtin:tiny", "--kv-mib", "1", "--threads", "1"],
    );
    // A first round fills the cache of keys and values, and the buffers of each thread.
    send_words(&server, 0..WARMUP);
    let before = status(&server, "RssAnon");
    send_words(&server, WARMUP..WARMUP + requests);
    let (Some(before), Some(after)) = (before, status(&server, "RssAnon")) else { return };
    println!("{requests} requests: {before} KiB before, {after} KiB after");
    assert!(after < before + GROWTH, "memory grew from {before} KiB to {after} KiB");
}

#[test]
fn requests_with_new_words_leave_nothing_in_memory() {
    leave_nothing(WARMUP);
}

#[test]
#[ignore = "second tier: takes minutes"]
fn two_hundred_thousand_requests_leave_nothing_in_memory() {
    leave_nothing(200_000);
}
