#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use futures::FutureExt;
use serde_json::Value;

use super::*;
use crate::client::testing::{Log, serve_each};
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
    let mut session = environment.open(&task(&["x"]), 0).await?;
    Ok(environment.act(&mut session, action).await?.text)
}

fn documents(texts: &[(&str, &str)]) -> Vec<Document> {
    let document = |(key, text): &(&str, &str)| Document {
        key: (*key).to_owned(),
        title: String::new(),
        text: (*text).to_owned(),
        contents: None,
    };
    texts.iter().map(document).collect()
}

fn keys(index: &Index, query: &str, k: usize) -> Vec<String> {
    let found = index.search(&[query], k).unwrap();
    found.into_iter().flatten().map(|hit| hit.document.key.clone()).collect()
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
    let score = |session: &Session, answer| {
        let scored = Environment::score(&environment, session, answer);
        scored.now_or_never().unwrap().unwrap()
    };
    assert!(score(&session, Some("velim.")).solved);
    assert_eq!(score(&session, Some("velim.")).reward, 1.0);
    assert_eq!(score(&session, None).reward, 0.0);
    assert_eq!(score(&session, Some("Tolim or Velim")).metrics["f1"], 0.5);
    // Regression test for a leak (drmas §5.3): an answer tag inside retrieved text scored.
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

/// Returns the environment over `builtin:facts` with the built-in model as the encoder.
fn embedded(ranking: Ranking) -> SearchEnvironment {
    let encoder = "builtin:tiny".to_owned();
    SearchEnvironment { ranking, encoder, max_tokens: 32, ..SearchEnvironment::default() }
}

#[tokio::test]
async fn a_document_is_found_by_its_own_words_however_documents_are_ranked() {
    let document = &facts::corpus()[0];
    let query = format!("{}\n{}", document.title, document.text);
    let expected = format!("Doc 1: ({}) {}", document.title, document.text);
    // Embedding all documents takes seconds: half of the pairs in the first tier; all in the second.
    let full = std::env::var_os("MAVERL_FULL").is_some();
    for (ranking, first) in [
        (Ranking::Bm25, Neighbors::Exact),
        (Ranking::Dense, Neighbors::Exact),
        (Ranking::Hybrid, Neighbors::Hnsw),
    ] {
        for neighbors in [Neighbors::Exact, Neighbors::Hnsw] {
            if neighbors != first && !full {
                continue;
            }
            let encoder = if ranking == Ranking::Bm25 { "" } else { "builtin:tiny" }.to_owned();
            let environment =
                SearchEnvironment { encoder, neighbors, top_k: 1, ..embedded(ranking) };
            let text = act(&started(environment), Action::Text(query.clone())).await.unwrap();
            assert_eq!(text, expected, "{ranking:?}, {neighbors:?}");
        }
    }
}

#[test]
fn a_query_gets_the_same_alone_and_in_a_batch() {
    let queries: Vec<String> =
        facts::corpus().iter().step_by(29).map(|document| document.text.clone()).collect();
    for ranking in [Ranking::Dense, Ranking::Hybrid] {
        let index = embedded(ranking).index(Path::new("")).unwrap();
        for (query, found) in queries.iter().zip(index.search(&queries, 5).unwrap()) {
            assert_eq!(index.search(&[query], 5).unwrap()[0], found);
        }
    }
}

#[test]
fn an_encoder_that_cannot_be_used_is_named() {
    let bm25 = SearchEnvironment { ranking: Ranking::Bm25, ..embedded(Ranking::Bm25) };
    let with = |encoder: &str| SearchEnvironment {
        encoder: encoder.to_owned(),
        ..embedded(Ranking::Dense)
    };
    let retriever = "http://127.0.0.1:1/retrieve".to_owned();
    for (environment, expected) in [
        (bm25, "`encoder` has no effect on words"),
        (with(""), "`encoder` is empty, and the ranking needs one"),
        (with("builtin:huge"), "`encoder`: no built-in model is called \"huge\""),
        (with("nowhere"), "nowhere is not a directory"),
        (SearchEnvironment { max_tokens: 0, ..with("builtin:tiny") }, "`max_tokens` is 0"),
        (SearchEnvironment { retriever, ..with("builtin:tiny") }, "`ranking` has no effect beside"),
    ] {
        let mut environment = environment;
        let dir = tempfile::tempdir().unwrap();
        let looked = Environment::validate(&environment, dir.path(), &TaskList::default())
            .unwrap_err()
            .to_string();
        assert!(looked.contains(expected), "{looked}");
        assert_eq!(environment.start(dir.path()).unwrap_err().to_string(), looked);
    }
}

#[test]
fn an_f1_reward_pays_for_words_but_not_for_heaps_of_them() {
    let mut environment =
        SearchEnvironment { reward: AnswerReward::F1, ..SearchEnvironment::default() };
    let session =
        Session { task: task(&["Ada Tovik", "Tovik"]), seed: 0, actions: 0, state: Value::Null };
    let mut reward = |rule, answer: &str| {
        environment.reward = rule;
        let score = Environment::score(&environment, &session, Some(answer));
        let score = score.now_or_never().unwrap().unwrap();
        (score.reward, score.solved)
    };
    assert_eq!(reward(AnswerReward::F1, "the Tovik."), (1.0, true));
    assert_eq!(reward(AnswerReward::F1, "Ada"), (2.0 / 3.0, false));
    assert_eq!(reward(AnswerReward::Em, "Ada"), (0.0, false));
    assert_eq!(reward(AnswerReward::F1, ""), (0.0, false));
    // Every title of the corpus, including the answer.
    let titles: Vec<String> = facts::corpus().into_iter().map(|document| document.title).collect();
    let soup = format!("{} Ada Tovik", titles.join(" "));
    let (paid, solved) = reward(AnswerReward::F1, &soup);
    assert!(paid < 0.01 && !solved, "{paid}");
    // Repeating the answer does not increase the reward.
    assert_eq!(reward(AnswerReward::F1, &"Tovik ".repeat(9)), (0.2, false));
}

/// Returns the shares of the questions of a file for which a supporting document is among the first 1, 3 and 10, for
/// each ranking. Prints them as rows of a Markdown table.
fn recall_rows(name: &str, shared: &Path) -> Vec<(Ranking, [f64; 3])> {
    let data = format!("data/{name}");
    let config = TaskConfig { data: data.clone(), ..TaskConfig::default() };
    let tasks = crate::data::load(&config, crate::data::ALL, shared).unwrap();
    let questions: Vec<&str> = tasks.iter().map(|task| task.question.as_str()).collect();
    let mut rows = Vec::new();
    for (label, ranking, neighbors) in [
        ("BM25", Ranking::Bm25, Neighbors::Exact),
        ("dense, exact", Ranking::Dense, Neighbors::Exact),
        ("dense, HNSW", Ranking::Dense, Neighbors::Hnsw),
        ("hybrid", Ranking::Hybrid, Neighbors::Exact),
    ] {
        let encoder = if ranking == Ranking::Bm25 { "" } else { "builtin:tiny" }.to_owned();
        let corpus = data.clone();
        let max_tokens = 128;
        let environment =
            SearchEnvironment { corpus, encoder, neighbors, max_tokens, ..embedded(ranking) };
        let index = environment.index(shared).unwrap();
        let found = index.search(&questions, 10).unwrap();
        let recalls = [1, 3, 10].map(|k| {
            let helps = |(hits, task): &(&Vec<FoundDocument<'_>>, &Task)| {
                let support = task.texts("support");
                hits.iter().take(k).any(|hit| support.contains(&hit.document.key))
            };
            found.iter().zip(&tasks).filter(helps).count() as f64 / tasks.len() as f64
        });
        let [first, third, tenth] = recalls;
        println!("| {name} | {} | {label} | {first:.3} | {third:.3} | {tenth:.3} |", tasks.len());
        rows.push((ranking, recalls));
    }
    rows
}

/// Prints a Markdown table.
#[test]
#[ignore = "second tier: takes half a minute, and needs MAVERL_TEST_DATA"]
fn recall_on_real_questions_grows_with_what_is_shown() {
    let Some(shared) = std::env::var_os("MAVERL_TEST_DATA").map(PathBuf::from) else {
        println!("skipped: MAVERL_TEST_DATA is not set");
        return;
    };
    println!("| questions | number | ranking | recall@1 | recall@3 | recall@10 |");
    for (name, least) in [("xquad.en.json", 0.95), ("hotpotqa.dev_distractor.subset.json", 0.8)] {
        let rows = recall_rows(name, &shared);
        let (ranking, bm25) = &rows[0];
        assert!(*ranking == Ranking::Bm25 && bm25[1] >= least, "{bm25:?}");
        assert!(rows.iter().all(|(_, recalls)| recalls.is_sorted()), "{rows:?}");
    }
}

/// Starts a server that gives each connection the next of its answers. Returns its address, and what it received.
fn serve(answers: &[(u16, &'static str)]) -> (String, Log) {
    let (url, log) = serve_each(answers.to_vec());
    (format!("{url}/retrieve"), log)
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
    let sent: Vec<Value> = server.lock().unwrap().iter().map(|of| of.body.clone()).collect();
    assert_eq!(sent, [json!({"queries": ["who"], "topk": 2, "return_scores": true})]);
}

#[tokio::test]
async fn a_retriever_of_dr_mas_gets_one_query() {
    let (url, server) = serve(&[(
        200,
        r#"{"result": [[{"document": {"id": "7", "contents": "\"T\"\nOne."}, "score": 2.5}]]}"#,
    )]);
    let environment = SearchEnvironment {
        retriever: url,
        protocol: RetrieverProtocol::DrMas,
        document_format: DocumentFormat::SearchR1,
        ..SearchEnvironment::default()
    };
    let text = act(&started(environment), Action::Text("who".into())).await.unwrap();
    assert_eq!(text, "Doc 1(Title: \"T\") One.");
    let sent: Vec<Value> = server.lock().unwrap().iter().map(|of| of.body.clone()).collect();
    assert_eq!(sent, [json!({"query": "who", "topk": 3, "return_scores": true})]);
    let protocol = RetrieverProtocol::DrMas;
    let mut alone = SearchEnvironment { protocol, ..SearchEnvironment::default() };
    let error = alone.start(Path::new("")).unwrap_err().to_string();
    assert_eq!(error, "`protocol` has no effect without `retriever`; remove it");
}

#[tokio::test]
async fn documents_may_come_without_scores() {
    let (url, _) = serve(&[(200, r#"{"result": [[{"id": 3, "contents": "One."}]]}"#)]);
    assert_eq!(retrieve(url, 0).await.unwrap(), "Doc 1: One.");
}

#[tokio::test]
async fn a_retriever_is_not_asked_the_same_twice() {
    let (url, server) = serve(&[(200, r#"{"result": [[{"contents": "One."}]]}"#)]);
    let environment =
        started(SearchEnvironment { retriever: url, retries: 0, ..SearchEnvironment::default() });
    for _ in 0..3 {
        assert_eq!(act(&environment, Action::Text("who".into())).await.unwrap(), "Doc 1: One.");
    }
    assert_eq!(server.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_busy_retriever_is_asked_again() {
    let (url, server) = serve(&[(503, "busy"), (500, ""), (200, r#"{"result": [[]]}"#)]);
    assert_eq!(retrieve(url, 2).await.unwrap(), "no document has any of these words");
    assert_eq!(server.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn nothing_is_asked_where_a_retriever_redirects_to() {
    for status in [301, 302, 303, 307, 308] {
        let (url, asked) = crate::client::testing::serve_redirects(status);
        let error = retrieve(format!("{url}/retrieve"), 3).await.unwrap_err().to_string();
        assert!(error.contains(&format!("status {status}, a redirect to ")), "{error}");
        assert!(asked.lock().unwrap().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn a_failing_retriever_is_a_fault_and_not_an_observation() {
    let (url, _) = serve(&[(502, "bad"), (502, "gateway")]);
    let error = retrieve(url, 1).await.unwrap_err().to_string();
    assert!(error.ends_with("status 502: \"gateway\" (2 attempts)"), "{error}");
    for (answer, words) in [
        ((404, "nope"), "status 404: \"nope\" (1 attempt)"),
        ((200, "<html>"), "answered \"<html>\", not `{\"result\": "),
        ((200, r#"{"result": []}"#), "answered no query"),
        ((307, ""), "status 307, a redirect to nowhere, which is not followed"),
    ] {
        let (url, _) = serve(&[answer]);
        let error = retrieve(url.clone(), 3).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("retriever {url}: {words}")), "{error}");
    }
    // Nobody listens on port 1.
    let error = retrieve("http://127.0.0.1:1/retrieve".into(), 1).await.unwrap_err().to_string();
    let wanted = "retriever http://127.0.0.1:1/retrieve: Connection refused";
    assert!(error.starts_with(wanted) && error.ends_with("(2 attempts)"), "{error}");
}
