//! The trace of a run in Perfetto's own pages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use super::browser::Browser;
use super::exports::extracted;
use super::*;

/// Serves the files of a directory, and returns the address.
fn served(dir: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = format!("http://{}/", listener.local_addr().unwrap());
    let answer = move |stream: std::net::TcpStream| {
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        lines.take_while(|line| !line.is_empty()).for_each(drop);
        let path = first.split([' ', '?']).nth(1).unwrap_or_default().trim_start_matches('/');
        let path = if path.is_empty() { "index.html" } else { path };
        let kind = match path.rsplit('.').next() {
            Some("html") => "text/html",
            Some("js") => "text/javascript",
            Some("css") => "text/css",
            Some("wasm") => "application/wasm",
            _ => "application/octet-stream",
        };
        let (status, bytes) = match fs::read(dir.join(path)) {
            Ok(bytes) => ("200 OK", bytes),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            bytes.len()
        );
        // The browser may have closed the connection.
        let _ = (&stream).write_all(&[head.into_bytes(), bytes].concat());
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer(stream));
        }
    });
    home
}

#[test]
fn a_trace_opens_in_perfetto_without_an_error_and_with_all_of_its_slices() {
    let ui = std::env::var_os("MAVERL_TEST_DATA").map(|data| Path::new(&data).join("perfetto"));
    let Some(ui) = ui.filter(|ui| ui.join("index.html").is_file()) else {
        println!("skipped: MAVERL_TEST_DATA has no folder `perfetto` with the pages of Perfetto");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let text = fs::read_to_string(extracted(home.path(), ExtractPart::Trace, "t.json")).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let mut slices: BTreeMap<&str, usize> = BTreeMap::new();
    let mut counts = 0;
    for event in trace["traceEvents"].as_array().unwrap() {
        match event["ph"].as_str().unwrap() {
            "b" | "X" => *slices.entry(event["name"].as_str().unwrap()).or_default() += 1,
            "C" => counts += event["args"].as_object().unwrap().len(),
            _ => {}
        }
    }
    let Some(mut browser) = Browser::open("http://127.0.0.1", 1200, 800) else { return };
    browser.visit(&format!("{}#!/viewer", served(ui)));
    browser.wait("document.readyState === 'complete' && 'app' in window");
    // The protocol of its pages: they answer PING once they take a trace.
    let sent = browser.value(&format!(
        "new Promise((done) => {{ \
           const timer = setInterval(() => postMessage('PING', '*'), 50); \
           addEventListener('message', ({{ data }}) => {{ \
             if (data !== 'PONG') return; \
             clearInterval(timer); \
             postMessage({{ perfetto: {{ buffer: new TextEncoder().encode({}).buffer, title: 'a' }} }}, '*'); \
             done('sent'); }}); }})",
        json!(text)
    ));
    assert_eq!(sent, "sent");
    browser.wait("Boolean(window.app.trace)");
    let mut found = |sql: &str| {
        let row = "const row = found.iter({}); return row.valid() ? String(row.get(found.columns()[0])) : '';";
        browser
            .value(&format!("app.trace.engine.query({}).then((found) => {{ {row} }})", json!(sql)))
    };
    let errors = "select group_concat(name) from stats where severity in ('error', 'data_loss') and value > 0";
    assert_eq!(found(errors), "null");
    for (name, n) in slices {
        let sql = format!("select count(*) from slice where name = '{name}' and dur >= 0");
        assert_eq!(found(&sql), n.to_string(), "{name}");
    }
    assert_eq!(found("select count(*) from counter"), counts.to_string());
    // The requests are in tracks of the process, by seat.
    let tracks = "select group_concat(name) from (select distinct name from process_track where name like '%/%' order by name)";
    assert_eq!(found(tracks), SEATS.join(","));
}
