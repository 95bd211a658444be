#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use maverl::config::Tracker;

use super::*;

/// Stand-in for the packages, which writes what it is asked for into a file. Rows are in a queue until `finish`, or until the queue
/// is written, and the process has more to write at its exit.
const PACKAGE: &str = r#"
import atexit
import json
import os
import threading
import time


def note(what, **values):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps([what, values]) + "\n")


def write_at_exit():
    time.sleep(0.3)
    note("exit")


atexit.register(write_at_exit)


class Settings:
    def __init__(self, **values):
        note("settings", **values)


class Logger:
    @property
    def url(self):
        if "OFFLINE" in os.environ:
            raise ValueError("an offline run has no address")
        return "http://127.0.0.1:1/run"

    def __init__(self):
        self._is_local, self._client_lock, self.rows = True, threading.Lock(), []

    def log(self, values, step):
        self.rows.append([step, values])

    def _flush_queues_inline(self):
        note("written", rows=self.rows)
        self.rows = []

    def finish(self):
        time.sleep(0.3)
        note("finish", rows=self.rows)


def init(project, name, group, config, resume, id=None, settings=None, auto_log_gpu=None, auto_log_cpu=None):
    note("init", name=name, resume=resume, id=id, private=[auto_log_gpu, auto_log_cpu])
    return Logger()
"#;

/// A folder with the stand-ins and a Python that finds them; `None` without a Python.
fn folder() -> Option<tempfile::TempDir> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no `python3`");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["wandb", "trackio"] {
        fs::write(dir.path().join(format!("{name}.py")), PACKAGE).unwrap();
    }
    let path = dir.path().display();
    let script = format!("#!/bin/sh\nPYTHONPATH={path} NOTES={path}/notes exec python3 \"$@\"\n");
    fs::write(dir.path().join("python"), script).unwrap();
    fs::set_permissions(dir.path().join("python"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(dir.path().join("track")).unwrap();
    Some(dir)
}

fn tracked(dir: &Path, tracker: Tracker, joins: Option<&str>) -> TrackedRun {
    TrackedRun {
        tracker,
        server: None,
        project: "maverl".to_owned(),
        name: "run".to_owned(),
        group: String::new(),
        joins: joins.map(str::to_owned),
        settings: BTreeMap::new(),
        episodes: 0,
        python: dir.join("python").display().to_string(),
        wait: Duration::ZERO,
        folder: dir.join("track"),
        start_ms: 0,
    }
}

fn row(step: u64) -> SpoolRow {
    let metrics = BTreeMap::from([("loss".to_owned(), 0.5)]);
    let time_ms = 1_700_000_000_000 + 1000 * step;
    SpoolRow { step, is_step: true, time_ms, metrics, episodes: Vec::new() }
}

fn open(dir: &Path, tracker: Tracker, joins: Option<&str>) -> (PythonClient, Cursor) {
    let run = tracked(dir, tracker, joins);
    let mut cursor = Cursor::open(dir, tracker.name()).unwrap();
    (PythonClient::open(&run, tracker.name(), &mut cursor).unwrap(), cursor)
}

/// Returns what the stand-in was asked for, of one kind.
fn noted(dir: &Path, what: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(dir.join("notes")).unwrap_or_default();
    let notes = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    notes.filter(|note| note[0] == what).map(|note| note[1].clone()).collect()
}

#[test]
fn runs_of_one_name_are_two_runs_of_trackio_and_a_run_that_is_joined_has_its_own() {
    let mut names = Vec::new();
    for joins in [None, None, Some("theirs")] {
        let Some(dir) = folder() else { return };
        for _ in 0..2 {
            // A second process goes on with the run of the first.
            let (client, cursor) = open(dir.path(), Tracker::Trackio, joins);
            assert_eq!(cursor.run_id == cursor.key, joins.is_none());
            drop(client);
        }
        let begun = noted(dir.path(), "init");
        assert_eq!(begun[0], begun[1]);
        assert_eq!(begun[0]["resume"], if joins.is_some() { "must" } else { "allow" });
        assert_eq!(begun[0]["private"], json!([false, false]));
        names.push(begun[0]["name"].as_str().unwrap().to_owned());
    }
    assert!(names[0].starts_with("run-") && names[0].len() == "run-".len() + 8, "{names:?}");
    assert!(names[0] != names[1] && names[2] == "theirs", "{names:?}");
}

#[test]
fn a_row_is_answered_when_it_is_written_and_a_package_that_writes_is_not_killed() {
    let Some(dir) = folder() else { return };
    let (mut client, _) = open(dir.path(), Tracker::Trackio, None);
    client.send(&[row(1)]).unwrap();
    assert_eq!(noted(dir.path(), "written")[0]["rows"], json!([[1, { "loss": 0.5 }]]));
    drop(client);
    assert_eq!((noted(dir.path(), "finish").len(), noted(dir.path(), "exit").len()), (1, 1));
    let (mut client, _) = open(dir.path(), Tracker::Trackio, None);
    client.finish(RunState::Complete, 0).unwrap();
    drop(client);
    assert_eq!((noted(dir.path(), "finish").len(), noted(dir.path(), "exit").len()), (2, 2));
}

#[test]
fn wandb_gets_the_times_of_rows_and_no_list_of_installed_packages() {
    let Some(dir) = folder() else { return };
    let (mut client, _) = open(dir.path(), Tracker::Wandb, None);
    client.send(&[row(1), row(2)]).unwrap();
    drop(client);
    assert_eq!(noted(dir.path(), "settings")[0]["x_save_requirements"], false);
    let rows = noted(dir.path(), "written");
    let times: Vec<_> = rows.iter().map(|note| note["rows"][0][1]["_timestamp"].clone()).collect();
    assert_eq!(times, [json!(1_700_000_001.0), json!(1_700_000_002.0)]);
}

#[test]
fn a_package_whose_run_has_no_address_sends_its_rows() {
    let Some(dir) = folder() else { return };
    let (client, cursor) = open(dir.path(), Tracker::Trackio, None);
    assert_eq!(cursor.sent.url.as_deref(), Some("http://127.0.0.1:1/run"));
    drop(client);
    let python = dir.path().join("python");
    let offline = fs::read_to_string(&python).unwrap().replace("NOTES=", "OFFLINE=1 NOTES=");
    fs::write(&python, offline).unwrap();
    let (mut client, _) = open(dir.path(), Tracker::Trackio, None);
    client.send(&[row(1)]).unwrap();
    assert_eq!(noted(dir.path(), "written").len(), 1);
}
