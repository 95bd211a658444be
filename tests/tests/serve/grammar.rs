//! Replies of a demanded form: twenty schemas, and a model that knows none of them.

use serde_json::{Value, json};

use super::{Server, lab};

/// Seeds of each schema.
const SEEDS: u64 = 5;

/// Schemas of what programs ask for, with bounds on lengths: a model that knows nothing else would not end. `bench_servers grammar`
/// measures the same.
const SCHEMAS: &str = include_str!("../../../crates/lab/src/bin/bench_servers/forms.json");

#[test]
fn replies_of_twenty_schemas_are_valid_and_end() {
    let lab = lab();
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny"]);
    let schemas: Vec<Value> = serde_json::from_str(SCHEMAS).unwrap();
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
