#![allow(clippy::unwrap_used)]

use super::*;
use crate::algo::testing::{episode, plan, turn};
use crate::client::testing::{Log, Received, response, serve};
use crate::config::EndpointConfig;
use crate::files::{ModelFiles, ModelSource};
use crate::plan::{SeatTeachers, TeacherPlan};

fn tokenizer() -> Tokenizer {
    Tokenizer::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
}

/// Returns the answer of a server: the log-prob of a token is a function of its id.
fn scored(received: &Received, shift: usize) -> Value {
    let ids: Vec<u64> =
        received.body["prompt"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let mut logprobs: Vec<Value> = ids.iter().map(|id| json!(-(*id as f64) / 8.0)).collect();
    logprobs.push(json!(-0.5));
    logprobs[0] = Value::Null;
    logprobs.rotate_left(shift);
    json!({ "choices": [{ "prompt_token_ids": ids, "logprobs": { "token_logprobs": logprobs } }] })
}

/// Starts a server that gives each request an answer, by its number.
fn server(
    mut answer: impl FnMut(usize, &Received) -> (u16, Value) + Send + 'static,
) -> (String, Log) {
    let (url, log) = serve(move |number, received| {
        let (status, body) = answer(number, received);
        response(status, &body.to_string())
    });
    (format!("{url}/v1"), log)
}

fn taught(url: String, on_error: OnRewardError) -> Plan {
    let mut plan = plan(&[("t/a", true), ("t/b", true)]);
    let endpoint = EndpointConfig {
        url: Some(url),
        model: Some("big".to_owned()),
        retries: 0,
        ..EndpointConfig::default()
    };
    let source = TeacherSource::Endpoint { name: "far".to_owned(), endpoint, on_error };
    plan.teachers = vec![TeacherPlan { name: "guide".to_owned(), source, hint: None }];
    let by_source = BTreeMap::from([("default".to_owned(), 0)]);
    plan.seats[0].teachers = Some(SeatTeachers { by_source, coef: 1.0 });
    plan
}

fn played() -> Episode {
    episode("p", 0, 1.0, vec![turn("t/a", 0), turn("t/b", 1), turn("t/a", 2)])
}

fn start(url: String, on_error: OnRewardError) -> Result<EndpointTeachers, RolloutError> {
    EndpointTeachers::start(&taught(url, on_error), &tokenizer()).map(Option::unwrap)
}

#[tokio::test]
async fn turns_of_taught_seats_are_scored_and_recorded() {
    let (url, log) = server(|_, received| (200, scored(received, 0)));
    let teachers = start(url, OnRewardError::Unscored).unwrap();
    let mut episode = played();
    teachers.score_turns(&mut episode).await;
    let score = TeacherScore { name: "guide".to_owned(), logprobs: vec![-0.5, -0.625] };
    let found: Vec<_> = episode.turns.iter().map(|turn| turn.teacher.clone()).collect();
    assert_eq!(found, [Some(score.clone()), None, Some(score)]);
    let sent = log.lock().unwrap().clone();
    assert_eq!(sent.len(), 7, "five of the probe, and two turns");
    let Received { head, body } = &sent[5];
    assert!(head.starts_with("POST /v1/completions"), "{head}");
    assert_eq!((&body["prompt"], &body["echo"]), (&json!([1, 2, 3, 4, 5]), &json!(true)));
    assert_eq!((&body["model"], &body["logprobs"]), (&json!("big"), &json!(0)));
    let line = serde_json::to_string(&episode.turns[0]).unwrap();
    assert_eq!(serde_json::from_str::<Turn>(&line).unwrap(), episode.turns[0]);
    assert!(!serde_json::to_string(&episode.turns[1]).unwrap().contains("teacher"));
}

#[tokio::test]
async fn a_failure_leaves_the_episode_unscored_or_the_turn_without_a_teacher() {
    for on_error in [OnRewardError::Unscored, OnRewardError::Skip] {
        let (url, _) = server(|number, received| match number {
            0..=5 => (200, scored(received, 0)),
            _ => (400, json!("no")),
        });
        let mut episode = played();
        start(url, on_error).unwrap().score_turns(&mut episode).await;
        let known = episode.turns.iter().filter(|turn| turn.teacher.is_some()).count();
        match &episode.outcome {
            Outcome::Scored(_) => assert_eq!((on_error, known), (OnRewardError::Skip, 1)),
            Outcome::Unscored(fault) => {
                assert_eq!((on_error, fault.kind), (OnRewardError::Unscored, FaultKind::Endpoint));
                assert!(fault.message.contains("teacher `guide`, endpoint `far`"), "{fault}");
            }
        }
    }
}

#[test]
fn a_server_that_scores_other_tokens_is_refused_at_the_start() {
    let refused = |answer: fn(usize, &Received) -> Value, part: &str| {
        let (url, _) = server(move |number, received| (200, answer(number, received)));
        let error = start(url, OnRewardError::Unscored).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(|_, received| scored(received, 1), "gave the first token a log-prob");
    refused(|_, _| json!({ "choices": [{ "text": "" }] }), "it does not score prompts (`echo`)");
    refused(|number, received| with(received, 2 + number, json!(-1.0)), "differ by");
    refused(|_, received| with(received, 3, json!(0.5)), "no number of 0 or less");
    refused(|_, received| with(received, 3, Value::Null), "no number of 0 or less");
    refused(|_, received| shortened(received), "gave 4 log-probs for");
    refused(|_, received| of_other_ids(received), "read other token ids than those that were sent");
    refused(|_, _| json!("text"), "it does not score prompts (`echo`)");
}

/// Returns the answer of a server with the log-probs of four tokens alone.
fn shortened(received: &Received) -> Value {
    let mut answer = scored(received, 0);
    answer["choices"][0]["logprobs"]["token_logprobs"].as_array_mut().unwrap().truncate(4);
    answer
}

/// Returns the answer of a server that read another first token.
fn of_other_ids(received: &Received) -> Value {
    let mut answer = scored(received, 0);
    answer["choices"][0]["prompt_token_ids"][0] = json!(1);
    answer
}

/// Returns the answer of a server with another log-prob of one token.
fn with(received: &Received, token: usize, value: Value) -> Value {
    let mut answer = scored(received, 0);
    answer["choices"][0]["logprobs"]["token_logprobs"][token] = value;
    answer
}
