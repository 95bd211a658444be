//! `maverl score`: log-probs and entropies of rows in a file.
//!
//! The file is read twice. The first pass validates every row, so that all errors are reported before scoring. The
//! second scores rows in batches and writes them in order. Memory holds at most one batch.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::models::ModelArgs;
use super::{Failure, number, paths, print, tell};
use maverl::data::object;
use maverl::net::Model;
use maverl::run_dir::disk::temporary;
use maverl::runtime::{self, Scores};
use maverl::text::{ChatInput, Tokenizer};

/// Maximum number of bad rows in a message.
const SHOWN: usize = 100;

#[derive(Args)]
pub(super) struct ScoreArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Rows to score, one JSON object per line: `{"input_ids": [..]}`, `{"text": ".."}` or `{"messages": [..]}`.
    ///
    /// A row with `messages` may have `tools`, `documents`, `add_generation_prompt`, `chat_template` and
    /// `chat_template_kwargs`. `id` and `meta` are copied. Other keys are rejected.
    #[arg(long, value_name = "FILE.jsonl")]
    input: PathBuf,
    /// Output: the same rows with `input_ids`, `logprobs` and `entropy`.
    #[arg(long, value_name = "FILE.jsonl", value_parser = paths::to_write())]
    output: PathBuf,
    /// Tokens per batch; the results do not depend on it.
    #[arg(long, value_name = "N", default_value = "4096", value_parser = number::from_1)]
    batch_tokens: NonZeroUsize,
}

/// Scores every row of a file.
pub(super) fn score(args: &ScoreArgs) -> Result<ExitCode, Failure> {
    if same_file(&args.input, &args.output) {
        let (input, output) = (args.input.display(), args.output.display());
        return Err(Failure(format!(
            "`--output` {output} is `--input` {input}; rows are not overwritten: name another file"
        )));
    }
    let (model, tokenizer) = args.model.open()?;
    let reader = ScoreReader { path: &args.input, model: &model, tokenizer: &tokenizer };
    let longest = reader.check()?;
    // Rows beyond the original context of LongRoPE need its long factors, which all rows then have.
    let long = (longest > model.config.max_position_embeddings).then(|| model.with_long_rope());
    let long = long.transpose()?;
    if long.is_some() {
        tell(format_args!(
            "note: a row has {longest} tokens: the long factors of LongRoPE are used for all rows"
        ));
    }
    let reader = ScoreReader { model: long.as_ref().unwrap_or(&model), ..reader };
    let temporary = temporary(&args.output);
    let written = write(&reader, &temporary, args.batch_tokens.get());
    let renamed = written.and_then(|written| match std::fs::rename(&temporary, &args.output) {
        Ok(()) => Ok(written),
        Err(error) => Err(unwritable(&args.output, &error)),
    });
    let (rows, tokens) = renamed.inspect_err(|_| {
        // A remaining temporary file only takes space. The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    })?;
    print(&format!("scored {rows} rows, {tokens} tokens: {}", args.output.display()))
}

/// Returns true if two paths are the same file.
fn same_file(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(|path| std::fs::canonicalize(path).ok());
    a.is_some() && a == b
}

/// Scores and writes all rows; returns the number of rows and of tokens.
fn write(
    reader: &ScoreReader<'_>,
    path: &Path,
    batch_tokens: usize,
) -> Result<(u64, u64), Failure> {
    let failed = |error: std::io::Error| unwritable(path, &error);
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    let (mut batch, mut waiting, mut rows, mut tokens) = (Vec::new(), 0, 0, 0);
    for row in reader.rows()? {
        let row = row?.map_err(Failure)?;
        if waiting + row.ids.len() > batch_tokens {
            let scored = score_batch(reader, std::mem::take(&mut batch))?;
            write_answers(&mut out, &scored).map_err(failed)?;
            waiting = 0;
        }
        waiting += row.ids.len();
        rows += 1;
        tokens += row.ids.len() as u64;
        batch.push(row);
    }
    write_answers(&mut out, &score_batch(reader, batch)?).map_err(failed)?;
    out.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)?;
    Ok((rows, tokens))
}

/// Writes a line for each answer.
fn write_answers(out: &mut impl Write, answers: &[ScoredAnswer]) -> std::io::Result<()> {
    for answer in answers {
        serde_json::to_writer(&mut *out, answer)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("cannot write {}: {error}", path.display()))
}

fn score_batch(
    reader: &ScoreReader<'_>,
    batch: Vec<ScoreRow>,
) -> Result<Vec<ScoredAnswer>, Failure> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Vec<u32>> = batch.iter().map(|row| row.ids.clone()).collect();
    let scores = runtime::score(reader.model, &ids)?;
    let damaged = batch
        .iter()
        .zip(&scores)
        .find(|(_, scores)| scores.logprobs.iter().chain(&scores.entropy).any(|x| !x.is_finite()));
    if let Some((row, _)) = damaged {
        let place = format!("{}:{}", reader.path.display(), row.line);
        return Err(Failure(format!("{place}: a log-prob is not finite: the weights are damaged")));
    }
    Ok(batch.into_iter().zip(scores).map(|(row, scores)| ScoredAnswer { row, scores }).collect())
}

/// A valid row.
struct ScoreRow {
    line: usize,
    object: Map<String, Value>,
    ids: Vec<u32>,
}

/// Reader of the rows of a file.
struct ScoreReader<'a> {
    path: &'a Path,
    model: &'a Model,
    tokenizer: &'a Tokenizer,
}

impl ScoreReader<'_> {
    /// Returns every row, or the problem with it. Empty lines are skipped.
    fn rows(
        &self,
    ) -> Result<impl Iterator<Item = Result<Result<ScoreRow, String>, Failure>>, Failure> {
        let unreadable = |error: std::io::Error| paths::unreadable(self.path, &error);
        let file = File::open(self.path).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(Failure(format!("{} is no file", self.path.display())));
        }
        let lines = BufReader::new(file).lines().enumerate();
        let rows = lines.filter_map(move |(index, text)| match text {
            Ok(text) if text.trim().is_empty() => None,
            Ok(text) => {
                let text = text.strip_prefix('\u{feff}').filter(|_| index == 0).unwrap_or(&text);
                let row = self.row(index + 1, text);
                let path = self.path.display();
                Some(Ok(row.map_err(|what| format!("{path}:{}: {what}", index + 1))))
            }
            Err(error) => Some(Err(unreadable(error))),
        });
        Ok(rows)
    }

    /// Reads every row, and reports all that cannot be scored. Returns the length of the longest.
    fn check(&self) -> Result<usize, Failure> {
        let (mut bad, mut rows, mut longest) = (Vec::new(), 0_u64, 0);
        let mut more = 0_u64;
        for row in self.rows()? {
            rows += 1;
            match row? {
                Ok(row) => longest = longest.max(row.ids.len()),
                Err(what) if bad.len() < SHOWN => bad.push(what),
                Err(_) => more += 1,
            }
        }
        if rows == 0 {
            return Err(Failure(format!("{} has no rows", self.path.display())));
        }
        if bad.is_empty() {
            return Ok(longest);
        }
        let count = bad.len() as u64 + more;
        let more = if more > 0 { format!("\n... and {more} more") } else { String::new() };
        Err(Failure(format!("{count} of {rows} rows cannot be scored\n{}{more}", bad.join("\n"))))
    }

    fn row(&self, line: usize, text: &str) -> Result<ScoreRow, String> {
        let object = object(text, &KEPT).map_err(|error| format!("no JSON object: {error}"))?;
        understood(&object)?;
        // A null is what rows of a table have in a column that is not theirs.
        let given = object.iter().filter(|(_, value)| !value.is_null());
        let given: Map<String, Value> =
            given.map(|(key, value)| (key.clone(), value.clone())).collect();
        let ids = self.ids(&given)?;
        let (rows, context) = (self.model.config.vocab_size, self.model.config.whole_context);
        if ids.is_empty() {
            return Err("no tokens; at least one is needed".to_owned());
        }
        if ids.len() > context {
            return Err(format!("{} tokens do not fit the context of {context}", ids.len()));
        }
        // A row of the embedding that is no token of the tokenizer is sampled like any other, so it has a log-prob.
        match ids.iter().find(|&&id| id as usize >= rows) {
            Some(id) => Err(format!("there is no token {id}; the model has {rows}")),
            None => Ok(ScoreRow { line, object, ids }),
        }
    }

    /// Returns the ids of a row: its own, or those of its text or conversation. A row that was scored before has both,
    /// and they must agree.
    fn ids(&self, object: &Map<String, Value>) -> Result<Vec<u32>, String> {
        let told = object.contains_key("text") || object.contains_key("messages");
        let Some(ids) = object.get("input_ids") else { return self.encode_row(object) };
        let ids = Vec::<u32>::deserialize(ids)
            .map_err(|_| "`input_ids` is no list of token ids".to_owned())?;
        if told && self.encode_row(object)? != ids {
            let key = if object.contains_key("text") { "text" } else { "messages" };
            return Err(format!("`{key}` has other ids than `input_ids`; keep one of them"));
        }
        Ok(ids)
    }

    /// Returns the ids of a row's text or conversation.
    fn encode_row(&self, object: &Map<String, Value>) -> Result<Vec<u32>, String> {
        if object.contains_key("text") && object.contains_key("messages") {
            return Err("both `text` and `messages` are there; keep one".to_owned());
        }
        if let Some(text) = object.get("text") {
            let text = text.as_str().ok_or_else(|| format!("`text` is {text}; write a text"))?;
            return self.tokenizer.encode_framed(text).map_err(|e| e.to_string());
        }
        if !object.contains_key("messages") {
            let keys: Vec<&String> = object.keys().collect();
            return Err(format!("no `input_ids`, `text` or `messages` among the keys {keys:?}"));
        }
        let chat: ChatInput =
            serde_json::from_value(Value::Object(object.clone())).map_err(|e| e.to_string())?;
        let rendered = self.tokenizer.render_chat(&chat).map_err(|e| e.to_string())?;
        self.tokenizer.encode_rendered(&rendered).map_err(|e| e.to_string())
    }
}

/// Keys of a row that are copied to the output and not read.
pub(super) const KEPT: [&str; 2] = ["id", "meta"];
/// Keys that `score` adds; those of a row that was scored before are replaced.
const ADDED: [&str; 3] = ["input_ids", "logprobs", "entropy"];

/// Refuses keys that nothing reads, and those of a conversation where there is none.
fn understood(object: &Map<String, Value>) -> Result<(), String> {
    let own = KEPT.into_iter().chain(["text"]).chain(ADDED);
    let known: Vec<&str> = own.chain(ChatInput::KEYS).collect();
    let unknown = object.keys().filter(|key| !known.contains(&key.as_str()));
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(format!(
            "a row has no key `{}`; it has `{}`. Whatever else a chat template reads goes into `chat_template_kwargs`, notes of \
             your own into `meta`",
            unknown.join("`, `"),
            known.join("`, `")
        ));
    }
    let mut given = object.iter().filter(|(_, value)| !value.is_null());
    match given.find(|(key, _)| ChatInput::KEYS.contains(&key.as_str())) {
        Some((key, _)) if object.get("messages").is_none_or(Value::is_null) => {
            Err(format!("`{key}` is for conversations, and the row has no `messages`"))
        }
        _ => Ok(()),
    }
}

/// A row with its scores.
struct ScoredAnswer {
    row: ScoreRow,
    scores: Scores,
}

/// Writes the fields of the input in their order. Added fields replace those of the same name.
impl Serialize for ScoredAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.row.object {
            if !ADDED.contains(&key.as_str()) {
                map.serialize_entry(key, value)?;
            }
        }
        map.serialize_entry(ADDED[0], &self.row.ids)?;
        map.serialize_entry(ADDED[1], &self.scores.logprobs)?;
        map.serialize_entry(ADDED[2], &self.scores.entropy)?;
        map.end()
    }
}
