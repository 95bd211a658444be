//! The top level of the repository, and the manifests of the crates that are published.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{CRATE_MAY_USE, none, root};

/// Names of the project at the top level: manifest, crates, configurations, tests and the book.
const PROJECT: [&str; 11] = [
    "Cargo.toml",
    "agents",
    "crates",
    "docs",
    "examples",
    "maverl",
    "maverl-kernels",
    "maverl-macros",
    "orchestras",
    "recipes",
    "tests",
];

/// Files that tools and readers look for at the top level of a repository.
const USUAL: [&str; 13] = [
    "AGENTS.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "clippy.toml",
    "justfile",
    "rustfmt.toml",
];

/// Returns the names at the top level that are neither hidden nor ignored by git.
fn shown() -> BTreeSet<String> {
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    let ignored: BTreeSet<&str> = ignored.lines().map(|line| line.trim_matches('/')).collect();
    let entries = fs::read_dir(root()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.') && !ignored.contains(name.as_str())).collect()
}

#[test]
fn the_top_level_has_the_names_of_the_project_and_usual_files() {
    let shown = shown();
    let all = PROJECT.iter().chain(&USUAL);
    let allowed: BTreeSet<String> = all.map(|name| (*name).to_owned()).collect();
    let others: Vec<&String> = shown.difference(&allowed).collect();
    assert!(others.is_empty(), "{others:?} belong into one of {PROJECT:?}");
    let missing: Vec<&str> = PROJECT.into_iter().filter(|name| !shown.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing");
}

#[test]
fn the_files_of_the_python_package_are_in_a_folder_of_the_command_line() {
    let folder = root().join("crates/cli/python");
    for name in ["pyproject.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        assert!(folder.join(name).is_file(), "crates/cli/python/{name}");
    }
}

/// Returns what a registry or docs.rs would miss in a crate. One that is not published names no page and no links.
fn lacks(dir: &str) -> Vec<String> {
    let home = root().join(dir);
    let manifest: toml::Table =
        fs::read_to_string(home.join("Cargo.toml")).unwrap().parse().unwrap();
    let package = manifest["package"].as_table().unwrap();
    if package.contains_key("publish") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for key in [
        "description",
        "version",
        "license",
        "repository",
        "rust-version",
        "keywords",
        "categories",
        "exclude",
    ] {
        if !package.contains_key(key) {
            problems.push(format!("{dir}/Cargo.toml: `package` has no `{key}`"));
        }
    }
    let docs = package.get("metadata").and_then(|metadata| metadata.get("docs")?.get("rs"));
    if docs.is_none_or(|docs| docs.get("targets").is_none()) {
        problems.push(format!("{dir}/Cargo.toml: docs.rs has no `targets`"));
    }
    // With them, `mpi` too, which needs an MPI library and libclang.
    if docs.is_some_and(|docs| docs.get("all-features").is_some()) {
        problems.push(format!("{dir}/Cargo.toml: docs.rs cannot build all features; name them"));
    }
    let readme = package.get("readme").and_then(toml::Value::as_str).unwrap_or("README.md");
    for file in [readme, "LICENSE-APACHE", "LICENSE-MIT"] {
        if !home.join(file).is_file() {
            problems.push(format!("{dir}: no `{file}`"));
        }
    }
    problems
}

#[test]
fn every_published_crate_has_what_registries_and_docs_rs_show() {
    let problems: Vec<String> = CRATE_MAY_USE.iter().flat_map(|(dir, _)| lacks(dir)).collect();
    none(&problems);
    let unpublished = |dir: &&&str| {
        let manifest = fs::read_to_string(root().join(dir).join("Cargo.toml")).unwrap();
        manifest.contains("publish.workspace = true")
    };
    let dirs: Vec<&str> = CRATE_MAY_USE.iter().map(|(dir, _)| *dir).collect();
    let found: BTreeSet<&str> = dirs.iter().filter(unpublished).copied().collect();
    assert_eq!(found, BTreeSet::from(["crates/lab", "examples", "tests"]));
}

#[test]
fn a_link_in_a_published_crate_leads_to_a_file_of_the_repository() {
    let mut dirs = vec![root().join("orchestras")];
    let mut links = 0;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                links += 1;
                let target = fs::read_link(&path).unwrap();
                assert!(!target.is_absolute() && path.exists(), "{}", path.display());
                assert!(path.canonicalize().unwrap().starts_with(root()), "{}", path.display());
            } else if path.is_dir() && path.file_name() != Path::new("src").file_name() {
                dirs.push(path);
            }
        }
    }
    assert!(links > 20, "{links}");
}
