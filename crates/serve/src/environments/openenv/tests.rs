#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use futures::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use std::time::Duration;

use super::*;
use crate::base::Health;
use crate::environments::server::EnvironmentSettings;
use crate::environments::tasks::TaskSet;
use crate::guard::Guard;
use crate::listener::Limits;
use crate::testing::{PATIENCE, Running, ask, start, until};
use maverl::data;
use maverl::env::math::MathEnvironment;
use maverl::env::openenv::OpenEnv;
use maverl::env::{DynEnvironment, EnvError, Environment as _, Session};
use maverl::task::{Action, Observation, Score};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A server of arithmetic, whose environment judges two attempts.
struct Served {
    server: Arc<EnvironmentServer>,
    running: Running,
    tasks: Vec<Task>,
}

impl Served {
    async fn start(sessions: usize, timeout: Duration) -> Self {
        Self::start_within(sessions, timeout, Limits::default()).await
    }

    async fn start_within(sessions: usize, timeout: Duration, limits: Limits) -> Self {
        Self::of(Arc::new(MathEnvironment::default()), sessions, timeout, limits).await
    }

    async fn of(
        environment: Arc<dyn DynEnvironment>,
        sessions: usize,
        timeout: Duration,
        limits: Limits,
    ) -> Self {
        let config = maverl::config::TaskConfig {
            data: "builtin:arithmetic".to_owned(),
            ..Default::default()
        };
        let load = |split: &str| data::load(&config, split, std::path::Path::new("")).unwrap();
        let tasks = load("train");
        let splits = vec![("train".to_owned(), tasks.clone()), ("test".to_owned(), load("test"))];
        let settings = EnvironmentSettings { sessions: sessions.try_into().unwrap(), timeout };
        let server = EnvironmentServer::new(settings, Health::default());
        let (name, acts) = ("math".to_owned(), true);
        server.open(ServedEnvironment {
            name,
            environment,
            acts,
            actions: Vec::new(),
            tasks: TaskSet(splits),
        });
        let router = Guard::default().protect(server.router().unwrap());
        let running = start(router, limits).await;
        Self { server, running, tasks }
    }

    async fn few() -> Self {
        Self::start(8, Duration::from_secs(60)).await
    }

    async fn connect(&self) -> Socket {
        connect_async(format!("ws://{}/ws", self.running.address)).await.unwrap().0
    }

    /// Waits until so many sessions are open.
    async fn until_sessions(&self, open: usize) {
        until(&format!("a number of {open} sessions"), async || self.server.sessions() == open)
            .await;
    }
}

async fn said(socket: &mut Socket, message: Value) -> Value {
    socket.send(Message::Text(message.to_string().into())).await.unwrap();
    heard(socket).await
}

async fn heard(socket: &mut Socket) -> Value {
    match socket.next().await {
        Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn reset(data: Value) -> Value {
    json!({"type": "reset", "data": data})
}

fn step(data: Value) -> Value {
    json!({"type": "step", "data": data})
}

fn reference(task: &Task) -> String {
    task.data["answers"][0].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_episode_is_played_and_judged_in_frames_of_the_package() {
    let served = Served::few().await;
    let task = &served.tasks[3];
    let mut socket = served.connect().await;
    let begun = said(&mut socket, reset(json!({"index": 3, "episode_id": "e"}))).await;
    let metadata = json!({"task_id": task.id});
    assert_eq!(
        begun,
        json!({"type": "observation", "data": {
            "observation": {"text": task.question, "tools": [], "metadata": metadata},
            "reward": null, "done": false, "metadata": metadata,
        }})
    );
    assert!(!begun.to_string().contains("answers"), "references stay in the server");
    let tried = said(&mut socket, step(json!({"message": "no number", "metadata": {}}))).await;
    assert_eq!((&tried["data"]["reward"], &tried["data"]["done"]), (&json!(null), &json!(false)));
    let state = said(&mut socket, json!({"type": "state"})).await;
    let data = json!({"episode_id": "e", "step_count": 1, "task_id": task.id});
    assert_eq!(state, json!({"type": "state", "data": data}));
    let message = format!("It is <answer>{}</answer>.", reference(task));
    let judged = said(&mut socket, step(json!({"message": message}))).await;
    assert_eq!((&judged["data"]["reward"], &judged["data"]["done"]), (&json!(1.0), &json!(true)));
    assert_eq!(judged["data"]["metadata"]["solved"], true);
    let late = said(&mut socket, step(json!({"message": "again"}))).await;
    assert_eq!(late["data"]["code"], "EXECUTION_ERROR");
    said(&mut socket, reset(json!({"task_id": task.id}))).await;
    let wrong = said(&mut socket, step(json!({"message": "-1", "final": true}))).await;
    assert_eq!((&wrong["data"]["reward"], &wrong["data"]["done"]), (&json!(0.0), &json!(true)));
    socket.send(Message::Text("{\"type\":\"close\"}".into())).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_))) | None));
    served.until_sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_cannot_be_are_answered_with_their_code_and_the_session_goes_on() {
    let served = Served::few().await;
    let mut socket = served.connect().await;
    for (sent, code) in [
        ("{", "INVALID_JSON"),
        ("{\"type\": \"nope\"}", "UNKNOWN_TYPE"),
        ("[1]", "UNKNOWN_TYPE"),
        ("{\"type\": \"step\", \"data\": 4}", "VALIDATION_ERROR"),
        ("{\"type\": \"step\", \"data\": {\"text\": \"5\"}}", "VALIDATION_ERROR"),
        ("{\"type\": \"step\", \"data\": {\"message\": 5}}", "VALIDATION_ERROR"),
        ("{\"type\": \"step\", \"data\": {\"message\": \"a\", \"x\": 1}}", "VALIDATION_ERROR"),
        ("{\"type\": \"step\", \"data\": {\"message\": \"a\"}}", "EXECUTION_ERROR"),
        ("{\"type\": \"reset\", \"data\": {\"seed\": -1}}", "VALIDATION_ERROR"),
        ("{\"type\": \"reset\", \"data\": {\"idx\": 0}}", "VALIDATION_ERROR"),
        ("{\"type\": \"reset\", \"data\": {\"index\": 1000000}}", "EXECUTION_ERROR"),
        ("{\"type\": \"reset\", \"data\": {\"task_id\": \"no\"}}", "EXECUTION_ERROR"),
        ("{\"type\": \"reset\", \"data\": {\"split\": \"no\"}}", "EXECUTION_ERROR"),
    ] {
        socket.send(Message::Text(sent.into())).await.unwrap();
        let frame = heard(&mut socket).await;
        assert_eq!(
            (&frame["type"], &frame["data"]["code"]),
            (&json!("error"), &json!(code)),
            "{sent}"
        );
    }
    let unknown = said(&mut socket, reset(json!({"idx": 0}))).await;
    assert_eq!(
        unknown["data"]["message"],
        "a reset has no argument \"idx\"; its arguments are `seed`, `episode_id`, `task_id`, `index`, `split`"
    );
    assert_eq!(unknown["data"]["errors"][0]["loc"], json!(["idx"]));
    assert_eq!(said(&mut socket, reset(json!({"seed": 5}))).await["type"], "observation");
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let listed = said(&mut socket, json!({"type": "mcp", "data": rpc})).await;
    let data = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}});
    assert_eq!(listed, json!({"type": "mcp", "data": data}));
}

/// Gives the number in the answer as the reward, and fails for an answer or an action that is none.
struct Payer;

impl maverl::env::Environment for Payer {
    async fn act(&self, _: &mut Session, action: Action) -> Result<Observation, EnvError> {
        match action {
            Action::Text(text) if text.parse::<f64>().is_ok() => Ok(Observation::new(text)),
            _ => Err(EnvError::new("/the/secret/path")),
        }
    }

    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let reward = answer.and_then(|answer| answer.parse().ok());
        let reward = reward.ok_or_else(|| EnvError::new("/the/secret/path"))?;
        Ok(Score { reward, ..Score::binary(false) })
    }
}

/// Returns the environment of a server with arguments of a reset.
fn remote(served: &Served, reset: Value) -> OpenEnv {
    let url = format!("http://{}", served.running.address);
    serde_json::from_value(json!({"url": url, "reset": reset})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_fails_and_a_reward_beyond_its_bound_leave_their_episode_unscored() {
    let served = Served::of(Arc::new(Payer), 16, Duration::from_secs(60), Limits::default()).await;
    let mut remote = remote(&served, json!({}));
    let remote = tokio::task::spawn_blocking(move || {
        remote.start(std::path::Path::new("")).map(|()| remote)
    });
    let remote: &dyn DynEnvironment = &remote.await.unwrap().unwrap();
    let open = async || remote.open(&served.tasks[0], 1).await.unwrap();
    let other = open().await;
    for answer in ["1e200", "-1e200", "inf", "-inf", "NaN", "1000000001", "none"] {
        let failed = remote.score(&open().await, Some(answer)).await.unwrap_err().to_string();
        assert!(failed.contains("the OpenEnv server at ws://127.0.0.1"), "{answer}: {failed}");
        assert!(failed.contains("SESSION_ERROR") && !failed.contains("secret"), "{failed}");
    }
    let mut acting = open().await;
    let failed = remote.act(&mut acting, Action::Text("none".to_owned())).await.unwrap_err();
    assert!(failed.to_string().contains("SESSION_ERROR"), "{failed}");
    for answer in ["1e9", "-1e9", "5e-324", "-0.0"] {
        let score = remote.score(&open().await, Some(answer)).await.unwrap();
        assert_eq!(score.reward.to_bits(), answer.parse::<f64>().unwrap().to_bits(), "{answer}");
    }
    assert_eq!(remote.score(&other, Some("0.5")).await.unwrap().reward, 0.5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_too_many_is_refused_and_a_silent_one_ends() {
    let served = Served::start(2, Duration::from_millis(300)).await;
    let _silent = [served.connect().await, served.connect().await];
    served.until_sessions(2).await;
    let mut third = served.connect().await;
    let refused = heard(&mut third).await;
    assert_eq!(refused["data"]["code"], "CAPACITY_REACHED");
    assert_eq!(
        (&refused["data"]["active_sessions"], &refused["data"]["max_sessions"]),
        (&json!(2), &json!(2))
    );
    served.until_sessions(0).await;
    let mut fourth = served.connect().await;
    assert_eq!(said(&mut fourth, reset(json!({}))).await["type"], "observation");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_are_open_at_once_and_none_is_left_after_their_clients() {
    let served = Served::start(256, Duration::from_secs(60)).await;
    let sockets = futures::future::join_all((0..256).map(async |index: u64| {
        let mut socket = served.connect().await;
        let begun = said(&mut socket, reset(json!({"index": index % 64}))).await;
        let question = &begun["data"]["observation"]["text"];
        assert_eq!(*question, json!(served.tasks[(index % 64) as usize].question));
        socket
    }));
    let mut sockets = sockets.await;
    assert_eq!(served.server.sessions(), 256);
    for (index, socket) in sockets.iter_mut().enumerate().step_by(17) {
        let message = reference(&served.tasks[index % 64]);
        let judged = said(socket, step(json!({"message": message, "final": true}))).await;
        assert_eq!(judged["data"]["reward"], 1.0, "{index}");
    }
    // As by a kill: without a message or a closing frame.
    drop(sockets);
    served.until_sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_and_its_tasks_are_described_without_references() {
    let served = Served::few().await;
    let address = served.running.address;
    assert_eq!(ask(address, "/health", None).await.json(), json!({"status": "healthy"}));
    assert_eq!(ask(address, "/metadata", None).await.json()["name"], "math");
    assert_eq!(ask(address, "/list_environments", None).await.json(), json!(["math"]));
    let splits = json!([{"name": "train", "type": "train"}, {"name": "test", "type": "test"}]);
    assert_eq!(ask(address, "/math/splits", None).await.json(), splits);
    let count = served.tasks.len();
    for (what, body, wanted) in [
        ("num_tasks", json!({"split": "train"}), json!({"num_tasks": count})),
        (
            "task",
            json!({"split": "train", "index": 1}),
            json!({"task": description(&served.tasks[1])}),
        ),
        (
            "task_range",
            json!({"split": "train", "start": 1, "stop": 3}),
            json!({"tasks": describe_tasks(&served.tasks[1..3])}),
        ),
    ] {
        let answer = ask(address, &format!("/math/{what}"), Some(&body)).await;
        assert_eq!(answer.json(), wanted, "{what}");
        assert!(!answer.body.contains("answers"), "{}", answer.body);
    }
    for (path, body) in [
        ("/math/task", json!({"split": "train", "index": count})),
        ("/math/tasks", json!({"split": "no"})),
    ] {
        assert_eq!(ask(address, path, Some(&body)).await.status, 400, "{path} {body}");
    }
    assert_eq!(ask(address, "/other/splits", None).await.status, 404);
    for (path, body, wanted) in [
        ("/math/num_tasks", None, "`/math/num_tasks` takes POST, not GET"),
        ("/math/splits", Some(json!({})), "`/math/splits` takes GET, not POST"),
    ] {
        let answer = ask(address, path, body.as_ref()).await;
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (405, &json!(wanted)));
    }
    assert_eq!(ask(address, "/math/other", None).await.status, 404);
    assert_eq!(ask(address, "/ws", None).await.status, 426);
    let metrics = ask(address, "/metrics", None).await.body;
    assert!(metrics.contains("maverl_sessions 0"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_behind_a_server_judges_as_it_does_itself() {
    let served = Served::few().await;
    let mut remote = remote(&served, json!({"task_id": "$id"}));
    let remote = tokio::task::spawn_blocking(move || {
        remote.start(std::path::Path::new("")).map(|()| remote)
    });
    let remote = remote.await.unwrap().unwrap();
    let local = MathEnvironment::default();
    for task in &served.tasks[..8] {
        let right = reference(task);
        for (acts, answer) in [
            (&[][..], Some(right.as_str())),
            (&[], Some("-77")),
            (&[], None),
            (&["-77"], Some(right.as_str())),
            (&["-77", "-78", "-79"], Some(right.as_str())),
        ] {
            let environments: [&dyn DynEnvironment; 2] = [&local, &remote];
            let mut ends = Vec::new();
            for environment in environments {
                let mut session = environment.open(task, 1).await.unwrap();
                let mut seen = Vec::new();
                let mut last = answer;
                for act in acts {
                    let action = Action::Text((*act).to_owned());
                    let observation = environment.act(&mut session, action).await.unwrap();
                    seen.push(observation.clone());
                    if observation.done {
                        last = Some(act);
                        break;
                    }
                }
                let score = environment.score(&session, last).await.unwrap();
                environment.close(session).await.unwrap();
                ends.push((seen, score.reward, score.solved));
            }
            assert_eq!(ends[0], ends[1], "{} {acts:?} {answer:?}", task.question);
        }
    }
    served.until_sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_a_run_reads_from_a_server_are_those_of_its_split() {
    let served = Served::few().await;
    let options = serde_json::json!({ "url": format!("http://{}", served.running.address) });
    let options = options.as_object().unwrap().clone();
    let environment = maverl::config::Named { name: Some("openenv".to_owned()), options };
    let config = |data: &str| maverl::config::TaskConfig {
        data: data.to_owned(),
        environment: environment.clone(),
        ..Default::default()
    };
    let load = async |data: &str| {
        let config = config(data);
        let loaded = move || data::load(&config, data::ALL, std::path::Path::new(""));
        tokio::task::spawn_blocking(loaded).await.unwrap()
    };
    let told = |task: &Task| (task.id.clone(), task.source.clone(), task.question.clone());
    let found: Vec<_> = load("openenv:train").await.unwrap().iter().map(told).collect();
    assert_eq!(found, served.tasks.iter().map(told).collect::<Vec<_>>());
    println!("{} tasks of a server", found.len());
    let missing = load("openenv:none").await.unwrap_err().to_string();
    assert!(missing.contains("`openenv:none`") && missing.contains("status 400"), "{missing}");
}

/// Returns a frame of a client with a mask of zeros.
fn masked(kind: u8, payload: &[u8]) -> Vec<u8> {
    let head = [0x80 | kind, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    [&head[..], payload].concat()
}

/// Sends a frame until the connection takes no more, and reads nothing. Returns the number of bytes that were sent.
fn send_without_reading(address: std::net::SocketAddr, frame: &[u8]) -> std::io::Result<usize> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(
        b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
          Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    )?;
    let mut head = [0; 4096];
    assert!(stream.read(&mut head)? > 0);
    let frames = frame.repeat(500);
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut sent = 0;
    // 64 MiB are more than the buffers of the system, and less than a server could hold.
    while sent < 64 << 20 {
        match stream.write(&frames) {
            Ok(n) => sent += n,
            Err(_) => break,
        }
    }
    Ok(sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_pongs_and_no_messages_is_read_no_further_and_then_closed() {
    let limits = Limits { write: Duration::from_millis(500), ..Limits::default() };
    let served = Served::start_within(8, Duration::from_secs(600), limits).await;
    let address = served.running.address;
    // A message in two frames.
    let parts = |first: &[u8], last: &[u8]| {
        let mut frame = masked(1, first);
        frame[0] &= 0x7f;
        [frame, masked(0, last)].concat()
    };
    let begun = br#"{"type":"reset","data":{"index":1}}"#;
    for frame in [
        masked(9, &[b'x'; 125]),
        masked(9, b""),
        [masked(9, b"x"), masked(1, br#"{"type":"state"}"#)].concat(),
        masked(1, br#"{"type":"state"}"#),
        parts(br#"{"type":"#, br#""state"}"#),
        masked(1, begun),
        [masked(1, begun), masked(1, br#"{"type":"step","data":{"text":"5"}}"#)].concat(),
        masked(1, br#"{"type":"step","data":{}}"#),
        masked(1, br#"{"type":"no such type"}"#),
        masked(1, b"no JSON"),
        masked(2, br#"{"type":"state"}"#),
    ] {
        let sending = frame.clone();
        let sending = move || send_without_reading(address, &sending);
        let sent = tokio::task::spawn_blocking(sending).await.unwrap().unwrap();
        let shown = frame.escape_ascii();
        assert!(
            sent < 64 << 20,
            "{sent} bytes of `{shown}` were taken from a client that reads none"
        );
        served.until_sessions(0).await;
    }
    // A client that reads its pongs goes on.
    let mut socket = served.connect().await;
    for i in 0..100_u8 {
        socket.send(Message::Ping(vec![i].into())).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong(vec![i].into()));
    }
    said(&mut socket, reset(json!({"index": 1}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_address_opens_no_session() {
    let served = Served::few().await;
    let opened = async |origin: &str| {
        let url = format!("ws://{}/ws", served.running.address);
        let mut request =
            tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(url)
                .unwrap();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        connect_async(request).await.is_ok()
    };
    for origin in [
        "http://203.0.113.6",
        "http://[2001:db8::1]",
        "http://evil.example",
        "null",
        "http://0.0.0.0:8000",
    ] {
        assert!(!opened(origin).await, "{origin}");
    }
    for origin in ["http://127.0.0.1:1234", "http://localhost", "https://[::1]:8000"] {
        assert!(opened(origin).await, "{origin}");
    }
}
