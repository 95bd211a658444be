#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::client::testing::{Log, response_with, serve, serve_redirects};
use crate::config::{OnRewardError, RewardProtocol, RewardServerConfig};
use crate::rollout::testing::task;
use crate::task::Score;
use crate::trajectory::{Outcome, Seat, TurnPath};

/// Returns an episode with these replies.
pub(super) fn episode(replies: &[&str], answer: Option<&str>) -> Episode {
    let turn = |(i, reply): (usize, &&str)| Turn {
        path: TurnPath(vec![i as u32]),
        seat: Seat::only("t/speaker"),
        policy: "p".to_owned(),
        prompt: vec![Message { role: Role::User, content: "?".to_owned() }],
        tools: Vec::new(),
        reply: (*reply).to_owned(),
        error: None,
        truncated: false,
        shortened: 0,
        forked: false,
        masked: false,
        tokens: None,
        teacher: None,
    };
    Episode {
        task: task("p"),
        index: 0,
        seed: 1,
        branch: None,
        turns: replies.iter().enumerate().map(turn).collect(),
        acts: Vec::new(),
        answer: answer.map(str::to_owned),
        outcome: Outcome::Scored(Score::binary(true)),
        rewards: Vec::new(),
        log: String::new(),
    }
}

/// Starts a server that answers request `n` with a status line, headers, and a body made of the request's.
fn server(answer: impl Fn(usize, &Value) -> (String, String) + Send + 'static) -> (String, Log) {
    let (url, log) = serve(move |n, received| {
        let (head, body) = answer(n, &received.body);
        response_with(&head, body.as_bytes())
    });
    (format!("{url}/v1/score"), log)
}

/// Answers each item with the length of its completion.
fn lengths(body: &Value) -> String {
    let items = body["items"].as_array().unwrap().iter();
    let length = |item: &Value| item["completion"].as_str().unwrap().len();
    let items: Vec<Value> =
        items.map(|item| json!({"id": item["id"], "reward": length(item)})).collect();
    json!({"items": items}).to_string()
}

fn ok(text: String) -> (String, String) {
    ("200 OK".to_owned(), text)
}

fn config(url: &str) -> RewardServerConfig {
    RewardServerConfig { url: url.to_owned(), timeout_s: 10.0, retries: 0, ..Default::default() }
}

async fn scored(config: &RewardServerConfig, episode: &Episode) -> Result<ScoredRewards, String> {
    RewardServer::new(config).unwrap().score(episode).await
}

#[tokio::test]
async fn items_of_concurrent_episodes_are_one_request_and_each_gets_its_own_value() {
    let (url, bodies) = server(|_, body| ok(lengths(body)));
    let config = RewardServerConfig { batch: 4.try_into().unwrap(), wait_ms: 200, ..config(&url) };
    let server = RewardServer::new(&config).unwrap();
    let episodes = [episode(&["a", "bb"], None), episode(&["ccc", "dddd"], Some("x"))];
    let (one, other) = tokio::join!(server.score(&episodes[0]), server.score(&episodes[1]));
    let values = |scored: Result<ScoredRewards, String>| scored.unwrap().rewards;
    assert_eq!(values(one), Rewards::none().turn(0, 1.0).turn(1, 2.0));
    assert_eq!(values(other), Rewards::none().turn(0, 3.0).turn(1, 4.0));
    let bodies = bodies.lock().unwrap();
    assert_eq!(bodies.len(), 1);
    let first = &bodies[0].body["items"][0];
    assert_eq!(bodies[0].body["protocol"], 1);
    assert_eq!(first["task"]["question"], task("p").question);
    assert_eq!(first["messages"][0]["role"], "user");
    assert!(first.get("data").is_none() && first.get("answer").is_none());
}

#[tokio::test]
async fn references_leave_the_process_only_if_they_are_named() {
    let (url, bodies) = server(|_, body| ok(lengths(body)));
    let mut played = episode(&["a"], Some("42"));
    played.task.data.insert("answers".to_owned(), json!(["42"]));
    played.task.data.insert("level".to_owned(), json!(3));
    scored(&config(&url), &played).await.unwrap();
    let named = RewardServerConfig {
        send: vec!["level".to_owned()],
        of: RewardUnit::Answer,
        ..config(&url)
    };
    let found = scored(&named, &played).await.unwrap().rewards;
    assert_eq!(found, Rewards::episode(2.0));
    let bodies = bodies.lock().unwrap();
    assert!(!bodies[0].body.to_string().contains("42\"]"), "{}", bodies[0].body);
    assert_eq!(bodies[1].body["items"][0]["data"], json!({"level": 3}));
    assert_eq!(bodies[1].body["items"][0]["answer"], "42");
}

#[tokio::test]
async fn an_episode_without_an_answer_or_with_other_seats_has_nothing_to_score() {
    let silent = RewardServerConfig { of: RewardUnit::Answer, ..config("http://127.0.0.1:1") };
    assert_eq!(scored(&silent, &episode(&["a"], None)).await.unwrap(), ScoredRewards::default());
    let seats = vec!["another/agent".to_owned()];
    let other = RewardServerConfig { seats, ..config("http://127.0.0.1:1") };
    assert_eq!(scored(&other, &episode(&["a"], None)).await.unwrap(), ScoredRewards::default());
}

#[tokio::test]
async fn every_protocol_is_spoken_as_its_servers_expect() {
    let cases = [
        (RewardProtocol::Predict, json!({"result": [0.25, 0.5]}), "query_responses"),
        (RewardProtocol::GetReward, json!({"rewards": [0.25, 0.5]}), "query"),
    ];
    let values = Rewards::none().turn(0, 0.25).turn(1, 0.5);
    for (protocol, answer, key) in cases {
        let (url, bodies) = server(move |_, _| ok(answer.to_string()));
        let config = RewardServerConfig { protocol, ..config(&url) };
        let found = scored(&config, &episode(&["a", "b"], None)).await.unwrap();
        assert_eq!(found.rewards, values, "{key}");
        assert_eq!(bodies.lock().unwrap()[0].body[key].as_array().unwrap().len(), 2, "{key}");
    }
    let (url, bodies) = server(|_, body| ok(body["response"].as_str().unwrap().len().to_string()));
    let send = vec!["level".to_owned()];
    let config = RewardServerConfig { protocol: RewardProtocol::Rm, send, ..config(&url) };
    let mut played = episode(&["a", "bb"], None);
    played.task.data.insert("level".to_owned(), json!(3));
    let found = scored(&config, &played).await.unwrap();
    assert_eq!(found.rewards, Rewards::none().turn(0, 1.0).turn(1, 2.0));
    let bodies = bodies.lock().unwrap();
    assert_eq!((bodies.len(), &bodies[0].body["label"]), (2, &json!(3)));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_an_error_that_names_address_and_reason() {
    let answers = [
        ("not json", "answered \"not json\""),
        (r#"{"items": []}"#, "item 0 was not answered"),
        (r#"{"items": [{"id": "1", "reward": 1}]}"#, "answered an item \"1\", which was not sent"),
        (r#"{"items": [{"id": "00", "reward": 1}]}"#, "which was not sent"),
        (
            r#"{"items": [{"id": "0", "reward": 1}, {"id": "0", "reward": 2}]}"#,
            "answered item 0 twice",
        ),
        (r#"{"items": [{"id": "0"}]}"#, "neither a `reward` nor an `error`"),
        (r#"{"items": [{"id": "0", "reward": NaN}]}"#, "not `{\"items\""),
        (r#"{"items": [{"id": "0", "error": {"code": "x", "message": "too long"}}]}"#, "too long"),
    ];
    for (answer, wanted) in answers {
        let (url, _) = server(move |_, _| ok(answer.to_owned()));
        let error = scored(&config(&url), &episode(&["a"], None)).await.unwrap_err();
        assert!(error.starts_with(&url) && error.contains(wanted), "{answer}: {error}");
    }
    let (url, _) = server(|_, _| ("302 X\r\nLocation: http://10.0.0.1/".to_owned(), String::new()));
    let error = scored(&config(&url), &episode(&["a"], None)).await.unwrap_err();
    assert!(error.contains("which is not followed"), "{error}");
    let count = json!({"rewards": [1.0, 2.0]}).to_string();
    let (url, _) = server(move |_, _| ok(count.clone()));
    let config = RewardServerConfig { protocol: RewardProtocol::GetReward, ..config(&url) };
    let error = scored(&config, &episode(&["a"], None)).await.unwrap_err();
    assert!(error.ends_with("answered 2 rewards to 1 items"), "{error}");
}

#[tokio::test]
async fn one_failed_item_fails_no_other_and_may_be_left_out() {
    let partly = |_: usize, body: &Value| {
        let items = body["items"].as_array().unwrap().iter();
        let item = |item: &Value| {
            if item["completion"] == "bad" {
                json!({"id": item["id"], "error": {"message": "no"}})
            } else {
                json!({"id": item["id"], "reward": 1.0})
            }
        };
        ok(json!({"items": items.map(item).collect::<Vec<_>>()}).to_string())
    };
    let (url, _) = server(partly);
    let skip = RewardServerConfig { on_error: OnRewardError::Skip, ..config(&url) };
    let found = scored(&skip, &episode(&["good", "bad"], None)).await.unwrap();
    assert_eq!(
        found,
        ScoredRewards {
            rewards: Rewards::none().turn(0, 1.0),
            skipped: Some(1),
            ..Default::default()
        }
    );
    let strict = RewardServer::new(&config(&url)).unwrap();
    let (good, bad) = (episode(&["good"], None), episode(&["bad"], None));
    let (good, bad) = tokio::join!(strict.score(&good), strict.score(&bad));
    assert!(good.is_ok() && bad.is_err());
}

#[tokio::test]
async fn nothing_is_asked_where_a_server_of_rewards_redirects_to() {
    for status in [301, 302, 303, 307, 308] {
        let (url, asked) = serve_redirects(status);
        let config = RewardServerConfig { retries: 3, ..config(&format!("{url}/v1/score")) };
        let error = scored(&config, &episode(&["a"], Some("x"))).await.unwrap_err();
        assert!(error.contains(&format!("status {status}, a redirect to ")), "{error}");
        assert!(asked.lock().unwrap().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again_after_the_time_that_it_names() {
    let busy = |n: usize, body: &Value| match n {
        0 => ("503 Busy\r\nRetry-After: 1".to_owned(), String::new()),
        _ => ok(lengths(body)),
    };
    let (url, bodies) = server(busy);
    let config = RewardServerConfig { retries: 1, ..config(&url) };
    let began = std::time::Instant::now();
    let found = scored(&config, &episode(&["a"], None)).await.unwrap();
    assert_eq!(found.rewards, Rewards::none().turn(0, 1.0));
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(bodies.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_dead_server_is_not_asked_for_every_episode_and_is_found_again() {
    let (url, bodies) = server(|n, body| match n {
        0..2 => ("500 X".to_owned(), String::new()),
        _ => ok(lengths(body)),
    });
    let config =
        RewardServerConfig { give_up_after: 2.try_into().unwrap(), wait_ms: 0, ..config(&url) };
    let server = RewardServer::new(&config).unwrap().with_rest(Duration::from_millis(500));
    let played = episode(&["a"], None);
    for _ in 0..2 {
        assert!(server.score(&played).await.unwrap_err().contains("status 500"));
    }
    for _ in 0..20 {
        let error = server.score(&played).await.unwrap_err();
        assert!(error.ends_with("not asked again yet, after several failures in a row"), "{error}");
    }
    assert_eq!(bodies.lock().unwrap().len(), 2);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(server.score(&played).await.is_ok());
}

#[test]
fn a_key_comes_from_a_variable_that_must_be_set() {
    let key_env = Some("MAVERL_NO_SUCH_KEY".to_owned());
    let config = RewardServerConfig { key_env, ..config("http://127.0.0.1:1") };
    let error = RewardServer::new(&config).err().unwrap();
    assert_eq!(error, "the environment variable `MAVERL_NO_SUCH_KEY` is not set, or empty");
}
