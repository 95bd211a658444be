//! An inference server on this machine that speaks the protocol of SGLang or of vLLM, over the models of this workspace: its
//! log-probs are those of the trainer to the bit.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use maverl::files::{ModelFiles, ModelSource};
use maverl::net::Model;
use maverl::runtime::{Completion, Finish, Request, Sampling, complete};
use maverl::text::Tokenizer;
use serde_json::{Value, json};

/// Protocol of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `/generate`, `/update_weights_from_disk`, `/load_lora_adapter`.
    Sglang,
    /// `/v1/completions`, `/v1/load_lora_adapter`; for full weights `/inference/v1/generate` and the commands of its
    /// development mode.
    Vllm,
}

/// Behavior of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manner {
    /// It says that it loads weights, and does not.
    pub ignores_weights: bool,
    /// It keeps its embedding when it loads full weights, as a head that has a copy of it.
    pub keeps_embedding: bool,
    /// After so many generations it closes every connection.
    pub dies_after: Option<usize>,
    /// After so many generations it forgets the weights that it was given once, as after a restart.
    pub forgets_after: Option<usize>,
    /// So many times it does not reset its prefix cache, as while requests run.
    pub busy: usize,
    /// It was started without the development mode.
    pub plain: bool,
    /// It was started without `--enable-scale-out`.
    pub closed: bool,
    /// It was started with `--enable-return-routed-experts`.
    pub routes: bool,
    /// Its routers choose other experts than those of the trainer.
    pub other_experts: bool,
}

struct State {
    protocol: Protocol,
    manner: Manner,
    tokenizer: Arc<Tokenizer>,
    base: Mutex<Model>,
    /// The base as it started with it, and its directory.
    start: Model,
    dir: PathBuf,
    version: Mutex<String>,
    adapters: Mutex<BTreeMap<String, Model>>,
    generations: AtomicUsize,
    resets: AtomicUsize,
    forgot: AtomicBool,
    stop: AtomicBool,
}

/// A running server; it is stopped when dropped.
pub struct InferenceServer {
    url: String,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

/// Status and body of an answer; `None` to close the connection.
type Answer = Option<(u16, String)>;

impl InferenceServer {
    /// Serves the model of a directory.
    pub fn start(protocol: Protocol, dir: &Path, manner: Manner) -> Self {
        let files = ModelFiles::new(&ModelSource::Directory(dir.to_owned()));
        let start = Model::load(&files).expect("the directory holds a model");
        let state = Arc::new(State {
            protocol,
            manner,
            tokenizer: Arc::new(Tokenizer::load(&files).expect("the model has a tokenizer")),
            base: Mutex::new(start.clone()),
            start,
            dir: dir.to_owned(),
            version: Mutex::new("default".to_owned()),
            adapters: Mutex::default(),
            generations: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
            forgot: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound address"));
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let state = Arc::clone(&shared);
                // Errors of a client that disconnects are ignored.
                std::thread::spawn(move || drop(state.serve(stream)));
            }
        });
        Self { url, state, thread: Some(thread) }
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the number of generations so far.
    pub fn generations(&self) -> usize {
        self.state.generations.load(Ordering::SeqCst)
    }

    /// Returns the names of its adapters.
    pub fn adapters(&self) -> Vec<String> {
        lock(&self.state.adapters).keys().cloned().collect()
    }
}

impl Drop for InferenceServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        // Wakes the thread; if the connection fails, it has ended.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with the lock")
}

impl State {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let route = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(n) = line.strip_prefix("content-length:") {
                length = n.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some((status, text)) = self.answer(&route, &body) else { return Ok(()) };
        write!(
            stream,
            "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
    }

    fn answer(&self, route: &str, body: &Value) -> Answer {
        let done = self.generations.load(Ordering::SeqCst);
        if self.manner.dies_after.is_some_and(|after| done >= after) {
            return None;
        }
        let forgets = self.manner.forgets_after.is_some_and(|after| done >= after);
        if forgets && !self.forgot.swap(true, Ordering::SeqCst) {
            lock(&self.adapters).clear();
            *lock(&self.base) = self.start.clone();
            "default".clone_into(&mut lock(&self.version));
        }
        let text = |part: &str| body[part].as_str().unwrap_or_default().to_owned();
        match (self.protocol, route) {
            (Protocol::Sglang, "/generate") => Some(self.sglang(body)),
            (Protocol::Sglang, "/update_weights_from_disk") => {
                let (dir, version) = (text("model_path"), text("weight_version"));
                self.load_base(Path::new(&dir));
                lock(&self.version).clone_from(&version);
                let message = format!(
                    "Succeeded to update model weights. Weight version updated to {version}."
                );
                let answer =
                    json!({ "success": true, "message": message, "num_paused_requests": 0 });
                Some((200, answer.to_string()))
            }
            (Protocol::Sglang, "/load_lora_adapter") => {
                let done = self.load_adapter(&text("lora_name"), &text("lora_path"));
                let status = if done.is_ok() { 200 } else { 400 };
                let answer = json!({
                    "success": done.is_ok(),
                    "error_message": done.err().unwrap_or_default(),
                    "loaded_adapters": {},
                });
                Some((status, answer.to_string()))
            }
            (Protocol::Vllm, "/v1/completions") => Some(self.vllm(body)),
            (Protocol::Vllm, "/inference/v1/generate") if self.manner.closed => {
                let message = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.";
                let error = json!({ "message": message, "type": "PermissionDeniedError", "param": null, "code": 403 });
                Some((403, json!({ "error": error }).to_string()))
            }
            (Protocol::Vllm, "/inference/v1/generate") => Some(self.vllm_tokens(body)),
            (
                Protocol::Vllm,
                "/collective_rpc" | "/reset_prefix_cache" | "/update_weight_version",
            ) if !self.manner.plain => Some(self.vllm_command(route, body)),
            (Protocol::Vllm, "/v1/load_lora_adapter") => {
                let name = text("lora_name");
                Some(match self.load_adapter(&name, &text("lora_path")) {
                    Ok(()) => (200, format!("Success: LoRA adapter '{name}' added successfully.")),
                    Err(error) => (400, json!({ "error": { "message": error } }).to_string()),
                })
            }
            (Protocol::Sglang, "/unload_lora_adapter")
            | (Protocol::Vllm, "/v1/unload_lora_adapter") => {
                let name = text("lora_name");
                lock(&self.adapters).remove(&name);
                Some((200, format!("Success: LoRA adapter '{name}' removed successfully.")))
            }
            _ => Some((404, json!({ "detail": "Not Found" }).to_string())),
        }
    }

    /// Answers a command of the development mode of vLLM.
    fn vllm_command(&self, route: &str, body: &Value) -> (u16, String) {
        match route {
            "/collective_rpc" => {
                assert_eq!(body["method"], "reload_weights", "{body}");
                let dir = body["kwargs"]["weights_path"].as_str().unwrap_or_default();
                self.load_base(Path::new(dir));
                (200, json!({ "results": [null] }).to_string())
            }
            "/reset_prefix_cache" => {
                let done = self.resets.fetch_add(1, Ordering::SeqCst) >= self.manner.busy;
                (200, json!({ "success": done }).to_string())
            }
            _ => {
                let version = body["new_version"].as_str().unwrap_or_default();
                version.clone_into(&mut lock(&self.version));
                (200, json!({ "success": true, "new_version": version }).to_string())
            }
        }
    }

    fn load_base(&self, dir: &Path) {
        if self.manner.ignores_weights {
            return;
        }
        let mixed = tempfile::tempdir().expect("a directory for the weights");
        let dir = if self.manner.keeps_embedding {
            write_with_embedding(mixed.path(), dir, &self.dir);
            mixed.path()
        } else {
            dir
        };
        let files = ModelFiles::new(&ModelSource::Directory(dir.to_owned()));
        *lock(&self.base) = Model::load(&files).expect("a published directory is whole");
    }

    fn load_adapter(&self, name: &str, dir: &str) -> Result<(), String> {
        let base = lock(&self.base).clone();
        let mut adapters = lock(&self.adapters);
        if adapters.contains_key(name) {
            return Err(format!("The lora adapter '{name}' has already been loaded."));
        }
        let model = if self.manner.ignores_weights {
            base
        } else {
            base.load_adapter(Path::new(dir)).map_err(|error| error.to_string())?
        };
        adapters.insert(name.to_owned(), model);
        Ok(())
    }

    /// Returns the model of a name: an adapter, or the base.
    fn model(&self, name: &Value) -> Option<Model> {
        match name.as_str() {
            None | Some("base") => Some(lock(&self.base).clone()),
            Some(name) => lock(&self.adapters).get(name).cloned(),
        }
    }

    fn complete(&self, model: &Model, prompt: &Value, parameters: &Value) -> Completion {
        self.generations.fetch_add(1, Ordering::SeqCst);
        let ids = |list: &Value| -> Vec<u32> {
            let ids = list.as_array().into_iter().flatten();
            ids.filter_map(Value::as_u64).map(|id| id as u32).collect()
        };
        let number = |one: &str, other: &str| {
            parameters[one].as_u64().or_else(|| parameters[other].as_u64()).unwrap_or(0)
        };
        let sampling = Sampling {
            temperature: parameters["temperature"].as_f64().unwrap_or(1.0) as f32,
            max_tokens: number("max_tokens", "max_new_tokens") as usize,
            stop_ids: ids(&parameters["stop_token_ids"]),
            ..Sampling::default()
        };
        let seed = number("seed", "sampling_seed");
        let request = Request { seed, ..Request::new(ids(prompt), Arc::new(sampling), 0) };
        complete(model, &self.tokenizer, request, |_| ()).expect("a request that fits")
    }

    fn sglang(&self, body: &Value) -> (u16, String) {
        let Some(model) = self.model(&body["lora_path"]) else {
            let message = "The following requested LoRA adapters are not loaded";
            return (400, json!({ "error": { "message": message } }).to_string());
        };
        let version = lock(&self.version).clone();
        let done = self.complete(&model, &body["input_ids"], &body["sampling_params"]);
        let pairs: Vec<Value> =
            done.ids.iter().zip(&done.logprobs).map(|(id, p)| json!([p, id, null])).collect();
        let mut answer = json!({
            "text": self.tokenizer.decode(&done.ids),
            "output_ids": done.ids,
            "meta_info": {
                "id": "5e1d3f",
                "finish_reason": { "type": finish(&done) },
                "prompt_tokens": body["input_ids"].as_array().map_or(0, Vec::len),
                "weight_version": version,
                "output_token_logprobs": pairs,
                "completion_tokens": done.ids.len(),
                "cached_tokens": 0,
            },
        });
        if self.manner.routes && body["return_routed_experts"] == true {
            let (experts, _) = self.experts(&model, &body["input_ids"], &done);
            let wide: Vec<u8> = experts.iter().flat_map(|&e| i32::from(e).to_le_bytes()).collect();
            answer["meta_info"]["routed_experts"] = BASE64_STANDARD.encode(wide).into();
        }
        (200, answer.to_string())
    }

    fn vllm(&self, body: &Value) -> (u16, String) {
        let Some(model) = self.model(&body["model"]) else {
            let message = format!("The model `{}` does not exist.", body["model"]);
            let error = json!({ "message": message, "type": "NotFoundError", "code": 404 });
            return (404, json!({ "error": error }).to_string());
        };
        let done = self.complete(&model, &body["prompt"], body);
        let prompt = body["prompt"].as_array().map_or(0, Vec::len);
        let answer = json!({
            "id": "cmpl-7d",
            "object": "text_completion",
            "model": body["model"],
            "choices": [{
                "index": 0,
                "text": self.tokenizer.decode(&done.ids),
                "logprobs": { "token_logprobs": done.logprobs, "text_offset": [], "tokens": [] },
                "finish_reason": finish(&done),
                "stop_reason": null,
                "token_ids": done.ids,
                "prompt_token_ids": body["prompt"],
                "routed_experts": self.experts_array(&model, &body["prompt"], &done),
            }],
            "usage": { "prompt_tokens": prompt, "completion_tokens": done.ids.len() },
        });
        (200, answer.to_string())
    }

    /// Returns the experts of all tokens but the last, with those of layers without experts, which are zeros: bytes
    /// `[tokens, layers, k]`, and these sizes.
    fn experts(&self, model: &Model, prompt: &Value, done: &Completion) -> (Vec<u8>, [usize; 3]) {
        let prompt = prompt.as_array().expect("token ids").iter();
        let prompt = prompt.map(|id| id.as_u64().expect("a token id") as u32);
        let mut ids: Vec<u32> = prompt.chain(done.ids.iter().copied()).collect();
        ids.pop();
        let routes = model.routes(&ids).expect("ids of the model").expect("a mixture of experts");
        let routers: Vec<Option<usize>> = model
            .config
            .layers
            .iter()
            .map(|layer| Some(layer.mlp.experts()?.router.chosen))
            .collect();
        let k = routers.iter().flatten().copied().max().expect("a layer with experts");
        let mut experts = Vec::new();
        for token in routes.experts().chunks_exact(routes.width()) {
            let mut own = token.chunks_exact(k);
            for router in &routers {
                match router.and_then(|_| own.next()) {
                    None => experts.resize(experts.len() + k, 0),
                    Some(own) if self.manner.other_experts => {
                        experts.extend((0..6).filter(|expert| !own.contains(expert)).take(k));
                    }
                    Some(own) => experts.extend_from_slice(own),
                }
            }
        }
        (experts, [ids.len(), routers.len(), k])
    }

    /// Returns experts as vLLM sends them, if it was started to.
    fn experts_array(&self, model: &Model, prompt: &Value, done: &Completion) -> Value {
        if !self.manner.routes {
            return Value::Null;
        }
        let (experts, [tokens, layers, k]) = self.experts(model, prompt, done);
        let shape = format!("'shape': ({tokens}, {layers}, {k})");
        let header = format!("{{'descr': '|u1', 'fortran_order': False, {shape}, }}");
        let padded = format!("{header:<117}\n");
        let length = (padded.len() as u16).to_le_bytes();
        let start = [&b"\x93NUMPY\x01\x00"[..], &length, padded.as_bytes()].concat();
        BASE64_STANDARD.encode([start, experts].concat()).into()
    }

    fn vllm_tokens(&self, body: &Value) -> (u16, String) {
        let version = lock(&self.version).clone();
        let model = lock(&self.base).clone();
        let done = self.complete(&model, &body["token_ids"], &body["sampling_params"]);
        let scored = |(id, logprob)| {
            let top = json!([{ "token_id": id, "logprob": logprob, "rank": 1 }]);
            json!({ "token_id": id, "logprob": logprob, "rank": 1, "top_logprobs": top })
        };
        let content: Vec<Value> = done.ids.iter().zip(&done.logprobs).map(scored).collect();
        let prompt = body["token_ids"].as_array().map_or(0, Vec::len);
        let answer = json!({
            "request_id": "generate-tokens-8a495ce22756d6c7",
            "model": "base",
            "usage": { "prompt_tokens": prompt, "completion_tokens": done.ids.len() },
            "prompt_logprobs": null,
            "prompt_token_ids": body["token_ids"],
            "output_mode": "tokens",
            "choices": [{
                "index": 0,
                "finish_reason": finish(&done),
                "stop_reason": null,
                "token_ids": done.ids,
                "routed_experts": self.experts_array(&model, &body["token_ids"], &done),
                "sampling_mask": null,
                "weight_versions": [{ "version": version, "start": 0, "end": done.ids.len() }],
                "logprobs": { "content": content },
            }],
        });
        (200, answer.to_string())
    }
}

/// Writes the model of a directory with the embedding of another one.
fn write_with_embedding(to: &Path, dir: &Path, other: &Path) {
    const WEIGHTS: &str = "model.safetensors";
    for entry in fs::read_dir(dir).expect("the directory is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("a file has a name");
        fs::copy(&path, to.join(name)).expect("it can be copied");
    }
    let read = |dir: &Path| fs::read(dir.join(WEIGHTS)).expect("the model has weights");
    let (mut weights, theirs) = (read(dir), read(other));
    let place = embedding(&weights);
    weights[place].copy_from_slice(&theirs[embedding(&theirs)]);
    fs::write(to.join(WEIGHTS), weights).expect("it can be written");
}

/// Returns the place of the embedding in the bytes of a safetensors file.
fn embedding(bytes: &[u8]) -> Range<usize> {
    let length = u64::from_le_bytes(*bytes.first_chunk().expect("the file has a header"));
    let start = 8 + length as usize;
    let header: Value = serde_json::from_slice(&bytes[8..start]).expect("the header is JSON");
    let offsets = &header["model.embed_tokens.weight"]["data_offsets"];
    let place = |at: usize| start + offsets[at].as_u64().expect("an offset") as usize;
    place(0)..place(1)
}

fn finish(done: &Completion) -> &'static str {
    match done.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}
