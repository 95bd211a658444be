//! Requests in the forms of text completions, of responses, and of the Model Context Protocol.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_response_continues_its_conversation_and_a_text_has_none() {
    let played = Played::start(options(&["a"])).await;
    let text = played.post("/v1/completions", json!({"model": "a", "prompt": "abc"})).await.json();
    assert_eq!(
        (&text["choices"][0]["text"], &text["object"]),
        (&json!(" ABC "), &json!("text_completion"))
    );
    let ask = |input: Value| json!({"model": "a", "instructions": "Be brief.", "input": input});
    let first = played.post("/v1/responses", ask("hi".into())).await.json();
    assert_eq!(first["output"][0]["content"][0]["text"], " HI ");
    let again = json!([user("hi"), first["output"][0], user("go")]);
    let mut streamed = ask(again);
    streamed["stream"] = true.into();
    let answer = played.post("/v1/responses", streamed).await;
    let events = answer.events();
    let last: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], " GO ");
    let refused = played.post("/v1/responses", json!({"input": [{"type": "x"}]})).await;
    assert_eq!(refused.status, 400);
    // A part of the reward may name any answer.
    let part = json!({"name": "style", "value": 0.5, "of": {"completion": first["id"]}});
    assert_eq!(played.post("/parts", part).await.status, 200);
    let episode = played.finish("yes").await;
    assert_eq!(prompt(&episode.turns[0]), ["abc"]);
    assert_eq!(prompt(&episode.turns[2]), ["Be brief.", "hi", " HI ", "go"]);
    assert_eq!(metric(&episode, "gateway/prefix_reuse"), Some(1.0));
    assert_eq!(
        episode.turn_reward(1).map(|reward| reward - episode.turn_reward(0).unwrap()),
        Some(0.5)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_mcp_is_answered_and_its_notifications_are_accepted() {
    let played = Played::start(options(&["a"])).await;
    let rpc = async |method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let answer = played.post("/mcp", message).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let begun = rpc("initialize", json!({"protocolVersion": "2025-03-26"})).await;
    assert_eq!(begun["result"]["protocolVersion"], "2025-03-26");
    assert_eq!(rpc("ping", json!({})).await, json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    assert_eq!(rpc("tools/list", json!({})).await["result"], json!({"tools": []}));
    assert_eq!(rpc("resources/list", json!({})).await["error"]["code"], -32601);
    assert_eq!(rpc("tools/call", json!({"arguments": {}})).await["error"]["code"], -32602);
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(played.post("/mcp", told).await.status, 202);
    assert_eq!(played.post("/mcp", json!([1])).await.status, 400);
    assert!(played.finish("yes").await.score().unwrap().solved);
}
