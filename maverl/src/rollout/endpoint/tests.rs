#![allow(clippy::unwrap_used)]

use super::*;
use crate::agent::Prompt;
use crate::client::testing::{Log, Received, serve_each, serve_redirects};
use crate::orchestra::AskLimits;
use crate::trajectory::{Seat, TurnPath};

/// Starts a server that gives these answers, one per connection. Returns its address, and what it was sent.
fn server(answers: Vec<(u16, &'static str)>) -> (String, Log) {
    let (url, log) = serve_each(answers);
    (format!("{url}/v1"), log)
}

const FINE: &str = r#"{"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 10}}"#;
const NULL: &str = r#"{"choices": [{"message": {"content": null}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 10}}"#;
const CUT: &str = r#"{"choices": [{"message": {"content": "ye"}, "finish_reason": "length"}]}"#;

fn config(url: String) -> EndpointConfig {
    EndpointConfig {
        url: Some(url),
        model: Some("big".to_owned()),
        retries: 1,
        prompt_price: 1.0,
        completion_price: 2.0,
        ..EndpointConfig::default()
    }
}

fn ask(text: &str) -> Ask {
    Ask {
        seat: Seat::only("debate/judge"),
        path: TurnPath(vec![0]),
        seed: u64::MAX,
        prompt: Prompt::user(text).with_system("Be brief."),
        limits: AskLimits::default(),
    }
}

async fn say(endpoint: &Arc<Endpoint>, text: &str) -> Result<Response, Fault> {
    let backend = EndpointVoice::new(Arc::clone(endpoint), Sampling::default());
    backend.respond(&mut Conversation::default(), ask(text)).await
}

#[tokio::test]
async fn a_server_is_asked_again_where_that_may_help_and_its_tokens_are_counted() {
    let (url, bodies) = server(vec![(503, "busy"), (200, FINE), (200, CUT)]);
    let endpoint = Arc::new(Endpoint::new("expert", &config(url), Path::new("")).unwrap());
    let said = say(&endpoint, "Who is right?").await.unwrap();
    assert_eq!((said.reply.as_str(), said.truncated, said.tokens), ("yes", false, None));
    let received = bodies.lock().unwrap().clone();
    let (busy, Received { head, body }) = (&received[0].body, &received[1]);
    assert_eq!(busy, body);
    assert!(head.starts_with("POST /v1/chat/completions"), "{head}");
    assert_eq!((&body["model"], &body["seed"]), (&json!("big"), &json!(i64::MAX)));
    let said_to_it = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "Who is right?" },
    ]);
    assert_eq!(body["messages"], said_to_it);
    let usage = endpoint.usage();
    assert_eq!((usage.requests, usage.failures), (1, 1));
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (30, 10));
    assert!((usage.cost - 50e-6).abs() < 1e-15, "{usage:?}");
    assert!(say(&endpoint, "And now?").await.unwrap().truncated);
    let cut = endpoint.usage() - usage;
    assert_eq!((cut.requests, cut.uncounted, cut.prompt_tokens), (1, 1, 0));
}

const ON: &str = r#"{"choices": [{"message": {"content": "<a>1</a> <b>2</b> and"}, "finish_reason": "length"}]}"#;

#[tokio::test]
async fn a_reply_of_a_server_contains_the_stop_string_that_ends_it() {
    for (stop, reply, truncated) in [
        (vec!["</b>", "</a>"], "<a>1</a>", false),
        (vec!["</b>"], "<a>1</a> <b>2</b>", false),
        (vec!["1</a> <", "<a>1</"], "<a>1</", false),
        (vec!["</c>"], "<a>1</a> <b>2</b> and", true),
    ] {
        let (url, asked) = server(vec![(200, ON)]);
        let endpoint = Arc::new(Endpoint::new("expert", &config(url), Path::new("")).unwrap());
        let stop = stop.into_iter().map(str::to_owned).collect();
        let backend = EndpointVoice::new(endpoint, Sampling { stop, ..Sampling::default() });
        let said = backend.respond(&mut Conversation::default(), ask("?")).await.unwrap();
        assert_eq!((said.reply.as_str(), said.truncated), (reply, truncated));
        // A server cuts a string that it is sent from the reply.
        assert!(asked.lock().unwrap()[0].body.get("stop").is_none());
    }
}

#[tokio::test]
async fn what_a_server_refuses_or_makes_up_is_a_fault_and_no_text() {
    let cases = [
        (vec![(401, "who are you")], "status 401: \"who are you\" (1 attempt)"),
        (vec![(200, "<html>")], "answered \"<html>\", no chat completion"),
        (vec![(200, r#"{"choices": []}"#)], "answered with no choice"),
        (vec![(200, NULL)], "answered with no text"),
        (vec![(500, "a"), (500, "b")], "status 500: \"b\" (2 attempts)"),
        (vec![(302, "gone")], "status 302, a redirect to nowhere, which is not followed"),
    ];
    for (answers, words) in cases {
        let (url, _bodies) = server(answers);
        let endpoint =
            Arc::new(Endpoint::new("expert", &config(url.clone()), Path::new("")).unwrap());
        let fault = say(&endpoint, "?").await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Endpoint);
        let begin = format!("endpoint `expert`: {url}/chat/completions: {words}");
        assert!(fault.message.starts_with(&begin), "{}", fault.message);
    }
}

#[tokio::test]
async fn nothing_is_asked_where_an_endpoint_redirects_to() {
    for status in [301, 302, 303, 307, 308] {
        let (url, asked) = serve_redirects(status);
        let config = config(format!("{url}/v1"));
        let endpoint = Arc::new(Endpoint::new("expert", &config, Path::new("")).unwrap());
        let fault = say(&endpoint, "Who is right?").await.unwrap_err();
        let wanted = format!("status {status}, a redirect to ");
        assert!(fault.message.contains(&wanted), "{}", fault.message);
        assert!(asked.lock().unwrap().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn an_answer_without_a_reply_is_counted_and_paid_for() {
    let (url, _bodies) = server(vec![(200, NULL)]);
    let endpoint = Arc::new(Endpoint::new("expert", &config(url), Path::new("")).unwrap());
    say(&endpoint, "?").await.unwrap_err();
    let usage = endpoint.usage();
    assert_eq!((usage.requests, usage.failures, usage.prompt_tokens), (1, 0, 30));
}

#[tokio::test]
async fn a_script_says_the_first_line_that_fits() {
    let dir = tempfile::tempdir().unwrap();
    let text = r#"{"seat": "debate/other", "reply": "not me"}
{"contains": "right", "reply": "the first"}

{"seat": "debate/judge", "contains": "now", "reply": "the second"}"#;
    std::fs::write(dir.path().join("judge.jsonl"), text).unwrap();
    let script =
        |name: &str| EndpointConfig { script: Some(name.to_owned()), ..Default::default() };
    let endpoint = Endpoint::new("judge", &script("judge.jsonl"), dir.path()).unwrap();
    let endpoint = Arc::new(endpoint);
    assert_eq!(say(&endpoint, "Who is right?").await.unwrap().reply, "the first");
    assert_eq!(say(&endpoint, "And now?").await.unwrap().reply, "the second");
    let fault = say(&endpoint, "What?").await.unwrap_err();
    assert!(fault.message.contains("no line of its script is for `debate/judge`"), "{fault}");
    std::fs::write(dir.path().join("bad.jsonl"), "{\"replies\": 1}").unwrap();
    let error = Endpoint::new("judge", &script("bad.jsonl"), dir.path()).err().unwrap();
    assert!(error.contains("bad.jsonl:1: unknown field `replies`"), "{error}");
}

#[test]
fn a_key_comes_from_the_environment_and_must_be_there() {
    let config =
        EndpointConfig { key_env: Some("MAVERL_NO_SUCH_KEY".to_owned()), ..config(String::new()) };
    let error = Endpoint::new("expert", &config, Path::new("")).err().unwrap();
    assert_eq!(error, "the environment variable `MAVERL_NO_SUCH_KEY` is not set");
}
