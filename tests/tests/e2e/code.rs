//! Programs in the sandbox: verdicts of rows, and what `check` says of a machine without a layer of protection.

use std::path::Path;

use maverl_tests::lab::{Ended, Lab};
use serde_json::{Value, json};

use crate::lab;
use crate::programs::without_python;

/// A task whose programs print a line.
const CONFIG: &str = "[task]\ndata = \"builtin:code\"\n[orchestra]\nname = \"solo/answer\"\n[environment]\nname = \"code\"\n\
                      [models.tiny]\npath = \"builtin:tiny\"\n";

/// True, with a message, if this machine runs no programs.
fn without_sandbox(lab: &Lab, test: &str) -> bool {
    lab.write("code.toml", CONFIG);
    let missing = lab.run(&["check", "code.toml"]).code != Some(0);
    if missing {
        eprintln!("{test}: skipped, programs cannot be run here");
    }
    missing
}

#[test]
fn equal_rows_have_one_verdict_whatever_their_programs_draw() {
    let lab = lab();
    if without_sandbox(&lab, "equal_rows_have_one_verdict_whatever_their_programs_draw") {
        return;
    }
    for (name, program) in [
        ("random", "import random\nprint(random.randint(0, 1))"),
        ("shuffled", "import random\nl = [0, 1]\nrandom.shuffle(l)\nprint(l[0])"),
        ("hash", "print(hash('a') % 2)"),
    ] {
        let task = json!({ "question": "Print 1.", "inputs": ["1\n"], "outputs": ["1\n"] });
        let completion = format!("```python\n{program}\n```");
        let row = json!({ "completion": completion, "task": task });
        lab.write("rows.jsonl", &format!("{row}\n").repeat(16));
        let verdicts = |out: &str| -> Vec<Value> {
            let args = ["grade", "code", "--input", "rows.jsonl", "--output", out];
            lab.run(&args).succeeded();
            let graded = std::fs::read_to_string(lab.path(out)).unwrap();
            let rows = graded.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            rows.map(|row| json!([row["verdict"], row["points"], row["reward"]])).collect()
        };
        let (first, again) = (verdicts(&format!("{name}-1")), verdicts(&format!("{name}-2")));
        assert_eq!(first.len(), 16);
        assert!(
            first.iter().chain(&again).all(|verdict| *verdict == first[0]),
            "{name}: {first:?}"
        );
        assert!(["passed", "failed"].contains(&first[0][0].as_str().unwrap()), "{first:?}");
    }
}

/// Forbids itself the system call that begins with Landlock, as a kernel without it does, and becomes another program.
const WITHOUT_LANDLOCK: &str = r#"
import ctypes, os, struct, sys
# Load the number of the call; 444 is landlock_create_ruleset on every architecture; fail with ENOSYS, or allow.
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// Runs a command on a kernel without Landlock.
fn without_landlock(lab: &Lab, args: &[&str]) -> Ended {
    let command = lab.command(args);
    let program = Path::new(command.get_program()).to_owned();
    let mut python = std::process::Command::new("python3");
    python.args(["-c", WITHOUT_LANDLOCK]).arg(program).args(args).current_dir(lab.path(""));
    Ended::of(&python.env("COLUMNS", "110").output().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn check_says_what_a_program_can_do_on_a_machine_without_landlock() {
    let lab = lab();
    let name = "check_says_what_a_program_can_do_on_a_machine_without_landlock";
    if without_python(name) || without_sandbox(&lab, name) {
        return;
    }
    let lacks = "lacks Landlock";
    let can = "a program can execute others of the machine";
    let ended = without_landlock(&lab, &["check", "code.toml"]);
    // Without namespaces either, there is no sandbox at all.
    if ended.code == Some(1) {
        ended.says(&["one of namespaces and Landlock must keep programs from files"]);
        return;
    }
    ended.succeeded().prints(&["the sandbox of programs", lacks, can]);
    let strict = ["check", "code.toml", "--set", "environment.strict=true"];
    without_landlock(&lab, &strict).failed().says(&["Landlock"]);
}
