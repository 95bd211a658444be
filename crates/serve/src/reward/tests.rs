#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::base::with_common_routes;
use crate::guard::Guard;
use crate::listener::Limits;
use crate::testing::{Running, ask, exchange, request, start};
use maverl::config::{RewardProtocol, RewardServerConfig, RewardUnit};
use maverl::env::math::MathEnvironment;
use maverl::files::{ModelFiles, ModelSource, SaveOptions};
use maverl::net::{HeadKind, Model, RewardHead, RewardModel, ValueHead};
use maverl::reward::Rewards;
use maverl::rollout::Scorer as _;
use maverl::rollout::testing::task;
use maverl::trajectory::{Episode, Outcome};

fn settings() -> RewardSettings {
    let (timeout, queue) = (Duration::from_secs(60), QueueLimits::default());
    RewardSettings { max_body: 1 << 20, timeout, queue }
}

async fn served(grader: Grader) -> Running {
    served_with(settings(), grader).await
}

async fn served_with(settings: RewardSettings, grader: Grader) -> Running {
    let health = Health::default();
    let server = RewardServer::new(settings, health.clone());
    server.open(grader);
    let metrics = server.metrics().clone();
    let router = with_common_routes(server.router(), "reward", health, metrics);
    start(Guard::default().protect(router), Limits::default()).await
}

fn item(id: &str, answer: &str, reference: &str) -> Value {
    json!({"id": id, "completion": answer, "answer": answer, "data": {"answers": [reference]}})
}

fn asked(items: &[Value]) -> Value {
    json!({"protocol": 1, "items": items})
}

#[tokio::test]
async fn a_body_of_too_many_values_is_refused_before_it_is_read() {
    let settings = RewardSettings { max_body: 4 << 20, ..settings() };
    let grader = Grader::environment(Arc::new(MathEnvironment::default()));
    let server = served_with(settings, grader).await;
    for path in ["/v1/score", "/rm", "/predict", "/get_reward"] {
        let body = json!({"label": vec![0; 1 << 20]});
        let answer = ask(server.address, path, Some(&body)).await;
        assert_eq!(answer.status, 413, "{path}: {}", answer.body);
        assert!(answer.message().ends_with("1048576 are allowed"), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_judge_scores_each_item_and_no_item_fails_another() {
    let server = served(Grader::environment(Arc::new(MathEnvironment::default()))).await;
    let items =
        [item("a", "1/2", "0.5"), item("b", "3", "4"), json!({"id": "c", "completion": "3"})];
    let answer = ask(server.address, "/v1/score", Some(&asked(&items))).await;
    let found = answer.json();
    let found = |i: usize| found["items"][i].clone();
    assert_eq!((found(0)["id"].clone(), found(0)["reward"].clone()), (json!("a"), json!(1.0)));
    assert_eq!(
        (found(1)["reward"].clone(), found(1)["solved"].clone()),
        (json!(0.0), json!(false))
    );
    let message = found(2)["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("there is no reference to compare with"), "{message}");
    let text = ask(server.address, "/metrics", None).await.body;
    assert!(text.contains("maverl_items_total{outcome=\"error\"} 1"), "{text}");
}

#[tokio::test]
async fn special_tokens_at_the_end_are_no_part_of_an_answer() {
    let math = served(Grader::environment(Arc::new(MathEnvironment::default()))).await;
    let exact = served(Grader::exact_match()).await;
    for end in
        ["", "<|im_end|>", "</s>", "<|eot_id|>", "<|endoftext|>\n", "<|im_end|><|endoftext|>"]
    {
        for (server, answer) in [(&math, "The answer is 2"), (&math, "2"), (&exact, "The 2.")] {
            let rm = json!({"prompt": "1+1?", "response": format!("{answer}{end}"), "label": "2"});
            let score = ask(server.address, "/rm", Some(&rm)).await.body;
            assert_eq!(score, "1.0", "{answer}{end}");
        }
    }
    let query = "<|im_start|>user\nWhat is 1+1?<|im_end|>\n<|im_start|>assistant\nThe answer is 2<|im_end|>";
    let body = json!({"query": [query, query], "prompts": ["x", "x"], "labels": ["2", "1"]});
    let scores = ask(math.address, "/get_reward", Some(&body)).await.json();
    assert_eq!(scores, json!({"rewards": [1.0, 0.0]}));
}

#[test]
fn a_reference_that_is_a_number_is_the_text_that_was_written() {
    for number in ["123456789012345678901234567890", "1.50", "1e400", "7", "-0"] {
        let score = format!("{{\"answers\": [{number}]}}");
        let item = format!("{{\"id\": \"a\", \"completion\": \"x\", \"data\": {score}}}");
        for (route, body) in [
            (RewardRoute::Score, format!("{{\"protocol\": 1, \"items\": [{item}]}}")),
            (RewardRoute::GetReward, format!("{{\"query\": [\"x\"], \"labels\": [{number}]}}")),
            (
                RewardRoute::Rm,
                format!("{{\"prompt\": \"?\", \"response\": \"x\", \"label\": {number}}}"),
            ),
        ] {
            let wanted = route.read(body.as_bytes()).ok().unwrap();
            let reference = &wanted.items[0].data["answers"][0];
            let text = reference.as_str().map_or_else(|| reference.to_string(), str::to_owned);
            assert_eq!(text, number, "{}", route.path());
        }
    }
}

#[tokio::test]
async fn the_routes_of_others_are_answered_as_their_clients_expect() {
    let server = served(Grader::exact_match()).await;
    let ask = async |path: &str, body: Value| ask(server.address, path, Some(&body)).await;
    let rm = json!({"prompt": "2 + 2?", "response": "The 4.", "label": "4"});
    assert_eq!(ask("/rm", rm).await.body, "1.0");
    let rm = json!({"prompt": [{"role": "user", "content": "?"}], "response": "5", "label": 4});
    assert_eq!(ask("/rm", rm).await.body, "0.0");
    let rm = json!({"prompt": "2 + 2?", "response": "So: <answer> 4 </answer>.", "label": "4"});
    assert_eq!(ask("/rm", rm).await.body, "1.0", "the text in the tags is the answer");
    let rm = json!({"prompt": "2 + 2?", "response": "<answer>4</answer><answer>4</answer>", "label": "4"});
    assert_eq!(ask("/rm", rm).await.body, "0.0", "of two tags, none is the answer");
    let body = json!({"query": ["2 + 2? 4", "2 + 2? 5"], "prompts": ["2 + 2? ", "2 + 2? "], "labels": ["4", "4"]});
    assert_eq!(ask("/get_reward", body).await.json(), json!({"rewards": [1.0, 0.0]}));
    // Protocols without references have nothing for a judge, and no place for failed items.
    let body = json!({"query_responses": [[{"role": "assistant", "content": "4"}]]});
    let answer = ask("/predict", body).await;
    assert_eq!(answer.status, 422);
    assert!(answer.message().starts_with("item 0 was not scored: there is no reference"));
}

#[tokio::test]
async fn requests_that_nobody_means_well_with_are_refused_with_the_reason() {
    let server = served(Grader::exact_match()).await;
    let refused = async |path: &str, body: Value| {
        let answer = ask(server.address, path, Some(&body)).await;
        (answer.status, answer.message())
    };
    let one = item("a", "1", "1");
    let cases = [
        (json!({"protocol": 2, "items": [one.clone()]}), 400, "`protocol` is 2; 1 is spoken here"),
        (json!({"items": [one.clone()]}), 400, "missing field `protocol`"),
        (asked(&[]), 400, "the request has no items"),
        (asked(&[one.clone(), one.clone()]), 400, "two items have the id \"a\""),
        (asked(&[json!({"id": "a"})]), 400, "`items[0].completion` is missing"),
        (asked(&[json!({"id": "a", "reward": 1})]), 400, "unknown field `reward`"),
        (asked(&vec![json!({"completion": "x"}); 257]), 400, "two items have the id"),
        (json!([1]), 400, "the body is no request of `/v1/score`"),
    ];
    for (body, status, wanted) in cases {
        let (found, message) = refused("/v1/score", body).await;
        assert_eq!(found, status, "{message}");
        assert!(message.contains(wanted), "{message}");
    }
    let many = json!({"query": vec!["x"; 257]});
    assert!(refused("/get_reward", many).await.1.contains("has 257 items; 256 are allowed"));
    let uneven = json!({"query": ["x"], "labels": ["a", "b"]});
    assert!(refused("/get_reward", uneven).await.1.contains("`labels` has 2 entries, `query` 1"));
    assert_eq!(refused("/elsewhere", json!({})).await.0, 404);
    let exchanged = async |sent: String| {
        let address = server.address;
        tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes())).await.unwrap()
    };
    let answer = exchanged(request("/rm", None, "")).await;
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("allow: post"), "{}", answer.head);
    let large = "POST /rm HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 3000000\r\n\r\n";
    assert_eq!(exchanged(large.to_owned()).await.status, 413);
}

/// Writes a reward model whose weight is a wave.
fn reward_model() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = ModelSource::Builtin("tiny".to_owned());
    let model = Model::load(&ModelFiles::new(&source)).unwrap();
    let head = ValueHead::new(HeadKind::Reward, &model.config);
    let weight: Vec<f32> = (0..model.config.hidden_size).map(|i| (i as f32).sin()).collect();
    head.vars()[0].1.set(&weight).unwrap();
    let model = RewardModel::new(model, head, RewardHead::new(1.5, 0.0)).unwrap();
    model.save(dir.path(), &SaveOptions::default()).unwrap();
    dir
}

#[tokio::test]
async fn a_run_is_scored_by_a_server_as_by_the_verifier_in_its_own_process_to_the_bit() {
    let dir = reward_model();
    let server = served(Grader::verifier(dir.path()).unwrap()).await;
    let played = Episode {
        task: task("p"),
        index: 0,
        seed: 1,
        branch: None,
        turns: Vec::new(),
        acts: Vec::new(),
        answer: Some("42".to_owned()),
        outcome: Outcome::Scored(Score::binary(true)),
        rewards: Vec::new(),
        log: String::new(),
    };
    let local = maverl::config::RewardVerifierConfig {
        path: dir.path().display().to_string(),
        of: RewardUnit::Answer,
        ..Default::default()
    };
    let local = maverl::rollout::rewards::VerifierReward::new(&local, std::path::Path::new(""));
    let expected = local.unwrap().score(&played).await.unwrap().rewards;
    assert_ne!(expected, Rewards::none());
    for (path, protocol) in
        [("/v1/score", RewardProtocol::Score), ("/predict", RewardProtocol::Predict)]
    {
        let config = RewardServerConfig {
            url: format!("http://{}{path}", server.address),
            protocol,
            of: RewardUnit::Answer,
            ..Default::default()
        };
        let remote = maverl::rollout::rewards::RewardServer::new(&config).unwrap();
        assert_eq!(remote.score(&played).await.unwrap().rewards, expected, "{path}");
    }
}

/// Prints how much faster a batch is than its items one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_items_gets_the_scores_of_its_items_alone() {
    let dir = reward_model();
    let server = served(Grader::verifier(dir.path()).unwrap()).await;
    let items: Vec<Value> =
        (0..32).map(|i| item(&i.to_string(), &format!("{i} and {}", i * 7), "42")).collect();
    let score = async |items: &[Value]| {
        let answer = ask(server.address, "/v1/score", Some(&asked(items))).await;
        answer.json()["items"].as_array().unwrap().clone()
    };
    score(&items).await;
    let (mut single, mut batch) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begin = std::time::Instant::now();
        let together = score(&items).await;
        batch.push(begin.elapsed().as_secs_f64());
        let begin = std::time::Instant::now();
        for (i, found) in together.iter().enumerate() {
            assert_eq!(score(&items[i..=i]).await[0], *found);
        }
        single.push(begin.elapsed().as_secs_f64());
    }
    single.sort_by(f64::total_cmp);
    batch.sort_by(f64::total_cmp);
    println!(
        "32 items: {:.4} s in a batch, {:.4} s alone: {:.1} x",
        batch[2],
        single[2],
        single[2] / batch[2]
    );
}
