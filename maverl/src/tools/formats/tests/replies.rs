//! Replies as models write them: calls beside text, calls with mistakes, types of arguments.

use super::*;

fn weather() -> Vec<Value> {
    declare(&[(
        "weather",
        json!({
            "city": {"type": "string"}, "days": {"type": "integer"}, "at": {"type": ["number", "null"]},
            "now": {"type": "boolean"}, "tags": {"type": "array"}, "unit": {"enum": ["C", "F"]}, "level": {"enum": [1, 2]},
            "any": {}, "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "map": {"type": "object"},
        }),
    )])
}

#[test]
fn text_arguments_have_the_types_of_their_schema() {
    let tools = weather();
    for (key, text, wanted) in [
        ("city", "12", json!("12")),
        ("city", "", json!("")),
        ("city", "two\nlines ", json!("two\nlines ")),
        ("days", "12", json!(12)),
        ("days", " 12 ", json!(12)),
        ("days", "twelve", json!("twelve")),
        ("days", "1.5", json!("1.5")),
        ("days", "18446744073709551615", json!(u64::MAX)),
        ("days", "18446744073709551616", json!("18446744073709551616")),
        ("days", "-9223372036854775809", json!("-9223372036854775809")),
        ("at", "99999999999999999999", json!("99999999999999999999")),
        ("at", ".5", json!(0.5)),
        ("tags", "[1, 99999999999999999999]", json!([1, "99999999999999999999"])),
        ("at", "1.5", json!(1.5)),
        ("at", "None", json!(null)),
        ("at", "null", json!(null)),
        ("now", "True", json!(true)),
        ("now", "false", json!(false)),
        ("now", "yes", json!("yes")),
        ("tags", "[\"a\", 1]", json!(["a", 1])),
        ("tags", "['a', True]", json!(["a", true])),
        ("map", "{'a': None}", json!({"a": null})),
        ("unit", "C", json!("C")),
        ("level", "2", json!(2)),
        ("any", "12", json!("12")),
        ("either", "12", json!(12)),
        ("either", "a", json!("a")),
        ("unknown", "12", json!("12")),
    ] {
        let xml =
            format!("<function=weather>\n<parameter={key}>\n{text}\n</parameter>\n</function>");
        let glm = format!(
            "<tool_call>weather\n<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>"
        );
        for (reply, format) in [(xml, CallFormat::QwenXml), (glm, CallFormat::Glm)] {
            let wanted = call("weather", json!({key: wanted}));
            assert_eq!(calls(&reply, format, &tools), [Ok(wanted)], "{reply}");
        }
    }
}

#[test]
fn a_reply_may_have_text_thoughts_and_missing_tags() {
    let tools = declare(&[("f", json!({"x": {"type": "integer"}}))]);
    let f = || Ok(call("f", json!({"x": 1})));
    let inner = "<function=f>\n<parameter=x>\n1\n</parameter>\n</function>";
    let tagged = format!("<tool_call>\n{inner}\n</tool_call>");
    for (reply, count) in [
        (format!("I call.\n{tagged}\nDone."), 1),
        (inner.to_owned(), 1),
        (format!("{tagged}\n{tagged}"), 2),
        (format!("<tool_call>\n{inner}\n{inner}\n</tool_call>"), 2),
        ("<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</tool_call>".to_owned(), 1),
        (format!("I could {tagged}</think>{tagged}"), 2),
        (format!("<think>I could {tagged}</think>{tagged}"), 1),
        (format!("I think.</think>{tagged}"), 1),
        ("no call".to_owned(), 0),
    ] {
        assert_eq!(calls(&reply, CallFormat::QwenXml, &tools), vec![f(); count], "{reply}");
    }
    for (reply, format) in [
        ("[TOOL_CALLS]f[ARGS]{\"x\": 1}", CallFormat::MistralV11),
        ("[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"x\": 1}", CallFormat::MistralV11),
        ("[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {\"x\": 1}}", CallFormat::Mistral),
        ("  [f(x=1)]", CallFormat::Pythonic),
        ("Well. <|tool_call_start|>[f(x = 1,)]<|tool_call_end|> So.", CallFormat::Pythonic),
        ("<|tool_call>call:f{x:1}", CallFormat::Gemma4),
        ("<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>", CallFormat::Glm),
        ("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}", CallFormat::DeepseekV31),
        ("<|tool_call_begin|>f:3<|tool_call_argument_begin|>{\"x\": 1}", CallFormat::KimiK2),
        (
            "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"x\" string=\"false\">1</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>",
            CallFormat::DeepseekDsml,
        ),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>",
            CallFormat::Harmony,
        ),
        (" to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}", CallFormat::Harmony),
    ] {
        assert_eq!(calls(reply, format, &tools), [f()], "{reply}");
    }
}

#[test]
fn numbers_of_arguments_are_kept_as_they_are_written() {
    let large = "99999999999999999999";
    let wanted = Ok(call("f", json!({"x": large, "y": [large, 1.5]})));
    let object = format!("{{\"x\": {large}, \"y\": [{large}, 1.5]}}");
    for (reply, format) in [
        (
            format!("<tool_call>{{\"name\": \"f\", \"arguments\": {object}}}</tool_call>"),
            CallFormat::Hermes,
        ),
        (format!("[TOOL_CALLS]f[ARGS]{object}"), CallFormat::MistralV11),
        (format!("[f(x={large}, y=[{large}, 1.5])]"), CallFormat::Pythonic),
        (format!("<|tool_call>call:f{{x:{large},y:[{large},1.5]}}"), CallFormat::Gemma4),
    ] {
        assert_eq!(calls(&reply, format, &[]), std::slice::from_ref(&wanted), "{reply}");
    }
    let python = "[f(n=.5, m=1_000, k=-5., h=0x1F, e=1E3, t=(+1, 1_0))]";
    let wanted =
        call("f", json!({"n": 0.5, "m": 1000, "k": -5.0, "h": 31, "e": 1000.0, "t": [1, 10]}));
    assert_eq!(calls(python, CallFormat::Pythonic, &[]), [Ok(wanted)]);
}

#[test]
fn a_call_with_a_mistake_is_an_error_in_words_and_the_next_one_is_read() {
    for (broken, format, wanted) in [
        (
            "<tool_call>{\"name\": \"f\"}</tool_call>",
            CallFormat::QwenXml,
            "there is no `<function` in it",
        ),
        (
            "<function=f>\n1\n</function>",
            CallFormat::QwenXml,
            "`f` has text outside of its parameters",
        ),
        ("<function=>\n</function>", CallFormat::QwenXml, "a tag has no name"),
        ("[TOOL_CALLS]f[ARGS]{x}", CallFormat::MistralV11, "arguments of `f`: "),
        ("[TOOL_CALLS]f", CallFormat::MistralV11, "a call has no `[ARGS]`"),
        ("[TOOL_CALLS]f(1)", CallFormat::Mistral, "there is no list of JSON objects"),
        (
            "<|tool_call_start|>[f(1)]<|tool_call_end|>",
            CallFormat::Pythonic,
            "not written `name=value`",
        ),
        ("<|tool_call>f{}<tool_call|>", CallFormat::Gemma4, "`call:NAME` is missing"),
        ("<|tool_call>call:f{x:one}<tool_call|>", CallFormat::Gemma4, "\"one\" is no value"),
        (
            "<tool_call>{\"name\": \"f\"}</tool_call>",
            CallFormat::Glm,
            "it is no name and arguments",
        ),
        (
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>[]<|tool_call_end|>",
            CallFormat::KimiK2,
            "write an object",
        ),
        ("<invoke name=\"f\">x</invoke>", CallFormat::MinimaxM2, "text outside of its parameters"),
        (
            "<|channel|>commentary to=functions.f<|message|>x<|call|>",
            CallFormat::Harmony,
            "arguments of `f`",
        ),
    ] {
        let found = calls(broken, format, &[]);
        let [Err(CallError::Malformed(what))] = &found[..] else { panic!("{broken}: {found:?}") };
        assert!(what.contains(wanted), "{broken}: {what}");
        let (template, _) = TEMPLATES.iter().rev().find(|(_, other)| *other == format).unwrap();
        let good = render_calls(&tokenizer(template), format, &[call("g", json!({}))], &[]);
        // A further message of gpt-oss begins with what the prompt has before the first one.
        let between = if format == CallFormat::Harmony { "<|start|>assistant" } else { "" };
        let both = format!("{broken}{between}{good}");
        assert_eq!(calls(&both, format, &[]).last(), Some(&Ok(call("g", json!({})))), "{both}");
        // An agent gets the same error.
        let of_model = ReplyFormat::of_calls(format);
        let read = read(&of_model.canonical_reply(broken, "", &[]));
        assert_eq!(read, found, "{broken}");
    }
}

#[test]
fn a_call_of_tags_that_was_cut_before_its_end_is_none() {
    let tools = declare(&[("f", json!({"x": {"type": "string"}}))]);
    for (cut, format) in [
        ("<tool_call><function=f><parameter=x>1</parameter>", CallFormat::QwenXml),
        (
            "<tool_call>\n<function=f>\n<parameter=x>\ndo not write </parameter>",
            CallFormat::QwenXml,
        ),
        ("<tool_call>f", CallFormat::Glm),
        ("<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n", CallFormat::Glm),
    ] {
        let found = calls(cut, format, &tools);
        assert!(found.iter().all(Result::is_err), "{cut}: {found:?}");
    }
}

#[test]
fn text_of_another_form_is_no_call_for_an_agent() {
    let page = "The page says <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call> and no more.";
    let bare = "{\"name\": \"f\", \"arguments\": {}}";
    for format in [CallFormat::Mistral, CallFormat::KimiK2, CallFormat::Gemma4] {
        for text in [page, bare] {
            let reply = ReplyFormat::of_calls(format).canonical_reply(text, "", &[]).into_owned();
            assert!(read(&reply).is_empty(), "{format:?}: {reply}");
        }
    }
    let of_harmony = ReplyFormat::of_calls(CallFormat::Harmony);
    for text in [page, bare] {
        let message = format!("<|channel|>final<|message|>{text}<|return|>");
        let reply = of_harmony.canonical_reply(&message, "", &[]).into_owned();
        assert!(read(&reply).is_empty(), "{reply}");
    }
}

#[test]
fn what_ends_within_a_call_is_one_call_that_cannot_be_read() {
    let wanted = [call("weather", json!({"city": "a long name of a city"}))];
    for (template, format) in TEMPLATES {
        let tokenizer = tokenizer(template);
        let whole = render_calls(&tokenizer, format, &wanted, &weather());
        let cut = &whole[..whole.find("name of a").unwrap()];
        let found = calls(cut, format, &weather());
        if format == CallFormat::Llama3Json {
            assert_eq!(found, [], "an answer in JSON: {cut}");
            continue;
        }
        assert!(matches!(&found[..], [Err(_)]), "{template}: {cut}: {found:?}");
    }
}

#[test]
fn a_template_without_a_known_form_is_told() {
    let tools = "{% if tools %}{{ tools | tojson }}{% endif %}";
    let messages = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let calls = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}CALL {{ c.function.name }}!{% endfor %}{% endfor %}";
    assert_eq!(template_calls(&with_template(messages)), TemplateCalls::NoTools);
    assert_eq!(
        template_calls(&with_template(&format!("{tools}{messages}"))),
        TemplateCalls::NoCalls
    );
    let unknown = template_calls(&with_template(&format!("{tools}{calls}")));
    let warning = unknown.warning().unwrap();
    assert!(warning.contains("CALL probe_a!") && warning.contains("set `calls`"), "{warning}");
    let format =
        ReplyFormat::of_model(&with_template(messages), CallFormat::Auto, &ThoughtFormat::Auto);
    assert!(format.is_plain() && format.kept.is_empty());
}

#[test]
fn names_of_forms_are_those_of_configurations() {
    let names: Vec<String> = CallFormat::ALL.into_iter().map(CallFormat::name).collect();
    assert_eq!(
        names.join(" "),
        "hermes llama3_json qwen_xml mistral mistral_v11 pythonic gemma4 glm deepseek_v31 deepseek_v3 deepseek_dsml kimi_k2 \
         minimax_m2 harmony"
    );
}
