//! Rules of the pages for people who change the code: their lengths, and that what they name is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{CRATES, LAYERED, is_test, none, place, root, rust_files};

/// Most lines and words of the pages.
const LONGEST_PAGES: [(&str, usize, usize); 2] =
    [("ARCHITECTURE.md", 350, 3500), ("CONTRIBUTING.md", 120, 1800)];

#[test]
fn the_pages_for_contributors_are_read_in_one_sitting() {
    for (page, most_lines, most_words) in LONGEST_PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let (lines, words) = (text.lines().count(), text.split_whitespace().count());
        assert!(lines <= most_lines && words <= most_words, "{page}: {lines} lines, {words} words");
    }
}

/// A file of a crate that `maverl new` writes, which is as short as it can be.
const TEMPLATE: &str = "crates/cli/src/new/main.rs";

/// Returns the first sentence of the documentation of a module.
fn first_sentence(text: &str) -> Option<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<&str> = lines.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let ends = |end: &str| paragraph.find(end).map(|at| at + 1);
    let end = [". ", ": "].into_iter().filter_map(ends).min();
    let end = end.or_else(|| paragraph.ends_with(['.', ':']).then_some(paragraph.len()))?;
    Some(paragraph[..end].to_owned())
}

#[test]
fn every_module_begins_with_a_sentence_that_says_what_it_is() {
    let mut problems = Vec::new();
    for dir in CRATES.iter().map(|name| root().join(name)) {
        for path in rust_files(&dir) {
            // The tests of a module are in the module's folder; their name says what they are.
            let of_module = path.starts_with(dir.join("src")) && is_test(&path);
            let exempt = of_module || path.ends_with(TEMPLATE);
            if !exempt && first_sentence(&fs::read_to_string(&path).unwrap()).is_none() {
                problems.push(format!("{}: begin with `//! ..`", place(&path, 0)));
            }
        }
    }
    none(&problems);
}

#[test]
fn the_first_sentence_of_a_module_ends_where_it_ends() {
    assert_eq!(first_sentence("//! Rows of\n//! a step. More.\n"), Some("Rows of a step.".into()));
    assert_eq!(first_sentence("//! `#[agent]`.\n\nmod parse;\n"), Some("`#[agent]`.".into()));
    assert_eq!(first_sentence("//! Rows\n//!\n//! of a step.\n"), None);
    assert_eq!(first_sentence("use std::fs;\n"), None);
}

/// Endings of names of files that are in the repository.
const SOURCES: [&str; 12] =
    [".rs", ".md", ".toml", ".py", ".js", ".ts", ".cu", ".cuh", ".cpp", ".proto", ".sh", ".lock"];

/// Returns the names that a name with alternatives in braces stands for, as in a shell: `a/{b,c}.rs`.
fn alternatives(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let Some((group, after)) = rest.split_once('}') else { return vec![name.to_owned()] };
    let all = group.split(',').flat_map(|part| alternatives(&format!("{before}{part}{after}")));
    all.collect()
}

/// Returns true if a file or folder has a name, in which `*` and `NAME` stand for anything.
fn is_there(below: &Path, name: &str) -> bool {
    let (first, rest) = name.split_once('/').map_or((name, None), |(a, b)| (a, Some(b)));
    let open = first.split_once("NAME").or(first.split_once('*'));
    let found: Vec<PathBuf> = match open {
        None => vec![below.join(first)],
        Some((before, after)) => {
            let entries = fs::read_dir(below).into_iter().flatten().flatten();
            let fits = entries.filter(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                name.starts_with(before) && name.ends_with(after)
            });
            fits.map(|entry| entry.path()).collect()
        }
    };
    match rest.filter(|rest| !rest.is_empty()) {
        None => found.iter().any(|path| path.exists()),
        Some(rest) => found.iter().any(|path| is_there(path, rest)),
    }
}

/// Returns the paths in a line of a page: what is marked as code, and has the ending of a source or begins with a folder of
/// the repository.
fn paths(line: &str) -> Vec<String> {
    let code = line.split('`').skip(1).step_by(2);
    let path = |code: &&str| {
        let plain = code.chars().all(|c| c.is_alphanumeric() || "_-./{},*".contains(c));
        let folder = code.split_once('/').is_some_and(|(first, _)| root().join(first).is_dir());
        plain && (folder || code.contains('/') && SOURCES.iter().any(|end| code.ends_with(end)))
    };
    code.filter(path).flat_map(alternatives).collect()
}

#[test]
fn every_path_that_a_page_names_exists() {
    let mut problems = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(|page| root().join(page)) {
        let text = fs::read_to_string(&page).unwrap();
        // Below the heading of a crate, paths may be relative to its sources.
        let mut crates = Vec::new();
        for (i, line) in text.lines().enumerate() {
            if line.starts_with('#') {
                let names = line.split('`').skip(1).step_by(2);
                crates = names.map(|name| root().join(name).join("src")).collect();
            }
            for path in paths(line) {
                let found = is_there(&root(), &path) || crates.iter().any(|at| is_there(at, &path));
                if !found {
                    problems.push(format!("{}: there is no `{path}`", place(&page, i)));
                }
            }
        }
    }
    none(&problems);
}

#[test]
fn paths_are_found_however_they_are_written() {
    assert_eq!(alternatives("a/{b,c/d}.rs"), ["a/b.rs", "a/c/d.rs"]);
    assert_eq!(
        paths("`maverl/src` `x::y` `a b.rs` `step/x.rs` `jsonl`"),
        ["maverl/src", "step/x.rs"]
    );
    let there = |name: &str| is_there(&root(), name);
    assert!(
        there("maverl/src/train/step.rs")
            && there("maverl/src/")
            && there("maverl/src/env/NAME.rs")
    );
    assert!(there("maverl-kernels/src/cuda/*.cu") && there("crates/view/web/page_NAME.js"));
    assert!(!there("maverl/src/train/stride.rs") && !there("maverl/NAME.js"));
}

#[test]
fn the_code_map_has_every_crate_and_every_module_with_a_row() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = page.split("\n## Code map\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let (mut crates, mut modules) = (BTreeSet::new(), BTreeSet::new());
    for line in map.lines() {
        let names = |text: &str| -> Vec<String> {
            text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        if let Some(heading) = line.strip_prefix("### ") {
            crates.extend(names(heading));
        }
        // Modules are in bold: **`task`**.
        modules.extend(line.split("**").skip(1).step_by(2).flat_map(names));
    }
    let missing = |wanted: Vec<&str>, found: &BTreeSet<String>| -> Vec<String> {
        wanted.into_iter().filter(|name| !found.contains(*name)).map(str::to_owned).collect()
    };
    assert_eq!(missing(CRATES.to_vec(), &crates), [""; 0], "crates without a paragraph");
    let rows = LAYERED.iter().flat_map(|(_, table)| table.iter().map(|(name, _)| *name));
    assert_eq!(missing(rows.collect(), &modules), [""; 0], "modules without a paragraph");
}

#[test]
fn every_dependency_of_the_workspace_has_its_reason_beside_it() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = manifest.split("\n[workspace.dependencies]\n").nth(1).unwrap();
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let others = lines.filter(|line| line.contains(" = ") && !line.contains("path = "));
    let bare = others.filter(|line| !line.contains(" # "));
    assert_eq!(bare.collect::<Vec<_>>(), [""; 0], "no reason");
}

#[test]
fn every_recipe_that_a_page_names_exists() {
    let justfile = fs::read_to_string(root().join("justfile")).unwrap();
    let heads = justfile.lines().filter(|line| line.contains(':') && !line.starts_with([' ', '#']));
    let recipes: BTreeSet<&str> = heads.filter_map(|line| line.split([' ', ':']).next()).collect();
    let mut problems = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(|page| root().join(page)) {
        let text = fs::read_to_string(&page).unwrap();
        for (i, line) in text.lines().enumerate() {
            let named =
                line.split("`just ").skip(1).filter_map(|rest| rest.split([' ', '`']).next());
            let missing = named.filter(|name| !recipes.contains(name));
            problems.extend(missing.map(|name| format!("{}: no recipe `{name}`", place(&page, i))));
        }
    }
    none(&problems);
}

/// Returns the names of invariants in a text, such as K-1 and RT-2.
fn invariants(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let families = ["AL", "K", "MO", "RO", "RT"];
    let named = words.filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            families.contains(&family) && number.parse::<u8>().is_ok()
        })
    });
    named.map(str::to_owned).collect()
}

#[test]
fn every_invariant_that_the_code_names_is_defined_on_the_page() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let defined = page.split("**Architecture invariant (").skip(1);
    let defined: BTreeSet<&str> = defined.filter_map(|rest| rest.split(')').next()).collect();
    let mut problems = Vec::new();
    for path in CRATES.iter().flat_map(|name| rust_files(&root().join(name))) {
        for (i, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            for name in invariants(line).iter().filter(|name| !defined.contains(name.as_str())) {
                problems.push(format!("{}: `{name}` is not defined", place(&path, i)));
            }
        }
    }
    none(&problems);
    assert_eq!(invariants("by K-1 and (RT-2), not FK-1, K-x").len(), 2);
}

/// Returns the value of a number that a file declares, such as `const A: usize = 4 << 20;`.
fn declared(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let line = text.lines().find(|line| line.contains(&format!(" {name}: ")));
    let line = line.unwrap_or_else(|| panic!("{file}: no {name}"));
    let digits = |text: &str| -> u64 {
        let start = text.trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = start.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(start.len());
        start[..end].replace('_', "").parse().unwrap_or_else(|_| panic!("{file}: {line}"))
    };
    // Of a type before the number, such as `usize`, no digit counts.
    let value = line.split_once(" = ").map_or(line, |(_, value)| value);
    let value = value.rsplit("::").next().unwrap();
    match value.split_once("<<") {
        Some((number, bits)) => digits(number) << digits(bits),
        None => digits(value),
    }
}

/// Returns a whole number with separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(|group| str::from_utf8(group).unwrap());
    let first = [&digits[..first]].into_iter().filter(|first| !first.is_empty());
    first.chain(groups).collect::<Vec<_>>().join(",")
}

#[test]
fn the_figures_of_the_page_about_servers_are_those_of_the_code() {
    let page = fs::read_to_string(root().join("docs/src/serving.md")).unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let serve = |file: &str, name: &str| declared(&format!("crates/serve/src/{file}"), name);
    let limits = |name: &str| {
        let text = fs::read_to_string(root().join("crates/serve/src/listener/limits.rs")).unwrap();
        let default = text.split("fn default()").nth(1).unwrap();
        let line = default.lines().find(|line| line.trim().starts_with(&format!("{name}: ")));
        let value = line.unwrap().split_once(": ").unwrap().1;
        let digits = value.chars().skip_while(|c| !c.is_ascii_digit());
        let number: String = digits.take_while(char::is_ascii_digit).collect();
        number.parse::<u64>().unwrap()
    };
    let stated = [
        format!("| values in the JSON of a body | {} |", grouped(serve("body.rs", "MOST_VALUES"))),
        format!("times 1 + n | {} |", grouped(serve("openai/limits.rs", "MOST_LISTED"))),
        format!(
            "{} MiB of requests above {} KiB; a larger request is read alone",
            serve("model/reading.rs", "AT_ONCE") >> 20,
            serve("model/reading.rs", "SMALL") >> 10
        ),
        format!(
            "{} MiB of those above {} KiB; then clients wait",
            serve("body.rs", "MEMORY") >> 20,
            serve("body.rs", "SMALL") >> 10
        ),
        format!("{} connections (`--max-connections`)", limits("connections")),
        format!("{} for each address beyond this machine", limits("connections_per_peer")),
        format!(
            "{} KiB (at most twice that) and {} seconds for the head",
            limits("head_bytes"),
            limits("head")
        ),
        format!("{} seconds for its body", serve("body.rs", "PATIENCE")),
        format!("reads nothing of its answer for {} seconds", limits("write")),
        format!("a stream waits with at most {} events", serve("stream.rs", "EVENTS")),
        format!(
            "an answer over HTTP/2 with {} KiB",
            serve("listener/http2/unread.rs", "LARGEST") >> 10
        ),
        format!(
            "with {} concurrent requests for a connection",
            serve("listener/http2.rs", "STREAMS")
        ),
        format!("at most {} KiB and", serve("model/grammar.rs", "LARGEST") >> 10),
        format!(
            "and {} values, the schemas of tools included",
            grouped(serve("model/grammar.rs", "MOST_VALUES"))
        ),
        format!("{} prompts of the whole context", serve("model/completions.rs", "MOST_PROMPTS")),
    ];
    for stated in stated {
        assert!(page.contains(&stated), "docs/src/serving.md does not say {stated:?}");
    }
}

#[test]
fn the_commands_of_the_readme_are_recipes() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let commands = block.lines().map(|line| line.split(" #").next().unwrap().trim());
    let commands: Vec<&str> = commands.filter(|line| line.starts_with("cargo ")).collect();
    let recipes = fs::read_to_string(root().join("justfile")).unwrap();
    assert!(commands.len() >= 2, "{commands:?}");
    for command in commands {
        let is_recipe = recipes.lines().any(|line| line.trim() == command);
        assert!(is_recipe, "no recipe of the justfile is `{command}`");
        if let Some((_, name)) = command.split_once("--example ") {
            assert!(root().join(format!("examples/{name}.rs")).is_file(), "{command}");
        }
    }
    assert!(
        fs::read_to_string(root().join(".ci/run"))
            .unwrap()
            .contains("for part in fmt lint doc test; do")
    );
}
