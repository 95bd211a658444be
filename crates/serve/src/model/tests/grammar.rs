use super::*;

async fn enforcing() -> Served {
    Served::start(ModelSettings { structured: Structured::Grammar, ..ModelSettings::default() })
        .await
}

fn of(schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}})
}

/// Returns the JSON that a reply is.
fn content(choice: &Value) -> Value {
    let text = choice["message"]["content"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn city() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "size": {"$ref": "#/$defs/size"},
            "tags": {"type": "array", "items": {"enum": ["old", "new"]}, "maxItems": 3},
        },
        "required": ["name", "size", "tags"],
        "additionalProperties": false,
        "$defs": {"size": {"type": "integer", "minimum": 1, "maximum": 999}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_has_the_form_of_its_schema_whole_and_streamed() {
    let served = enforcing().await;
    for seed in 0..6 {
        let fields = json!({
            "seed": seed, "temperature": 2.0, "max_tokens": 200, "response_format": of(&city()), "n": 2,
            "return_token_ids": true,
        });
        let whole = served.chat(fields.clone()).await;
        assert_eq!(whole.status, 200, "{}", whole.body);
        let whole = whole.json();
        for choice in whole["choices"].as_array().unwrap() {
            assert_eq!(choice["finish_reason"], "stop");
            let city = content(choice);
            assert!((1..=999).contains(&city["size"].as_i64().unwrap()), "{city}");
            assert!(city["name"].is_string() && city["tags"].as_array().unwrap().len() <= 3);
            assert_eq!(city.as_object().unwrap().len(), 3);
        }
        let mut streamed = fields;
        merge(&mut streamed, json!({"stream": true, "n": 1}));
        let events = served.chat(streamed).await.events();
        let chunks = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
        let text: String = chunks
            .filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned()))
            .collect();
        assert_eq!(text, whole["choices"][0]["message"]["content"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_one_and_requests_beside_it_are_as_they_are_alone() {
    let served = enforcing().await;
    let free =
        |seed: u64| json!({"seed": seed, "max_tokens": 24, "temperature": 1.5, "logprobs": true});
    let object = |seed: u64| {
        let format = json!({"type": "json_object"});
        json!({"seed": seed, "max_tokens": 60, "temperature": 1.5, "logprobs": true, "response_format": format})
    };
    let mut alone = Vec::new();
    for seed in 0..4 {
        alone.push(served.chat(free(seed)).await.json()["choices"].clone());
        alone.push(served.chat(object(seed)).await.json()["choices"].clone());
    }
    let both = (0..4).flat_map(|seed| [free(seed), object(seed)]).map(|fields| served.chat(fields));
    let together = futures::future::join_all(both).await;
    for (answer, alone) in together.iter().zip(&alone) {
        assert_eq!(answer.json()["choices"], *alone);
    }
    for choices in alone.iter().skip(1).step_by(2) {
        let text = choices[0]["message"]["content"].as_str().unwrap();
        assert!(text.starts_with('{'), "{text}");
        if choices[0]["finish_reason"] == "stop" {
            assert!(content(&choices[0]).is_object());
        }
        // Tokens that are sampled here need not be likely: their log-probs are those of the model.
        let entries = choices[0]["logprobs"]["content"].as_array().unwrap();
        assert!(entries.iter().all(|entry| entry["logprob"].as_f64().unwrap() <= 0.0));
    }
}

fn tool(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demanded_call_is_made_with_arguments_of_its_schema() {
    let served = enforcing().await;
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools = json!([tool("weigh", &city()), tool("stop", &nothing)]);
    let ask = async |choice: Value, seed: u64| {
        let fields = json!({
            "tools": tools, "tool_choice": choice, "seed": seed, "max_tokens": 300, "temperature": 100.0,
        });
        let answer = served.chat(fields).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["choices"][0].clone()
    };
    let mut names = std::collections::BTreeSet::new();
    for seed in 0..8 {
        let named = json!({"type": "function", "function": {"name": "weigh"}});
        for (choice, name) in [(named, Some("weigh")), (json!("required"), None)] {
            let choice = ask(choice, seed).await;
            assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            assert_eq!(calls.len(), 1, "{choice}");
            for call in calls {
                let function = &call["function"];
                assert!(name.is_none_or(|name| function["name"] == name), "{call}");
                let arguments: Value =
                    serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
                assert_eq!(arguments["size"].is_i64(), function["name"] == "weigh", "{call}");
                names.insert(function["name"].as_str().unwrap().to_owned());
            }
        }
    }
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tools_a_reply_is_an_answer_of_the_form_or_a_call() {
    let served = enforcing().await;
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    // An answer with the field `name` is no call. The temperature is so high that the reply begins in any way.
    let mut kinds = [0, 0];
    for seed in 0..24 {
        let fields = json!({
            "tools": [tool("stop", &nothing)], "response_format": of(&city()), "seed": seed, "max_tokens": 300,
            "temperature": 100.0,
        });
        let choice = served.chat(fields).await.json()["choices"][0].clone();
        match choice["message"]["tool_calls"].as_array() {
            Some(calls) => {
                kinds[0] += 1;
                assert_eq!(calls[0]["function"]["name"], "stop");
            }
            None => {
                kinds[1] += 1;
                assert!(content(&choice)["size"].is_i64(), "{choice}");
            }
        }
    }
    assert!(kinds[1] > 0, "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_cannot_be_enforced_is_refused_with_the_reason() {
    let served = enforcing().await;
    for (schema, part) in [
        (json!({"type": "objekt"}), "objekt"),
        (json!({"$ref": "http://example.com/schema"}), "ref"),
        (json!({"type": "string", "minLength": 3, "maxLength": 2}), ""),
        (json!(7), ""),
    ] {
        let answer = served.chat(json!({"response_format": of(&schema), "max_tokens": 4})).await;
        assert_eq!(answer.status, 400, "{schema}: {}", answer.body);
        assert_eq!(answer.json()["error"]["param"], "response_format");
        assert!(answer.message().contains("cannot be enforced"), "{}", answer.body);
        assert!(answer.message().contains(part), "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_would_take_much_memory_time_or_stack_is_refused_and_the_server_goes_on() {
    let served = enforcing().await;
    let properties = |n: usize| {
        let names = (0..n).map(|i| format!("p{i}"));
        let properties: serde_json::Map<String, Value> =
            names.clone().map(|name| (name, json!({"type": "integer"}))).collect();
        json!({"type": "object", "properties": properties, "required": names.collect::<Vec<_>>()})
    };
    let any =
        |n: usize| (0..n).map(|i| json!({"properties": {format!("k{i}"): {"type": "integer"}}}));
    let pattern = |pattern: String| json!({"type": "string", "pattern": pattern});
    let words = |n: usize| (0..n).map(|i| format!("value {i}")).collect::<Vec<_>>();
    let nested = (0..100)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    for (name, schema) in [
        ("10,000 properties", properties(10_000)),
        ("200 properties", properties(200)),
        ("5,000 alternatives", json!({"anyOf": any(5000).collect::<Vec<_>>()})),
        ("100 alternatives", json!({"anyOf": any(100).collect::<Vec<_>>()})),
        ("100,000 words", json!({"enum": words(100_000)})),
        ("2,000 words", json!({"enum": words(2000)})),
        ("repetitions", pattern("^((a{1,100}){1,100}){1,100}$".to_owned())),
        ("alternatives of a pattern", pattern("^(a|aa|aaa|.*a.*b.*c)*(x+x+)+y$".to_owned())),
        ("states", pattern("^.*a.{30}$".to_owned())),
        (
            "intersections",
            json!({"allOf": (1..9).map(|i| pattern(format!("^.*a.{{{i}}}$"))).collect::<Vec<_>>()}),
        ),
        ("a look-ahead", pattern("^(?=a)(?!b).*$".to_owned())),
        ("a long pattern", pattern(format!("^{}$", "(a|b)".repeat(20_000)))),
        ("a cycle", json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})),
        (
            "a tree",
            json!({"$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}),
        ),
        ("many items", json!({"type": "array", "minItems": 1_000_000_000})),
        ("a long text", json!({"type": "string", "minLength": 999_999_999})),
        ("depth", nested),
        (
            "bounds",
            json!({"type": "integer", "minimum": -1e30, "maximum": 1e300, "multipleOf": 1e-300}),
        ),
    ] {
        let answer = served.chat(json!({"max_tokens": 4, "response_format": of(&schema)})).await;
        assert!([200, 400].contains(&answer.status), "{name}: {}", answer.body);
        let large = ["10,000", "5,000", "100,000"].iter().any(|n| name.starts_with(n));
        assert!(
            !large || answer.status == 400 && answer.message().contains("are allowed"),
            "{name}"
        );
    }
    assert_eq!(
        served.chat(json!({"max_tokens": 1, "response_format": of(&city())})).await.status,
        200
    );
}

/// Returns an integer or a number that is a multiple, inside an object: the lexer divides only after the first tokens.
fn multiple(kind: &str, of: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {"n": {"type": kind, "multipleOf": of}},
        "required": ["n"],
        "additionalProperties": false,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multiple_that_the_lexer_cannot_count_is_refused_and_others_are_obeyed() {
    let served = enforcing().await;
    for beyond in [
        json!(999_999_937),
        json!(429_496_729),
        json!(4_294_967_295_u64),
        json!(u64::MAX),
        json!(1e300),
        json!(1e-9),
        json!(1e-300),
        json!(0.123_456_789),
        json!(99.999_999_99),
        json!(0),
    ] {
        for kind in ["integer", "number"] {
            let format = of(&multiple(kind, &beyond));
            let fields = json!({"max_tokens": 40, "temperature": 2.0, "response_format": format});
            let answer = served.chat(fields).await;
            assert_eq!(answer.status, 400, "{beyond}: {}", answer.body);
            assert_eq!(answer.json()["error"]["param"], "response_format");
            assert!(answer.message().contains("`multipleOf` is "), "{}", answer.body);
            let tools = [tool("weigh", &multiple(kind, &beyond))];
            let fields = json!({"max_tokens": 40, "tools": tools, "tool_choice": "required"});
            let answer = served.chat(fields).await;
            assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("tools")));
        }
    }
    // Each is small enough; both together are not.
    let both =
        json!({"allOf": [{"type": "integer", "multipleOf": 99_991}, {"multipleOf": 99_989}]});
    let answer = served.chat(json!({"max_tokens": 40, "response_format": of(&both)})).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(answer.message().contains("least common multiple"), "{}", answer.body);
    for (seed, fits) in [(1, 7_u64), (2, 60), (3, 1000)] {
        let format = of(&multiple("integer", &json!(fits)));
        let fields =
            json!({"max_tokens": 60, "temperature": 2.0, "seed": seed, "response_format": format});
        let answer = served.chat(fields).await;
        assert_eq!(answer.status, 200, "{fits}: {}", answer.body);
        let choice = &answer.json()["choices"][0];
        if choice["finish_reason"] == "stop" {
            // Of any number of digits.
            let text = choice["message"]["content"].as_str().unwrap();
            let digits =
                text.bytes().filter(u8::is_ascii_digit).map(|digit| u64::from(digit - b'0'));
            let rest = digits.fold(0, |rest, digit| (10 * rest + digit) % fits);
            assert_eq!(rest, 0, "{fits}: {text}");
        }
    }
}
