#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;

pub(crate) use super::testing::{episode, origin, write_step};
use super::*;
use crate::metrics::Metrics;

/// Writes the rollouts of a step without episodes.
fn play_nothing(dir: &mut RunDir, step: u64) {
    write_step(dir, step, &[]);
}

#[test]
fn a_new_run_directory_opens_and_says_what_it_started_from() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("runs/a");
    let mut origin = origin();
    origin.base = home.path().join("configs");
    origin.config.agents.entry("search/verifier".into()).or_default().frozen = Some(true);
    fs::create_dir(&origin.base).unwrap();
    let created = RunDir::create(&path, &origin).unwrap();
    let dir = RunDir::open(&path).unwrap();
    assert_eq!(dir, created);
    let found = dir.origin().unwrap();
    assert_eq!(found.given, "seed = 7\nbase = \"../../configs\"\n");
    assert_eq!(found.config.base.as_deref(), Some("../../configs"));
    assert_eq!(found.base, origin.base.canonicalize().unwrap());
    assert_eq!(found.provenance, origin.provenance);
    assert_eq!(Config { base: None, ..found.config }, origin.config);
    dir.compare(&origin).unwrap();
    assert_eq!(entries(&home.path().join("runs")).unwrap(), [path]);
}

#[test]
fn no_path_of_the_machine_is_in_what_a_run_writes_of_itself() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin { base: home.path().to_owned(), ..origin() };
    let dir = RunDir::create(&home.path().join("runs/a"), &origin).unwrap();
    for file in entries(dir.path()).unwrap().iter().filter(|path| path.is_file()) {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains(&*home.path().to_string_lossy()), "{}: {text}", file.display());
    }
}

#[cfg(unix)]
#[test]
fn a_run_directory_is_its_owners_alone_and_what_is_written_in_it_follows_it() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let home = tempfile::tempdir().unwrap();
    let mut dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    for part in ["", "rollouts", "samples", "evaluations", "checkpoints"] {
        assert_eq!(mode(&dir.path().join(part)), 0o700, "{part}");
    }
    play_nothing(&mut dir, 1);
    drop(Journal::open(dir.path(), &BTreeMap::new()).unwrap());
    let files = ["config.toml", "resolved.toml", "provenance.json", "manifest.json"];
    for file in files.into_iter().chain(["metrics.jsonl", "rollouts/step-000001.jsonl.zst"]) {
        assert_eq!(mode(&dir.path().join(file)), 0o600, "{file}");
    }
    let rollouts = dir.path().join("rollouts");
    fs::set_permissions(&rollouts, fs::Permissions::from_mode(0o755)).unwrap();
    play_nothing(&mut dir, 2);
    assert_eq!(mode(&dir.rollouts(2)), 0o644, "a directory that was opened stays open");
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
    // No process has an id this large.
    let [dead, other] = ["a", "b"].map(|run| home.path().join(format!(".tmp-{run}-4294967295")));
    let alive = home.path().join(".tmp-a-1");
    for dir in [&dead, &other, &alive] {
        fs::create_dir(dir).unwrap();
    }
    RunDir::create(&home.path().join("a"), &origin()).unwrap();
    let left = entries(home.path()).unwrap();
    let expected = [alive, other, home.path().join("a")];
    if Path::new("/proc/self").exists() {
        assert_eq!(left, expected)
    } else {
        assert_eq!(left.len(), expected.len() + 1)
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
fn a_changed_configuration_is_refused_with_every_key_that_results_depend_on() {
    let home = tempfile::tempdir().unwrap();
    let mut dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    let mut now = origin();
    let model: crate::config::ModelConfig = toml::from_str("path = \"builtin:tiny\"").unwrap();
    now.config.steps = 7;
    now.config.base = Some("elsewhere".into());
    now.config.algorithm.max_flat_steps = 99;
    now.config.rollout.max_unscored = 0.9;
    now.config.rollout.max_episodes = NonZeroUsize::MIN;
    now.config.eval.tasks = NonZeroUsize::MIN;
    now.config.eval.temperature = Some(0.5);
    now.config.checkpoint.every = 3;
    now.config.runtime.threads = 3;
    now.config.runtime.prefix_cache = false;
    now.provenance.threads = 3;
    // Another evaluation uses other tasks.
    now.provenance.data.insert("held out test".into(), "d".repeat(64));
    dir.compare(&now).unwrap();
    dir.return_to(0, true).unwrap();
    dir.change_origin(&now).unwrap();
    let reopened = RunDir::open(dir.path()).unwrap().origin().unwrap();
    assert_eq!((reopened.config.steps, reopened.config.checkpoint.every), (7, 3));
    assert_eq!(reopened.provenance.data.len(), 2);
    now.config.runtime.micro_batch_tokens = NonZeroUsize::MIN;
    now.config.seed = 9;
    now.config.models.insert("small".into(), model);
    now.config.agents.entry("search/verifier".into()).or_default().frozen = Some(true);
    now.provenance.data.insert("train".into(), "c".repeat(64));
    now.provenance.data.insert("held out test".into(), "e".repeat(64));
    let error = dir.compare(&now).unwrap_err().to_string();
    for part in [
        "`seed` was 0, is 9",
        "`runtime.micro_batch_tokens` was 4096, is 1",
        "`agents.\"search/verifier\"`",
        "`models.small` was not set, is a table of",
        "data of `train`",
        "data of `held out test`",
        "keys of the level `run`: `maverl explain KEY`",
    ] {
        assert!(error.contains(part), "{part} is missing in {error}");
    }
    assert!(!error.contains("max_flat_steps` was"), "{error}");
}

#[test]
fn an_edited_configuration_is_noticed_and_what_would_do_is_said() {
    for file in [CONFIG, RESOLVED] {
        let home = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
        let path = dir.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("group_size = 8", "group_size = 4") + "\n").unwrap();
        let error = RunDir::open(dir.path()).unwrap_err().to_string();
        for part in [file, "is damaged", "put the file back", "--set algorithm.max_flat_steps=20"] {
            assert!(error.contains(part), "{part} is missing in {error}");
        }
        fs::write(&path, text).unwrap();
        RunDir::open(dir.path()).unwrap();
    }
}

#[test]
fn a_configuration_that_was_being_replaced_when_the_process_ended_opens() {
    let home = tempfile::tempdir().unwrap();
    let mut dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    let old = fs::read(dir.resolved()).unwrap();
    let mut now = origin();
    now.config.steps = 7;
    dir.change_origin(&now).unwrap();
    let new = fs::read(dir.resolved()).unwrap();
    assert_ne!(old, new);
    let mut manifest = Manifest::read(dir.path()).unwrap();
    assert_eq!(manifest.replaced, BTreeMap::new());
    manifest.replaced.insert(RESOLVED.to_owned(), FileHash::of(&old));
    manifest.write(dir.path()).unwrap();
    for content in [&old, &new] {
        fs::write(dir.resolved(), content).unwrap();
        RunDir::open(dir.path()).unwrap();
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
fn going_on_removes_what_belongs_to_later_steps_or_is_not_vouched_for() {
    let home = tempfile::tempdir().unwrap();
    let mut dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    for step in [1, 2, 10, 1_000_000] {
        play_nothing(&mut dir, step);
    }
    for name in ["before", "after"] {
        dir.write_evaluation(name, &7).unwrap();
    }
    dir.write_evaluation_episodes("step-000010", &[]).unwrap();
    for file in ["summary.json", "evaluations/before-greedy.jsonl.zst", "evaluations/notes.json"] {
        fs::write(dir.path().join(file), "{}").unwrap();
    }
    fs::write(dir.path().join("rollouts/.tmp-step-000003.jsonl.zst"), "half").unwrap();
    dir.return_to(2, true).unwrap();
    let left = entries(&dir.path().join("rollouts")).unwrap();
    assert_eq!(left, [dir.rollouts(1), dir.rollouts(2)]);
    let left: Vec<String> =
        entries(&dir.path().join("evaluations")).unwrap().iter().map(|path| name(path)).collect();
    assert_eq!(left, ["before.json", "notes.json"], "what people put there stays");
    assert!(!dir.summary().exists());
    assert_eq!(RunDir::open(dir.path()).unwrap().differences(2).unwrap(), []);
}

#[test]
fn removed_episodes_are_named_and_may_be_allowed_but_no_other_file() {
    let home = tempfile::tempdir().unwrap();
    let mut dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    play_nothing(&mut dir, 1);
    play_nothing(&mut dir, 2);
    dir.write_evaluation("before", &7).unwrap();
    fs::remove_file(dir.rollouts(1)).unwrap();
    let error = dir.verify(2, Missing::Nothing).unwrap_err().to_string();
    assert!(error.contains("step-000001.jsonl.zst") && error.contains("missing"), "{error}");
    assert!(error.ends_with("`--allow-missing` continues without it"), "{error}");
    assert_eq!(dir.clone().verify(2, Missing::Episodes).unwrap(), [dir.rollouts(1)]);
    fs::write(dir.rollouts(2), "other").unwrap();
    fs::remove_file(dir.evaluation("before")).unwrap();
    let error = dir.verify(2, Missing::Episodes).unwrap_err().to_string();
    assert!(error.contains("step-000002.jsonl.zst") && error.contains("before.json"), "{error}");
    assert!(!error.contains("step-000001"), "{error}");
}

#[test]
fn a_resumed_journal_equals_one_never_interrupted() {
    let home = tempfile::tempdir().unwrap();
    let row =
        |step: u64| -> Metrics { [("rollout/solved", step as f64 / 10.0)].into_iter().collect() };
    let (whole, cut) = (home.path().join("whole"), home.path().join("cut"));
    fs::create_dir(&whole).unwrap();
    fs::create_dir(&cut).unwrap();
    let write = |dir: &Path, known: &BTreeMap<String, FileHash>, steps: std::ops::Range<u64>| {
        let mut journal = Journal::open(dir, known).unwrap();
        journal.cut_to_checkpoint().unwrap();
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
fn a_sealed_manifest_covers_every_file_of_the_run_and_no_other() {
    let home = tempfile::tempdir().unwrap();
    let mut dir = RunDir::create(&home.path().join("a"), &origin()).unwrap();
    play_nothing(&mut dir, 1);
    fs::write(dir.path().join("notes.txt"), "promising").unwrap();
    let journal = Journal::open(dir.path(), &BTreeMap::new()).unwrap();
    dir.seal(journal.sync().unwrap(), Missing::Nothing).unwrap();
    let files: Vec<String> = Manifest::read(dir.path()).unwrap().files.into_keys().collect();
    let expected = [
        CONFIG,
        "episodes.jsonl",
        "events.out.tfevents.0.maverl",
        "metrics.jsonl",
        PROVENANCE,
        RESOLVED,
        "rollouts/step-000001.jsonl.zst",
        "spans.jsonl",
        "timing.jsonl",
        "warnings.jsonl",
    ];
    assert_eq!(files, expected);
    fs::write(dir.rollouts(1), "other").unwrap();
    let error = dir.seal(journal.sync().unwrap(), Missing::Nothing).unwrap_err().to_string();
    assert!(error.contains("step-000001.jsonl.zst"), "{error}");
}
