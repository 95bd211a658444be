//! Calls of programs through the gateway, beside a model that replies at once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all, ready, try_join_all};
use serde_json::{Map, Value, json};

use crate::pace::measure_pace;
use maverl::agent::AskError;
use maverl::cli::Failure;
use maverl::client::Client;
use maverl::env::reported::Reported;
use maverl::orchestra::{
    Ask, ChatBackend, Conversation, DynOrchestra, EpisodePlayer as _, EpisodeState, Member,
    Response,
};
use maverl::rollout::{EpisodeRequest, EpisodeRunner};
use maverl::task::Task;
use maverl::trajectory::{Fault, Seat};
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;
use maverl_serve::gateway::{Gateway, Mode, ProgramOptions};

/// Number of calls of an episode, each of which extends the conversation.
const CALLS: usize = 32;
/// Number of programs that play at once.
const PROGRAMS: usize = 64;
/// Reply to every call.
const REPLY: &str = "The next digit is the sum of the last two digits, so the answer is seven.";
/// Key of the programs, which this process starts itself.
const KEY: &str = "bench";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measures the milliseconds of a call of one program, and the calls per second of 64 programs at once. The model takes no
/// time, so they are those of the gateway. Programs and gateway share the machine.
pub(crate) async fn measure_gateway(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let programs = Programs::start()?;
    let pace = measure_pace(setup.repeats, PROGRAMS, async |clients| {
        programs.play_episodes(clients).await
    })
    .await?;
    Ok(vec![
        Figure::new("a call beside the model, p50", "ms", pace.p50),
        Figure::new("a call beside the model, p99", "ms", pace.p99),
        Figure::new(format!("{PROGRAMS} programs"), "calls/s", pace.rates),
    ])
}

/// The gateway, and the episodes that its programs play.
struct Programs {
    runner: Arc<EpisodeRunner>,
    url: String,
}

impl Programs {
    fn start() -> Result<Self, Failure> {
        let gateway = Gateway::bind(program_options(), Path::new("")).map_err(Failure)?;
        gateway.admit(KEY);
        let (url, seat) = (gateway.url().to_owned(), Seat::only("bench/agent"));
        let member = Member { agent: Arc::new(()), backend: Arc::new(ImmediateBackend) };
        let runner = EpisodeRunner {
            members: Arc::new(BTreeMap::from([(seat.clone(), member)])),
            orchestra: Arc::new(ProgramOrchestra { gateway, seat }),
            environment: Arc::new(Reported::default()),
            environments: Arc::default(),
            rewards: Default::default(),
            requests: Default::default(),
            timeout: TIMEOUT,
        };
        Ok(Self { runner: Arc::new(runner), url })
    }

    /// Plays an episode of each of so many programs at once. Returns the milliseconds of every call, ascending.
    async fn play_episodes(&self, programs: usize) -> Result<Vec<f64>, Failure> {
        let episodes = (0..programs).map(|index| {
            let runner = Arc::clone(&self.runner);
            tokio::spawn(async move { runner.play(episode_request(index)).await })
        });
        let episodes: Vec<_> = episodes.collect();
        let calls = try_join_all((0..programs).map(|_| self.play_program())).await?;
        for episode in join_all(episodes).await {
            let episode = episode?;
            if episode.score().is_none() || episode.turns.len() != CALLS {
                return Err(Failure(format!("an episode ended as {:?}", episode.outcome)));
            }
        }
        let mut calls = calls.concat();
        calls.sort_by(f64::total_cmp);
        Ok(calls)
    }

    /// Plays one episode as a program. Returns the milliseconds of its calls.
    async fn play_program(&self) -> Result<Vec<f64>, Failure> {
        let claimed = post_body(&self.url, "/claim", KEY, json!({"wait_s": 20})).await?;
        let episode = &claimed["episodes"][0];
        let [base, key] = ["base_url", "api_key"]
            .map(|name| episode[name].as_str().unwrap_or_default().to_owned());
        let chat = connect_client(&format!("{base}/chat/completions"), &key);
        let mut messages = vec![json!({"role": "user", "content": "What comes after 3, 4?"})];
        let mut latencies = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let body = Arc::new(json!({"model": "agent", "messages": messages}));
            let begin = Instant::now();
            let answer = chat.post(&body).await.body.map_err(Failure)?;
            latencies.push(begin.elapsed().as_secs_f64() * 1e3);
            let answer: Value = serde_json::from_str(&answer)?;
            messages.push(answer["choices"][0]["message"].clone());
            messages.push(json!({"role": "user", "content": "And then?"}));
        }
        let episode = base.strip_suffix("/v1").unwrap_or(&base);
        post_body(episode, "/finish", &key, json!({"reward": 1.0})).await?;
        Ok(latencies)
    }
}

fn episode_request(index: usize) -> EpisodeRequest {
    let task = Task {
        id: index.to_string(),
        source: "bench".to_owned(),
        question: "What comes after 3, 4?".to_owned(),
        data: Map::new(),
    };
    EpisodeRequest { task, index: 0, seed: index as u64 }
}

/// Returns the options of programs that attach.
fn program_options() -> ProgramOptions {
    ProgramOptions {
        mode: Mode::Worker,
        lease_s: TIMEOUT.as_secs_f64(),
        models: vec!["agent".to_owned()],
        max_turns: NonZeroU32::MIN.saturating_add(CALLS as u32),
        grace_s: 1.0,
        ..ProgramOptions::default()
    }
}

fn connect_client(url: &str, key: &str) -> Arc<Client> {
    Arc::new(Client::new(url.to_owned(), Some(key.to_owned()), TIMEOUT, 0, 1))
}

/// Sends a body to a path, and returns the answer.
async fn post_body(url: &str, path: &str, key: &str, body: Value) -> Result<Value, Failure> {
    let answer = connect_client(&format!("{url}{path}"), key).post(&Arc::new(body)).await;
    Ok(serde_json::from_str(&answer.body.map_err(Failure)?)?)
}

/// A model that takes no time.
struct ImmediateBackend;

impl ChatBackend for ImmediateBackend {
    fn name(&self) -> &str {
        "bench"
    }

    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>> {
        conversation.push_prompt(&ask.prompt);
        conversation.push_reply(REPLY);
        Box::pin(ready(Ok(Response::text(REPLY))))
    }
}

/// Episodes that programs play.
struct ProgramOrchestra {
    gateway: Gateway,
    seat: Seat,
}

impl DynOrchestra for ProgramOrchestra {
    fn members(&self) -> Vec<Seat> {
        vec![self.seat.clone()]
    }

    fn environments(&self) -> Vec<String> {
        Vec::new()
    }

    fn acts(&self) -> bool {
        true
    }

    fn passes_on(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn sources(&self) -> Vec<String> {
        Vec::new()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.gateway.ready())
    }

    fn run(&self, table: Arc<EpisodeState>) -> BoxFuture<'_, Result<Option<String>, AskError>> {
        Box::pin(async move { self.gateway.play(&table, self.members()).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::once;

    /// Prints the figures.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_call_of_every_program_is_answered() {
        let figures =
            measure_gateway(&once()).await.unwrap_or_else(|Failure(text)| panic!("{text}"));
        for Figure { what, unit, median, .. } in &figures {
            println!("{what}: {median:.2} {unit}");
        }
        assert!(figures[0].median <= figures[1].median);
    }
}
