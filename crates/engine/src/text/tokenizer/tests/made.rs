//! Small tokenizers of every kind, written by hand, and variants of the files beside them.

use std::sync::OnceLock;

use super::*;

/// Files of a model, as text; an empty one does not exist.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) tokenizer: fn() -> Value,
    pub(super) config: &'a str,
    pub(super) map: &'a str,
    pub(super) template: &'a str,
    pub(super) generation: &'a str,
    pub(super) model: &'a str,
}

impl Files<'_> {
    pub(super) fn load(&self) -> Result<Tokenizer, ModelError> {
        let dir = tempfile::tempdir().unwrap();
        let tokenizer = (self.tokenizer)().to_string();
        let texts = [
            ("tokenizer.json", tokenizer.as_str()),
            ("tokenizer_config.json", self.config),
            ("special_tokens_map.json", self.map),
            ("chat_template.jinja", self.template),
            ("generation_config.json", self.generation),
            ("config.json", self.model),
        ];
        for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        // The name of the directory differs each time.
        let place = dir.path().display().to_string();
        load(dir.path())
            .map_err(|e| ModelError::new(e.kind(), e.to_string().replace(&place, "DIR")))
    }
}

/// Tokenizer with a visible space, which is also prepended to a text.
pub(super) const METASPACE: Files<'static> = Files {
    tokenizer: metaspace,
    config: "",
    map: "",
    template: "{% for m in messages %}<start>{{ m.content }}<end>{% endfor %}",
    generation: "",
    model: "",
};

type Kind = (&'static str, fn() -> Value);

pub(super) const KINDS: [Kind; 4] = [
    ("metaspace", metaspace),
    ("byte fallback", byte_fallback),
    ("word pieces", word_pieces),
    ("bare", bare),
];

/// Returns all kinds of tokenizers, byte-level first.
pub(super) fn all() -> &'static [(&'static str, Tokenizer)] {
    static ALL: OnceLock<Vec<(&str, Tokenizer)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let builtin = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let mut all = vec![("byte level", Tokenizer::load(&builtin).unwrap())];
        assert!(all[0].1.byte_level);
        for (name, tokenizer) in KINDS {
            all.push((name, Files { tokenizer, ..METASPACE }.load().unwrap()));
        }
        all
    })
}

fn special(id: u32, content: &str) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true
    })
}

fn vocabulary(tokens: impl IntoIterator<Item = String>) -> Value {
    tokens
        .into_iter()
        .enumerate()
        .map(|(id, token)| (token, json!(id)))
        .collect::<Map<_, _>>()
        .into()
}

fn characters() -> impl Iterator<Item = String> {
    "▁abcdefghijklmnopqrstuvwxyz<>|_.,!'\u{FFFD}".chars().map(String::from)
}

fn words<'a>(words: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
    words.iter().map(|&word| word.to_owned())
}

fn metaspace() -> Value {
    let vocabulary = vocabulary(
        words(&["<unk>"]).chain(characters()).chain(words(&["▁a", "th", "▁th", "▁the"])),
    );
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(41, "<start>"), special(42, "<end>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "post_processor": null,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": false,
            "vocab": vocabulary, "merges": ["▁ a", "t h", "▁ th", "▁th e"]
        }
    })
}

fn byte_fallback() -> Value {
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let tokens = words(&["<unk>", "<s>", "</s>"]).chain(bytes).chain(characters());
    let vocabulary = vocabulary(tokens.chain(words(&["▁a", "th", "▁th", "▁the", "▁▁"])));
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        ]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        ]},
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": vocabulary, "merges": ["▁ a", "t h", "▁ th", "▁th e", "▁ ▁"]
        }
    })
}

fn word_pieces() -> Value {
    let tokens =
        words(&["[UNK]", "[CLS]", "the", "##s", "do", "n't", ".", "##ing", "'m", "?", "é"]);
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special(1, "[CLS]")],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary(tokens)
        }
    })
}

/// Returns a tokenizer without a decoder: tokens are joined with spaces.
fn bare() -> Value {
    let vocabulary = vocabulary(words(&["[UNK]", "a", "b", "\u{FFFD}"]));
    json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "[UNK]"
        },
        "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": vocabulary}
    })
}

#[test]
fn truncation_and_padding_of_the_file_are_off() {
    let tokenizer = Files { tokenizer: bare, ..METASPACE }.load().unwrap();
    assert_eq!(tokenizer.encode("a b a").unwrap(), [1, 2, 1]);
    assert_eq!(tokenizer.encode_plain("b").unwrap(), [2]);
}

#[test]
fn bytes_are_held_until_they_are_a_character_or_certainly_none() {
    let (_, tokenizer) = &all()[0];
    let smile = tokenizer.encode_plain("🙂").unwrap();
    let a = tokenizer.encode_plain("a").unwrap()[0];
    assert_eq!(smile.len(), 4);
    let mut stream = tokenizer.detokenizer();
    let pushed: Vec<String> = smile.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(pushed, ["", "", "", "🙂"]);
    assert_eq!([stream.push(smile[0]), stream.push(a)], ["", "\u{FFFD}a"]);
    assert_eq!(
        [stream.push(smile[0]), stream.push(smile[1]), stream.finish()],
        ["", "", "\u{FFFD}"]
    );
}

#[test]
fn a_run_of_fallback_bytes_is_text_only_as_a_whole() {
    let tokenizer = Files { tokenizer: byte_fallback, ..METASPACE }.load().unwrap();
    let byte = |byte: u32| byte + 3;
    let a = tokenizer.token_id("a").unwrap();
    let mut stream = tokenizer.detokenizer();
    let e_acute = [byte(0xC3), byte(0xA9)];
    assert_eq!([stream.push(e_acute[0]), stream.push(e_acute[1]), stream.push(a)], ["", "", "éa"]);
    // With one more byte the whole run is not valid text, although it begins with a character.
    let mut run: Vec<String> = e_acute.iter().map(|&id| stream.push(id)).collect();
    run.extend([stream.push(byte(0xFF)), stream.push(a)]);
    assert_eq!(run, ["", "", "", "\u{FFFD}\u{FFFD}\u{FFFD}a"]);
    assert_eq!([stream.push(e_acute[0]), stream.finish()], ["", "\u{FFFD}"]);
}

#[test]
fn every_id_that_may_end_a_reply_counts() {
    let stops = |files: Files<'_>| files.load().unwrap().stop_ids().to_vec();
    let eos = r#"{"eos_token": {"content": "<end>"}}"#;
    assert_eq!(stops(METASPACE), [0_u32; 0]);
    assert_eq!(stops(Files { config: eos, ..METASPACE }), [42]);
    assert_eq!(stops(Files { map: eos, ..METASPACE }), [42]);
    let generation = r#"{"eos_token_id": [3, 42]}"#;
    assert_eq!(stops(Files { config: eos, generation, ..METASPACE }), [3, 42]);
    let model = r#"{"eos_token_id": 4}"#;
    assert_eq!(stops(Files { config: eos, model, generation, ..METASPACE }), [3, 42]);
    assert_eq!(stops(Files { config: eos, model, ..METASPACE }), [4, 42]);
    // An id that ends a reply is special, even if the tokenizer says otherwise.
    let files = Files { generation: r#"{"eos_token_id": 3}"#, ..METASPACE };
    let tokenizer = files.load().unwrap();
    assert_eq!(tokenizer.decode(&[2, 3]), tokenizer.decode(&[2]));
}

#[test]
fn named_tokens_are_variables_of_the_template_and_special() {
    let template = "{{ bos_token }}|{{ eos_token is defined }}|{{ pad_token is defined }}";
    let config = r#"{"bos_token": "<start>", "pad_token": null, "eos_token": "th"}"#;
    let tokenizer = Files { template, config, ..METASPACE }.load().unwrap();
    assert_eq!(tokenizer.render(&[], false).unwrap().text(), "<start>|True|False");
    let th = tokenizer.token_id("th").unwrap();
    assert_eq!(tokenizer.decode(&[th]), "");
    assert!(!tokenizer.encode_plain("<start>").unwrap().contains(&41));
}

#[test]
fn what_a_tokenizer_is_told_reaches_every_template_unless_the_conversation_says_otherwise() {
    let template =
        "{{ bos_token }}|{{ style | default('plain') }}|{{ depth }}|{{ messages | length }}";
    let config = r#"{"bos_token": "<start>"}"#;
    let tokenizer = Files { template, config, ..METASPACE }.load().unwrap();
    assert_eq!(tokenizer.render(&[], false).unwrap().text(), "<start>|plain||0");
    let told =
        json!({"style": "short", "depth": [1, true], "bos_token": "mine", "messages": [1, 2]});
    let tokenizer = tokenizer.with_template_kwargs(told.as_object().unwrap());
    assert_eq!(tokenizer.render(&[], false).unwrap().text(), "mine|short|[1, True]|0");
    let own = json!({"messages": [], "chat_template_kwargs": {"style": "long"}});
    let own: ChatInput = serde_json::from_value(own).unwrap();
    assert_eq!(tokenizer.render_chat(&own).unwrap().text(), "mine|long|[1, True]|0");
}

#[test]
fn tokens_that_only_the_configuration_has_are_added() {
    let added = |id: u32| {
        let token = |content: &str| json!({"content": content, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true});
        json!({"added_tokens_decoder": {"41": token("<start>"), id.to_string(): token("<new>")}})
            .to_string()
    };
    let first_free = METASPACE.load().unwrap().len() as u32;
    let free = [first_free, 52]
        .into_iter()
        .find(|&id| Files { config: &added(id), ..METASPACE }.load().is_ok());
    let tokenizer = Files { config: &added(free.unwrap()), ..METASPACE }.load().unwrap();
    assert_eq!(tokenizer.encode("<new>").unwrap(), [free.unwrap()]);
    let told = Files { config: &added(99), ..METASPACE }.load().err().unwrap().to_string();
    assert!(told.starts_with("DIR: tokenizer.json: `added_tokens_decoder` of `tokenizer_config.json` gives \"<new>\" the id 99"), "{told}");
}

#[test]
fn the_templates_of_a_file_come_before_those_of_the_configuration() {
    let config = r#"{"chat_template": [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]}"#;
    let several = Files { template: "", config, ..METASPACE }.load().unwrap();
    assert_eq!(several.render(&[], false).unwrap().text(), "one");
    let tools = ChatInput { tools: Some(vec![json!({})]), ..ChatInput::default() };
    assert_eq!(several.render_chat(&tools).unwrap().text(), "two");
    let file = Files { template: "file", config, ..METASPACE }.load().unwrap();
    assert_eq!(file.render_chat(&tools).unwrap().text(), "file");

    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), metaspace().to_string()).unwrap();
    std::fs::create_dir(dir.path().join("additional_chat_templates")).unwrap();
    std::fs::write(
        dir.path().join("additional_chat_templates/rag.jinja"),
        "{{ documents[0].text }}",
    )
    .unwrap();
    std::fs::write(dir.path().join("chat_template.jinja"), "main").unwrap();
    let tokenizer = load(dir.path()).unwrap();
    assert_eq!(tokenizer.render(&[], false).unwrap().text(), "main");
    let quoting = ChatInput {
        documents: Some(vec![json!({"title": "t", "text": "quoted"})]),
        chat_template: Some("rag".to_owned()),
        ..ChatInput::default()
    };
    assert_eq!(tokenizer.render_chat(&quoting).unwrap().text(), "quoted");
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_name() {
    let told = |files: Files<'_>| files.load().err().map(|e| e.to_string()).unwrap();
    for (files, begins) in [
        (Files { config: "{", ..METASPACE }, "DIR: tokenizer_config.json: EOF while parsing"),
        (
            Files { generation: "[]", ..METASPACE },
            "DIR: generation_config.json: invalid type: sequence",
        ),
        (
            Files { generation: r#"{"eos_token_id": "</s>"}"#, ..METASPACE },
            "DIR: generation_config.json: `eos_token_id` is \"</s>\", not an id or a list of ids",
        ),
        (
            Files { model: r#"{"eos_token_id": [-1]}"#, ..METASPACE },
            "DIR: config.json: `eos_token_id` is -1, not an id or a list of ids",
        ),
        (
            Files { template: "", config: r#"{"chat_template": 1}"#, ..METASPACE },
            "DIR: tokenizer_config.json: `chat_template` is neither a string nor a list",
        ),
        (
            Files { template: "", config: r#"{"chat_template": [{"name": "x"}]}"#, ..METASPACE },
            "DIR: tokenizer_config.json: an entry of the list `chat_template` lacks `name` or `template`",
        ),
        (
            Files { config: r#"{"added_tokens_decoder": {"x": {}}}"#, ..METASPACE },
            "DIR: tokenizer_config.json: `added_tokens_decoder` has the key \"x\", which is not an id",
        ),
        (
            Files { template: "\n{% if %}", ..METASPACE },
            "DIR: chat template, line 2: syntax error: ",
        ),
        (Files { tokenizer: || json!({}), ..METASPACE }, "DIR: tokenizer.json: "),
    ] {
        let told = told(files);
        assert!(told.starts_with(begins), "{told}");
    }
    let bare = Files { template: "", ..METASPACE }.load().unwrap();
    let told = bare.render(&[], true).unwrap_err().to_string();
    assert!(
        told.starts_with("DIR")
            || told.contains(": no chat template: neither `chat_template.jinja`"),
        "{told}"
    );
    assert_eq!(bare.require_template().unwrap_err().to_string(), told);
    let raises =
        Files { template: "{{ raise_exception('no system role') }}", ..METASPACE }.load().unwrap();
    let told = raises.render(&[], true).unwrap_err().to_string();
    assert!(
        told.ends_with(": chat template, line 1: the template raised: no system role"),
        "{told}"
    );
}
