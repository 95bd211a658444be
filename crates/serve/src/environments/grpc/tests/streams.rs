//! Methods for many steps at once, for copies of sessions, and for episodes that are streams.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::mpsc;

use super::*;
use maverl::env::grpc::wire::act_many_response::Result as Outcome;
use maverl::env::grpc::wire::play_request::Message as Asked;
use maverl::env::grpc::wire::play_response::Message as Answer;
use maverl::env::grpc::wire::{
    ActManyRequest, ActManyResponse, ForkRequest, OpenResponse, PlayRequest, PlayResponse,
};

/// Answers with all actions so far, at once.
struct Diary {
    /// True if it copies its sessions.
    copies: bool,
}

impl Environment for Diary {
    async fn open(&self, _: &Task, _: u64) -> Result<Value, EnvError> {
        Ok(json!([]))
    }

    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let Action::Text(text) = action else { return Err(EnvError::new("no text")) };
        session.state.as_array_mut().unwrap().push(json!(text));
        Ok(Observation::new(session.state.to_string()))
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let solved = answer.is_some_and(|answer| session.task.question.contains(answer));
        Ok(Score { solved, ..Score::binary(solved) })
    }

    async fn fork(&self, session: &Session) -> Result<Option<Value>, EnvError> {
        Ok(self.copies.then(|| session.state.clone()))
    }
}

impl Diary {
    async fn served(copies: bool, sessions: usize) -> Served {
        Served::start(Arc::new(Self { copies }), sessions, Duration::from_secs(60)).await
    }
}

fn fork(session: &str, request_id: &str) -> Request<ForkRequest> {
    let (session, request_id) = (session.to_owned(), request_id.to_owned());
    with_key(ForkRequest { session, request_id, lease_s: 0 })
}

async fn text(served: &Served, session: &str, step: u32, said: &str) -> String {
    served.client().act(act(session, step, said)).await.unwrap().into_inner().text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_session_goes_on_from_its_state_and_leaves_it_as_it_is() {
    let served = Diary::served(true, 4).await;
    let origin = served.client().open(served.open("")).await.unwrap().into_inner();
    text(&served, &origin.session, 1, "a").await;
    text(&served, &origin.session, 2, "b").await;
    let mut client = served.client();
    let copy = client.fork(fork(&origin.session, "copy")).await.unwrap().into_inner();
    assert_ne!(copy.session, origin.session);
    let alike = OpenResponse { session: origin.session.clone(), ..copy.clone() };
    assert_eq!(alike, origin);
    // Sent again, it is the same copy, also after the original was closed.
    assert_eq!(client.fork(fork(&origin.session, "copy")).await.unwrap().into_inner(), copy);
    assert_eq!(text(&served, &copy.session, 3, "c").await, r#"["a","b","c"]"#);
    assert_eq!(text(&served, &origin.session, 3, "d").await, r#"["a","b","d"]"#);
    client.close(close(&origin.session)).await.unwrap();
    assert_eq!(client.fork(fork(&origin.session, "copy")).await.unwrap().into_inner(), copy);
    assert_eq!(text(&served, &copy.session, 4, "e").await, r#"["a","b","c","e"]"#);
    assert_eq!(refused(client.fork(fork(&origin.session, "")).await).0, Code::NotFound);
    assert_eq!(refused(client.fork(fork(&copy.session, "copy")).await).0, Code::AlreadyExists);
    let (code, message) = refused(client.act(act(&copy.session, 2, "b")).await);
    assert!(code == Code::FailedPrecondition && message.contains("the last step was 4"));
    // Refused copies take no room.
    assert_eq!(served.server.sessions(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_cannot_copy_a_session_says_so_and_the_session_goes_on() {
    let served = Diary::served(false, 2).await;
    let session = served.session().await;
    text(&served, &session, 1, "a").await;
    let (code, message) = refused(served.client().fork(fork(&session, "copy")).await);
    assert_eq!(code, Code::Unimplemented);
    assert!(message.contains("the environment `math` cannot copy"), "{message}");
    assert_eq!(text(&served, &session, 2, "b").await, r#"["a","b"]"#);
    assert_eq!(served.server.sessions(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_a_run_copies_sessions_that_the_server_can_copy() {
    for copies in [true, false] {
        let served = Diary::served(copies, 4).await;
        let open = start(served.server.router().unwrap(), Limits::default()).await;
        let url = format!("http://{}", open.address);
        let mut remote: GrpcEnvironment = serde_json::from_value(json!({ "url": url })).unwrap();
        let remote = tokio::task::spawn_blocking(move || {
            Environment::start(&mut remote, Path::new("")).map(|()| remote)
        });
        let remote: Box<dyn DynEnvironment> = Box::new(remote.await.unwrap().unwrap());
        let mut session = remote.open(&served.tasks[0], 1).await.unwrap();
        let say = |text: &str| Action::Text(text.to_owned());
        remote.act(&mut session, say("a")).await.unwrap();
        let copy = remote.fork(&session).await.unwrap();
        assert_eq!(copy.is_some(), copies);
        if let Some(mut copy) = copy {
            let seen = remote.act(&mut copy, say("b")).await.unwrap();
            assert_eq!((seen.text.as_str(), copy.actions), (r#"["a","b"]"#, 2));
            remote.close(copy).await.unwrap();
        }
        assert_eq!(remote.act(&mut session, say("c")).await.unwrap().text, r#"["a","c"]"#);
        remote.close(session).await.unwrap();
        assert_eq!(served.server.sessions(), 0);
    }
}

/// Returns the answers to steps by their places.
async fn many(served: &Served, acts: Vec<Request<ActRequest>>) -> BTreeMap<u32, Outcome> {
    let acts = acts.into_iter().map(Request::into_inner).collect();
    let answers = served.client().act_many(with_key(ActManyRequest { acts })).await.unwrap();
    let answers = answers.into_inner().map(|answer| {
        let ActManyResponse { index, result } = answer.unwrap();
        (index, result.unwrap())
    });
    answers.collect().await
}

fn failed(outcome: &Outcome, code: Code) -> bool {
    matches!(outcome, Outcome::Failure(failure) if failure.code == code as u32)
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_several_sessions_are_executed_at_once_and_a_failure_is_that_of_one() {
    let counter = Arc::new(Counter::default());
    let served = Served::start(Arc::clone(&counter) as _, 8, Duration::from_secs(60)).await;
    let sessions = futures::future::join_all((0..8).map(|_| served.session())).await;
    let mut acts: Vec<_> = sessions.iter().map(|session| act(session, 1, "a")).collect();
    acts.extend([act(&sessions[0], 2, "b"), act("none", 1, "a"), act(&sessions[1], 2, "break")]);
    acts.push(act(&sessions[1], 5, "x"));
    let found = many(&served, acts).await;
    // Two of a session one after the other, others at once.
    let most = counter.most_at_once.load(Ordering::SeqCst);
    assert!((4..=8).contains(&most), "{most} steps at once");
    assert_eq!(found.len(), 12);
    for (index, text) in (0..8).map(|index| (index, "1 a")).chain([(8, "2 b")]) {
        let done = ActResponse { text: text.to_owned(), done: false };
        assert_eq!(found[&index], Outcome::Done(done), "{index}");
    }
    assert!(failed(&found[&9], Code::NotFound) && failed(&found[&10], Code::Internal));
    assert!(failed(&found[&11], Code::FailedPrecondition));
    assert_eq!(counter.acted.load(Ordering::SeqCst), 10);
    // Sent again, nothing is executed.
    let again = many(&served, vec![act(&sessions[0], 2, "b"), act(&sessions[2], 1, "a")]).await;
    assert_eq!((&again[&0], &again[&1]), (&found[&8], &found[&2]));
    assert_eq!(counter.acted.load(Ordering::SeqCst), 10);
    assert!(many(&served, Vec::new()).await.is_empty());
    let acts = (0..1025).map(|step| act("none", step, "a").into_inner()).collect();
    let (code, message) =
        refused(served.client().act_many(with_key(ActManyRequest { acts })).await.map(drop));
    assert!(code == Code::InvalidArgument && message.contains("1025 steps"), "{message}");
}

/// A stream of a client.
struct Stream {
    asks: mpsc::Sender<PlayRequest>,
    answers: tonic::Streaming<PlayResponse>,
}

impl Stream {
    async fn begin(served: &Served) -> Self {
        let (asks, mut asked) = mpsc::channel(4);
        let messages = futures::stream::poll_fn(move |context| asked.poll_recv(context));
        let answers = served.client().play(with_key(messages)).await.unwrap().into_inner();
        Self { asks, answers }
    }

    async fn ask(&mut self, message: Option<Asked>) -> Result<Answer, Status> {
        self.asks.send(PlayRequest { message }).await.unwrap();
        let answer = self.answers.message().await?;
        Ok(answer.unwrap().message.unwrap())
    }

    async fn open(&mut self, served: &Served) -> OpenResponse {
        let request = served.open("").into_inner();
        match self.ask(Some(Asked::Open(request))).await.unwrap() {
            Answer::Open(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a step, and returns the observation or the failure.
    async fn act(&mut self, step: u32, text: &str) -> String {
        let request = act("", step, text).into_inner();
        match self.ask(Some(Asked::Act(request))).await.unwrap() {
            Answer::Act(seen) => seen.text,
            Answer::Failure(failure) => failure.message,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_plays_an_episode_and_its_end_closes_the_session() {
    let served = Diary::served(true, 2).await;
    let mut stream = Stream::begin(&served).await;
    let opened = stream.open(&served).await;
    assert_eq!(opened.question, served.tasks[0].question);
    assert_eq!(stream.act(0, "a").await, r#"["a"]"#);
    assert_eq!(stream.act(2, "b").await, r#"["a","b"]"#);
    // A step that is sent again, and failures after which the session goes on.
    assert_eq!(stream.act(2, "b").await, r#"["a","b"]"#);
    assert!(stream.act(7, "x").await.contains("`step` is 7"));
    assert_eq!(served.server.sessions(), 1);
    for (message, code) in [
        (None, Code::InvalidArgument),
        (Some(Asked::Open(served.open("").into_inner())), Code::FailedPrecondition),
        (Some(Asked::Act(act("other", 3, "x").into_inner())), Code::InvalidArgument),
    ] {
        let answer = stream.ask(message).await.unwrap();
        assert!(matches!(&answer, Answer::Failure(failure) if failure.code == code as u32));
    }
    // Other methods reach the session too.
    assert_eq!(text(&served, &opened.session, 3, "c").await, r#"["a","b","c"]"#);
    let request = judge("", Some("What")).into_inner();
    let answer = stream.ask(Some(Asked::Judge(request))).await.unwrap();
    assert!(matches!(answer, Answer::Judge(_)), "{answer:?}");
    drop(stream.asks);
    assert!(stream.answers.message().await.unwrap().is_none());
    assert_eq!(served.server.sessions(), 0);
    assert_eq!(refused(served.client().act(act(&opened.session, 4, "x")).await).0, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_given_up_or_silent_or_begins_otherwise_leaves_no_session() {
    let counter = Arc::new(Counter::default());
    let served = Served::start(Arc::clone(&counter) as _, 2, Duration::from_secs(1)).await;
    let mut stream = Stream::begin(&served).await;
    stream.open(&served).await;
    // Given up with a step under way, which goes on.
    stream
        .asks
        .send(PlayRequest { message: Some(Asked::Act(act("", 1, "a").into_inner())) })
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(stream);
    served.until_sessions(0).await;
    assert_eq!(
        (counter.acted.load(Ordering::SeqCst), counter.closed.load(Ordering::SeqCst)),
        (1, 1)
    );
    let mut silent = Stream::begin(&served).await;
    silent.open(&served).await;
    let (code, message) = refused(silent.answers.message().await);
    assert!(code == Code::NotFound && message.contains("its lease ended"), "{message}");
    served.until_sessions(0).await;
    let with_id = Asked::Open(served.open("mine").into_inner());
    for (message, code, part) in [
        (Some(Asked::Act(act("", 1, "a").into_inner())), Code::FailedPrecondition, "is `open`"),
        (Some(with_id), Code::InvalidArgument, "leave it empty"),
        (None, Code::InvalidArgument, "the message is empty"),
    ] {
        let (found, message) = refused(Stream::begin(&served).await.ask(message).await);
        assert!(found == code && message.contains(part), "{message}");
    }
    assert_eq!(served.server.sessions(), 0);
}

/// Number of sessions that are open at once.
const SESSIONS: usize = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_open_sessions_keep_their_states_and_tasks_apart() {
    let served = Diary::served(true, SESSIONS).await;
    let (n, client) = (served.tasks.len(), served.client());
    let opened = futures::stream::iter(0..SESSIONS).map(|i| {
        let mut request = served.open("");
        request.get_mut().task_id = served.tasks[i % n].id.clone();
        let mut client = client.clone();
        async move { client.open(request).await.unwrap().into_inner() }
    });
    let opened: Vec<OpenResponse> = opened.buffered(64).collect().await;
    assert_eq!(served.server.sessions(), SESSIONS);
    // All act only now, the last one first, so that each session acts after all others were opened.
    let ended = futures::stream::iter((0..SESSIONS).rev()).map(|i| {
        let (session, mut client, served) = (&opened[i].session, client.clone(), &served);
        async move {
            let seen = client.act(act(session, 1, &format!("of {i}"))).await.unwrap().into_inner();
            assert_eq!(seen.text, format!("[\"of {i}\"]"));
            let question = served.tasks[i % n].question.as_str();
            let other = served.tasks[(i + 1) % n].question.as_str();
            let answer = if i % 2 == 0 { question } else { other };
            let score = client.judge(judge(session, Some(answer))).await.unwrap().into_inner();
            client.close(close(session)).await.unwrap();
            assert_eq!(score.solved, i % 2 == 0, "{i}");
            usize::from(score.solved)
        }
    });
    let solved: usize = ended.buffer_unordered(64).fold(0, async |sum, one| sum + one).await;
    println!("{SESSIONS} sessions at once, of which {solved} are solved");
    assert_eq!((solved, served.server.sessions()), (SESSIONS / 2, 0));
}

/// Prints the latency of a step over one connection.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a guard of speed"]
async fn a_step_over_a_connection_costs_less_than_a_few_milliseconds() {
    const STEPS: u32 = 2000;
    let served = Diary::served(true, 1).await;
    let mut client = served.client();
    let mut times = Vec::new();
    for _ in 0..20 {
        let session = client.open(served.open("")).await.unwrap().into_inner().session;
        for step in 1..=STEPS / 20 {
            let begin = Instant::now();
            client.act(act(&session, step, "x")).await.unwrap();
            times.push(begin.elapsed());
        }
        client.close(close(&session)).await.unwrap();
    }
    times.sort();
    let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("a step over gRPC: p50 {half:?}, p99 {most:?} of {STEPS}");
    assert!(half < Duration::from_millis(20), "{half:?}");
}
