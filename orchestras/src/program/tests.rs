#![allow(clippy::unwrap_used)]

use maverl::env::math::MathEnvironment;
use maverl::registry::Registry;
use maverl::rollout::Scripted;

use super::*;
use crate::testing::task;

fn shell(text: &str, models: &[&str]) -> Run {
    let options = ProgramOptions {
        command: ["sh", "-c", text].map(str::to_owned).into(),
        models: models.iter().map(|name| (*name).to_owned()).collect(),
        ..ProgramOptions::default()
    };
    Run { options, gateway: None }
}

#[test]
fn a_program_is_an_orchestra_with_a_seat_for_each_model() {
    let registry = Registry::collect().unwrap();
    assert!(registry.agents.contains_key("program/agent"));
    assert!(registry.orchestras["program/run"].needs.is_empty());
    let seats: Vec<String> = shell("", &["a", "b"]).members().iter().map(Seat::to_string).collect();
    assert_eq!(seats, ["program/agent#0", "program/agent#1"]);
    let problems = Run::default().validate(Path::new("")).unwrap_err();
    assert!(
        problems.iter().any(|problem| problem.starts_with("`command` is empty")),
        "{problems:?}"
    );
    assert!(
        problems.iter().any(|problem| problem.starts_with("`models` is empty")),
        "{problems:?}"
    );
}

#[test]
fn a_program_depends_on_its_sources_and_on_the_files_of_its_directory() {
    let mut run = shell("", &["a"]);
    run.options.sources = vec!["Cargo.toml".to_owned(), "src/program/tests.rs".to_owned()];
    run.options.files = "src/program".to_owned();
    run.start(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(run.sources(), ["Cargo.toml", "src/program/tests.rs"]);
    run.options.files = "src/search".to_owned();
    run.options.sources.clear();
    run.start(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let found = run.sources();
    assert!(
        !found.is_empty() && found.iter().all(|name| name.starts_with("src/search/")),
        "{found:?}"
    );
    // However it is written, as a run that is resumed may have it.
    run.options.files = "././src/search".to_owned();
    run.start(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(run.sources(), found);
}

#[test]
fn the_environment_judges_the_answer_of_a_program() {
    let mut run = shell("read -r line; echo \"$line\" >&2; echo '{\"answer\": \"42\"}'", &["a"]);
    run.start(Path::new("")).unwrap();
    let scripted = Scripted::new(run, MathEnvironment::default(), |_, _| String::new());
    // Each episode has a runtime of its own here, and the gateway goes on with it.
    for _ in 0..2 {
        let episode = scripted.play_blocking(&task());
        assert!(episode.score().is_some_and(|score| score.solved), "{:?}", episode.outcome);
    }
}
