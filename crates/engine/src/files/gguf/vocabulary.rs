//! Keys of a tokenizer for the files of a model directory: what `tokenizer.rs` reads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::splits::Split;
use super::tokenizer::SPECIAL;
use super::write::Meta;

/// Kinds of tokens, `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Files of a tokenizer.
pub(crate) struct TokenizerFiles<'a> {
    /// `tokenizer.json`, with all tokens.
    pub(crate) tokenizer: &'a Value,
    /// Special tokens by name, as `eos_token`.
    pub(crate) named: BTreeMap<String, String>,
    /// Chat templates by name.
    pub(crate) templates: BTreeMap<String, String>,
    /// Ids that end a reply.
    pub(crate) ends: Vec<u32>,
    /// Name of the way to split, if it is not that of the expressions.
    pub(crate) pre: Option<&'a str>,
}

/// Returns the keys of a tokenizer, for so many rows of the embedding.
///
/// # Errors
///
/// If llama.cpp has no such tokenizer.
pub(crate) fn tokenizer_keys(
    files: &TokenizerFiles<'_>,
    rows: usize,
) -> Result<Vec<(String, Meta)>, String> {
    let model = &files.tokenizer["model"];
    let byte_level = files.tokenizer["decoder"]["type"] == "ByteLevel";
    if model["type"] != "BPE" || (!byte_level && model["byte_fallback"] != true) {
        let found = &model["type"];
        return Err(format!(
            "the tokenizer is {found}, neither byte-level BPE nor SentencePiece's; llama.cpp's two kinds are written"
        ));
    }
    let (tokens, kinds) = tokens(files.tokenizer, rows)?;
    let text = |text: &str| Meta::Text(text.to_owned());
    let mut keys = Vec::new();
    if byte_level {
        let pre = match files.pre {
            Some(name) => name,
            None => {
                Split::of_tokenizer(files.tokenizer).map(Split::name).ok_or_else(unknown_split)?
            }
        };
        keys.push(("model", text("gpt2")));
        keys.push(("pre", text(pre)));
        keys.push((
            "merges",
            Meta::Texts(merges(model)?.iter().map(|pair| pair.join(" ")).collect()),
        ));
    } else {
        keys.push(("model", text("llama")));
        keys.push(("pre", text("default")));
        check_merges(model, (&tokens, &kinds))?;
        keys.push(("scores", Meta::Floats(scores(model, &tokens)?)));
        let normalizer = files.tokenizer["normalizer"].to_string();
        keys.push(("add_space_prefix", Meta::Flag(normalizer.contains("Prepend"))));
    }
    let mut all: Vec<(String, Meta)> =
        keys.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect();
    all.extend(special_tokens(files, &tokens));
    all.push(("tokenizer.ggml.tokens".to_owned(), Meta::Texts(tokens)));
    all.push(("tokenizer.ggml.token_type".to_owned(), Meta::Wholes(kinds)));
    all.extend(templates(&files.templates));
    Ok(all)
}

/// Returns the keys of special tokens.
fn special_tokens(files: &TokenizerFiles<'_>, tokens: &[String]) -> Vec<(String, Meta)> {
    let ids: BTreeMap<&str, u32> = tokens.iter().map(String::as_str).zip(0..).collect();
    let id = |name: &str| files.named.get(name).and_then(|token| ids.get(token.as_str()).copied());
    let named = SPECIAL.into_iter().filter_map(|(name, key)| {
        Some((format!("tokenizer.ggml.{key}_token_id"), Meta::Whole(id(name)?)))
    });
    let mut keys: Vec<(String, Meta)> = named.collect();
    if let Some(bos) = id("bos_token") {
        let adds = Meta::Flag(adds_first(files.tokenizer, bos));
        keys.push(("tokenizer.ggml.add_bos_token".to_owned(), adds));
    }
    if let Some(end) = files.ends.iter().find(|end| Some(**end) != id("eos_token")) {
        keys.push(("tokenizer.ggml.eot_token_id".to_owned(), Meta::Whole(*end)));
    }
    keys
}

fn unknown_split() -> String {
    format!(
        "llama.cpp has no name for the expressions by which tokenizer.json splits a text; `--gguf-pre NAME` gives one, of {}",
        Split::names()
    )
}

/// Returns the keys of chat templates.
fn templates(templates: &BTreeMap<String, String>) -> Vec<(String, Meta)> {
    const KEY: &str = "tokenizer.chat_template";
    let mut keys = Vec::new();
    for (name, template) in templates {
        let key = if name == "default" { KEY.to_owned() } else { format!("{KEY}.{name}") };
        keys.push((key, Meta::Text(template.clone())));
    }
    let names: Vec<String> = templates.keys().filter(|name| *name != "default").cloned().collect();
    if !names.is_empty() {
        keys.push((format!("{KEY}s"), Meta::Texts(names)));
    }
    keys
}

/// Returns the tokens by their ids, and their kinds. Ids without a token, and rows of the embedding beyond them, are unused.
fn tokens(tokenizer: &Value, rows: usize) -> Result<(Vec<String>, Vec<i32>), String> {
    let mut found: Vec<Option<(String, i32)>> = vec![None; rows];
    let (model, fallback) = (&tokenizer["model"], tokenizer["model"]["byte_fallback"] == true);
    let vocabulary = model["vocab"].as_object().ok_or("tokenizer.json has no vocabulary")?;
    for (text, id) in vocabulary {
        let byte = fallback && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        let unknown = model["unk_token"] == text.as_str();
        let plain = if unknown { UNKNOWN } else { NORMAL };
        let kind = if byte { BYTE } else { plain };
        put(&mut found, id, (text, kind))?;
    }
    for token in tokenizer["added_tokens"].as_array().into_iter().flatten() {
        let text = token["content"].as_str().unwrap_or_default();
        let plain = if token["special"] == true { CONTROL } else { USER_DEFINED };
        let kind = if model["unk_token"] == text { UNKNOWN } else { plain };
        put(&mut found, &token["id"], (text, kind))?;
    }
    let all = found.into_iter().enumerate();
    Ok(all.map(|(id, token)| token.unwrap_or_else(|| (format!("[PAD{id}]"), UNUSED))).unzip())
}

/// Puts a token with its kind at an id.
fn put(
    tokens: &mut [Option<(String, i32)>],
    id: &Value,
    (text, kind): (&str, i32),
) -> Result<(), String> {
    let rows = tokens.len();
    let index = id.as_u64().and_then(|id| usize::try_from(id).ok());
    let place = index.and_then(|index| tokens.get_mut(index)).ok_or_else(|| {
        format!("the id of {text:?} is {id}, not below {rows}, the rows of the embedding")
    })?;
    *place = Some((text.to_owned(), kind));
    Ok(())
}

/// Returns the merges, each of two tokens.
fn merges(model: &Value) -> Result<Vec<[&str; 2]>, String> {
    let merges = model["merges"].as_array().ok_or("tokenizer.json has no merges")?.iter();
    let merges = merges.map(|merge| match merge {
        Value::String(text) => text.split_once(' ').map(|(left, right)| [left, right]),
        _ => Some([merge[0].as_str()?, merge[1].as_str()?]),
    });
    merges.collect::<Option<_>>().ok_or_else(|| "a merge is not two tokens".to_owned())
}

/// Refuses merges other than all those that SentencePiece makes of scores: every way in which a token is two others.
fn check_merges(model: &Value, (tokens, kinds): (&[String], &[i32])) -> Result<(), String> {
    let merges: BTreeSet<[&str; 2]> = merges(model)?.into_iter().collect();
    let known: BTreeSet<&str> = tokens.iter().map(String::as_str).collect();
    let normal = tokens.iter().zip(kinds).filter(|(_, kind)| **kind == NORMAL);
    for (token, _) in normal {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if known.contains(left) && known.contains(right) && !merges.contains(&[left, right]) {
                return Err(format!(
                    "the tokenizer merges {token:?} in fewer ways than SentencePiece does ({left:?} and {right:?} is \
                     missing), so that llama.cpp would encode other tokens"
                ));
            }
        }
    }
    Ok(())
}

/// Returns scores of tokens that have the order of the merges: minus the number of the first merge that gives the token, and less for
/// a token that none gives.
fn scores(model: &Value, tokens: &[String]) -> Result<Vec<f32>, String> {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    for (index, pair) in merges(model)?.iter().enumerate() {
        first.entry(pair.concat()).or_insert(index);
    }
    let none = merges(model)?.len();
    let score = |token: &String| -(first.get(token).copied().unwrap_or(none) as f32);
    Ok(tokens.iter().map(score).collect())
}

/// Returns true if the post-processor puts a token before every text.
fn adds_first(tokenizer: &Value, id: u32) -> bool {
    let processor = &tokenizer["post_processor"];
    let one = [processor.clone()];
    let all = processor["processors"].as_array().map_or(&one[..], Vec::as_slice);
    let mut templates = all.iter().filter(|step| step["type"] == "TemplateProcessing");
    templates.any(|step| {
        let first = &step["single"][0]["SpecialToken"]["id"];
        let ids = first.as_str().map(|name| &step["special_tokens"][name]["ids"][0]);
        ids.is_some_and(|found| found.as_u64() == Some(u64::from(id)))
    })
}
