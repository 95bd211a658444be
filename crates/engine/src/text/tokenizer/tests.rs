#![allow(clippy::unwrap_used)]

mod fuzz;
mod made;
mod messages;

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::files::ModelSource;
use crate::message::Role;
use crate::net::tests::fixture;

/// Returns the reference fixtures of the three families, each in both layouts.
fn fixtures() -> Vec<(String, Tokenizer, Value)> {
    let mut found = Vec::new();
    for family in ["qwen2", "qwen3", "llama"] {
        let dir = fixture(family);
        let reference = std::fs::read(dir.join("reference.json")).unwrap();
        let reference: Value = serde_json::from_slice(&reference).unwrap();
        found.push((family.to_owned(), load(&dir).unwrap(), reference.clone()));
        let older = tempfile::tempdir().unwrap();
        for dir in [dir.clone(), dir.join("legacy_4x")] {
            for file in [
                "tokenizer.json",
                "tokenizer_config.json",
                "special_tokens_map.json",
                "generation_config.json",
            ] {
                if dir.join(file).exists() {
                    std::fs::copy(dir.join(file), older.path().join(file)).unwrap();
                }
            }
        }
        found.push((format!("{family}/legacy_4x"), load(older.path()).unwrap(), reference));
    }
    found
}

/// Returns the reference fixtures of all families.
fn all_fixtures() -> Vec<(String, Tokenizer, Value)> {
    let further =
        std::fs::read_dir(fixture("families")).unwrap().map(|entry| entry.unwrap().path());
    let further = further.filter(|dir| dir.join("tokenizer.json").exists()).map(|dir| {
        let reference = std::fs::read(dir.join("reference.json")).unwrap();
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        (name, load(&dir).unwrap(), serde_json::from_slice(&reference).unwrap())
    });
    let (mut all, further): (Vec<_>, Vec<_>) =
        (fixtures().into_iter().collect(), further.collect());
    assert!(!further.is_empty());
    all.extend(further);
    all
}

fn load(dir: &Path) -> Result<Tokenizer, ModelError> {
    Tokenizer::load(&ModelFiles::new(&ModelSource::Directory(dir.to_owned())))
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}

fn chat(case: &Value) -> ChatInput {
    let mut case = case.clone();
    case["chat_template_kwargs"] = case["kwargs"].take();
    serde_json::from_value(case).unwrap()
}

#[test]
fn conversations_are_rendered_and_encoded_as_the_reference_does() {
    for (name, tokenizer, reference) in all_fixtures() {
        let cases = reference["chat"].as_array().unwrap();
        for case in cases {
            let rendered = tokenizer.render_chat(&chat(case)).unwrap();
            assert_eq!(rendered.text(), case["text"].as_str().unwrap(), "{name}");
            assert!(rendered.spelled_ranges().is_empty());
            assert_eq!(tokenizer.encode_rendered(&rendered).unwrap(), ids(&case["ids"]), "{name}");
        }
        println!("{name}: {} conversations as in the reference", cases.len());
    }
}

#[test]
fn texts_are_encoded_and_decoded_as_the_reference_does() {
    for (name, tokenizer, reference) in all_fixtures() {
        let cases = reference["tokenizer_cases"].as_array().unwrap();
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let got = tokenizer.encode(text).unwrap();
            assert_eq!(got, ids(&case["ids"]), "{name}: {text:?}");
            assert_eq!(tokenizer.encode_framed(text).unwrap(), ids(&case["ids_with_special"]));
            assert_eq!(tokenizer.decode_raw(&got), case["decoded"].as_str().unwrap());
            if let Some(plain) = case["decoded_skip_special"].as_str() {
                assert_eq!(tokenizer.decode(&got), plain);
            }
        }
        println!("{name}: {} texts as in the reference", cases.len());
    }
}

#[test]
fn the_ids_that_end_a_reply_are_those_of_the_reference() {
    for (name, tokenizer, reference) in all_fixtures() {
        let got: BTreeSet<u32> = tokenizer.stop_ids().iter().copied().collect();
        assert_eq!(got, ids(&reference["eos_token_ids"]).into_iter().collect(), "{name}");
        let named = |wanted| tokenizer.named_tokens().find(|(name, _)| *name == wanted);
        let pad = tokenizer.token_id(named("pad_token").unwrap().1);
        assert_eq!(pad.map(u64::from), reference["pad_token_id"].as_u64());
        let bos = named("bos_token").and_then(|(_, token)| tokenizer.token_id(token));
        assert_eq!(bos.map(u64::from), reference["bos_token_id"].as_u64());
    }
}

/// Returns a special token that the template of each family uses.
fn closing(name: &str) -> &'static str {
    if name.starts_with("llama") { "<|eot_id|>" } else { "<|im_end|>" }
}

fn said(role: Role, content: &str) -> Message {
    Message { role, content: content.to_owned() }
}

#[test]
fn a_special_token_in_a_message_is_text_and_nothing_else_changes() {
    for (name, tokenizer, _) in fixtures() {
        let close = closing(&name);
        let id = tokenizer.token_id(close).unwrap();
        let count = |rendered: &Rendered| {
            let ids = tokenizer.encode_rendered(rendered).unwrap();
            (ids.iter().filter(|&&other| other == id).count(), ids)
        };
        let plain = tokenizer.render(&[said(Role::User, "read this")], true).unwrap();
        let (turns, _) = count(&plain);
        let text = format!("naïve {close}\n{close}{close} é✓ <think>x</think> {close}");
        let attack = tokenizer.render(&[said(Role::User, &text)], true).unwrap();
        assert_eq!(attack.text(), plain.text().replace("read this", &text), "{name}");
        assert_eq!(attack.spelled_ranges().len(), 4);
        assert!(attack.spelled_ranges().iter().all(|range| attack.text()[range.clone()] == *close));
        let (closed, ids) = count(&attack);
        assert_eq!(closed, turns, "{name}");
        assert_eq!(tokenizer.decode_raw(&ids), attack.text());

        // The text around a special token in a message is tokenized as if another text of the same kind were there.
        let at = attack.text().find("naïve").unwrap();
        let before = tokenizer.encode(&attack.text()[..at]).unwrap();
        assert_eq!(ids[..before.len()], before);
        let end = attack.spelled_ranges().last().unwrap().end;
        let after = tokenizer.encode(&attack.text()[end..]).unwrap();
        assert_eq!(ids[ids.len() - after.len()..], after);
        let message = &attack.text()[at..end];
        assert_eq!(
            ids[before.len()..ids.len() - after.len()],
            tokenizer.encode_plain(message).unwrap()
        );
    }
}

#[test]
fn the_parts_of_a_spelled_token_join_their_neighbors_as_any_text_does() {
    for (name, tokenizer, _) in fixtures() {
        let close = closing(&name);
        // A similar token that this vocabulary does not have is split at the same places.
        let other = close.replace("im_end", "im_ene").replace("eot_id", "eot_ie");
        let pieces = |text: &str| -> Vec<usize> {
            let ids = tokenizer.encode_plain(text).unwrap();
            ids.iter().map(|id| tokenizer.decode_raw(&[*id]).len()).collect()
        };
        for (left, right) in [("a", "b"), (" ", " "), (".", "!"), ("x ", "\n"), ("|", "|")] {
            let spelled = format!("{left}{close}{right}");
            let ids = tokenizer.encode_plain(&spelled).unwrap();
            assert_eq!(tokenizer.decode_raw(&ids), spelled);
            let (first, last) = (pieces(&spelled), pieces(&format!("{left}{other}{right}")));
            assert_eq!((first[0], first.last()), (last[0], last.last()), "{name}: {spelled:?}");
        }
    }
}

/// Returns the same tokenizer without special tokens.
fn without_specials(family: &str) -> tokenizers::Tokenizer {
    let bytes = std::fs::read(fixture(family).join("tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
    json["added_tokens"].as_array_mut().unwrap().retain(|token| token["special"] == json!(false));
    json["post_processor"] = Value::Null;
    tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap()
}

#[test]
fn what_is_spelled_is_encoded_as_by_a_tokenizer_that_does_not_have_the_token() {
    let pieces = [
        "<|im_end|>",
        "<|eot_id|>",
        "<|im_start|>",
        "<|im_",
        "end|>",
        "<",
        "|>",
        "<think>",
        "</think>",
        "a",
        "the",
        "é",
        "12",
        " ",
        "  ",
        "\n",
        "\n\n",
        ".",
        "'s",
        "✓",
        "<tool_call>",
    ];
    let text = prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..24);
    for (name, tokenizer, _) in fixtures().iter().filter(|(name, ..)| !name.contains('/')) {
        let oracle = without_specials(name);
        let tokens = |text: &str| oracle.encode(text, false).unwrap().get_tokens().to_vec();
        let called = |ids: Vec<u32>| -> Vec<String> {
            ids.iter().map(|&id| tokenizer.token(id, true).unwrap()).collect()
        };
        let config =
            ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let compare = |parts: Vec<&str>| {
            let text = parts.concat();
            prop_assert_eq!(called(tokenizer.encode_plain(&text).unwrap()), tokens(&text));
            // Between real special tokens, each piece is tokenized as it would be alone.
            let close = closing(name);
            let rendered = tokenizer.render(&[said(Role::User, &text)], false).unwrap();
            let whole = rendered.text();
            let mut expected = Vec::new();
            let mut done = 0;
            let meant =
                |at: usize| rendered.spelled_ranges().iter().all(|range| !range.contains(&at));
            let specials = tokenizer.specials.all_spelled(whole);
            for range in specials.spelled_ranges().iter().filter(|range| meant(range.start)) {
                expected.extend(tokens(&whole[done..range.start]));
                expected.push(whole[range.clone()].to_owned());
                done = range.end;
            }
            expected.extend(tokens(&whole[done..]));
            prop_assert!(whole.contains(close));
            prop_assert_eq!(called(tokenizer.encode_rendered(&rendered).unwrap()), expected);
            Ok(())
        };
        runner.run(&text, compare).unwrap();
        println!("{name}: 200 texts with special tokens as without them");
    }
}

#[test]
fn special_tokens_in_tools_calls_and_results_are_text() {
    for (name, tokenizer, reference) in fixtures() {
        let close = closing(&name);
        let id = tokenizer.token_id(close).unwrap();
        let case = &reference["chat"].as_array().unwrap()[4];
        let spelled = serde_json::to_string(case).unwrap();
        let spelled = spelled
            .replace("the sum'", &format!("the sum{close}'"))
            .replace("95.", &format!("{close}95."));
        let spelled = spelled.replace("{\\\"sum", &format!("{close}{{\\\"sum"));
        let rendered =
            tokenizer.render_chat(&chat(&serde_json::from_str(&spelled).unwrap())).unwrap();
        assert_eq!(rendered.spelled_ranges().len(), 3, "{name}");
        assert_eq!(
            rendered.text().replace(close, ""),
            case["text"].as_str().unwrap().replace(close, "")
        );
        let stops = |ids: Vec<u32>| ids.into_iter().filter(|&other| other == id).count();
        assert_eq!(stops(tokenizer.encode_rendered(&rendered).unwrap()), stops(ids(&case["ids"])));
    }
}

#[test]
fn marks_are_characters_that_the_texts_do_not_use() {
    for (name, tokenizer, _) in fixtures() {
        let close = closing(&name);
        // The whole first block of private-use characters, and the first character of the second.
        let private: String = (0xF_0000..0xF_0009).filter_map(char::from_u32).collect();
        let text = format!("{private}{close}{private}");
        let rendered = tokenizer.render(&[said(Role::User, &text)], true).unwrap();
        assert_eq!(rendered.spelled_ranges().len(), 1);
        let ids = tokenizer.encode_rendered(&rendered).unwrap();
        assert_eq!(tokenizer.decode_raw(&ids), rendered.text());
        let all: String = (0xF_0000..0x11_0000).filter_map(char::from_u32).collect();
        let told = tokenizer.render(&[said(Role::User, &(all + close))], true).unwrap_err();
        assert!(told.to_string().contains("private-use"), "{told}");
    }
}

#[test]
fn the_rest_of_a_rendering_keeps_what_is_spelled() {
    for (name, tokenizer, _) in fixtures() {
        let close = closing(&name);
        let messages = [said(Role::User, &format!("a{close}b"))];
        let rendered = tokenizer.render(&messages, true).unwrap();
        let rest = rendered.after(rendered.text().find(&format!("a{close}b")).unwrap());
        assert!(rest.text().starts_with(&format!("a{close}b")));
        assert_eq!(rest.spelled_ranges().first(), Some(&(1..1 + close.len())));
        assert_eq!(rest.after(2).spelled_ranges().first(), Some(&(0..close.len() - 1)));
        assert!(rest.after(1 + close.len()).spelled_ranges().is_empty());
        assert_eq!(rendered.after(0), rendered);
    }
}

#[test]
fn a_message_that_changes_what_the_template_does_is_an_error_if_it_spells_a_special_token() {
    let template =
        "{% for m in messages %}{{ m.content | length }}<end>{{ m.content }}{% endfor %}";
    let files = made::Files { template, ..made::METASPACE };
    let tokenizer = files.load().unwrap();
    let told = tokenizer.render(&[said(Role::User, "a <end>")], false).unwrap_err();
    assert!(told.to_string().contains("and the chat template changes with it"), "{told}");
    assert_eq!(tokenizer.render(&[said(Role::User, "a <e")], false).unwrap().text(), "4<end>a <e");
}

#[test]
fn spelled_tokens_leave_the_first_piece_of_a_text_the_first() {
    let tokenizer = made::METASPACE.load().unwrap();
    let tokens = |rendered: &Rendered| -> Vec<String> {
        let ids = tokenizer.encode_rendered(rendered).unwrap();
        ids.iter().map(|id| tokenizer.token(*id, true).unwrap()).collect()
    };
    // Only a text's very first piece gets the space in front; pieces after a special token do not.
    let meant = tokens(&"a<end>b<end>c".to_owned().into());
    assert_eq!(meant, ["▁a", "<end>", "b", "<end>", "c"]);
    let rendered = tokenizer.render(&[said(Role::User, "a<end>b")], false).unwrap();
    assert_eq!(rendered.text(), "<start>a<end>b<end>");
    assert_eq!(tokens(&rendered), ["<start>", "a", "<", "e", "n", "d", ">", "b", "<end>"]);
}

#[test]
fn a_template_may_write_a_special_token_in_pieces() {
    let template = "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}<end>{% endfor %}";
    let tokenizer = made::Files { template, ..made::METASPACE }.load().unwrap();
    let rendered =
        tokenizer.render_chat(&ChatInput::new([ChatMessage::new("start", "a")])).unwrap();
    assert_eq!(rendered.text(), "<start>a<end>");
    assert_eq!(
        tokenizer.encode_rendered(&rendered).unwrap()[0],
        tokenizer.token_id("<start>").unwrap()
    );
}

#[test]
fn chat_messages_are_json_objects_with_a_role() {
    let row = json!({
        "messages": [{"role": "user", "content": null, "extra": 1}],
        "tools": [{"name": "f"}],
        "chat_template_kwargs": {"enable_thinking": false}
    });
    let chat: ChatInput = serde_json::from_value(row.clone()).unwrap();
    assert_eq!(chat.messages[0].role(), "user");
    assert_eq!(chat.messages[0].get("extra"), Some(&json!(1)));
    let mut back = serde_json::to_value(&chat).unwrap();
    assert_eq!(back["add_generation_prompt"].take(), json!(false));
    back.as_object_mut().unwrap().remove("add_generation_prompt");
    assert_eq!(back, row);
    for (row, told) in [
        (json!({"messages": [{"content": "x"}]}), "a message has no `role`"),
        (json!({"messages": [{"role": 1}]}), "the `role` of a message is 1, not a string"),
    ] {
        assert_eq!(serde_json::from_value::<ChatInput>(row).unwrap_err().to_string(), told);
    }
    let call = ChatMessage::new("assistant", Value::Null)
        .with_tool_call("f", Map::new())
        .with_tool_call("g", Map::from_iter([("a".to_owned(), json!(1))]));
    let calls = serde_json::to_value(&call).unwrap()["tool_calls"].clone();
    assert_eq!(
        calls[1],
        json!({"type": "function", "function": {"name": "g", "arguments": {"a": 1}}})
    );
    let answer = serde_json::to_value(ChatMessage::tool("f", "3")).unwrap();
    assert_eq!(answer, json!({"role": "tool", "content": "3", "name": "f"}));
}

/// Returns all text of a detokenizer, after checks that it never returns half a character or retracts one.
fn streamed(tokenizer: &Tokenizer, ids: &[u32], raw: bool) -> String {
    let mut stream = if raw { tokenizer.detokenizer_raw() } else { tokenizer.detokenizer() };
    let mut text = String::new();
    for &id in ids {
        text.push_str(&stream.push(id));
    }
    text + &stream.finish()
}

#[test]
fn streamed_text_is_the_decoded_text_on_the_reference_cases() {
    for (name, tokenizer, reference) in all_fixtures() {
        for case in reference["tokenizer_cases"].as_array().unwrap() {
            let ids = ids(&case["ids"]);
            assert_eq!(
                streamed(&tokenizer, &ids, true),
                case["decoded"].as_str().unwrap(),
                "{name}"
            );
            assert_eq!(streamed(&tokenizer, &ids, false), tokenizer.decode(&ids), "{name}");
        }
    }
}

#[test]
fn a_stored_tokenizer_gives_every_id_its_text() {
    for (name, tokenizer, reference) in all_fixtures() {
        let json = tokenizer.to_json().unwrap();
        let stored = Tokenizer::from_json(json.as_bytes()).unwrap();
        assert_eq!(stored.to_json().unwrap(), json, "{name}");
        let added = reference["tokenizer_cases"].as_array().unwrap().iter();
        let chats = reference["chat"].as_array().unwrap().iter();
        for case in added.chain(chats) {
            let ids = ids(&case["ids"]);
            let pieces = stored.pieces(&ids);
            assert_eq!(pieces.len(), ids.len());
            let text: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            assert_eq!(text, tokenizer.decode_raw(&ids), "{name}");
            let plain = pieces.iter().filter(|piece| !piece.special);
            let plain: String = plain.map(|piece| piece.text.as_str()).collect();
            // The text of bytes without a piece of their own is that of the next token, which may be special.
            let held = pieces.iter().any(|piece| !piece.bytes.is_empty());
            assert!(held || plain.trim() == tokenizer.decode(&ids).trim(), "{name}: {plain:?}");
            assert!(pieces.iter().all(|piece| !piece.text.is_empty() || !piece.bytes.is_empty()));
        }
    }
    assert!(Tokenizer::from_json(b"{}").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn streamed_text_is_the_decoded_text_for_any_ids(ids in prop::collection::vec(0_u32..540, 0..60)) {
        for (name, tokenizer) in made::all() {
            prop_assert_eq!(streamed(tokenizer, &ids, true), tokenizer.decode_raw(&ids), "{}", name);
            prop_assert_eq!(streamed(tokenizer, &ids, false), tokenizer.decode(&ids), "{}", name);
            let special = ids.iter().copied().filter(|id| tokenizer.is_special(*id));
            let kept: Vec<u32> = special.take(1).collect();
            let mut stream = tokenizer.detokenizer().keeping(&kept);
            let text: String = ids.iter().map(|&id| stream.push(id)).collect();
            prop_assert_eq!(text + &stream.finish(), tokenizer.decode_keeping(&ids, &kept), "{}", name);
        }
    }

    #[test]
    fn any_text_survives_ids_and_streams_as_itself(text in "\\PC{0,40}") {
        let (_, tokenizer) = &made::all()[0];
        let ids = tokenizer.encode_plain(&text).unwrap();
        prop_assert_eq!(&tokenizer.decode_raw(&ids), &text);
        let mut stream = tokenizer.detokenizer();
        let mut so_far = String::new();
        for id in ids {
            so_far.push_str(&stream.push(id));
            prop_assert!(text.starts_with(&so_far));
        }
        prop_assert_eq!(stream.finish(), "");
        prop_assert_eq!(so_far, text);
    }
}
