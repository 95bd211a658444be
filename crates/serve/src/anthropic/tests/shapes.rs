//! Requests in the shape of those that harnesses of coding agents send, and requests that are wrong at a known place.

use maverl_kernels::sample::derive_seed;
use serde_json::{Map, Value, json};

/// Returns a tool of a harness.
fn tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": format!("{name} does what its name says."),
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
            "required": ["command"],
            "additionalProperties": false,
        },
    })
}

/// Returns a request of a coding agent: 24 tools, a system section of three blocks of which two are cached, thoughts that
/// adapt, a bound of 32,000 tokens, and a system message in the middle.
pub(crate) fn untrimmed() -> Value {
    let cached = json!({"type": "ephemeral"});
    let mut tools: Vec<Value> = (0..24).map(|i| tool(&format!("Tool{i}"))).collect();
    tools[23]["cache_control"] = cached.clone();
    json!({
        "model": "tiny",
        "max_tokens": 32000,
        "stream": true,
        "system": [
            {"type": "text", "text": "header: v1"},
            {"type": "text", "text": "You are an agent.", "cache_control": cached},
            {"type": "text", "text": "Be brief.", "cache_control": cached},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>Today.</system-reminder>"},
                {"type": "text", "text": "Fix the test.", "cache_control": cached},
            ]},
            {"role": "system", "content": "Mode: plan."},
        ],
        "tools": tools,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "user_1"},
    })
}

/// Returns the second request of a trimmed coding agent, after a call of its only tool.
pub(crate) fn after_a_call() -> Value {
    json!({
        "model": "tiny",
        "max_tokens": 32000,
        "stream": true,
        "system": [{"type": "text", "text": "You are a coding agent."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Fix the test."}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I look first.", "signature": "00"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_0a", "name": "Bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "toolu_0b", "name": "Bash", "input": {"command": "pwd"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_0a", "content": "a.py", "is_error": false},
                {"type": "tool_result", "tool_use_id": "toolu_0b", "is_error": true, "content": [
                    {"type": "text", "text": "/tmp", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "[end]"},
                ]},
                {"type": "text", "text": "Go on."},
            ]},
        ],
        "tools": [tool("Bash")],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 40,
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    })
}

/// A value of a request that is wrong, and its path.
pub(crate) struct WrongPlace {
    pub(crate) path: String,
    /// Keys and indices of the path.
    steps: Vec<Step>,
    /// Values that must not be there; null stands for a value that is left out.
    wrong: Vec<Value>,
}

#[derive(Clone)]
enum Step {
    Key(String),
    Index(usize),
}

/// Returns the places of a request whose types are fixed.
pub(crate) fn places(request: &Value) -> Vec<WrongPlace> {
    let mut places = Vec::new();
    collect(request, &mut Vec::new(), &mut places);
    places
}

fn collect(value: &Value, steps: &mut Vec<Step>, places: &mut Vec<WrongPlace>) {
    if let Some(wrong) = wrong_values(&shape(steps)) {
        places.push(WrongPlace { path: path(steps), steps: steps.clone(), wrong });
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                steps.push(Step::Key(key.clone()));
                collect(value, steps, places);
                steps.pop();
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                steps.push(Step::Index(index));
                collect(value, steps, places);
                steps.pop();
            }
        }
        _ => {}
    }
}

fn path(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Key(key) if path.is_empty() => path.push_str(key),
            Step::Key(key) => path.extend([".", key.as_str()]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// Returns a path without its indices.
fn shape(steps: &[Step]) -> String {
    let keys = steps.iter().map(|step| match step {
        Step::Key(key) => key.as_str(),
        Step::Index(_) => "*",
    });
    keys.collect::<Vec<_>>().join(".")
}

/// Returns what must not stand at a place; `None` if everything may.
fn wrong_values(shape: &str) -> Option<Vec<Value>> {
    let no_text = || vec![Value::Null, json!(7), json!(true), json!(["x"]), json!({"x": 1})];
    let no_object = || vec![json!(7), json!("x"), json!(false), json!([1])];
    let no_list = || vec![json!(7), json!({"a": 1}), json!(true)];
    Some(match shape {
        "messages" => [no_list(), vec![Value::Null, json!([]), json!("x")]].concat(),
        "messages.*" | "tools.*" => [no_object(), vec![Value::Null]].concat(),
        "messages.*.content" => [no_list(), vec![Value::Null]].concat(),
        "messages.*.role" => [no_text(), vec![json!("robot"), json!("")]].concat(),
        "messages.*.content.*" | "system.*" => no_object(),
        "messages.*.content.*.type" | "system.*.type" => {
            [no_text(), vec![json!("image"), json!("server_tool_use")]].concat()
        }
        "messages.*.content.*.content" => no_list(),
        "messages.*.content.*.content.*.type" => [no_text(), vec![json!("image")]].concat(),
        "messages.*.content.*.text"
        | "messages.*.content.*.thinking"
        | "messages.*.content.*.id"
        | "messages.*.content.*.name"
        | "messages.*.content.*.tool_use_id"
        | "messages.*.content.*.content.*.text"
        | "system.*.text" => no_text(),
        "messages.*.content.*.input" => [no_object(), vec![Value::Null]].concat(),
        "messages.*.content.*.is_error" => vec![json!("yes"), json!(1), json!([true])],
        "tools" => [no_list(), vec![json!("x")]].concat(),
        "tools.*.name" => [no_text(), vec![json!("")]].concat(),
        "tools.*.description" => vec![json!(7), json!(["x"])],
        "tools.*.input_schema" => [no_object(), vec![Value::Null]].concat(),
        "system" => no_list(),
        "max_tokens" => vec![Value::Null, json!(0), json!(-1), json!(1.5), json!("8"), json!([8])],
        "stream" => vec![json!("yes"), json!(1)],
        "temperature" | "top_p" => vec![json!(-1), json!("x"), json!([1])],
        "top_k" => vec![json!(-2), json!(1.5), json!("x")],
        "stop_sequences" => vec![json!(7), json!([7]), json!([""]), json!({"a": 1})],
        "thinking" | "output_config" | "tool_choice" => no_object(),
        "thinking.type" | "tool_choice.type" => [no_text(), vec![json!("sometimes")]].concat(),
        "tool_choice.disable_parallel_tool_use" => vec![json!("yes"), json!(1)],
        "output_config.effort" => vec![json!(7), json!({"a": 1})],
        _ => return None,
    })
}

impl WrongPlace {
    /// Returns a request that is wrong at the place, by a number that chooses the value.
    pub(crate) fn spoil(&self, request: &Value, draw: u64) -> Value {
        let wrong = &self.wrong[draw as usize % self.wrong.len()];
        let mut spoiled = request.clone();
        // Fields that are not known have no effect.
        spoiled["further"] = json!({"x": draw});
        replace(&mut spoiled, &self.steps, wrong);
        spoiled
    }

    /// Returns true if an error names the place, or the object that it is in.
    pub(crate) fn is_named_by(&self, message: &str) -> bool {
        let named = message.split('`').nth(1).unwrap_or_default();
        let above = self.steps.split_last().map(|(_, above)| path(above)).unwrap_or_default();
        !named.is_empty() && (named == self.path || named == above)
    }
}

fn replace(value: &mut Value, steps: &[Step], wrong: &Value) {
    let Some((step, rest)) = steps.split_first() else {
        *value = wrong.clone();
        return;
    };
    match (step, value) {
        (Step::Key(key), Value::Object(map)) if rest.is_empty() && wrong.is_null() => {
            map.shift_remove(key);
        }
        (Step::Key(key), Value::Object(map)) => {
            let empty = || Value::Object(Map::new());
            replace(map.entry(key.as_str()).or_insert_with(empty), rest, wrong);
        }
        (Step::Index(index), Value::Array(list)) => replace(&mut list[*index], rest, wrong),
        _ => unreachable!("the steps are those of the request"),
    }
}

/// Returns a request with some bytes replaced.
pub(crate) fn scramble(request: &Value, seed: u64) -> Vec<u8> {
    let mut bytes = request.to_string().into_bytes();
    for i in 0..1 + seed % 4 {
        let draw = derive_seed(seed, i);
        let at = draw as usize % bytes.len();
        bytes[at] = (draw >> 32) as u8;
    }
    bytes
}
