//! Configurations that the program brings, by their names, where there is no file of them.

use std::fs;

use maverl_tests::lab::{Lab, Run, stride};

use super::{Fixture, STAGES, programs_run};
use crate::lab;
use maverl::config::source::shipped_configs;

/// Examples that need what no test has: a verifier that a run before it trained, and Python packages.
const WITHOUT: [(&str, &str); 3] = [
    ("example:verifier/debate", "verifiers/sums"),
    ("example:programs/verifiers", "verifiers_env.py"),
    ("example:programs/messages", "messages.py"),
];

/// Runs the command line in an empty directory, with a cache of its own.
fn empty(lab: &Lab, args: &[&str]) -> maverl_tests::lab::Ended {
    let dir = lab.path("empty");
    fs::create_dir_all(&dir).unwrap();
    let mut command = lab.command(args);
    command.current_dir(dir).env("XDG_CACHE_HOME", lab.path("cache"));
    maverl_tests::lab::Ended::of(&command.output().unwrap())
}

/// Returns the names of the examples.
fn examples() -> Vec<String> {
    let names = shipped_configs().into_iter().map(|shipped| shipped.name.to_string());
    names.filter(|name| name.starts_with("example:")).collect()
}

/// True if this machine lacks what an example runs: a sandbox, or Python.
fn lacks(lab: &Lab, name: &str) -> bool {
    let runs_programs = name == "example:code" && empty(lab, &["check", name]).code != Some(0);
    let stages = name.ends_with("/stages") && stride(2) > 1;
    stages || runs_programs || name.contains("program") && crate::programs::without_python(name)
}

#[test]
fn every_example_is_accepted_by_its_name_in_an_empty_directory() {
    let lab = lab();
    let names = examples();
    assert!(names.len() >= 25, "{names:?}");
    for name in names {
        match WITHOUT.iter().find(|(without, _)| *without == name) {
            Some((_, wanted)) if name.contains("debate") => {
                empty(&lab, &["check", &name]).failed().says(&[wanted]);
            }
            _ if name == "example:code" => drop(empty(&lab, &["check", &name])),
            _ => drop(empty(&lab, &["check", &name]).succeeded()),
        }
    }
    assert_eq!(fs::read_dir(lab.path("empty")).unwrap().count(), 0);
}

#[test]
fn every_recipe_is_accepted_by_its_name_beside_its_models_and_data() {
    let fixture = Fixture::new();
    fs::remove_dir_all(fixture.lab.path("recipes")).unwrap();
    let names = fixture.recipes.iter().map(|recipe| (recipe.name.as_str(), Some(recipe)));
    let names = names.chain(STAGES.map(|name| (name, None)));
    for (name, recipe) in names.step_by(stride(3)) {
        if recipe.is_some_and(|recipe| {
            recipe.alone().is_some() || recipe.runs_programs() && !programs_run(&fixture, recipe)
        }) {
            continue;
        }
        let name = format!("recipe:{}", name.trim_end_matches(".toml"));
        fixture.lab.run(&["check", &name]).succeeded();
    }
}

#[test]
fn a_recipe_without_its_models_says_which_it_lacks_and_where_it_looked() {
    let lab = lab();
    let place = lab.path("empty").display().to_string();
    let check = ["check", "recipe:maverl/gsm8k-qwen2.5-3b-vdn"];
    empty(&lab, &check).failed().says(&[
        "there is no directory `models/Qwen2.5-3B`",
        &format!("{place}/models/Qwen2.5-3B"),
        "maverl/gsm8k-qwen2.5-3b-vdn.toml:",
    ]);
}

#[test]
fn examples_train_by_their_names_in_an_empty_directory() {
    let lab = lab();
    let all = examples();
    let always = ["example:program", "example:verifier"];
    for (i, name) in all.iter().enumerate() {
        let wanted = i.is_multiple_of(stride(9)) || always.contains(&name.as_str());
        if !wanted || WITHOUT.iter().any(|(other, _)| other == name) || lacks(&lab, name) {
            continue;
        }
        let out = name.replace([':', '/'], "-");
        empty(&lab, &["train", name, "--quick", "--out", &out]).succeeded();
        let run = Run(lab.path("empty").join(&out));
        let last = if name.ends_with("/stages") { Run(run.0.join("2-verifier")) } else { run };
        assert_eq!(last.json("summary.json")["complete"], true, "{name}");
    }
}

#[test]
fn a_run_by_name_is_that_of_the_file_and_has_its_name() {
    let lab = lab();
    let set = ["--set", "steps=1", "--set", "task.tasks_per_step=2", "--set", "eval.tasks=2"];
    let train = |config: &str| {
        empty(&lab, &[&["train", config], &set[..]].concat()).succeeded();
    };
    train("example:search_orchestra");
    empty(&lab, &["examples", "search_orchestra", "--write", "mine"]).succeeded().prints(&[
        "wrote mine/search_orchestra.toml",
        " train mine/search_orchestra.toml trains it",
    ]);
    train("mine/search_orchestra.toml");
    let run = |n: usize| Run(lab.path(&format!("empty/runs/search_orchestra-{n}")));
    run(1).equals(&run(2));
    let config = String::from_utf8(run(1).bytes("config.toml")).unwrap();
    assert!(config.contains("name = \"search/route\""), "{config}");
}

#[test]
fn written_examples_run_where_they_are_written() {
    let lab = lab();
    empty(&lab, &["examples", "verifier/stages", "--write"]).succeeded();
    empty(&lab, &["check", "verifier/stages.toml"]).succeeded();
    empty(&lab, &["examples", "recipe:mrlm/09-hybrid", "--write", "there"]).succeeded();
    assert!(lab.path("empty/there/recipes/mrlm/09-hybrid-2-ppo.toml").is_file());
    fs::write(lab.path("empty/verifier.toml"), "seed = 1").unwrap();
    empty(&lab, &["examples", "example:verifier", "--write"])
        .failed()
        .says(&["verifier.toml: it is there with another content"]);
}

#[test]
fn a_name_that_is_not_there_is_answered_with_the_next_one_in_every_command() {
    let lab = lab();
    for command in ["train", "check", "eval"] {
        empty(&lab, &[command, "example:serch_orchestra"]).failed().says(&[
            "there is no example `serch_orchestra`",
            "did you mean `example:search_orchestra`?",
        ]);
    }
    let collect = ["collect", "recipe:nothing", "--as", "sft", "--out", "data"];
    empty(&lab, &collect).failed().says(&["there is no recipe `nothing`", "`team examples`"]);
    fs::write(lab.path("empty/stages.toml"), "stages = [\"example:none\"]").unwrap();
    empty(&lab, &["check", "stages.toml"]).failed().says(&["there is no example `none`"]);
}
