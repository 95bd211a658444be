//! Rewards and environments in Python files: killed processes, killed runs, changed files, and the files of the page.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use maverl_tests::lab::{Ended, Lab, Run, train_args};

use crate::kill::{kill_after, uniform};
use crate::lab;

/// A reward by path, whose process kills itself after some calls, `kills` times in a run. The calls of a new process suffice to try
/// each item of a failed request alone.
const REWARDS: &str = r#"
import os
import signal

KILLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kills")
calls = 0


def left():
    return int(open(KILLS).read()) if os.path.exists(KILLS) else 0


def letters(item):
    global calls
    calls += 1
    if calls > 3 and left() > 0:
        with open(KILLS + ".new", "w") as file:
            file.write(str(left() - 1))
        os.replace(KILLS + ".new", KILLS)
        os.kill(os.getpid(), signal.SIGKILL)
    return len(set(item["reply"])) / 10
"#;

/// An environment by path, whose process kills itself likewise.
const ENVIRONMENT: &str = r#"
import os
import random
import signal

KILLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kills")


def left():
    return int(open(KILLS).read()) if os.path.exists(KILLS) else 0


class Echo:
    calls = 0

    def reset(self, task, seed):
        return {"observation": f"begin with {seed % 10}", "seen": []}

    def step(self, state, action):
        self.calls += 1
        if self.calls > 2 and left() > 0:
            with open(KILLS + ".new", "w") as file:
                file.write(str(left() - 1))
            os.replace(KILLS + ".new", KILLS)
            os.kill(os.getpid(), signal.SIGKILL)
        state["seen"].append(action)
        return {"observation": f"{action[::-1]} {random.randrange(100)}", "reward": len(action) / 100}

    def score(self, state, answer):
        return {"reward": min(len(answer or ""), 8) / 8, "solved": len(answer or "") > 3, "acts": len(state["seen"])}
"#;

const REWARDED: [&str; 4] = [
    "rewards.letters.python.workers=1",
    "rewards.letters.python.batch=2",
    "rewards.letters.weight=0.5",
    "rollout.max_unscored=0.0",
];
const PLAYED: [&str; 5] = [
    "environment.name=\"python\"",
    "environment.retries=20",
    "environment.class=\"Echo\"",
    "environment.workers=1",
    "rollout.max_unscored=0.0",
];

/// Returns true if there is a Python; else prints that the test is skipped.
pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        println!("skipped: there is no `python3`");
    }
    found
}

/// Returns a laboratory with both files.
fn python_lab() -> Lab {
    let lab = lab();
    lab.write("rewards.py", REWARDS);
    lab.write("env.py", ENVIRONMENT);
    lab
}

/// Trains while processes of Python kill themselves twenty times, and compares with a run in which none does.
fn survives_twenty_kills(set: &[&str]) {
    let lab = python_lab();
    let set = [set, &["steps=8"]].concat();
    let baseline = lab.train("baseline", &set);
    lab.write("kills", "20");
    let killed = lab.train("killed", &set);
    assert_eq!(std::fs::read_to_string(lab.path("kills")).unwrap(), "0");
    killed.equals(&baseline);
    assert_eq!(killed.bytes("metrics.jsonl"), baseline.bytes("metrics.jsonl"));
}

#[test]
fn a_run_whose_rewards_in_python_are_killed_twenty_times_writes_the_same_files() {
    if has_python() {
        survives_twenty_kills(&REWARDED);
    }
}

#[test]
fn a_run_whose_environment_in_python_is_killed_twenty_times_writes_the_same_files() {
    if has_python() {
        survives_twenty_kills(&PLAYED);
    }
}

#[test]
fn a_killed_run_with_rewards_and_an_environment_in_python_resumes_to_equal_files() {
    if !has_python() {
        return;
    }
    let lab = python_lab();
    let set = [&REWARDED[..], &PLAYED[..4], &["checkpoint.every=1"]].concat();
    let begun = Instant::now();
    let baseline = lab.train("baseline", &set);
    let (whole, mut state) = (begun.elapsed().as_secs_f64(), 3);
    let run = Run(lab.path("killed"));
    for _ in 0..3 {
        let args = if run.0.exists() {
            vec!["train", "--resume", "killed"]
        } else {
            train_args("killed", &set)
        };
        let after = Duration::from_secs_f64(0.6 * whole * uniform(&mut state));
        if !kill_after(crate::kill::spawn(&lab, &args), after) {
            break;
        }
    }
    if run.0.exists() {
        lab.run(&["train", "--resume", "killed"]).succeeded();
    } else {
        lab.train("killed", &set);
    }
    run.equals(&baseline);
}

#[test]
fn a_run_is_not_resumed_with_a_changed_file_of_python() {
    if !has_python() {
        return;
    }
    let lab = python_lab();
    lab.write("lib.py", "");
    let set = [&REWARDED[..], &["rewards.letters.python.watch=[\"l*.py\"]"]].concat();
    let run = lab.train("run", &set);
    let data = &run.json("provenance.json")["data"];
    assert!(data["source rewards.py"].is_string() && data["source lib.py"].is_string(), "{data}");
    lab.write("lib.py", "# changed");
    lab.run(&["train", "--resume", "run"]).failed().says(&["data of `source lib.py` had hash"]);
    lab.write("lib.py", "");
    lab.run(&["train", "--resume", "run"]).succeeded();
}

#[test]
fn a_reward_in_python_that_fails_ends_the_run_with_its_file_and_line() {
    if !has_python() {
        return;
    }
    let lab = python_lab();
    lab.write("rewards.py", "def letters(item):\n    return item[\"words\"]\n");
    let ended: Ended = lab.fails("run", &REWARDED);
    ended.says(&["reward `letters`: rewards.py, line 2, in `letters`: KeyError: 'words'"]);
    lab.write("rewards.py", "def letters(item)\n    return 1\n");
    lab.run(&["check", "run.toml", "--set", REWARDED[0]]).failed().says(&["rewards.py, line 1: "]);
}

/// Returns the blocks of a language on the page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let begun = page.split(&fence).skip(1);
    begun.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_files_of_the_page_run_as_they_stand() {
    if !has_python() {
        return;
    }
    let lab = lab();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/python.md");
    let page = std::fs::read_to_string(page).unwrap();
    let programs = blocks(&page, "python");
    assert_eq!(programs.len(), 3);
    for program in &programs {
        let name = program.lines().next().unwrap().trim_start_matches("# ");
        lab.write(name, program);
    }
    let tables = blocks(&page, "toml").concat();
    let config = std::fs::read_to_string(lab.path("run.toml")).unwrap();
    // The page has another environment, and tasks with answers.
    let config = config.replace("[environment]\nname = \"letters\"\n", "");
    let tasks = std::fs::read_to_string(lab.path("tasks.jsonl")).unwrap();
    lab.write("tasks.jsonl", &tasks.replace("{\"id\"", "{\"answers\":[\"a\"],\"id\""));
    lab.write("run.toml", &format!("{config}\n{tables}"));
    let run = lab.train("run", &["steps=1"]);
    let metrics = &run.steps()[0];
    for name in ["rollout/score/none/units", "rollout/score/none/exact", "rollout/score/steps"] {
        assert!(metrics[name].is_number(), "{name} is missing in {metrics}");
    }
    assert!(run.0.join("logs/rewards.ends.0.log").exists());
}
