#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use prost::Message as _;
use serde_json::{Value, json};

use super::proto::{
    Chunk, Datum, EncodedText, INT64, PassOutput, PassRequest, SampleOutput, TensorMessage,
    bytes_of_ids,
};
use super::*;
use crate::base::Health;
use crate::listener::Limits;
use crate::testing::{Running, start, stride};
use maverl::config::{Dtype, RuntimeOptions};
use maverl::files::{ModelFiles, ModelSource};
use maverl::net::Model;
use maverl::rng::SplitMix64;
use maverl::runtime::TrainingHost;
use maverl::text::Tokenizer;

/// A server of `builtin:tiny`.
struct Served {
    running: Running,
    server: Arc<TinkerServer>,
}

impl Served {
    async fn start(out: &std::path::Path, max_models: usize) -> Self {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let model = Model::load(&files).unwrap();
        let tokenizer = Arc::new(Tokenizer::load(&files).unwrap());
        let options =
            RuntimeOptions { kv_mib: 64.try_into().unwrap(), ..RuntimeOptions::default() };
        let places = 1 + max_models + 2;
        let options = (&options, Dtype::F32);
        let host = TrainingHost::start("tiny", &model, &tokenizer, options, places).unwrap();
        let settings = TinkerSettings {
            out: out.to_owned(),
            max_rank: 16,
            lora_alpha: 16.0,
            max_body: 1 << 20,
        };
        let health = Health::default();
        let server = TinkerServer::new(settings, health.clone());
        let (name, tokenizer) = ("tiny".to_owned(), "tiny".to_owned());
        server.open(vec![TrainedBase { name, host, tokenizer, max_models }]).unwrap();
        let router =
            crate::with_common_routes(router(&server), "train", health, server.metrics().clone());
        Self { running: start(router, Limits::default()).await, server }
    }

    /// Opens a session.
    async fn client(&self) -> Client {
        let address = self.running.address;
        let body = json!({"tags": [], "user_metadata": null, "sdk_version": "0.38.0"});
        let (status, answer) = post(address, "create_session", &body).await;
        assert_eq!(status, 200, "{answer}");
        Client { address, session: answer["session_id"].as_str().unwrap().to_owned(), next: 0 }
    }
}

/// Sends bytes, and returns status, type and body of the answer.
async fn send(
    address: SocketAddr,
    route: &str,
    headers: &str,
    body: Vec<u8>,
) -> (u16, String, Vec<u8>) {
    let head = format!(
        "POST /api/v1/{route} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    let sent = [head.into_bytes(), body].concat();
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may answer, and close, before it has read everything.
        let _ = stream.write_all(&sent);
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        let end = received.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, received[end + 4..].to_vec())
    })
    .await
    .unwrap()
}

async fn post(address: SocketAddr, route: &str, body: &Value) -> (u16, Value) {
    let (status, _, body) = send(address, route, "", body.to_string().into_bytes()).await;
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Result of a request.
#[derive(Debug)]
enum Fetched {
    Json(Value),
    Bytes(Vec<u8>),
}

impl Fetched {
    fn json(self) -> Value {
        match self {
            Self::Json(value) => value,
            Self::Bytes(bytes) => panic!("{} bytes", bytes.len()),
        }
    }

    /// Returns the message of a failure of the client.
    fn failure(self) -> String {
        let value = self.json();
        assert_eq!(value["category"], "user", "{value}");
        value["error"].as_str().unwrap().to_owned()
    }

    fn pass(self) -> (f64, Vec<f32>) {
        let Self::Bytes(bytes) = self else { panic!("{self:?}") };
        let output = PassOutput::decode(&bytes[..]).unwrap();
        let data = &output.loss_fn_outputs[0].fields["logprobs"].data;
        (output.metrics["loss:sum"], floats(data))
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

struct Client {
    address: SocketAddr,
    session: String,
    next: u64,
}

/// A model of a client, with the number of its last request.
struct Trained {
    address: SocketAddr,
    id: String,
    seq: u64,
}

async fn fetch(address: SocketAddr, request: &Value) -> Fetched {
    let body = json!({"request_id": request["request_id"]}).to_string().into_bytes();
    loop {
        let (status, head, body) = send(address, "retrieve_future", "", body.clone()).await;
        match status {
            408 => {}
            200 if head.contains("x-protobuf") => return Fetched::Bytes(body),
            _ => return Fetched::Json(serde_json::from_slice(&body).unwrap()),
        }
    }
}

impl Client {
    async fn create(&mut self, rank: u64, seed: u64) -> Result<Trained, String> {
        self.next += 1;
        let body = json!({
            "session_id": self.session, "model_seq_id": self.next, "base_model": "tiny",
            "lora_config": {"rank": rank, "seed": seed},
        });
        let (_, request) = post(self.address, "create_model", &body).await;
        let found = fetch(self.address, &request).await.json();
        match found["model_id"].as_str() {
            Some(id) => Ok(Trained { address: self.address, id: id.to_owned(), seq: 0 }),
            None => Err(found["error"].as_str().unwrap().to_owned()),
        }
    }

    async fn load(&mut self, path: &str) -> Trained {
        self.next += 1;
        let body = json!({
            "session_id": self.session, "model_seq_id": self.next, "path": path, "optimizer": true,
        });
        let (_, request) = post(self.address, "load_weights", &body).await;
        let found = fetch(self.address, &request).await.json();
        let id = found["model_id"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned();
        Trained { address: self.address, id, seq: 0 }
    }
}

fn tensor_of_ids(ids: &[u32]) -> TensorMessage {
    let dense = Some(ids.iter().flat_map(|id| i64::from(*id).to_le_bytes()).collect());
    TensorMessage { dense, dtype: INT64, shape: vec![ids.len() as i64], ..TensorMessage::default() }
}

fn datum(ids: &[u32], more: &[(&str, TensorMessage)]) -> Datum {
    let n = ids.len() - 1;
    let tokens = bytes_of_ids(&ids[..n]);
    let targets = [("target_tokens", tensor_of_ids(&ids[1..]))];
    let all = targets.iter().chain(more);
    Datum {
        model_input: vec![Chunk { encoded_text: Some(EncodedText { tokens }), ..Chunk::default() }],
        loss_fn_inputs: all.map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect(),
    }
}

/// Returns texts of a seed.
fn data(seed: u64) -> Vec<Datum> {
    let mut random = SplitMix64::new(seed);
    let text = |random: &mut SplitMix64| -> Vec<u32> {
        (0..20).map(|_| (random.bits() % 400) as u32).collect()
    };
    (0..3).map(|_| datum(&text(&mut random), &[])).collect()
}

impl Trained {
    fn numbered(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    async fn send_pass(&self, seq: u64, data: Vec<Datum>, forward_only: bool) -> Value {
        let request = PassRequest {
            model_id: self.id.clone(),
            seq_id: seq as i32,
            data,
            loss_fn: "cross_entropy".to_owned(),
            forward_only,
            ..PassRequest::default()
        };
        let (status, _, body) =
            send(self.address, "forward_backward", "", request.encode_to_vec()).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    async fn pass(&mut self, data: Vec<Datum>) -> (f64, Vec<f32>) {
        let seq = self.numbered();
        fetch(self.address, &self.send_pass(seq, data, false).await).await.pass()
    }

    async fn forward(&mut self, data: Vec<Datum>) -> (f64, Vec<f32>) {
        let seq = self.numbered();
        fetch(self.address, &self.send_pass(seq, data, true).await).await.pass()
    }

    async fn ask(&mut self, route: &str, mut body: Value) -> Fetched {
        body["model_id"] = json!(self.id);
        body["seq_id"] = json!(self.numbered());
        let (status, request) = post(self.address, route, &body).await;
        assert_eq!(status, 200, "{request}");
        fetch(self.address, &request).await
    }

    async fn step(&mut self) -> Fetched {
        self.ask("optim_step", json!({"adam_params": {"learning_rate": 0.01, "eps": 1e-8}})).await
    }

    /// Trains on texts of a seed, and returns the loss of each step.
    async fn train(&mut self, seed: u64, steps: usize) -> Vec<f64> {
        let mut losses = Vec::new();
        for _ in 0..steps {
            losses.push(self.pass(data(seed)).await.0);
            assert!(self.step().await.json()["metrics"]["grad_norm"].as_f64().unwrap() > 0.0);
        }
        losses
    }

    async fn save(&mut self, name: &str) -> String {
        let found = self.ask("save_weights", json!({"path": name})).await.json();
        found["path"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_trains_and_its_samples_have_the_log_probs_of_its_passes_to_the_bit() {
    let out = tempfile::tempdir().unwrap();
    let served = Served::start(out.path(), 2).await;
    let client = &mut served.client().await;
    let mut model = client.create(8, 1).await.unwrap();
    let losses = model.train(3, 4).await;
    println!("losses {losses:?}");
    assert!(losses[3] < 0.9 * losses[0], "{losses:?}");
    let ahead = model.forward(data(3)).await;
    assert_eq!(ahead, model.pass(data(3)).await);
    let saved = model.ask("save_weights_for_sampler", json!({"sampling_session_seq_id": 0})).await;
    let session = saved.json()["sampling_session_id"].as_str().unwrap().to_owned();
    let prompt = [5, 6, 7];
    let body = json!({
        "num_samples": 2, "prompt": {"chunks": [{"type": "encoded_text", "tokens": prompt}]},
        "sampling_params": {"max_tokens": 8, "seed": 4, "temperature": 1.0}, "sampling_session_id": session, "seq_id": 1,
        "prompt_logprobs": true, "topk_prompt_logprobs": 2,
    });
    let (_, request) = post(served.running.address, "asample", &body).await;
    assert_eq!(request["sample_sequence_ids"].as_array().unwrap().len(), 2);
    let Fetched::Bytes(bytes) = fetch(served.running.address, &request).await else { panic!() };
    let found = SampleOutput::decode(&bytes[..]).unwrap();
    assert_ne!(found.sequences[0].tokens, found.sequences[1].tokens);
    let given = floats(&found.prompt_logprobs.unwrap());
    let top = found.topk_prompt_logprobs.unwrap();
    assert_eq!((top.k, top.length, top.token_ids.len()), (2, 3, 24));
    assert!(given[0].is_nan() && given.len() == 3);
    for sequence in found.sequences {
        let ids = sequence
            .tokens
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes(four.try_into().unwrap()));
        let text: Vec<u32> = prompt.into_iter().chain(ids).collect();
        let (_, logprobs) = model.forward(vec![datum(&text, &[])]).await;
        let own = [&given[1..], &floats(&sequence.logprobs.unwrap())].concat();
        assert_eq!(logprobs, own);
    }
    let rows = std::fs::read_to_string(out.path().join("tinker.jsonl")).unwrap();
    assert_eq!(rows.lines().filter(|row| row.contains("grad_norm")).count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_at_once_have_the_losses_that_each_has_alone() {
    let out = tempfile::tempdir().unwrap();
    let served = Served::start(out.path(), 4).await;
    let mut alone = Vec::new();
    for seed in [1, 2] {
        alone.push(served.client().await.create(8, seed).await.unwrap().train(seed, 3).await);
    }
    let together =
        async |seed| served.client().await.create(8, seed).await.unwrap().train(seed, 3).await;
    let (one, other) = futures::join!(together(1), together(2));
    assert_eq!([one, other], alone[..]);
    assert_ne!(alone[0], alone[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_goes_on_from_a_checkpoint_with_equal_losses() {
    let out = tempfile::tempdir().unwrap();
    let served = Served::start(out.path(), 2).await;
    let mut model = served.client().await.create(8, 1).await.unwrap();
    model.train(3, 2).await;
    let path = model.save("two").await;
    let rest = model.train(3, 2).await;
    let again = model.ask("save_weights", json!({"path": "two"})).await.failure();
    assert!(again.ends_with("take another name, or overwrite it"), "{again}");
    let other = Served::start(out.path(), 2).await;
    let client = &mut other.client().await;
    let mut loaded = client.load(&path).await;
    assert_eq!(loaded.train(3, 2).await, rest);
    // Into a model that is there: with the optimizer equal, without it other moments.
    let mut there = client.create(8, 9).await.unwrap();
    let load = json!({"path": path, "optimizer": true});
    assert_eq!(there.ask("load_weights", load).await.json()["path"], json!(path));
    assert_eq!(there.train(3, 2).await, rest);
    let failed =
        there.ask("load_weights", json!({"path": "tinker://no/weights/x"})).await.failure();
    assert!(failed.contains("there is no checkpoint"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_run_in_the_order_of_their_numbers() {
    let out = tempfile::tempdir().unwrap();
    let served = Served::start(out.path(), 1).await;
    let mut model = served.client().await.create(4, 1).await.unwrap();
    let step = json!({"model_id": model.id, "seq_id": 3, "adam_params": {"learning_rate": 0.01}});
    let (_, step) = post(model.address, "optim_step", &step).await;
    let second = model.send_pass(2, data(1), false).await;
    let first = model.send_pass(1, data(1), false).await;
    let same = model.send_pass(1, data(2), false).await;
    assert_eq!(first, same, "a request that is sent again is the same");
    assert!(fetch(model.address, &step).await.json()["metrics"]["grad_norm"].is_number());
    let (first, second) =
        (fetch(model.address, &first).await.pass(), fetch(model.address, &second).await.pass());
    assert_eq!(first, second, "no step was between them");
    model.seq = 3;
    assert!(model.step().await.failure().starts_with("there is no gradient"));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_as_many_models_as_the_memory_was_planned_for() {
    let out = tempfile::tempdir().unwrap();
    let served = Served::start(out.path(), 1).await;
    let client = &mut served.client().await;
    let model = client.create(4, 1).await.unwrap();
    let told = client.create(4, 2).await.err().unwrap();
    assert!(told.contains("has 1 models") && told.contains("one more takes "), "{told}");
    let (_, request) = post(client.address, "unload_model", &json!({"model_id": model.id})).await;
    assert_eq!(fetch(client.address, &request).await.json()["type"], "unload_model");
    crate::testing::until("a free place", async || client.create(4, 2).await.is_ok()).await;
    assert!(client.create(17, 1).await.err().unwrap().contains("it may be 1 to 16"));
    drop(served.server);
}

/// Returns a message that differs in one byte, or is cut.
fn broken(message: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = message.to_vec();
    let at = random.bits() as usize % bytes.len();
    match random.bits() % 3 {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << (random.bits() % 8),
        _ => bytes[at] = random.bits() as u8,
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_requests_are_answered_as_errors_of_the_client() {
    let out = tempfile::tempdir().unwrap();
    let served = Served::start(out.path(), 1).await;
    let model = served.client().await.create(4, 1).await.unwrap();
    let (address, mut random) = (served.running.address, SplitMix64::new(5));
    let request = PassRequest {
        model_id: model.id.clone(),
        seq_id: 1,
        data: data(1)[..1].to_vec(),
        loss_fn: "cross_entropy".to_owned(),
        forward_only: true,
        ..PassRequest::default()
    };
    let json = |value: Value| value.to_string().into_bytes();
    let bodies: [(&str, Vec<u8>); 5] = [
        ("forward_backward", request.encode_to_vec()),
        (
            "optim_step",
            json(json!({"model_id": model.id, "seq_id": 1, "adam_params": {"learning_rate": 0.1}})),
        ),
        (
            "create_model",
            json(
                json!({"session_id": "x", "model_seq_id": 1, "base_model": "tiny", "lora_config": {"rank": 4}}),
            ),
        ),
        (
            "load_weights",
            json(json!({"session_id": "x", "model_seq_id": 1, "path": "tinker://a/weights/b"})),
        ),
        (
            "asample",
            json(json!({
                "prompt": {"chunks": [{"tokens": [1, 2]}]}, "sampling_params": {"max_tokens": 1}, "base_model": "tiny",
            })),
        ),
    ];
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    for _ in 0..10_000 / stride(20) {
        let (route, body) = &bodies[random.bits() as usize % bodies.len()];
        let (status, _, body) = send(address, route, "", broken(body, &mut random)).await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        *codes.entry(status).or_default() += 1;
        match status {
            200 => assert!(answer["request_id"].is_string(), "{answer}"),
            400..500 => assert_eq!(answer["category"], "user", "{answer}"),
            _ => panic!("{route}: {status} {answer}"),
        }
    }
    println!("{codes:?}");
    let packed = zstd::stream::encode_all(&[0_u8; 2 << 20][..], 1).unwrap();
    let headers = "content-encoding: zstd\r\n";
    let (status, ..) = send(address, "forward_backward", headers, packed).await;
    assert_eq!(status, 413, "what it unpacks to counts");
    let (status, ..) = send(address, "forward_backward", headers, b"no zstd".to_vec()).await;
    assert_eq!(status, 400);
    assert!(served.client().await.session.starts_with("s-"), "the server goes on");
}
