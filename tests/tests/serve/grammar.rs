//! Replies of a demanded form: twenty schemas, and a model that knows none of them.

use serde_json::{Value, json};

use super::{Server, lab};

/// Seeds of each schema.
const SEEDS: u64 = 5;

fn object(properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    let mut schema = json!({"type": "object", "required": required, "additionalProperties": false});
    schema["properties"] = properties;
    schema
}

/// Returns schemas of what programs ask for, with bounds on lengths: a model that knows nothing else would not end.
fn schemas() -> Vec<Value> {
    let text = json!({"type": "string", "maxLength": 16});
    let number = json!({"type": "number", "minimum": -100, "maximum": 100});
    let several =
        |items: &Value| json!({"type": "array", "items": items, "minItems": 1, "maxItems": 3});
    let digit = json!({"type": "integer", "minimum": 0, "maximum": 9});
    let point = object(json!({"x": number, "y": number}));
    vec![
        object(json!({"answer": text})),
        object(
            json!({"reasoning": text, "answer": {"type": "integer", "minimum": 0, "maximum": 9999}}),
        ),
        object(json!({"label": {"enum": ["entailment", "neutral", "contradiction"]}})),
        object(json!({"score": {"type": "integer", "minimum": 1, "maximum": 5}, "why": text})),
        object(json!({"ok": {"type": "boolean"}, "nothing": {"type": "null"}})),
        object(json!({"items": several(&text)})),
        object(json!({"points": several(&point)})),
        object(
            json!({"a": object(json!({"b": object(json!({"c": object(json!({"d": text}))}))}))}),
        ),
        object(json!({"maybe": {"anyOf": [text, {"type": "null"}]}})),
        object(json!({"either": {"anyOf": [number, {"type": "boolean"}, several(&number)]}})),
        object(
            json!({"kind": {"const": "circle"}, "radius": {"type": "number", "exclusiveMinimum": 0, "maximum": 9}}),
        ),
        object(json!({"code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2,4}$"}})),
        object(json!({"day": {"type": "string", "format": "date"}})),
        json!({
            "type": "object", "properties": {"first": text, "last": text, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
            "required": ["last"], "additionalProperties": false,
        }),
        json!({
            "type": "object", "properties": {"children": several(&json!({"$ref": "#/$defs/child"}))},
            "required": ["children"], "additionalProperties": false,
            "$defs": {"child": object(json!({"name": text, "sex": {"enum": ["f", "m"]}}))},
        }),
        json!({
            "type": "object", "additionalProperties": false, "required": ["value", "next"],
            "properties": {"value": digit, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/leaf"}]}},
            "$defs": {"leaf": object(json!({"value": digit}))},
        }),
        several(&object(json!({"step": text, "done": {"type": "boolean"}}))),
        json!({"type": "array", "prefixItems": [text, number], "items": false, "minItems": 2}),
        json!({"type": "string", "enum": ["yes", "no", "I do not know"]}),
        object(json!({
            "title": {"type": "string", "minLength": 2, "maxLength": 20}, "quote \"it\"": text,
            "größe": {"type": "integer", "minimum": 1, "maximum": 3},
        })),
    ]
}

#[test]
fn replies_of_twenty_schemas_are_valid_and_end() {
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let schemas = schemas();
    assert_eq!(schemas.len(), 20);
    let mut valid = 0;
    for (i, schema) in schemas.iter().enumerate() {
        let (mut found, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("schema.json", schema.clone()).unwrap();
        let checked = compiler.compile("schema.json", &mut found).unwrap();
        for seed in 0..SEEDS {
            let format =
                json!({"type": "json_schema", "json_schema": {"name": "form", "schema": schema}});
            let body = json!({
                "model": "tiny", "messages": [{"role": "user", "content": "Who wrote Magdor?"}], "seed": seed,
                "temperature": 1.5, "max_tokens": 400, "response_format": format,
            });
            let (status, answer) = server.post("/v1/chat/completions", &body);
            assert_eq!(status, 200, "schema {i}: {answer}");
            let choice = &answer["choices"][0];
            let text = choice["message"]["content"].as_str().unwrap();
            assert_eq!(choice["finish_reason"], "stop", "schema {i}: {text}");
            let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            if let Err(error) = found.validate(&value, checked) {
                panic!("schema {i}: {text}: {error}");
            }
            valid += 1;
        }
    }
    println!("{valid} of {} replies are valid", schemas.len() as u64 * SEEDS);
    assert_eq!(server.stop(), Some(0));
}
