//! `maverl serve` as a process: its first line, its signals, the policies of a run, and the clients of others.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use maverl_tests::lab::{Lab, wait_until};
use serde_json::{Value, json};

/// Variable with the Python that has the packages of `tests/python/requirements-openai.txt`.
const PYTHON: &str = "MAVERL_TEST_PYTHON";
/// Key of the servers, which nothing that they write may contain.
const KEY: &str = "marked-key-4711-of-the-test";

/// A running server.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts `maverl serve` with arguments, and waits until it is healthy.
    fn start(lab: &Lab, args: &[&str]) -> Self {
        let log = std::fs::File::create(lab.path("server.log")).unwrap();
        let args =
            [&["serve"], args, &["--address", "127.0.0.1:0", "--key-env", "TEST_KEY"]].concat();
        let mut command = lab.command(&args);
        let mut child =
            command.env("TEST_KEY", KEY).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        let address =
            told["listening"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        let server = Self { child, address };
        wait_until("the server", || server.get("/health").0 == 200);
        server
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.send(&format!("GET {path} HTTP/1.1\r\n"), "")
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(&format!("POST {path} HTTP/1.1\r\n"), &body.to_string())
    }

    fn send(&self, line: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "{line}host: localhost\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// Asks the server to stop, and returns the exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server does not stop");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page of the book about serving.
fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/serving.md");
    std::fs::read_to_string(path).unwrap()
}

/// Returns the bodies of the requests on the page: those to a team, or those to a model.
fn requests_of_the_page(to_a_team: bool) -> Vec<Value> {
    let page = page();
    let bodies = page.split("-d '").skip(1).map(|rest| rest.split('\'').next().unwrap());
    let bodies = bodies.map(|body| serde_json::from_str::<Value>(body).unwrap());
    bodies.filter(|body| body.get("maverl").is_some() == to_a_team).collect()
}

fn lab() -> Lab {
    Lab::new(env!("CARGO_BIN_EXE_team"))
}

/// Fails if a file in a directory contains the key.
fn without_key(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            without_key(&path);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
        assert!(!found, "{} has the key", path.display());
    }
}

#[test]
fn a_served_model_needs_its_key_and_a_signal_ends_it() {
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let (status, models) = server.get("/v1/models");
    assert_eq!((status, &models["data"][0]["id"]), (200, &json!("tiny")));
    for body in requests_of_the_page(false) {
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{body}: {answer}");
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 401") && text.contains("invalid_api_key"), "{text}");
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
}

#[test]
fn a_model_that_is_not_there_ends_the_server_with_the_reason() {
    let lab = lab();
    for (args, part) in [
        (&["--model", "no/such/model"][..], "no/such/model"),
        (&["--run", "runs/none"], "runs/none"),
        (&["--model", "builtin:tiny", "--adapter", "judge=model"], "adapter"),
    ] {
        let args = [&["serve", "model", "--address", "127.0.0.1:0"], args].concat();
        let ended = lab.run(&args).failed();
        assert!(ended.stderr.contains(part), "{ended}");
    }
    let ended = lab.run(&["serve", "model", "--model", "builtin:tiny", "--address", "0.0.0.0:0"]);
    ended.failed().says(&["there is no key; add `--key-env NAME`"]);
}

#[test]
fn a_policy_of_a_run_is_served_as_it_was_trained_to_the_bit() {
    let lab = lab();
    let run =
        lab.train("run", &["checkpoint.keep=9", "eval.every=2", "eval.before_and_after=false"]);
    let server = Server::start(
        &lab,
        &[
            "model",
            "--run",
            "run",
            "--checkpoint",
            "last",
            "--checkpoint",
            "0",
            "--checkpoint",
            "2",
        ],
    );
    let (_, models) = server.get("/v1/models");
    let names: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["tiny", "tiny@4", "tiny@0", "tiny@2"]);
    let stops: Vec<u32> = (200..256).collect();
    let mut compared = 0;
    // Step n + 1 was played with the weights of checkpoint n.
    for (step, model) in [(1, "tiny@0"), (3, "tiny@2")] {
        let turns = run.episodes(step).into_iter().flat_map(|episode| episode.turns);
        for turn in turns {
            let Some(tokens) = turn.tokens else { continue };
            let params = json!({
                "temperature": tokens.temperature, "max_tokens": 16, "seed": tokens.seed, "stop_token_ids": stops,
                "logprobs": 0,
            });
            let body =
                json!({"model": model, "token_ids": tokens.prompt, "sampling_params": params});
            let (status, answer) = server.post("/inference/v1/generate", &body);
            assert_eq!(status, 200, "{answer}");
            let choice = &answer["choices"][0];
            assert_eq!(choice["token_ids"], json!(tokens.completion));
            let logprobs = choice["logprobs"]["content"].as_array().unwrap();
            let logprobs: Vec<f32> =
                logprobs.iter().map(|entry| entry["logprob"].as_f64().unwrap() as f32).collect();
            assert_eq!(logprobs, tokens.logprobs);
            compared += 1;
        }
    }
    println!("{compared} turns are equal");
    assert!(compared > 10);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn clients_of_others_drive_a_served_model() {
    let python = std::env::var(PYTHON).ok().or_else(|| {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/.venv/bin/python");
        beside.is_file().then(|| beside.display().to_string())
    });
    let Some(python) = python else {
        println!(
            "skipped: `{PYTHON}` names no Python with `tests/python/requirements-openai.txt`; `just clients` makes one"
        );
        return;
    };
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/openai_clients.py");
    let output = Command::new(&python)
        .arg(&script)
        .env("OPENAI_BASE_URL", format!("http://{}/v1", server.address))
        .env("OPENAI_API_KEY", KEY)
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = page();
    let example =
        page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let example =
        example.replace("127.0.0.1:8000", &server.address).replace("\"none\"", &format!("{KEY:?}"));
    let output = Command::new(&python).args(["-c", &example]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!output.stdout.is_empty());
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
}

#[test]
fn a_served_team_plays_the_episode_that_it_played_in_its_run() {
    let lab = lab();
    let run = lab.train("run", &["checkpoint.keep=9", "eval.before_and_after=false"]);
    let server =
        Server::start(&lab, &["team", "--run", "run", "--checkpoint", "0", "--show-turns"]);
    let (_, models) = server.get("/v1/models");
    assert_eq!(models["data"][0]["id"], "duo/relay");
    for body in requests_of_the_page(true) {
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{body}: {answer}");
    }
    for episode in run.episodes(1) {
        let body = json!({
            "model": "duo/relay", "seed": episode.seed, "maverl": {"turns": true},
            "messages": [{"role": "user", "content": episode.task.question}],
        });
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        let message = &answer["choices"][0]["message"];
        assert_eq!(message["content"], episode.answer.clone().unwrap_or_default());
        let outcome = if episode.answer.is_some() { "answer" } else { "no_answer" };
        assert_eq!(answer["maverl"]["outcome"], outcome);
        let turns = answer["maverl"]["turns"].as_array().unwrap();
        assert_eq!(turns.len(), episode.turns.len());
        let mut tokens = 0;
        for (found, turn) in turns.iter().zip(&episode.turns) {
            assert_eq!(found["reply"], turn.reply);
            assert_eq!(found["seat"], turn.seat.to_string());
            assert_eq!(found["path"], turn.path.to_string());
            tokens += turn.tokens.as_ref().map_or(0, |tokens| tokens.completion.len());
            let shown = message["reasoning_content"].as_str().unwrap();
            assert!(shown.contains(turn.reply.trim()), "{shown}");
        }
        assert_eq!(answer["usage"]["completion_tokens"], tokens);
    }
    let ask = |fields: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "question 1?"}], "seed": 1});
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        server.post("/v1/chat/completions", &body)
    };
    let tool = json!({"type": "function", "function": {"name": "f"}});
    for (name, value) in [
        ("tools", json!([tool])),
        ("response_format", json!({"type": "json_object"})),
        ("logprobs", json!(true)),
    ] {
        let (status, answer) = ask(json!({name: value}));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)));
    }
    assert_eq!(ask(json!({"model": "other"})).0, 404);
    let (_, several) = ask(json!({"n": 3, "temperature": 1.5, "max_tokens": 4}));
    assert_eq!(several["choices"].as_array().unwrap().len(), 3);
    assert_eq!(server.stop(), Some(0));
}
