//! Programs that play as an orchestra, in whole runs. They need `python3`, and skip with a message without it.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use maverl::trajectory::{Episode, Outcome};
use maverl_tests::lab::{Ended, Lab, Run, wait_until};
use maverl_tests::port::PortLease;
use serde_json::{Map, Value};

use crate::lab;

/// Key of the programs from outside.
const KEY: &str = "marked-key-4711-of-the-gateway";

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

/// Settings of a small run of an example.
const SMALL: [&str; 3] = ["task.group_size=4", "eval.before_and_after=false", "eval.every=0"];
/// Length of a run that is compared.
const COMPARED: [&str; 2] = ["task.tasks_per_step=4", "steps=3"];

/// Trains an example with further settings.
fn train(lab: &Lab, config: &str, out: &str, set: &[&str]) -> Run {
    let config = example(config);
    let mut args = vec!["train", &config, "--out", out];
    args.extend(SMALL.iter().chain(set).flat_map(|set| ["--set", set]));
    lab.run(&args).succeeded();
    Run(lab.path(out))
}

/// Fails unless a run of the program has the tokens, rewards and metrics of the orchestra. Returns the number of turns.
fn is_equal(name: &str, orchestra: &Run, program: &Run) -> usize {
    let mut turns = 0;
    for step in 1..=3 {
        let [ours, theirs] = [orchestra, program].map(|run| run.episodes(step));
        assert_eq!((ours.len(), theirs.len()), (16, 16), "{name}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let tokens = |episode: &Episode| {
                let turns = episode.turns.iter();
                turns.map(|turn| (turn.path.clone(), turn.tokens.clone())).collect::<Vec<_>>()
            };
            assert_eq!(tokens(ours), tokens(theirs), "{name}: {} {}", ours.task.id, ours.index);
            let rewards = |episode: &Episode| {
                let turns = 0..episode.turns.len();
                turns.map(|turn| episode.turn_reward(turn)).collect::<Vec<_>>()
            };
            assert_eq!(rewards(ours), rewards(theirs), "{name}: {} {}", ours.task.id, ours.index);
            assert_eq!(ours.answer, theirs.answer, "{name}");
            assert_eq!(ours.acts, theirs.acts, "{name}");
            turns += ours.turns.len();
        }
    }
    let (ours, theirs) = (orchestra.steps(), program.steps());
    assert_eq!((ours.len(), theirs.len()), (3, 3), "{name}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let [ours, theirs] = [ours, theirs].map(|row| {
            let mut row = renamed(row);
            row.retain(|name, _| !name.starts_with("gateway/"));
            row
        });
        assert_eq!(ours, theirs, "{name}");
    }
    turns
}

#[test]
fn the_search_team_as_a_program_has_the_same_tokens_rewards_and_updates() {
    if without_python("the search team as a program") {
        return;
    }
    let lab = lab();
    let orchestra = train(&lab, "search_orchestra.toml", "orchestra", &COMPARED);
    let program = train(&lab, "program.toml", "program", &COMPARED);
    let turns = is_equal("a process for each episode", &orchestra, &program);
    let log = program.0.join("rollouts/programs/step-000001.log.zst");
    let log = zstd::decode_all(std::fs::File::open(log).unwrap()).unwrap();
    let log = String::from_utf8(log).unwrap();
    let answered = program.episodes(1).iter().filter(|episode| episode.answer.is_some()).count();
    assert!(log.starts_with("== ") && answered > 0, "{log}");
    assert_eq!(log.matches("{\"answer\": ").count(), answered, "{log}");
    let workers = train(&lab, "program_workers.toml", "workers", &COMPARED);
    is_equal("workers", &orchestra, &workers);
    eprintln!("{turns} turns are equal");
}

#[test]
fn a_program_of_the_python_package_plays_in_both_modes_as_the_team_does() {
    if without_python("a program of the Python package") {
        return;
    }
    let lab = lab();
    let orchestra = train(&lab, "search_orchestra.toml", "orchestra", &COMPARED);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = tests.join("python/package_worker.py");
    let command = format!("orchestra.command=[\"python3\", {program:?}]");
    let package = tests.join("../crates/cli/python/src");
    let env = format!("orchestra.env={{ PYTHONPATH = {package:?} }}");
    for config in ["program.toml", "program_workers.toml"] {
        let set = [&COMPARED[..], &["orchestra.sources=[]", &command, &env]].concat();
        let run = train(&lab, config, config, &set);
        eprintln!("{config}: {} turns are equal", is_equal(config, &orchestra, &run));
    }
}

/// Parts of the search team that ask in OpenAI's protocol, and the same in Anthropic's.
const BY_MESSAGES: [(&str, &str); 5] = [
    ("body = {\"model\": model, ", "body = {\"model\": model, \"max_tokens\": 32000, "),
    ("/v1/chat/completions", "/v1/messages"),
    (
        "choice = said[\"choices\"][0]",
        "choice = {\"finish_reason\": {\"max_tokens\": \"length\"}.get(said[\"stop_reason\"])}",
    ),
    ("reply = choice[\"message\"][\"content\"]", "reply = said[\"content\"][0][\"text\"]"),
    (
        "\"authorization\": \"Bearer \" + episode[\"api_key\"]",
        "\"x-api-key\": episode[\"api_key\"]",
    ),
];

#[test]
fn the_search_team_in_the_messages_api_has_the_same_tokens_rewards_and_updates() {
    if without_python("the search team in the messages API") {
        return;
    }
    let lab = lab();
    let chat = train(&lab, "program.toml", "chat", &COMPARED);
    let program = std::fs::read_to_string(example("programs/search.py")).unwrap();
    let program = BY_MESSAGES.iter().fold(program, |program, (chat, message)| {
        assert_eq!(program.matches(chat).count(), 1, "{chat}");
        program.replace(chat, message)
    });
    lab.write("messages.py", &program);
    let command = format!("orchestra.command=[\"python3\", {:?}]", lab.path("messages.py"));
    let messages = train(&lab, "program.toml", "messages", &[&COMPARED[..], &[&command]].concat());
    let turns = is_equal("messages", &chat, &messages);
    assert_eq!(chat.steps(), messages.steps());
    eprintln!("{turns} turns are equal");
}

/// A stand-in for Claude Code: its report is what the question asks for.
const CLAUDE: &str = r#"#!/bin/sh
case "$2" in
    *limit*) echo '{"is_error": true, "api_error_status": 400, "result": "prompt is too long"}' ;;
    *busy*) echo '{"is_error": true, "api_error_status": 500, "result": "busy"}' ;;
    *) echo '{"is_error": false, "result": "4", "num_turns": 2}' ;;
esac
"#;

#[test]
fn the_wrapper_of_a_coding_agent_says_how_its_episode_ends() {
    if without_python("the wrapper of a coding agent") {
        return;
    }
    let lab = lab();
    lab.write("claude", CLAUDE);
    let file = lab.path("claude");
    assert!(Command::new("chmod").arg("+x").arg(&file).status().unwrap().success());
    let paths = std::env::var_os("PATH").unwrap();
    let paths = std::iter::once(lab.path("")).chain(std::env::split_paths(&paths));
    let paths = std::env::join_paths(paths).unwrap();
    for (question, code, out) in [
        ("2 + 2?", 0, "{\"answer\": \"4\", \"metrics\": {\"turns\": 2}}"),
        ("limit", 65, ""),
        ("busy", 75, ""),
    ] {
        let mut wrapper = Command::new("python3");
        wrapper.arg(example("programs/claude_code.py")).env("PATH", &paths);
        let child = wrapper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let line = format!("{{\"task\": {{\"question\": {question:?}}}}}\n");
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), line.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{question}");
        assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), out, "{question}");
    }
}

#[test]
fn a_program_that_attaches_from_outside_plays_the_same_and_its_key_is_in_no_file() {
    if without_python("a program that attaches") {
        return;
    }
    let lab = lab();
    let orchestra = train(&lab, "search_orchestra.toml", "orchestra", &COMPARED);
    let lease = PortLease::take();
    let port = lease.port;
    let address = format!("orchestra.address=\"127.0.0.1:{port}\"");
    let outside = ["orchestra.command=[]", "orchestra.key_env=\"TEST_GATEWAY_KEY\"", &address];
    let config = example("program_workers.toml");
    let mut args = vec!["train", &config, "--out", "attached"];
    args.extend(SMALL.iter().chain(&COMPARED).chain(&outside).flat_map(|set| ["--set", set]));
    let mut command = lab.command(&args);
    command.env("TEST_GATEWAY_KEY", KEY).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    wait_until("the gateway", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let worker = |key: &str| {
        let mut worker = Command::new("python3");
        worker.arg(example("programs/worker.py")).env("MAVERL_GATEWAY_KEY", key);
        worker.env("MAVERL_GATEWAY_URL", format!("http://127.0.0.1:{port}"));
        worker.stderr(Stdio::piped()).spawn().unwrap()
    };
    let wrong = worker("a wrong key").wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("401"), "{wrong:?}");
    let workers = [worker(KEY), worker(KEY)];
    Ended::of(&run.wait_with_output().unwrap()).succeeded();
    for worker in workers {
        let ended = worker.wait_with_output().unwrap();
        assert!(String::from_utf8_lossy(&ended.stderr).contains("no more episodes"), "{ended:?}");
    }
    let attached = Run(lab.path("attached"));
    is_equal("programs from outside", &orchestra, &attached);
    for (name, bytes) in attached.lasting() {
        let found = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
        assert!(!found, "{name} has the key");
    }
}

#[test]
fn a_run_of_workers_that_is_killed_resumes_to_the_same_end() {
    if without_python("a killed run of workers") {
        return;
    }
    let lab = lab();
    let set = ["checkpoint.every=1", "task.tasks_per_step=2", "steps=4"];
    let whole = train(&lab, "program_workers.toml", "whole", &set);
    let config = example("program_workers.toml");
    let mut args = vec!["train", &config, "--out", "killed"];
    args.extend(SMALL.iter().chain(&set).flat_map(|set| ["--set", set]));
    let mut child = lab.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let killed = Run(lab.path("killed"));
    let growing = killed.0.join("rollouts/step-000003.part.jsonl.zst");
    wait_until("step 3", || growing.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    lab.run(&["train", "--resume", "killed"]).succeeded();
    assert_eq!(whole.steps(), killed.steps());
}

/// Plays four episodes, and waits to be killed in the next one, before or after its calls: then a file in the directory `MARKS` has
/// the id of the process. The first argument is the directory of the worker.
const MARKED: &str = r#"
import os, sys, time
sys.path.insert(0, sys.argv[1])
import search
mark, play, played = os.path.join(os.environ["MARKS"], str(os.getpid())), search.play, 0
def marked(episode):
    global played
    played += 1
    if played >= 5:
        if os.getpid() % 2 == 0 and play(episode) is None:
            return None  # a malformed reply has ended the episode
        open(mark, "w").close()
        time.sleep(600)
    return play(episode)
search.play = marked
exec(compile(open(os.path.join(sys.argv[1], "worker.py")).read(), "worker.py", "exec"))
"#;
/// Ends workers while they play, one after another, until the run ends. Returns the result of the run, and the number of
/// workers that were ended.
fn killing(mut run: Child, marks: &Path) -> (Ended, usize) {
    let mut kills = 0;
    while run.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
        let playing = std::fs::read_dir(marks).unwrap().next();
        let Some(mark) = playing.map(Result::unwrap) else { continue };
        let pid = mark.file_name().into_string().unwrap();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        std::fs::remove_file(mark.path()).unwrap();
        kills += 1;
    }
    (Ended::of(&run.wait_with_output().unwrap()), kills)
}

#[test]
fn workers_that_are_killed_while_they_play_cost_their_episodes_and_change_no_other() {
    if without_python("workers that are killed") {
        return;
    }
    let lab = lab();
    lab.write("marked.py", MARKED);
    std::fs::create_dir(lab.path("marks")).unwrap();
    let config = example("program_workers.toml");
    let marks = lab.path("marks");
    let command = format!(
        "orchestra.command=[\"python3\", {:?}, {:?}]",
        lab.path("marked.py"),
        example("programs")
    );
    let env = format!("orchestra.env={{ MARKS = {marks:?} }}");
    let set = ["steps=1", "task.tasks_per_step=24", "orchestra.processes=4", &command, &env];
    let mut args = vec!["train", &config, "--out", "killed"];
    args.extend(SMALL.iter().chain(&set).flat_map(|set| ["--set", set]));
    let mut command = lab.command(&args);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (ended, kills) = killing(run, &marks);
    // The undisturbed run has the worker as it is.
    train(&lab, "program_workers.toml", "whole", &set[..2]);
    ended.succeeded().says(&["episodes could not be scored and teach nothing: crash: the worker"]);
    let [whole, killed] = ["whole", "killed"].map(|name| Run(lab.path(name)));
    let (whole, episodes) = (whole.episodes(1), killed.episodes(1));
    assert_eq!((whole.len(), episodes.len()), (96, 96));
    let mut crashes = 0;
    for (ours, theirs) in whole.iter().zip(&episodes) {
        let place = format!("{} {}", ours.task.id, ours.index);
        assert_eq!((&ours.task.id, ours.index), (&theirs.task.id, theirs.index));
        match &theirs.outcome {
            Outcome::Unscored(fault) => {
                let told = fault.to_string();
                assert_eq!(told, "crash: the worker of the episode ended", "{place}");
                crashes += 1;
            }
            Outcome::Scored(_) => {
                assert_eq!(ours.turns, theirs.turns, "{place}");
                assert_eq!((&ours.answer, &ours.acts), (&theirs.answer, &theirs.acts), "{place}");
                let score = |episode: &Episode| {
                    episode.score().map(|score| (score.reward, score.solved)).unwrap()
                };
                assert_eq!(
                    (score(ours), &ours.rewards),
                    (score(theirs), &theirs.rewards),
                    "{place}"
                );
            }
        }
    }
    println!(
        "{kills} workers were killed; {crashes} of 96 episodes are unscored, the others are equal"
    );
    assert_eq!(crashes, kills);
    assert!((10..30).contains(&crashes), "{crashes}");
    let row = &killed.steps()[0];
    let crashes = crashes as f64;
    assert_eq!(
        (&row["gateway/crashes"], &row["rollout/unscored/crash"]),
        (&crashes.into(), &crashes.into())
    );
}

#[test]
fn the_programs_of_a_run_that_is_killed_are_killed_too() {
    if without_python("programs of a killed run") {
        return;
    }
    let lab = lab();
    // The program, and a child of it, which outlives a parent that is killed.
    let program = "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n\
                   name = f'{os.getpid()}-{child.pid}'\nopen('new', 'w').close()\nos.rename('new', 'pids/' + name)\ntime.sleep(600)\n";
    lab.write("sleeps.py", program);
    std::fs::create_dir(lab.path("pids")).unwrap();
    let config = "steps = 1\n[task]\ndata = \"builtin:arithmetic\"\ntasks_per_step = 1\ngroup_size = 2\n\
                  [environment]\nname = \"math\"\n[orchestra]\nname = \"program/run\"\n\
                  command = [\"python3\", \"sleeps.py\"]\nmodels = [\"a\"]\n[models.tiny]\npath = \"builtin:tiny\"\n\
                  [eval]\nbefore_and_after = false\nevery = 0\n";
    lab.write("sleeps.toml", config);
    let mut command = lab.command(&["train", "sleeps.toml", "--out", "killed"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = || std::fs::read_dir(lab.path("pids")).unwrap().map(|entry| entry.unwrap());
    wait_until("the programs", || started().count() == 2);
    run.kill().unwrap();
    run.wait().unwrap();
    let names = started().map(|entry| entry.file_name().into_string().unwrap());
    let pids: Vec<String> =
        names.flat_map(|name| name.split('-').map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(pids.len(), 4);
    // A process that was killed may wait for its new parent to notice.
    let lives = |pid: &String| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z")
    };
    wait_until("the end of the programs", || !pids.iter().any(lives));
}

#[test]
fn a_run_that_ends_at_once_leaves_no_directory_of_an_episode() {
    let lab = lab();
    let config = "steps = 1\n[task]\ndata = \"builtin:arithmetic\"\ntasks_per_step = 1\ngroup_size = 2\n\
                  [environment]\nname = \"math\"\n[orchestra]\nname = \"program/run\"\nworkdir = \"episode\"\n\
                  command = [\"sleep\", \"600\"]\nmodels = [\"a\"]\n[models.tiny]\npath = \"builtin:tiny\"\n\
                  [eval]\nbefore_and_after = false\nevery = 0\n";
    lab.write("sleeps.toml", config);
    for signals in [&["-TERM", "-INT"][..], &["-KILL"]] {
        let name = format!("ended{}", signals.concat());
        let temporary = lab.path(&format!("temporary{}", signals.concat()));
        std::fs::create_dir(&temporary).unwrap();
        let mut command = lab.command(&["train", "sleeps.toml", "--out", &name]);
        command.env("TMPDIR", &temporary);
        let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let directories = || {
            let entries = std::fs::read_dir(&temporary).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("maverl-")).count()
        };
        wait_until("the directories", || directories() == 2);
        for signal in signals {
            // Two signals of one kind would be one to the system until the first is noticed.
            let sent = Command::new("kill").args([*signal, &run.id().to_string()]).status();
            assert!(sent.unwrap().success());
        }
        wait_until("the end of the run", || run.try_wait().unwrap().is_some());
        wait_until("the removal of the directories", || directories() == 0);
    }
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

/// A program that asks in all three forms.
const FORMS: &str = r#"
import json, sys, urllib.request
episode = json.loads(sys.stdin.readline())
def post(path, body):
    head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
    request = urllib.request.Request(episode["base_url"] + path, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
question = episode["task"]["question"]
chat = post("/chat/completions", {"messages": [{"role": "user", "content": question}]})
response = post("/responses", {"input": question})
first = {"role": "user", "content": question}
post("/responses", {"input": [first, *response["output"], {"role": "user", "content": "go on"}]})
text = post("/completions", {"prompt": "Question: " + question + "\nAnswer:", "max_tokens": 4})
assert text["usage"]["completion_tokens"] <= 4
print(json.dumps({"reward": 0.5 if chat["choices"][0]["message"]["content"] else 0.0}))
"#;

#[test]
fn a_program_that_asks_in_every_form_is_trained_on_exactly_what_was_sampled() {
    if without_python("a program that asks in every form") {
        return;
    }
    let lab = lab();
    lab.write("forms.py", FORMS);
    let config = "steps = 1\n[task]\ndata = \"builtin:arithmetic\"\ntasks_per_step = 2\ngroup_size = 4\n\
                  [environment]\nname = \"reported\"\n[orchestra]\nname = \"program/run\"\n\
                  command = [\"python3\", \"forms.py\"]\nmodels = [\"a\"]\n[sampling]\nmax_tokens = 8\n\
                  [models.tiny]\npath = \"builtin:tiny\"\n[eval]\nbefore_and_after = false\nevery = 0\n";
    lab.write("forms.toml", config);
    lab.run(&["train", "forms.toml", "--out", "forms"]).succeeded();
    let run = Run(lab.path("forms"));
    let row = &run.steps()[0];
    assert_eq!(row["rollout/unscored"], 0.0, "{row}");
    assert_eq!(row["gateway/calls_mean"], 4.0, "{row}");
    for episode in run.episodes(1) {
        let prompts: Vec<usize> = episode.turns.iter().map(|turn| turn.prompt.len()).collect();
        assert_eq!(prompts, [1, 1, 3, 1]);
        let ids = |turn: usize| episode.turns[turn].tokens.as_ref().unwrap().prompt.clone();
        assert_eq!(ids(0), ids(1), "equal messages are equal prompts");
        assert_ne!(ids(0), ids(3), "a text has no chat template");
    }
    assert_eq!(row["mismatch/tiny/logp_abs_max"], 0.0, "{row}");
}

/// A program whose prompts are no function of its episode.
const RANDOM: &str = r#"
import json, os, sys, urllib.request
episode = json.loads(sys.stdin.readline())
messages = [{"role": "user", "content": os.urandom(4).hex()}]
for _ in range(2):
    head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
    body = json.dumps({"messages": messages, "max_tokens": 4}).encode()
    request = urllib.request.Request(episode["base_url"] + "/chat/completions", body, head)
    with urllib.request.urlopen(request) as answer:
        messages.append(json.load(answer)["choices"][0]["message"])
    messages.append({"role": "user", "content": "go on"})
print(json.dumps({"reward": 0.5}))
"#;

#[test]
fn turns_of_a_program_that_is_not_repeatable_are_sampled_again_to_the_bit() {
    if without_python("turns of a program") {
        return;
    }
    let lab = lab();
    lab.write("random.py", RANDOM);
    let config = "steps = 2\n[task]\ndata = \"builtin:arithmetic\"\ntasks_per_step = 1\ngroup_size = 4\n\
                  [environment]\nname = \"reported\"\n[orchestra]\nname = \"program/run\"\n\
                  command = [\"python3\", \"random.py\"]\nmodels = [\"a\"]\n[sampling]\nmax_tokens = 8\n\
                  [models.tiny]\npath = \"builtin:tiny\"\n[eval]\nbefore_and_after = false\nevery = 0\n";
    lab.write("random.toml", config);
    lab.run(&["train", "random.toml", "--out", "random"]).succeeded();
    let run = Run(lab.path("random"));
    let episode = &run.episodes(2)[1];
    assert_eq!(episode.turns.len(), 2);
    let name = format!("2/{}/{}", episode.task.id, episode.index);
    let again = lab.run(&["replay", "random", &name]);
    assert_eq!(again.code, Some(1), "{again}");
    assert!(again.stdout.contains("2 of 2 turns are not the same"), "{again}");
    let turns = lab.run(&["replay", "random", &name, "--turns"]).succeeded();
    assert!(turns.stdout.contains("identical; reward 0.5"), "{turns}");
}

/// A program that calls the tools of its environment over the Model Context Protocol.
const CALLS: &str = r#"
import json, sys, urllib.request
episode = json.loads(sys.stdin.readline())
def post(url, body):
    head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
def rpc(method, params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return post(episode["base_url"].removesuffix("/v1") + "/mcp", message)["result"]
question = episode["task"]["question"]
post(episode["base_url"] + "/chat/completions", {"messages": [{"role": "user", "content": question}]})
rpc("initialize", {"protocolVersion": "2025-06-18"})
assert [tool["name"] for tool in rpc("tools/list", {})["tools"]] == ["calculator"]
sum = question.removeprefix("What is ").removesuffix("?")
called = rpc("tools/call", {"name": "calculator", "arguments": {"expression": sum}})
print(json.dumps({"answer": called["content"][0]["text"]}))
"#;

#[test]
fn a_program_calls_the_tools_of_its_environment_over_mcp() {
    if without_python("a program with tools over MCP") {
        return;
    }
    let lab = lab();
    lab.write("calls.py", CALLS);
    lab.write("sums.jsonl", "{\"id\": \"s\", \"question\": \"What is 20 + 22?\", \"answers\": [\"42\"], \"split\": \"train\"}\n");
    let config = "steps = 1\n[task]\ndata = \"sums.jsonl\"\ntasks_per_step = 1\ngroup_size = 2\n\
                  [environment]\nname = \"tools\"\ntools = [\"calculator\"]\n[orchestra]\nname = \"program/run\"\n\
                  command = [\"python3\", \"calls.py\"]\nmodels = [\"a\"]\n[sampling]\nmax_tokens = 8\n\
                  [models.tiny]\npath = \"builtin:tiny\"\n[eval]\nbefore_and_after = false\nevery = 0\n";
    lab.write("calls.toml", config);
    lab.run(&["train", "calls.toml", "--out", "calls"]).succeeded();
    for episode in Run(lab.path("calls")).episodes(1) {
        assert_eq!(episode.acts.len(), 1);
        assert!(episode.score().unwrap().solved, "{:?}", episode.answer);
    }
}

/// A program that gives a part of the reward, if the seed of its episode is odd, and does not fail if it is refused.
const OVERFLOW: &str = r#"
import json, os, sys, urllib.error, urllib.request
episode = json.loads(sys.stdin.readline())
def post(path, body):
    head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["MAVERL_EPISODE_URL"] + path, json.dumps(body).encode(), head)
    return json.load(urllib.request.urlopen(request))
message = {"role": "user", "content": episode["task"]["question"]}
reply = post("/v1/chat/completions", {"messages": [message], "max_tokens": 8})
refused = 0
if int(episode["seed"]) % 2:
    for value in VALUES:
        try:
            post("/parts", {"name": "part", "value": value, "of": "episode"})
        except urllib.error.HTTPError as error:
            refused += error.code == 400
print(json.dumps({"answer": reply["choices"][0]["message"]["content"], "metrics": {"refused": refused}}))
"#;

#[test]
fn parts_that_are_too_large_for_an_advantage_are_refused_and_the_run_goes_on() {
    if without_python("parts_that_are_too_large_for_an_advantage_are_refused_and_the_run_goes_on") {
        return;
    }
    for (out, values, refused) in [
        ("sum", "[1.5e308, 1.5e308, 1.5e308]", 3),
        ("square", "[1e200]", 1),
        ("together", "[6e8, 6e8]", 1),
    ] {
        let lab = lab();
        lab.write("agent.py", &OVERFLOW.replace("VALUES", values));
        let config = "seed = 1\nsteps = 2\n[orchestra]\nname = \"program/run\"\ncommand = [\"python3\", \"agent.py\"]\n\
                      models = [\"solver\"]\n[environment]\nname = \"math\"\n[task]\ndata = \"builtin:arithmetic\"\n\
                      tasks_per_step = 2\ngroup_size = 4\n[eval]\nbefore_and_after = false\n[sampling]\nmax_tokens = 8\n\
                      [models.tiny]\npath = \"model\"\n";
        lab.write("program.toml", config);
        lab.run(&["train", "program.toml", "--out", out]).succeeded();
        let run = Run(lab.path(out));
        let episodes = [1, 2].into_iter().flat_map(|step| run.episodes(step));
        let odd: Vec<_> = episodes.filter(|episode| episode.seed % 2 == 1).collect();
        assert!(!odd.is_empty());
        for episode in odd {
            let score = episode.score().expect("every episode is scored");
            assert_eq!(score.metrics["refused"], refused as f64, "{out}: {score:?}");
        }
    }
}

const LONG: &str = r#"
import json, os, sys, urllib.error, urllib.request
episode = json.loads(sys.stdin.readline())
def post(path, body):
    head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["MAVERL_EPISODE_URL"] + path, json.dumps(body).encode(), head)
    return json.load(urllib.request.urlopen(request))
def largest():
    with open("/proc/%d/status" % os.getppid()) as status:
        return next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
def chat(text):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4}
reply = post("/v1/chat/completions", chat(episode["task"]["question"]))
text, refused, before = "ab " * 1300000, 0, largest()
for path, body in [("/v1/chat/completions", chat(text)), ("/v1/completions", {"prompt": text, "max_tokens": 4}),
                   ("/v1/responses", {"input": text, "max_output_tokens": 4})]:
    try:
        post(path, body)
    except urllib.error.HTTPError as error:
        found = json.load(error)["error"]
        refused += error.code == 400 and found["code"] == "context_length_exceeded" and "are not encoded" in found["message"]
print(json.dumps({"answer": reply["choices"][0]["message"]["content"],
                  "metrics": {"refused": refused, "grown_mib": (largest() - before) / 1024}}))
"#;

#[test]
fn a_text_of_a_program_that_cannot_fit_is_refused_by_its_bytes_in_bounded_memory() {
    if without_python("a_text_of_a_program_that_cannot_fit_is_refused_by_its_bytes") {
        return;
    }
    let lab = lab();
    lab.write("agent.py", LONG);
    let config = "seed = 1\nsteps = 1\n[orchestra]\nname = \"program/run\"\ncommand = [\"python3\", \"agent.py\"]\n\
                  models = [\"solver\"]\nmax_turns = 8\n[environment]\nname = \"math\"\n[task]\ndata = \"builtin:arithmetic\"\n\
                  tasks_per_step = 1\ngroup_size = 2\n[rollout]\nmax_episodes = 1\n[eval]\nbefore_and_after = false\n\
                  [sampling]\nmax_tokens = 8\n[models.tiny]\npath = \"model\"\n";
    lab.write("program.toml", config);
    lab.run(&["train", "program.toml", "--out", "run"]).succeeded();
    for episode in Run(lab.path("run")).episodes(1) {
        let score = episode.score().expect("a refused request ends no episode");
        assert_eq!(score.metrics["refused"], 3.0, "{score:?}");
        let grown = score.metrics["grown_mib"].as_f64().unwrap();
        assert!(grown < 256.0, "the memory of the run grew by {grown} MiB");
    }
}
