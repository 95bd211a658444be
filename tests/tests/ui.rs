//! Code that must not compile, and the message for each mistake.
//!
//! On the compiler that `ui/RUSTC` names, the whole text must equal the recorded one; on every other, the messages of
//! maverl and their lines. To record, write the output of `rustc --version` into `ui/RUSTC`, run with
//! `MAVERL_RECORD=1`, and review the difference.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Compiler whose text is recorded in `ui/fail/*.stderr`.
const RECORDED: &str = include_str!("ui/RUSTC");

/// Beginnings of lines that are left out: the compiler's summary, and the place of a type's whole name.
const LEFT_OUT: [&str; 5] = [
    "error: aborting due to",
    "For more information about",
    "Some errors have detailed",
    "= note: the full name for the type has been written to",
    "= note: consider using `--verbose` to print the full type name",
];

/// Part of the path of a dependency's source, before the directory of the registry.
const DEPENDENCY: &str = "/registry/src/";

#[test]
fn every_mistake_has_its_message_and_its_line() {
    let (compiler, record) = (compiler(), env::var_os("MAVERL_RECORD"));
    let libraries = ["maverl", "maverl_cli"].map(|name| (name, library(name)));
    let exact = compiler == RECORDED.trim();
    if !exact {
        println!(
            "messages are recorded for {}: of {compiler} only ours are compared",
            RECORDED.trim()
        );
    }
    let out = tempfile::tempdir().unwrap();
    let mut cases = 0;
    for case in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/fail")).unwrap() {
        let case = case.unwrap().path();
        if case.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        cases += 1;
        let found = normalized(&compile(&case, &libraries, out.path()));
        if record.is_some() {
            fs::write(case.with_extension("stderr"), &found).unwrap();
        }
        let recorded = fs::read_to_string(case.with_extension("stderr")).unwrap();
        if exact {
            assert_eq!(unindented(&found), unindented(&recorded), "{case:?}:\n{found}");
        }
        has_our_messages(&case, &found, &recorded);
    }
    assert!(cases >= 30, "only {cases} cases were found");
}

/// Checks that each message of maverl was printed, with its place.
fn has_our_messages(case: &Path, found: &str, recorded: &str) {
    let lines: Vec<&str> = recorded.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        // A message without a code is maverl's; of the compiler's own, the first contains maverl's text.
        let ours = line.strip_prefix("error: ");
        let first = line.split_once("]: ").map(|(_, message)| message).filter(|_| i == 0);
        let Some(message) = ours.or(first) else { continue };
        let message = message.trim_start_matches("evaluation panicked: ");
        let place = lines[i + 1].trim_start_matches([' ', '-', '>']);
        let (place, _) = place.rsplit_once(':').unwrap();
        assert!(found.contains(message), "{case:?}: no {message:?} in\n{found}");
        assert!(found.contains(&format!("{place}:")), "{case:?}: no {place:?} in\n{found}");
    }
}

/// Replaces parts that depend on the machine or on the state of the library's sources: directories, places in the
/// library and in dependencies, and numbers of other impls.
fn normalized(text: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = tests.parent().unwrap().display().to_string();
    let text = text.replace(&tests.display().to_string(), "$DIR").replace(&workspace, "$WORKSPACE");
    // Paths that the compiler was given relative to the workspace.
    let text = text
        .replace(" tests/tests/ui/", " tests/ui/")
        .replace(" maverl/src/", " $WORKSPACE/maverl/src/");
    let (mut lines, mut in_library) = (Vec::new(), false);
    let is_kept = |line: &&str| !LEFT_OUT.iter().any(|start| line.trim_start().starts_with(start));
    for line in text.lines().filter(is_kept).map(without_registry) {
        let (line, start) = (line.as_str(), line.trim_start());
        if let Some(place) = start.strip_prefix("--> ").or(start.strip_prefix("::: ")) {
            in_library = ["$WORKSPACE", "$REGISTRY"].iter().any(|start| place.starts_with(start));
        }
        let number = start.trim_start_matches(|c: char| c.is_ascii_digit());
        lines.push(match (in_library, line.split_once(".rs:")) {
            (true, Some((file, _))) => format!("{file}.rs"),
            (true, None) if number.starts_with(" |") => format!(" {number}"),
            _ => match start.strip_prefix("and ").and_then(|rest| rest.strip_suffix(" others")) {
                Some(_) => format!("{}and $N others", &line[..line.len() - start.len()]),
                None => line.to_owned(),
            },
        });
        let is_place = line.contains("$WORKSPACE") || line.contains("$REGISTRY");
        in_library &= is_place || number.starts_with([' ', '|', '.']);
    }
    format!("{}\n", lines.join("\n").trim_end())
}

/// Returns a line with `$REGISTRY` for the directory of the dependencies.
fn without_registry(line: &str) -> String {
    let dependency = line.split_once("--> ").zip(line.split_once(DEPENDENCY));
    match dependency.and_then(|((gutter, _), (_, path))| Some((gutter, path.split_once('/')?.1))) {
        Some((gutter, path)) => format!("{gutter}--> $REGISTRY/{path}"),
        None => line.to_owned(),
    }
}

/// Returns the lines without their gutter, whose width is that of line numbers.
fn unindented(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_start).collect()
}

/// Returns the compiler's text about a case, with the libraries that this test is linked with.
fn compile(case: &Path, libraries: &[(&str, PathBuf)], out: &Path) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(rustc())
        .current_dir(workspace)
        .env("CARGO_PKG_NAME", "maverl-macros-tests")
        .args(["--edition", "2024", "--emit", "metadata", "--out-dir"])
        .arg(out)
        .args(libraries.iter().map(|(name, path)| format!("--extern={name}={}", path.display())))
        .arg("-L")
        .arg(format!("dependency={}", libraries[0].1.parent().unwrap().display()))
        .arg(case.strip_prefix(workspace).unwrap())
        .output()
        .unwrap();
    assert!(!output.status.success(), "{case:?} compiles");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the newest library of a name beside this test.
fn library(library: &str) -> PathBuf {
    let start = format!("lib{library}-");
    let directory = env::current_exe().unwrap().parent().unwrap().to_owned();
    let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(&start) && name.ends_with(".rlib")
    };
    let modified = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).unwrap();
    files.filter(is_library).max_by_key(modified).expect("this test is linked with it")
}

fn rustc() -> String {
    env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned())
}

fn compiler() -> String {
    let output = Command::new(rustc()).arg("--version").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
