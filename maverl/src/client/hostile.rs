//! Servers that send what no server sends, or do not go on. Endpoints, retrievers, servers of rewards, rollout servers, and
//! the addresses of OpenEnv are asked by one client.
#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::*;

/// Bytes after which a server ends, if the client does not.
const END: u64 = 1 << 30;

/// Starts a server that writes `start`, and then `more` again and again with a pause. Returns its address, and the number of
/// bytes that it could write.
fn serve(start: &str, more: &str, pause: Duration) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (start, more) = (start.to_owned(), more.to_owned());
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let mut written = stream.write_all(start.as_bytes());
            while written.is_ok() && !more.is_empty() && count.load(Ordering::SeqCst) < END {
                std::thread::sleep(pause);
                written = stream.write_all(more.as_bytes());
                count.fetch_add(more.len() as u64, Ordering::SeqCst);
            }
            if start.is_empty() && more.is_empty() {
                std::thread::sleep(Duration::from_secs(60));
            }
        }
    });
    (url, sent)
}

/// Asks a server, and returns the error, which has the address and no key.
fn asked_error(url: &str, timeout: Duration) -> String {
    let key = Some("secret".to_owned());
    let client = Client::new(format!("{url}/v1"), key, timeout, 0, 1);
    let told = client.ask(&json!({"a": 1})).unwrap_err();
    assert!(told.starts_with(&format!("{url}/v1: ")) && !told.contains("secret"), "{told}");
    told
}

#[test]
fn an_answer_without_an_end_is_an_error_before_it_fills_the_memory() {
    let text = "a".repeat(1 << 16);
    let chunk = format!("10000\r\n{text}\r\n");
    let zeros = "0".repeat(1 << 16);
    let header = format!("A: {}\r\n", "a".repeat(1000));
    let cases = [
        ("HTTP/1.1 200 OK\r\n\r\n", text.as_str(), "longer than 32 MiB"),
        ("HTTP/1.1 500 X\r\n\r\n", &text, "longer than 32 MiB"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1152921504606846976\r\n\r\n",
            &text,
            "longer than 32 MiB",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &chunk, "longer than 32 MiB"),
        ("HTTP/1.1 200 OK\r\n", &header, ""),
        ("HTTP/1.1 200 OK\r\nA: ", &text, ""),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &zeros, ""),
        ("", &text, ""),
    ];
    for (start, more, told) in cases {
        let (url, sent) = serve(start, more, Duration::ZERO);
        let error = asked_error(&url, Duration::from_secs(600));
        assert!(error.contains(told), "{start}: {error}");
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < END / 2, "{start}: {sent} bytes");
    }
}

#[test]
fn an_answer_that_does_not_go_on_ends_with_the_time_for_all_of_it() {
    let cases = [
        ("", ""),
        ("HTTP/1.1 200 OK\r\n", "A: b\r\n"),
        ("HTTP/1.1 200 OK\r\n\r\n", "a"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "a"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n"),
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
    ];
    for (start, more) in cases {
        let (url, _) = serve(start, more, Duration::from_millis(20));
        let error = asked_error(&url, Duration::from_millis(500));
        // Some are refused before, such as too many headers.
        let late = error.contains("no answer within 0.5 s");
        assert!(late || more.starts_with("HTTP") || more == "A: b\r\n", "{start}{more}: {error}");
    }
}

#[test]
fn an_answer_of_another_length_than_it_says_or_of_no_form_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 99999 OK\r\n\r\n{}",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n{}",
        "HTTP/9.9 200 OK\r\n\r\n{}",
        "HTTP/1.1\r\n\r\n",
        "\0\0\0\0",
        "{}",
        "HTTP/1.1 200 OK\r\n",
    ] {
        let (url, _) = serve(answer, "", Duration::ZERO);
        asked_error(&url, Duration::from_secs(60));
    }
    // A body that goes on after its length, or states it twice, is read up to it.
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}garbage",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\ngarbage",
    ] {
        let (url, _) = serve(answer, "", Duration::ZERO);
        let client = Client::new(url, None, Duration::from_secs(60), 0, 1);
        assert_eq!(client.ask(&json!({})).as_deref(), Ok("{}"), "{answer}");
    }
}
