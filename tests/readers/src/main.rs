//! Compares maverl's readers of tool calls with those of two other crates, on replies that chat templates render and on their
//! beginnings. Prints how many replies each reads as maverl does, and why not the others. Exits with 1 if a difference has no known
//! cause, or if maverl does not return the calls that were rendered.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod causes;
#[path = "../../../maverl/src/tools/formats/tests/draw.rs"]
mod draw;
mod others;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use draw::{Draw, TEMPLATES, draw_calls, is_beyond, render_calls, tokenizer};
use maverl::files::{ModelFiles, ModelSource};
use maverl::text::{ChatInput, ChatMessage, Tokenizer};
use maverl::tools::{Call, CallFormat, calls};
use others::Reader;
use serde_json::{Map, Value, json};

/// Templates, from the directory of the crate.
const TEMPLATE_DIR: &str = "../fixtures/formats";

/// Replies of each template.
const REPLIES: usize = 500;

/// Replies of each template that are also read from their beginnings, of every length.
const CUT_REPLIES: usize = 12;

/// Numbers of a comparison.
#[derive(Default)]
struct Counts {
    replies: usize,
    beyond: usize,
    beginnings: usize,
    /// Replies that a reader reads as maverl does.
    equal: BTreeMap<&'static str, usize>,
    /// Replies that a reader does not, by cause.
    causes: BTreeMap<(String, &'static str, &'static str), usize>,
    /// Beginnings of which a reader returns a call that the whole reply does not have.
    invented: BTreeMap<&'static str, usize>,
    /// Differences without a known cause, and faults of maverl.
    faults: Vec<String>,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let counts = runtime.block_on(compare());
    print!("{}", text_of(&counts));
    if counts.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn compare() -> Counts {
    let mut counts = Counts::default();
    // `tool-parser` does not have Harmony, and `dynamo-parsers` needs a vocabulary from the network for it.
    let compared = TEMPLATES.into_iter().filter(|(_, format)| *format != CallFormat::Harmony);
    for (template, format) in compared {
        let tokenizer = tokenizer(template);
        let mut draw = Draw(7);
        for index in 0..REPLIES {
            let (wanted, tools) = draw_calls(&mut draw);
            let reply = render_calls(&tokenizer, format, &wanted, &tools);
            counts.replies += 1;
            compare_whole(&mut counts, format, &wanted, &reply, &tools).await;
            if index < CUT_REPLIES && !is_beyond(format, &wanted) {
                compare_beginnings(&mut counts, format, &wanted, &reply, &tools).await;
            }
        }
    }
    counts
}

/// Compares what the readers return of a whole reply.
async fn compare_whole(
    counts: &mut Counts,
    format: CallFormat,
    wanted: &[Call],
    reply: &str,
    tools: &[Value],
) {
    let ours: Vec<Call> = calls(reply, format, tools).into_iter().flatten().collect();
    if is_beyond(format, wanted) {
        counts.beyond += 1;
    } else if ours != wanted {
        counts.faults.push(format!("maverl, {}: {reply:?}", format.name()));
    }
    for reader in Reader::ALL {
        let theirs = reader.calls(reply, format, tools).await;
        if theirs.as_ref() == Some(&ours) {
            *counts.equal.entry(reader.name()).or_default() += 1;
            continue;
        }
        if theirs.is_some_and(|theirs| theirs == wanted) {
            counts.faults.push(format!("{} alone, {}: {reply:?}", reader.name(), format.name()));
        }
        match causes::cause(reader, format, wanted) {
            Some(cause) => {
                let row = (format.name(), reader.name(), cause);
                *counts.causes.entry(row).or_default() += 1;
            }
            None => counts.faults.push(format!("{}, {}: {reply:?}", reader.name(), format.name())),
        }
    }
}

/// Compares what the readers return of all beginnings of a reply: maverl only calls of the whole reply.
async fn compare_beginnings(
    counts: &mut Counts,
    format: CallFormat,
    wanted: &[Call],
    reply: &str,
    tools: &[Value],
) {
    for (end, _) in reply.char_indices() {
        let beginning = &reply[..end];
        counts.beginnings += 1;
        let ours: Vec<Call> = calls(beginning, format, tools).into_iter().flatten().collect();
        if !wanted.starts_with(&ours) {
            counts.faults.push(format!("maverl, a beginning, {}: {beginning:?}", format.name()));
        }
        for reader in Reader::ALL {
            let theirs = reader.calls(beginning, format, tools).await.unwrap_or_default();
            if !theirs.iter().all(|call| wanted.contains(call)) {
                *counts.invented.entry(reader.name()).or_default() += 1;
            }
        }
    }
}

fn text_of(counts: &Counts) -> String {
    let mut text = format!(
        "{} replies, {} without an escape for their texts\n",
        counts.replies, counts.beyond
    );
    for (reader, equal) in &counts.equal {
        text += &format!("{reader}: {equal} read as by maverl\n");
    }
    for ((format, reader, cause), replies) in &counts.causes {
        text += &format!("  {format}, {reader}: {cause}: {replies}\n");
    }
    text += &format!("{} beginnings of replies\n", counts.beginnings);
    for (reader, invented) in &counts.invented {
        text += &format!("  {reader}: a call that the reply does not have: {invented}\n");
    }
    for fault in counts.faults.iter().take(20) {
        text += &format!("no known cause: {fault}\n");
    }
    text + &format!("{} differences without a known cause\n", counts.faults.len())
}
