#![allow(clippy::unwrap_used)]

mod hostile;
mod streams;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Map, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::base::{Health, Ready};
use crate::environments::episode::FAILED;
use crate::environments::server::{EnvironmentSettings, ServedEnvironment};
use crate::environments::tasks::TaskSet;
use crate::guard::Guard;
use crate::key::Keys;
use crate::listener::Limits;
use crate::testing::{PATIENCE, Running, start, until};
use maverl::env::grpc::GrpcEnvironment;
use maverl::env::grpc::wire::{
    ActRequest, ActResponse, CloseRequest, DescribeRequest, EnvironmentClient, JudgeRequest,
    OpenRequest, RenewRequest, TasksRequest, ToolCall, act_request,
};
use maverl::env::math::MathEnvironment;
use maverl::env::{DynEnvironment, EnvError, Environment, Session};
use maverl::task::{Action, Observation, Score, Task};

/// Key of the server.
const KEY: &str = "key-of-the-test";

/// Counts its actions, each of which takes a moment, and fails for some.
#[derive(Default)]
struct Counter {
    acting: AtomicUsize,
    most_at_once: AtomicUsize,
    acted: AtomicUsize,
    scored: AtomicUsize,
    closed: AtomicUsize,
}

impl Environment for Counter {
    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let acting = 1 + self.acting.fetch_add(1, Ordering::SeqCst);
        self.most_at_once.fetch_max(acting, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.acting.fetch_sub(1, Ordering::SeqCst);
        self.acted.fetch_add(1, Ordering::SeqCst);
        match action {
            Action::Text(text) if text == "break" => Err(EnvError::new("/the/secret/path")),
            Action::Text(text) => Ok(Observation::new(format!("{} {text}", session.actions))),
            Action::Tool { name, arguments } => Ok(Observation::new(format!("{name} {arguments}"))),
        }
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        self.scored.fetch_add(1, Ordering::SeqCst);
        let metrics = Map::from_iter([("given".to_owned(), json!(answer.is_some()))]);
        Ok(Score { reward: f64::from(session.actions), solved: answer == Some("4"), metrics })
    }

    async fn close(&self, _: Session) -> Result<(), EnvError> {
        self.closed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A server with its key.
struct Served {
    server: Arc<EnvironmentServer>,
    running: Running,
    tasks: Vec<Task>,
}

impl Served {
    async fn start(
        environment: Arc<dyn DynEnvironment>,
        sessions: usize,
        timeout: Duration,
    ) -> Self {
        let config = maverl::config::TaskConfig {
            data: "builtin:arithmetic".to_owned(),
            ..Default::default()
        };
        let tasks = maverl::data::load(&config, "train", Path::new("")).unwrap();
        let settings = EnvironmentSettings { sessions: sessions.try_into().unwrap(), timeout };
        let server = EnvironmentServer::new(settings, Health::default());
        let splits = TaskSet(vec![("train".to_owned(), tasks.clone())]);
        let name = "math".to_owned();
        server.open(ServedEnvironment {
            name,
            environment,
            acts: true,
            actions: vec!["attempt".to_owned()],
            tasks: splits,
        });
        let mut keys = Keys::default();
        keys.add("the test", KEY).unwrap();
        let router = Guard { keys, ..Guard::default() }.protect(server.router().unwrap());
        let running = start(router, Limits::default()).await;
        Self { server, running, tasks }
    }

    async fn counter() -> (Self, Arc<Counter>) {
        let counter = Arc::new(Counter::default());
        let served = Self::start(Arc::clone(&counter) as _, 2, Duration::from_secs(60)).await;
        (served, counter)
    }

    fn channel(&self) -> Channel {
        let url = format!("http://{}", self.running.address);
        Endpoint::from_shared(url).unwrap().connect_lazy()
    }

    fn client(&self) -> EnvironmentClient<Channel> {
        EnvironmentClient::new(self.channel())
    }

    fn open(&self, request_id: &str) -> Request<OpenRequest> {
        let (task_id, request_id) = (self.tasks[0].id.clone(), request_id.to_owned());
        with_key(OpenRequest { task_id, seed: 7, request_id, lease_s: 0 })
    }

    /// Opens a session, and returns its id.
    async fn session(&self) -> String {
        self.client().open(self.open("")).await.unwrap().into_inner().session
    }

    /// Waits until so many sessions are open.
    async fn until_sessions(&self, open: usize) {
        until(&format!("a number of {open} sessions"), async || self.server.sessions() == open)
            .await;
    }
}

fn with_key<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let key = format!("Bearer {KEY}").parse().unwrap();
    request.metadata_mut().insert("authorization", key);
    request
}

fn act(session: &str, step: u32, text: &str) -> Request<ActRequest> {
    let action = Some(act_request::Action::Text(text.to_owned()));
    with_key(ActRequest { session: session.to_owned(), step, action })
}

fn judge(session: &str, answer: Option<&str>) -> Request<JudgeRequest> {
    let answer = answer.map(str::to_owned);
    with_key(JudgeRequest { session: session.to_owned(), answer })
}

fn close(session: &str) -> Request<CloseRequest> {
    with_key(CloseRequest { session: session.to_owned() })
}

/// Returns the code and the message of a refusal.
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_sent_again_is_executed_once() {
    let (served, counter) = Served::counter().await;
    let session = served.session().await;
    let mut client = served.client();
    let first = client.act(act(&session, 1, "a")).await.unwrap().into_inner();
    assert_eq!(first, ActResponse { text: "1 a".to_owned(), done: false });
    assert_eq!(client.act(act(&session, 1, "a")).await.unwrap().into_inner(), first);
    let both = (served.client(), served.client());
    let (mut one, mut other) = both;
    let both = tokio::join!(one.act(act(&session, 2, "b")), other.act(act(&session, 2, "b")));
    assert_eq!(both.0.unwrap().into_inner(), both.1.unwrap().into_inner());
    assert_eq!(counter.acted.load(Ordering::SeqCst), 2);
    // A failure is stored too, and its words stay in the log.
    for _ in 0..2 {
        let (code, message) = refused(client.act(act(&session, 3, "break")).await);
        assert_eq!((code, message.as_str()), (Code::Internal, FAILED));
    }
    assert_eq!(counter.acted.load(Ordering::SeqCst), 3);
    for (step, text, part) in [
        (2, "b", "`step` is 2; the last step was 3"),
        (5, "x", "`step` is 5"),
        (0, "x", "`step` is 0"),
        (3, "other", "step 3 was another action"),
    ] {
        let (code, message) = refused(client.act(act(&session, step, text)).await);
        assert_eq!(code, Code::FailedPrecondition, "{step}: {message}");
        assert!(message.contains(part), "{step}: {message}");
    }
    let score = client.judge(judge(&session, Some("4"))).await.unwrap().into_inner();
    assert_eq!((score.reward, score.solved), (2.0, true));
    assert_eq!(score.metrics, "{\"given\":true}");
    assert_eq!(client.judge(judge(&session, Some("4"))).await.unwrap().into_inner(), score);
    for closed in [true, false] {
        assert_eq!(client.close(close(&session)).await.unwrap().into_inner().closed, closed);
    }
    assert_eq!((counter.closed.load(Ordering::SeqCst), served.server.sessions()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_answers_are_scored_each_in_the_state_of_the_session_and_an_equal_request_once() {
    let (served, counter) = Served::counter().await;
    let session = served.session().await;
    let mut client = served.client();
    let (none, right) = ((0.0, false), (0.0, true));
    for (step, answer, expected, scored) in [
        (None, Some("3"), none, 1),
        (None, Some("3"), none, 1),
        (None, Some("4"), right, 2),
        (None, None, none, 3),
        (None, Some(""), none, 4),
        (Some(1), Some(""), (1.0, false), 5),
        (None, Some(""), (1.0, false), 5),
        // A repeated step executes nothing, so that the score stays.
        (Some(1), Some(""), (1.0, false), 5),
        (Some(2), Some("4"), (2.0, true), 6),
    ] {
        if let Some(step) = step {
            let seen = client.act(act(&session, step, "a")).await.unwrap().into_inner();
            assert_eq!(seen.text, format!("{step} a"));
        }
        let score = client.judge(judge(&session, answer)).await.unwrap().into_inner();
        assert_eq!((score.reward, score.solved), expected, "{step:?} {answer:?}");
        assert_eq!(counter.scored.load(Ordering::SeqCst), scored, "{step:?} {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_goes_on_when_its_connection_is_lost() {
    let (served, counter) = Served::counter().await;
    let session = served.session().await;
    let mut lost = served.client();
    let sent = lost.act(act(&session, 1, "a"));
    assert!(tokio::time::timeout(Duration::from_millis(50), sent).await.is_err());
    drop(lost);
    let seen = served.client().act(act(&session, 1, "a")).await.unwrap().into_inner();
    assert_eq!((seen.text.as_str(), counter.acted.load(Ordering::SeqCst)), ("1 a", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equal_request_opens_no_second_session() {
    let (served, _) = Served::counter().await;
    let mut client = served.client();
    let first = client.open(served.open("mine")).await.unwrap().into_inner();
    assert_eq!(first, client.open(served.open("mine")).await.unwrap().into_inner());
    assert_eq!(first.question, served.tasks[0].question);
    assert!(!format!("{first:?}").contains("answers"), "references stay in the server");
    let mut other = served.open("mine");
    other.get_mut().seed = 8;
    assert_eq!(refused(client.open(other).await).0, Code::AlreadyExists);
    let second = client.open(served.open("")).await.unwrap().into_inner();
    assert_ne!(first.session, second.session);
    let (code, message) = refused(client.open(served.open("")).await);
    assert!(code == Code::ResourceExhausted && message.contains("2 of 2 sessions"), "{message}");
    client.close(close(&first.session)).await.unwrap();
    served.session().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_request_ends_with_its_lease_and_a_renewed_one_stays() {
    let counter = Arc::new(Counter::default());
    let served = Served::start(Arc::clone(&counter) as _, 2, Duration::from_secs(3)).await;
    let (silent, renewed) = (served.session().await, served.session().await);
    let mut client = served.client();
    while served.server.sessions() > 1 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.renew(with_key(RenewRequest { session: renewed.clone() })).await.unwrap();
    }
    served.until_sessions(1).await;
    assert_eq!(counter.closed.load(Ordering::SeqCst), 1);
    let (code, message) = refused(client.act(act(&silent, 1, "a")).await);
    assert!(code == Code::NotFound && message.contains("its lease ended"), "{message}");
    assert_eq!(client.act(act(&renewed, 1, "a")).await.unwrap().into_inner().text, "1 a");
    served.until_sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_are_refused_by_name() {
    let (served, _) = Served::counter().await;
    let mut client = served.client();
    let session = served.session().await;
    let mut wrong = Request::new(DescribeRequest {});
    wrong.metadata_mut().insert("authorization", "Bearer another-key".parse().unwrap());
    for request in [wrong, Request::new(DescribeRequest {})] {
        let (code, message) = refused(client.describe(request).await);
        assert_eq!(code, Code::Unauthenticated, "{message}");
        assert!(message.contains("Authorization: Bearer KEY"), "{message}");
    }
    let (code, message) = refused(client.act(act("none", 1, "a")).await);
    assert_eq!(code, Code::NotFound, "{message}");
    assert!(message.contains("there is no session \"none\""), "{message}");
    let mut open = served.open("");
    open.get_mut().task_id = "none".to_owned();
    let (code, message) = refused(client.open(open).await);
    assert_eq!(code, Code::InvalidArgument, "{message}");
    assert!(message.contains("`task_id` is \"none\""), "{message}");
    let split = TasksRequest { split: "none".to_owned() };
    let (code, message) = refused(client.tasks(with_key(split)).await.map(drop));
    assert!(code == Code::InvalidArgument && message.contains("no split"), "{message}");
    for (action, part) in [
        (None, "has no action"),
        (
            Some(act_request::Action::Call(ToolCall {
                name: "add".to_owned(),
                arguments: "[1]".to_owned(),
            })),
            "`arguments` of a call",
        ),
    ] {
        let request = ActRequest { session: session.clone(), step: 1, action };
        let (code, message) = refused(client.act(with_key(request)).await);
        assert!(code == Code::InvalidArgument && message.contains(part), "{message}");
    }
    let large = "x".repeat(MOST_BYTES + 1);
    let (code, message) = refused(client.act(act(&session, 1, &large)).await);
    assert!(code == Code::OutOfRange && message.contains("too large"), "{message}");
    // A field of bytes where the server reads a text.
    let path = "/maverl.environment.v1.Environment/Act".parse().unwrap();
    let mut raw = tonic::client::Grpc::new(served.channel());
    raw.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<Vec<u8>, ActResponse>::default();
    let (code, message) = refused(raw.unary(with_key(vec![0xff, 0xfe]), path, codec).await);
    assert!(code == Code::Internal && message.contains("invalid string value"), "{message}");
    // None of them was a step.
    assert_eq!(client.act(act(&session, 1, "a")).await.unwrap().into_inner().text, "1 a");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_is_that_of_the_server() {
    let (served, _) = Served::counter().await;
    let mut client = HealthClient::new(served.channel());
    let asked = |service: &str| with_key(HealthCheckRequest { service: service.to_owned() });
    let mut watched = client.watch(asked("")).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
    assert_eq!(client.check(asked(wire::SERVICE)).await.unwrap().into_inner().status, 1);
    assert_eq!(refused(client.check(asked("other")).await).0, Code::NotFound);
    served.server.health().enter(Ready::Draining);
    assert_eq!(client.check(asked("")).await.unwrap().into_inner().status, 2);
    assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
    assert_eq!(refused(served.client().open(served.open("")).await).0, Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_behind_a_server_judges_as_it_does_itself() {
    let environment = Arc::new(MathEnvironment::default());
    let served = Served::start(environment, 8, Duration::from_secs(60)).await;
    let open = start(served.server.router().unwrap(), Limits::default()).await;
    let url = format!("http://{}", open.address);
    let mut remote: GrpcEnvironment = serde_json::from_value(json!({ "url": url })).unwrap();
    let remote = tokio::task::spawn_blocking(move || {
        Environment::start(&mut remote, Path::new("")).map(|()| remote)
    });
    let remote = remote.await.unwrap().unwrap();
    let local = MathEnvironment::default();
    for task in &served.tasks[..8] {
        let right = task.data["answers"][0].as_str().unwrap();
        for (acts, answer) in [
            (&[][..], Some(right)),
            (&[], None),
            (&["-77"], Some(right)),
            (&["-77", "-78", "-79"], Some("-80")),
        ] {
            let environments: [&dyn DynEnvironment; 2] = [&local, &remote];
            let mut ends = Vec::new();
            for environment in environments {
                let mut session = environment.open(task, 1).await.unwrap();
                let mut seen = Vec::new();
                for act in acts {
                    let action = Action::Text((*act).to_owned());
                    seen.push(environment.act(&mut session, action).await.unwrap());
                }
                let score = environment.score(&session, answer).await.unwrap();
                let question = environment.question(&session);
                environment.close(session).await.unwrap();
                ends.push((seen, score, question));
            }
            assert_eq!(ends[0], ends[1], "{} {acts:?} {answer:?}", task.question);
        }
    }
    assert_eq!(served.server.sessions(), 0);
    let other = Task { question: "Who?".to_owned(), ..served.tasks[0].clone() };
    let EnvError(told) = DynEnvironment::open(&remote, &other, 1).await.unwrap_err();
    assert!(told.contains("has another question than that of the run"), "{told}");
    assert_eq!(served.server.sessions(), 0);
}

/// Gives the number in the answer as the reward.
struct Payer;

impl Environment for Payer {
    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        Ok(Observation::new(""))
    }

    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let reward = answer.and_then(|answer| answer.parse().ok());
        let reward = reward.ok_or_else(|| EnvError::new("/the/secret/path"))?;
        Ok(Score { reward, ..Score::binary(false) })
    }
}

/// Starts the client of a server.
async fn remote(url: String) -> GrpcEnvironment {
    let mut remote: GrpcEnvironment = serde_json::from_value(json!({ "url": url })).unwrap();
    let started = tokio::task::spawn_blocking(move || {
        Environment::start(&mut remote, Path::new("")).map(|()| remote)
    });
    started.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_fails_and_a_reward_beyond_its_bound_leave_their_episode_unscored() {
    let served = Served::start(Arc::new(Payer), 32, Duration::from_secs(60)).await;
    let running = start(served.server.router().unwrap(), Limits::default()).await;
    let remote: &dyn DynEnvironment = &remote(format!("http://{}", running.address)).await;
    let session = remote.open(&served.tasks[0], 1).await.unwrap();
    for answer in ["1e200", "-1e200", "inf", "-inf", "NaN", "1000000001", "none"] {
        let failed = remote.score(&session, Some(answer)).await.unwrap_err().to_string();
        assert!(failed.contains("the gRPC server at http://127.0.0.1"), "{answer}: {failed}");
        assert!(failed.contains(FAILED) && !failed.contains("secret"), "{failed}");
    }
    for answer in ["1e9", "-1e9", "5e-324"] {
        let score = remote.score(&session, Some(answer)).await.unwrap();
        assert_eq!(score.reward.to_bits(), answer.parse::<f64>().unwrap().to_bits(), "{answer}");
    }
    remote.close(session).await.unwrap();
}

/// Number of episodes of the comparison with the environment itself, and of those that are open at once.
const EPISODES: usize = 1000;
const AT_ONCE: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_episodes_of_two_clients_at_once_end_as_in_the_environment_itself() {
    let served =
        Served::start(Arc::new(MathEnvironment::default()), AT_ONCE, Duration::from_secs(60)).await;
    let open = start(served.server.router().unwrap(), Limits::default()).await;
    let client = || {
        let url = format!("http://{}", open.address);
        let mut client: GrpcEnvironment = serde_json::from_value(json!({ "url": url })).unwrap();
        tokio::task::spawn_blocking(move || {
            Environment::start(&mut client, Path::new("")).map(|()| client)
        })
    };
    let clients = [client().await.unwrap().unwrap(), client().await.unwrap().unwrap()];
    let local = MathEnvironment::default();
    let remote = futures::stream::iter(0..EPISODES)
        .map(|i| played(&clients[i % 2], &served.tasks, i))
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let (mut solved, mut acts) = (0, 0);
    for (i, remote) in remote.into_iter().enumerate() {
        solved += usize::from(remote.2.solved);
        acts += remote.1.len();
        assert_eq!(remote, played(&local, &served.tasks, i).await, "episode {i}");
    }
    println!("{EPISODES} episodes with {acts} actions, of which {solved} are solved");
    assert!(solved > EPISODES / 4 && acts > EPISODES, "{solved} {acts}");
    assert_eq!(served.server.sessions(), 0);
}

/// Plays episode `i`: none to three actions, then a right answer, a wrong one or none. Returns what the team sees, and the
/// score.
async fn played(
    environment: &dyn DynEnvironment,
    tasks: &[Task],
    i: usize,
) -> (Option<String>, Vec<Observation>, Score) {
    let task = &tasks[i % tasks.len()];
    let mut session = environment.open(task, i as u64).await.unwrap();
    let question = environment.question(&session);
    let mut seen = Vec::new();
    for act in 0..i / 2 % 4 {
        let action = Action::Text((i + act).to_string());
        seen.push(environment.act(&mut session, action).await.unwrap());
    }
    let right = task.data["answers"][0].as_str().unwrap();
    let answer = [Some(right), Some("-77"), None][i % 3];
    let score = environment.score(&session, answer).await.unwrap();
    environment.close(session).await.unwrap();
    (question, seen, score)
}

/// Beginning of a connection of HTTP/2, with a frame of settings.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// Sends bytes, and reads until the server closes the connection. Returns the kinds of its frames.
fn answered(address: std::net::SocketAddr, sent: &[u8]) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server may close the connection before it has read all of it.
    let _ = stream.write_all(sent);
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it stays open");
                break;
            }
        }
    }
    let (mut kinds, mut rest) = (Vec::new(), bytes.as_slice());
    while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
        kinds.push(*kind);
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        rest = after.get(length..).unwrap_or_default();
    }
    kinds
}

/// Kind of the frame that ends a connection.
const GO_AWAY: u8 = 7;

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_http_2_forbids_end_their_connection_and_no_other() {
    let (served, _) = Served::counter().await;
    let session = served.session().await;
    let mut client = served.client();
    assert_eq!(client.act(act(&session, 1, "a")).await.unwrap().into_inner().text, "1 a");
    let wrong = [
        ("no frame", vec![0xff; 64]),
        ("data of the connection", frame(0, 0, 0, b"x")),
        ("data of a stream that is not open", frame(0, 0, 1, b"x")),
        ("headers that are not packed", frame(1, 4, 1, &[0xff; 20])),
        ("headers of a stream of the server", frame(1, 4, 2, &[0x82])),
        ("settings of three bytes", frame(4, 0, 0, b"abc")),
        ("a window that does not grow", frame(8, 0, 0, &[0; 4])),
        ("a ping of three bytes", frame(6, 0, 0, b"abc")),
        ("a continuation of nothing", frame(9, 4, 1, b"")),
        ("a push of a client", frame(5, 4, 1, &[0, 0, 0, 2, 0x82])),
    ];
    let address = served.running.address;
    let storm = move || {
        for _ in 0..20 {
            for (name, sent) in &wrong {
                let kinds = answered(address, &[BEGIN, sent.as_slice()].concat());
                assert!(kinds.contains(&GO_AWAY), "{name}: {kinds:?}");
            }
        }
        answered(address, b"PRI * HTTP/2.0\r\n\r\nno more of it");
    };
    tokio::task::spawn_blocking(storm).await.unwrap();
    assert_eq!(client.act(act(&session, 2, "b")).await.unwrap().into_inner().text, "2 b");
    assert_eq!(served.server.sessions(), 1);
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_tls_is_trusted_by_its_certificate_alone() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tls").join(name);
    let tls = crate::Tls::read(&file("certificate.pem"), &file("key.pem")).unwrap();
    let (served, _) = Served::counter().await;
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", socket.local_addr().unwrap().port());
    let listener = crate::Listener::new(socket, Limits::default()).with_tls(Some(tls));
    tokio::spawn(listener.serve(served.server.router().unwrap(), std::future::pending()));
    let started = |ca_file: std::path::PathBuf| {
        let settings = json!({ "url": url, "ca_file": ca_file });
        let mut remote: GrpcEnvironment = serde_json::from_value(settings).unwrap();
        tokio::task::spawn_blocking(move || Environment::start(&mut remote, Path::new("")))
    };
    started(file("certificate.pem")).await.unwrap().unwrap();
    let EnvError(told) = started(std::path::PathBuf::new()).await.unwrap().unwrap_err();
    assert!(told.contains("UNAVAILABLE") && told.contains("certificate"), "{told}");
}
