#![allow(clippy::unwrap_used)]

mod dialects;
mod directory;
mod ends;
mod malformed;
mod messages;
mod workers;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use axum::http::Uri;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::testing::{Answer, exchange};
use maverl::orchestra::{Ask, OrchestraName as _};
use maverl::rollout::testing::{Flow, Talker, runner, task};
use maverl::rollout::{EpisodeRequest, EpisodeRunner};
use maverl::trajectory::{Episode, Message, Outcome, Turn};

/// A program that writes its line of input to a file, then waits.
const WAITS: &str = "cat > line.tmp; mv line.tmp line; sleep 100";

/// Returns options of a shell program with these models.
pub(super) fn options(models: &[&str]) -> ProgramOptions {
    ProgramOptions {
        command: ["sh", "-c", WAITS].map(str::to_owned).into(),
        models: models.iter().map(|name| (*name).to_owned()).collect(),
        ..ProgramOptions::default()
    }
}

/// Returns a number of turns.
pub(super) fn most(turns: u32) -> NonZeroU32 {
    NonZeroU32::new(turns).unwrap()
}

/// Returns the seats of [`Flow`], of which the first is asked as the first model.
fn seats() -> Vec<Seat> {
    Flow::new(|_, _| Box::pin(async { Ok(None) })).members()
}

/// Repeats the last message in capitals, with blanks around it.
fn loud(_: &Ask, messages: &[Message]) -> String {
    format!(" {} ", messages.last().unwrap().content.to_uppercase())
}

/// Returns a runner of a program in a directory. Every seat replies loudly, after so many yields.
fn program(options: ProgramOptions, dir: &TempDir, yields: fn(&Ask) -> u64) -> EpisodeRunner {
    program_of(options, dir, Talker { say: loud, yields })
}

/// Returns a runner of a program in a directory, with the model of every seat.
fn program_of(options: ProgramOptions, dir: &TempDir, talker: Talker) -> EpisodeRunner {
    let gateway = Arc::new(Gateway::bind(options, dir.path()).unwrap());
    let flow = Flow::new(move |_, team| {
        let gateway = Arc::clone(&gateway);
        Box::pin(async move { team.play_by(&*gateway, seats()).await })
    });
    runner(flow, talker)
}

/// An episode that is being played by a program that waits.
struct Played {
    episode: JoinHandle<Episode>,
    address: SocketAddr,
    id: String,
    key: String,
    /// With its gateway, which outlives the episode.
    _runner: Arc<EpisodeRunner>,
    _dir: TempDir,
}

impl Played {
    async fn start(options: ProgramOptions) -> Self {
        Self::with(options, |_| 1).await
    }

    async fn with(options: ProgramOptions, yields: fn(&Ask) -> u64) -> Self {
        Self::of(options, Talker { say: loud, yields }).await
    }

    async fn of(options: ProgramOptions, talker: Talker) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runner = Arc::new(program_of(options, &dir, talker));
        let playing = Arc::clone(&runner);
        let episode = tokio::spawn(async move {
            playing.play(EpisodeRequest { task: task("p"), index: 0, seed: 3 }).await
        });
        let line = dir.path().join("line");
        let begin = Instant::now();
        while !line.exists() {
            assert!(begin.elapsed() < Duration::from_secs(600), "the program does not start");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let told: Value = serde_json::from_slice(&std::fs::read(line).unwrap()).unwrap();
        let text = |key: &str| told[key].as_str().unwrap().to_owned();
        let url: Uri = text("base_url").parse().unwrap();
        let address = url.authority().unwrap().as_str().parse().unwrap();
        Self { episode, address, id: text("id"), key: text("api_key"), _runner: runner, _dir: dir }
    }

    /// Sends a request to the episode, with further lines of its head.
    async fn send(&self, path: &str, body: Option<&Value>, head: &str) -> Answer {
        let head = format!("{head}authorization: Bearer {}\r\n", self.key);
        let path = format!("/episodes/{}{path}", self.id);
        let sent = crate::testing::request(&path, body, &head);
        let address = self.address;
        tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes())).await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(path, Some(&body), "").await
    }

    /// Asks for a completion; the answer must be one.
    async fn chat(&self, model: &str, messages: Value) -> Value {
        let body = json!({"model": model, "messages": messages, "return_token_ids": true});
        let answer = self.post("/v1/chat/completions", body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Waits until so many turns are recorded or under way.
    async fn until_turns(&self, turns: u32) {
        let begin = Instant::now();
        while self.send("", None, "").await.json()["turns"] != turns {
            assert!(begin.elapsed() < Duration::from_secs(600), "there are never {turns} turns");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the episode with an answer.
    async fn finish(self, answer: &str) -> Episode {
        let answer = self.post("/finish", json!({"answer": answer})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.episode.await.unwrap()
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

fn paths(episode: &Episode) -> Vec<String> {
    episode.turns.iter().map(|turn| turn.path.to_string()).collect()
}

fn prompt(turn: &Turn) -> Vec<&str> {
    turn.prompt.iter().map(|message| message.content.as_str()).collect()
}

fn metric(episode: &Episode, name: &str) -> Option<f64> {
    episode.score().unwrap().metrics.get(name)?.as_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_turn_with_exactly_its_tokens() {
    let played = Played::start(options(&["a", "b"])).await;
    let said = played.chat("a", json!([user("hi")])).await;
    assert_eq!((content(&said), &said["choices"][0]["finish_reason"]), (" HI ", &json!("stop")));
    assert_eq!(said["usage"]["completion_tokens"], 4);
    played.chat("b", json!([user("you")])).await;
    let episode = played.finish("yes").await;
    assert!(episode.score().unwrap().solved);
    assert_eq!(
        (episode.answer.as_deref(), paths(&episode)),
        (Some("yes"), vec!["0".into(), "1".into()])
    );
    let asked: Vec<String> = episode.turns.iter().map(|turn| turn.seat.to_string()).collect();
    assert_eq!(asked, ["t/speaker", "t/critic"]);
    let tokens = episode.turns[0].tokens.as_ref().unwrap();
    assert_eq!(said["choices"][0]["token_ids"], json!(tokens.completion));
    assert_eq!(said["prompt_token_ids"], json!(tokens.prompt));
    assert_eq!(metric(&episode, "gateway/calls_mean"), Some(2.0));
    assert_eq!(metric(&episode, "gateway/prefix_reuse"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_with_what_was_sampled() {
    let played = Played::start(options(&["a"])).await;
    played.chat("any name", json!([user("hi")])).await;
    // The client strips the reply.
    let again = json!([user("hi"), {"role": "assistant", "content": "HI"}, user("go")]);
    played.chat("other", again).await;
    let compacted = json!([user("so far"), {"role": "assistant", "content": "HI"}, user("go")]);
    played.chat("other", compacted).await;
    let episode = played.finish("yes").await;
    assert_eq!(prompt(&episode.turns[1]), ["hi", " HI ", "go"]);
    assert_eq!(prompt(&episode.turns[2]), ["so far", "HI", "go"]);
    assert_eq!(metric(&episode, "gateway/prefix_reuse"), Some(0.5));
    assert_eq!(metric(&episode, "gateway/rewritten"), Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_do_not_depend_on_the_order_of_calls() {
    let mut seeds = Vec::new();
    for order in [["x", "y"], ["y", "x"]] {
        let played = Played::start(options(&["a"])).await;
        for text in order {
            played.chat("a", json!([user(text)])).await;
        }
        played.chat("a", json!([user("x")])).await;
        let episode = played.finish("yes").await;
        let seed = |turn: &Turn| (turn.reply.clone(), turn.tokens.as_ref().unwrap().seed);
        let mut found: Vec<_> = episode.turns.iter().map(seed).collect();
        found.sort();
        seeds.push(found);
    }
    assert_eq!(seeds[0], seeds[1]);
    // An equal call is another sample.
    assert!(seeds[0][0].0 == seeds[0][1].0 && seeds[0][0].1 != seeds[0][1].1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_gives_a_call_the_seed_of_an_orchestra() {
    let played = Played::start(options(&["a"])).await;
    let body = json!({"model": "a", "messages": [user("hi")]});
    for path in ["1.0", "1.2"] {
        let head = format!("x-maverl-path: {path}\r\n");
        let answer = played.send("/v1/chat/completions", Some(&body), &head).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    for (head, part) in [
        ("x-maverl-path: 1.0\r\n", "taken"),
        ("x-maverl-path: x\r\n", "is no path"),
        ("", "or none has"),
    ] {
        let answer = played.send("/v1/chat/completions", Some(&body), head).await;
        assert!(answer.status == 400 && answer.message().contains(part), "{}", answer.body);
    }
    let episode = played.finish("yes").await;
    assert_eq!(paths(&episode), ["1.0", "1.2"]);
    let derived = maverl_kernels::sample::derive_seed(maverl_kernels::sample::derive_seed(3, 1), 2);
    assert_eq!(episode.turns[1].tokens.as_ref().unwrap().seed, derived);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_again_is_no_second_turn() {
    let played = Played::start(options(&["a"])).await;
    let body = json!({"model": "a", "messages": [user("hi")]});
    let path = "/v1/chat/completions";
    let first = played.send(path, Some(&body), "").await.json();
    for head in ["x-stainless-retry-count: 1\r\n", "idempotency-key: 4711\r\n"] {
        let again = played.send(path, Some(&body), head).await.json();
        assert_eq!(again["id"], first["id"], "{head}");
    }
    let other = played.send(path, Some(&body), "x-stainless-retry-count: 0\r\n").await.json();
    assert_ne!(other["id"], first["id"]);
    assert_eq!(paths(&played.finish("yes").await), ["0", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_once_and_choices_of_a_call_are_ranked() {
    let played = Played::start(options(&["a"])).await;
    let body = json!({"model": "a", "messages": [user("hi")], "n": 3});
    let answer = played.post("/v1/chat/completions", body).await.json();
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    played.chat("a", json!([user("next")])).await;
    let episode = played.finish("yes").await;
    assert_eq!(paths(&episode), ["0.0", "0.1", "0.2", "1"]);
    assert_eq!(metric(&episode, "gateway/raced"), Some(3.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_the_same_text() {
    let played = Played::start(options(&["a"])).await;
    let body = json!({
        "model": "a", "messages": [user("hi")], "stream": true, "stream_options": {"include_usage": true},
    });
    let answer = played.post("/v1/chat/completions", body).await;
    let events = answer.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let text = |chunk: &Value| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
    assert_eq!(chunks.iter().filter_map(text).collect::<String>(), " HI ");
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 4);
    assert_eq!(played.finish("yes").await.turns.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_refuse_calls_and_nothing_else() {
    let played = Played::start(ProgramOptions { max_turns: most(2), ..options(&["a", "b"]) }).await;
    played.chat("a", json!([user("1")])).await;
    let three = json!({"model": "a", "messages": [user("2")], "n": 3});
    let refused = played.post("/v1/chat/completions", three).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("episode_limit")));
    assert!(refused.head.contains("x-should-retry: false"), "{}", refused.head);
    played.chat("b", json!([user("2")])).await;
    let unknown = json!({"model": "c", "messages": [user("3")]});
    let unknown = played.post("/v1/chat/completions", unknown).await;
    assert!(unknown.status == 404 && unknown.message().contains("`a`, `b`"), "{}", unknown.body);
    let episode = played.finish("yes").await;
    assert_eq!((episode.turns.len(), metric(&episode, "gateway/limits")), (2, Some(1.0)));
    assert!(episode.score().unwrap().solved);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_would_change_the_policy_have_no_effect_or_are_refused() {
    let played = Played::start(options(&["a"])).await;
    let with = |key: &str, value: Value| {
        let mut body = json!({"model": "a", "messages": [user("hi")]});
        body[key] = value;
        body
    };
    let path = "/v1/chat/completions";
    for (key, value) in [
        ("logprobs", json!(true)),
        ("logit_bias", json!({"5": 1})),
        ("presence_penalty", json!(1.0)),
        ("n", json!(9)),
        ("stop_token_ids", json!([1])),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
    ] {
        let answer = played.post(path, with(key, value)).await;
        assert!(answer.status == 400 && answer.message().contains(key), "{key}: {}", answer.body);
    }
    assert_eq!(played.post(path, with("temperature", json!(0.0))).await.status, 200);
    let cut = played.post(path, with("stop", json!("I"))).await.json();
    assert_eq!(content(&cut), " H");
    let episode = played.finish("yes").await;
    assert!(episode.turns.iter().all(|turn| turn.reply == " HI "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demanded_form_is_asked_for_and_a_reply_without_it_is_malformed() {
    let played = Played::start(options(&["a"])).await;
    let path = "/v1/chat/completions";
    let json_of = |text: &str| json!({"model": "a", "messages": [user(text)], "response_format": {"type": "json_object"}});
    played.post(path, json_of("{\"x\": 1}")).await.json();
    played.post(path, json_of("no")).await.json();
    let episode = played.finish("yes").await;
    assert!(prompt(&episode.turns[0])[0].contains("one JSON object"));
    let errors: Vec<Option<&str>> =
        episode.turns.iter().map(|turn| turn.error.as_deref()).collect();
    assert!(errors[0].is_none() && errors[1].unwrap().contains("no JSON"), "{errors:?}");
    assert_eq!(episode.turn_reward(1), Some(1.0 - 0.25));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_acts_and_gives_parts_of_the_reward() {
    let played = Played::start(options(&["a", "b"])).await;
    let said = played.chat("a", json!([user("hi")])).await;
    let seen = played.post("/act", json!({"text": "look"})).await.json();
    assert_eq!(seen, json!({"text": "look", "done": false}));
    assert_eq!(played.send("/tools", None, "").await.json(), json!({"tools": []}));
    for (of, value) in [
        (json!("episode"), 0.5),
        (json!({"seat": "b"}), 0.25),
        (json!({"completion": said["id"]}), -1.0),
    ] {
        let part = json!({"name": "style", "value": value, "of": of});
        assert_eq!(played.post("/parts", part).await.status, 200);
    }
    let unknown = json!({"name": "style", "value": 1, "of": {"completion": "x"}});
    assert_eq!(played.post("/parts", unknown).await.status, 400);
    played.chat("b", json!([user("hi")])).await;
    let told = played.send("", None, "").await.json();
    assert_eq!((&told["turns"], &told["task"]["id"]), (&json!(2), &json!("p")));
    // The parts of an episode are bounded, alone and together.
    for (value, wanted) in [
        (json!(1.5e308), "`value` is 1.5e+308; write a number from -1000000000 to 1000000000"),
        (json!(-1e200), "`value` is -1e+200; write a number from"),
        (json!(1_000_000_001), "`value` is 1000000001; write a number from"),
        (
            json!(999_999_999),
            "with which the absolute values of the episode's parts add up to 1000000000.75; they may to 1e9",
        ),
        (json!(-999_999_999), "is -999999999.0, with which"),
    ] {
        let part = json!({"name": "style", "value": value, "of": "episode"});
        let refused = played.post("/parts", part).await;
        let message = refused.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(refused.status == 400 && message.contains(wanted), "{value}: {message}");
    }
    let episode = played.finish("yes").await;
    assert_eq!(episode.turn_reward(0), Some(1.0 + 0.5 - 1.0));
    assert_eq!(episode.turn_reward(1), Some(1.0 + 0.5 + 0.25));
    assert_eq!((episode.acts.len(), episode.acts[0].path.to_string()), (1, "1".to_owned()));
}
