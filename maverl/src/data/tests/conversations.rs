//! Rows of conversations: what is read, and what is refused by name.

use serde_json::json;

use super::*;
use crate::config::{ObservationPlan, TrainOn};
use crate::text::ChatInput;

fn task() -> TaskConfig {
    TaskConfig { split: ALL.to_owned(), ..TaskConfig::default() }
}

fn shown(row: &Value) -> Result<Demonstration, String> {
    let dir = file("d.jsonl", &row.to_string());
    let rows = demonstrations(&dir.path().join("d.jsonl"), &task());
    let base = format!("{}/", dir.path().display());
    rows.map(|mut rows| rows.remove(0)).map_err(|error| error.to_string().replace(&base, ""))
}

/// Reads a conversation of a user and an assistant whose message has one key more.
fn with(key: &str, value: Value) -> Result<Demonstration, String> {
    let mut reply = json!({"role": "assistant", "content": "b"});
    reply[key] = value;
    shown(&json!({"messages": [{"role": "user", "content": "a"}, reply]}))
}

/// Reads a conversation with one key more beside its messages.
fn row_with(key: &str, value: Value) -> Result<Demonstration, String> {
    let mut row = json!({"prompt": "a", "completion": "b"});
    row[key] = value;
    shown(&row)
}

#[test]
fn what_templates_read_is_read_in_each_of_its_forms() {
    let reply = |row: Result<Demonstration, String>| row.unwrap().chat.messages.pop().unwrap();
    let wanted =
        json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
    for arguments in [json!({"x": 1}), json!("{\"x\": 1}")] {
        let function = json!({"name": "f", "arguments": arguments});
        let calls = json!([{"id": "1", "type": "function", "function": function, "index": null}]);
        assert_eq!(reply(with("tool_calls", calls)).get("tool_calls"), Some(&wanted));
    }
    let bare = reply(with("tool_calls", json!([{"name": "f", "arguments": ""}])));
    assert_eq!(bare.get("tool_calls").unwrap()[0], json!({"name": "f", "arguments": {}}));
    let parts = json!([{"type": "text", "text": "b"}, {"text": "c"}]);
    assert_eq!(reply(with("content", parts)).text(), "bc");
    for key in ["reasoning_content", "reasoning", "thinking"] {
        assert_eq!(reply(with(key, json!("hm"))).get(key), Some(&json!("hm")));
    }
    for null in ["refusal", "function_call", "audio", "weight"] {
        assert_eq!(reply(with(null, Value::Null)), reply(with("name", Value::Null)), "{null}");
    }
    let developer = shown(&json!({"messages": [
        {"role": "developer", "content": "Be brief."}, {"role": "user"}, {"role": "assistant", "content": ""},
    ]}));
    assert_eq!(developer.unwrap().chat.messages[0].role(), "system");
    for tools in [json!([{"name": "f"}]), json!("[{\"name\": \"f\"}]")] {
        assert_eq!(row_with("tools", tools).unwrap().chat.tools, Some(vec![json!({"name": "f"})]));
    }
    for none in [json!([]), json!("[]"), json!("null"), Value::Null] {
        assert_eq!(row_with("tools", none).unwrap().chat.tools, None);
    }
    for variables in [json!({"enable_thinking": false}), json!("{\"enable_thinking\": false}")] {
        let chat = row_with("chat_template_kwargs", variables).unwrap().chat;
        assert_eq!(chat.chat_template_kwargs["enable_thinking"], false);
    }
    let chat = row_with("documents", json!([{"title": "t", "text": "d"}])).unwrap().chat;
    assert_eq!(chat.documents.unwrap().len(), 1);
    for note in ["id", "meta", "source", "score", "maverl"] {
        assert_eq!(row_with(note, json!(1)).unwrap().chat, row_with(note, json!(2)).unwrap().chat);
    }
}

#[test]
fn a_key_of_a_message_that_nothing_reads_is_refused_by_name() {
    for (key, value, expected) in [
        ("value", json!("b"), "`messages[1]` has `value`, which is not read; a message has `role`"),
        ("function_call", json!({"name": "f"}), "write `tool_calls`, a list, in its place"),
        ("timestamp", json!(3), "what no model is to see goes into `task.ignore`"),
        ("audio", json!({"id": 1}), "has `audio`"),
        ("loss", json!(true), "has `loss`"),
        ("weight", json!(0.5), "`messages[1].weight` is 0.5; write 1 or true"),
        ("weight", json!(2), "`messages[1].weight` is 2; "),
        ("weight", json!(-1), "`messages[1].weight` is -1; "),
        ("train", json!("no"), "`messages[1].train` is \"no\"; "),
        ("loss_mask", json!([1, 0]), "`messages[1].loss_mask` is [1,0]; "),
        ("content", json!(3), "`messages[1].content` is 3; write a text, null or a list"),
        ("content", json!([{"type": "image_url"}]), "`messages[1].content[0]` is {\"type\""),
        ("content", Value::Null, "`messages[1]` has neither `content` nor `tool_calls`"),
        ("role", json!("gpt"), "`messages[1].role` is \"gpt\"; write system, user, assistant or"),
        ("role", Value::Null, "`messages[1].role` is missing"),
        ("name", json!(3), "`messages[1].name` is 3; write a text"),
        ("reasoning", json!({"a": 1}), "`messages[1].reasoning` is {\"a\":1}; write a text"),
        (
            "tool_calls",
            json!({"name": "f"}),
            "`messages[1].tool_calls` is {\"name\":\"f\"}; write a list",
        ),
        ("tool_calls", json!(["f"]), "`messages[1].tool_calls[0]` is \"f\"; write an object"),
        (
            "tool_calls",
            json!([{"function": {}}]),
            "`messages[1].tool_calls[0].function` has no `name`",
        ),
        (
            "tool_calls",
            json!([{"function": {"name": "f", "arguments": "{"}}]),
            ".arguments` is \"{\"; write an object",
        ),
        (
            "tool_calls",
            json!([{"function": {"name": "f", "arguments": [1]}}]),
            ".arguments` is [1]; ",
        ),
        (
            "tool_calls",
            json!([{"function": {"name": "f"}, "result": 1}]),
            "[0]` has `result`, which is not read",
        ),
    ] {
        let error = with(key, value).unwrap_err();
        assert!(error.starts_with("d.jsonl:1: ") && error.contains(expected), "{key}: {error}");
    }
}

#[test]
fn keys_of_a_message_that_disagree_are_refused_by_name() {
    let two = json!({"role": "assistant", "content": "b", "thinking": "x", "reasoning": "y"});
    let error = shown(&json!({"prompt": "a", "completion": [two]})).unwrap_err();
    assert!(
        error.contains("`completion[0]` has other thoughts in `thinking` than in `reasoning`"),
        "{error}"
    );
    let both = json!({"role": "assistant", "content": "b", "weight": 1, "train": false});
    let error = shown(&json!({"prompt": "a", "completion": [both]})).unwrap_err();
    assert!(error.contains("has `train` and `weight`, which disagree"), "{error}");
    let asks = json!({"role": "user", "content": "a", "weight": 1});
    let error = shown(&json!({"prompt": [asks], "completion": "b"})).unwrap_err();
    assert!(
        error.contains("`prompt[0]` is a message of \"user\" that is to be trained on"),
        "{error}"
    );
}

#[test]
fn a_column_that_nothing_reads_is_refused_by_name_unless_it_is_ignored() {
    for (key, value, expected) in [
        ("category", json!("qa"), "a row has `category`, which is not read"),
        ("label", json!(false), "`task.ignore = [\"label\"]`"),
        ("answers", json!(["b"]), "has `answers`"),
        ("weight", json!(2.0), "has `weight`"),
        ("enable_thinking", json!(false), "goes into `chat_template_kwargs`"),
        ("functions", json!([]), "has `functions`"),
        ("messages", json!([]), "`messages` beside `prompt` or `completion`"),
        ("tools", json!({"name": "f"}), "`tools` is {\"name\":\"f\"}; write a list of objects"),
        ("tools", json!("lookup"), "`tools` is a text that is no JSON"),
        ("tools", json!(["lookup"]), "`tools[0]` is \"lookup\"; write an object"),
        ("chat_template_kwargs", json!([1]), "`chat_template_kwargs` is [1]; write an object"),
        ("chat_template", json!(1), "`chat_template` is 1; write its name"),
    ] {
        let error = row_with(key, value).unwrap_err();
        assert!(error.starts_with("d.jsonl:1: ") && error.contains(expected), "{key}: {error}");
    }
    let user = json!({"role": "user", "content": "a", "timestamp": 3});
    let row =
        json!({"messages": [user, {"role": "assistant", "content": "b"}], "prompt": "a", "n": 1});
    let dir = file("d.jsonl", &row.to_string());
    let ignore = ["timestamp", "prompt", "n"].map(str::to_owned).to_vec();
    let rows = demonstrations(&dir.path().join("d.jsonl"), &TaskConfig { ignore, ..task() });
    assert_eq!(rows.unwrap()[0].chat.messages.len(), 2);
}

#[test]
fn columns_of_known_data_sets_and_those_that_a_configuration_names_are_read() {
    for row in [
        json!({"question": "a", "answer": "b"}),
        json!({"problem": "a", "level": "Level 1", "type": "Algebra", "solution": "b"}),
    ] {
        let messages = shown(&row).unwrap().chat.messages;
        let texts: Vec<_> = messages.iter().map(|it| (it.role(), it.text())).collect();
        assert_eq!(texts, [("user", "a"), ("assistant", "b")]);
    }
    let dir = file("d.jsonl", &json!({"asked": "a", "out": {"text": "b"}}).to_string());
    let keys = [("prompt", "asked"), ("completion", "out.text")];
    let keys = keys.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned())).into();
    let ignore = vec!["out".to_owned()];
    let read = demonstrations(&dir.path().join("d.jsonl"), &TaskConfig { keys, ignore, ..task() });
    assert_eq!(read.unwrap()[0].chat.messages[1].text(), "b");
}

#[test]
fn marks_choose_the_replies_and_the_answers_to_them() {
    let row = |marks: [Value; 4]| {
        let roles = ["user", "assistant", "tool", "assistant"];
        let message =
            |(role, mark): (&str, Value)| json!({"role": role, "content": "x", "train": mark});
        let messages: Vec<Value> = roles.into_iter().zip(marks).map(message).collect();
        shown(&json!({ "messages": messages }))
    };
    let (none, yes, no) = (Value::Null, json!(true), json!(false));
    let of = |marks: [&Value; 4]| {
        let row = row(marks.map(Clone::clone)).unwrap();
        (row.replies(), row.all_replies(), row.observations())
    };
    assert_eq!(of([&none, &none, &none, &none]), (vec![3], vec![1, 3], vec![2]));
    assert_eq!(of([&none, &yes, &none, &none]), (vec![1, 3], vec![1, 3], vec![2]));
    assert_eq!(of([&none, &no, &none, &none]), (vec![3], vec![3], vec![2]));
    assert_eq!(of([&no, &none, &no, &none]), (vec![1, 3], vec![1, 3], vec![]));
    assert_eq!(of([&no, &yes, &none, &no]), (vec![1], vec![1], vec![2]));
    let texts = |train_on: TrainOn| {
        let texts = row([const { Value::Null }; 4]).unwrap().row_texts(train_on).texts;
        let last = |text: &Text| match text {
            Text::Reply(chat) | Text::Observation(chat) | Text::Judged(chat) => chat.messages.len(),
        };
        texts.iter().map(last).collect::<Vec<_>>()
    };
    assert_eq!(texts(TrainOn::Assistant), [4]);
    assert_eq!(texts(TrainOn::Replies), [2, 4], "each reply is a row of its own");
    assert_eq!(texts(TrainOn::Observations), [3]);
    assert_eq!(texts(TrainOn::All(ObservationPlan::default())), [4, 3]);
    let error = row([none.clone(), no.clone(), none.clone(), no]).unwrap_err();
    assert!(error.contains("every reply has a mark that leaves it out"), "{error}");
    // Self-play compares last replies.
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "train": true},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]);
    let dir = file("d.jsonl", &json!({ "messages": messages }).to_string());
    let error = self_play(&dir.path().join("d.jsonl"), &task()).unwrap_err().to_string();
    assert!(error.contains("d.jsonl:1: self-play compares the last reply"), "{error}");
}

#[test]
fn rows_of_other_splits_are_not_trained_on() {
    let row = |split: Value| json!({"prompt": "a", "completion": "b", "split": split}).to_string();
    let rows = [row(json!("train")), row(json!("test")), row(Value::Null)].join("\n");
    let dir = file("d.jsonl", &rows);
    let read = |split: &str| {
        let config = TaskConfig { split: split.to_owned(), ..TaskConfig::default() };
        demonstrations(&dir.path().join("d.jsonl"), &config)
    };
    let lines = |split: &str| -> Vec<String> {
        let rows = read(split).unwrap().into_iter();
        rows.map(|row| row.location.rsplit(':').next().unwrap().to_owned()).collect()
    };
    assert_eq!(lines("train"), ["1", "3"]);
    assert_eq!(lines("test"), ["2", "3"]);
    assert_eq!(lines(ALL), ["1", "2", "3"]);
    let dir = file("d.jsonl", &row(json!("test")));
    let error = demonstrations(&dir.path().join("d.jsonl"), &TaskConfig::default());
    assert!(error.unwrap_err().to_string().contains("has no tasks in split `train`"));
}

#[test]
fn pairs_and_labels_have_tools_and_calls_and_no_marks() {
    let call = json!({"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": "{}"}]});
    let row = json!({"prompt": "a", "chosen": [call], "rejected": "no", "tools": [{"name": "f"}]});
    let dir = file("d.jsonl", &row.to_string());
    let path = dir.path().join("d.jsonl");
    let pair = preferences(&path, &task()).unwrap().remove(0);
    assert_eq!(pair.chosen.as_ref().unwrap().get("tool_calls").unwrap()[0]["name"], "f");
    assert!(
        pair.conversations().iter().all(|chat| chat.tools.is_some() && chat.messages.len() == 2)
    );
    let judged = labeled(&path, &task()).unwrap();
    assert_eq!(judged[0].conversation(), pair.conversations()[0]);
    assert_eq!(judged[0].reply_text(), "[{\"name\":\"f\",\"arguments\":{}}]");
    for (row, expected) in [
        (
            json!({"prompt": "a", "chosen": [{"role": "assistant", "content": "b", "weight": 0}], "rejected": "c"}),
            "`chosen[0]` says whether it is trained on, which only demonstrations do",
        ),
        (
            json!({"prompt": "a", "rejected": "c", "chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}),
            "`chosen` is a whole conversation, and the row has a `prompt`",
        ),
        (json!({"prompt": "a", "chosen": "b", "rejected": "c", "prompt_id": 1}), "has `prompt_id`"),
    ] {
        let dir = file("d.jsonl", &row.to_string());
        let path = dir.path().join("d.jsonl");
        let pairs = preferences(&path, &task()).map(drop);
        for error in [pairs.unwrap_err(), labeled(&path, &task()).map(drop).unwrap_err()] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
    let row =
        |split: &str| json!({"prompt": "a", "completion": "b", "label": true, "split": split});
    let dir = file("d.jsonl", &row("test").to_string());
    let path = dir.path().join("d.jsonl");
    let error = labeled(&path, &task()).unwrap_err().to_string();
    assert!(
        error.contains("d.jsonl:1: `split` is \"test\"; a verifier is trained on rows of"),
        "{error}"
    );
    assert_eq!(labeled_held_out(&path, &task(), "test").unwrap().len(), 1);
}

#[test]
fn replies_with_labels_stand_beside_pairs_and_are_good_or_bad() {
    let rows = [
        json!({"prompt": "a", "completion": "b", "label": true, "score": 0.9}),
        json!({"prompt": "a", "chosen": "c", "rejected": "d"}),
        json!({"prompt": "e", "completion": "f", "label": 0, "split": "train"}),
        json!({"prompt": "e", "completion": "g", "label": 1, "split": "validation"}),
    ];
    let dir = file("d.jsonl", &rows.map(|row| format!("{row}\n")).concat());
    let path = dir.path().join("d.jsonl");
    let rows = judged_replies(&path, &TaskConfig::default()).unwrap();
    let sizes: Vec<[usize; 2]> = rows.iter().map(PreferenceRow::sizes).collect();
    assert_eq!(sizes, [[1, 0], [1, 1], [0, 1]]);
    let texts = |row: &PreferenceRow| -> Vec<String> {
        let last = |chat: &ChatInput| chat.messages.last().unwrap().text().to_owned();
        row.conversations().iter().map(last).collect()
    };
    assert_eq!(rows.iter().map(texts).collect::<Vec<_>>(), [vec!["b"], vec!["c", "d"], vec!["f"]]);
    for (row, expected) in [
        (json!({"prompt": "a", "completion": "b"}), "there is no `label`; write true or false"),
        (json!({"prompt": "a", "completion": "b", "label": "good"}), "`label` is \"good\""),
        (json!({"prompt": "a", "label": true}), "no `prompt` and `completion`"),
        (json!({"prompt": "a", "chosen": "b"}), "no `chosen` and `rejected`"),
    ] {
        let dir = file("d.jsonl", &row.to_string());
        let error = judged_replies(&dir.path().join("d.jsonl"), &task()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn messages_before_a_question_are_part_of_the_task() {
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let row = json!({"prompt": [
        message("system", "Use \\boxed{}."), message("user", "My number is 7."), message("assistant", "ok"),
        message("user", "Add one."),
    ], "answer": "8"});
    let task = read("t.jsonl", &row.to_string(), ALL).unwrap().remove(0);
    assert_eq!((task.question.as_str(), task.system()), ("Add one.", "Use \\boxed{}."));
    let history = task.history();
    assert_eq!(history.len(), 2);
    assert_eq!((history[1].role, history[1].content.as_str()), (Role::Assistant, "ok"));
    // As columns of their own.
    let row = json!({"question": "Add one.", "system": "Use \\boxed{}.", "answer": "8", "history": [
        message("user", "My number is 7."), message("assistant", "ok"),
    ]});
    let same = read("t.jsonl", &row.to_string(), ALL).unwrap().remove(0);
    assert_eq!((same.system(), same.history()), (task.system(), history));
    for (column, value, refusal) in [
        ("system", json!(5), "`system` is 5; write a text"),
        ("system", json!(["a"]), "`system` is [\"a\"]; write a text"),
        ("history", json!("x"), "`history` is \"x\"; write a list of messages"),
        (
            "history",
            json!([["a", "b"]]),
            "`history[0]` is [\"a\",\"b\"]; write an object with `role`",
        ),
        ("history", json!([message("alien", "x")]), "`history[0]"),
        ("history", json!([{"role": "user"}]), "`history[0]"),
        ("history", json!([{"role": "user", "content": "a", "mood": "b"}]), "`history[0]"),
        (
            "history",
            json!([{"role": "assistant", "content": "a", "thinking": "b"}]),
            "`history[0]` has `thinking`",
        ),
        (
            "history",
            json!([{"role": "assistant", "content": "a", "train": 1}]),
            "`history[0]` says whether it is trained on",
        ),
        (
            "prompt",
            json!([message("system", "b"), message("user", "a")]),
            "the row has `question`, and messages in `prompt`",
        ),
    ] {
        let mut row = json!({"question": "a", "answer": "1"});
        row[column] = value;
        let refused = read("t.jsonl", &row.to_string(), ALL).unwrap_err().to_string();
        assert!(refused.contains("t.jsonl:1: ") && refused.contains(refusal), "{refused}");
        let config = TaskConfig {
            data: "t.jsonl".to_owned(),
            ignore: vec![column.to_owned()],
            ..TaskConfig::default()
        };
        let ignoring =
            load(&config, ALL, file("t.jsonl", &row.to_string()).path()).unwrap().remove(0);
        assert_eq!((ignoring.system(), ignoring.history()), ("", Vec::new()), "{column}");
    }
    for (column, value) in [
        ("system", json!("")),
        ("system", json!(null)),
        ("history", json!([])),
        ("history", json!("")),
    ] {
        let mut row = json!({"question": "a", "answer": "1"});
        row[column] = value;
        let task = read("t.jsonl", &row.to_string(), ALL).unwrap().remove(0);
        assert_eq!((task.system(), task.history()), ("", Vec::new()));
    }
    let plain = read("t.jsonl", &json!({"prompt": "a", "answer": "8"}).to_string(), ALL).unwrap();
    assert_eq!((plain[0].system(), plain[0].history()), ("", Vec::new()));
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "Add"}, {"type": "text", "text": " one."}]}]);
    let task = read("t.jsonl", &json!({"prompt": parts}).to_string(), ALL).unwrap().remove(0);
    assert_eq!(task.question, "Add one.");
    for (prompt, expected) in [
        (
            json!([message("user", "a"), message("assistant", "The answer is")]),
            "`prompt` ends with a message of assistant",
        ),
        (json!([message("system", "a")]), "`prompt` ends with a message of system"),
        (json!([]), "`prompt` ends with a message of nobody"),
        (json!([{"role": "user", "content": "a", "image": "x"}]), "`prompt[0]` has `image`"),
        (json!([{"role": "user", "content": [{"type": "image"}]}]), "parts are of type `text`"),
        (
            json!([{"role": "assistant", "tool_calls": [{"name": "f"}]}, message("user", "a")]),
            "`prompt[0]` has `tool_calls`; messages before a question have `role` and `content` alone",
        ),
        (json!([{"role": "user", "content": "a", "weight": 0}]), "says whether it is trained on"),
    ] {
        let row = json!({ "prompt": prompt }).to_string();
        let error = read("t.jsonl", &row, ALL).unwrap_err().to_string();
        assert!(error.contains(":1: ") && error.contains(expected), "{error}");
    }
    let row = json!({"prompt": [message("system", "a"), message("user", "b")], "system": "c"});
    let error = read("t.jsonl", &row.to_string(), ALL).unwrap_err().to_string();
    assert!(
        error.contains("become the task's `system`, which is a column of the row too"),
        "{error}"
    );
}
