//! Benchmark of the cost of a turn outside models, tokenizers and templates: episodes of scripted replies, all under way at once.
//!
//! Every reply waits until each episode under way has asked, so that all of them are held in memory together.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use maverl::agent::{Agent, AgentName, AskError, Input, Prompt, Reply, ReplyError};
use maverl::env::{EnvError, Environment, Session};
use maverl::orchestra::{Includes, Member, Orchestra, OrchestraName, Response, Team};
use maverl::rollout::{EpisodeRequest, EpisodeRunner, Rollout, Script};
use maverl::task::{Action, Observation, Score, Task};
use maverl::trajectory::{Finish, Seat, Tokens};

/// Asks of an episode.
const TURNS: usize = 8;
/// Tokens of a reply.
const TOKENS: usize = 32;
const EPISODES: [usize; 3] = [625, 2500, 10_000];

struct Text(String);

impl Input for Text {
    const FIELDS: &'static [&'static str] = &["text"];
    const OBSERVATIONS: &'static [&'static str] = &[];

    fn show(&self, _: usize) -> String {
        self.0.clone()
    }
}

impl Reply for Text {
    const STRUCTURED: bool = false;

    fn format() -> String {
        String::new()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        Ok(Self(reply.to_owned()))
    }
}

struct Speaker;

impl Agent for Speaker {
    type Input = Text;
    type Output = Text;

    fn prompt(&self, input: &Text) -> Prompt {
        Prompt::user(input.0.clone())
    }
}

impl AgentName for Speaker {
    const NAME: &'static str = "bench/speaker";
    const SUMMARY: &'static str = "";
}

/// Asks and acts in turn.
struct Relay;

impl Orchestra for Relay {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut text = Text(task.question.clone());
        for _ in 0..TURNS {
            text = team.ask::<Speaker>(&text).await?;
            team.act(Action::Text(String::new())).await?;
        }
        Ok(Some(text.0))
    }
}

impl Includes<Speaker> for Relay {}

impl OrchestraName for Relay {
    const NAME: &'static str = "bench/relay";
    const SUMMARY: &'static str = "";
    const NEEDS: &'static [&'static str] = &[];

    fn members(&self) -> Vec<Seat> {
        vec![Seat::only(Speaker::NAME)]
    }
}

struct Fixture;

impl Environment for Fixture {
    fn act(
        &self,
        _: &mut Session,
        _: Action,
    ) -> impl Future<Output = Result<Observation, EnvError>> + Send {
        std::future::ready(Ok(Observation::new("seen")))
    }

    fn score(
        &self,
        _: &Session,
        _: Option<&str>,
    ) -> impl Future<Output = Result<Score, EnvError>> + Send {
        std::future::ready(Ok(Score::binary(true)))
    }
}

/// Returns a backend that says the same, with as many tokens as a reply has.
fn script() -> Script {
    let reply = "a reply of some thirty tokens, as far as anyone can tell from its text";
    Script::responding("script", move |ask, _| {
        let tokens = Tokens {
            prompt: vec![7; 2 * TOKENS],
            completion: vec![7; TOKENS],
            logprobs: vec![-1.0; TOKENS],
            version: 0,
            seed: ask.seed,
            temperature: 1.0,
            finish: Finish::Stop,
            routes: None,
        };
        Response { tokens: Some(tokens), ..Response::text(reply) }
    })
}

fn rollout(at_once: usize) -> Rollout {
    let seat = Seat::only(Speaker::NAME);
    let member = Member { agent: Arc::new(Speaker), backend: Arc::new(script()) };
    let runner = EpisodeRunner {
        members: Arc::new(BTreeMap::from([(seat, member)])),
        orchestra: Arc::new(Relay),
        environment: Arc::new(Fixture),
        environments: Arc::default(),
        rewards: Default::default(),
        requests: Default::default(),
        timeout: Duration::from_secs(600),
    };
    Rollout::new(runner, NonZeroUsize::new(at_once).expect("some episodes are played at once"))
}

fn requests(episodes: usize) -> Vec<EpisodeRequest> {
    let task = Task {
        id: "task".to_owned(),
        source: "bench".to_owned(),
        question: "what is said here?".to_owned(),
        data: serde_json::Map::new(),
    };
    (0..episodes as u32)
        .map(|index| EpisodeRequest { task: task.clone(), index, seed: u64::from(index) })
        .collect()
}

/// The most memory this process had so far, in KiB, where the system tells.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Says what episodes cost in memory: all that is recorded of them, and what more is held while all are under way.
fn memory(runtime: &tokio::runtime::Runtime) {
    let mut before = peak();
    for at_once in [100, 10_000] {
        let played = runtime.block_on(rollout(at_once).collect(requests(10_000), |_| {}));
        let after = peak();
        println!("{} episodes, {at_once} at once: {} KiB more", played.len(), after - before);
        before = after;
    }
}

fn scheduler(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    memory(&runtime);
    let mut group = c.benchmark_group("turn");
    group.sample_size(10);
    for episodes in EPISODES {
        group.throughput(Throughput::Elements((episodes * TURNS) as u64));
        let rollout = rollout(episodes);
        group.bench_function(format!("{episodes} episodes at once"), |bencher| {
            bencher.iter_custom(|times| {
                let mut taken = Duration::ZERO;
                for _ in 0..times {
                    let requests = requests(episodes);
                    let start = Instant::now();
                    let played = runtime.block_on(rollout.collect(requests, |_| {}));
                    taken += start.elapsed();
                    assert!(played.iter().all(|episode| episode.turns.len() == TURNS));
                }
                taken
            });
        });
    }
    group.finish();
}

criterion_group!(benches, scheduler);
criterion_main!(benches);
