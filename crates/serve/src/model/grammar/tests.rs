#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use maverl::files::{ModelFiles, ModelSource};
use maverl::tools::{CallFormat, ReplyFormat, ThoughtFormat, calls};

/// Loads the built-in tokenizer, whose vocabulary has these special tokens, too.
fn tokenizer(special: &[&str]) -> Tokenizer {
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let mut json: Value =
        serde_json::from_slice(&files.require("tokenizer.json").unwrap()).unwrap();
    let first = Tokenizer::load(&files).unwrap().len();
    let added = json["added_tokens"].as_array_mut().unwrap();
    for (i, content) in special.iter().enumerate() {
        added.push(json!({
            "id": first + i, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false,
        }));
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer_config.json", "generation_config.json"] {
        if let Some(file) = files.read(name).unwrap() {
            std::fs::write(dir.path().join(name), file).unwrap();
        }
    }
    std::fs::write(dir.path().join("tokenizer.json"), json.to_string()).unwrap();
    Tokenizer::load(&ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()))).unwrap()
}

fn tools() -> Tools {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "now": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city", "days"],
    });
    let function = json!({"name": "rain", "description": "", "parameters": parameters});
    Tools {
        declared: vec![json!({"type": "function", "function": function})],
        most: 1,
        ..Tools::default()
    }
}

/// Returns the position of the first token of a text that a grammar does not allow; `None` if it allows all, and the end.
fn first_refused(grammar: &dyn Grammar, tokenizer: &Tokenizer, text: &str) -> Option<usize> {
    let mut state = grammar.begin();
    let ids = tokenizer.encode(text).unwrap();
    let end = tokenizer.stop_ids()[0];
    for (at, &id) in ids.iter().chain([&end]).enumerate() {
        let mut logits = vec![0.0; tokenizer.len()];
        state.mask(&mut logits).unwrap();
        if logits[id as usize].is_infinite() {
            return Some(at);
        }
        state.push(id).unwrap();
    }
    None
}

/// Calls of `rain`, as each form writes them.
const CALLS: [(CallFormat, &str); 12] = [
    (
        CallFormat::QwenXml,
        "<tool_call>\n<function=rain>\n<parameter=city>\nSt. <b>\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=now>\ntrue\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        CallFormat::Mistral,
        "[TOOL_CALLS] [{\"name\": \"rain\", \"arguments\": {\"city\": \"St. <b>\", \"days\": 3, \"now\": true}}]",
    ),
    (
        CallFormat::MistralV11,
        "[TOOL_CALLS]rain[ARGS]{\"city\": \"St. <b>\", \"days\": 3, \"now\": true}",
    ),
    (CallFormat::Pythonic, "[rain(city=\"St. <b>\", days=3, now=True)]"),
    (
        CallFormat::Gemma4,
        "<|tool_call>call:rain{city:<|\"|>St. b<|\"|>,days:3,now:true}<tool_call|>",
    ),
    (
        CallFormat::Glm,
        "<tool_call>rain\n<arg_key>city</arg_key>\n<arg_value>St. b</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>now</arg_key>\n<arg_value>true</arg_value>\n</tool_call>",
    ),
    (
        CallFormat::DeepseekV31,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rain<｜tool▁sep｜>{\"city\": \"St. <b>\", \"days\": 3, \"now\": true}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        CallFormat::DeepseekV3,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>rain\n```json\n{\"city\": \"St. <b>\", \"days\": 3, \"now\": true}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        CallFormat::DeepseekDsml,
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"rain\">\n<｜DSML｜parameter name=\"city\" string=\"true\">St. b</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"now\" string=\"false\">true</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        CallFormat::KimiK2,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.rain:0<|tool_call_argument_begin|>{\"city\": \"St. <b>\", \"days\": 3, \"now\": true}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        CallFormat::MinimaxM2,
        "<minimax:tool_call>\n<invoke name=\"rain\">\n<parameter name=\"city\">St. <b></parameter>\n<parameter name=\"days\">3</parameter>\n<parameter name=\"now\">true</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    (
        CallFormat::Harmony,
        "<|channel|>commentary to=functions.rain <|constrain|>json<|message|>{\"city\": \"St. <b>\", \"days\": 3, \"now\": true}",
    ),
];

#[test]
fn the_grammar_of_each_form_allows_its_calls_and_no_others() {
    let without = tokenizer(&[]);
    for (format, text) in CALLS {
        for tokenizer in [&without, &tokenizer(format.tokens())] {
            let tagged = tokenizer.token_id("<|tool_call_start|>").is_some();
            let text = if tagged {
                format!("<|tool_call_start|>{text}<|tool_call_end|>")
            } else {
                text.to_owned()
            };
            let of_model = Arc::new(ReplyFormat::of_model(tokenizer, format, &ThoughtFormat::Auto));
            let style = Style::of("", false, &of_model, tokenizer);
            let source = source::source(&StructuredForm::Call(None), &tools(), &style).unwrap();
            let tokens = GrammarTokens::read(tokenizer, tokenizer.len()).unwrap();
            let grammar = tokens.compile_source(source.clone());
            let grammar = grammar.unwrap_or_else(|error| panic!("{format:?}: {error}\n{source}"));
            assert_eq!(first_refused(&*grammar, tokenizer, &text), None, "{format:?}: {source}");
            for wrong in [
                text.replace("rain", "snow"),
                text.replace('3', "x"),
                text.replacen("days", "date", 1),
            ] {
                assert!(
                    first_refused(&*grammar, tokenizer, &wrong).is_some(),
                    "{format:?}: {wrong}"
                );
            }
            let found: Vec<_> = calls(&text, format, &tools().declared);
            assert!(
                matches!(&found[..], [Ok(call)] if call.arguments["days"] == 3 && call.arguments["now"] == true),
                "{found:?}"
            );
        }
    }
}

#[test]
fn an_integer_of_a_call_fits_64_bits_in_every_form() {
    let tokenizer = tokenizer(&[]);
    for (format, text) in CALLS {
        let of_model = Arc::new(ReplyFormat::of_model(&tokenizer, format, &ThoughtFormat::Auto));
        let style = Style::of("", false, &of_model, &tokenizer);
        let source = source::source(&StructuredForm::Call(None), &tools(), &style).unwrap();
        let tokens = GrammarTokens::read(&tokenizer, tokenizer.len()).unwrap();
        let grammar = tokens.compile_source(source).unwrap();
        let with = |digits: &str| text.replace('3', digits);
        let fits = with("-123456789012345678");
        assert_eq!(first_refused(&*grammar, &tokenizer, &fits), None, "{format:?}");
        let found: Vec<_> = calls(&fits, format, &tools().declared);
        assert!(
            matches!(&found[..], [Ok(call)] if call.arguments["days"] == -123_456_789_012_345_678_i64),
            "{found:?}"
        );
        for large in ["18446744073709551616", "-123456789012345678901234567890"] {
            assert!(first_refused(&*grammar, &tokenizer, &with(large)).is_some(), "{format:?}");
        }
    }
}

#[test]
fn an_argument_without_a_type_of_its_own_is_refused_in_forms_of_text() {
    let tokenizer = tokenizer(&[]);
    let parameters = json!({
        "type": "object", "properties": {"size": {"$ref": "#/$defs/size"}}, "$defs": {"size": {"type": "integer"}},
    });
    let function = json!({"name": "weigh", "description": "", "parameters": parameters});
    let declared = vec![json!({"type": "function", "function": function})];
    let tools = Tools { declared, ..tools() };
    for (format, refused) in [(CallFormat::QwenXml, true), (CallFormat::MistralV11, false)] {
        let of_model = Arc::new(ReplyFormat::of_model(&tokenizer, format, &ThoughtFormat::Auto));
        let style = Style::of("", false, &of_model, &tokenizer);
        let source = source::source(&StructuredForm::Call(None), &tools, &style);
        assert_eq!(
            source.is_err_and(|error| error.contains("`size` is a `$ref`")),
            refused,
            "{format:?}"
        );
    }
}

#[test]
fn a_number_keeps_its_exclusive_bounds_in_every_reply() {
    let tokenizer = tokenizer(&[]);
    let tokens = GrammarTokens::read(&tokenizer, tokenizer.len()).unwrap();
    let style = Style::of("", false, &Arc::default(), &tokenizer);
    let number = |bounds: Value| {
        let mut schema = json!({"type": "number"});
        schema.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        schema
    };
    let half = json!({"exclusiveMinimum": 0, "maximum": 0.5});
    let below = json!({"minimum": -0.5, "exclusiveMaximum": 0});
    let positive = json!({"exclusiveMinimum": 0});
    let apart = json!([{"exclusiveMinimum": 0}, {"maximum": 0.5}]);
    for (schema, refused, allowed) in [
        (number(half), ["0", "0.0", "0.6"], ["0.5", "0.25"]),
        (number(below), ["-0", "0", "-0.6"], ["-0.5", "-0.25"]),
        (number(positive), ["0", "0.0", "-1"], ["0.0000000001", "3.5"]),
        (number(json!({"allOf": apart})), ["0", "0.0", "0.6"], ["0.5", "0.25"]),
        (
            number(json!({"exclusiveMinimum": 0, "anyOf": [{"maximum": 0.5}, {"minimum": 3}]})),
            ["0", "0.0", "0.6"],
            ["0.5", "3.5"],
        ),
    ] {
        let form = StructuredForm::Json(Some(schema.clone()));
        let source = source::source(&form, &Tools::default(), &style).unwrap();
        let grammar = tokens.compile_source(source).unwrap();
        for text in refused {
            assert!(first_refused(&*grammar, &tokenizer, text).is_some(), "{schema}: {text}");
        }
        for text in allowed {
            assert_eq!(first_refused(&*grammar, &tokenizer, text), None, "{schema}: {text}");
        }
    }
}
