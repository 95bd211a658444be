#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::config::TaskConfig;
use crate::env::DynEnvironment;

fn started(environment: SearchEnvironment) -> SearchEnvironment {
    let mut environment = environment;
    environment.start(Path::new("")).unwrap();
    environment
}

fn task(answers: &[&str]) -> Task {
    let data = Map::from_iter([("answers".to_owned(), json!(answers))]);
    Task { id: "1".into(), source: "s".into(), question: "?".into(), data }
}

async fn act(environment: &SearchEnvironment, action: Action) -> Result<String, EnvError> {
    let environment: &dyn DynEnvironment = environment;
    let mut session = environment.open(&task(&["x"]), 0);
    Ok(environment.act(&mut session, action).await?.text)
}

fn documents(texts: &[(&str, &str)]) -> Vec<Document> {
    let document = |(key, text): &(&str, &str)| Document {
        key: (*key).to_owned(),
        title: String::new(),
        text: (*text).to_owned(),
    };
    texts.iter().map(document).collect()
}

fn keys(index: &Index, query: &str, k: usize) -> Vec<String> {
    index.search(query, k).unwrap().into_iter().map(|document| document.key.clone()).collect()
}

#[tokio::test]
async fn a_query_gets_the_best_documents() {
    let environment = started(SearchEnvironment { top_k: 1, ..SearchEnvironment::default() });
    let document = &facts::corpus()[0];
    let text = act(&environment, Action::Text(document.title.clone())).await.unwrap();
    assert_eq!(text, format!("Doc 1: ({}) {}", document.title, document.text));
    let tool = Action::Tool { name: "search".into(), arguments: json!({"query": document.title}) };
    assert_eq!(act(&environment, tool).await.unwrap(), text);
}

#[tokio::test]
async fn a_foolish_action_gets_an_observation_that_says_so() {
    let environment = started(SearchEnvironment::default());
    let text = |query: &str| Action::Text(query.to_owned());
    let tool = |name: &str| Action::Tool { name: name.into(), arguments: json!({}) };
    for (action, expected) in [
        (text(""), "the query is empty"),
        (text(" ?! "), "the query is empty"),
        (text("xyzzy"), "no document has any of these words"),
        (tool("fly"), "the only tool is search, and needs a query"),
        (tool("search"), "the only tool is search, and needs a query"),
    ] {
        assert_eq!(act(&environment, action).await.unwrap(), expected);
    }
    let syntax = act(&environment, text("title:(\"ada AND -x) ^~ [")).await.unwrap();
    assert!(syntax.starts_with("Doc 1: "), "{syntax}");
}

#[tokio::test]
async fn long_documents_are_cut() {
    let environment = SearchEnvironment { max_chars: 10, top_k: 2, ..SearchEnvironment::default() };
    let text = act(&started(environment), Action::Text("city".into())).await.unwrap();
    assert!(text.lines().all(|line| line.chars().count() == "Doc 1: ".len() + 10), "{text}");
}

#[test]
fn equally_good_documents_come_in_key_order() {
    let texts = [("c", "red fox"), ("a", "red fox"), ("d", "red fox"), ("b", "red fox")];
    let index = Index::new(documents(&texts)).unwrap();
    for k in 1..=4 {
        assert_eq!(keys(&index, "fox", k), ["a", "b", "c", "d"][..k]);
    }
}

#[test]
fn rare_words_count_more_and_repeated_ones_once() {
    let texts = [("a", "red fox"), ("b", "red red red hen"), ("c", "red owl"), ("d", "grey fox")];
    let index = Index::new(documents(&texts)).unwrap();
    assert_eq!(keys(&index, "Red OWL", 2), ["c", "b"]);
    assert_eq!(keys(&index, "red red red red owl", 1), ["c"]);
    assert_eq!(keys(&index, "nothing here", 4), [] as [&str; 0]);
    assert!(Index::new(Vec::new()).is_err());
}

#[test]
fn only_the_answer_counts() {
    let environment = SearchEnvironment::default();
    let mut session =
        Session { task: task(&["Velim", "the Velim"]), seed: 0, actions: 0, state: Value::Null };
    let score = |session: &Session, answer| Environment::score(&environment, session, answer);
    assert!(score(&session, Some("velim.")).solved);
    assert_eq!(score(&session, Some("velim.")).reward, 1.0);
    assert_eq!(score(&session, None).reward, 0.0);
    assert_eq!(score(&session, Some("Tolim or Velim")).metrics["f1"], 0.5);
    // The leak of the system this replaces (drmas §5.3): an answer tag inside retrieved text scored.
    session.state = json!("<answer>Velim</answer>");
    assert!(!score(&session, Some("Tolim")).solved);
    assert!(!score(&session, Some("I read: <answer>Velim</answer>")).solved);
    assert!(!score(&session, None).solved);
}

#[test]
fn a_corpus_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty.jsonl"), "\n").unwrap();
    for (corpus, top_k, expected) in [
        ("empty.jsonl", 1, "`corpus`: `empty.jsonl` has no documents; write"),
        ("missing.jsonl", 1, "cannot be read"),
        ("builtin:encyclopedia", 1, "there is `builtin:facts`"),
        ("builtin:facts", 0, "`top_k` is 0"),
    ] {
        let mut environment =
            SearchEnvironment { corpus: corpus.into(), top_k, ..SearchEnvironment::default() };
        let error = environment.start(dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn plain_bm25_finds_the_paragraphs_of_xquad() {
    let Some(shared) = std::env::var_os("MAVERL_TEST_DATA").map(PathBuf::from) else {
        println!("skipped: MAVERL_TEST_DATA is not set");
        return;
    };
    let name = "data/xquad.en.json".to_owned();
    let config = TaskConfig { data: name.clone(), ..TaskConfig::default() };
    let tasks = crate::data::load(&config, crate::data::ALL, &shared).unwrap();
    assert_eq!(tasks.len(), 893);
    let mut environment = SearchEnvironment { corpus: name, ..SearchEnvironment::default() };
    environment.start(&shared).unwrap();
    let recall = environment.recall(&tasks, 3).unwrap().unwrap();
    println!("BM25 recall@3 over 893 questions: {recall:.3}");
    assert!(recall >= 0.95, "{recall}");
}

/// A server that gives each connection the next of its answers, then returns the bodies it was sent.
fn serve(answers: &'static [(u16, &'static str)]) -> (String, std::thread::JoinHandle<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/retrieve", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let answer = |(status, body): &(u16, &str)| {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let (mut length, mut line) = (0, String::new());
            while {
                line.clear();
                reader.read_line(&mut line).unwrap() > 2
            } {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut sent = vec![0; length];
            reader.read_exact(&mut sent).unwrap();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            reader.get_mut().write_all((head + body).as_bytes()).unwrap();
            serde_json::from_slice(&sent).unwrap()
        };
        answers.iter().map(answer).collect()
    });
    (url, server)
}

async fn retrieve(url: String, retries: u32) -> Result<String, EnvError> {
    let environment = SearchEnvironment {
        retriever: url,
        retries,
        top_k: 2,
        timeout_s: 5.0,
        ..SearchEnvironment::default()
    };
    act(&started(environment), Action::Text("who".into())).await
}

#[tokio::test]
async fn a_retriever_is_asked_in_its_own_protocol() {
    let (url, server) = serve(&[(
        200,
        r#"{"result": [[{"document": {"id": "7", "contents": "\"T\"\nOne."}, "score": 2.5},
                        {"document": {"title": "U", "text": "Two."}, "score": 1}, {"contents": "Three."}]]}"#,
    )]);
    assert_eq!(retrieve(url, 0).await.unwrap(), "Doc 1: (T) One.\nDoc 2: (U) Two.");
    let sent = server.join().unwrap();
    assert_eq!(sent, [json!({"queries": ["who"], "topk": 2, "return_scores": true})]);
}

#[tokio::test]
async fn documents_may_come_without_scores() {
    let (url, server) = serve(&[(200, r#"{"result": [[{"id": 3, "contents": "One."}]]}"#)]);
    assert_eq!(retrieve(url, 0).await.unwrap(), "Doc 1: One.");
    server.join().unwrap();
}

#[tokio::test]
async fn a_busy_retriever_is_asked_again() {
    let (url, server) = serve(&[(503, "busy"), (500, ""), (200, r#"{"result": [[]]}"#)]);
    assert_eq!(retrieve(url, 2).await.unwrap(), "no document has any of these words");
    assert_eq!(server.join().unwrap().len(), 3);
}

#[tokio::test]
async fn a_failing_retriever_is_a_fault_and_not_an_observation() {
    let (url, server) = serve(&[(502, "bad"), (502, "gateway")]);
    let error = retrieve(url, 1).await.unwrap_err().to_string();
    assert!(error.ends_with("status 502: \"gateway\" (2 attempts)"), "{error}");
    server.join().unwrap();
    for answer in [(404, "nope"), (200, "<html>"), (200, r#"{"result": []}"#)] {
        let (url, server) = serve(Box::leak(Box::new([answer])));
        let error = retrieve(url, 3).await.unwrap_err().to_string();
        assert!(error.ends_with("(1 attempts)"), "{error}");
        server.join().unwrap();
    }
    // Nobody listens on port 1.
    let error = retrieve("http://127.0.0.1:1/retrieve".into(), 1).await.unwrap_err().to_string();
    assert!(error.ends_with("(2 attempts)"), "{error}");
}
