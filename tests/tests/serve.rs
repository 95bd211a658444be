//! `maverl serve` as a process: its first line, its signals, the policies of a run, and the clients of others.
#![allow(clippy::unwrap_used)]

#[path = "serve/environments.rs"]
mod environments;
#[path = "serve/grammar.rs"]
mod grammar;
#[path = "serve/logs.rs"]
mod logs;
#[path = "serve/memory.rs"]
mod memory;
#[path = "serve/models.rs"]
mod models;
#[path = "serve/programs.rs"]
mod programs;
#[path = "serve/rewards.rs"]
mod rewards;
#[path = "serve/tinker.rs"]
mod tinker;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use maverl_tests::lab::{Ended, Lab, Run, wait_until};
use serde_json::{Value, json};

/// Variable with the Python that has the packages of `tests/python/requirements-openai.txt`.
const PYTHON: &str = "MAVERL_TEST_PYTHON";
/// Key of the servers, which nothing that they write may contain.
const KEY: &str = "tml-marked-key-4711-of-the-test";

/// A running server.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts `maverl serve` with arguments at a free port, and waits until it is healthy.
    fn start(lab: &Lab, args: &[&str]) -> Self {
        Self::start_at(lab, "127.0.0.1:0", args)
    }

    /// Starts `maverl serve` with arguments at an address, and waits until it is healthy.
    fn start_at(lab: &Lab, address: &str, args: &[&str]) -> Self {
        let log = std::fs::File::create(lab.path("server.log")).unwrap();
        let args = [&["serve"], args, &["--address", address, "--key-env", "TEST_KEY"]].concat();
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
        let (status, body) = self.exchange(line, body);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// Returns the value of a line of the metrics.
    fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.exchange("GET /metrics HTTP/1.1\r\n", "");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    fn exchange(&self, line: &str, body: &str) -> (u16, String) {
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
        (status, body.to_owned())
    }

    /// Asks the server to stop, and returns the exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(600) {
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

/// Returns a Python that has a module: that of the variable, or one that `just clients` made. Without one, says that the test is
/// skipped, and names the list of packages.
fn python(module: &str, list: &str) -> Option<String> {
    let made = match list {
        "verifiers" => "python/.venv-verifiers/bin/python",
        _ => "python/.venv/bin/python",
    };
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join(made);
    let made = made.is_file().then(|| made.display().to_string());
    let mut pythons = std::env::var(PYTHON).ok().into_iter().chain(made);
    let has = |python: &String| {
        let program =
            "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";
        let found = Command::new(python).args(["-c", program, module]).output();
        found.is_ok_and(|output| output.status.success())
    };
    let found = pythons.find(has);
    if found.is_none() {
        println!(
            "skipped: `{PYTHON}` names no Python with `tests/python/requirements-{list}.txt`; `just clients` makes one"
        );
    }
    found
}

/// Returns the path of a script in Python.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
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
        (&["--model", "builtin:tinny"], "no built-in model is called \"tinny\""),
        (&["--model", "builtin:tiny", "--adapter", "tiny=model"], "two models are called `tiny`"),
        (&["--run", "runs/none"], "runs/none"),
        (&["--model", "builtin:tiny", "--adapter", "judge=model"], "adapter"),
    ] {
        let args = [&["serve", "model", "--address", "127.0.0.1:0"], args].concat();
        let ended = lab.run(&args).failed();
        assert!(ended.stderr.contains(part), "{ended}");
        assert_eq!(ended.stdout, "", "a server that cannot start announces no address");
    }
    for team in [&["serve", "team", "none.toml"][..], &["serve", "team"]] {
        let ended = lab.run(&[team, &["--address", "127.0.0.1:0"]].concat()).failed();
        assert_eq!(ended.stdout, "", "{ended}");
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
    let Some(python) = python("openai", "openai") else { return };
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let script = script("openai_clients.py");
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
fn clients_of_anthropic_drive_a_served_model() {
    let Some(python) = python("anthropic", "anthropic") else { return };
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let url = format!("http://{}", server.address);
    let output = Command::new(&python)
        .arg(script("anthropic_clients.py"))
        .env("ANTHROPIC_BASE_URL", &url)
        .env("ANTHROPIC_API_KEY", KEY)
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = page();
    let example = page.split("```python\n").find(|part| part.contains("import Anthropic")).unwrap();
    let example = example.split("```").next().unwrap();
    let example =
        example.replace("http://127.0.0.1:8000", &url).replace("\"none\"", &format!("{KEY:?}"));
    let output = Command::new(&python).args(["-c", &example]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!output.stdout.is_empty());
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
    // The replies of four turns fit this context, however long they are.
    lab.model("wide", 16384);
    let server = Server::start(&lab, &["model", "--model", "wide"]);
    let url = format!("http://{}", server.address);
    for task in ["Who wrote Magdor?", "Which city?", "2 + 2?"] {
        assert!(coding_agent(&python, &url, task).contains("\"answer\": "), "{task}");
    }
    assert_eq!(server.stop(), Some(0));
    let args = ["model", "--model", "builtin:tiny", "--max-requests", "1", "--max-waiting", "0"];
    let server = Server::start(&lab, &args);
    let mut command = Command::new(&python);
    command.arg(script("anthropic_clients.py")).arg("busy").env("ANTHROPIC_API_KEY", KEY);
    command.env("ANTHROPIC_BASE_URL", format!("http://{}", server.address));
    let output = command.env("NO_PROXY", "127.0.0.1").output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.stop(), Some(0));
}

/// Plays a task with the stand-in of a coding agent. Returns what it has printed.
fn coding_agent(python: &str, url: &str, task: &str) -> String {
    let agent = format!("{}/../examples/programs/messages/messages.py", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python);
    command.arg(agent).env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", KEY);
    command.env("ANTHROPIC_MODEL", "wide").env("NO_PROXY", "127.0.0.1").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let line = format!("{}\n", serde_json::json!({ "task": { "question": task } }));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), line.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{task}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_evaluation_harness_drives_a_served_model() {
    let Some(python) = python("lm_eval", "lm-eval") else { return };
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let output = Command::new(&python)
        .arg(script("lm_eval_client.py"))
        .env("OPENAI_BASE_URL", format!("http://{}/v1", server.address))
        .env("OPENAI_API_KEY", KEY)
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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

/// Number of requests that are malformed, of threads that send them, and of connections without a request.
const MALFORMED: usize = 10_000;
const SENDERS: usize = 8;
const IDLE: usize = 1000;
/// Memory in KiB by which a server may grow under them.
const GROWTH: u64 = 64 << 10;

/// Returns malformed requests: bytes that are not HTTP, and bodies that no route accepts.
fn malformed() -> Vec<Vec<u8>> {
    let deep = "[".repeat(100_000);
    let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\na: {}\r\n\r\n", "y".repeat(200 << 10));
    let mut all: Vec<Vec<u8>> = [
        "\0\u{1}\u{2}\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET x y z\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer no\r\ncontent-length: 2\r\n\r\n{}",
        long.as_str(),
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    let messages = r#""messages": [{"role": "user", "content": "x"}]"#;
    let bodies = [
        "",
        "{",
        "[]",
        "null",
        deep.as_str(),
        "{\"model\": \"\\u0000\"}",
        "{\"messages\": 5}",
        "{\"messages\": [{\"role\": \"user\", \"content\": {\"a\": 1}}]}",
        "{\"messages\": [{\"role\": 1}]}",
        "{\"prompt\": [1, -2]}",
    ];
    let fields =
        ["\"max_tokens\": -1", "\"temperature\": \"hot\"", "\"n\": 1e400", "\"tools\": [7]"];
    let bodies = bodies.into_iter().map(|body| body.as_bytes().to_vec());
    let bodies = bodies.chain(fields.map(|field| format!("{{{messages}, {field}}}").into_bytes()));
    for body in bodies.chain([b"{\"prompt\": \"\xff\xfe\"}".to_vec()]) {
        let length = body.len();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        all.push([head.into_bytes(), body].concat());
    }
    all
}

/// Returns the memory of a process in KiB, if the system reports it.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Raises the limit of open files of the test, which holds the other ends of the connections.
fn open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(4096, |most| most.min(4096));
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    }
}

#[test]
fn malformed_requests_and_idle_connections_leave_a_server_as_it_was() {
    let lab = lab();
    open_files();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let complete = || {
        let body = json!({"model": "tiny", "prompt": "Who?", "max_tokens": 4, "seed": 1});
        let (status, answer) = server.post("/v1/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0]["text"].clone()
    };
    let text = complete();
    // A first round, so that what is allocated once is there.
    let requests = malformed();
    let send = |request: &[u8]| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        // A server may refuse a request before it has read all of it.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{shown}: {answer}");
    };
    requests.iter().for_each(|request| send(request));
    let before = resident(server.child.id());
    let idle: Vec<TcpStream> = (0..IDLE)
        .map(|i| TcpStream::connect(&server.address).unwrap_or_else(|e| panic!("{i}: {e}")))
        .collect();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (requests, send) = (&requests, &send);
            scope.spawn(move || {
                for i in (sender..MALFORMED).step_by(SENDERS) {
                    send(&requests[i % requests.len()]);
                }
            });
        }
    });
    assert_eq!(complete(), text, "with {} idle connections", idle.len());
    let after = resident(server.child.id());
    println!(
        "{MALFORMED} malformed requests beside {IDLE} idle connections in {:?}; memory in KiB: {before:?}, then {after:?}",
        begin.elapsed()
    );
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after < before + GROWTH, "memory grew from {before} KiB to {after} KiB");
    }
    drop(idle);
    assert_eq!(server.stop(), Some(0));
}

/// A team that looks facts up and answers, and learns from a few episodes.
const LOOKS_UP: &str = r#"
seed = 7
steps = 2
[task]
data = "builtin:facts"
tasks_per_step = 2
group_size = 4
[orchestra]
name = "solo/act"
max_turns = 3
[environment]
name = "search"
top_k = 1
[sampling]
max_tokens = 24
[models.tiny]
path = "builtin:generalist"
[eval]
before_and_after = false
every = 0
"#;

/// The environment of [`LOOKS_UP`] with its tasks, without a team.
const SERVED: &str = r#"
[task]
data = "builtin:facts"
[environment]
name = "search"
top_k = 1
"#;

/// A protocol of environments behind servers.
#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    OpenEnv,
    Grpc,
}

impl Protocol {
    /// Returns what a configuration sets, beside the address and the key.
    fn set(self) -> &'static [&'static str] {
        match self {
            Self::OpenEnv => {
                &["environment.name=\"openenv\"", "environment.reset={ task_id = \"$id\" }"]
            }
            Self::Grpc => &["environment.name=\"grpc\""],
        }
    }

    /// Returns the arguments of the server. A session of OpenEnv ends with its connection, one of gRPC with its lease.
    fn served(self) -> &'static [&'static str] {
        match self {
            Self::OpenEnv => &["environment", "served.toml"],
            Self::Grpc => &["environment", "served.toml", "--session-timeout-s", "5"],
        }
    }

    /// Returns the beginning of the message about a server that does not answer.
    fn lost(self, address: &str) -> String {
        match self {
            Self::OpenEnv => format!("the OpenEnv server at ws://{address}/ws: "),
            Self::Grpc => format!("the gRPC server at http://{address}: "),
        }
    }
}

/// Returns the command that trains `remote.toml` with the environment of a server.
fn trains_at(lab: &Lab, server: &Server, of: Protocol, out: &str, set: &[&str]) -> Command {
    let url = format!("environment.url=\"http://{}\"", server.address);
    let mut args = vec!["train", "remote.toml", "--out", out];
    let own = ["environment.key_env=\"TEST_KEY\"", &url];
    args.extend(own.iter().chain(of.set()).chain(set).flat_map(|set| ["--set", set]));
    let mut command = lab.command(&args);
    command.env("TEST_KEY", KEY);
    command
}

#[test]
fn a_run_in_an_environment_of_openenv_is_that_in_the_environment_itself() {
    a_remote_run_is_a_local_one(Protocol::OpenEnv);
}

#[test]
fn a_run_in_an_environment_over_grpc_is_that_in_the_environment_itself() {
    a_remote_run_is_a_local_one(Protocol::Grpc);
}

fn a_remote_run_is_a_local_one(protocol: Protocol) {
    let lab = lab();
    lab.write("local.toml", LOOKS_UP);
    lab.write("served.toml", SERVED);
    let remote = LOOKS_UP.replace("name = \"search\"\ntop_k = 1\n", "");
    lab.write("remote.toml", &remote);
    lab.run(&["train", "local.toml", "--out", "local"]).succeeded();
    let server = Server::start(&lab, protocol.served());
    let output = trains_at(&lab, &server, protocol, "remote", &[]).output().unwrap();
    Ended::of(&output).succeeded();
    let [local, remote] = ["local", "remote"].map(|name| Run(lab.path(name)));
    let mut acts = 0;
    for step in 1..=2 {
        let (ours, theirs) = (local.episodes(step), remote.episodes(step));
        assert_eq!((ours.len(), theirs.len()), (8, 8));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let place = format!("{} {}", ours.task.id, ours.index);
            assert_eq!(ours.turns, theirs.turns, "{place}");
            assert_eq!(ours.acts, theirs.acts, "{place}");
            let score = |episode: &maverl::trajectory::Episode| {
                episode.score().map(|score| (score.reward, score.solved)).unwrap()
            };
            assert_eq!(score(ours), score(theirs), "{place}");
            acts += ours.acts.len();
        }
    }
    let mut compared = 0;
    for (ours, theirs) in local.steps().iter().zip(&remote.steps()) {
        for (name, value) in ours.as_object().unwrap() {
            if let Some(other) = theirs.get(name) {
                assert_eq!(value, other, "{name}");
                compared += 1;
            }
        }
    }
    // OpenEnv has metrics of its own; those of gRPC are the environment's.
    if protocol == Protocol::Grpc {
        assert_eq!(local.steps(), remote.steps());
    }
    println!("{acts} actions and {compared} values of metrics are equal");
    assert!(acts > 0 && compared > 40, "{acts} {compared}");
    assert_eq!(server.metric("maverl_sessions"), 0.0);
    // A run that is killed leaves no session.
    let mut killed = trains_at(&lab, &server, protocol, "killed", &["steps=500"]);
    let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a session", || server.metric("maverl_sessions") > 0.0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("no session", || server.metric("maverl_sessions") == 0.0);
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
}

#[test]
fn a_run_whose_server_of_openenv_is_killed_ends_with_its_address_and_resumes_to_equal_files() {
    a_run_survives_its_server(Protocol::OpenEnv);
}

#[test]
fn a_run_whose_server_over_grpc_is_killed_ends_with_its_address_and_resumes_to_equal_files() {
    a_run_survives_its_server(Protocol::Grpc);
}

fn a_run_survives_its_server(protocol: Protocol) {
    let lab = lab();
    lab.write("served.toml", SERVED);
    lab.write("remote.toml", &LOOKS_UP.replace("name = \"search\"\ntop_k = 1\n", ""));
    let mut server = Server::start(&lab, protocol.served());
    let set = ["steps=6", "checkpoint.every=1", "rollout.max_unscored=0"];
    let whole = trains_at(&lab, &server, protocol, "whole", &set).output().unwrap();
    Ended::of(&whole).succeeded();
    let mut cut = trains_at(&lab, &server, protocol, "cut", &set);
    let cut = cut.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let metrics = lab.path("cut/metrics.jsonl");
    wait_until("a step", || std::fs::read_to_string(&metrics).is_ok_and(|rows| !rows.is_empty()));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let address = server.address.clone();
    let named = protocol.lost(&address);
    let wanted = ["episodes could not be scored", "`rollout.max_unscored`", &named];
    let resume = || {
        let mut command = lab.command(&["train", "--resume", "cut"]);
        Ended::of(&command.env("TEST_KEY", KEY).output().unwrap())
    };
    Ended::of(&cut.wait_with_output().unwrap()).failed().says(&wanted);
    let (run, whole) = (Run(lab.path("cut")), Run(lab.path("whole")));
    let steps = run.steps();
    assert!(!steps.is_empty() && steps.len() < 6, "{} steps", steps.len());
    assert_eq!(steps[..], whole.steps()[..steps.len()]);
    // Without its server a run does not start, and loses nothing.
    resume().failed().says(&[&address]);
    assert_eq!(run.steps(), steps);
    let server = Server::start_at(&lab, &address, protocol.served());
    resume().succeeded();
    run.equals(&whole);
    assert!(run.is_tidy());
    assert_eq!(server.metric("maverl_sessions"), 0.0);
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
}

/// Returns tasks that are sums.
fn sums() -> String {
    let line = |i: usize| {
        let (first, second) = (10 + i, 3 * i + 1);
        let question = format!("What is {first} + {second}?");
        json!({"id": format!("s{i}"), "question": question, "answers": [(first + second).to_string()], "split": "train"})
    };
    (0..8).map(|i| format!("{}\n", line(i))).collect()
}

#[test]
fn the_client_of_openenv_plays_episodes_of_math_and_of_tools() {
    let Some(python) = python("openenv", "openenv") else { return };
    plays_sums(&python, "openenv_clients.py", |address| format!("http://{address}"));
}

#[test]
fn a_client_with_grpcio_plays_episodes_of_math_and_of_tools() {
    let Some(python) = python("grpc_reflection", "grpc") else { return };
    plays_sums(&python, "grpc_client.py", str::to_owned);
}

/// Plays episodes of two environments with a script, which is given the address in the form of its client.
fn plays_sums(python: &str, client: &str, url: fn(&str) -> String) {
    let lab = lab();
    lab.write("sums.jsonl", &sums());
    for (kind, environment, orchestra) in [
        ("math", "name = \"math\"", "solo/answer"),
        ("tools", "name = \"tools\"\ntools = [\"calculator\"]", "tools/act"),
    ] {
        let config = format!(
            "[task]\ndata = \"sums.jsonl\"\n[environment]\n{environment}\n[orchestra]\nname = \"{orchestra}\"\n\
             [models.tiny]\npath = \"builtin:tiny\"\n[eval]\nbefore_and_after = false\nevery = 0\n"
        );
        lab.write("sums.toml", &config);
        let server = Server::start(&lab, &["environment", "sums.toml"]);
        let mut played = Command::new(python);
        played
            .arg(script(client))
            .args([kind, &url(&server.address), KEY])
            .env("NO_PROXY", "127.0.0.1");
        let output = played.output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        wait_until("no session", || server.metric("maverl_sessions") == 0.0);
        assert_eq!(server.stop(), Some(0));
    }
}

/// A team that plays the game of `tests/python/openenv_server.py`.
const PLAYS: &str = r#"
seed = 7
steps = 2
[task]
data = "openenv:train"
split = "all"
tasks_per_step = 2
group_size = 4
[orchestra]
name = "solo/act"
max_turns = 3
[environment]
name = "openenv"
max_sessions = 8
[sampling]
max_tokens = 24
[models.tiny]
path = "builtin:generalist"
[eval]
before_and_after = false
every = 0
"#;

#[test]
fn a_team_is_trained_in_an_environment_of_openenv_s_own_server() {
    let Some(python) = python("openenv", "openenv") else { return };
    let lab = lab();
    lab.write("plays.toml", PLAYS);
    // Fewer sessions than episodes at once: those that find no room wait.
    let mut child = Command::new(&python);
    let child = child.arg(script("openenv_server.py")).arg("4").stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let url = told["listening"].as_str().unwrap();
    let address = url.strip_prefix("http://").unwrap().to_owned();
    wait_until("the server", || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream
            .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).is_ok() && text.contains("healthy")
    });
    let set = format!("environment.url=\"{url}\"");
    let trained = lab.run(&["train", "plays.toml", "--out", "plays", "--set", &set]);
    child.kill().unwrap();
    child.wait().unwrap();
    trained.succeeded();
    let run = Run(lab.path("plays"));
    let row = &run.steps()[0];
    assert_eq!(row["rollout/unscored"], 0.0, "{row}");
    let episodes: Vec<_> = (1..=2).flat_map(|step| run.episodes(step)).collect();
    for episode in &episodes {
        let asked = &episode.turns[0].prompt.last().unwrap().content;
        assert!(
            asked.contains("Play the game.") && asked.contains("Which number comes after"),
            "{asked}"
        );
    }
    let acts: usize = episodes.iter().map(|episode| episode.acts.len()).sum();
    let mut tasks: Vec<&str> = episodes.iter().map(|episode| episode.task.id.as_str()).collect();
    tasks.dedup();
    assert!(tasks.iter().all(|id| id.starts_with('g')) && tasks.len() == 4, "{tasks:?}");
    println!(
        "{} episodes with {acts} actions on {} tasks of the server",
        episodes.len(),
        tasks.len()
    );
}
