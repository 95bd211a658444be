#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;

use super::*;
use crate::metrics::Metrics;
use crate::task::{Score, Task};
use crate::trajectory::{Episode, Finish, Outcome, Seat, Tokens, Turn, TurnPath};

/// An episode of the seat `t/a` with `turns` turns of two tokens.
pub(crate) fn episode(id: &str, index: u32, solved: bool, turns: u32) -> Episode {
    let turn = |i: u32| Turn {
        path: TurnPath(vec![i]),
        seat: Seat::only("t/a"),
        policy: "small".into(),
        prompt: Vec::new(),
        tools: Vec::new(),
        reply: "yes".into(),
        error: None,
        truncated: false,
        shortened: 0,
        forked: false,
        rests: false,
        tokens: Some(Tokens {
            prompt: vec![1, 2, 3],
            completion: vec![4, 5],
            logprobs: vec![-0.1, -0.7],
            version: 0,
            seed: u64::from(i),
            temperature: 1.0,
            finish: Finish::Stop,
        }),
    };
    let task = Task {
        id: id.into(),
        source: "facts".into(),
        question: "who?".into(),
        data: serde_json::Map::new(),
    };
    Episode {
        task,
        index,
        seed: 7,
        turns: (0..turns).map(turn).collect(),
        answer: Some("yes".into()),
        outcome: Outcome::Scored(Score::binary(solved)),
        rewards: Vec::new(),
    }
}

/// What a run on nothing starts from.
pub(crate) fn origin() -> Origin {
    let provenance = Provenance {
        version: "0".into(),
        base: "/".into(),
        data: BTreeMap::from([("train".into(), "a".repeat(64))]),
        weights: BTreeMap::from([("small".into(), "b".repeat(64))]),
        device: "cpu".into(),
        threads: 2,
    };
    Origin { given: "seed = 7\n".into(), config: Config::default(), provenance }
}

#[test]
fn a_new_run_directory_opens_and_says_what_it_started_from() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("runs/a");
    let mut origin = origin();
    origin.config.agents.entry("search/verifier".into()).or_default().frozen = Some(true);
    RunDir::create(&path, &origin).unwrap();
    let dir = RunDir::open(&path).unwrap();
    assert_eq!(dir.origin().unwrap(), origin);
    dir.compare(&origin).unwrap();
    assert_eq!(entries(&home.path().join("runs")).unwrap(), [path]);
}

#[test]
fn a_directory_with_something_in_it_is_refused_and_an_empty_one_is_used() {
    let home = tempfile::tempdir().unwrap();
    let (full, empty) = (home.path().join("full"), home.path().join("empty"));
    fs::create_dir(&full).unwrap();
    fs::create_dir(&empty).unwrap();
    fs::write(full.join("thesis.tex"), "years of work").unwrap();
    let error = RunDir::create(&full, &origin()).unwrap_err().to_string();
    assert!(error.contains("is not empty") && error.contains("--resume"), "{error}");
    RunDir::create(&empty, &origin()).unwrap();
    assert_eq!(entries(home.path()).unwrap(), [empty, full]);
}

#[test]
fn what_a_dead_process_left_of_a_run_directory_is_removed() {
    let home = tempfile::tempdir().unwrap();
    // No process has a number so large.
    let [dead, other] = ["a", "b"].map(|run| home.path().join(format!(".tmp-{run}-4294967295")));
    let alive = home.path().join(".tmp-a-1");
    for dir in [&dead, &other, &alive] {
        fs::create_dir(dir).unwrap();
    }
    RunDir::create(&home.path().join("a"), &origin()).unwrap();
    let left = entries(home.path()).unwrap();
    let expected = [alive, other, home.path().join("a")];
    match Path::new("/proc/self").exists() {
        true => assert_eq!(left, expected),
        false => assert_eq!(left.len(), expected.len() + 1),
    }
}

#[test]
fn the_next_run_takes_the_first_free_number() {
    let home = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..3)
        .map(|_| name(RunDir::create_next(home.path(), "search", &origin()).unwrap().path()))
        .collect();
    assert_eq!(names, ["search-1", "search-2", "search-3"]);
}

#[test]
fn a_changed_configuration_is_refused_with_every_key_except_steps() {
    let home = tempfile::tempdir().unwrap();
    let dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    let mut now = origin();
    now.config.steps = 7;
    dir.compare(&now).unwrap();
    dir.reopen(&now.config, 0).unwrap();
    assert_eq!(dir.origin().unwrap().config.steps, 7);
    // Nor does the machine.
    now.config.runtime.threads = 3;
    now.config.runtime.prefix_cache = false;
    now.provenance.threads = 3;
    dir.compare(&now).unwrap();
    now.config.runtime.micro_batch_tokens = NonZeroUsize::MIN;
    now.config.seed = 9;
    now.config.agents.entry("search/verifier".into()).or_default().frozen = Some(true);
    now.provenance.data.insert("train".into(), "c".repeat(64));
    let error = dir.compare(&now).unwrap_err().to_string();
    for part in [
        "`seed` was 0, is 9",
        "`runtime.micro_batch_tokens` was 4096, is 1",
        "`agents.\"search/verifier\"`",
        "data of `train`",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_is_no_run_or_was_tampered_with_does_not_open() {
    let home = tempfile::tempdir().unwrap();
    let error = RunDir::open(home.path()).unwrap_err().to_string();
    assert!(error.contains("not a run directory"), "{error}");
    let path = home.path().join("a");
    RunDir::create(&path, &origin()).unwrap();
    fs::write(path.join(PROVENANCE), "{}").unwrap();
    let error = RunDir::open(&path).unwrap_err().to_string();
    assert!(error.contains("provenance.json") && error.contains("damaged"), "{error}");
}

#[test]
fn going_on_removes_what_belongs_to_later_steps() {
    let home = tempfile::tempdir().unwrap();
    let dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    for step in [1, 2, 10, 1_000_000] {
        write_rollouts(&dir.rollouts(step), &[]).unwrap();
    }
    for file in [dir.summary(), dir.evaluation("before"), dir.evaluation("after")] {
        fs::write(file, "{}").unwrap();
    }
    fs::write(dir.path().join("rollouts/.tmp-step-000003.jsonl.zst"), "half").unwrap();
    dir.reopen(&origin().config, 2).unwrap();
    let left = entries(&dir.path().join("rollouts")).unwrap();
    assert_eq!(left, [dir.rollouts(1), dir.rollouts(2)]);
    assert_eq!(entries(&dir.path().join("evaluations")).unwrap(), [dir.evaluation("before")]);
    assert!(!dir.summary().exists());
}

#[test]
fn a_resumed_journal_equals_one_never_interrupted() {
    let home = tempfile::tempdir().unwrap();
    let row =
        |step: u64| -> Metrics { [("rollout/solved", step as f64 / 10.0)].into_iter().collect() };
    let (whole, cut) = (home.path().join("whole"), home.path().join("cut"));
    fs::create_dir(&whole).unwrap();
    fs::create_dir(&cut).unwrap();
    let write = |dir: &Path, bytes: &BTreeMap<String, u64>, steps: std::ops::Range<u64>| {
        let mut journal = Journal::open(dir, bytes).unwrap();
        for step in steps {
            journal.append(step, &row(step), &Metrics::default(), 0.0).unwrap();
        }
        journal.sync().unwrap()
    };
    write(&whole, &BTreeMap::new(), 0..6);
    let checkpoint = write(&cut, &BTreeMap::new(), 0..2);
    write(&cut, &checkpoint, 2..4);
    write(&cut, &checkpoint, 2..6);
    for file in checkpoint.keys() {
        assert_eq!(
            fs::read(whole.join(file)).unwrap(),
            fs::read(cut.join(file)).unwrap(),
            "{file}"
        );
    }
}

#[test]
fn a_sealed_manifest_covers_every_file() {
    let home = tempfile::tempdir().unwrap();
    let dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    write_rollouts(&dir.rollouts(1), &[]).unwrap();
    dir.seal().unwrap();
    let files: Vec<String> = Manifest::read(dir.path()).unwrap().files.into_keys().collect();
    assert_eq!(files, [CONFIG, PROVENANCE, RESOLVED, "rollouts/step-000001.jsonl.zst"]);
}
