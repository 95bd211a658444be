//! Hidden characters of data, models, servers and configurations of others, which no command prints as they are.

use std::collections::BTreeSet;
use std::fs;

use maverl_tests::lab::{Ended, Lab};
use serde_json::{Value, json};

use crate::exit_codes::listed;
use crate::lab;

/// A text that clears the screen, sets the title of the terminal, goes back to the start of the line, and turns the
/// direction of what follows.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\r\u{9b}31m\u{85}\u{7f}\u{202e}\u{2066}\u{200b}";

/// Configuration of a run on hostile tasks.
const CONFIG: &str = r#"
seed = 1
steps = 1
[task]
data = "hostile.jsonl"
tasks_per_step = 2
group_size = 2
[eval]
tasks = 2
[orchestra]
name = "solo/answer"
[environment]
name = "math"
[sampling]
max_tokens = 12
[models.tiny]
path = "builtin:generalist"
"#;

/// Panics if a terminal would obey anything that was printed.
#[track_caller]
fn is_plain(what: &str, printed: &Ended) {
    let obeyed = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
    };
    for (stream, text) in
        [("standard output", &printed.stdout), ("standard error", &printed.stderr)]
    {
        if let Some(at) = text.find(obeyed) {
            let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
            panic!("{what}: {stream}: {:?}", &text[start..]);
        }
    }
}

/// Writes 30 tasks whose ids, sources, questions and answers are hostile.
fn tasks(lab: &Lab) {
    let row = |n: usize| {
        json!({
            "id": format!("a{HOSTILE}{n}"),
            "source": format!("s{HOSTILE}"),
            "question": format!("{HOSTILE}What is {n} + 1?"),
            "answer": format!("{}", n + 1),
        })
    };
    let rows: String = (0..30).map(|n| format!("{}\n", row(n))).collect();
    lab.write("hostile.jsonl", &rows);
    lab.write("c.toml", CONFIG);
}

#[test]
fn no_command_prints_a_control_character_of_a_hostile_run() {
    let lab = lab();
    tasks(&lab);
    let trained = lab.run(&["train", "c.toml", "--out", "r"]).succeeded();
    is_plain("train", &trained);
    let shown = lab.run(&["show", "r", "1", "--worst", "1", "--json"]).succeeded();
    is_plain("show --json", &shown);
    let value: Value = serde_json::from_str(&shown.stdout).unwrap();
    let id = value[0]["task"]["id"].as_str().unwrap();
    assert!(id.starts_with(&format!("a{HOSTILE}")), "JSON has the same value: {id:?}");
    let replayed = lab.run(&["replay", "r", "1"]).succeeded();
    let name = replayed.stdout.lines().next().unwrap();
    assert!(name.starts_with("1/") && name.contains("a<U+001B>[2J"), "{name}");
    let run = format!("runs/{HOSTILE}");
    fs::create_dir(lab.path("runs")).unwrap();
    fs::rename(lab.path("r"), lab.path(&run)).unwrap();
    fs::copy(lab.path("hostile.jsonl"), lab.path("runs/hostile.jsonl")).unwrap();
    let commands: &[&[&str]] = &[
        &["replay", &run, "1"],
        &["replay", &run, "1", "--json"],
        // As it is printed.
        &["replay", &run, name],
        &["replay", &run, name, "--json"],
        &["show", &run, name],
        &["show", &run, name, "--tokens"],
        &["show", &run, "1", "--worst", "4"],
        &["eval", "--run", &run],
        &["eval", "--run", &run, "--json"],
        &["info", &run],
        &["info", &run, "--json"],
        &["runs"],
        &["runs", "--json"],
        &["check", "c.toml"],
        &["check", "c.toml", "--json"],
        &["view", &run, "--static", "page.html"],
        &["extract", &run, "metrics", "--out", "metrics.csv"],
        &["extract", &run, "episodes", "--out", "episodes.csv"],
        &["extract", &run, "turns", "--out", "turns.csv"],
        &["collect", "--from", &run, "--as", "sft,preference", "--out", "rows"],
        &["data", "hostile.jsonl"],
        &["data", "hostile.jsonl", "--rows", "2"],
        &["export", "--run", &run, "--out", "exported"],
        &["inspect", "exported"],
        &["inspect", "exported", "--json"],
        &["train", "--resume", &run, "--steps", "2"],
        &["eval", "--run", &run, "--compare"],
        &["eval", "--run", &run, "--compare", "--json"],
    ];
    let read: BTreeSet<&str> = commands.iter().map(|args| args[0]).collect();
    let all = listed(&lab);
    // These read nothing of a run: `no_error_prints_a_control_character_of_others` has them, and the tests of servers `serve`.
    let others = [
        "bench",
        "completions",
        "device",
        "doctor",
        "examples",
        "explain",
        "generate",
        "grade",
        "help",
        "launch",
        "list",
        "new",
        "new-model",
        "schema",
        "score",
        "serve",
        "track",
    ];
    let known: BTreeSet<&str> = read.into_iter().chain(others).collect();
    assert_eq!(all.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
    for args in commands {
        let ended = lab.run(args);
        let what = args[..args.len().min(2)].join(" ");
        assert_eq!(ended.code, Some(0), "{what}: {ended}");
        is_plain(&what, &ended);
    }
    for file in ["metrics.csv", "episodes.csv", "turns.csv"] {
        let text = fs::read_to_string(lab.path(file)).unwrap();
        is_plain(file, &Ended { code: Some(0), stdout: text, stderr: String::new() });
    }
}

#[test]
fn no_error_prints_a_control_character_of_others() {
    let lab = lab();
    tasks(&lab);
    let escaped = HOSTILE.escape_unicode().to_string().replace("\\u{", "\\u").replace('}', "");
    let escaped: String =
        escaped.split("\\u").skip(1).map(|code| format!("\\u{code:0>4}")).collect();
    let key = format!("\"{escaped}\" = 3\n{CONFIG}");
    let value = CONFIG.replace("\"builtin:generalist\"", &format!("\"{escaped}\""));
    let orchestra = CONFIG.replace("solo/answer", &format!("solo/{escaped}"));
    let worded = format!("printf '{}' >&2; exit 1", "\\033[2J\\033]0;title\\007\\r");
    let server = CONFIG.replace("name = \"math\"", &format!(
        "name = \"tools\"\ntools = [\"calculator\"]\n[environment.mcp.words]\ncommand = [\"sh\", \"-c\", {worded:?}]"
    ));
    let files = [
        ("key.toml", key.as_str()),
        ("value.toml", &value),
        ("orchestra.toml", &orchestra),
        ("server.toml", &server),
        ("raw.toml", &format!("{HOSTILE} = 3\n")),
        ("raw.yaml", &format!("steps: \"{HOSTILE}\n")),
        ("row.jsonl", &format!("{}\n", json!({ format!("k{HOSTILE}"): HOSTILE }))),
        ("half.jsonl", &format!("{{\"id\": \"{HOSTILE}\n")),
        (
            "graded.jsonl",
            &format!("{}\n", json!({ "answer": HOSTILE, "truth": HOSTILE, HOSTILE: 1 })),
        ),
    ];
    for (name, text) in files {
        lab.write(name, text);
    }
    let model = lab.path("model/config.json");
    let config = fs::read_to_string(&model).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["model_type"] = HOSTILE.into();
    lab.model("odd", 64);
    fs::write(lab.path("odd/config.json"), config.to_string()).unwrap();
    let set = format!("{HOSTILE}=3");
    let data = "task.data=row.jsonl";
    let half = "task.data=half.jsonl";
    let commands: &[&[&str]] = &[
        &["check", "key.toml"],
        &["check", "key.toml", "--json"],
        &["check", "value.toml"],
        &["check", "orchestra.toml"],
        &["train", "server.toml", "--out", "s"],
        &["check", "raw.toml"],
        &["check", "raw.yaml"],
        &["check", HOSTILE],
        &["check", "c.toml", "--set", &set],
        &["check", "c.toml", "--set", data],
        &["check", "c.toml", "--set", half],
        &["explain", HOSTILE],
        &["show", HOSTILE, "1"],
        &["replay", HOSTILE, "1"],
        &["info", HOSTILE],
        &["runs", HOSTILE],
        &["inspect", HOSTILE],
        &["inspect", "odd"],
        &["score", "--model", "odd", "--input", "row.jsonl", "--output", "o.jsonl"],
        &["score", "--model", "model", "--input", "row.jsonl", "--output", "o.jsonl"],
        &["score", "--model", "model", "--input", "half.jsonl", "--output", "o.jsonl"],
        &["grade", "math", "--input", "half.jsonl", "--output", "g.jsonl"],
        &["export", "--run", HOSTILE, "--out", "e"],
        &["collect", "--from", HOSTILE, "--as", "sft", "--out", "e"],
        &["generate", "--model", HOSTILE, "--prompt", "x"],
        &["eval", "--run", HOSTILE],
        &["eval", "--run", HOSTILE, "--compare"],
        &["extract", HOSTILE, "metrics", "--out", "m.csv"],
        &["view", HOSTILE, "--static", "v.html"],
        &["list", HOSTILE],
        &["examples", HOSTILE],
        &["doctor", HOSTILE],
        &["schema", HOSTILE],
        &["new", HOSTILE],
        &["new-model", "--like", HOSTILE, "--out", "n"],
        &["bench", HOSTILE],
        &["launch", "slurm", HOSTILE],
        &["device", HOSTILE],
        &["completions", HOSTILE],
        &["data", HOSTILE],
        &["data", "half.jsonl"],
        &["track", HOSTILE, "--to", "mlflow"],
        &["help", HOSTILE],
        &["serve", "team", HOSTILE],
        &["serve", "environment", HOSTILE],
        &["serve", "retriever", HOSTILE],
        &["serve", "reward", "--judge", HOSTILE],
        &["serve", "model", "--model", HOSTILE],
        &["serve", "train", "--model", HOSTILE, "--out", "o"],
        &["nothing", HOSTILE],
        &[HOSTILE],
    ];
    let tried: BTreeSet<&str> = commands.iter().map(|args| args[0]).collect();
    let missing: Vec<String> =
        listed(&lab).into_iter().filter(|name| !tried.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for args in commands {
        let ended = lab.run(args);
        let what = args.join(" ").escape_debug().to_string();
        assert!(ended.code.is_some_and(|code| code != 0), "{what}: {ended}");
        assert!(!ended.stderr.contains("panicked"), "{what}: {ended}");
        is_plain(&what, &ended);
    }
    // What a model writes, and what is graded.
    let generate = ["generate", "--model", "builtin:generalist", "--prompt", HOSTILE];
    let commands: [&[&str]; 3] = [
        &[&generate[..], &["--max-tokens", "8"]].concat(),
        &[&generate[..], &["--max-tokens", "8", "--json"]].concat(),
        &["grade", "math", "--input", "graded.jsonl", "--output", "g.jsonl"],
    ];
    for args in commands {
        is_plain(&args[..2].join(" "), &lab.run(args).succeeded());
    }
}

#[test]
fn a_configuration_with_thousands_of_mistakes_is_answered_in_little_memory() {
    let lab = lab();
    let agents: String =
        (0..20_000).map(|n| format!("[agents.\"a/{n}\"]\nfrozen = true\n")).collect();
    lab.write("many.toml", &format!("{CONFIG}{agents}"));
    tasks(&lab);
    let binary = lab.command(&["check", "many.toml"]);
    let program = binary.get_program().to_owned();
    let mut limited = std::process::Command::new("sh");
    // KiB of address space: the program, its threads and its libraries, and some copies of the file.
    limited.args(["-c", "ulimit -v 1500000; exec \"$0\" check many.toml"]).arg(&program);
    limited.current_dir(lab.path(""));
    let ended = Ended::of(&limited.output().unwrap());
    assert_eq!(ended.code, Some(1), "{}", &ended.stderr[..ended.stderr.len().min(2000)]);
    assert!(ended.stderr.contains("20000 problems in the configuration"), "{:.500}", ended.stderr);
    assert!(ended.stderr.trim_end().ends_with("and 19980 more"), "{} bytes", ended.stderr.len());
}
