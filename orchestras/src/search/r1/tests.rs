#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;

use maverl::env::search::{DocumentFormat, SearchEnvironment};
use maverl::rollout::Scripted;
use maverl::trajectory::{Outcome, Role};
use serde_json::{Value, json};

use super::*;

/// Cases of `tests/fixtures/search_r1/make.py`, which runs the functions of Search-R1.
fn golden() -> Value {
    let text = include_str!("../../../../tests/fixtures/search_r1/search_r1.json");
    serde_json::from_str(text).unwrap()
}

/// Starts a retriever that answers with the documents that share a word with the query, in their order, as the retriever of the
/// recorded cases. Returns its URL.
fn serve(documents: Vec<Value>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/retrieve", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        listener.incoming().for_each(|stream| answer_query(stream.unwrap(), &documents));
    });
    url
}

fn answer_query(mut stream: TcpStream, documents: &[Value]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let query = asked["queries"][0].as_str().unwrap().to_lowercase();
    let words: Vec<&str> = query.split_whitespace().collect();
    let shares = |document: &&Value| {
        let contents = document["contents"].as_str().unwrap().to_lowercase();
        contents.split_whitespace().any(|word| words.contains(&word))
    };
    let found = documents.iter().filter(shares);
    let found: Vec<Value> =
        found.map(|document| json!({"document": document, "score": 1.0})).collect();
    let answer = json!({"result": [found]}).to_string();
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len()).unwrap();
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// Plays a case with a model that gives its replies in order.
fn play(case: &Value, url: &str, chat: bool) -> Episode {
    let mut environment = SearchEnvironment::default();
    environment.retriever = url.to_owned();
    environment.document_format = DocumentFormat::SearchR1;
    environment.start(Path::new("")).unwrap();
    let max_turns = u32::try_from(case["max_turns"].as_u64().unwrap()).unwrap();
    let orchestra = R1 { max_turns: NonZeroU32::new(max_turns).unwrap(), chat, ..R1::default() };
    let replies = Mutex::new(texts(&case["replies"]).into_iter());
    let script =
        move |_: &Seat, _: &[maverl::trajectory::Message]| replies.lock().unwrap().next().unwrap();
    let task = Task {
        id: "1".to_owned(),
        source: "test".to_owned(),
        question: case["question"].as_str().unwrap().to_owned(),
        data: [("answers".to_owned(), json!(["egg", "Beijing"]))].into_iter().collect(),
    };
    Scripted::new(orchestra, environment, script).play_blocking(&task)
}

#[test]
fn a_scripted_model_gives_the_text_of_search_r1_character_by_character() {
    let golden = golden();
    let documents = golden["documents"].as_array().unwrap().clone();
    let url = serve(documents);
    let mut played = 0;
    for case in golden["cases"].as_array().unwrap() {
        if !case["max_obs_length"].is_null() {
            continue; // A script has no tokens to cut.
        }
        let name = case["name"].as_str().unwrap();
        let episode = play(case, &url, false);
        assert!(matches!(episode.outcome, Outcome::Scored(_)), "{name}: {:?}", episode.outcome);
        let last = episode.turns.last().unwrap();
        let prompt = last.prompt[0].content.as_str();
        assert_eq!(prompt, case["prompt"].as_str().unwrap(), "{name}");
        let roles: Vec<Role> = last.prompt.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant][..roles.len()], "{name}");
        let before = last.prompt.get(1).map_or("", |message| message.content.as_str());
        let text = format!("{before}{}", last.reply);
        assert_eq!(text, case["text"].as_str().unwrap(), "{name}");
        let queries = episode.acts.iter().map(|act| match &act.action {
            Action::Text(query) => query.clone(),
            Action::Tool { .. } => panic!("{name}: a tool"),
        });
        assert_eq!(queries.collect::<Vec<_>>(), texts(&case["queries"]), "{name}");
        played += 1;
    }
    println!("{played} episodes have the text of Search-R1");
    assert_eq!(played, 24);
}

/// In Search-R1 the last `<answer>` of the whole text counts, the instructions and the documents included.
#[test]
fn only_the_answer_of_a_step_counts() {
    let golden = golden();
    let url = serve(golden["documents"].as_array().unwrap().clone());
    let mut other = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let episode = play(case, &url, false);
        let (name, theirs) = (case["name"].as_str().unwrap(), case["answer"].as_str());
        if episode.answer.as_deref() != theirs {
            other.push(name);
        }
    }
    // `egg` of a document, `Beijing` of the instructions, and an answer that was not closed before a search.
    let expected = ["search inside an answer", "searches to the end", "invalid at the end"];
    assert_eq!(other, expected);
    for name in &expected[1..] {
        let cases = golden["cases"].as_array().unwrap();
        let case = cases.iter().find(|case| case["name"] == **name).unwrap();
        let episode = play(case, &url, false);
        assert_eq!((episode.answer.as_deref(), episode.score().unwrap().reward), (None, 0.0));
    }
}

#[test]
fn documents_are_messages_of_the_user_with_chat() {
    let golden = golden();
    let url = serve(golden["documents"].as_array().unwrap().clone());
    let episode = play(&golden["cases"][0], &url, true);
    let last = episode.turns.last().unwrap();
    let roles: Vec<Role> = last.prompt.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User]);
    let documents =
        "<information>Doc 1(Title: \"Fox\") A fox is red.\nIt lives in the wood.</information>";
    assert_eq!(last.prompt[2].content, documents);
    assert_eq!(episode.answer.as_deref(), Some("red"));
}

#[test]
fn an_invalid_reply_is_marked_and_the_episode_goes_on() {
    let golden = golden();
    let url = serve(golden["documents"].as_array().unwrap().clone());
    let cases = golden["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["name"] == "no tags").unwrap();
    let episode = play(case, &url, false);
    let errors: Vec<bool> = episode.turns.iter().map(|turn| turn.error.is_some()).collect();
    assert_eq!(errors, [true, true, false]);
    assert_eq!(episode.answer.as_deref(), Some("4"));
    let searches = episode.score().unwrap().metrics["searches"].as_f64();
    assert_eq!(searches, Some(0.0));
}
