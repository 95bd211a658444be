//! A local hub of data sets: enough of the Hugging Face protocol to serve directories as revisions of repositories.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Fault of the hub for the files of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataFault {
    /// Denies access to the files.
    Gated,
    /// Changes a byte of each file.
    Damaged,
    /// Closes the connection after half of each file, and refuses what comes after it.
    Cut,
    /// Sends half of each file, and then nothing more.
    Stalled,
}

#[derive(Default)]
struct State {
    /// Directory of each repository and revision.
    revisions: BTreeMap<(String, String), PathBuf>,
    /// Directory of each commit.
    commits: BTreeMap<String, PathBuf>,
    faults: BTreeMap<String, DataFault>,
    /// Requests: path, and the first byte that was asked for.
    asked: Vec<(String, usize)>,
    /// Connections that wait for the rest of a file.
    stalled: Vec<TcpStream>,
}

/// A running hub; it is stopped when dropped.
pub struct DataHub {
    address: String,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Default for DataHub {
    fn default() -> Self {
        Self::start()
    }
}

impl DataHub {
    /// Starts a hub without data sets.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("a bound address"));
        let (state, stop) = (Arc::<Mutex<State>>::default(), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (Arc::clone(&state), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                // Errors of a client that disconnects are ignored.
                let _ = stream.and_then(|stream| serve(&shared, stream));
            }
        });
        Self { address, state, stop, thread: Some(thread) }
    }

    /// Returns the value for `HF_ENDPOINT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Makes a directory a revision of a repository, and returns its commit. Former commits stay.
    pub fn set(&self, repo: &str, revision: &str, dir: &Path) -> String {
        let commit = hash(&format!("{repo}/{}", dir.display()))[..40].to_owned();
        let mut state = lock(&self.state);
        state.commits.insert(commit.clone(), dir.to_owned());
        state.revisions.insert((repo.to_owned(), revision.to_owned()), dir.to_owned());
        state.revisions.insert((repo.to_owned(), commit.clone()), dir.to_owned());
        commit
    }

    /// Gives the files of a repository a fault, or none.
    pub fn fault(&self, repo: &str, fault: Option<DataFault>) {
        let mut state = lock(&self.state);
        match fault {
            Some(fault) => drop(state.faults.insert(repo.to_owned(), fault)),
            None => drop(state.faults.remove(repo)),
        }
    }

    /// Returns the requests since the last call: paths, and the first byte that was asked for.
    pub fn asked(&self) -> Vec<(String, usize)> {
        std::mem::take(&mut lock(&self.state).asked)
    }
}

impl Drop for DataHub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread; if the connection fails, it has ended.
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no thread panics with the lock")
}

/// Status, headers, whole body, and the number of bytes of it that are sent.
type Answer = (u16, String, Vec<u8>, usize);

fn serve(state: &Mutex<State>, mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (path, is_recursive) = (path.replace("%2F", "/"), query.contains("recursive=true"));
    let mut from = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.split('-').next().and_then(|from| from.parse().ok()).unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let (status, headers, body, sent) = {
        let mut state = lock(state);
        state.asked.push((path.clone(), from));
        state.answer(&path, from, is_recursive)
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    )?;
    if !first.starts_with("HEAD ") {
        stream.write_all(&body[..sent])?;
        if sent < length {
            lock(state).keep_stalled(&path, stream);
        }
    }
    Ok(())
}

impl State {
    fn answer(&self, path: &str, from: usize, is_recursive: bool) -> Answer {
        let listed = path.strip_prefix("/api/datasets/").map(|rest| {
            let end = rest.match_indices('/').nth(1).map_or(rest.len(), |(at, _)| at);
            let (repo, rest) = rest.split_at(end);
            if let Some(rest) = rest.strip_prefix("/tree/") {
                let (revision, folder) = rest.split_once('/').unwrap_or((rest, ""));
                return self.tree(repo, revision, folder, is_recursive);
            }
            self.listing(repo, rest.strip_prefix("/revision/").unwrap_or("main"))
        });
        let served = || {
            let rest = path.strip_prefix("/datasets/")?;
            let (repo, rest) = rest.split_once("/resolve/")?;
            let (revision, file) = rest.split_once('/')?;
            self.file(repo, revision, file, from)
        };
        listed.flatten().or_else(served).unwrap_or_else(|| {
            let code = if path.contains("/resolve/") { "EntryNotFound" } else { "RepoNotFound" };
            (404, format!("X-Error-Code: {code}\r\n"), Vec::new(), 0)
        })
    }

    /// Lists the files and folders in a folder, or all below it.
    fn tree(&self, repo: &str, revision: &str, folder: &str, is_recursive: bool) -> Option<Answer> {
        let dir = self.revisions.get(&(repo.to_owned(), revision.to_owned()))?;
        let (mut names, mut entries) = (Vec::new(), BTreeMap::new());
        collect_files(dir, "", &mut names);
        let within = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        for name in &names {
            let Some(rest) = name.strip_prefix(&within) else { continue };
            for (end, _) in rest.match_indices('/').take(if is_recursive { usize::MAX } else { 1 })
            {
                let path = format!("{within}{}", &rest[..end]);
                let entry =
                    json!({ "type": "directory", "path": path, "size": 0, "oid": "0".repeat(40) });
                entries.insert(path, entry);
            }
            if is_recursive || !rest.contains('/') {
                let content = fs::read(dir.join(name)).expect("a served file");
                let (size, oid) = (content.len(), &sha256(&content)[..40]);
                let entry = json!({ "type": "file", "path": name, "size": size, "oid": oid });
                entries.insert(name.clone(), entry);
            }
        }
        let body = Value::from_iter(entries.into_values()).to_string().into_bytes();
        let length = body.len();
        Some((200, "Content-Type: application/json\r\n".to_owned(), body, length))
    }

    fn listing(&self, repo: &str, revision: &str) -> Option<Answer> {
        let dir = self.revisions.get(&(repo.to_owned(), revision.to_owned()))?;
        let commit = self.commits.iter().find(|(_, other)| *other == dir)?.0;
        let mut names = Vec::new();
        collect_files(dir, "", &mut names);
        names.sort();
        let file = |name: &String| {
            let content = fs::read(dir.join(name)).expect("a served file");
            let large = name.ends_with(".parquet").then(
                || json!({ "sha256": sha256(&content), "size": content.len(), "pointerSize": 1 }),
            );
            let blob = &sha256(&content)[..40];
            json!({ "rfilename": name, "size": content.len(), "blobId": blob, "lfs": large })
        };
        let siblings: Vec<Value> = names.iter().map(file).collect();
        let listing = json!({ "id": repo, "sha": commit, "siblings": siblings });
        let body = listing.to_string().into_bytes();
        let length = body.len();
        Some((200, "Content-Type: application/json\r\n".to_owned(), body, length))
    }

    /// Keeps the connection of a file open, if its repository is stalled.
    fn keep_stalled(&mut self, path: &str, stream: TcpStream) {
        let mut stalled = self.faults.iter().filter(|(_, fault)| **fault == DataFault::Stalled);
        if stalled.any(|(repo, _)| path.contains(repo.as_str())) {
            self.stalled.push(stream);
        }
    }

    fn file(&self, repo: &str, revision: &str, file: &str, from: usize) -> Option<Answer> {
        let dir = self.revisions.get(&(repo.to_owned(), revision.to_owned()))?;
        let commit = self.commits.iter().find(|(_, other)| *other == dir)?.0;
        let mut content = fs::read(dir.join(file)).ok()?;
        let fault = self.faults.get(repo);
        match fault {
            Some(DataFault::Gated) => return Some((403, String::new(), Vec::new(), 0)),
            Some(DataFault::Cut) if from > 0 => return Some((500, String::new(), Vec::new(), 0)),
            _ => {}
        }
        let etag = sha256(&content);
        let etag = if file.ends_with(".parquet") { etag.as_str() } else { &etag[..40] };
        if fault == Some(&DataFault::Damaged)
            && let Some(byte) = content.last_mut()
        {
            *byte ^= 1;
        }
        let total = content.len();
        let mut headers = format!("X-Repo-Commit: {commit}\r\nETag: \"{etag}\"\r\n");
        let status = if from > 0 { 206 } else { 200 };
        if from > 0 {
            headers += &format!("Content-Range: bytes {from}-{}/{total}\r\n", total.max(1) - 1);
        }
        let body = content.split_off(from.min(total));
        let is_half = matches!(fault, Some(DataFault::Cut | DataFault::Stalled));
        let sent = if is_half { body.len() / 2 } else { body.len() };
        Some((status, headers, body, sent))
    }
}

/// Adds the names of the files below a directory.
fn collect_files(dir: &Path, prefix: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("a served directory").flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect_files(&entry.path(), &format!("{name}/"), names);
        } else {
            names.push(name);
        }
    }
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(text: &str) -> String {
    sha256(text.as_bytes())
}
