//! Agents, an orchestra, an environment and a backend for tests, written by hand.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Map;

use crate::agent::{Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError, tag};
use crate::env::{EnvError, Environment, Session};
use crate::orchestra::{
    Ask, ChatBackend, Conversation, Includes, Member, Orchestra, OrchestraName, Response, Team,
};
use crate::rollout::{EpisodeRewards, EpisodeRunner, Rollout};
use crate::task::{Action, Observation, Score, Task};
use crate::trajectory::{Fault, FaultKind, Finish, Message, Seat, Tokens};

pub fn task(id: &str) -> Task {
    Task {
        id: id.to_owned(),
        source: "test".to_owned(),
        question: "?".to_owned(),
        data: Map::new(),
    }
}

pub struct Line(pub String);

pub fn line(text: &str) -> Line {
    Line(text.to_owned())
}

impl Input for Line {
    const FIELDS: &'static [&'static str] = &["text"];
    const OBSERVATIONS: &'static [&'static str] = &[];

    fn show(&self, _field: usize) -> String {
        self.0.clone()
    }
}

/// Content of the only `<w>..</w>`.
#[derive(Debug, Clone, PartialEq)]
pub struct Word(pub String);

impl Reply for Word {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "<w>a word</w>".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        assert_ne!(reply, "parser panic");
        Ok(Self(tag(reply, "w")?.to_owned()))
    }
}

macro_rules! agent {
    ($type:ident, $name:literal) => {
        pub struct $type;

        impl Agent for $type {
            type Input = Line;
            type Output = Word;

            fn prompt(&self, input: &Line) -> Prompt {
                assert_ne!(input.0, "prompt panic");
                Prompt::user(input.0.clone()).with_system(concat!("You are ", $name))
            }
        }

        impl AgentName for $type {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "";
        }

        impl Includes<$type> for Flow {}
    };
}
agent!(Speaker, "t/speaker");
agent!(Critic, "t/critic");

pub type Answer<'a> = BoxFuture<'a, Result<Option<String>, AskError>>;
type Run = dyn for<'a> Fn(&'a Task, &'a Team<Flow>) -> Answer<'a> + Send + Sync;

/// An orchestra from a function.
pub struct Flow(Box<Run>);

impl Flow {
    pub fn new(
        run: impl for<'a> Fn(&'a Task, &'a Team<Flow>) -> Answer<'a> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(run))
    }
}

impl Orchestra for Flow {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        (self.0)(task, team).await
    }
}

impl OrchestraName for Flow {
    const NAME: &'static str = "t/flow";
    const SUMMARY: &'static str = "";
    const NEEDS: &'static [&'static str] = &[];

    /// Returns a speaker, and three critics beside the singleton one.
    fn members(&self) -> Vec<Seat> {
        let critics = (0..3).map(|index| Seat::at("t/critic", index));
        [Seat::only("t/speaker"), Seat::only("t/critic")].into_iter().chain(critics).collect()
    }
}

/// Tasks of the sessions of [`Fixture`] that are open.
pub static OPEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Locks a mutex, also after a panic of its holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Environments that block their thread wait until this lock is free.
pub static GATE: Mutex<()> = Mutex::new(());

fn blocked() {
    drop(GATE.lock());
}

/// An environment in which `yes` is the correct answer to every task.
pub struct Fixture;

impl Environment for Fixture {
    async fn open(&self, task: &Task, _seed: u64) -> Result<serde_json::Value, EnvError> {
        assert_ne!(task.id, "open panic");
        match task.id.as_str() {
            "open block" => blocked(),
            "open fail" => return Err(EnvError::new("no container is free")),
            "open sleep" => tokio::time::sleep(Duration::from_secs(3600)).await,
            _ => {}
        }
        lock(&OPEN).insert(task.id.clone());
        Ok(serde_json::Value::Null)
    }

    async fn act(&self, _session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let Action::Text(text) = action else { panic!("a tool") };
        match text.as_str() {
            "fail" => return Err(EnvError::new("the retriever is down")),
            "panic" => panic!("the environment broke"),
            "sleep" => tokio::time::sleep(Duration::from_secs(3600)).await,
            "block" => blocked(),
            _ => tokio::task::yield_now().await,
        }
        Ok(Observation::new(text))
    }

    async fn score(&self, _session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        assert_ne!(answer, Some("score panic"));
        match answer {
            Some("score block") => blocked(),
            Some("score fail") => return Err(EnvError::new("the judge is down")),
            Some("score sleep") => tokio::time::sleep(Duration::from_secs(3600)).await,
            _ => {}
        }
        let mut score = Score::binary(answer == Some("yes"));
        if answer == Some("nan") {
            score.reward = f64::NAN;
        }
        Ok(score)
    }

    async fn close(&self, session: Session) -> Result<(), EnvError> {
        assert_ne!(session.task.id, "close panic");
        match session.task.id.as_str() {
            "close fail" => return Err(EnvError::new("the container does not end")),
            "close sleep" => tokio::time::sleep(Duration::from_secs(3600)).await,
            _ => {}
        }
        lock(&OPEN).remove(&session.task.id);
        Ok(())
    }
}

/// A backend with tokens: one function returns the words, another the delay.
pub struct Talker {
    pub say: fn(&Ask, &[Message]) -> String,
    pub yields: fn(&Ask) -> u64,
}

/// Repeats its prompt, after one yield.
impl Default for Talker {
    fn default() -> Self {
        Self { say: |ask, _| format!("<w>{}</w>", ask.prompt.user), yields: |_| 1 }
    }
}

impl Talker {
    async fn answer(&self, conversation: &mut Conversation, ask: Ask) -> Result<Response, Fault> {
        for _ in 0..(self.yields)(&ask) {
            tokio::task::yield_now().await;
        }
        if ask.prompt.user == "worker fault" {
            return Err(Fault::new(FaultKind::Worker, "gone"));
        }
        conversation.push_prompt(&ask.prompt);
        let messages = &conversation.messages;
        let reply = (self.say)(&ask, messages);
        let truncated = reply.ends_with("...");
        let ids = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
        let tokens = Tokens {
            prompt: messages.iter().flat_map(|message| ids(&message.content)).collect(),
            completion: ids(&reply),
            logprobs: reply.bytes().map(|_| -((1 + ask.seed % 7) as f32) / 8.0).collect(),
            version: 0,
            seed: ask.seed,
            temperature: 1.0,
            finish: if truncated { Finish::Length } else { Finish::Stop },
            routes: None,
        };
        conversation.push_reply(reply.as_str());
        Ok(Response { reply, tokens: Some(tokens), truncated, shortened: 0, forked: false })
    }
}

impl ChatBackend for Talker {
    fn name(&self) -> &str {
        "talker"
    }

    fn count_tokens(&self, prompt: &Prompt) -> Option<Result<usize, Fault>> {
        let messages = Conversation::default().messages_with(prompt);
        Some(Ok(messages.iter().map(|message| message.content.len()).sum()))
    }

    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>> {
        self.answer(conversation, ask).boxed()
    }
}

/// Creates a runner of a team in [`Fixture`] whose seats all have this backend and lose a quarter for an invalid reply.
pub fn runner(flow: Flow, talker: Talker) -> EpisodeRunner {
    let backend: Arc<dyn ChatBackend> = Arc::new(talker);
    let seats = flow.members();
    let member = |seat: &Seat| match seat.agent.as_str() {
        "t/speaker" => Member { agent: Arc::new(Speaker), backend: Arc::clone(&backend) },
        _ => Member { agent: Arc::new(Critic), backend: Arc::clone(&backend) },
    };
    EpisodeRunner {
        members: Arc::new(seats.iter().map(|seat| (seat.clone(), member(seat))).collect()),
        orchestra: Arc::new(flow),
        environment: Arc::new(Fixture),
        environments: Arc::default(),
        rewards: EpisodeRewards {
            penalties: seats.into_iter().map(|seat| (seat, 0.25)).collect(),
            ..EpisodeRewards::default()
        },
        requests: Default::default(),
        timeout: Duration::from_secs(60),
    }
}

/// Creates a rollout of [`runner`] with at most four concurrent episodes.
pub fn rollout(flow: Flow, talker: Talker) -> Rollout {
    Rollout::new(runner(flow, talker), NonZeroUsize::MIN.saturating_add(3))
}
