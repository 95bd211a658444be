//! Requests in the forms of text completions and of responses.

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
