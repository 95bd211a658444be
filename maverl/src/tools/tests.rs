#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn call(name: &str, arguments: Value) -> Result<Call, CallError> {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    Ok(Call { name: name.to_owned(), arguments })
}

fn add(x: i64) -> Result<Call, CallError> {
    call("add", json!({ "x": x }))
}

#[test]
fn calls_of_qwen_are_read() {
    for (reply, wanted) in [
        ("no call", vec![]),
        ("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": 1}}\n</tool_call>", vec![add(1)]),
        (
            "First.\n<tool_call>{\"name\": \"add\", \"arguments\": {\"x\": 1}}</tool_call>\n<tool_call>\n{\"arguments\": {\"x\": 2}, \"name\": \"add\"}</tool_call> done",
            vec![add(1), add(2)],
        ),
        // Lenient parsing.
        ("<tool_call>{\"name\": \"add\", \"arguments\": {\"x\": 1}}", vec![add(1)]),
        (
            "<tool_call>```json\n{\"name\": \"add\", \"parameters\": {\"x\": 1}}\n```</tool_call>",
            vec![add(1)],
        ),
        (
            "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>",
            vec![add(1)],
        ),
        (
            "<tool_call>{\"function\": {\"name\": \"add\", \"arguments\": {\"x\": 1}}}</tool_call>",
            vec![add(1)],
        ),
        (
            "<tool_call>[{\"name\": \"add\", \"arguments\": {\"x\": 1}}, {\"name\": \"add\", \"arguments\": {\"x\": 2}}]</tool_call>",
            vec![add(1), add(2)],
        ),
        ("<tool_call>{\"name\": \"now\"}</tool_call>", vec![call("now", json!({}))]),
        // A tag inside a string is text.
        (
            "<tool_call>{\"name\": \"say\", \"arguments\": {\"text\": \"</tool_call>\"}}</tool_call>",
            vec![call("say", json!({"text": "</tool_call>"}))],
        ),
        // Calls inside a thought are not executed.
        ("<think><tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call></think>42", vec![]),
    ] {
        assert_eq!(calls(reply, CallFormat::Hermes, &[]), wanted, "{reply}");
    }
}

#[test]
fn calls_of_llama_are_read() {
    for (reply, wanted) in [
        ("{\"name\": \"add\", \"parameters\": {\"x\": 1}}", vec![add(1)]),
        ("<|python_tag|>{\"name\": \"add\", \"parameters\": {\"x\": 1}}", vec![add(1)]),
        (
            "{\"name\": \"add\", \"parameters\": {\"x\": 1}}; {\"name\": \"add\", \"parameters\": {\"x\": 2}}",
            vec![add(1), add(2)],
        ),
        (
            "{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"x\": 1}} is it",
            vec![add(1)],
        ),
        ("The answer is {\"name\": \"add\"}", vec![]),
        ("{\"answer\": 42}", vec![]),
        ("[1, 2]", vec![]),
    ] {
        assert_eq!(calls(reply, CallFormat::Llama3Json, &[]), wanted, "{reply}");
    }
}

#[test]
fn what_is_no_call_is_said_and_does_not_hide_the_others() {
    for reply in [
        "<tool_call></tool_call>",
        "<tool_call>add(1)</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"x\": 1}</tool_call>",
        "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": \"x\"}</tool_call>",
    ] {
        let found = calls(reply, CallFormat::Hermes, &[]);
        assert!(matches!(&found[..], [Err(CallError::Unreadable(_))]), "{reply}: {found:?}");
        let both = format!(
            "{reply}<tool_call>{{\"name\": \"add\", \"arguments\": {{\"x\": 1}}}}</tool_call>"
        );
        let found = calls(&both, CallFormat::Hermes, &[]);
        assert_eq!((found.len(), found.last()), (2, Some(&add(1))), "{both}");
    }
    assert_eq!(calls("<|python_tag|>print(1)", CallFormat::Llama3Json, &[]).len(), 1);
}

#[test]
fn tags_in_the_strings_of_a_call_are_text() {
    let text = |text: &str| {
        let arguments = json!({"path": "a.txt", "text": text});
        let object = json!({"name": "write_file", "arguments": arguments}).to_string();
        (call("write_file", arguments), object)
    };
    for within in [
        "see <tool_call> here",
        "<tool_call>",
        "</tool_call>",
        "</tool_call><tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"x\": 1}}</tool_call>",
        "a </think> b",
        "<think> a </think> <tool_call>",
        "```\n<tool_call>\n```",
        "<|python_tag|>",
    ] {
        let (wanted, object) = text(within);
        let tagged = format!("I write.\n<tool_call>\n{object}\n</tool_call>");
        let open = format!("<tool_call>{object}");
        let two = format!("<tool_call>{object}\n{object}</tool_call>");
        let more = format!("{tagged}\nand <tool_call>{object}</tool_call> done");
        let thought = format!("I could <tool_call>{object}</tool_call> or not</think>{tagged}");
        let fenced = format!("<tool_call>\n```json\n{object}\n```\n</tool_call>");
        for (reply, count) in
            [(tagged, 1), (open, 1), (two, 2), (more, 2), (thought, 1), (fenced, 1)]
        {
            assert_eq!(
                calls(&reply, CallFormat::Hermes, &[]),
                vec![wanted.clone(); count],
                "{reply}"
            );
            assert_eq!(read(&reply), vec![wanted.clone(); count], "{reply}");
        }
        for reply in [object.clone(), format!("<|python_tag|>{object}")] {
            assert_eq!(
                calls(&reply, CallFormat::Llama3Json, &[]),
                std::slice::from_ref(&wanted),
                "{reply}"
            );
            assert_eq!(read(&reply), std::slice::from_ref(&wanted), "{reply}");
        }
    }
    // What ends within the string is one call that cannot be read.
    let (_, object) = text("see <tool_call> here");
    let cut = format!("<tool_call>\n{}", &object[..object.len() - 8]);
    let found = calls(&cut, CallFormat::Hermes, &[]);
    assert!(matches!(&found[..], [Err(CallError::Unreadable(_))]), "{found:?}");
}

#[test]
fn arguments_are_what_the_schema_allows() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1, "description": "where"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "unit": {"enum": ["C", "F"]},
            "at": {"type": ["number", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "who": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["id"]}]},
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    let parameters = Schema::new(schema).unwrap();
    let tools = [Tool { name: "weather".to_owned(), description: String::new(), parameters }];
    let checked = |arguments: Value| {
        let call = call("weather", arguments).unwrap();
        check(&call, &tools).map(|tool| tool.name.clone()).map_err(|error| error.to_string())
    };
    for arguments in [
        json!({"city": "Bern"}),
        json!({"city": "Bern", "days": 7, "unit": "C", "at": null, "tags": ["a", "b"], "who": 1}),
        json!({"city": "Bern", "days": 2.0, "at": 1.5, "tags": [], "who": {"id": 1}}),
    ] {
        assert_eq!(checked(arguments.clone()).as_deref(), Ok("weather"), "{arguments}");
    }
    for (arguments, wanted) in [
        (json!({}), "`city` is missing"),
        (json!({"city": 3}), "`city` is 3; write string"),
        (json!({"city": ""}), "write a length of at least 1"),
        (json!({"city": "B", "days": 0}), "`days` is 0; write a number of at least 1"),
        (json!({"city": "B", "days": 1.5}), "`days` is 1.5; write integer"),
        (json!({"city": "B", "unit": "K"}), "write one of \"C\", \"F\""),
        (json!({"city": "B", "tags": ["a", 1]}), "`tags[1]` is 1; write string"),
        (json!({"city": "B", "tags": ["a", "b", "c"]}), "write a length of at most 2"),
        (json!({"city": "B", "who": {}}), "none of what is allowed"),
        (json!({"city": "B", "town": "C"}), "`town` is not known"),
    ] {
        let error = checked(arguments).unwrap_err();
        assert!(error.starts_with("the arguments of `weather` are wrong: "), "{error}");
        assert!(error.contains(wanted), "{error}");
    }
    let error = check(&call("rain", json!({})).unwrap(), &tools).unwrap_err().to_string();
    assert_eq!(error, "there is no tool `rain`; there is `weather`");
}

#[test]
fn a_rule_that_would_not_be_kept_is_refused() {
    for (schema, wanted) in [
        (
            json!({"type": "object", "properties": {"a": {"pattern": "x"}}}),
            "at `$.a` has `pattern`, which is not kept",
        ),
        (json!({"items": {"$ref": "#"}}), "at `$[]` has `$ref`"),
        (json!({"type": "text"}), "has `type` = \"text\", which is no value of it"),
        (json!(3), "is 3; write an object"),
    ] {
        let error = Schema::new(schema).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_choice_of_words_and_further_fields_have_rules_too() {
    let word = |word: &str| json!({"const": word, "description": "said of it"});
    let schema = json!({
        "type": "object",
        "properties": {"unit": {"oneOf": [word("C"), word("F")]}, "size": {"oneOf": [{"type": "number"}, {"minimum": 3}]}},
        "additionalProperties": {"type": "integer"},
    });
    let schema = Schema::new(schema).unwrap();
    for value in [json!({"unit": "C", "more": 3}), json!({"size": 1}), json!({})] {
        assert_eq!(schema.check(&value), Ok(()), "{value}");
    }
    for (value, wanted) in [
        (json!({"unit": "K"}), "`unit` is \"K\"; write one of \"C\", \"F\""),
        (json!({"size": 4}), "`size` is 4; it is not exactly one of what is allowed"),
        (json!({"more": "3"}), "`more` is \"3\"; write integer"),
    ] {
        assert_eq!(schema.check(&value).unwrap_err(), wanted);
    }
    assert!(Schema::new(json!({"additionalProperties": {"pattern": "x"}})).is_err());
}

#[test]
fn a_server_keeps_the_rules_that_are_not_known_here() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}, "required": ["a"]});
    let schema = Schema::of_server(schema);
    assert_eq!(schema.check(&json!({"a": "y"})), Ok(()));
    assert!(schema.check(&json!({"a": 1})).is_err() && schema.check(&json!({})).is_err());
}

#[test]
fn a_reply_is_read_without_knowing_whose_it_is() {
    let hermes = "<tool_call>{\"name\": \"add\", \"arguments\": {\"x\": 1}}</tool_call>";
    let llama = "{\"name\": \"add\", \"parameters\": {\"x\": 1}}";
    for reply in [hermes, llama] {
        assert_eq!(read(reply), [add(1)], "{reply}");
    }
    assert_eq!(read("<answer>4</answer>"), []);
    assert!(matches!(&read("<tool_call>add(1)</tool_call>")[..], [Err(CallError::Unreadable(_))]));
}

#[test]
fn functions_are_declared_with_their_schema() {
    let calculator = declared_tools()["calculator"];
    let tool = calculator.tool().unwrap();
    assert_eq!(tool.parameters.json()["required"], json!(["expression"]));
    assert_eq!(tool.parameters.json()["additionalProperties"], false);
    assert!(calculator.item.ends_with("::calculator") && calculator.file.ends_with(".rs"));
}
