#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::run_dir::tests::episode;
use crate::task::question_key;
use crate::trajectory::{Fault, FaultKind, Message, Outcome, RewardOf, RewardPart, Role};

fn options(kind: Kind) -> CollectOptions {
    CollectOptions {
        kinds: vec![kind],
        filters: Filters::default(),
        dedup: Dedup::Exact,
        balance: None,
        label: None,
        margin: 0.5,
        pairs: 4,
        test_share: 0.0,
        format: RowFormat::Jsonl,
    }
}

/// Creates an episode of one turn with a reply.
fn one(task: &str, index: u32, reply: &str, solved: bool) -> Collected {
    let mut episode = episode(task, index, solved, 1);
    episode.task.question = format!("what is {task}?");
    episode.turns[0].prompt =
        vec![Message { role: Role::User, content: episode.task.question.clone() }];
    episode.turns[0].reply = reply.to_owned();
    of(episode)
}

fn of(episode: crate::trajectory::Episode) -> Collected {
    let weights = Arc::new([("small".to_owned(), "b".repeat(64))].into());
    Collected {
        run: "search-1".into(),
        stage: "train".into(),
        step: 3,
        weights,
        asked: None,
        episode,
    }
}

fn texts(rows: &[Row], pointer: &str) -> Vec<String> {
    let text = |row: &Row| row.columns.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    rows.iter().map(text).collect()
}

#[test]
fn rows_are_in_the_order_of_tasks_whatever_the_order_of_the_episodes() {
    let episodes = || vec![one("b", 1, "3", true), one("a", 0, "1", true), one("b", 0, "2", false)];
    let rows = |mut episodes: Vec<Collected>, turn: usize| {
        episodes.rotate_left(turn);
        collect(episodes, &options(Kind::Sft)).sets.remove(&Kind::Sft).unwrap().train
    };
    let first = rows(episodes(), 0);
    assert_eq!(texts(&first, "/messages/1/content"), ["1", "2", "3"]);
    assert_eq!(texts(&first, "/messages/0/content")[0], "what is a?");
    let origin = &first[1].columns["maverl"];
    assert_eq!(
        (&origin["run"], &origin["step"], &origin["task"]),
        (&"search-1".into(), &3.into(), &"b".into())
    );
    assert_eq!(origin["solved"], false);
    for turn in 1..3 {
        assert_eq!(rows(episodes(), turn), first);
    }
}

#[test]
fn filters_count_what_they_leave_out() {
    let mut truncated = one("a", 1, "cut", true);
    truncated.episode.turns[0].truncated = true;
    let mut masked = one("a", 2, "title", true);
    masked.episode.turns[0].masked = true;
    let mut unscored = one("a", 3, "?", true);
    unscored.episode.outcome = Outcome::Unscored(Fault::new(FaultKind::Timeout, "600 s"));
    let mut options = options(Kind::Sft);
    options.filters = Filters {
        solved: true,
        no_truncated: true,
        no_matches: vec!["(?i)rephrase".parse().unwrap()],
        ..Filters::default()
    };
    let wrong = one("a", 4, "wrong", false);
    let style = one("a", 5, "I Rephrase it", true);
    let twice = [one("a", 6, "good", true), one("a", 7, "good", true)];
    let mut episodes = vec![truncated, masked, unscored, wrong, style];
    episodes.extend(twice);
    let collection = collect(episodes, &options);
    assert_eq!((collection.episodes, collection.unscored), (7, 1));
    let set = &collection.sets[&Kind::Sft];
    assert_eq!(texts(&set.train, "/messages/1/content"), ["good"]);
    let removed: Vec<(&str, u64)> = set.removed.iter().map(|(name, n)| (*name, *n)).collect();
    let expected =
        [("duplicate", 1), ("masked", 1), ("no_match", 1), ("solved", 1), ("truncated", 1)];
    assert_eq!(removed, expected);
}

#[test]
fn pairs_are_of_equal_prompts_and_differ_by_the_margin() {
    let episodes = vec![
        one("a", 0, "right", true),
        one("a", 1, "right", false),
        one("a", 2, "best", true),
        one("a", 3, "worst", false),
        one("b", 0, "right", true),
    ];
    let collection = collect(episodes.clone(), &options(Kind::Preference));
    let rows = &collection.sets[&Kind::Preference].train;
    // `right` has a mean reward of a half, and is the middle of three.
    assert_eq!(texts(rows, "/chosen/0/content"), ["best"]);
    assert_eq!(texts(rows, "/rejected/0/content"), ["worst"]);
    assert_eq!(rows[0].columns["maverl"]["rejected"]["index"], 3);
    let far = CollectOptions { margin: 1.5, ..options(Kind::Preference) };
    assert!(collect(episodes, &far).sets[&Kind::Preference].train.is_empty());
}

#[test]
fn a_reward_of_a_turn_is_that_of_its_row() {
    let mut one = one("a", 0, "x", true);
    let of = RewardOf::Turn(0);
    one.episode.rewards.push(RewardPart { name: "brief".into(), value: -0.25, of });
    let set = collect(vec![one], &options(Kind::Verifier)).sets.remove(&Kind::Verifier).unwrap();
    assert_eq!(
        (&set.train[0].columns["score"], &set.train[0].columns["label"]),
        (&0.75.into(), &true.into())
    );
}

#[test]
fn the_sign_of_a_part_of_the_reward_is_the_label_of_a_turn() {
    let label = |part: &str, value: f64, solved: bool| {
        let mut one = one("a", 0, "x", solved);
        let of = RewardOf::Turn(0);
        one.episode.rewards.push(RewardPart { name: "own".into(), value, of });
        let options = CollectOptions { label: Some(part.to_owned()), ..options(Kind::Verifier) };
        let set = collect(vec![one], &options).sets.remove(&Kind::Verifier).unwrap();
        set.train[0].columns["label"].as_bool()
    };
    assert_eq!(label("own", 0.5, false), Some(true));
    assert_eq!(label("own", 0.0, true), Some(false));
    assert_eq!(label("other", 0.5, true), Some(false));
}

#[test]
fn labels_are_balanced_by_task_and_splits_are_by_question() {
    let episodes: Vec<Collected> = (0..40)
        .flat_map(|task| {
            (0..8).map(move |i| one(&format!("t{task}"), i, &format!("reply {i}"), i < 6))
        })
        .collect();
    let options = CollectOptions { balance: Some(2), test_share: 0.25, ..options(Kind::Verifier) };
    let collection = collect(episodes, &options);
    let set = &collection.sets[&Kind::Verifier];
    assert_eq!(set.train.len() + set.test.len(), 40 * 4);
    assert_eq!(set.removed["balance"], 40 * 4);
    let tasks = |rows: &[Row]| {
        rows.iter().map(|row| row.task.1.clone()).collect::<std::collections::BTreeSet<_>>()
    };
    let (train, test) = (tasks(&set.train), tasks(&set.test));
    assert!(train.is_disjoint(&test) && (4..=17).contains(&test.len()), "{}", test.len());
    assert_eq!(question_key("What is  it?"), question_key("what is it"));
}

#[test]
fn replies_that_were_asked_for_have_the_plain_prompt_and_are_not_in_the_test_split() {
    let asked = |task: usize| {
        let mut one = one(&format!("t{task}"), 1, "wrong", false);
        one.episode.turns[0].prompt[0].content.push_str("\nBe wrong.");
        Collected { asked: Some("Be wrong.".into()), ..one }
    };
    let episodes: Vec<Collected> = (0..40)
        .flat_map(|task| [one(&format!("t{task}"), 0, "right", true), asked(task)])
        .collect();
    let options = CollectOptions { test_share: 0.25, ..options(Kind::Verifier) };
    let set = collect(episodes, &options).sets.remove(&Kind::Verifier).unwrap();
    let of = |rows: &[Row]| rows.iter().filter(|row| row.asked).count();
    assert_eq!((of(&set.test), of(&set.train)), (0, 40 - set.test.len()));
    assert_eq!(set.removed["asked"], set.test.len() as u64);
    let row = set.train.iter().find(|row| row.asked).unwrap();
    assert_eq!(row.columns["maverl"]["asked"], "Be wrong.");
    let prompt = row.columns["prompt"][0]["content"].as_str().unwrap();
    assert!(prompt.ends_with('?'), "{prompt}");
}

#[cfg(feature = "parquet")]
#[test]
fn rows_in_parquet_have_the_columns_of_those_in_json() {
    use ::parquet::file::reader::SerializedFileReader;

    let episodes: Vec<Collected> = (0..6)
        .map(|i| {
            let mut collected = one(&format!("t{}", i / 3), i % 3, &format!("reply {i}"), i < 2);
            if i == 4 {
                collected.episode.turns[0].tools = vec![json!({"name": "add"})];
            }
            collected
        })
        .collect();
    for kind in [Kind::Sft, Kind::Preference, Kind::Verifier, Kind::Steps] {
        let collection = collect(episodes.clone(), &options(kind));
        let rows = &collection.sets[&kind].train;
        let dir = tempfile::tempdir().unwrap();
        let options = CollectOptions { format: RowFormat::Parquet, ..options(kind) };
        write(dir.path(), &collection, &options, &[]).unwrap();
        let path = dir.path().join(format!("{}.parquet", kind.name()));
        let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
        let mut n = 0;
        for (read, row) in reader.into_iter().zip(rows) {
            let mut read = read.unwrap().to_json_value();
            let mut expected = row.columns.clone();
            for name in ["maverl", "tools"] {
                let text = read[name].as_str().map(str::to_owned);
                read[name] =
                    text.map_or_else(Default::default, |t| serde_json::from_str(&t).unwrap());
                expected[name] = expected[name].take();
            }
            assert_eq!(read, expected, "{}", kind.name());
            n += 1;
        }
        assert!(n == rows.len() && n > 0, "{}", kind.name());
    }
}

#[test]
fn nearly_equal_replies_to_a_task_are_one_row() {
    let long =
        |end: &str| format!("{} {end}", (0..60).map(|n| format!("w{n} ")).collect::<String>());
    let episodes = vec![
        one("a", 0, &long("yes"), true),
        one("a", 1, &long("no"), true),
        one("a", 2, "something else entirely", true),
        one("b", 0, &long("no"), true),
    ];
    let near = CollectOptions { dedup: Dedup::Near, ..options(Kind::Sft) };
    let set = &collect(episodes, &near).sets[&Kind::Sft];
    assert_eq!((set.train.len(), set.removed["duplicate"]), (3, 1));
}

#[test]
fn a_step_is_right_if_half_of_the_episodes_that_begin_so_are_solved() {
    let episode = |index: u32, replies: [&str; 2], solved: bool| {
        let mut episode = episode("a", index, solved, 2);
        for (turn, reply) in episode.turns.iter_mut().zip(replies) {
            turn.reply = reply.to_owned();
        }
        of(episode)
    };
    let episodes = vec![
        episode(0, ["x", "1"], true),
        episode(1, ["x", "2"], false),
        episode(2, ["y", "3"], false),
    ];
    let set = collect(episodes, &options(Kind::Steps)).sets.remove(&Kind::Steps).unwrap();
    let column = |name: &str| -> Vec<Value> {
        set.train.iter().map(|row| row.columns[name].clone()).collect()
    };
    assert_eq!(column("completions"), [json!(["x", "1"]), json!(["x", "2"]), json!(["y", "3"])]);
    assert_eq!(
        column("labels"),
        [json!([true, true]), json!([true, false]), json!([false, false])]
    );
    assert_eq!(column("counts"), [json!([2, 1]), json!([2, 1]), json!([1, 1])]);
}

/// Prints the rows of `sft` that are made in a minute, of replies that are all different.
#[test]
#[ignore = "a guard of speed"]
fn more_than_a_hundred_thousand_rows_are_made_in_a_minute() {
    const ROWS: usize = 4000;
    let episodes: Vec<Collected> = (0..ROWS)
        .map(|i| one(&format!("task {}", i / 4), (i % 4) as u32, &format!("reply {i}"), i % 2 == 0))
        .collect();
    let begin = std::time::Instant::now();
    let rows = collect(episodes, &options(Kind::Sft)).sets.remove(&Kind::Sft).unwrap().train;
    let bytes: usize = rows.iter().map(|row| row.columns.to_string().len()).sum();
    let rate = rows.len() as f64 / begin.elapsed().as_secs_f64() * 60.0;
    println!("{} rows with {bytes} bytes, {rate:.0} rows a minute", rows.len());
    assert_eq!(rows.len(), ROWS);
    assert!(rate > 1e5, "{rate}");
}
