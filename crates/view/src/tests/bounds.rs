//! Bounds of the server: sizes of answers, searches at once, requests that are no requests.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use tokio::net::TcpListener;

use super::*;
use crate::report::analyses::search::RunningSearch;
use crate::report::rows::selection::RowSelection;

/// Requests of the test of malformed requests.
const REQUESTS: u64 = 10_000;
/// Header of requests after which the server closes the connection.
const CLOSE: &str = "Connection: close\r\n";
/// Most memory that they may take, in MiB.
const MIB: u64 = 48;

#[test]
fn an_answer_of_more_than_8_mib_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    let mut one = episode("train-0", 0, true, 1);
    one.turns[0].reply = "x".repeat(9 << 20);
    written.played(1, &[one, episode("train-1", 0, true, 1)]);
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (status, episode) = ask(&viewer, "api/runs/0/episodes/train/1/0");
    assert_eq!((status, &episode["turns"][0]["reply"]["chars"]), (200, &json!(9 << 20)));
    let (status, refusal) = ask(&viewer, "api/runs/0/episodes/train/1/0/turns/0");
    assert_eq!((status, &refusal["error"]), (413, &json!("the answer has more than 8 MiB")));
    assert_eq!(ask(&viewer, "api/runs/0/episodes/train/1/1/turns/0").0, 200);
}

#[test]
fn a_fifth_search_waits_until_one_of_four_has_ended() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (run, mut running) = (Arc::clone(&viewer.find_run("0").unwrap().run), Vec::new());
    let _alone = SEARCHING.write().unwrap_or_else(PoisonError::into_inner);
    while let Ok(search) = RunningSearch::begin(&run, "Lima", &RowSelection::default()) {
        running.push(search);
        assert!(running.len() <= 4, "four at once");
    }
    let searched = || ask(&viewer, "api/runs/0/search?q=Lima");
    let (status, refusal) = searched();
    assert_eq!(status, 503);
    assert!(refusal["error"].as_str().unwrap().contains("four searches are running"), "{refusal}");
    drop(running);
    let start = Instant::now();
    while searched().0 == 503 {
        assert!(
            start.elapsed() < Duration::from_secs(600),
            "a search that is gone lets others begin"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_page_above_its_size_is_refused_with_the_number_of_episodes_that_fit() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (choice, out) = (PageChoice { episodes: 200, steps: None }, home.path().join("page.html"));
    let page = viewer.write_page(&choice, &out).unwrap();
    assert_eq!((page.episodes, page.bytes as u64), (16, fs::metadata(&out).unwrap().len()));
    fs::remove_file(&out).unwrap();
    let error = viewer.write_page_within(page.bytes / 2, &choice, &out).unwrap_err();
    let PageError::TooLarge { bytes, fits } = &error else { panic!("{error}") };
    assert!(*bytes >= page.bytes - 64 && (5..8).contains(fits), "{bytes} {fits}");
    assert!(error.to_string().contains(&format!("`--episodes {fits}`")), "{error}");
    assert!(error.to_string().contains("more than 32 MiB"), "{error}");
    assert!(!out.exists(), "nothing is written");
    viewer.write_page_within(1, &choice, &home.path().join("pages")).unwrap();
}

#[test]
fn events_go_on_after_the_last_one_that_a_page_has_seen() {
    let home = tempfile::tempdir().unwrap();
    let mut written = run(&home.path().join("a"));
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let first = |last: Option<&str>| {
        let mut parts = event_stream(viewer.watched_runs(), last).unwrap();
        String::from_utf8(parts.next().unwrap()).unwrap()
    };
    let text = first(None);
    assert!(text.contains("event: rows"), "{text}");
    let id = text.lines().next().unwrap().strip_prefix("id: ").unwrap();
    let again = first(Some(id));
    assert!(!again.contains("event: rows") && again.contains("event: run"), "{again}");
    written.step(4);
    std::thread::sleep(Duration::from_millis(600));
    let news = first(Some(id));
    assert!(news.contains("event: rows") && news.contains("\"step\":4"), "{news}");
    assert!(first(Some("no:id;;0")).contains("event: rows"), "an id that is none counts as none");
}

/// Sends bytes to the server and reads all that comes. A request that does not ask the server to close the connection
/// closes its own direction.
fn sent(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
    // The server may close before all is sent.
    let _ = stream.write_all(bytes);
    if !bytes.windows(CLOSE.len()).any(|part| part == CLOSE.as_bytes()) {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// A sequence of numbers that look random.
fn next(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) as usize
}

/// Returns bytes that are no request that the server should answer.
fn malformed(key: &str, seed: &mut u64) -> Vec<u8> {
    let random =
        |seed: &mut u64, n: usize| -> Vec<u8> { (0..n).map(|_| next(seed) as u8).collect() };
    let host = "Host: localhost\r\n";
    match next(seed) % 9 {
        0 => random(seed, 200),
        1 => format!("GET {key} HTTP/9.9\r\n{host}{CLOSE}\r\n").into_bytes(),
        2 => format!("GET {key}api/runs HTTP/1.1\r\n{host}X: {}", "x".repeat(next(seed) % 5000))
            .into_bytes(),
        3 => format!("POST {key} HTTP/1.1\r\n{host}Content-Length: 99999999999\r\n\r\nx")
            .into_bytes(),
        4 => format!("GET {key} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nffffffff\r\n")
            .into_bytes(),
        5 => format!("GET {key} HTTP/1.1\r\n{CLOSE}{}\r\n", "A: b\r\n".repeat(next(seed) % 300))
            .into_bytes(),
        6 => format!("GET {key}{} HTTP/1.1\r\n{host}{CLOSE}\r\n", "%".repeat(next(seed) % 20_000))
            .into_bytes(),
        7 => [
            b"GET / HTTP/1.1\r\nConnection: close\r\nHost: ",
            random(seed, 40).as_slice(),
            b"\r\n\r\n",
        ]
        .concat(),
        _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".repeat(1 + next(seed) % 3),
    }
}

/// Runs in a process of its own, as memory is that of a process.
#[test]
#[ignore = "run by the test of malformed requests"]
fn malformed_requests_in_a_process_of_their_own() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let manifest = || maverl::run_dir::Manifest::of(&home.path().join("a")).unwrap();
    let before = manifest();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let (at, key) = (listener.local_addr().unwrap(), viewer.secret_path());
    runtime.spawn(serve_pages(listener, viewer, std::future::pending()));
    let good = format!("GET {key}api/runs/0 HTTP/1.1\r\nHost: localhost\r\n{CLOSE}\r\n");
    let works = || {
        let answer = String::from_utf8(sent(at, good.as_bytes())).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\"episodes\":56"),
            "{answer}"
        );
    };
    works();
    let mut seed = 7;
    // What is made once, as buffers of threads, is not counted.
    for _ in 0..REQUESTS / 10 {
        sent(at, &malformed(&key, &mut seed));
    }
    let memory = super::large::resident();
    for _ in 0..REQUESTS {
        let answer = sent(at, &malformed(&key, &mut seed));
        assert!(!answer.starts_with(b"HTTP/1.1 5"), "{}", String::from_utf8_lossy(&answer));
    }
    works();
    assert_eq!(manifest(), before, "nothing is written");
    let Some((before, after)) = memory.zip(super::large::resident()) else { return };
    println!("memory: {} MiB more", after.saturating_sub(before));
    assert!(after.saturating_sub(before) < MIB, "{before} to {after} MiB");
}

#[test]
fn ten_thousand_malformed_requests_over_tcp_take_no_memory_and_write_nothing() {
    let name = "tests::bounds::malformed_requests_in_a_process_of_their_own";
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program)
        .args(["--exact", name, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
