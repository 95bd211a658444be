//! Fuzzing of tokenizers: damaged files give an error or a result, and no panic. `MAVERL_FUZZ_CASES` sets
//! the number of cases.

use super::*;

fn cases() -> u64 {
    std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// Random numbers of one case.
struct Lots(u64);

impl Lots {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Collects every value within a value, as JSON pointers.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(i, item)| pointers(item, &format!("{at}/{i}"), out));
        }
        Value::Object(entries) => entries.iter().for_each(|(key, item)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            pointers(item, &format!("{at}/{key}"), out);
        }),
        _ => {}
    }
}

/// Changes values, mostly outside the vocabulary, and sometimes in it.
fn damage(value: &mut Value, lots: &mut Lots) {
    let mut all = Vec::new();
    pointers(value, "", &mut all);
    let skeleton: Vec<String> = all
        .iter()
        .filter(|at| !at.starts_with("/model/vocab/") && !at.starts_with("/model/merges/"))
        .cloned()
        .collect();
    for _ in 0..=lots.below(6).saturating_sub(3) {
        let from = if lots.below(2) == 0 { &all } else { &skeleton };
        let (at, other) = (lots.of(from).clone(), lots.of(from).clone());
        let replacements = [
            Value::Null,
            json!(true),
            json!(0),
            json!(-1),
            json!(1.5),
            json!(u32::MAX),
            json!(u64::MAX),
            json!(""),
            json!("a"),
            json!("\u{2581}"),
            json!("<end>"),
            json!([]),
            json!({}),
            json!("(a+)+$"),
            json!("ByteLevel"),
            json!("BPE"),
            json!("Unigram"),
            json!("First"),
            json!("AAAA"),
            value.pointer(&other).cloned().unwrap_or_default(),
        ];
        let Some(place) = value.pointer_mut(&at) else { continue };
        match (place, lots.below(3)) {
            (Value::Array(items), 0) if !items.is_empty() => {
                let i = lots.below(items.len());
                items.push(items[i].clone());
            }
            (Value::Array(items), 1) if !items.is_empty() => {
                drop(items.remove(lots.below(items.len())))
            }
            (Value::Object(entries), 0 | 1) if !entries.is_empty() => {
                let key =
                    entries.keys().nth(lots.below(entries.len())).cloned().unwrap_or_default();
                entries.remove(&key);
            }
            (place, _) => {
                let like = |other: &&Value| {
                    std::mem::discriminant(*other) == std::mem::discriminant(place)
                };
                let alike: Vec<&Value> = replacements.iter().filter(like).collect();
                *place = if alike.is_empty() || lots.below(3) == 0 {
                    lots.of(&replacements).clone()
                } else {
                    (*lots.of(&alike)).clone()
                };
            }
        }
    }
}

/// Calls every function of a tokenizer. Returns the number of panics that were caught inside.
fn exercise(tokenizer: &Tokenizer, lots: &mut Lots) -> usize {
    let texts = ["", " ", "a the <end>b", "é🙂\n\n", "<start><|im_end|>x</s>", "th' n't ##s ."];
    let mut caught = 0;
    for text in texts {
        let results =
            [tokenizer.encode(text), tokenizer.encode_framed(text), tokenizer.encode_plain(text)];
        for result in results {
            match result {
                Ok(ids) => {
                    let (streamed, whole) =
                        (streamed(tokenizer, &ids, true), tokenizer.decode_raw(&ids));
                    assert!(streamed == whole || !tokenizer.byte_level, "{streamed:?} {whole:?}");
                }
                Err(error) => caught += usize::from(error.to_string().contains("panicked")),
            }
        }
        if let Ok(rendered) = tokenizer.render(&[said(Role::User, text)], true) {
            let _ = tokenizer.encode_rendered(&rendered);
        }
    }
    let ids: Vec<u32> = (0..20).map(|_| u32::try_from(lots.below(600)).unwrap()).collect();
    let _ = streamed(tokenizer, &ids, false);
    caught
}

#[test]
fn damaged_tokenizers_are_errors_or_work() {
    let mut bases: Vec<Value> = made::KINDS.iter().map(|(_, tokenizer)| tokenizer()).collect();
    for family in ["qwen3", "llama"] {
        let path = fixture(family).join("tokenizer.json");
        bases.push(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("chat_template.jinja"), made::METASPACE.template).unwrap();
    let (mut loaded, mut panics, mut later) = (0, 0, 0);
    for case in 0..cases() {
        let mut lots = Lots(case);
        let mut value = lots.of(&bases).clone();
        damage(&mut value, &mut lots);
        let mut bytes = value.to_string().into_bytes();
        if lots.below(10) == 0 {
            let at = lots.below(bytes.len());
            bytes[at] = *lots.of(b"\"{}[],:0a\\\xff");
        }
        std::fs::write(dir.path().join("tokenizer.json"), &bytes).unwrap();
        match load(dir.path()) {
            Ok(tokenizer) => {
                loaded += 1;
                later += exercise(&tokenizer, &mut lots);
            }
            Err(error) => panics += usize::from(error.to_string().contains("panicked")),
        }
    }
    println!(
        "{} damaged tokenizers: {loaded} load; caught {panics} panics in loading, {later} in use",
        cases()
    );
}

#[test]
fn damaged_settings_are_errors_or_work() {
    let base = json!({
        "bos_token": "<start>", "eos_token": {"content": "<end>", "special": true},
        "additional_special_tokens": ["<start>", {"content": "a"}], "extra_special_tokens": {"image_token": "b"},
        "added_tokens_decoder": {"43": special_token("<new>"), "41": special_token("<start>")},
        "chat_template": [{"name": "default", "template": "{{ messages }}"}, {"name": "rag", "template": "{{ documents }}"}],
        "eos_token_id": [1, 42]
    });
    let mut loaded = 0;
    for case in 0..cases() {
        let mut lots = Lots(case);
        let texts = [(); 4].map(|()| {
            let mut value = base.clone();
            if lots.below(4) == 0 {
                damage(&mut value, &mut lots);
            }
            value.to_string()
        });
        let [config, map, generation, model] = texts.each_ref().map(String::as_str);
        let files = made::Files { config, map, generation, model, template: "", ..made::METASPACE };
        if let Ok(tokenizer) = files.load() {
            loaded += 1;
            exercise(&tokenizer, &mut lots);
        }
    }
    println!("{} damaged settings: {loaded} load", cases());
}

fn special_token(content: &str) -> Value {
    json!({
        "content": content, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true
    })
}
