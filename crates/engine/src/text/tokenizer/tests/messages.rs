//! Keys of messages as templates get them, and parts of conversations that templates do not show.

use super::made::{Files, METASPACE};
use super::*;

/// Templates of transformers' cases with null keys, and of models with thoughts.
const CALLS: &str = "{% for m in messages %}[{{ m.role }}]{% if m.tool_calls is defined %}{{ m.tool_calls | length }} calls\
                     {% endif %}{{ m.content }} {% endfor %}";
const THOUGHTS: &str =
    "{% for m in messages %}{% if m.KEY %}<{{ m.KEY }}>{% endif %}{{ m.content }}{% endfor %}";

fn with(template: &str) -> Tokenizer {
    Files { template, ..METASPACE }.load().unwrap()
}

fn chat(row: Value) -> ChatInput {
    serde_json::from_value(row).unwrap()
}

fn rendered(tokenizer: &Tokenizer, messages: &Value) -> String {
    let chat = chat(json!({ "messages": messages }));
    tokenizer.render_chat(&chat).unwrap().text().to_owned()
}

#[test]
fn keys_that_are_null_are_not_there_as_in_transformers() {
    let tokenizer = with(CALLS);
    // What `model_dump()` of OpenAI's client writes.
    let dump = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "hi", "tool_calls": null, "function_call": null, "refusal": null},
        {"role": "user", "content": "r"},
    ]);
    assert_eq!(rendered(&tokenizer, &dump), "[user]q [assistant]hi [user]r ");
    let null = json!([{"role": "system", "content": null}, {"role": "user", "content": "q"}]);
    assert_eq!(rendered(&tokenizer, &null), "[system] [user]q ");
    // Values inside of a key stay as they are.
    let inner = json!([{"role": "assistant", "content": "", "tool_calls": [null, null]}]);
    assert_eq!(rendered(&tokenizer, &inner), "[assistant]2 calls ");
}

#[test]
fn thoughts_are_shown_by_the_name_that_the_template_reads() {
    for read in ["reasoning_content", "thinking"] {
        let tokenizer = with(&THOUGHTS.replace("KEY", read));
        for key in ChatMessage::THOUGHTS {
            let messages = json!([{"role": "assistant", "content": "x", key: "hm"}]);
            assert_eq!(rendered(&tokenizer, &messages), "<hm>x", "{key} by {read}");
        }
    }
}

#[test]
fn what_a_template_does_not_show_is_named() {
    let call = json!({"type": "function", "function": {"name": "f", "arguments": {}}});
    let row = chat(json!({
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "x", "tool_calls": [call], "thinking": "hm"},
        ],
        "tools": [{"name": "f"}],
    }));
    assert_eq!(with(METASPACE.template).unread(&row).unwrap(), ["tools", "tool_calls", "thinking"]);
    let shows = "{{ tools }}{% for m in messages %}{{ m.reasoning_content }}{{ m.tool_calls }}{{ m.content }}{% endfor %}";
    assert_eq!(with(shows).unread(&row).unwrap(), [""; 0]);
    // Thoughts of earlier messages may be left out, and empty values have nothing to show.
    let earlier = chat(json!({"messages": [
        {"role": "assistant", "content": "x", "reasoning": "hm", "tool_calls": []},
        {"role": "user", "content": "q"},
    ]}));
    assert_eq!(with(METASPACE.template).unread(&earlier).unwrap(), [""; 0]);
    // A template that refuses the conversation without a part reads it.
    let needs = "{% if not tools %}{{ raise_exception('none') }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_eq!(with(needs).unread(&row).unwrap(), ["tool_calls", "thinking"]);
}

#[test]
fn a_reply_is_divided_from_its_prompt_and_a_template_that_changes_the_prompt_is_refused() {
    let tokenizer = with(
        "{% for m in messages %}<start>{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<start>{% endif %}",
    );
    let row = chat(
        json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}),
    );
    let divided = tokenizer.reply(&row).unwrap();
    assert_eq!(divided.bytes(), "<start>a<end><start>b<end>".len());
    let (before, last) = tokenizer.encode_parts(&divided).unwrap();
    let id = |token: &str| tokenizer.token_id(token).unwrap();
    assert_eq!((before[0], *before.last().unwrap()), (id("<start>"), id("<start>")));
    assert_eq!(*last.last().unwrap(), id("<end>"));
    let changes = with("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
    let error = changes.reply(&row).unwrap_err().to_string();
    assert_eq!(error, "the chat template changes the prompt when the reply is appended");
}
