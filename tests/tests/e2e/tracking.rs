//! Runs that trackers follow: what they get, processes that are killed, servers that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use maverl_tests::lab::{Ended, Lab, Run, train_args, wait_until};
use maverl_tests::port::PortLease;
use maverl_tests::trackers::{Manner, Received, TrackerServer};
use serde_json::{Value, json};

use crate::kill::uniform;
use crate::lab;

/// Settings of a short run.
const QUICK: [&str; 2] = ["eval.before_and_after=false", "checkpoint.every=1"];

/// Variables that trackers read, removed from the environment.
const SILENT: [&str; 9] = [
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_RUN_ID",
    "WANDB_PROJECT",
    "TRACKIO_SERVER_URL",
    "TRACKIO_WRITE_TOKEN",
    "http_proxy",
];

pub(crate) fn command(lab: &Lab, args: &[&str]) -> Command {
    let mut command = lab.command(args);
    for name in SILENT {
        command.env_remove(name);
    }
    command
}

fn run(lab: &Lab, args: &[&str]) -> Ended {
    Ended::of(&command(lab, args).output().unwrap())
}

/// Returns the name that MLflow has for a metric.
fn plain(name: &str) -> String {
    name.replace(['#', '@'], ".")
}

/// Returns the values of each metric and step in the files of a run; the last row of a step comes last.
fn written(run: &Run) -> BTreeMap<(String, u64), Vec<String>> {
    let mut values: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for row in run.rows() {
        let step = row["step"].as_u64().unwrap();
        for (name, value) in row.as_object().unwrap().iter().filter(|(name, _)| *name != "step") {
            let value = value.as_f64().unwrap().to_string();
            values.entry((plain(name), step)).or_default().push(value);
        }
    }
    values
}

/// Returns the names of `timing.jsonl`, whose values differ when a step is taken again.
fn timed(run: &Run) -> BTreeSet<String> {
    let text = String::from_utf8(run.bytes("timing.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let names = rows.flat_map(|row| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>());
    names.filter(|name| name != "step").collect()
}

/// Panics unless the trackers have one run, and each value of the run once.
fn has_all(got: &Received, run: &Run) {
    let timed = timed(run);
    let names: Vec<&String> = got.runs.keys().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let mut points: BTreeMap<(String, u64), Vec<String>> = BTreeMap::new();
    for (of, name, step, value, time) in &got.points {
        assert!(of == names[0] && *time > 1_600_000_000_000, "{name} at {time}");
        if !timed.contains(name) {
            let value = value.parse::<f64>().unwrap().to_string();
            points.entry((name.clone(), *step)).or_default().push(value);
        }
    }
    assert_eq!(points, written(run));
    // The other tracker keeps rows.
    let mut logged: Vec<((u64, bool), BTreeMap<String, Value>)> = Vec::new();
    for log in got.logs.values() {
        let is_evaluation = log["log_id"].as_str().unwrap().ends_with(":evaluation");
        let index = (log["step"].as_u64().unwrap(), is_evaluation);
        let mut metrics: BTreeMap<String, Value> =
            serde_json::from_value(log["metrics"].clone()).unwrap();
        metrics.retain(|name, _| !timed.contains(name) && name != "episodes");
        metrics.insert("step".to_owned(), log["step"].clone());
        logged.push((index, metrics));
    }
    logged.sort_by_key(|(index, _)| *index);
    let logged: Vec<Value> = logged.into_iter().map(|(_, metrics)| json!(metrics)).collect();
    let numbers = |rows: &[Value]| -> Vec<BTreeMap<String, f64>> {
        rows.iter().map(|row| serde_json::from_value(row.clone()).unwrap()).collect()
    };
    assert_eq!(numbers(&logged), numbers(&run.rows()));
}

/// Returns the arguments of a tracked run.
fn tracked<'a>(out: &'a str, to: &'a [String; 2], steps: &'a str) -> Vec<&'a str> {
    let mut args = train_args(out, &QUICK);
    args.extend(["--steps", steps, "--track", &to[0], "--track", &to[1]]);
    args
}

pub(crate) fn both(server: &TrackerServer) -> [String; 2] {
    ["mlflow", "trackio"].map(|name| format!("{name}={}", server.address()))
}

#[test]
fn every_value_of_a_run_is_at_the_trackers_with_its_step_and_texts_of_episodes() {
    let (lab, server) = (lab(), TrackerServer::start(Manner::Fine));
    let to = both(&server);
    let args =
        ["train", "run.toml", "--out", "run", "--steps", "2", "--set", "track.group=\"many\""];
    let ended =
        run(&lab, &[&args[..], &["--track", &to[0], "--track", &to[1]]].concat()).succeeded();
    assert!(!ended.stderr.contains("has not all rows"));
    let (got, trained) = (server.received(), Run(lab.path("run")));
    has_all(&got, &trained);
    assert_eq!(got.runs.values().collect::<Vec<_>>(), ["FINISHED"]);
    assert_eq!(got.params["task.group_size"], "4");
    assert!(got.points.iter().any(|(_, name, ..)| name == "time/step_s"));
    let text = got.artifacts.iter().find(|(path, _)| path.ends_with("/episodes/step-000002.md"));
    let text = text.unwrap().1;
    assert_eq!(text.matches("score: ").count(), 4, "{text}");
    assert!(text.contains("question"), "{text}");
    // Where its pages are is said at the end of a run, and later.
    let (address, id) = (server.address(), got.runs.keys().next().unwrap());
    let page = format!("{address}/#/experiments/1/runs/{id}");
    let trackio = format!("trackio has the run: {address}/?project=");
    ended.says(&[&format!("mlflow has the run: {page}"), &trackio]);
    run(&lab, &["info", "run"]).succeeded().prints(&[&format!("mlflow has every row ({page})")]);
    // Nothing is left to send. What a resumed run adds is in the same run, with what was there.
    run(&lab, &["track", "run", "--to", &to[0]]).succeeded();
    run(&lab, &["train", "--resume", "run", "--steps", "3"]).succeeded();
    let more = server.received();
    let values: BTreeSet<(String, u64, String)> = more
        .points
        .iter()
        .map(|(_, name, step, value, _)| {
            (name.clone(), *step, value.parse::<f64>().unwrap().to_string())
        })
        .collect();
    for ((name, step), all) in written(&trained) {
        for value in all {
            assert!(values.contains(&(name.clone(), step, value)), "{name} of step {step}");
        }
    }
    assert_eq!((more.runs.len(), more.logs.len()), (1, 6), "{:?}", more.logs.keys());
    // A run may be reported from some step on.
    let (late, later) = (
        lab.train("late", &[&QUICK[..], &["steps=1"]].concat()),
        TrackerServer::start(Manner::Fine),
    );
    let to = both(&later);
    let resume =
        ["train", "--resume", "late", "--steps", "2", "--track", &to[0], "--track", &to[1]];
    run(&lab, &resume).succeeded();
    has_all(&later.received(), &late);
    // The directory alone says what a tracker lacks.
    let later = TrackerServer::start(Manner::Fine);
    fs::remove_dir_all(lab.path("run/track")).unwrap();
    for to in both(&later) {
        run(&lab, &["track", "run", "--to", &to]).succeeded();
    }
    has_all(&later.received(), &trained);
    run(&lab, &["info", "run"]).succeeded();
}

/// Returns the ids of the followers of a run that are there.
pub(crate) fn followers(lab: &Lab, out: &str) -> Vec<String> {
    let ids = ["mlflow", "trackio"]
        .iter()
        .filter_map(|name| fs::read_to_string(lab.path(&format!("{out}/track/{name}.lock"))).ok());
    ids.filter(|id| !id.is_empty() && is_follower(id)).collect()
}

/// Returns true unless another process has got the id of a follower that has ended.
fn is_follower(id: &str) -> bool {
    let named = fs::read_to_string(format!("/proc/{id}/cmdline"));
    !cfg!(target_os = "linux") || named.is_ok_and(|words| words.split('\0').nth(1) == Some("track"))
}

/// Kills a process; returns false if it has ended meanwhile.
fn kill(id: &str) -> bool {
    let killed = Command::new("kill").args(["-9", id]).stderr(Stdio::null()).status();
    killed.is_ok_and(|status| status.success())
}

fn start(lab: &Lab, args: &[&str]) -> Child {
    command(lab, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills the trainer of a run, its followers, and both, in turn, each at least so often, and sends what is left. Panics unless the
/// trackers have one run with each point once.
fn survives_kills(least: usize) {
    let (lab, server) = (lab(), TrackerServer::start(Manner::Fine));
    let (to, trained) = (both(&server), Run(lab.path("run")));
    let mut trainer = start(&lab, &tracked("run", &to, "20"));
    let (mut trainers, mut chased, mut random) = (0, 0, 1);
    for round in 0.. {
        let before = server.received().batches;
        wait_until("rows are sent, or the run is done", || {
            server.received().batches > before || trainer.try_wait().unwrap().is_some()
        });
        std::thread::sleep(Duration::from_secs_f64(0.05 * uniform(&mut random)));
        if round % 3 != 0 {
            let ids = followers(&lab, "run");
            chased += usize::from(ids.iter().filter(|id| kill(id)).count() > 0);
        }
        if round % 3 != 1 && trainer.try_wait().unwrap().is_none() {
            trainer.kill().unwrap();
            trainers += 1;
        }
        trainer.wait().unwrap();
        let steps = (trained.steps().len() + 20).to_string();
        let mut resume = vec!["train", "--resume", "run", "--steps", &steps];
        if trainers >= least && chased >= least {
            run(&lab, &resume).succeeded();
            break;
        }
        resume.extend(["--track", &to[0], "--track", &to[1]]);
        trainer = start(&lab, &resume);
    }
    for to in &to {
        run(&lab, &["track", "run", "--to", to]).succeeded();
    }
    has_all(&server.received(), &trained);
    run(&lab, &["info", "run"]).succeeded().prints(&["mlflow has every row"]);
    let (steps, points) = (trained.steps().len(), server.received().points.len());
    println!(
        "{trainers} trainers and {chased} times followers killed: {steps} steps, {points} points once"
    );
}

#[test]
fn killed_trainers_and_followers_leave_one_run_with_each_point_once() {
    survives_kills(3);
}

#[test]
#[ignore = "second tier: takes minutes"]
fn twenty_killed_trainers_and_twenty_killed_followers_leave_one_run_with_each_point_once() {
    survives_kills(20);
}

#[test]
fn a_server_that_fails_changes_no_byte_of_a_run_and_gets_the_rows_later() {
    let lab = lab();
    let plain = lab.train("plain", &[&QUICK[..], &["steps=2"]].concat());
    let manners = [Manner::Hangs, Manner::Busy, Manner::Fails, Manner::Closes, Manner::Dies];
    for (n, manner) in manners.into_iter().enumerate() {
        let server = TrackerServer::start(manner);
        let (out, to) = (format!("run-{n}"), both(&server));
        let wait = ["--set", "track.wait_s=0.1"];
        let args = [&tracked(&out, &to, "2")[..], &wait].concat();
        let ended = run(&lab, &args).succeeded();
        let remedy = format!("maverl track {out} --to {}", to[0]);
        assert!(
            ended.unwrapped().replace('`', "").contains(&format!("{out} --to")),
            "{remedy}: {ended}"
        );
        let trained = Run(lab.path(&out));
        trained.equals(&plain);
        let behind = format!("mlflow is {} rows behind", trained.rows().len());
        run(&lab, &["info", &out]).succeeded().prints(&[&behind]);
        let fine = TrackerServer::start(Manner::Fine);
        for id in followers(&lab, &out) {
            kill(&id);
        }
        for to in both(&fine) {
            run(&lab, &["track", &out, "--to", &to]).succeeded();
        }
        let mut got = fine.received();
        if manner == Manner::Dies {
            // It may have answered for a row before it ended.
            got.logs.extend(server.received().logs);
        }
        has_all(&got, &trained);
    }
}

#[test]
fn what_is_no_tracker_is_refused_before_the_first_step() {
    let lab = lab();
    let train =
        |more: &[&str]| run(&lab, &[&["train", "run.toml", "--out", "none"][..], more].concat());
    let wrong = train(&["--track", "mlfow"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
    wrong.says(&["did you mean `mlflow`?"]);
    let set = |to: &str| format!("track.to=[{to:?}]");
    train(&["--set", &set("foo")]).failed().says(&["`mlflow`, `trackio`, `wandb` or `swanlab`"]);
    train(&["--set", &set("mlflow=http://me:secret@127.0.0.1:1")])
        .failed()
        .says(&["a user or a password"]);
    train(&["--track", "mlflow"]).failed().says(&["no server of MLflow", "MLFLOW_TRACKING_URI"]);
    let python = ["--track", "wandb", "--track-python", "false"];
    train(&python).failed().says(&["false has no module `wandb`", "--track-python PATH"]);
    let check = ["check", "run.toml", "--set", &set("swanlab"), "--set", "track.python=\"false\""];
    run(&lab, &check).failed().says(&["no module `swanlab`"]);
    assert!(!lab.path("none").exists());
    run(&lab, &["track", "nowhere", "--to", "mlflow"]).failed();
    lab.train("run", &[&QUICK[..], &["steps=1"]].concat());
    run(&lab, &["track", "run", "--to", "mlflow"]).failed().says(&["MLFLOW_TRACKING_URI"]);
    let environment = command(&lab, &["track", "run", "--to", "mlflow"])
        .env("MLFLOW_TRACKING_URI", "databricks")
        .output();
    Ended::of(&environment.unwrap()).failed().says(&["`mlflow=http://127.0.0.1:5000`"]);
}

/// Returns a Python that has a package, or says why the test is skipped.
pub(crate) fn python_with(package: &str) -> Option<String> {
    let made = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python/.venv/bin/python");
    let made = made.is_file().then(|| made.display().to_string());
    let python = std::env::var("MAVERL_TEST_PYTHON").ok().into_iter().chain(made).find(|python| {
        let found = format!(
            "import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
        );
        Command::new(python).args(["-c", &found]).status().is_ok_and(|status| status.success())
    });
    if python.is_none() {
        println!("skipped: `MAVERL_TEST_PYTHON` names no Python with the package `{package}`");
    }
    python
}

/// Returns the path of a script of the tests.
fn script(name: &str) -> String {
    format!("{}/python/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A server of a package for Python; it is ended when dropped.
struct PackageServer {
    child: Child,
    url: String,
    _port: PortLease,
}

impl PackageServer {
    /// Starts a server, and waits until it answers.
    fn start(lab: &Lab, python: &str, name: &str) -> Self {
        let port = PortLease::take();
        let mut server = Command::new(python);
        server
            .arg(script("tracker_server.py"))
            .arg(name)
            .arg(lab.path(""))
            .arg(port.port.to_string());
        server.env("HOME", lab.path("")).env("TRACKIO_WRITE_TOKEN", "token");
        server.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = server.spawn().unwrap();
        wait_until("the server of the tracker", || {
            assert!(child.try_wait().unwrap().is_none(), "the server of {name} has ended");
            TcpStream::connect(("127.0.0.1", port.port)).is_ok()
        });
        Self { child, url: format!("http://127.0.0.1:{}", port.port), _port: port }
    }
}

impl Drop for PackageServer {
    fn drop(&mut self) {
        // With its own children; it may have ended.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

/// Reads what a tracker has by its own reader, and compares it with the run.
fn read_back(lab: &Lab, python: &str, args: &[&str]) {
    let mut reader = Command::new(python);
    reader.arg(script("read_tracker.py")).args(args).current_dir(lab.path(""));
    reader.env("TRACKIO_DIR", lab.path("")).env("HOME", lab.path("")).env("NO_PROXY", "127.0.0.1");
    let read = Ended::of(&reader.output().unwrap());
    assert!(read.code == Some(0), "{args:?}: {read}");
    println!("{args:?}: {}", read.stdout.trim());
}

/// Trains three steps, and resumes to six.
fn train_in_two_parts(lab: &Lab, track: &str, python: &str) {
    let variables = [("WANDB_MODE", "offline"), ("TRACKIO_WRITE_TOKEN", "token")];
    let first = train_args("run", &QUICK);
    let more = ["--steps", "3", "--track", track, "--track-python", python];
    let first = [&first[..], &more, &["--set", "track.wait_s=300.0"]].concat();
    for args in [&first[..], &["train", "--resume", "run", "--steps", "6"]] {
        let mut train = command(lab, args);
        train.envs(variables).env("HOME", lab.path("")).env("NO_PROXY", "127.0.0.1");
        let ended = Ended::of(&train.output().unwrap()).succeeded();
        assert!(!ended.stderr.contains("has not all rows"), "{track}: {ended}");
    }
}

#[test]
fn servers_of_packages_have_every_value_of_a_resumed_run_once_by_their_own_clients() {
    for name in ["mlflow", "trackio"] {
        let Some(python) = python_with(name) else { continue };
        let lab = lab();
        let server = PackageServer::start(&lab, &python, name);
        train_in_two_parts(&lab, &format!("{name}={}", server.url), &python);
        let url = (name == "mlflow").then_some(server.url.as_str());
        read_back(&lab, &python, &[&[name, "run"][..], url.as_slice()].concat());
    }
}

#[test]
fn both_directories_of_a_resumed_run_are_one_run_when_wandb_sends_them() {
    let Some(python) = python_with("wandb") else { return };
    let lab = lab();
    train_in_two_parts(&lab, "wandb", &python);
    let runs = fs::read_dir(lab.path("run/track/wandb")).unwrap().flatten().map(|it| it.path());
    let runs: Vec<_> =
        runs.filter(|path| path.to_string_lossy().contains("offline-run-")).collect();
    assert_eq!(runs.len(), 2, "{runs:?}");
    let server = PackageServer::start(&lab, &python, "wandb");
    let mut sync = Command::new(&python);
    sync.args(["-m", "wandb", "sync"]).args(runs).current_dir(lab.path(""));
    sync.env("WANDB_BASE_URL", &server.url);
    sync.env("WANDB_API_KEY", "0".repeat(40))
        .env("HOME", lab.path(""))
        .env("NO_PROXY", "127.0.0.1");
    Ended::of(&sync.output().unwrap()).succeeded();
    read_back(&lab, &python, &["wandb", "run", "rows.jsonl"]);
}

#[test]
fn packages_for_python_have_every_value_by_their_own_readers() {
    for package in ["wandb", "trackio", "swanlab"] {
        let Some(python) = python_with(package) else { continue };
        let lab = lab();
        let offline = [("WANDB_MODE", "offline"), ("SWANLAB_MODE", "offline")];
        let trackio = lab.path("trackio").display().to_string();
        let mut args = train_args("run", &QUICK);
        args.extend(["--steps", "3", "--track", package, "--track-python", &python]);
        let args = [&args[..], &["--set", "track.wait_s=300.0"]].concat();
        let mut train = command(&lab, &args);
        train.envs(offline).env("TRACKIO_DIR", &trackio).env("HOME", lab.path(""));
        let ended = Ended::of(&train.output().unwrap()).succeeded();
        let log = fs::read_to_string(lab.path(&format!("run/track/{package}.log")));
        assert!(!ended.stderr.contains("has not all rows"), "{package}: {ended}\n{}", log.unwrap());
        let script =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python/read_tracker.py");
        let mut reader = Command::new(&python);
        reader.arg(script).arg(package).arg(lab.path("run")).env("TRACKIO_DIR", &trackio);
        let read = Ended::of(&reader.env("HOME", lab.path("")).output().unwrap());
        assert!(read.code == Some(0), "{package}: {read}");
        println!("{package}: {}", read.stdout.trim());
    }
}
