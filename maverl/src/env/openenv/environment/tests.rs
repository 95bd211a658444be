#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::env::DynEnvironment;
use crate::env::openenv::server;

/// Schemas and frames of a server of the package openenv 0.10.0 (`tests/python/openenv_server.py`), byte for byte.
const SCHEMA: &str = r#"{"action":{"additionalProperties":false,"properties":{"metadata":{"additionalProperties":true,"description":"Additional metadata for the action","title":"Metadata","type":"object"},"message":{"title":"Message","type":"string"}},"required":["message"],"title":"Say","type":"object"}}"#;
const RESET: &str = r#"{"type":"observation","data":{"observation":{"metadata":{},"prompt":"Which number comes after 4?"},"reward":null,"done":false}}"#;
const AGAIN: &str = r#"{"type":"observation","data":{"observation":{"metadata":{},"prompt":"Say a number."},"reward":null,"done":false}}"#;
const BROKE: &str =
    r#"{"type":"error","data":{"message":"the game broke","code":"EXECUTION_ERROR"}}"#;
const MISSING: &str = r#"{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_ERROR","errors":[{"type":"missing","loc":["message"],"msg":"Field required","input":{"text":"5"},"url":"https://errors.pydantic.dev/2.14/v/missing"}]}}"#;
const RIGHT: &str = r#"{"type":"observation","data":{"observation":{"metadata":{},"prompt":"Right."},"reward":1.0,"done":true}}"#;
const MUCH: &str = r#"{"type":"observation","data":{"observation":{"prompt":"Right."},"reward":1e200,"done":true}}"#;
const WORDS: &str = r#"{"type":"observation","data":{"observation":{"prompt":"Right."},"reward":"1.0","done":true}}"#;
const NAN: &str =
    r#"{"type":"observation","data":{"observation":{"prompt":"Right."},"reward":NaN,"done":true}}"#;
const FULL: &str = r#"{"type":"error","data":{"message":"Server at capacity: 1/1 sessions active. Cannot accept new connections.","code":"CAPACITY_REACHED","active_sessions":1,"max_sessions":1}}"#;
/// The same of a server whose actions are calls of tools.
const CALLS: &str = r#"{"action":{"properties":{"type":{"const":"call_tool","default":"call_tool"},"tool_name":{"type":"string"},"arguments":{"type":"object"}},"required":["tool_name"]}}"#;
const TOOLS: &str = r#"{"type":"observation","data":{"observation":{"metadata":{},"tools":[{"name":"add","description":"Adds.","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}]},"reward":null,"done":false}}"#;
const CALLED: &str = r#"{"type":"observation","data":{"observation":{"metadata":{},"tool_name":"add","result":{"content":[{"type":"text","text":"5"}],"structured_content":{"result":5},"data":5,"is_error":false},"error":null},"reward":0.5,"done":false}}"#;

/// A server that answers as the real one did, and records what it is sent.
struct Fake {
    url: String,
    heard: Arc<Mutex<Vec<Value>>>,
    open: Arc<AtomicUsize>,
}

impl Fake {
    async fn start(schema: &'static str, most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, open) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::<AtomicUsize>::default());
        let (records, counts) = (Arc::clone(&heard), Arc::clone(&open));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (records, counts) = (Arc::clone(&records), Arc::clone(&counts));
                tokio::spawn(async move {
                    let mut start = [0; 11];
                    while stream.peek(&mut start).await.unwrap() < start.len() {}
                    if start.starts_with(b"GET /schema") {
                        describe(stream, schema).await
                    } else {
                        session(stream, &records, &counts, most).await
                    }
                });
            }
        });
        Self { url, heard, open }
    }

    /// Returns the data of the messages of a type.
    fn heard(&self, kind: &str) -> Vec<Value> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|it| it["type"] == kind).map(|it| it["data"].clone()).collect()
    }

    /// Starts a client with further options.
    async fn client(&self, options: OpenEnv) -> Arc<OpenEnv> {
        let mut client = OpenEnv { url: self.url.clone(), timeout_s: 5.0, ..options };
        let started = tokio::task::spawn_blocking(move || {
            client.start(Path::new("")).map(|()| Arc::new(client))
        });
        started.await.unwrap().unwrap()
    }
}

async fn describe(mut stream: TcpStream, schema: &str) {
    let length = schema.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = stream.read(&mut [0; 4096]).await;
    stream.write_all(format!("{head}{schema}").as_bytes()).await.unwrap();
}

async fn session(stream: TcpStream, records: &Mutex<Vec<Value>>, open: &AtomicUsize, most: usize) {
    let mut socket = accept_async(stream).await.unwrap();
    if open.fetch_add(1, Ordering::SeqCst) >= most {
        open.fetch_sub(1, Ordering::SeqCst);
        socket.send(Message::Text(FULL.into())).await.unwrap();
        let _ = socket.close(None).await;
        return;
    }
    while let Some(Ok(Message::Text(text))) = socket.next().await {
        let message: Value = serde_json::from_str(&text).unwrap();
        records.lock().unwrap().push(message.clone());
        let data = &message["data"];
        let frame = match (message["type"].as_str(), data["message"].as_str()) {
            (Some("reset"), _) if data["episode_id"].to_string().starts_with("\"listed") => LISTED,
            (Some("reset"), _) => RESET,
            (Some("close"), _) | (_, Some("leave")) => break,
            (_, Some("break")) => BROKE,
            (_, Some("5")) => RIGHT,
            (_, Some("much")) => MUCH,
            (_, Some("words")) => WORDS,
            (_, Some("nan")) => NAN,
            (_, Some(_)) => AGAIN,
            _ if data["type"] == "list_tools" => TOOLS,
            _ if data["type"] == "call_tool" => CALLED,
            _ => MISSING,
        };
        socket.send(Message::Text(frame.into())).await.unwrap();
    }
    open.fetch_sub(1, Ordering::SeqCst);
}

fn task(id: &str) -> Task {
    let data = Map::from_iter([("level".to_owned(), json!(3))]);
    Task { id: id.to_owned(), source: "game".to_owned(), question: "Play.".to_owned(), data }
}

fn said(text: &str) -> Action {
    Action::Text(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_episode_is_a_reset_its_steps_and_their_reward() {
    let fake = Fake::start(SCHEMA, 8).await;
    let client = fake.client(OpenEnv::default()).await;
    let mut session = DynEnvironment::open(&*client, &task("a"), 7).await.unwrap();
    let question = Environment::question(&*client, &session).unwrap();
    assert_eq!(question, "Play.\n\nWhich number comes after 4?");
    for (text, shown, done) in [
        ("x", "Say a number.", false),
        ("break", "error: the game broke", false),
        ("{\"text\": \"5\"}", "error: Invalid message: Field required", false),
        ("5", "Right.", true),
    ] {
        let seen = DynEnvironment::act(&*client, &mut session, said(text)).await.unwrap();
        assert_eq!((seen.text.as_str(), seen.done), (shown, done), "{text}");
    }
    let late = DynEnvironment::act(&*client, &mut session, said("6")).await.unwrap();
    assert!(late.done && late.text.contains("is over"), "{}", late.text);
    let score = Environment::score(&*client, &session, Some("5")).await.unwrap();
    assert_eq!((score.reward, score.solved, &score.metrics["steps"]), (1.0, true, &json!(2)));
    assert_eq!(fake.heard("step").len(), 4, "the answer is no step of this server");
    Environment::close(&*client, session).await.unwrap();
    assert_eq!((fake.heard("close").len(), fake.open.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_episodes_of_a_task_begin_alike() {
    let fake = Fake::start(SCHEMA, 8).await;
    let reset = [("level", json!("$data.level")), ("task_id", json!("$id")), ("hard", json!(true))];
    let reset = reset.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let client = fake.client(OpenEnv { reset, ..OpenEnv::default() }).await;
    for (id, seed) in [("a", 1), ("a", 2), ("b", 1)] {
        let session = DynEnvironment::open(&*client, &task(id), seed).await.unwrap();
        Environment::close(&*client, session).await.unwrap();
    }
    let resets = fake.heard("reset");
    assert_eq!(resets[0]["seed"], resets[1]["seed"]);
    assert_ne!(resets[0]["seed"], resets[2]["seed"]);
    assert_ne!(resets[0]["episode_id"], resets[1]["episode_id"]);
    let told = |name: &str| resets[2][name].clone();
    assert_eq!([told("level"), told("task_id"), told("hard")], [json!(3), json!("b"), json!(true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_is_waited_for() {
    let fake = Fake::start(SCHEMA, 1).await;
    let client = fake.client(OpenEnv::default()).await;
    let first = DynEnvironment::open(&*client, &task("a"), 1).await.unwrap();
    let other = Arc::clone(&client);
    let second =
        tokio::spawn(async move { DynEnvironment::open(&*other, &task("b"), 1).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished());
    Environment::close(&*client, first).await.unwrap();
    let second = tokio::time::timeout(Duration::from_secs(600), second).await.unwrap().unwrap();
    Environment::close(&*client, second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_is_a_failure_of_the_environment() {
    let fake = Fake::start(SCHEMA, 8).await;
    let client = fake.client(OpenEnv::default()).await;
    let mut session = DynEnvironment::open(&*client, &task("a"), 1).await.unwrap();
    for _ in 0..2 {
        let failed = DynEnvironment::act(&*client, &mut session, said("leave")).await.unwrap_err();
        assert!(failed.0.contains("the OpenEnv server at ws://127.0.0.1"), "{failed}");
    }
    Environment::close(&*client, session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_server_are_listed_and_called() {
    let fake = Fake::start(CALLS, 8).await;
    let options = OpenEnv { reward: StepRewards::Sum, ..OpenEnv::default() };
    let client = fake.client(options).await;
    let tools = Environment::tools(&*client, &task("a"));
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["add"]);
    let mut session = DynEnvironment::open(&*client, &task("a"), 1).await.unwrap();
    for _ in 0..2 {
        let call = Action::Tool { name: "add".to_owned(), arguments: json!({"a": 5}) };
        let seen = DynEnvironment::act(&*client, &mut session, call).await.unwrap();
        assert_eq!(seen.text, "5");
    }
    let score = Environment::score(&*client, &session, Some("5")).await.unwrap();
    assert_eq!((score.reward, score.solved), (1.0, true));
    let sent = json!({"type": "call_tool", "tool_name": "add", "arguments": {"a": 5}});
    assert_eq!(fake.heard("step")[1], sent);
    Environment::close(&*client, session).await.unwrap();
}

/// A reset that lists the tools of its task, and a server that takes an answer and then no other step.
const LISTED: &str = r#"{"type":"observation","data":{"observation":{"text":"Add.","tools":[{"name":"sum","description":"Sums.","input_schema":{"type":"object"}}]},"reward":null,"done":false}}"#;
const ANSWERS: &str = r#"{"action":{"properties":{"message":{"type":"string"},"final":{"type":"boolean"}},"required":["message"]}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_of_a_task_are_those_of_its_reset() {
    let fake = Fake::start(ANSWERS, 8).await;
    let client = fake.client(OpenEnv::default()).await;
    let names = |id: &str| {
        let tools = Environment::tools(&*client, &task(id));
        tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
    };
    assert!(names("listed").is_empty(), "the task is not open yet");
    for (id, expected) in [("listed", &["sum"][..]), ("other", &[])] {
        let session = DynEnvironment::open(&*client, &task(id), 1).await.unwrap();
        assert_eq!(names(id), expected);
        Environment::close(&*client, session).await.unwrap();
        assert_eq!(names("listed"), ["sum"], "each task has its own");
    }
}

#[test]
fn what_is_no_list_of_tools_is_none() {
    for (tools, found) in [
        (json!(null), None),
        (json!("add"), None),
        (json!({"name": "add"}), None),
        (json!(["add"]), None),
        (json!([{"name": "hammer", "price": 3}]), None),
        (json!([{"name": 1, "input_schema": {}}]), None),
        (json!([{"name": "add", "input_schema": {}}, 1]), None),
        (json!([{"name": "add", "input_schema": "int"}]), None),
        (json!([]), Some(0)),
        (json!([{"name": "add", "input_schema": {}}]), Some(1)),
    ] {
        let listed = server::listed_tools(&json!({ "tools": tools }));
        assert_eq!(listed.map(|tools| tools.len()), found, "{tools}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_ends_its_episode_and_a_team_that_goes_on_is_unscored() {
    let fake = Fake::start(ANSWERS, 8).await;
    let client = fake.client(OpenEnv::default()).await;
    let mut session = DynEnvironment::open(&*client, &task("a"), 1).await.unwrap();
    let score = Environment::score(&*client, &session, Some("5")).await.unwrap();
    assert!(score.solved);
    assert_eq!(Environment::score(&*client, &session, Some("5")).await, Ok(score));
    assert_eq!(fake.heard("step").len(), 1, "an equal answer is no other step");
    let other = Environment::score(&*client, &session, Some("6")).await.unwrap_err();
    let acted = DynEnvironment::act(&*client, &mut session, said("6")).await.unwrap_err();
    for EnvError(failed) in [other, acted] {
        assert!(failed.contains("an answer ends its episode"), "{failed}");
    }
    Environment::close(&*client, session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reward_that_is_none_fails_its_episode_alone_and_names_the_server() {
    let fake = Fake::start(ANSWERS, 8).await;
    let client = fake.client(OpenEnv::default()).await;
    let open = async |id: &str| DynEnvironment::open(&*client, &task(id), 1).await.unwrap();
    let other = open("other").await;
    for (answer, wanted) in [
        ("much", "the reward of a step is 1e200; a reward is a number from -1e9 to 1e9"),
        ("words", "the reward of an observation is \"1.0\", which is no number"),
        ("nan", "which is no observation"),
    ] {
        let (judging, mut acting) = (open(answer).await, open(answer).await);
        let judged = Environment::score(&*client, &judging, Some(answer)).await.unwrap_err();
        let acted = DynEnvironment::act(&*client, &mut acting, said(answer)).await.unwrap_err();
        for EnvError(failed) in [judged, acted] {
            assert!(failed.contains("the OpenEnv server at ws://127.0.0.1"), "{failed}");
            assert!(failed.contains(wanted), "{failed}");
        }
    }
    assert!(Environment::score(&*client, &other, Some("5")).await.unwrap().solved);
}

#[test]
fn options_that_cannot_be_are_refused() {
    let told = |options: OpenEnv| {
        let found =
            Environment::validate(&options, Path::new(""), &[task("a")].into_iter().collect());
        found.map_or_else(|EnvError(told)| told, |_| String::new())
    };
    assert_eq!(told(OpenEnv::default()), "");
    let url = |url: &str| OpenEnv { url: url.to_owned(), ..OpenEnv::default() };
    for wrong in ["", "127.0.0.1:8000", "ftp://a", "http://", "http:///x"] {
        assert!(told(url(wrong)).starts_with("`url` is"), "{wrong}");
    }
    for right in ["https://a.hf.space/", "ws://127.0.0.1:1", "wss://a/b"] {
        assert_eq!(told(url(right)), "", "{right}");
    }
    let reset = BTreeMap::from([("seed".to_owned(), json!("$data.seed"))]);
    let missing = told(OpenEnv { reset, ..OpenEnv::default() });
    assert!(missing.contains("`reset.seed` is `$data.seed`, which task `a` lacks"), "{missing}");
    let key_env = "MAVERL_NO_SUCH_KEY".to_owned();
    assert!(told(OpenEnv { key_env, ..OpenEnv::default() }).contains("is not set"));
    assert!(told(OpenEnv { timeout_s: 0.0, ..OpenEnv::default() }).starts_with("`timeout_s`"));
    assert!(told(OpenEnv { action: String::new(), ..OpenEnv::default() }).starts_with("`action`"));
}
