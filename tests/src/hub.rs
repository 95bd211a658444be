//! A local hub: enough of the Hugging Face protocol to serve one repository from a directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

/// Name of the served repository.
pub const REPO: &str = "org/tiny";
/// Commit of its only revision, `main`.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Fault of the server for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with a status.
    Status(u16),
    /// Sends the first half of the file, as if it were complete.
    Short,
    /// Changes a byte of the file.
    Damaged,
    /// Redirects to another server, which has the file.
    Elsewhere,
    /// Redirects to itself without an end.
    Loop,
    /// Gives a header another value, as it is.
    Header(&'static str, String),
    /// Answers with a text, as it is, instead of the file or of the listing.
    Text(String),
    /// Does not answer until the client goes away.
    Hang,
    /// Sends the file, and goes on with bytes until the client goes away. States the size, or does not.
    Endless(bool),
    /// Lists no size of the file. The answer states this one, or none, and goes on until the client goes away.
    Unlisted(Option<u64>),
    /// Sends the file byte by byte, with a pause after each.
    Drip,
    /// Closes the connection after half of what was asked for, once.
    Interrupted,
}

/// A received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Path with its query.
    pub path: String,
    /// Authorization header.
    pub authorization: Option<String>,
    /// Range header.
    pub range: Option<String>,
}

struct State {
    dir: PathBuf,
    /// Faults by file, or `""` for the repository itself.
    faults: BTreeMap<String, Fault>,
    asked: Mutex<Vec<Asked>>,
    /// Address of another server with the files.
    elsewhere: Option<String>,
    /// Bytes of files that were sent.
    sent: AtomicU64,
    interrupted: AtomicBool,
    stop: AtomicBool,
}

/// A running server; it is stopped when dropped.
pub struct HubServer {
    address: String,
    state: Arc<State>,
    second: Option<Box<Self>>,
    thread: Option<JoinHandle<()>>,
}

impl HubServer {
    /// Serves the files of a directory, some of them with faults; [`Fault::Elsewhere`] starts a second server.
    pub fn start(dir: &Path, faults: &[(&str, Fault)]) -> Self {
        let second = faults.iter().any(|(_, fault)| *fault == Fault::Elsewhere);
        let second = second.then(|| Box::new(Self::start(dir, &[])));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("a bound address"));
        let state = Arc::new(State {
            dir: dir.to_owned(),
            faults: faults
                .iter()
                .map(|(file, fault)| ((*file).to_owned(), fault.clone()))
                .collect(),
            asked: Mutex::default(),
            elsewhere: second.as_ref().map(|second| second.address.clone()),
            sent: AtomicU64::new(0),
            interrupted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                // Errors of a client that disconnects are ignored.
                let _ = stream.and_then(|stream| shared.serve(stream));
            }
        });
        Self { address, state, second, thread: Some(thread) }
    }

    /// Returns the value for `HF_ENDPOINT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the requests since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.state.asked())
    }

    /// Returns the requests that the server of [`Fault::Elsewhere`] received since the last call.
    pub fn asked_elsewhere(&self) -> Vec<Asked> {
        self.second.as_ref().map(|second| second.asked()).unwrap_or_default()
    }

    /// Returns the number of bytes of files that were sent.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        // Wakes the thread; if the connection fails, it has ended.
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Response: status, headers, body.
type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

impl State {
    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().expect("no thread panics with the lock")
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = BTreeMap::new();
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let authorization = headers.get("authorization").cloned();
        let range = headers.get("range").cloned();
        self.asked().push(Asked { path: path.clone(), authorization, range: range.clone() });
        let (status, more, body) = self.answer(&path, range.as_deref());
        let fault = self.fault(&path);
        if fault == Some(&Fault::Hang) {
            return stream.read(&mut [0]).map(drop);
        }
        write!(stream, "HTTP/1.1 {status} x\r\nConnection: close\r\n")?;
        if !matches!(fault, Some(Fault::Endless(false) | Fault::Unlisted(_))) {
            write!(stream, "Content-Length: {}\r\n", body.len())?;
        }
        for (name, value) in more {
            write!(stream, "{name}: {value}\r\n")?;
        }
        stream.write_all(b"\r\n")?;
        if fault == Some(&Fault::Interrupted) && !self.interrupted.swap(true, Ordering::SeqCst) {
            return self.send(&mut stream, &body[..body.len() / 2]);
        }
        if fault == Some(&Fault::Drip) {
            for byte in body {
                self.send(&mut stream, &[byte])?;
                std::thread::sleep(Duration::from_millis(50));
            }
            return Ok(());
        }
        self.send(&mut stream, &body)?;
        // One GiB is without an end to the test, and an end to the disk of a client that stores it.
        for _ in 0..(1 << 14) * usize::from(is_endless(fault)) {
            self.send(&mut stream, &[b'0'; 1 << 16])?;
        }
        Ok(())
    }

    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
        stream.write_all(bytes)?;
        self.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the fault of what a path names.
    fn fault(&self, path: &str) -> Option<&Fault> {
        let path = path.split('?').next().unwrap_or_default();
        let file = path.strip_prefix(&format!("/{REPO}/resolve/{COMMIT}/"));
        self.faults.get(file.unwrap_or_default())
    }

    fn answer(&self, path: &str, range: Option<&str>) -> Answer {
        let path = path.split('?').next().unwrap_or_default();
        let nothing = |status| (status, Vec::new(), Vec::new());
        if path == format!("/api/models/{REPO}/revision/main")
            || path == format!("/api/models/{REPO}/revision/{COMMIT}")
        {
            return match self.faults.get("") {
                Some(Fault::Status(status)) => nothing(*status),
                Some(Fault::Text(text)) => (200, Vec::new(), text.clone().into_bytes()),
                _ => (200, Vec::new(), self.listing().to_string().into_bytes()),
            };
        }
        let Some(name) = path.strip_prefix(&format!("/{REPO}/resolve/{COMMIT}/")) else {
            return nothing(404);
        };
        match fs::read(self.dir.join(name)) {
            Ok(content) => self.file(name, content, range),
            Err(_) => nothing(404),
        }
    }

    fn file(&self, name: &str, mut content: Vec<u8>, range: Option<&str>) -> Answer {
        let etag = format!("\"{}\"", etag(name));
        let commit = ("X-Repo-Commit", COMMIT.to_owned());
        let total = content.len();
        let mut headers = vec![("X-Repo-Commit", COMMIT.to_owned()), ("ETag", etag.clone())];
        match self.faults.get(name) {
            Some(Fault::Status(status)) => return (*status, Vec::new(), Vec::new()),
            Some(Fault::Elsewhere) => {
                let at = self.elsewhere.as_deref().unwrap_or_default();
                let location = ("Location", format!("{at}/{REPO}/resolve/{COMMIT}/{name}"));
                return (302, vec![commit, location, ("X-Linked-Etag", etag)], Vec::new());
            }
            Some(Fault::Loop) => {
                let location = ("Location", format!("/{REPO}/resolve/{COMMIT}/{name}"));
                return (302, vec![commit, location], Vec::new());
            }
            Some(Fault::Header(name, value)) => {
                headers.retain(|(other, _)| other != name);
                headers.push((name, value.clone()));
            }
            Some(Fault::Text(text)) => return (200, headers, text.clone().into_bytes()),
            Some(Fault::Endless(false) | Fault::Unlisted(None)) => return (200, headers, content),
            Some(Fault::Unlisted(Some(size))) => {
                headers.push(("Content-Range", format!("bytes 0-{}/{size}", size - 1)));
            }
            Some(Fault::Short) => content.truncate(total / 2),
            Some(Fault::Damaged) => content[total / 2] ^= 1,
            _ => {}
        }
        let asked = range.and_then(|range| range.strip_prefix("bytes="));
        let (from, to) = asked.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
        let from = from.parse().unwrap_or(0).min(content.len());
        let to = to.parse::<usize>().map_or(content.len(), |to| to + 1).min(content.len());
        let body = content[from..to.max(from)].to_vec();
        let range = format!("bytes {from}-{}/{total}", to.max(1) - 1);
        if headers.iter().all(|(name, _)| *name != "Content-Range") {
            headers.push(("Content-Range", range));
        }
        (206, headers, body)
    }

    /// Lists the sizes of all files, and checksums of the large ones.
    fn listing(&self) -> Value {
        let mut names = names_in(&self.dir, "");
        names.sort();
        let file = |name: &String| {
            let content = fs::read(self.dir.join(name)).expect("a served file");
            let lfs = name.ends_with(".safetensors").then(|| json!({ "sha256": sha256(&content) }));
            let is_listed = !matches!(self.faults.get(name), Some(Fault::Unlisted(_)));
            json!({ "rfilename": name, "size": is_listed.then_some(content.len()), "lfs": lfs })
        };
        json!({ "sha": COMMIT, "siblings": names.iter().map(file).collect::<Vec<Value>>() })
    }
}

/// Returns the names of all files in a directory and below, after a prefix.
fn names_in(dir: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the served directory");
    let names = entries.flat_map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}{name}");
        if path.is_dir() { names_in(&path, &format!("{name}/")) } else { vec![name] }
    });
    names.collect()
}

/// True if bytes follow a file until the client goes away.
fn is_endless(fault: Option<&Fault>) -> bool {
    matches!(fault, Some(Fault::Endless(_) | Fault::Unlisted(_)))
}

/// Returns an ETag that is a valid file name and identifies the file.
fn etag(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
