//! Search for words in the texts of episodes, over the frames that a selection leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::api::Answer;
use super::http::{Body, Query, Response};
use super::run::Run;
use super::selection::Selection;
use crate::run_dir::{Place, read_episode};
use crate::trajectory::Episode;

/// Maximum number of searches at once.
const SEARCHES: usize = 4;
/// Maximum number of found episodes of a search.
const MOST: usize = 500;
/// Number of rows whose texts are read between two parts of the answer.
const BATCH: usize = 32;
/// Number of characters on either side of what was found.
const AROUND: usize = 60;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A search, one part of the answer for each batch of episodes.
struct Search {
    run: Arc<Run>,
    words: String,
    rows: Vec<usize>,
    done: usize,
    found: usize,
    ended: bool,
}

/// Returns the stream of found episodes, as lines of JSON; the last line says how many were read.
pub(super) fn answer(run: &Arc<Run>, query: &Query) -> Answer {
    let Some(words) = query.text("q") else {
        return Err(Response::refusal(400, "`q` is missing: the words to look for"));
    };
    let mut selection = Selection::new(query)?;
    selection.all();
    let (rows, _) = run.now().index.select(&selection);
    if RUNNING.fetch_add(1, Ordering::SeqCst) >= SEARCHES {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        return Err(Response::refusal(503, "four searches are running; wait for one"));
    }
    let words = words.to_lowercase();
    let search = Search { run: Arc::clone(run), words, rows, done: 0, found: 0, ended: false };
    Ok(Response::new(200, "application/x-ndjson", Body::Parts(Box::new(search))))
}

impl Drop for Search {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Iterator for Search {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let mut text = String::new();
        let end = (self.done + BATCH).min(self.rows.len());
        for i in self.done..end {
            let at = self.rows[i];
            if let Some(hit) = self.hit(at).filter(|_| self.found < MOST) {
                self.found += 1;
                text.push_str(&format!("{hit}\n"));
            }
        }
        self.done = end;
        self.ended = end == self.rows.len() || self.found >= MOST;
        let progress = json!({ "scanned": self.done, "of": self.rows.len(), "end": self.ended });
        text.push_str(&format!("{progress}\n"));
        Some(text.into_bytes())
    }
}

impl Search {
    /// Returns the row of an episode that has the words, with the first place of them. What cannot be read has none.
    fn hit(&self, at: usize) -> Option<Value> {
        let held = self.run.now();
        let row = held.index.read(held.rows_file(), &[at]).ok()?.into_iter().next()?;
        drop(held);
        let place: Place = serde_json::from_value(row["at"].clone()).ok()?;
        let file = self.run.episodes(row["stage"].as_str()?, row["step"].as_u64()?)?;
        let episode = read_episode(&file, place).ok()?;
        let (place, turn, snippet) = find(&episode, &self.words)?;
        Some(json!({ "row": row, "where": place, "turn": turn, "snippet": snippet }))
    }
}

/// Returns the first place of words in lower case, the turn, and the text around it.
fn find(episode: &Episode, words: &str) -> Option<(&'static str, Option<usize>, String)> {
    let around = |text: &str| around(text, words);
    if let Some(found) = around(&episode.task.question) {
        return Some(("question", None, found));
    }
    for (i, turn) in episode.turns.iter().enumerate() {
        if let Some(found) = around(&turn.reply) {
            return Some(("reply", Some(i), found));
        }
        if let Some(found) = turn.error.as_deref().and_then(around) {
            return Some(("error", Some(i), found));
        }
    }
    if let Some(found) = episode.acts.iter().find_map(|act| around(&act.observation)) {
        return Some(("observation", None, found));
    }
    let prompts = episode.turns.iter().enumerate();
    for (i, message) in prompts.flat_map(|(i, turn)| turn.prompt.iter().map(move |m| (i, m))) {
        if let Some(found) = around(&message.content) {
            return Some(("prompt", Some(i), found));
        }
    }
    Some(("answer", None, around(episode.answer.as_deref()?)?))
}

/// Returns the text around the first place of words.
fn around(text: &str, words: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let at = lower[..lower.find(words)?].chars().count();
    let start = at.saturating_sub(AROUND);
    let length = at - start + words.chars().count() + AROUND;
    Some(text.chars().skip(start).take(length).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::tests::episode;

    #[test]
    fn words_are_found_in_every_text_whatever_their_case() {
        let mut one = episode("a", 0, true, 2);
        one.turns[1].reply = format!("{}QUITO is it{}", "ä".repeat(100), "b".repeat(100));
        let (place, turn, snippet) = find(&one, "quito").unwrap_or_default();
        assert_eq!((place, turn), ("reply", Some(1)));
        assert!(snippet.contains("QUITO") && snippet.chars().count() == 60 + 5 + 60, "{snippet}");
        assert_eq!(find(&one, "who").map(|found| found.0), Some("question"));
        one.answer = Some("Lima".into());
        assert_eq!(find(&one, "lima").map(|found| found.0), Some("answer"));
        assert_eq!(find(&one, "nowhere"), None);
    }
}
