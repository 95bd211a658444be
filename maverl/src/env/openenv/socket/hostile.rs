//! Servers that send what no server of OpenEnv sends, or do not go on.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_tungstenite::accept_async;

use super::*;

/// Time that a test waits for an answer that does not come.
const SHORT: Duration = Duration::from_millis(500);
/// Time for an answer that comes.
const LONG: Duration = Duration::from_secs(60);

/// Starts a server that does the same with every connection, and returns its address.
async fn serve<F: Future<Output = ()> + Send + 'static>(
    each: impl Fn(TcpStream) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/ws", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(each(stream));
        }
    });
    url
}

/// Sends bytes again and again until the client goes away.
async fn repeat(stream: &mut TcpStream, bytes: &[u8]) {
    while stream.write_all(bytes).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_is_none_is_an_error_and_the_key_goes_nowhere_else() {
    let (elsewhere, asked) = crate::client::testing::serve(|_, _| Vec::new());
    let moved = format!("HTTP/1.1 302 X\r\nLocation: {elsewhere}/ws\r\nContent-Length: 0\r\n\r\n");
    let unaccepted = "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                      Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n";
    let cases = [
        (moved, ""),
        (unaccepted.to_owned(), ""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(), ""),
        ("\0\u{1}\u{2}\r\n\r\n".to_owned(), ""),
        ("HTTP/1.1 101 X\r\n".to_owned(), "A: b\r\n"),
        ("HTTP/1.1 101 X\r\nA: ".to_owned(), "aaaaaaaaaaaaaaaa"),
        (String::new(), ""),
    ];
    for (start, more) in cases {
        let silent = start.is_empty();
        let url = serve(move |mut stream| {
            let start = start.clone();
            async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(start.as_bytes()).await;
                if start.is_empty() {
                    std::future::pending::<()>().await;
                }
                if !more.is_empty() {
                    repeat(&mut stream, more.as_bytes()).await;
                }
            }
        });
        let limit = if silent { SHORT } else { LONG };
        let connected = Socket::connect(&url.await, Some("secret"), limit).await;
        let told = connected.err().unwrap();
        assert!(!told.contains("secret"), "{told}");
        assert!(!silent || told.contains("0.5 s"), "{told}");
    }
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_too_long_never_end_or_never_begin_are_errors() {
    // A frame of 2^62 bytes, fragments without a last one, pings without an answer, binary frames, and nothing.
    let (huge, text) = ([0x81, 127, 0x40, 0, 0, 0, 0, 0, 0, 0], [b'a'; 8192]);
    let [first, next] = [0x01, 0x00].map(|byte| [&[byte, 126, 0x20, 0][..], &text].concat());
    let cases: [(&str, Vec<u8>, Vec<u8>, bool); 6] = [
        ("huge", huge.to_vec(), text.to_vec(), true),
        ("fragments", first, next, true),
        ("pings", vec![], [&[0x89, 125][..], &text[..125]].concat(), false),
        ("binary", vec![], [&[0x82, 125][..], &text[..125]].concat(), false),
        ("reserved", vec![0xf1, 0], vec![], true),
        ("nothing", vec![], vec![], false),
    ];
    for (name, start, more, ends) in cases {
        let url = serve(move |stream| {
            let (start, more) = (start.clone(), more.clone());
            async move {
                let mut socket = accept_async(stream).await.unwrap();
                let _ = socket.next().await;
                let stream = socket.get_mut();
                let _ = stream.write_all(&start).await;
                if more.is_empty() {
                    std::future::pending::<()>().await;
                }
                repeat(stream, &more).await;
            }
        });
        let socket = Socket::connect(&url.await, None, LONG).await.unwrap();
        let limit = if ends { LONG } else { SHORT };
        let told = socket.sender().ask(&json!({"type": "reset"}), limit).await.unwrap_err();
        assert_eq!(told.contains("0.5 s"), !ends, "{name}: {told}");
        // A server that goes on does not keep the session from its end.
        socket.close().await;
    }
}
