//! Tokenizer of a GGUF file as `tokenizer.json` and the files beside it (reference: ggml/docs/gguf.md, "Tokenizer";
//! transformers `convert_slow_tokenizer.py`, `generate_merges`).
//!
//! | `tokenizer.ggml.model` | |
//! |---|---|
//! | `gpt2` | byte-level BPE by merges; `tokenizer.ggml.pre` names how a text is split into words |
//! | `llama` | SentencePiece: BPE whose merges have the order of the tokens' scores; unknown characters are bytes |

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::file::GgufFile;
use super::splits::Split;
use crate::files::ModelError;

/// Longest token of SentencePiece, in bytes: every way to divide it may be a merge.
const LONGEST: usize = 1024;

/// Kinds of tokens, `tokenizer.ggml.token_type`.
const NORMAL: f64 = 1.0;
const UNKNOWN: f64 = 2.0;
const CONTROL: f64 = 3.0;
const USER_DEFINED: f64 = 4.0;
const UNUSED: f64 = 5.0;

/// Names of special tokens in files of transformers, and in keys of GGUF.
pub(super) const SPECIAL: [(&str, &str); 4] = [
    ("bos_token", "bos"),
    ("eos_token", "eos"),
    ("pad_token", "padding"),
    ("unk_token", "unknown"),
];

/// Tokens of a file, without those that fill the embedding.
struct GgufTokens<'a> {
    texts: Vec<&'a str>,
    kinds: Vec<f64>,
    scores: Vec<f64>,
}

/// Returns a list with a number for each token, or the default for each if it is missing.
fn numbers_of(
    file: &GgufFile,
    key: &str,
    tokens: usize,
    default: f64,
) -> Result<Vec<f64>, ModelError> {
    let found = file.numbers(key).unwrap_or_else(|| vec![default; tokens]);
    if found.len() == tokens {
        return Ok(found);
    }
    Err(file.invalid(format!("`{key}` has {} entries for {tokens} tokens", found.len())))
}

impl<'a> GgufTokens<'a> {
    fn read(file: &'a GgufFile) -> Result<Self, ModelError> {
        let texts = file.texts("tokenizer.ggml.tokens");
        let mut texts = texts.ok_or_else(|| {
            file.invalid("`tokenizer.ggml.tokens` is missing, or no list of texts")
        })?;
        let mut kinds = numbers_of(file, "tokenizer.ggml.token_type", texts.len(), NORMAL)?;
        let scores = numbers_of(file, "tokenizer.ggml.scores", texts.len(), 0.0)?;
        let used = kinds.iter().rposition(|kind| *kind != UNUSED).map_or(0, |last| last + 1);
        texts.truncate(used);
        kinds.truncate(used);
        Ok(Self { texts, kinds, scores })
    }

    fn vocabulary(&self) -> Map<String, Value> {
        let tokens = self.texts.iter().zip(0_u32..);
        tokens.map(|(text, id)| ((*text).to_owned(), id.into())).collect()
    }

    /// Returns the tokens that are found in a text before it is split.
    fn added(&self) -> Vec<Value> {
        let tokens = self.texts.iter().zip(&self.kinds).enumerate();
        let added =
            tokens.filter(|(_, (_, kind))| [UNKNOWN, CONTROL, USER_DEFINED].contains(*kind));
        let added = added.map(|(id, (text, kind))| {
            json!({
                "id": id,
                "content": text,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": *kind != USER_DEFINED,
            })
        });
        added.collect()
    }

    /// Returns the merges of SentencePiece: each way in which a token is two others, the tokens by their scores.
    fn merges(&self) -> Result<Vec<[&'a str; 2]>, String> {
        let ids: BTreeMap<&str, usize> =
            self.texts.iter().enumerate().map(|(id, text)| (*text, id)).collect();
        let mut merges = Vec::new();
        let normal = self.kinds.iter().map(|kind| *kind == NORMAL);
        for ((id, text), _) in
            self.texts.iter().enumerate().zip(normal).filter(|(_, normal)| *normal)
        {
            if text.len() > LONGEST {
                return Err(format!(
                    "token {id} has {} bytes; at most {LONGEST} are read",
                    text.len()
                ));
            }
            let first = merges.len();
            for (at, _) in text.char_indices().skip(1) {
                let (left, right) = text.split_at(at);
                if let (Some(a), Some(b)) = (ids.get(left), ids.get(right)) {
                    merges.push(([left, right], [*a, *b], self.scores[id]));
                }
            }
            merges[first..].sort_by_key(|(_, ids, _)| *ids);
        }
        merges.sort_by(|(.., a), (.., b)| b.total_cmp(a));
        Ok(merges.into_iter().map(|(parts, ..)| parts).collect())
    }
}

/// Returns the `tokenizer.json` of a file.
///
/// # Errors
///
/// If keys are missing, or the tokenizer is of a kind that is not read.
pub(super) fn tokenizer_json(file: &GgufFile) -> Result<Value, ModelError> {
    const KEY: &str = "tokenizer.ggml.model";
    match file.text(KEY) {
        Some("gpt2") => byte_level(file),
        Some("llama") => sentence_piece(file),
        Some(other) => {
            Err(file.invalid(format!("{KEY} is {other:?}; gpt2 and llama are read; {REMEDY}")))
        }
        None => Err(file.invalid(format!("`{KEY}` is missing, or no text"))),
    }
}

/// Advice for a file whose tokenizer is not read.
const REMEDY: &str = "take the model as a Hugging Face directory, which has its tokenizer.json";

fn byte_level(file: &GgufFile) -> Result<Value, ModelError> {
    let tokens = GgufTokens::read(file)?;
    let pre = file.text("tokenizer.ggml.pre").unwrap_or("default");
    let split = Split::named(pre).ok_or_else(|| {
        file.invalid(format!(
            "tokenizer.ggml.pre is {pre:?}, which this program cannot split by; {REMEDY}, or one of {}",
            Split::names()
        ))
    })?;
    let merges = file.texts("tokenizer.ggml.merges");
    let merges = merges
        .ok_or_else(|| file.invalid("`tokenizer.ggml.merges` is missing, or no list of texts"))?;
    let byte_level = json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": true,
    });
    let model = json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": null,
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": false,
        "byte_fallback": false,
        "ignore_merges": split.ignores_merges,
        "vocab": tokens.vocabulary(),
        "merges": merges,
    });
    let steps = [split.normalizer(), split.pre_tokenizer(), byte_level.clone(), byte_level];
    Ok(assembled(&tokens.added(), steps, &model))
}

fn sentence_piece(file: &GgufFile) -> Result<Value, ModelError> {
    let tokens = GgufTokens::read(file)?;
    let merges = tokens.merges().map_err(|what| file.invalid(what))?;
    let prefix = file.number("tokenizer.ggml.add_space_prefix").is_none_or(|flag| flag != 0.0);
    let to_mark = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let before = json!({ "type": "Prepend", "prepend": "▁" });
    let normalizers = if prefix { vec![before, to_mark] } else { vec![to_mark] };
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let unknown = tokens.kinds.iter().position(|kind| *kind == UNKNOWN);
    let model = json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": unknown.map(|id| tokens.texts[id]),
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": true,
        "byte_fallback": true,
        "ignore_merges": false,
        "vocab": tokens.vocabulary(),
        "merges": merges,
    });
    let steps = [
        json!({ "type": "Sequence", "normalizers": normalizers }),
        Value::Null,
        Value::Null,
        json!({ "type": "Sequence", "decoders": decoders }),
    ];
    Ok(assembled(&tokens.added(), steps, &model))
}

/// Returns a `tokenizer.json`, whose steps are normalizer, pre-tokenizer, post-processor and decoder.
fn assembled(added: &[Value], steps: [Value; 4], model: &Value) -> Value {
    let [normalizer, pre_tokenizer, post_processor, decoder] = steps;
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    })
}

/// Returns the `tokenizer_config.json` of a file: special tokens by name, and chat templates.
pub(super) fn tokenizer_config(file: &GgufFile) -> Result<Value, ModelError> {
    let tokens = GgufTokens::read(file)?;
    let mut config = json!({ "tokenizer_class": "PreTrainedTokenizerFast" });
    for (name, key) in SPECIAL {
        let id = file.whole(&format!("tokenizer.ggml.{key}_token_id"));
        let text = id.and_then(|id| tokens.texts.get(usize::try_from(id).ok()?));
        if let Some(text) = text {
            config[name] = (*text).into();
        }
    }
    if let Some(flag) = file.number("tokenizer.ggml.add_bos_token") {
        config["add_bos_token"] = (flag != 0.0).into();
    }
    let main = file.text("tokenizer.chat_template");
    let names = file.texts("tokenizer.chat_templates").unwrap_or_default();
    let others = names.into_iter().filter(|name| *name != "default").filter_map(|name| {
        let template = file.text(&format!("tokenizer.chat_template.{name}"))?;
        Some(json!({ "name": name, "template": template }))
    });
    let others: Vec<Value> = others.collect();
    if let Some(template) = main.filter(|_| others.is_empty()) {
        config["chat_template"] = template.into();
    } else if !others.is_empty() {
        let main = main.map(|template| json!({ "name": "default", "template": template }));
        config["chat_template"] = main.into_iter().chain(others).collect();
    }
    Ok(config)
}

/// Returns the `generation_config.json` of a file: the ids that end a reply.
pub(super) fn generation_config(file: &GgufFile) -> Value {
    let id = |name: &str| file.whole(&format!("tokenizer.ggml.{name}_token_id"));
    let mut ends: Vec<u64> = Vec::new();
    for end in ["eos", "eot", "eom"].into_iter().filter_map(id) {
        if !ends.contains(&end) {
            ends.push(end);
        }
    }
    let mut config = json!({ "eos_token_id": ends });
    for (key, id) in [("bos_token_id", id("bos")), ("pad_token_id", id("padding"))] {
        if let Some(id) = id {
            config[key] = id.into();
        }
    }
    config
}
