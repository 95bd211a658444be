//! Tasks of the Harbor format, played by a worker in Python. Containers are those of bubblewrap; without it, and without Python 3.11,
//! the tests say what they skip.

use std::path::{Path, PathBuf};
use std::process::Command;

use maverl::trajectory::Outcome;
use maverl_tests::lab::Run;

use crate::lab;

/// Returns a path of the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Returns true, with a message, if there is no Python that reads TOML.
fn without_python() -> bool {
    let found = Command::new("python3").args(["-c", "import tomllib"]).output();
    let missing = !found.is_ok_and(|output| output.status.success());
    if missing {
        eprintln!("tasks of Harbor: skipped, there is no python3 of version 3.11 or newer");
    }
    missing
}

/// Returns true, with a message, if bubblewrap may not make containers.
fn without_containers() -> bool {
    let program = "import harbor_sandbox, sys; sys.exit(not harbor_sandbox.has_bwrap())";
    let mut command = Command::new("python3");
    command.args(["-c", program]).current_dir(path("examples/programs"));
    let missing = !command.status().unwrap().success();
    if missing {
        eprintln!("containers: skipped, `bwrap` is not there, or may not make namespaces");
    }
    missing
}

#[test]
fn tasks_of_harbor_are_read_played_judged_and_confined() {
    if without_python() {
        return;
    }
    let tests = path("tests/python/harbor_tests.py");
    let output = Command::new("python3").arg("-B").arg(tests).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{}{said}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
}

#[test]
fn episodes_of_a_run_have_the_rewards_of_the_tests_of_their_tasks() {
    if without_python() || without_containers() {
        return;
    }
    let lab = lab();
    for name in ["harbor_env.py", "harbor_task.py", "harbor_sandbox.py"] {
        std::fs::copy(path("examples/programs").join(name), lab.path(name)).unwrap();
    }
    let tasks = path("tests/fixtures/harbor").display().to_string();
    let rows = Command::new("python3")
        .args(["-B", "harbor_env.py", &tasks, "--tasks"])
        .current_dir(lab.path(""))
        .output()
        .unwrap();
    lab.write("tasks.jsonl", &String::from_utf8(rows.stdout).unwrap());
    let config = format!(
        "seed = 3\nsteps = 1\n[task]\ndata = \"tasks.jsonl\"\ntasks_per_step = 3\ngroup_size = 2\n[environment]\nname = \"reported\"\n\
         [orchestra]\nname = \"program/run\"\nmode = \"worker\"\nprocesses = 2\nmodels = [\"agent\"]\n\
         command = [\"python3\", \"-B\", \"harbor_env.py\", {tasks:?}, \"--in\", \"bwrap\", \"--turns\", \"2\"]\n\
         [sampling]\nmax_tokens = 16\n[models.tiny]\npath = \"builtin:generalist\"\n\
         [eval]\nbefore_and_after = false\nevery = 0\n"
    );
    lab.write("harbor.toml", &config);
    lab.run(&["train", "harbor.toml", "--out", "harbor"]).succeeded();
    let run = Run(lab.path("harbor"));
    let row = &run.steps()[0];
    assert_eq!(row["rollout/unscored"], 0.0, "{row}");
    // The model of the test calls no tool, so what is judged is the task as it is.
    for episode in run.episodes(1) {
        let expected = if episode.task.id == "fix-script" { 0.25 } else { 0.0 };
        let Outcome::Scored(score) = &episode.outcome else {
            panic!("{}: {:?}", episode.task.id, episode.outcome);
        };
        assert_eq!(score.reward, expected, "{}", episode.task.id);
        assert!(!episode.turns.is_empty());
    }
}
