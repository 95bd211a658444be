//! A hub on this machine that takes uploads: one repository, commits, and a storage for large files beside it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The repository that uploads go to.
pub const REPO: &str = "org/trained";

/// Behavior of the simulated hub.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// The repository is there already.
    pub exists: bool,
    /// Every request with the token is answered with this status.
    pub refuses: Option<u16>,
    /// Large files come in parts of so many bytes.
    pub parts: Option<usize>,
    /// So many uploads to the storage fail first.
    pub failures: usize,
    /// Name of this machine in the addresses of the storage; that of the hub if it is empty.
    pub storage: &'static str,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Method and path.
    pub what: String,
    /// Authorization header of a request.
    pub authorization: Option<String>,
}

#[derive(Default)]
struct Held {
    sent: Vec<Sent>,
    created: Option<Value>,
    failures: usize,
    /// Uploaded bytes, by oid and part.
    stored: BTreeMap<(String, usize), Vec<u8>>,
    /// The files of the last commit.
    files: BTreeMap<String, Vec<u8>>,
    /// Number of large files.
    large: usize,
}

struct State {
    address: String,
    manner: Manner,
    held: Mutex<Held>,
    stop: AtomicBool,
}

/// A running server; it ends when it is dropped.
pub struct PushServer {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl PushServer {
    /// Starts a hub.
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("a bound address"));
        let held = Held { failures: manner.failures, ..Held::default() };
        let stop = AtomicBool::new(false);
        let state = Arc::new(State { address, manner, held: Mutex::new(held), stop });
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                // A client that goes away is its own affair.
                let _ = stream.and_then(|stream| shared.serve(stream));
            }
        });
        Self { state, thread: Some(thread) }
    }

    /// Value of `HF_ENDPOINT`.
    pub fn address(&self) -> &str {
        &self.state.address
    }

    /// Every request so far.
    pub fn sent(&self) -> Vec<Sent> {
        self.state.held().sent.clone()
    }

    /// Body of the request that created the repository; `None` if it was not created.
    pub fn created(&self) -> Option<Value> {
        self.state.held().created.clone()
    }

    /// The files of the last commit, and how many of them were large.
    pub fn files(&self) -> (BTreeMap<String, Vec<u8>>, usize) {
        let held = self.state.held();
        (held.files.clone(), held.large)
    }
}

impl Drop for PushServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        // Wakes the thread up; if nobody listens any more, it has ended.
        let _ = TcpStream::connect(self.state.address.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no thread panics with the lock")
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let authorization = headers.get("authorization").cloned();
        let what = format!("{method} {path}");
        self.held().sent.push(Sent { what, authorization: authorization.clone() });
        let refused = self.manner.refuses.filter(|_| authorization.is_some());
        let (status, etag, answer) = match refused {
            Some(status) => (status, None, "no, thank you".to_owned()),
            None => self.answer(method, path, body),
        };
        let etag = etag.map(|etag| format!("ETag: {etag}\r\n")).unwrap_or_default();
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status} x\r\nConnection: close\r\n{etag}Content-Length: {}\r\n\r\n{answer}",
            answer.len()
        )
    }

    fn answer(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, Option<String>, String) {
        let json = |status, value: Value| (status, None, value.to_string());
        if let Some(place) = path.strip_prefix("/storage/").filter(|_| method == "PUT") {
            let mut held = self.held();
            if held.failures > 0 {
                held.failures -= 1;
                return (503, None, "busy".to_owned());
            }
            let place = place.split('?').next().unwrap_or_default();
            let (oid, part) = place.split_once('/').unwrap_or((place, "1"));
            let part = part.parse().expect("the number of a part");
            held.stored.insert((oid.to_owned(), part), body);
            return (200, Some(format!("\"{part}\"")), String::new());
        }
        if path == format!("/api/models/{REPO}/commit/main") {
            self.commit(&String::from_utf8(body).expect("lines of text"));
            return json(200, json!({"commitUrl": format!("{}/{REPO}/commit/1", self.address)}));
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match path {
            "/api/repos/create" if self.manner.exists => (409, None, "it exists".to_owned()),
            "/api/repos/create" => {
                self.held().created = Some(body);
                json(200, json!({"url": format!("{}/{REPO}", self.address)}))
            }
            _ if path == format!("/api/models/{REPO}/preupload/main") => {
                let mode = |file: &Value| {
                    let name = file["path"].as_str().expect("a path");
                    let large = name.ends_with(".safetensors");
                    let mode = if large { "lfs" } else { "regular" };
                    json!({"path": name, "uploadMode": mode, "shouldIgnore": false})
                };
                let files = body["files"].as_array().expect("files").iter().map(mode);
                json(200, json!({"files": files.collect::<Vec<_>>()}))
            }
            _ if path == format!("/{REPO}.git/info/lfs/objects/batch") => {
                let objects = body["objects"].as_array().expect("objects").iter();
                let objects: Vec<Value> = objects.map(|object| self.action(object)).collect();
                json(200, json!({"transfer": "basic", "objects": objects}))
            }
            "/complete" => {
                let parts = body["parts"].as_array().expect("parts");
                let fine = parts.iter().all(|p| p["etag"] == format!("\"{}\"", p["partNumber"]));
                json(if fine { 200 } else { 400 }, json!({}))
            }
            "/verify" => {
                let found = self.content(body["oid"].as_str().unwrap_or_default()).len();
                json(if body["size"] == found { 200 } else { 400 }, json!({}))
            }
            _ => (404, None, format!("nothing at {path}")),
        }
    }

    /// Where an object is to be put; nowhere, if it is there.
    fn action(&self, object: &Value) -> Value {
        let (oid, size) = (object["oid"].as_str().expect("an oid"), &object["size"]);
        if self.held().stored.keys().any(|(stored, _)| stored == oid) {
            return json!({"oid": oid, "size": size});
        }
        let storage = match self.manner.storage {
            "" => self.address.clone(),
            name => self.address.replace("127.0.0.1", name),
        };
        let verify = json!({"href": format!("{storage}/verify")});
        let place = format!("{storage}/storage/{oid}");
        let Some(length) = self.manner.parts else {
            let upload = json!({"href": format!("{place}?signature=s")});
            return json!({"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}});
        };
        let parts = size.as_u64().expect("a size").div_ceil(length as u64);
        let mut header = json!({"chunk_size": length.to_string()});
        for part in 1..=parts {
            header[part.to_string()] = format!("{place}/{part}").into();
        }
        let upload = json!({"href": format!("{storage}/complete"), "header": header});
        json!({"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}})
    }

    /// Returns the uploaded bytes of an object, parts in order.
    fn content(&self, oid: &str) -> Vec<u8> {
        let held = self.held();
        let parts = held.stored.iter().filter(|((stored, _), _)| stored == oid);
        parts.flat_map(|(_, part)| part.iter().copied()).collect()
    }

    fn commit(&self, lines: &str) {
        let (mut files, mut large) = (BTreeMap::new(), 0);
        for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
            let value = &line["value"];
            let content = match line["key"].as_str() {
                Some("file") => decoded(value["content"].as_str().expect("content")),
                Some("lfsFile") => {
                    let oid = value["oid"].as_str().expect("an oid");
                    let content = self.content(oid);
                    let sha: String =
                        Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
                    assert_eq!(
                        (sha.as_str(), value["size"].as_u64()),
                        (oid, Some(content.len() as u64))
                    );
                    large += 1;
                    content
                }
                _ => continue,
            };
            files.insert(value["path"].as_str().expect("a path").to_owned(), content);
        }
        let mut held = self.held();
        (held.files, held.large) = (files, large);
    }
}

/// The bytes of a text in base64.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let bytes = text.chunks(4).flat_map(|chunk| {
        let bits = chunk.iter().fold(0, |bits, c| bits << 6 | digit(*c)) << (6 * (4 - chunk.len()));
        bits.to_be_bytes().into_iter().skip(1).take(chunk.len() - 1)
    });
    bytes.collect()
}
