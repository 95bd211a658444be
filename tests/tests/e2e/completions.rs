//! Completion in shells: the script that `maverl completions` writes, in bash.

use std::fs;
use std::path::Path;
use std::process::Command;

use maverl_tests::lab::Lab;

use crate::lab;

const TEAM: &str = env!("CARGO_BIN_EXE_team");

/// Returns what bash completes at the end of a line that it has cut into pieces. `current` is what it takes for the word at the
/// cursor: the last piece, or nothing after a separator.
fn complete_in_bash(lab: &Lab, script: &str, pieces: &[&str], current: &str) -> Vec<String> {
    let (words, index) = (pieces.join("' '"), pieces.len());
    let line = format!(
        "{script}\nCOMP_WORDS=(team '{words}'); COMP_CWORD={index}; _complete_team team '{current}' ''; printf '%s\\n' \
         \"${{COMPREPLY[@]}}\""
    );
    let folder = Path::new(TEAM).parent().unwrap_or(Path::new(""));
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    let output =
        bash.args(["-c", &line]).env("PATH", path).current_dir(lab.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_shipped_configurations_keys_and_runs() {
    if Command::new("bash").arg("--version").output().is_err() {
        println!("skipped: there is no bash");
        return;
    }
    let lab = lab();
    fs::create_dir_all(lab.path("runs/second")).unwrap();
    lab.write("runs/second/manifest.json", "{}");
    let script = lab.run(&["completions", "bash"]).succeeded().stdout;
    let complete =
        |pieces: &[&str], current: &str| complete_in_bash(&lab, &script, pieces, current);
    assert_eq!(complete(&["compl"], "compl"), ["completions"]);
    assert_eq!(complete(&["train", "run.t"], "run.t"), ["run.toml"]);
    assert_eq!(complete(&["train", "--set", "task.group_s"], "task.group_s"), ["task.group_size="]);
    let key = "models.small.optim.warm";
    assert_eq!(complete(&["train", "--set", key], key), ["models.small.optim.warmup_steps="]);
    assert!(complete(&["info", "runs/s"], "runs/s").contains(&"runs/second".to_owned()));
    for hostile in ["runs/s\u{1b}[2Jx", "runs/s\nx", "runs/s\u{202e}x"] {
        fs::create_dir_all(lab.path(hostile)).unwrap();
        lab.write(&format!("{hostile}/manifest.json"), "{}");
    }
    let names = complete(&["info", "runs/s"], "runs/s");
    assert!(names.iter().all(|name| name.starts_with("runs/second")), "{names:?}");
    let shipped = complete(&["examples", "example", ":", "search_orch"], "search_orch");
    assert!(shipped.contains(&"search_orchestra".to_owned()), "{shipped:?}");
    let shipped = complete(&["train", "example", ":"], "");
    assert!(shipped.contains(&"search_orchestra".to_owned()), "{shipped:?}");
}
