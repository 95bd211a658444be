//! Files of the word games: a random model whose tokens are words, and tasks.

use std::fs;
use std::path::Path;

use anyhow::Result;
use maverl::files::create::{Size, random_model};
use serde_json::{Map, Value, json};

use super::rules::{MISSING, WORDS};

/// Special tokens that the chat template of a created model has.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// 22,000 parameters.
const SIZE: Size = Size {
    vocab_size: SPECIAL.len() + 1 + WORDS.len(),
    hidden_size: 32,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 2,
    intermediate_size: 64,
    max_position_embeddings: 64,
};

/// Seed of the weights: all runs start from the same ones.
const SEED: u64 = 0;

/// Questions of the tasks. No rule depends on them.
const QUESTIONS: [&str; 4] = ["q0", "q1", "q2", "q3"];

/// Writes the model `words` and the tasks `words.jsonl` into a directory. Files with the same content are replaced by equal ones.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write_games(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    random_model(&dir.join("words"), SIZE, &format!("{:#}", tokenizer()), SEED)?;
    Ok(fs::write(dir.join("words.jsonl"), task_lines())?)
}

/// Returns the content of `tokenizer.json`: one token for each word.
fn tokenizer() -> Value {
    let tokens = SPECIAL.iter().chain(&[MISSING]).chain(&WORDS);
    let vocabulary: Map<String, Value> =
        tokens.enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
    let special = SPECIAL.iter().enumerate().map(|(id, token)| {
        json!({
            "id": id, "content": token, "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        })
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": special.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": MISSING },
    })
}

/// Returns the tasks, one per line: 64 to train on, 16 to validate, 150 to test.
fn task_lines() -> String {
    (0..230).map(|number| format!("{}\n", task_line(number))).collect()
}

/// Returns the row of a task.
fn task_line(number: usize) -> Value {
    let split = match number {
        0..64 => "train",
        64..80 => "validation",
        _ => "test",
    };
    let question = QUESTIONS[number % QUESTIONS.len()];
    json!({ "id": format!("t{number}"), "question": question, "split": split })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use maverl::files::{ModelFiles, ModelSource};
    use maverl::net::Model;
    use maverl::text::Tokenizer;

    use super::*;

    #[test]
    fn the_model_loads_and_each_word_is_one_token() {
        let dir = tempfile::tempdir().unwrap();
        write_games(dir.path()).unwrap();
        let files = ModelFiles::new(&ModelSource::Directory(dir.path().join("words")));
        assert_eq!(Model::load(&files).unwrap().config.vocab_size, SIZE.vocab_size);
        let tokenizer = Tokenizer::load(&files).unwrap();
        for (id, word) in (4..).zip(WORDS) {
            assert_eq!(tokenizer.encode(word).unwrap(), [id]);
            assert_eq!(tokenizer.decode(&[id]), word);
        }
        assert_eq!(tokenizer.encode("red unknown\nblue").unwrap(), [4, 3, 5]);
    }

    #[test]
    fn every_split_has_every_question() {
        let text = task_lines();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows: Vec<Value> = rows.collect();
        for (split, size) in [("train", 64), ("validation", 16), ("test", 150)] {
            let of_split: Vec<&Value> = rows.iter().filter(|row| row["split"] == split).collect();
            assert_eq!(of_split.len(), size);
            for question in QUESTIONS {
                assert!(of_split.iter().any(|row| row["question"] == question), "{split}");
            }
        }
    }
}
