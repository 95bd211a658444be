//! What must not compile, and what is said then.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The compiler whose words are recorded in `ui/fail/*.stderr`.
const RECORDED: &str = include_str!("ui/RUSTC");

/// To record anew: put `rustc --version` into `ui/RUSTC` and run with `TRYBUILD=overwrite`.
#[test]
fn mistakes_are_explained_word_for_word() {
    let compiler = compiler();
    if compiler == RECORDED.trim() {
        trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
    } else {
        println!("skipped: messages are recorded for {}, this is {compiler}", RECORDED.trim());
    }
}

/// On any compiler: the messages that are ours, and their lines.
#[test]
fn every_mistake_has_its_message_and_its_line() {
    let maverl = library();
    let mut cases = 0;
    for case in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/fail")).unwrap() {
        let case = case.unwrap().path();
        if case.extension().is_some_and(|extension| extension == "rs") {
            check(&case, &maverl);
            cases += 1;
        }
    }
    assert!(cases >= 30, "only {cases} cases were found");
}

fn check(case: &Path, maverl: &Path) {
    let found = compile(case, maverl);
    let recorded = fs::read_to_string(case.with_extension("stderr")).unwrap();
    let lines: Vec<&str> = recorded.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        // A message without a code is ours; of the compiler's own the first has our words.
        let ours = line.strip_prefix("error: ");
        let first = line.split_once("]: ").map(|(_, message)| message).filter(|_| i == 0);
        let Some(message) = ours.or(first) else { continue };
        let message = message.trim_start_matches("evaluation panicked: ");
        let message = message.replace("$DIR", env!("CARGO_MANIFEST_DIR"));
        let place = lines[i + 1].trim_start_matches([' ', '-', '>']);
        let (file, line) =
            place.rsplit_once(':').unwrap_or((place, "")).0.rsplit_once(':').unwrap();
        let file = file.rsplit('/').next().unwrap();
        let place = format!("{file}:{line}:");
        assert!(found.contains(&message), "{case:?}: no {message:?} in\n{found}");
        assert!(found.contains(&place), "{case:?}: no {place:?} in\n{found}");
    }
}

/// What the compiler says about a case, with the library this test is linked with.
fn compile(case: &Path, maverl: &Path) -> String {
    let out = env::temp_dir().join(format!("maverl-ui-{}", std::process::id()));
    fs::create_dir_all(&out).unwrap();
    let output = Command::new(rustc())
        .env("CARGO_PKG_NAME", "maverl-macros-tests") // as trybuild calls it
        .args(["--edition", "2024", "--emit", "metadata", "--out-dir"])
        .arg(&out)
        .arg("--extern")
        .arg(format!("maverl={}", maverl.display()))
        .arg("-L")
        .arg(format!("dependency={}", maverl.parent().unwrap().display()))
        .arg(case)
        .output()
        .unwrap();
    fs::remove_dir_all(&out).unwrap();
    assert!(!output.status.success(), "{case:?} compiles");
    String::from_utf8(output.stderr).unwrap()
}

/// The newest `libmaverl` beside this test.
fn library() -> PathBuf {
    let directory = env::current_exe().unwrap().parent().unwrap().to_owned();
    let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libmaverl-") && name.ends_with(".rlib")
    };
    let modified = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).unwrap();
    files.filter(is_library).max_by_key(modified).expect("this test is linked with maverl")
}

fn rustc() -> String {
    env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned())
}

fn compiler() -> String {
    let output = Command::new(rustc()).arg("--version").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
