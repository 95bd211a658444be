use super::*;
use maverl::runtime::score;

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_continued_and_echoed() {
    let served = Served::start(ModelSettings::default()).await;
    let plain = served.complete(json!({"seed": 3, "max_tokens": 10})).await.json();
    assert_eq!(
        (&plain["object"], &plain["choices"][0]["logprobs"]),
        (&json!("text_completion"), &Value::Null)
    );
    let text = plain["choices"][0]["text"].as_str().unwrap();
    let echoed = served.complete(json!({"seed": 3, "max_tokens": 10, "echo": true})).await.json();
    assert_eq!(echoed["choices"][0]["text"], format!("Question: Who wrote Magdor?{text}"));
    let alone = served.complete(json!({"max_tokens": 0, "echo": true})).await.json();
    assert_eq!(alone["choices"][0]["text"], "Question: Who wrote Magdor?");
    assert_eq!(alone["usage"]["completion_tokens"], 0);
    assert_eq!(served.complete(json!({"max_tokens": 0})).await.status, 400);
    let default = served.complete(json!({"seed": 3, "temperature": 1.5})).await.json();
    assert!(default["usage"]["completion_tokens"].as_u64().unwrap() <= 16);
}

/// The request of lm-evaluation-harness for the likelihood of a continuation, and its reading of the answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_echo_has_the_log_probs_of_maverl_score_to_the_bit() {
    let served = Served::start(ModelSettings::default()).await;
    let rows: Vec<Vec<u32>> =
        [3_u32, 40, 150].map(|n| (0..n).map(|i| (i * i * 7 + 3 * n) % 500).collect()).into();
    // The second request finds the first one's prompt in the cache, and computes it again.
    for _ in 0..2 {
        let fields = json!({
            "prompt": rows, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true,
        });
        let answer = served.complete(fields).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let json = answer.json();
        let scores = score(served.host.base(), &rows).unwrap();
        for (index, (row, scores)) in rows.iter().zip(&scores).enumerate() {
            let logprobs = &json["choices"][index]["logprobs"];
            let values = logprobs["token_logprobs"].as_array().unwrap();
            assert_eq!(values.len(), row.len() + 1);
            assert!(values[0].is_null());
            let found: Vec<f32> =
                values[1..row.len()].iter().map(|value| value.as_f64().unwrap() as f32).collect();
            assert_eq!(found, scores.logprobs);
            let tokens = logprobs["tokens"].as_array().unwrap();
            let tops = logprobs["top_logprobs"].as_array().unwrap();
            assert_eq!((tokens.len(), tops.len()), (row.len() + 1, row.len() + 1));
            let offsets = logprobs["text_offset"].as_array().unwrap();
            assert!(offsets.windows(2).all(|pair| pair[0].as_u64() <= pair[1].as_u64()));
            for (value, top) in values[1..].iter().zip(&tops[1..]) {
                let best = top.as_object().unwrap().values().next().unwrap().as_f64().unwrap();
                assert!(value.as_f64().unwrap() <= best);
            }
            // The sampled token is greedy, so it is the most probable one.
            let last = tops.last().unwrap().as_object().unwrap();
            assert_eq!(last.values().next(), values.last());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_texts_or_ids_alone_or_many() {
    let served = Served::start(ModelSettings::default()).await;
    let text = "Question: Who wrote Magdor?";
    let ids = served.host.tokenizer().encode_framed(text).unwrap();
    let of = async |prompt: Value| {
        let answer =
            served.complete(json!({"prompt": prompt, "seed": 5, "max_tokens": 6, "n": 2})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let choices = answer.json()["choices"].as_array().unwrap().clone();
        choices.into_iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>()
    };
    let one = of(json!(text)).await;
    assert_eq!(one.len(), 2);
    assert_eq!(of(json!(ids)).await, one);
    assert_eq!(of(json!([text])).await, one);
    assert_eq!(of(json!([ids, ids])).await, [one.clone(), one].concat());
    for wrong in [
        json!([]),
        json!({}),
        json!([[]]),
        json!([1, -1]),
        json!([1_000_000]),
        json!([null]),
        json!(""),
    ] {
        let answer = served.complete(json!({"prompt": wrong, "max_tokens": 1})).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_text_joined_is_the_whole_one() {
    let served = Served::start(ModelSettings::default()).await;
    let whole = served.complete(json!({"seed": 6, "max_tokens": 20, "logprobs": 2})).await.json();
    let fields = json!({
        "seed": 6, "max_tokens": 20, "logprobs": 2, "stream": true, "stream_options": {"include_usage": true},
    });
    let events = served.complete(fields).await.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> =
        events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let choices = || chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
    let text: String = choices().filter_map(|choice| choice["text"].as_str()).collect();
    assert_eq!(whole["choices"][0]["text"], text);
    let tokens = choices().filter_map(|choice| choice["logprobs"]["token_logprobs"].as_array());
    let tokens: Vec<Value> = tokens.flatten().cloned().collect();
    assert_eq!(whole["choices"][0]["logprobs"]["token_logprobs"], json!(tokens));
    assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
}

/// Joins `logprobs` of the chunks of a stream.
fn joined_logprobs(chunks: &[String]) -> Value {
    let chunks = chunks.iter().filter_map(|chunk| serde_json::from_str::<Value>(chunk).ok());
    let mut joined = json!({});
    for chunk in chunks {
        let Some(parts) = chunk["choices"][0]["logprobs"].as_object().cloned() else { continue };
        for (name, part) in parts {
            let all = joined[&name].as_array().cloned().unwrap_or_default();
            joined[&name] = [all, part.as_array().unwrap().clone()].concat().into();
        }
    }
    joined
}

#[tokio::test(flavor = "multi_thread")]
async fn every_token_of_a_text_has_its_log_prob_among_so_many_others_and_its_place() {
    let served = Served::start(ModelSettings::default()).await;
    for seed in 0..12 {
        // At a high temperature many tokens are parts of characters, and others are special.
        let fields = json!({"seed": seed, "max_tokens": 60, "logprobs": 3, "temperature": 4.0});
        let whole = served.complete(fields.clone()).await.json();
        let (text, logprobs) =
            (whole["choices"][0]["text"].as_str().unwrap(), &whole["choices"][0]["logprobs"]);
        let mut streamed = fields;
        streamed["stream"] = true.into();
        let events = served.complete(streamed).await.events();
        assert_eq!(joined_logprobs(&events), *logprobs, "seed {seed}");
        let list = |name: &str| logprobs[name].as_array().unwrap().clone();
        let (tokens, values, offsets) =
            (list("tokens"), list("token_logprobs"), list("text_offset"));
        let mut next = 0;
        for (i, top) in list("top_logprobs").iter().enumerate() {
            let (top, token) = (top.as_object().unwrap(), tokens[i].as_str().unwrap());
            let more = top.values().filter(|&value| *value == values[i]).count();
            assert!(top.len() == 3 || top.len() == 4 && more > 0, "{token:?} of {top:?}");
            assert_eq!(top[token], values[i], "{token:?} of {top:?}");
            let offset = offsets[i].as_u64().unwrap() as usize;
            assert!(next <= offset && offset <= text.chars().count(), "{offset} of {text:?}");
            next = offset;
            let rest: String = text.chars().skip(offset).collect();
            let whole = !token.starts_with("bytes:")
                && !token.starts_with("<|")
                && !rest.starts_with('\u{fffd}');
            assert!(!whole || rest.starts_with(token), "{token:?} at {offset} of {text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echoed_prompt_counts_in_the_places_of_tokens() {
    let served = Served::start(ModelSettings::default()).await;
    let prompt = "Who wrote é and \u{1f600}?";
    for prompt in [json!(prompt), json!(served.host.tokenizer().encode_framed(prompt).unwrap())] {
        let fields =
            json!({"prompt": prompt, "seed": 3, "max_tokens": 8, "logprobs": 0, "echo": true});
        let choice = served.complete(fields).await.json()["choices"][0].clone();
        let (text, logprobs) = (choice["text"].as_str().unwrap(), &choice["logprobs"]);
        let chars: Vec<char> = text.chars().collect();
        let pairs = logprobs["tokens"].as_array().unwrap().iter();
        for (token, offset) in pairs.zip(logprobs["text_offset"].as_array().unwrap()) {
            let (token, offset) = (token.as_str().unwrap(), offset.as_u64().unwrap() as usize);
            let rest: String = chars[offset.min(chars.len())..].iter().collect();
            let whole = !token.starts_with("bytes:") && !token.starts_with("<|");
            assert!(!whole || rest.starts_with(token), "{token:?} at {offset} of {text:?}");
        }
        let tops = logprobs["top_logprobs"].as_array().unwrap();
        let sampled = |top: &&Value| top.as_object().is_some_and(|top| top.len() == 1);
        assert_eq!(tops.iter().filter(sampled).count(), tops.len() - 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_text_and_the_text_of_tokens() {
    let served = Served::start(ModelSettings::default()).await;
    let address = served.address();
    let body = json!({"model": "tiny", "prompt": "Who wrote é?", "return_token_strs": true});
    let json = ask(address, "/tokenize", Some(&body)).await.json();
    let expected = served.host.tokenizer().encode_framed("Who wrote é?").unwrap();
    assert_eq!(json["tokens"], json!(expected));
    assert_eq!(json["count"], expected.len());
    assert_eq!(json["max_model_len"], served.host.context());
    assert_eq!(json["token_strs"].as_array().unwrap().len(), expected.len());
    let back = ask(address, "/detokenize", Some(&json!({"tokens": expected}))).await.json();
    assert_eq!(back["prompt"], "Who wrote é?");
    let told = ask(address, "/tokenizer_info", None).await.json();
    let end = told["eos_token"].as_str().unwrap();
    let plain = json!({"prompt": end, "add_special_tokens": false});
    let json = ask(address, "/tokenize", Some(&plain)).await.json();
    assert_eq!(json["tokens"], json!([served.host.tokenizer().token_id(end).unwrap()]));
    assert_eq!(told["model_max_length"], served.host.context());
    let messages = json!([{"role": "user", "content": "Who wrote Magdor?"}]);
    let json = ask(address, "/tokenize", Some(&json!({"messages": messages}))).await.json();
    let chat = served.chat(json!({"max_tokens": 1, "return_token_ids": true})).await.json();
    assert_eq!(json["tokens"], chat["prompt_token_ids"]);
    // Without the beginning of the reply, the ids are the first ones.
    let closed = json!({"messages": messages, "add_generation_prompt": false});
    let shorter = ask(address, "/tokenize", Some(&closed)).await.json();
    let n = shorter["tokens"].as_array().unwrap().len();
    assert!(n < json["tokens"].as_array().unwrap().len(), "{shorter}");
    assert_eq!(shorter["tokens"], json!(json["tokens"].as_array().unwrap()[..n]));
    let nothing = ask(address, "/tokenize", Some(&json!({}))).await;
    assert_eq!(nothing.message(), "`prompt` is missing; write `prompt`, a text, or `messages`");
    assert_eq!(
        ask(address, "/detokenize", Some(&json!({"tokens": [1_u64 << 40]}))).await.status,
        400
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn token_ids_in_give_token_ids_out() {
    let served = Served::start(ModelSettings::default()).await;
    let chat = served
        .chat(json!({"seed": 8, "max_tokens": 12, "return_token_ids": true, "logprobs": true}))
        .await
        .json();
    let body = json!({
        "request_id": "r-1", "model": "tiny", "token_ids": chat["prompt_token_ids"],
        "sampling_params": {"max_tokens": 12, "seed": 8, "temperature": 1.0, "logprobs": 1, "n": 2},
    });
    let answer = ask(served.address(), "/inference/v1/generate", Some(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let json = answer.json();
    assert_eq!(
        (&json["request_id"], json["choices"].as_array().unwrap().len()),
        (&json!("r-1"), 2)
    );
    let choice = &json["choices"][0];
    assert_eq!(choice["token_ids"], chat["choices"][0]["token_ids"]);
    assert_eq!(choice["finish_reason"], chat["choices"][0]["finish_reason"]);
    let first = |choice: &Value| choice["logprobs"]["content"][0]["logprob"].clone();
    assert_eq!(first(choice), first(&chat["choices"][0]));
    let id = choice["token_ids"][0].as_u64().unwrap();
    assert_eq!(choice["logprobs"]["content"][0]["token"], format!("token_id:{id}"));
    for wrong in [json!({}), json!({"token_ids": []}), json!({"token_ids": [1], "stream": true})] {
        assert_eq!(ask(served.address(), "/inference/v1/generate", Some(&wrong)).await.status, 400);
    }
}
