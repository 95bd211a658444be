//! Malformed requests beside an episode that goes on, and calls of tools.

use super::*;

/// Sends a body as it is.
async fn raw(address: SocketAddr, path: &str, key: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-length: {length}\r\n\r\n"
    );
    let sent = [head.as_bytes(), body].concat();
    tokio::task::spawn_blocking(move || exchange(address, &sent)).await.unwrap()
}

/// Returns bodies that no route accepts.
fn bodies() -> Vec<Vec<u8>> {
    let deep = "[".repeat(100_000);
    let texts = [
        "",
        "{",
        "[]",
        "null",
        "5",
        "\"x\"",
        deep.as_str(),
        "{\"messages\": 5, \"input\": 5, \"prompt\": 5}",
        "{\"messages\": [7], \"input\": [7], \"prompt\": [\"a\", -2]}",
        "{\"messages\": [{\"role\": 1}], \"n\": 1e400}",
        "{\"text\": 1, \"name\": {}, \"value\": \"x\", \"of\": 3, \"by\": 4, \"answer\": [1]}",
    ];
    let texts = texts.iter().map(|text| text.as_bytes().to_vec());
    texts.chain([b"{\"messages\": \"\xff\xfe\"}".to_vec()]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_refused_and_their_episode_goes_on_as_without_them() {
    let played = Played::start(options(&["a"])).await;
    let said = played.chat("a", json!([user("hi")])).await;
    let mut refused = 0;
    for route in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/act",
        "/parts",
        "/finish",
        "/fail",
    ] {
        let path = format!("/episodes/{}{route}", played.id);
        for body in bodies() {
            let answer = raw(played.address, &path, &played.key, &body).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            assert_eq!(answer.status, 400, "{path} {shown}: {}", answer.body);
            assert!(!answer.message().is_empty());
            refused += 1;
        }
    }
    let path = format!("/episodes/{}/mcp", played.id);
    for body in bodies() {
        let answer = raw(played.address, &path, &played.key, &body).await;
        // An object without an id is a notification, which is accepted without an effect.
        assert!([400, 202].contains(&answer.status), "{}", answer.body);
    }
    let hi = json!([user("hi"), {"role": "assistant", "content": content(&said)}, user("go")]);
    played.chat("a", hi).await;
    let episode = played.finish("yes").await;
    println!("{refused} requests were refused");
    assert_eq!(paths(&episode), ["0", "1"]);
    assert_eq!(prompt(&episode.turns[1]), ["hi", " HI ", "go"]);
    assert!(episode.turns.iter().all(|turn| turn.error.is_none()) && episode.acts.is_empty());
    assert!(episode.rewards.is_empty() && episode.score().unwrap().solved);
    let (limits, crashes) = ("gateway/limits", "gateway/crashes");
    assert_eq!((metric(&episode, limits), metric(&episode, crashes)), (Some(0.0), Some(0.0)));
}

/// Calls two tools after some words; repeats the last message in a conversation with a result.
fn calls(_: &Ask, messages: &[Message]) -> String {
    let last = messages.last().unwrap();
    match last.content.as_str() {
        "add" => "First.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2]}}\n</tool_call>\n\
                  <tool_call>{\"name\":\"sum\",\"arguments\":{}}</tool_call>"
            .to_owned(),
        other => format!("It is {other}."),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_tools_are_the_same_whole_and_streamed_and_their_results_continue_the_turn() {
    let played = Played::of(options(&["a"]), Talker { say: calls, yields: |_| 1 }).await;
    let tools: Vec<Value> = ["add", "sum"]
        .iter()
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}))
        .collect();
    let path = "/v1/chat/completions";
    let body = json!({"model": "a", "messages": [user("add")], "tools": tools});
    let whole = played.post(path, body.clone()).await.json();
    let choice = &whole["choices"][0];
    assert_eq!((&choice["finish_reason"], content(&whole)), (&json!("tool_calls"), "First.\n"));
    let message = &choice["message"];
    let called = message["tool_calls"].as_array().unwrap();
    let of = |call: &Value| {
        let arguments: Value =
            serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        (call["type"].clone(), call["function"]["name"].clone(), arguments)
    };
    let expected = [
        (json!("function"), json!("add"), json!({"a": 1, "b": [2]})),
        (json!("function"), json!("sum"), json!({})),
    ];
    assert_eq!(called.iter().map(of).collect::<Vec<_>>(), expected);
    let ids: Vec<&str> = called.iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.starts_with("call_")), "{ids:?}");
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let answer = played.post(path, streamed).await;
    let chunks = answer.events().into_iter().filter(|event| event != "[DONE]");
    let chunks: Vec<Value> = chunks.map(|event| serde_json::from_str(&event).unwrap()).collect();
    let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let text: String = deltas().filter_map(|delta| delta["content"].as_str()).collect();
    let calls = deltas().filter_map(|delta| delta["tool_calls"].as_array()).flatten();
    let calls: Vec<&Value> = calls.collect();
    assert_eq!((text.as_str(), calls.len()), ("First.\n", 2));
    for (index, (call, expected)) in calls.into_iter().zip(expected).enumerate() {
        assert_eq!((&call["index"], of(call)), (&json!(index), expected));
    }
    let finish = chunks.iter().find_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
    assert_eq!(finish, Some("tool_calls"));
    // The results in another order than the calls.
    let result =
        |at: usize, text: &str| json!({"role": "tool", "tool_call_id": ids[at], "content": text});
    let messages = json!([user("add"), message, result(1, "0"), result(0, "3")]);
    let body = json!({"model": "a", "messages": messages, "tools": tools});
    let next = played.post(path, body).await.json();
    assert_eq!(content(&next), "It is 0.");
    let episode = played.finish("yes").await;
    let turn = &episode.turns[2];
    assert_eq!(prompt(turn), ["add", episode.turns[0].reply.as_str(), "3", "0"]);
    assert_eq!(metric(&episode, "gateway/prefix_reuse"), Some(1.0));
}
