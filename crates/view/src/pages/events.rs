//! Server-sent events: what has changed since the last look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::answer::BodyParts;
use crate::report::problem::ReportProblem;
use crate::report::rows::run::INTERVAL;
use crate::report::watched::WatchedRun;

/// Maximum number of clients that listen at once.
const LISTENERS: usize = 64;
/// Number of looks without news after which a comment is sent, so that a connection that is gone is noticed.
const QUIET: u32 = 20;

static LISTENING: AtomicUsize = AtomicUsize::new(0);

/// Changes of all runs, one part for each look at the files.
struct RunEvents {
    runs: Vec<Arc<WatchedRun>>,
    /// Lengths, state and progress of each run at the last look.
    seen: BTreeMap<usize, (String, String)>,
    quiet: u32,
    first: bool,
}

/// Returns the stream of events. `last` is the id of the last event that the client has seen.
pub(crate) fn event_stream(
    runs: Vec<Arc<WatchedRun>>,
    last: Option<&str>,
) -> Result<BodyParts, ReportProblem> {
    if LISTENING.fetch_add(1, Ordering::SeqCst) >= LISTENERS {
        LISTENING.fetch_sub(1, Ordering::SeqCst);
        return Err(ReportProblem::busy("too many pages listen; close some"));
    }
    let seen = last.map(parse_id).unwrap_or_default();
    Ok(Box::new(RunEvents { runs, seen, quiet: 0, first: true }))
}

/// Parses an id: lengths of runs, as `0:12-34-0-0;1:..`.
fn parse_id(id: &str) -> BTreeMap<usize, (String, String)> {
    id.split(';')
        .filter_map(|part: &str| {
            let (r, lengths) = part.split_once(':')?;
            Some((r.parse().ok()?, (lengths.to_owned(), String::new())))
        })
        .collect()
}

impl Drop for RunEvents {
    fn drop(&mut self) {
        LISTENING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Iterator for RunEvents {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.first) {
            std::thread::sleep(INTERVAL);
        }
        let mut text = String::new();
        for (r, run) in self.runs.iter().enumerate() {
            let line = run.list_line();
            let content = run.run.lock_content();
            let lengths = content.content_lengths().map(|n| n.to_string()).join("-");
            let state = json!([line["state"], line["progress"], line["after"], line["tracking"]])
                .to_string();
            let known = self.seen.insert(r, (lengths.clone(), state.clone()));
            let (old_lengths, old_state) = known.unwrap_or_default();
            if old_state != state {
                text.push_str(&format!("event: run\ndata: {line}\n\n"));
            }
            if old_lengths != lengths {
                let [old_end, end] = [&old_lengths, &lengths].map(|text| text.rsplit('-').next());
                let reset = !old_lengths.is_empty() && old_end != end;
                let step = content.series.last_step();
                let data =
                    object!({ "r": run.run.id, "step": step, "episodes": content.index.len() });
                let kind = if reset { "reset" } else { "rows" };
                text.push_str(&format!("event: {kind}\ndata: {data}\n\n"));
            }
        }
        if text.is_empty() {
            self.quiet += 1;
            let is_due = self.quiet.is_multiple_of(QUIET);
            return Some(if is_due { b":\n\n".to_vec() } else { Vec::new() });
        }
        let ids = self.seen.iter().map(|(r, (lengths, _))| format!("{r}:{lengths}"));
        let id = ids.collect::<Vec<_>>().join(";");
        Some(format!("id: {id}\n{text}").into_bytes())
    }
}
