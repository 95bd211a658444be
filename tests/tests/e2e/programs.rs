//! Programs that play as an orchestra, in whole runs. They need `python3`, and skip with a message without it.

use std::path::{Path, PathBuf};
use std::process::Command;

use maverl_tests::lab::Run;
use serde_json::{Map, Value};

use crate::lab;

/// Returns true, with a message, if there is no Python.
pub(crate) fn without_python(test: &str) -> bool {
    let found = Command::new("python3").arg("--version").output();
    let missing = !found.is_ok_and(|output| output.status.success());
    if missing {
        eprintln!("{test}: skipped, there is no python3");
    }
    missing
}

fn example(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    path.display().to_string()
}

/// Returns a row with the seats of the orchestra named as those of the program.
fn renamed(row: &Value) -> Map<String, Value> {
    let seats = [
        ("search/answerer", "program/agent#0"),
        ("search/searcher", "program/agent#1"),
        ("search/verifier", "program/agent#2"),
    ];
    let name =
        |name: &str| seats.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    let row = row.as_object().unwrap();
    row.iter().map(|(key, value)| (name(key), value.clone())).collect()
}

#[test]
fn the_search_team_as_a_program_has_the_same_tokens_rewards_and_updates() {
    if without_python("the search team as a program") {
        return;
    }
    let lab = lab();
    let train = |config: &str, out: &str| {
        let settings = [
            "task.tasks_per_step=4",
            "task.group_size=4",
            "eval.before_and_after=false",
            "eval.every=0",
            "steps=3",
        ];
        let config = example(config);
        let mut args = vec!["train", &config, "--out", out];
        args.extend(settings.iter().flat_map(|set| ["--set", set]));
        lab.run(&args).succeeded();
        Run(lab.path(out))
    };
    let orchestra = train("search_orchestra.toml", "orchestra");
    let program = train("program.toml", "program");
    let mut turns = 0;
    for step in 1..=3 {
        let [ours, theirs] = [&orchestra, &program].map(|run| run.episodes(step));
        assert_eq!((ours.len(), theirs.len()), (16, 16));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let tokens = |episode: &maverl::trajectory::Episode| {
                let turns = episode.turns.iter();
                turns.map(|turn| (turn.path.clone(), turn.tokens.clone())).collect::<Vec<_>>()
            };
            assert_eq!(tokens(ours), tokens(theirs), "{} {}", ours.task.id, ours.index);
            let rewards = |episode: &maverl::trajectory::Episode| {
                let turns = 0..episode.turns.len();
                turns.map(|turn| episode.turn_reward(turn)).collect::<Vec<_>>()
            };
            assert_eq!(rewards(ours), rewards(theirs), "{} {}", ours.task.id, ours.index);
            assert_eq!(ours.answer, theirs.answer);
            assert_eq!(ours.acts, theirs.acts);
            turns += ours.turns.len();
        }
    }
    let (ours, theirs) = (orchestra.steps(), program.steps());
    assert_eq!((ours.len(), theirs.len()), (3, 3));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let mut theirs = renamed(theirs);
        theirs.retain(|name, _| !name.starts_with("gateway/"));
        assert_eq!(renamed(ours), theirs);
    }
    eprintln!("{turns} turns are equal");
}

#[test]
fn a_resumed_run_of_a_program_has_the_same_end() {
    if without_python("a resumed run of a program") {
        return;
    }
    let lab = lab();
    let config = example("program.toml");
    let small = [
        "--set",
        "task.tasks_per_step=2",
        "--set",
        "task.group_size=4",
        "--set",
        "eval.before_and_after=false",
        "--set",
        "eval.every=0",
        "--set",
        "checkpoint.every=1",
    ];
    let train = |out: &str, steps: &str| {
        let args = [&["train", &config, "--out", out, "--steps", steps][..], &small].concat();
        lab.run(&args).succeeded();
    };
    train("whole", "3");
    train("part", "2");
    lab.run(&["train", "--resume", "part", "--steps", "3"]).succeeded();
    let [whole, part] = ["whole", "part"].map(|name| Run(lab.path(name)));
    assert_eq!(whole.steps(), part.steps());
    // The hash of the program is in the provenance, and another program is no continuation.
    let provenance = whole.json("provenance.json");
    assert!(provenance["data"]["source programs/search.py"].is_string(), "{provenance}");
}

#[test]
fn check_tells_what_a_program_lacks() {
    let lab = lab();
    let config = "[orchestra]\nname = \"program/run\"\ncommand = [\"./no-such-program\"]\nmodels = [\"a\", \"a\"]\n\
                  sources = [\"none.py\"]\n[environment]\nname = \"math\"\n[task]\ndata = \"builtin:arithmetic\"\n";
    lab.write("program.toml", config);
    let told = lab.run(&["check", "program.toml"]).failed();
    for part in [
        "program.toml:3",
        "`command` runs `./no-such-program`; there is no file",
        "program.toml:4",
        "`models` has \"a\" twice",
        "`sources` names `none.py`",
    ] {
        assert!(told.stderr.contains(part), "{part}: {told}");
    }
}
