//! The search finds what reading each episode finds, in the order of the selection.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::report::rows::selection::SortKey;
use crate::tests::searching;
use maverl::run_dir::testing::{episode, origin, write_step};
use maverl::run_dir::{EpisodePosition, EpisodeRow, Journal, RunDir, TRAIN, read_episode};
use maverl::trajectory::{Episode, Message, Role};

/// Texts of turns: what JSON escapes, what has another length in lower case, and keys of the files.
const REPLIES: [&str; 9] = [
    "she said \"Lima\", C:\\new\nsecond line\tend",
    "ΟΔΟΣ and ΟΔΟΣ!",
    "İstanbul, 100 \u{212a}",
    "\u{1b}[31m\u{202e}evil",
    "Größe \u{1e9e} 漢字 ПРИВЕТ",
    "a/b \\u0041 {\"turn\":1}",
    "reply",
    "\\\\\" \u{7f}\u{ffff}",
    "",
];
const QUERIES: [&str; 30] = [
    "said \"lima\"",
    "\"",
    "\\",
    "\\n",
    "new\nsecond",
    "line\tEND",
    "οδος",
    "ΟΔΟΣ",
    "οδοσ!",
    "istanbul",
    "i\u{307}st",
    "\u{307}",
    "100 k",
    "\u{1b}[31M",
    "\u{202e}",
    "GRÖSSE",
    "größe ß",
    "漢",
    "привет",
    "a/B",
    "\\u0041",
    "u0041",
    "{\"turn\":1}",
    "turn",
    "reply",
    "who",
    "\\\\\"",
    "\u{7f}",
    "\u{ffff}",
    "nowhere at all",
];

/// Writes a run of several frames in each of two steps.
fn write(path: &std::path::Path) {
    let mut dir = RunDir::create(path, &origin()).unwrap();
    let mut journal = Journal::open(dir.path(), &BTreeMap::new()).unwrap();
    journal.cut_to_checkpoint().unwrap();
    for step in 1..=2 {
        let episodes: Vec<Episode> = (0..18_u32).map(|n| one(step, n)).collect();
        let places = write_step(&mut dir, step, &episodes);
        assert!(places.last().unwrap()[0] > 0, "several frames: {places:?}");
        let rows = episodes.iter().zip(&places).zip(0..);
        let rows: Vec<_> =
            rows.map(|((one, at), n)| EpisodeRow::new(TRAIN, step, n, *at, one)).collect();
        journal.append_episodes(&rows).unwrap();
    }
}

fn one(step: u64, n: u32) -> Episode {
    let mut one = episode("a", n, (u64::from(n) * 7 + step).is_multiple_of(3), 3);
    let text = REPLIES[n as usize % REPLIES.len()];
    let filler = "-".repeat(100_000);
    match n % 4 {
        0 => one.turns[1].reply = format!("{filler}{text}"),
        1 => one.turns[2].error = Some(text.to_owned()),
        2 => one.turns[0].prompt.push(Message { role: Role::User, content: text.to_owned() }),
        _ => one.answer = Some(text.to_owned()),
    }
    one.turns[0].reply.push_str(&filler);
    one
}

/// Returns the found episodes as step, index, and line without the row.
fn found(run: &Arc<ReportedRun>, words: &str, of: RowSelection) -> (Vec<(u64, u64, Value)>, Value) {
    let _searching = searching();
    let parts = RunningSearch::begin(run, words, &selected(of)).unwrap();
    let text: Vec<u8> = parts.flatten().collect();
    let text = String::from_utf8(text).unwrap();
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.pop().unwrap();
    lines.retain(|line| line["row"].is_object());
    let hit = |line: Value| {
        let number = |name: &str| line["row"][name].as_u64().unwrap();
        let hit = json!([line["where"], line["turn"], line["snippet"]]);
        (number("step"), number("n"), hit)
    };
    (lines.into_iter().map(hit).collect(), last)
}

/// Returns the same by reading each episode.
fn read(run: &ReportedRun, selection: &RowSelection, words: &str) -> Vec<(u64, u64, Value)> {
    let content = run.lock_content();
    let (rows, _) = content.index.select_rows(selection);
    let rows = content.index.read_rows(content.rows_file(), &rows).unwrap();
    drop(content);
    let of = |row: &Value| {
        let place: EpisodePosition = serde_json::from_value(row["at"].clone()).unwrap();
        let step = row["step"].as_u64().unwrap();
        let one = read_episode(&run.files.episodes_file(TRAIN, step).unwrap(), place).unwrap();
        let (name, turn, text) = first(&one, &words.to_lowercase())?;
        let snippet = words::text_around(text, &words.to_lowercase());
        Some((step, row["n"].as_u64().unwrap(), json!([name, turn, snippet])))
    };
    rows.iter().filter_map(of).collect()
}

fn first<'e>(one: &'e Episode, words: &str) -> Option<(&'static str, Option<usize>, &'e str)> {
    let mut texts = vec![("question", None, one.task.question.as_str())];
    for (i, turn) in one.turns.iter().enumerate() {
        texts.push(("reply", Some(i), &turn.reply));
        texts.extend(turn.error.as_deref().map(|error| ("error", Some(i), error)));
    }
    texts.extend(one.acts.iter().map(|act| ("observation", None, act.observation.as_str())));
    for (i, turn) in one.turns.iter().enumerate() {
        texts.extend(turn.prompt.iter().map(|m| ("prompt", Some(i), m.content.as_str())));
    }
    texts.extend(one.answer.as_deref().map(|answer| ("answer", None, answer)));
    texts.into_iter().find(|(.., text)| text.to_lowercase().contains(words))
}

/// Returns a selection without a limit.
fn selected(mut selection: RowSelection) -> RowSelection {
    selection.select_all();
    selection
}

#[test]
fn a_search_finds_what_reading_each_episode_finds_in_the_order_of_the_selection() {
    let home = tempfile::tempdir().unwrap();
    write(home.path());
    let run = Arc::new(ReportedRun::new(home.path().to_owned(), "a".to_owned()));
    for sort in [
        (SortKey::Step, false),
        (SortKey::Step, true),
        (SortKey::Score, true),
        (SortKey::Reward, false),
    ] {
        for words in QUERIES {
            let (hits, last) = found(&run, words, RowSelection { sort, ..RowSelection::default() });
            let selection = selected(RowSelection { sort, ..RowSelection::default() });
            assert_eq!(hits, read(&run, &selection, words), "{words:?} by {sort:?}");
            assert_eq!(last, json!({ "scanned": 36, "of": 36, "end": true, "unreadable": 0 }));
        }
    }
    let good = RowSelection {
        steps: (Some(2), Some(2)),
        task: Some("a".to_owned()),
        score: (Some(0.5), None),
        ..RowSelection::default()
    };
    let (one, last) = found(&run, "who", good);
    assert!(one.iter().all(|(step, ..)| *step == 2) && one.len() == 6, "{one:?}");
    assert_eq!(last["of"], 6);
    let none = RowSelection { steps: (Some(9), Some(9)), ..RowSelection::default() };
    assert_eq!(found(&run, "who", none).1["of"], 0, "an empty selection ends");
}

#[test]
fn frames_that_cannot_be_read_are_counted_and_the_others_are_searched() {
    let home = tempfile::tempdir().unwrap();
    write(home.path());
    let run = Arc::new(ReportedRun::new(home.path().to_owned(), "a".to_owned()));
    assert_eq!(found(&run, "who", RowSelection::default()).0.len(), 36);
    let file = run.files.episodes_file(TRAIN, 1).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let (hits, last) = found(&run, "who", RowSelection::default());
    let unreadable = last["unreadable"].as_u64().unwrap();
    assert!(unreadable > 0 && unreadable < 18, "{last}");
    assert_eq!(hits.len() as u64 + unreadable, 36);
}

#[test]
fn a_search_whose_client_is_gone_ends_and_lets_the_next_begin() {
    let home = tempfile::tempdir().unwrap();
    write(home.path());
    let run = Arc::new(ReportedRun::new(home.path().to_owned(), "a".to_owned()));
    let _searching = searching();
    for _ in 0..3 * SEARCHES {
        let mut parts =
            RunningSearch::begin(&run, "who", &selected(RowSelection::default())).unwrap();
        let first = parts.find(|part| !part.is_empty()).unwrap();
        assert!(first.ends_with(b"}\n"));
    }
}
