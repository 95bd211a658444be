//! Programs of frameworks, trained in runs. Each is skipped without its package.

use std::path::Path;

use maverl_tests::lab::Run;
use serde_json::Value;

use super::{lab, python, script};

/// An environment whose rewards are those of the program, which differ.
const REPORTED: &str = "name = \"reported\"";

/// A program, and the run that trains it.
struct Framework {
    /// Package that it needs, and the list of packages that has it.
    package: [&'static str; 2],
    /// Its file and arguments.
    program: Vec<String>,
    models: &'static str,
    environment: &'static str,
    data: &'static str,
    /// Number of calls of an episode that shows that conversations are continued.
    calls: f64,
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/programs").join(name);
    path.display().to_string()
}

fn frameworks() -> Vec<Framework> {
    let twice = |package, name: &str, argument: Option<&str>| {
        let path = script(name).display().to_string();
        Framework {
            package: [package, "openai"],
            program: std::iter::once(path).chain(argument.map(str::to_owned)).collect(),
            models: "\"solver\"",
            environment: REPORTED,
            data: "builtin:arithmetic",
            calls: 1.5,
        }
    };
    vec![
        twice("agents", "program_agents.py", Some("chat_completions")),
        twice("agents", "program_agents.py", Some("responses")),
        twice("langchain_openai", "program_langchain.py", None),
        Framework {
            package: ["langgraph", "programs"],
            program: vec![example("langgraph_react.py")],
            models: "\"agent\"",
            environment: "name = \"tools\"\ntools = [\"calculator\"]",
            data: "builtin:arithmetic",
            calls: 1.0,
        },
        Framework {
            package: ["ag2", "programs"],
            program: vec![example("ag2_pair.py")],
            models: "\"solver\", \"critic\"",
            environment: "name = \"math\"",
            data: "builtin:arithmetic",
            calls: 3.0,
        },
    ]
}

#[test]
fn programs_of_frameworks_continue_their_conversations_with_what_was_sampled() {
    for framework in frameworks() {
        let Framework { package: [package, list], program, models, environment, data, calls } =
            framework;
        let Some(python) = python(package, list) else { continue };
        let lab = lab();
        let command = [&[python][..], &program].concat();
        let config = format!(
            "seed = 3\nsteps = 1\n[task]\ndata = {data:?}\ntasks_per_step = 2\ngroup_size = 3\n\
             [environment]\n{environment}\n[orchestra]\nname = \"program/run\"\ncommand = {command:?}\n\
             models = [{models}]\n[sampling]\nmax_tokens = 64\n[models.tiny]\npath = \"builtin:generalist\"\n\
             [eval]\nbefore_and_after = false\nevery = 0\n"
        );
        lab.write("program.toml", &config);
        lab.run(&["train", "program.toml", "--out", "program"]).succeeded();
        let run = Run(lab.path("program"));
        let row = &run.steps()[0];
        let value = |name: &str| row.get(name).cloned().unwrap_or(Value::Null);
        println!(
            "{program:?}: {} calls of an episode, prefix reuse {}, rewritten {}",
            value("gateway/calls_mean"),
            value("gateway/prefix_reuse"),
            value("gateway/rewritten")
        );
        assert_eq!(value("rollout/unscored"), 0.0, "{row}");
        assert!(value("gateway/calls_mean").as_f64().unwrap() >= calls, "{row}");
        // An episode of one call continues nothing, and one whose rewards are equal teaches nothing.
        let reuse = value("gateway/prefix_reuse");
        assert!(reuse == 1.0 || calls == 1.0 && reuse.is_null(), "{row}");
        let mismatch = value("mismatch/tiny/logp_abs_max");
        assert!(mismatch == 0.0 || environment != REPORTED && mismatch.is_null(), "{row}");
    }
}

#[test]
fn a_coding_agent_in_the_messages_api_is_trained_in_directories_of_its_own() {
    let Some(python) = python("anthropic", "anthropic") else { return };
    let lab = lab();
    let config = example("messages.toml");
    let command = format!("orchestra.command=[{python:?}, \"messages.py\"]");
    let set = ["steps=2", "task.tasks_per_step=2", "task.group_size=3", &command];
    let mut args = vec!["train", &config, "--out", "messages"];
    args.extend(set.iter().flat_map(|set| ["--set", set]));
    lab.run(&args).succeeded();
    let run = Run(lab.path("messages"));
    for row in run.steps() {
        assert_eq!((&row["rollout/unscored"], &row["gateway/crashes"]), (&0.0.into(), &0.0.into()));
        assert!(row["gateway/calls_mean"].as_f64().unwrap() >= 2.0, "{row}");
        assert_eq!(row["gateway/prefix_reuse"], 1.0, "{row}");
        let mismatch = row.get("mismatch/tiny/logp_abs_max").and_then(Value::as_f64);
        assert!(mismatch.is_none_or(|mismatch| mismatch < 1e-5), "{row}");
    }
    let episodes = run.episodes(1);
    assert!(episodes.iter().all(|episode| episode.turns[0].tools.len() == 1));
    let episode = format!("1/{}/{}", episodes[0].task.id, episodes[0].index);
    lab.run(&["replay", "messages", &episode, "--turns"]).succeeded();
}

#[test]
fn an_environment_of_verifiers_gives_the_rewards_of_a_run() {
    let Some(python) = python("verifiers", "verifiers") else { return };
    let lab = lab();
    let config = example("verifiers.toml");
    let table: toml::Table = std::fs::read_to_string(&config).unwrap().parse().unwrap();
    let mut command = table["orchestra"]["command"].as_array().unwrap().clone();
    command[0] = python.into();
    let command = format!("orchestra.command={}", toml::Value::Array(command));
    // Its harness fetches packages, perhaps through a proxy with certificates of its own.
    let passed = "orchestra.pass_env=[\"SSL_CERT_FILE\"]";
    let mut args = vec!["train", &config, "--out", "sums"];
    let set = ["steps=3", "task.tasks_per_step=2", passed, &command];
    args.extend(set.iter().flat_map(|set| ["--set", set]));
    lab.run(&args).succeeded();
    let run = Run(lab.path("sums"));
    let rows = run.steps();
    assert_eq!(rows.len(), 3);
    let mut rewards = Vec::new();
    for (row, step) in rows.iter().zip(1..) {
        assert_eq!((&row["rollout/unscored"], &row["gateway/crashes"]), (&0.0.into(), &0.0.into()));
        for episode in run.episodes(step) {
            let question = &episode.task.question;
            let numbers = question.split(|c: char| !c.is_ascii_digit());
            let sum: u32 = numbers.filter_map(|number| number.parse::<u32>().ok()).sum();
            let said = episode.turns[0].reply.contains(&format!("<answer>{sum}</answer>"));
            assert_eq!(episode.score().unwrap().reward, f64::from(said), "{question}");
            rewards.push(said);
        }
    }
    println!(
        "{} of {} replies are right",
        rewards.iter().filter(|right| **right).count(),
        rewards.len()
    );
    assert!(rewards.contains(&true) && rewards.contains(&false));
}
