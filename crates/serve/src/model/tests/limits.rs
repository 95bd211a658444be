use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::time::Instant;

use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::guard::ClientNumber;
use crate::testing::request;

fn one_at_a_time() -> ModelSettings {
    let queue = QueueLimits {
        running: NonZeroUsize::MIN,
        waiting: 1,
        wait: Duration::from_millis(300),
        per_key: 0,
    };
    ModelSettings { queue, ..ModelSettings::default() }
}

/// Body of a request that takes long: eight choices up to the end of the context.
fn long(stream: bool) -> Value {
    let messages = [json!({"role": "user", "content": "x"})];
    json!({"messages": messages, "temperature": 3.0, "stream": stream, "seed": 1, "n": 8})
}

/// Starts a request that takes long, and reads the beginning of its answer if it is streamed.
fn begin(address: SocketAddr, stream: bool) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request("/v1/chat/completions", Some(&long(stream)), "").as_bytes()).unwrap();
    if stream {
        let mut beginning = [0; 400];
        socket.read_exact(&mut beginning).unwrap();
    }
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_place() {
    let served = Served::start(one_at_a_time()).await;
    for stream in [true, false] {
        let address = served.address();
        let socket = tokio::task::spawn_blocking(move || begin(address, stream)).await.unwrap();
        until("the request", async || {
            served.metric("maverl_requests_active{state=\"running\"}").await == 1.0
        })
        .await;
        let work = served.host.work()[0];
        drop(socket);
        let begin = Instant::now();
        until("its end", async || {
            served.metric("maverl_requests_active{state=\"running\"}").await == 0.0
        })
        .await;
        println!(
            "stream {stream}: the place is free {:?} after the client left; work before {work:?}",
            begin.elapsed()
        );
        assert_eq!(served.chat(json!({"max_tokens": 2})).await.status, 200);
        until("no blocks", async || served.metric("maverl_kv_blocks{state=\"used\"}").await == 0.0)
            .await;
    }
    assert_eq!(served.metric("maverl_disconnects_total").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_is_counted_while_its_request_is_read_or_waits() {
    let queue = QueueLimits { running: NonZeroUsize::MIN, ..QueueLimits::default() };
    let served = Served::start(ModelSettings { queue, ..ModelSettings::default() }).await;
    let address = served.address();
    // Larger than what is read with any others.
    let mut body = long(false);
    body["user"] = "x".repeat(64 << 10).into();
    let send = async || {
        let text = request("/v1/chat/completions", Some(&body), "");
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        socket.write_all(text.as_bytes()).await.unwrap();
        socket
    };
    let left = async |state: &str, count: f64| {
        let socket = send().await;
        let active = format!("maverl_requests_active{{state=\"{state}\"}}");
        until(state, async || served.metric(&active).await == 1.0).await;
        drop(socket);
        until("a count", async || served.metric("maverl_disconnects_total").await == count).await;
        if state == "waiting" {
            until("no wait", async || served.metric(&active).await == 0.0).await;
        }
    };
    let alone = served.server.reading.begin(usize::MAX).await;
    left("running", 1.0).await;
    drop(alone);
    let running = served.server.queue.admit(ClientNumber(0)).await.unwrap();
    left("waiting", 2.0).await;
    drop(running);
    assert_eq!(served.chat(json!({"max_tokens": 2})).await.status, 200);
    assert_eq!(served.metric("maverl_disconnects_total").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_queue_are_refused_and_those_that_wait_too_long_are_unavailable() {
    let served = Served::start(one_at_a_time()).await;
    let address = served.address();
    let running = served.server.queue.admit(ClientNumber(0)).await.unwrap();
    let waits = tokio::task::spawn_blocking(move || {
        crate::testing::exchange(
            address,
            request("/v1/chat/completions", Some(&long(false)), "").as_bytes(),
        )
    });
    until("a wait", async || {
        served.metric("maverl_requests_active{state=\"waiting\"}").await == 1.0
    })
    .await;
    let refused = served.chat(json!({"max_tokens": 1})).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    let late = waits.await.unwrap();
    assert_eq!((late.status, late.json()["error"]["code"].clone()), (503, json!("wait_too_long")));
    assert_eq!(served.metric("maverl_rejected_total{reason=\"queue_full\"}").await, 1.0);
    assert_eq!(served.metric("maverl_rejected_total{reason=\"wait\"}").await, 1.0);
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_takes_too_long_is_ended() {
    let settings = ModelSettings { timeout: Duration::from_millis(30), ..ModelSettings::default() };
    let served = Served::start(settings).await;
    let address = served.address();
    let asked =
        |stream| async move { ask(address, "/v1/chat/completions", Some(&long(stream))).await };
    let answer = asked(false).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].clone()), (503, json!("timeout")));
    let answer = asked(true).await;
    let last: Value = serde_json::from_str(answer.events().last().unwrap()).unwrap();
    assert_eq!((answer.status, last["error"]["code"].clone()), (200, json!("timeout")));
    until("its end", async || {
        served.metric("maverl_requests_active{state=\"running\"}").await == 0.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let served = Served::start(ModelSettings { max_body: 1000, ..ModelSettings::default() }).await;
    let answer = served.chat(json!({"user": "x".repeat(2000)})).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].clone()),
        (413, json!("request_too_large"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_answers_503_and_its_health_too() {
    let health = Health::default();
    let server = ModelServer::new(ModelSettings::default(), health.clone());
    let router = with_common_routes(server.router(), "model", health, server.metrics().clone());
    let running = start(router, Limits::default()).await;
    for path in ["/health", "/v1/models"] {
        let answer = ask(running.address, path, None).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].clone()),
            (503, json!("loading")),
            "{path}"
        );
    }
    server.open(Catalog::default());
    assert_eq!(ask(running.address, "/health", None).await.status, 200);
    assert_eq!(ask(running.address, "/version", None).await.json()["server"], "model");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_and_tokens_and_hold_no_text_of_a_client() {
    let served = Served::start(ModelSettings::default()).await;
    let secret = "the-secret-of-a-client";
    let json = served.chat(json!({"max_tokens": 5, "user": secret, "seed": 1})).await.json();
    served.chat(json!({"model": secret})).await;
    let tokens = json["usage"]["completion_tokens"].as_f64().unwrap();
    assert_eq!(
        served.metric("maverl_tokens_total{model=\"tiny\",kind=\"completion\"}").await,
        tokens
    );
    let ok = "maverl_requests_total{model=\"tiny\",route=\"chat\",code=\"200\"}";
    assert_eq!(served.metric(ok).await, 1.0);
    assert_eq!(
        served.metric("maverl_requests_total{model=\"\",route=\"chat\",code=\"404\"}").await,
        1.0
    );
    assert_eq!(served.metric("maverl_first_token_seconds_count{model=\"tiny\"}").await, 1.0);
    assert!(!ask(served.address(), "/metrics", None).await.body.contains(secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_get_the_answers_that_each_gets_alone() {
    let served = Served::start(ModelSettings::default()).await;
    let fields = |seed: usize| json!({"seed": seed, "max_tokens": 12, "temperature": 1.3, "stream": seed % 2 == 1});
    let content = |answer: Answer| match answer.status {
        200 if answer.head.contains("event-stream") => {
            let chunks =
                answer.events().into_iter().filter_map(|e| serde_json::from_str::<Value>(&e).ok());
            let delta = |c: Value| c["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
            chunks.filter_map(delta).collect::<String>()
        }
        200 => answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
        _ => panic!("{}", answer.body),
    };
    let together = futures::future::join_all((0..32).map(|seed| served.chat(fields(seed)))).await;
    let together: Vec<String> = together.into_iter().map(content).collect();
    for (seed, found) in together.iter().enumerate().step_by(5) {
        assert_eq!(content(served.chat(fields(seed)).await), *found);
    }
}

/// Prints the tokens a second of 64 streaming clients beside those of the engine with the same requests.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_clients_get_what_the_engine_computes() {
    let served = Served::start(ModelSettings::default()).await;
    let tokenizer = served.host.tokenizer();
    let prompt = tokenizer.encode_framed("Question: Who wrote Magdor?").unwrap();
    let sampling =
        maverl::runtime::Sampling { temperature: 1.5, max_tokens: 128, ..Default::default() };
    let sampling = Arc::new(sampling);
    let request = |seed| maverl::runtime::Request::new(prompt.clone(), Arc::clone(&sampling), seed);
    let engine = async || {
        let begin = Instant::now();
        let all =
            futures::future::join_all((0..64).map(|seed| served.host.generate(0, request(seed))));
        let tokens: usize = all.await.into_iter().map(|done| done.unwrap().ids.len()).sum();
        (tokens, tokens as f64 / begin.elapsed().as_secs_f64())
    };
    let clients = async || {
        let begin = Instant::now();
        let ask = |seed: u64| {
            served.complete(json!({
                "seed": seed, "temperature": 1.5, "max_tokens": 128, "stream": true,
                "stream_options": {"include_usage": true},
            }))
        };
        let mut tokens = 0;
        for answer in futures::future::join_all((0..64).map(ask)).await {
            let events = answer.events();
            let last: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
            tokens += last["usage"]["completion_tokens"].as_u64().unwrap() as usize;
        }
        (tokens, tokens as f64 / begin.elapsed().as_secs_f64())
    };
    let (mut alone, mut shared) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let ((expected, engine), (tokens, clients)) = (engine().await, clients().await);
        assert_eq!(tokens, expected);
        alone.push(engine);
        shared.push(clients);
    }
    alone.sort_by(f64::total_cmp);
    shared.sort_by(f64::total_cmp);
    println!(
        "tokens/s: {:.0} of the engine, {:.0} of 64 clients: {:.3}",
        alone[1],
        shared[1],
        shared[1] / alone[1]
    );
}

/// Returns the code of a refusal.
fn code(answer: &Answer) -> Value {
    answer.json()["error"]["code"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_one_token_is_answered_before_one_for_hundreds_of_choices() {
    let queue = QueueLimits { running: 4.try_into().unwrap(), ..QueueLimits::default() };
    let served = Served::start(ModelSettings { queue, ..ModelSettings::default() }).await;
    let many = json!({"prompt": vec!["a"; 32], "n": 16, "max_tokens": 64, "temperature": 3.0});
    let (address, body) = (served.address(), many);
    let many = tokio::spawn(async move { ask(address, "/v1/completions", Some(&body)).await });
    until("the request", async || {
        served.metric("maverl_requests_active{state=\"running\"}").await == 4.0
    })
    .await;
    for _ in 0..3 {
        let answer = served.chat(json!({"max_tokens": 1})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(!many.is_finished(), "the choices of the large request were all generated before");
    }
    let answer = many.await.unwrap();
    assert_eq!(answer.json()["choices"].as_array().unwrap().len(), 512);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a guard of speed"]
async fn a_request_for_one_token_is_answered_within_a_second_beside_hundreds_and_thousands_of_choices()
 {
    let prompts =
        |n: usize| json!({"prompt": vec!["a"; 256], "n": n, "max_tokens": 64, "temperature": 3.0});
    let with = |mut body: Value, fields: Value| {
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        body
    };
    let chat = json!({
        "messages": [{"role": "user", "content": "a"}], "n": 16, "max_tokens": 64, "temperature": 3.0,
    });
    let ids = json!({"token_ids": [5, 6, 7], "sampling_params": {"n": 16, "max_tokens": 64, "temperature": 3.0}});
    let completions = "/v1/completions";
    // Path, body and number of requests at once.
    for (path, body, requests) in [
        (completions, prompts(16), 1),
        (completions, with(prompts(16), json!({"stream": true})), 1),
        (completions, with(prompts(16), json!({"logprobs": 5, "max_tokens": 32})), 1),
        (completions, with(prompts(16), json!({"echo": true})), 1),
        (completions, with(prompts(16), json!({"stop": "xyz", "seed": 3})), 1),
        (completions, with(prompts(1), json!({"prompt": vec!["a b c ".repeat(20); 256]})), 4),
        (completions, prompts(4), 8),
        (completions, with(prompts(1), json!({"stream": true})), 16),
        ("/v1/chat/completions", chat.clone(), 64),
        ("/v1/chat/completions", with(chat, json!({"stream": true, "logprobs": true})), 64),
        ("/inference/v1/generate", ids, 64),
    ] {
        let served = Served::start(ModelSettings::default()).await;
        let mut sockets = Vec::new();
        for _ in 0..requests {
            let mut socket = tokio::net::TcpStream::connect(served.address()).await.unwrap();
            socket.write_all(request(path, Some(&body), "").as_bytes()).await.unwrap();
            sockets.push(socket);
        }
        let running = async || served.metric("maverl_requests_active{state=\"running\"}").await;
        until("the request", async || running().await == 64.0).await;
        let mut slowest = Duration::ZERO;
        for _ in 0..8 {
            let begin = Instant::now();
            let answer = served.chat(json!({"max_tokens": 1})).await;
            slowest = slowest.max(begin.elapsed());
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert!(running().await >= 63.0, "the other choices were generated before");
        }
        println!("one token beside {requests} of {path}: {slowest:?} at most");
        assert!(slowest < Duration::from_secs(1), "{slowest:?} beside {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_cannot_fit_is_refused_by_its_bytes_on_every_route() {
    let served = Served::start(ModelSettings::default()).await;
    let context = served.host.context();
    let most = served.host.tokenizer().most_bytes(context);
    let text = "ab ".repeat(most / 3 + 1);
    let messages = json!([{"role": "user", "content": text}]);
    let stream = true;
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/chat/completions", json!({"messages": messages, "stream": stream})),
        ("/v1/responses", json!({"input": text})),
        ("/v1/responses", json!({"input": messages, "stream": stream})),
        ("/v1/completions", json!({"prompt": text})),
        ("/v1/completions", json!({"prompt": ["a", text], "echo": true, "logprobs": 1})),
        ("/tokenize", json!({"prompt": text})),
        ("/tokenize", json!({"prompt": text, "add_special_tokens": false})),
        ("/tokenize", json!({"messages": messages})),
    ] {
        let answer = ask(served.address(), path, Some(&body)).await;
        assert_eq!(
            (answer.status, code(&answer)),
            (400, json!("context_length_exceeded")),
            "{path}"
        );
        let begin = format!(
            "This model's maximum context length is {context} tokens. However, the prompt has "
        );
        assert!(answer.message().starts_with(&begin), "{path}: {}", answer.message());
    }
    let ids = vec![5; context + 1];
    for (path, body) in [
        ("/v1/completions", json!({"prompt": ids})),
        ("/inference/v1/generate", json!({"token_ids": ids})),
        ("/detokenize", json!({"tokens": ids})),
    ] {
        let answer = ask(served.address(), path, Some(&body)).await;
        assert_eq!(
            (answer.status, code(&answer)),
            (400, json!("context_length_exceeded")),
            "{path}"
        );
    }
    // A text of as many bytes as the context may have is encoded.
    let fits = json!({"prompt": "a".repeat(context / 2)});
    assert_eq!(ask(served.address(), "/tokenize", Some(&fits)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_would_take_much_memory_are_refused_with_their_limit() {
    let served = Served::start(ModelSettings::default()).await;
    let values = json!({"prompt": "a", "user": vec![0; 1 << 20]});
    let answer = ask(served.address(), "/v1/completions", Some(&values)).await;
    assert_eq!((answer.status, code(&answer)), (413, json!("request_too_large")));
    assert!(answer.message().ends_with("1048576 are allowed"), "{}", answer.message());
    let listed = json!({"prompt": vec!["a"; 256], "n": 16, "max_tokens": 400, "logprobs": 20});
    let answer = ask(served.address(), "/v1/completions", Some(&listed)).await;
    assert_eq!((answer.status, code(&answer)), (400, json!("invalid_value")));
    assert!(answer.message().contains("could list 34406400 tokens"), "{}", answer.message());
    for (fields, limit) in [
        (json!({"stop": "x".repeat(513)}), "has a text of 513 bytes; one may have 512"),
        (json!({"stop_token_ids": vec![3; 1025]}), "has 1025 ids; a request may have 1024"),
    ] {
        let answer = served.chat(fields).await;
        assert_eq!(answer.status, 400);
        assert!(answer.message().ends_with(limit), "{}", answer.message());
    }
}
