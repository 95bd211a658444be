#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::task::Context;

use serde_json::{Value, json};
use tokio::io::AsyncWrite as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::listener::patient::Patient;
use maverl::builtin::{Document, facts};
use maverl::env::search::{Index, Ranking, Retriever, RetrieverProtocol, SearchEnvironment};

/// Starts a server over the built-in corpus. Returns its address, a sender that stops it, and its task.
async fn started() -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let batched = Arc::new(BatchedSearch::new(Index::new(facts::corpus()).unwrap(), 10));
    let end = tokio::spawn(serve_retriever(listener, batched, async move {
        let _ = stopped.await;
    }));
    (address, stop, end)
}

/// Sends raw bytes and reads to the end.
async fn raw(address: SocketAddr, sent: impl Into<Vec<u8>>) -> (u16, Value) {
    let sent = sent.into();
    let exchange = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&sent).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_query_gets_the_documents_of_the_index() {
    let (address, stop, end) = started().await;
    let url = format!("http://{address}/retrieve");
    let retriever = Arc::new(Retriever::new(&url, None, Duration::from_secs(5), 0, 0));
    let corpus = facts::corpus();
    let index = Index::new(corpus.clone()).unwrap();
    for document in corpus.iter().step_by(97) {
        let query = &document.title;
        let found = index.search(&[query], 4).unwrap();
        let expected: Vec<Document> = found[0].iter().map(|hit| hit.document.clone()).collect();
        assert_eq!(retriever.search(query, 4).await.unwrap(), expected);
    }
    stop.send(()).unwrap();
    end.await.unwrap();
}

#[tokio::test]
async fn a_request_may_have_many_queries() {
    let (address, _stop, _end) = started().await;
    let titles: Vec<String> = facts::corpus().iter().take(40).map(|d| d.title.clone()).collect();
    let body = json!({"queries": titles, "topk": 2, "return_scores": true}).to_string();
    let (status, answer) = raw(address, post("/retrieve", &body)).await;
    let lists = answer["result"].as_array().unwrap();
    assert_eq!((status, lists.len()), (200, 40));
    let index = Index::new(facts::corpus()).unwrap();
    for (list, found) in lists.iter().zip(index.search(&titles, 2).unwrap()) {
        let expected = found.iter().map(|hit| {
            let Document { key, title, text, .. } = hit.document;
            let contents = format!("\"{title}\"\n{text}");
            json!({"document": {"id": key, "contents": contents}, "score": hit.score})
        });
        assert_eq!(*list, expected.collect::<Value>());
    }
    let bare = json!({"query": titles[0]}).to_string();
    let (_, answer) = raw(address, post("/retrieve", &bare)).await;
    assert!(answer["result"][0][0]["contents"].is_string(), "{answer}");
    assert_eq!(answer["result"][0].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn embeddings_from_a_file_are_served_in_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    let mut search = SearchEnvironment::default();
    (search.ranking, search.encoder) = (Ranking::Dense, "builtin:tiny".to_owned());
    search.max_tokens = 32;
    search.write_index(dir.path(), &dir.path().join("facts.index"), |_, _| ()).unwrap();
    search.index = "facts.index".to_owned();
    let index = search.index(dir.path()).unwrap();
    let batched = Arc::new(BatchedSearch::new(search.index(dir.path()).unwrap(), 0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/retrieve", listener.local_addr().unwrap());
    tokio::spawn(serve_retriever(listener, batched, std::future::pending()));
    for protocol in [RetrieverProtocol::SearchR1, RetrieverProtocol::DrMas] {
        let client = Retriever::new(&url, None, Duration::from_secs(60), 0, 0);
        let client = Arc::new(client.with_protocol(protocol));
        for query in ["Who wrote Magdor?", "", "a city"] {
            let found = index.search(&[query], 4).unwrap();
            let expected: Vec<Document> = found[0].iter().map(|hit| hit.document.clone()).collect();
            assert_eq!(client.search(query, 4).await.unwrap(), expected, "{protocol:?} {query:?}");
        }
    }
}

#[tokio::test]
async fn a_search_beyond_the_time_limit_is_refused() {
    let batched = Arc::new(BatchedSearch::new(Index::new(facts::corpus()).unwrap(), 0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = retriever(batched, Duration::ZERO);
    let limits = Limits::default();
    tokio::spawn(Listener::new(listener, limits).serve(routes, std::future::pending()));
    let titles: Vec<String> = facts::corpus().into_iter().map(|document| document.title).collect();
    let body = json!({"queries": titles}).to_string();
    let (status, answer) = raw(address, post("/retrieve", &body)).await;
    let message = answer["error"].as_str().unwrap();
    assert_eq!((status, message), (503, "the search took longer than 0 s; send fewer `queries`"));
}

#[tokio::test]
async fn a_bad_request_is_refused_and_ends_nothing_else() {
    let (address, _stop, _end) = started().await;
    let get = "GET /retrieve HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let long = format!(
        "POST /retrieve HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{{",
        MOST_BYTES + 1
    );
    for (sent, status, expected) in [
        (post("/", "{}"), 404, "there is nothing at `/`; POST to `/retrieve`"),
        (get.to_owned(), 405, "`/retrieve` takes POST, not GET"),
        (post("/retrieve", "who?"), 400, "the body is no `{\"queries\""),
        (post("/retrieve", r#"{"queries": []}"#), 400, "`queries` is empty"),
        (long, 413, "the body is longer than"),
    ] {
        let (found, answer) = raw(address, sent).await;
        let message = answer["error"].as_str().unwrap();
        assert!(found == status && message.starts_with(expected), "{found}: {message}");
    }
    let (status, _) = raw(address, post("/retrieve", r#"{"queries": ["city"]}"#)).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_stop_finishes_what_is_under_way_and_closes_idle_connections() {
    let (address, stop, end) = started().await;
    let idle = TcpStream::connect(address).unwrap();
    let mut busy = TcpStream::connect(address).unwrap();
    let request = post("/retrieve", r#"{"queries": ["city"]}"#);
    let (first, rest) = request.split_at(request.len() - 4);
    busy.write_all(first.as_bytes()).unwrap();
    // Both connections are accepted before the next client is answered.
    raw(address, post("/retrieve", r#"{"queries": ["city"]}"#)).await;
    stop.send(()).unwrap();
    busy.write_all(rest.as_bytes()).unwrap();
    let read = move || {
        let mut text = String::new();
        busy.read_to_string(&mut text).unwrap();
        text
    };
    let text = tokio::task::spawn_blocking(read).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    tokio::time::timeout(Duration::from_secs(600), end).await.unwrap().unwrap();
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
}

/// Sends a text in one piece, then closes the sending half.
async fn half_closed(address: SocketAddr, sent: String) -> String {
    let exchange = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

#[tokio::test]
async fn a_client_that_half_closes_gets_its_answer() {
    let (address, _stop, _end) = started().await;
    let body = r#"{"queries": ["city"]}"#;
    for sent in
        [post("/retrieve", body), post("/retrieve", body).replace("connection: close\r\n", "")]
    {
        let text = half_closed(address, sent).await;
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"result\""), "{text}");
    }
}

#[tokio::test]
async fn a_request_for_more_than_an_answer_may_have_is_refused() {
    let (address, _stop, _end) = started().await;
    let many = |n: usize, k: usize| json!({"queries": vec!["city"; n], "topk": k}).to_string();
    let (status, answer) = raw(address, post("/retrieve", &many(4096, 1000))).await;
    let message = answer["error"].as_str().unwrap();
    assert_eq!(status, 400);
    assert!(
        message.starts_with("4096 `queries` with `topk` 1000 are 4096000 documents"),
        "{message}"
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let document = |i: usize| Document {
        key: i.to_string(),
        title: "city".to_owned(),
        text: "x".repeat(1 << 20),
        contents: None,
    };
    let index = Index::new((0..4).map(document).collect()).unwrap();
    tokio::spawn(serve_retriever(
        listener,
        Arc::new(BatchedSearch::new(index, 0)),
        std::future::pending(),
    ));
    assert_eq!(raw(address, post("/retrieve", &many(3, 4))).await.0, 200);
    let (status, answer) = raw(address, post("/retrieve", &many(4, 4))).await;
    let message = answer["error"].as_str().unwrap();
    assert_eq!(status, 413);
    assert!(
        message.starts_with("the answer has more than 16 MiB; send fewer `queries`"),
        "{message}"
    );
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _takes_nothing = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = Patient::new(stream, Duration::from_millis(50));
    let bytes = vec![0; 1 << 20];
    let error = loop {
        let write = |context: &mut Context<'_>| Pin::new(&mut stream).poll_write(context, &bytes);
        if let Err(error) = std::future::poll_fn(write).await {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_client_that_never_ends_its_request() {
    let (address, stop, end) = started().await;
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{").unwrap();
    raw(address, post("/retrieve", r#"{"queries": ["city"]}"#)).await;
    stop.send(()).unwrap();
    tokio::time::timeout(GRACE + Duration::from_secs(60), end).await.unwrap().unwrap();
}
