//! The Python package, with the program of the tests: `tests/python/package_tests.py`, the examples of its pages, and its types.

use std::path::{Path, PathBuf};
use std::process::Command;

use maverl_tests::lab::{Ended, Lab};

use crate::lab;

/// Returns a path of the checkout.
fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns the Python of the tests: that of the variable, one that `just clients` made, or that of the machine. Without one, says
/// that the test is skipped.
fn python() -> Option<PathBuf> {
    let given = std::env::var_os("MAVERL_TEST_PYTHON").map(PathBuf::from);
    let made = Some(checkout("tests/python/.venv/bin/python")).filter(|path| path.is_file());
    let mut pythons = given.into_iter().chain(made).chain(["python3".into()]);
    let is_new = "import sys; sys.exit(sys.version_info < (3, 8))";
    let found = pythons.find(|python| {
        Command::new(python).args(["-c", is_new]).status().is_ok_and(|status| status.success())
    });
    if found.is_none() {
        println!("skipped: there is no Python 3.8 or newer here");
    }
    found
}

/// Returns a command of Python that imports the package of the checkout.
fn python_command(lab: &Lab, python: &Path) -> Command {
    let mut command = lab.command(&[]);
    let program = command.get_program().to_owned();
    let mut python = Command::new(python);
    python.current_dir(lab.path("")).env("PYTHONPATH", checkout("crates/cli/python/src"));
    for (name, value) in command.env("MAVERL_BINARY", program).get_envs() {
        match value {
            Some(value) => python.env(name, value),
            None => python.env_remove(name),
        };
    }
    python
}

/// Runs a class of the tests of the package, and prints which of its tests were skipped.
fn pass(class: &str) {
    let Some(python) = python() else { return };
    let lab = lab();
    let tests = checkout("tests/python/package_tests.py");
    let ended = Ended::of(&python_command(&lab, &python).arg(tests).arg(class).output().unwrap());
    let skipped = ended.stderr.lines().filter(|line| line.contains("skipped"));
    skipped.for_each(|line| println!("{line}"));
    ended.succeeded();
}

#[test]
fn a_run_from_python_is_followed_and_is_that_of_the_command_line() {
    pass("Training");
    pass("Following");
}

#[test]
fn a_run_ends_with_the_python_that_started_it_and_goes_on_where_it_was() {
    pass("Ends");
}

#[test]
fn python_reads_the_metrics_the_episodes_and_the_rows_of_a_run() {
    pass("Reading");
}

#[test]
fn a_run_is_served_from_python_until_the_end_of_a_block() {
    pass("Serving");
}

#[test]
fn a_worker_in_python_plays_episodes_to_the_end_of_a_run_and_says_how_each_ends() {
    pass("Worker");
}

/// Program that runs each text of a list in turn as the examples of a page. Those that need a package that is not there are skipped.
const EXAMPLES: &str = r#"
import json, sys
import maverl
names = {}
for example in json.loads(sys.argv[1]):
    try:
        exec(compile(example, "an example of the page", "exec"), names)
    except maverl.Error as error:
        if "there is no package" not in str(error):
            raise
        print("skipped:", error)
"#;

/// Returns the Python examples of a page.
fn examples(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(checkout(page)).unwrap();
    let parts = text.split("```python\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_examples_of_the_pages_about_python_run() {
    let Some(python) = python() else { return };
    for page in ["docs/src/from_python.md", "crates/cli/python/README.md"] {
        let lab = lab();
        let examples = serde_json::to_string(&examples(page)).unwrap();
        let mut command = python_command(&lab, &python);
        let ended = Ended::of(&command.args(["-c", EXAMPLES, &examples]).output().unwrap());
        println!("{page}: {}", ended.stdout);
        let ended = ended.succeeded();
        let is_run = ended.stdout.contains("did you mean \"grpo\"?");
        assert!(is_run || page.ends_with("README.md"), "{ended}");
    }
}

#[test]
fn type_checkers_accept_the_package_and_what_uses_it() {
    let Some(python) = python() else { return };
    let (project, path) = (checkout("crates/cli/python"), python.to_str().unwrap());
    let page = examples("docs/src/from_python.md").concat();
    let used = lab();
    used.write("used.py", &page);
    for (module, args) in [
        ("mypy", &["-m", "mypy", "--cache-dir=/dev/null"][..]),
        ("pyright", &["-m", "pyright", "--pythonpath", path]),
    ] {
        let finds = format!("import {module}");
        if !Command::new(&python).args(["-c", &finds]).output().unwrap().status.success() {
            println!("skipped: there is no {module} here; `just clients` installs it");
            continue;
        }
        Ended::of(&Command::new(&python).args(args).current_dir(&project).output().unwrap())
            .succeeded();
        if module == "mypy" {
            let file = used.path("used.py");
            let mut strict = Command::new(&python);
            strict.args(args).arg("--strict").arg(file).env("MYPYPATH", project.join("src"));
            Ended::of(&strict.current_dir(&project).output().unwrap()).succeeded();
        }
    }
}
