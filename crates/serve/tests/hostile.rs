//! Requests that attempt to exhaust the memory of a server: it answers, and its peak memory is printed.
//!
//! The server is a separate process, since the peak memory of a process cannot be reset.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use maverl::builtin::facts;
use maverl::env::search::{BatchedSearch, Index};
use maverl_serve::serve_retriever;

/// Variable with the address of a server in a child process; without it, the test runs.
const CASE: &str = "MAVERL_HOSTILE_CASE";

/// Returns the stride through the cases of a test: `n` in the first tier, 1 in the second (`MAVERL_FULL`).
fn stride(n: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { n }
}

/// Returns the peak memory of a process in MiB.
fn peak(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

/// Returns a command that runs this test as a server, in a separate process.
fn child(test: &str, case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, case);
    command
}

/// A process that serves the built-in corpus until it is killed.
struct Server(Child, SocketAddr);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(test: &str) -> Self {
        let mut child = child(test, "serve").stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        let mut output = child.stdout.take().unwrap();
        let address = loop {
            let mut buffer = [0; 256];
            let n = output.read(&mut buffer).unwrap();
            assert!(n > 0, "the server ended: {text}");
            text += &String::from_utf8_lossy(&buffer[..n]);
            let told = text.split_once(CASE).and_then(|(_, rest)| rest.split_once('\n'));
            if let Some((address, _)) = told {
                break address.trim().parse().unwrap();
            }
        };
        Self(child, address)
    }
}

/// Returns hostile requests, each as its bytes and the behavior of its client.
fn requests() -> Vec<(Vec<u8>, Client)> {
    let post = |body: &[u8]| {
        let head = format!(
            "POST /retrieve HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let queries = |n: usize, k: usize, text: &str| {
        let queries = vec![format!("\"{text}\""); n].join(",");
        post(
            format!("{{\"queries\": [{queries}], \"topk\": {k}, \"return_scores\": true}}")
                .as_bytes(),
        )
    };
    let declared = |bytes: &str| {
        format!("POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-length: {bytes}\r\n\r\n{{")
            .into_bytes()
    };
    let chunked = b"POST /retrieve HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{";
    let long_head = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(1 << 20));
    let many_heads = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    let mut requests = vec![
        (queries(4096, 1000, "city"), Client::Waits),
        (queries(4096, 16, "city capital author born"), Client::Waits),
        (queries(4096, 16, "city"), Client::Leaves),
        (queries(4096, 16, "river"), Client::TakesNothing),
        (queries(60, 1000, "who"), Client::HalfCloses),
        (queries(100_000, 1, ""), Client::Waits),
        (queries(1, 3, &"city ".repeat(300_000)), Client::Waits),
        (post(&[b"{\"queries\": ", &b"[".repeat(1 << 20)[..]].concat()), Client::Waits),
        (post(&[b"{\"queries\": [\"", &[0xff; 1 << 16][..], b"\"]}"].concat()), Client::Waits),
        (post(&b"[".repeat(3 << 20)), Client::Waits),
        (declared("18446744073709551615"), Client::Leaves),
        (declared("-1"), Client::Waits),
        (declared("2000000"), Client::HalfCloses),
        (chunked.to_vec(), Client::Leaves),
        (long_head.into_bytes(), Client::Waits),
        (many_heads.into_bytes(), Client::Waits),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), Client::Leaves),
        (Vec::new(), Client::Leaves),
    ];
    // Short requests are the majority.
    for i in 0..82_u8 {
        let body = match i % 8 {
            0 => "{\"queries\": [\"city\"]}".to_owned(),
            1 => format!("{{\"queries\": [\"{i}\"], \"topk\": {}}}", i64::from(i) - 40),
            2 => "{\"queries\": {}}".to_owned(),
            3 => format!("{{\"query\": {i}}}"),
            4 => format!("{{\"queries\": [\"\\ud8{i:02}\"]}}"),
            5 => "{\"queries\": [\"a\"], \"topk\": 1e400}".to_owned(),
            6 => format!("{{\"queries\": [\"{}\"]}}", "\\u0000".repeat(usize::from(i))),
            _ => "x".repeat(usize::from(i) * 99),
        };
        let client = [Client::Waits, Client::Leaves, Client::HalfCloses][usize::from(i) % 3];
        requests.push((post(body.as_bytes()), client));
    }
    requests
}

#[derive(Clone, Copy, PartialEq)]
enum Client {
    Waits,
    Leaves,
    HalfCloses,
    TakesNothing,
}

fn ask(address: SocketAddr, bytes: &[u8], client: Client) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    let patience = Some(Duration::from_secs(600));
    let _ = stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience));
    // The server may refuse it before all of it was sent.
    let _ = stream.write_all(bytes);
    match client {
        Client::Leaves => {}
        Client::TakesNothing => std::thread::sleep(Duration::from_millis(300)),
        Client::HalfCloses => {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        Client::Waits => drop(std::io::copy(&mut stream, &mut std::io::sink())),
    }
}

#[test]
fn thousands_of_hostile_requests_leave_a_server_that_answers_in_bounded_memory() {
    if std::env::var(CASE).is_ok() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            println!("{CASE} {}", listener.local_addr().unwrap());
            let batched = BatchedSearch::new(Index::new(facts::corpus()).unwrap(), 4096);
            serve_retriever(listener, Arc::new(batched), std::future::pending()).await;
        });
        return;
    }
    let test = "thousands_of_hostile_requests_leave_a_server_that_answers_in_bounded_memory";
    let server = Server::start(test);
    let process = server.0.id().to_string();
    let (address, before, begin) = (server.1, peak(&process), Instant::now());
    let requests = requests();
    assert_eq!(requests.len(), 100);
    let count = 10_000 / stride(5);
    std::thread::scope(|scope| {
        for client in 0..16 {
            let requests = &requests;
            scope.spawn(move || {
                // Each of the hundred requests a hundred times (in the first tier twenty times), 16 at once. Long ones are
                // less frequent.
                for i in (client..count).step_by(16) {
                    let (bytes, client) = &requests[i % 100];
                    match i % 100 {
                        0..6 if i >= 1000 => {
                            ask(address, &bytes[..bytes.len() / 2], Client::Leaves)
                        }
                        _ => ask(address, bytes, *client),
                    }
                }
            });
        }
    });
    let held = peak(&process);
    let seconds = begin.elapsed().as_secs_f64();
    println!("{count} requests in {seconds:.1} s: {before} MiB before, {held} MiB at most");
    let mut stream = TcpStream::connect(address).unwrap();
    let body = "{\"queries\": [\"city\"]}";
    let head =
        "POST /retrieve HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 21\r\n\r\n";
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(held - before <= 768, "{held} MiB");
}
