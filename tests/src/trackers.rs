//! A local server that answers as those of MLflow and trackio do, and keeps what it gets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde_json::{Value, json};

/// Manner in which the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As servers of trackers do.
    Fine,
    /// Accepts a request, and never answers.
    Hangs,
    /// Says that it is busy.
    Busy,
    /// Says that it has failed.
    Fails,
    /// Closes the connection in the middle of an answer.
    Closes,
    /// Answers two requests, and ends.
    Dies,
}

/// A point of a metric: run, name, step, value, time.
pub type Point = (String, String, u64, String, u64);

/// Rows and runs that a server has received.
#[derive(Debug, Default, Clone)]
pub struct Received {
    /// Runs of MLflow, with their last status.
    pub runs: BTreeMap<String, String>,
    /// Key of each run.
    keys: BTreeMap<String, String>,
    /// Points of metrics of MLflow. Equal ones are kept once, as it does.
    pub points: BTreeSet<Point>,
    /// Parameters of MLflow.
    pub params: BTreeMap<String, String>,
    /// Texts of MLflow, by path.
    pub artifacts: BTreeMap<String, String>,
    /// Rows of trackio, by `log_id`; the first of each is kept, as it does.
    pub logs: BTreeMap<String, Value>,
    /// Number of requests with rows.
    pub batches: usize,
}

/// A running server; it is stopped when dropped.
pub struct TrackerServer {
    address: String,
    state: Arc<Mutex<Received>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TrackerServer {
    /// Starts a server.
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("a bound address"));
        let state = Arc::<Mutex<Received>>::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&state), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            // Connections that are never answered stay open.
            let mut open = Vec::new();
            for (count, stream) in listener.incoming().flatten().enumerate() {
                if stopped.load(Ordering::SeqCst) || (manner == Manner::Dies && count > 1) {
                    return;
                }
                if manner == Manner::Hangs {
                    open.push(stream);
                    continue;
                }
                // Errors of a client that disconnects are ignored.
                let _ = serve(&shared, stream, manner);
            }
        });
        Self { address, state, stop, thread: Some(thread) }
    }

    /// Returns the address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns what the server has.
    pub fn received(&self) -> Received {
        lock(&self.state).clone()
    }
}

impl Drop for TrackerServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread; if the connection fails, it has ended.
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<Received>) -> MutexGuard<'_, Received> {
    state.lock().expect("no thread panics with the lock")
}

/// Answers the requests of a connection until the client closes it.
fn serve(state: &Mutex<Received>, mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(());
    }
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 2 {
        let header = line.to_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, answer) = match manner {
        Manner::Busy => (429, json!({})),
        Manner::Fails => (500, json!({})),
        _ => lock(state).answer(method, path, &body),
    };
    let answer = answer.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\nConnection: close\r\nRetry-After: 0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        answer.len() + usize::from(manner == Manner::Closes)
    )?;
    stream.write_all(answer.as_bytes())
}

impl Received {
    fn answer(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let run = json["run_id"].as_str().unwrap_or_default().to_owned();
        let route = path.strip_prefix("/api/2.0/mlflow/").unwrap_or(path);
        match (method, route) {
            ("GET", "experiments/get-by-name") => {
                (404, json!({ "error_code": "RESOURCE_DOES_NOT_EXIST" }))
            }
            ("POST", "experiments/create") => (200, json!({ "experiment_id": "1" })),
            ("POST", "runs/search") => {
                let filter = json["filter"].as_str().unwrap_or_default();
                let found = self.keys.iter().find(|(_, key)| filter.contains(key.as_str()));
                let runs: Vec<Value> =
                    found.iter().map(|(id, _)| json!({ "info": { "run_id": id } })).collect();
                (200, json!({ "runs": runs }))
            }
            ("POST", "runs/create") => {
                let id = format!("run-{}", self.runs.len());
                let key = json["tags"][0]["value"].as_str().unwrap_or_default();
                self.keys.insert(id.clone(), key.to_owned());
                self.runs.insert(id.clone(), "RUNNING".to_owned());
                (200, json!({ "run": { "info": { "run_id": id } } }))
            }
            ("GET", "runs/get") => {
                let id = query.trim_start_matches("run_id=");
                let uri = format!("mlflow-artifacts:/1/{id}/artifacts");
                let info = json!({ "run_id": id, "experiment_id": "1", "artifact_uri": uri });
                (200, json!({ "run": { "info": info } }))
            }
            ("POST", "runs/update") => {
                let status = json["status"].as_str().unwrap_or_default();
                self.runs.insert(run, status.to_owned());
                (200, json!({}))
            }
            ("POST", "runs/log-batch") => self.log_batch(&run, &json),
            ("PUT", path) => {
                let text = String::from_utf8_lossy(body).into_owned();
                self.artifacts.insert(path.to_owned(), text);
                (200, json!({}))
            }
            ("GET", "/version") => (200, json!({ "version": "0.43.0", "api_version": 1 })),
            ("POST", "/api/bulk_log") => {
                self.batches += 1;
                for log in json["logs"].as_array().into_iter().flatten() {
                    let id = log["log_id"].as_str().unwrap_or_default().to_owned();
                    self.logs.entry(id).or_insert_with(|| log.clone());
                }
                (200, json!({ "data": null }))
            }
            _ => (404, json!({ "error": path })),
        }
    }

    /// Keeps metrics and parameters, as far as MLflow takes them.
    fn log_batch(&mut self, run: &str, json: &Value) -> (u16, Value) {
        let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for param in list("params") {
            let (key, value) = (text(&param["key"]), text(&param["value"]));
            if self.params.get(&key).is_some_and(|known| *known != value) {
                return (
                    400,
                    json!({ "message": format!("the parameter {key} has another value") }),
                );
            }
            self.params.insert(key, value);
        }
        self.batches += usize::from(!list("metrics").is_empty());
        for metric in list("metrics") {
            let key = text(&metric["key"]);
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.:/ ".contains(c);
            if !key.chars().all(allowed) || list("metrics").len() > 1000 {
                return (400, json!({ "message": format!("{key} is no name of a metric") }));
            }
            let step = metric["step"].as_u64().unwrap_or_default();
            let time = metric["timestamp"].as_u64().unwrap_or_default();
            let value = metric["value"].to_string();
            self.points.insert((run.to_owned(), key, step, value, time));
        }
        (200, json!({}))
    }
}
