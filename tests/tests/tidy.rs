//! Rules of the code as data: dependencies between modules, lengths of files, forbidden words.
#![allow(clippy::unwrap_used)]

#[path = "tidy/data_path.rs"]
mod data_path;
#[path = "tidy/layout.rs"]
mod layout;
#[path = "tidy/pages.rs"]
mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates of the workspace, by folder, and those that each may depend on.
const CRATE_MAY_USE: &[(&str, &[&str])] = &[
    ("crates/answers", &[]),
    ("crates/models", &[]),
    ("maverl-kernels", &[]),
    ("crates/jinja", &[]),
    ("maverl-macros", &[]),
    ("crates/settings", &["maverl-macros"]),
    ("crates/dist", &["crates/settings", "maverl-kernels"]),
    ("crates/hub", &["crates/settings"]),
    (
        "crates/engine",
        &[
            "crates/dist",
            "crates/hub",
            "crates/jinja",
            "crates/models",
            "crates/settings",
            "maverl-kernels",
        ],
    ),
    ("crates/sandbox", &[]),
    (
        "maverl",
        &[
            "crates/answers",
            "crates/dist",
            "crates/engine",
            "crates/hub",
            "crates/settings",
            "maverl-kernels",
            "maverl-macros",
            "crates/sandbox",
        ],
    ),
    ("crates/serve", &["crates/answers", "maverl", "maverl-kernels"]),
    ("crates/view", &["crates/serve", "maverl"]),
    ("agents", &["maverl"]),
    ("orchestras", &["crates/serve", "maverl", "agents"]),
    // The program `maverl` contains the teams, the library does not.
    (
        "crates/cli",
        &[
            "crates/answers",
            "crates/serve",
            "crates/view",
            "maverl",
            "maverl-kernels",
            "crates/sandbox",
            "orchestras",
        ],
    ),
    (
        "crates/lab",
        &["maverl", "crates/cli", "crates/serve", "maverl-kernels", "agents", "orchestras"],
    ),
    ("examples", &["maverl", "crates/engine", "agents", "orchestras"]),
    ("tests", &["maverl", "crates/cli", "maverl-kernels", "orchestras"]),
];

/// Modules of `maverl-engine`. In the table of `maverl`, they are above its own.
const ENGINE_MAY_USE: &[(&str, &[&str])] = &[
    ("message", &[]),
    ("loss", &["settings"]),
    ("files", &[]),
    ("text", &["files", "message"]),
    ("net", &["files", "message", "text"]),
    ("runtime", &["files", "loss", "message", "net", "settings", "text"]),
];

/// Modules of `maverl` and of the engine that each module may use; itself always, and `crate` macros and re-exports never.
const MAY_USE: &[(&str, &[&str])] = &[
    // Plain data.
    ("task", &["message"]),
    ("trajectory", &["message", "task"]),
    ("rng", &[]),
    ("output", &[]),
    ("table", &["output"]),
    ("map", &[]),
    // The resolved algorithm holds the declared estimator and surrogate; options of the engine are its own types.
    (
        "config",
        &[
            "credit", "dist", "loss", "net", "output", "runtime", "settings", "table", "text",
            "tools",
        ],
    ),
    // Servers of others, and Python of users.
    ("client", &[]),
    ("python", &[]),
    // Declarations.
    ("agent", &["trajectory"]),
    ("reward", &["trajectory"]),
    // Estimators and surrogates: plain data and arithmetic, so that plans can hold them. Steps are generated, to compare
    // a kernel with its estimator.
    ("credit", &["loss", "rng", "settings"]),
    ("tools", &["agent", "task", "text"]),
    ("builtin", &["rng", "task"]),
    ("data", &["client", "config", "text", "rng", "task", "trajectory", "builtin"]),
    (
        "env",
        &["client", "data", "python", "rng", "files", "net", "text", "task", "tools", "builtin"],
    ),
    ("ballot", &["rng", "env"]),
    ("orchestra", &["agent", "env", "task", "tools", "trajectory"]),
    (
        "registry",
        &[
            "agent",
            "credit",
            "env",
            "loss",
            "orchestra",
            "reward",
            "settings",
            "task",
            "tools",
            "trajectory",
        ],
    ),
    // Meaning of a configuration.
    (
        "plan",
        &[
            "config",
            "credit",
            "dist",
            "loss",
            "files",
            "net",
            "runtime",
            "table",
            "tools",
            "trajectory",
        ],
    ),
    (
        "check",
        &[
            "client",
            "config",
            "data",
            "files",
            "loss",
            "net",
            "text",
            "orchestra",
            "output",
            "plan",
            "python",
            "registry",
            "runtime",
            "settings",
            "table",
            "task",
            "tools",
            "trajectory",
        ],
    ),
    // Parts of a step.
    ("algo", &["config", "credit", "loss", "plan", "rng", "runtime", "trajectory"]),
    (
        "rollout",
        &[
            "agent",
            "client",
            "config",
            "data",
            "env",
            "files",
            "net",
            "text",
            "orchestra",
            "plan",
            "python",
            "registry",
            "retry",
            "reward",
            "runtime",
            "task",
            "tools",
            "trajectory",
        ],
    ),
    // Statistics of verifiers.
    ("verifier", &["rng"]),
    // Output of a run.
    ("metrics", &["trajectory"]),
    ("eval", &["ballot", "config", "rng", "metrics", "table", "trajectory"]),
    ("run_dir", &["config", "metrics", "task", "trajectory"]),
    ("checkpoint", &["metrics", "run_dir", "runtime", "trajectory"]),
    ("collect", &["rng", "run_dir", "task", "trajectory"]),
    (
        "train",
        &[
            "algo",
            "checkpoint",
            "config",
            "credit",
            "data",
            "dist",
            "rng",
            "eval",
            "metrics",
            "files",
            "net",
            "text",
            "output",
            "plan",
            "registry",
            "rollout",
            "run_dir",
            "runtime",
            "table",
            "task",
            "trajectory",
            "verifier",
        ],
    ),
];

/// Modules that the servers of models and teams may use.
const SERVER_OF_MODELS_MAY_USE: &[&str] =
    &["anthropic", "base", "body", "guard", "metrics", "openai", "queue", "refusal", "stream"];

/// Modules of `maverl-serve`.
const SERVE_MAY_USE: &[(&str, &[&str])] = &[
    ("refusal", &[]),
    ("metrics", &[]),
    ("key", &[]),
    ("tls", &[]),
    ("body", &["refusal"]),
    ("base", &["metrics", "refusal"]),
    ("stream", &["metrics", "refusal"]),
    ("guard", &["key", "refusal"]),
    ("listener", &["guard", "refusal", "tls"]),
    ("queue", &["guard", "metrics", "refusal"]),
    ("openai", &["body", "refusal", "stream"]),
    ("anthropic", &["openai", "refusal", "stream"]),
    ("retriever", &["body", "listener", "refusal"]),
    ("reward", &["base", "body", "guard", "metrics", "queue", "refusal"]),
    ("environments", &["base", "body", "guard", "key", "metrics", "openai", "refusal"]),
    ("tinker", &["base", "body", "metrics", "refusal"]),
    ("model", SERVER_OF_MODELS_MAY_USE),
    ("team", SERVER_OF_MODELS_MAY_USE),
    (
        "gateway",
        &[
            "anthropic",
            "base",
            "body",
            "guard",
            "key",
            "listener",
            "metrics",
            "openai",
            "refusal",
            "stream",
        ],
    ),
];

/// Modules of `maverl-view`.
const VIEW_MAY_USE: &[(&str, &[&str])] = &[
    ("json", &[]),
    ("compact", &[]),
    ("report", &["compact", "json"]),
    ("pages", &["compact", "json", "report"]),
    ("extract", &["compact", "json", "report"]),
];

/// Parts of the module `report` of `maverl-view`. Each uses those before it.
const REPORT_PARTS: [&str; 5] = ["reading", "rows", "analyses", "notices", "watched"];

/// Traits of the module `map` and macros, which all modules may use.
const EVERYWHERE: [&str; 4] = ["IntoMap", "TryIntoMap", "lacks_feature", "behind_feature"];

/// Top-level modules, which may use all others, and which no other may use.
const TOP: &[&str] = &["lib", "cli", "__private"];

/// Words that the code of a module must not contain, since it must not depend on their subject. A part of a module has a row
/// of its own in place of that of the module.
const MUST_NOT_KNOW: &[(&str, &[&str])] = &[
    // AL-1: no file, clock or random number affects an update.
    (
        "algo",
        &["std::fs", "std::io", "std::env", "std::time", "Instant", "SystemTime", "rand", "tokio"],
    ),
    (
        "loss",
        &["std::fs", "std::io", "std::env", "std::time", "Instant", "SystemTime", "rand", "tokio"],
    ),
    ("files", &["tokio", "std::time"]),
    ("text", &["tokio", "std::time"]),
    ("net", &["tokio", "std::time"]),
    ("plan", &["std::thread", "tokio", "rayon", "Tensor", "std::time"]),
    ("config", &["Tensor", "std::fs", "tokio", "std::env"]),
    ("config/source", &["Tensor", "tokio", "std::thread", "std::net::Tcp"]),
    ("check", &["Tensor", "tokio", "std::thread"]),
    ("check/team", &["Tensor", "tokio", "std::thread", "std::fs", "std::env", "std::io"]),
    ("orchestra", &["Tensor", "figment", "toml"]),
    ("agent", &["Tensor", "figment", "toml", "tokio"]),
    ("metrics", &["Instant", "SystemTime", "std::time"]),
    ("trajectory", &["Tensor", "std::fs", "tokio"]),
    ("rollout", &["Tensor", "Instant", "SystemTime"]),
    ("train", &["clap", "Tensor"]),
    ("report", &["axum", "http", "tokio", "StatusCode"]),
];

/// Maximum number of lines of a file, tests excluded.
const LONGEST: usize = 400;

/// Maximum number of lines of a function.
const LONGEST_FUNCTION: usize = 60;

/// Words that must not occur in code.
const NEVER: &[&str] = &["todo!", "unimplemented!", "dbg!", "FIXME", "XXX"];

/// Workspace dependencies that no code names, with the reason for each.
const UNNAMED: &[(&str, &str)] = &[
    ("prost", "generated code of a protocol names it, and no other"),
    ("tonic-prost", "the same"),
    ("gemm", "its feature turns AVX-512 on for candle's own dependency on it, in benchmarks"),
    ("proptest", "in `tests`, so that what other crates test with asks for no features of its own"),
    ("futures-core", "with the features that servers ask of it, in programs without servers too"),
    ("http", "the same"),
    ("httparse", "the same"),
    ("serde_core", "the same"),
    ("smallvec", "the same"),
    ("libloading", "in a file of `crates/dist` that tests of the engine include"),
];

const CRATES: &[&str] = &[
    "crates/answers",
    "crates/dist",
    "crates/hub",
    "crates/lab",
    "crates/models",
    "crates/serve",
    "crates/settings",
    "crates/view",
    "maverl",
    "crates/cli",
    "crates/engine",
    "crates/jinja",
    "maverl-macros",
    "maverl-kernels",
    "crates/sandbox",
    "agents",
    "orchestras",
    "examples",
    "tests",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// First line of files that are generated.
const GENERATED_CODE: &str = "// This file is @generated";

/// Returns every Rust file below a directory, sorted, without files that must not compile and those that are generated.
fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let skipped = path.ends_with("target") || path.ends_with("ui/fail");
        if path.is_dir() && !skipped {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !fs::read_to_string(&path).unwrap().starts_with(GENERATED_CODE)
        {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns true if a file holds only tests.
fn is_test(path: &Path) -> bool {
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let inside = path.strip_prefix(root()).unwrap();
    matches!(name(path).as_str(), "tests" | "testing")
        || inside.components().any(|part| part.as_os_str() == "tests")
}

/// Returns the lines of a file without tests: everything after `#[cfg(test)]`, up to the end of its block.
fn code(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push(line.to_owned());
            continue;
        }
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let (semicolon, brace) = (";", format!("{indent}}}"));
        let _ = lines.find(|line| {
            let deeper = line.starts_with(&format!("{indent} "));
            !deeper && (line.ends_with(semicolon) || line.trim_end() == brace)
        });
    }
    kept
}

/// Returns a line without its comment.
fn uncommented(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Modules of a crate, each with those that it may use.
type Modules = &'static [(&'static str, &'static [&'static str])];

/// Crates whose modules have a table of dependencies.
const LAYERED: [(&str, Modules); 4] = [
    ("crates/engine", ENGINE_MAY_USE),
    ("maverl", MAY_USE),
    ("crates/serve", SERVE_MAY_USE),
    ("crates/view", VIEW_MAY_USE),
];

/// Crate whose modules may know every subject of [`MUST_NOT_KNOW`].
const SERVERS: &str = "crates/serve";

/// Returns the source files of a crate that are not tests.
fn sources(name: &str) -> Vec<PathBuf> {
    let files = rust_files(&root().join(name).join("src"));
    files.into_iter().filter(|path| !is_test(path)).collect()
}

/// Returns the path of a file below the `src` of its crate.
fn below_src(path: &Path) -> PathBuf {
    let inside = path.strip_prefix(root()).unwrap().components();
    inside.skip_while(|part| part.as_os_str() != "src").skip(1).collect()
}

/// Returns the top-level module that a file belongs to.
fn module(path: &Path) -> String {
    let inside = below_src(path);
    let first = inside.components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// Returns the depth of a file's module below the crate: 1 for `agent.rs` and `model/mod.rs`.
fn depth(path: &Path) -> usize {
    let parts = below_src(path).components().count();
    if path.ends_with("mod.rs") { parts - 1 } else { parts }
}

/// Returns the modules that a line uses by `crate::` or `maverl_engine::`, or by `super::` up to the crate.
fn used(line: &str, depth: usize) -> Vec<String> {
    let name = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let word = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_$".contains(c));
    let roots = ["crate::", "maverl_engine::"].into_iter();
    let starts = roots.flat_map(|root| line.match_indices(root)).filter(|(at, _)| word(*at));
    let mut found: Vec<String> = starts.map(|(at, root)| name(&line[at + root.len()..])).collect();
    let up = "super::".repeat(depth);
    let above = line.match_indices(&up).filter(|(at, _)| word(*at) && !line[..*at].ends_with("::"));
    found.extend(above.map(|(at, _)| name(&line[at + up.len()..])));
    found
}

/// Fails with all problems.
fn none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

fn place(path: &Path, line: usize) -> String {
    format!("{}:{}", path.strip_prefix(root()).unwrap().display(), line + 1)
}

#[test]
fn modules_use_only_those_they_may() {
    let mut problems = Vec::new();
    for (name, table) in LAYERED {
        for path in &sources(name) {
            let module = module(path);
            if TOP.contains(&module.as_str()) {
                continue;
            }
            let Some((_, allowed)) = table.iter().find(|(name, _)| *name == module) else {
                problems.push(format!("`{module}` is not in the table"));
                continue;
            };
            for (i, line) in code(path).iter().enumerate() {
                let names = used(uncommented(line), depth(path)).into_iter();
                let others = names.filter(|name| *name != module);
                for other in others.filter(|name| {
                    !allowed.contains(&name.as_str()) && !EVERYWHERE.contains(&name.as_str())
                }) {
                    let place = place(path, i);
                    problems.push(format!("{place}: `{module}` may not use `{other}`"));
                }
            }
        }
    }
    none(&problems);
}

#[test]
fn uses_are_found_however_they_are_written() {
    assert_eq!(used("use crate::runtime::{Batch, Row};", 2), ["runtime"]);
    assert_eq!(
        used("    let x: Vec<crate::task::Task> = crate::data::load();", 1),
        ["task", "data"]
    );
    assert_eq!(used("use super::super::plan::Plan;", 2), ["plan"]);
    assert_eq!(used("use maverl_engine::loss::{Clip, Term};", 2), ["loss"]);
    assert_eq!(used("use super::plan::Plan;", 2), [""; 0]);
    assert_eq!(used("$crate::registry::all()", 1), [""; 0]);
}

#[test]
fn the_table_has_no_circle_and_no_module_that_is_not_there() {
    // Repeatedly removes modules that use none of the remaining ones.
    let mut left: Vec<_> = LAYERED.map(|(_, table)| table).concat();
    loop {
        let names: BTreeSet<&str> = left.iter().map(|(name, _)| *name).collect();
        let before = left.len();
        left.retain(|(_, uses)| uses.iter().any(|used| names.contains(used)));
        if left.len() == before {
            break;
        }
    }
    let circle: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
    assert!(circle.is_empty(), "a circle among {circle:?}");
    for (crate_name, table) in LAYERED {
        let source = root().join(crate_name).join("src");
        for (name, _) in table {
            let there = source.join(name).is_dir() || source.join(format!("{name}.rs")).is_file();
            assert!(there, "there is no module `{name}` in {crate_name}");
        }
    }
}

/// Returns the path of a file's module in its crate, as in `["train", "display", "bar"]`.
fn module_path(path: &Path) -> Vec<String> {
    let inside = below_src(path).with_extension("");
    let mut parts: Vec<String> =
        inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    parts.pop_if(|last| last == "mod");
    parts
}

/// Returns the first names after a prefix of paths: one, or all of a group in braces.
fn names_after(text: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = text.strip_prefix('{') else { return vec![name(text)] };
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' if depth == 0 => names.push(name(&group[std::mem::replace(&mut start, at + 1)..])),
            '}' if depth == 0 => {
                names.push(name(&group[start..]));
                break;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns whether a path goes through a module to modules below it: a file uses these, which other prefixes find.
fn leads_below(module: &[String], text: &str, modules: &BTreeSet<Vec<String>>) -> bool {
    let Some((_, below)) = text.split_once("::") else { return false };
    let is_path = text.starts_with(&format!("{}::", module[module.len() - 1]));
    let names = names_after(below);
    is_path
        && !names.is_empty()
        && names.iter().all(|name| modules.contains(&[module, std::slice::from_ref(name)].concat()))
}

/// Returns the modules that a file uses, of those in `modules`. A name that is no module belongs to the module before
/// it.
fn uses_among(
    own: &[String],
    text: &str,
    modules: &BTreeSet<Vec<String>>,
) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut visit = |prefix: &str, base: &[String]| {
        for (at, _) in text.match_indices(prefix) {
            let word = !text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
            if !word {
                continue;
            }
            let rest = &text[at + prefix.len()..];
            for name in names_after(rest) {
                let is_parent = name == "super";
                let inner = [base, &[name]].concat();
                if !is_parent && !leads_below(&inner, rest, modules) {
                    found.insert(if modules.contains(&inner) { inner } else { base.to_vec() });
                }
            }
        }
    };
    for module in modules {
        visit(&format!("crate::{}::", module.join("::")), module);
        visit(&format!("crate::{};", module.join("::")), module);
        let child = module.split_last().is_some_and(|(_, parent)| parent == own);
        if child {
            visit(&format!("{}::", module[module.len() - 1]), module);
        }
    }
    for up in 1..own.len() {
        let base = &own[..own.len() - up];
        visit(&"super::".repeat(up), base);
    }
    found.remove(own);
    found.into_iter().filter(|module| modules.contains(module)).collect()
}

#[test]
fn uses_among_files_are_found_however_they_are_written() {
    let path = |text: &str| -> Vec<String> { text.split("::").map(str::to_owned).collect() };
    let modules = ["a", "a::b", "a::c", "a::c::d"].map(path).into_iter().collect();
    let uses = |own: &str, text: &str| -> Vec<String> {
        let found = uses_among(&path(own), text, &modules);
        found.iter().map(|module| module.join("::")).collect()
    };
    assert_eq!(uses("a::b", "use crate::a::{Name, c::{self, X}};"), ["a", "a::c"]);
    assert_eq!(uses("a::b", "use crate::a::c::d::Name;"), ["a::c::d"]);
    assert_eq!(uses("a::b", "use crate::a::c::{d::X, Name};"), ["a::c", "a::c::d"]);
    assert_eq!(uses("a::b", "use crate::a::c; c::name();"), ["a::c"]);
    assert_eq!(uses("a::c::d", "use super::Name; use super::super::b::X;"), ["a::b", "a::c"]);
    assert_eq!(
        uses("a::c", "use d::Name; use other::d::Name; fn f() { crate::z::a() }"),
        ["a::c::d"]
    );
}

/// Folders whose files have one direction.
const WITHOUT_CIRCLES: [&str; 9] = [
    "crates/answers/src",
    "crates/serve/src/anthropic",
    "crates/serve/src/listener",
    "crates/serve/src/model",
    "crates/serve/src/openai",
    "crates/serve/src/reward",
    "crates/serve/src/team",
    "crates/view/src",
    "maverl/src/train",
];

/// Folders whose files have one direction, but for files that export the names of files that use them.
const WITHOUT_CIRCLES_BUT_EXPORTS: [&str; 6] = [
    "crates/dist/src",
    "crates/engine/src/files",
    "crates/engine/src/net",
    "crates/engine/src/runtime",
    "crates/engine/src/text",
    "crates/hub/src",
];

#[test]
fn no_file_of_training_answers_servers_and_pages_uses_one_that_uses_it() {
    none(&WITHOUT_CIRCLES.map(|folder| circle(folder, str::to_owned)).concat());
}

#[test]
fn no_file_of_the_engine_ranks_and_the_hub_uses_one_that_uses_it() {
    let problems = WITHOUT_CIRCLES_BUT_EXPORTS.map(|folder| circle(folder, without_exports));
    none(&problems.concat());
}

/// A module may export the names of files that use it. Nothing else in it uses a file that uses it.
#[test]
fn no_file_of_a_module_uses_one_that_uses_it() {
    let mut problems = Vec::new();
    for dir in CRATES {
        for entry in fs::read_dir(root().join(dir).join("src")).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !is_test(&path) {
                let folder = path.strip_prefix(root()).unwrap();
                problems.extend(circle(folder.to_str().unwrap(), without_exports));
            }
        }
    }
    none(&problems);
}

#[test]
fn a_boolean_decides_by_if_and_else() {
    let is_arm = |line: &str| {
        let arm = line.trim().strip_prefix("true").or(line.trim().strip_prefix("false"));
        arm.is_some_and(|rest| rest.starts_with(" =>") || rest.starts_with(" if "))
    };
    let mut problems = Vec::new();
    for dir in CRATES {
        for path in &rust_files(&root().join(dir)) {
            let text = fs::read_to_string(path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            for (i, pair) in lines.windows(2).enumerate() {
                if pair[0].contains("match ") && pair[0].ends_with(" {") && is_arm(pair[1]) {
                    problems.push(place(path, i));
                }
            }
        }
    }
    none(&problems);
}

/// Returns the code of a file without the declarations that export names of other files.
fn without_exports(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = ["pub use ", "pub(crate) use ", "pub(super) use "]
        .iter()
        .filter_map(|export| rest.find(export))
        .min()
    {
        kept += &rest[..start];
        rest = rest[start..].split_once(';').map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Returns the files of a folder that use each other, or that use such files, with those that they use. `used_code` selects the
/// code whose uses count.
fn circle(folder: &str, used_code: fn(&str) -> String) -> Vec<String> {
    let files = rust_files(&root().join(folder));
    let files: Vec<PathBuf> = files.into_iter().filter(|path| !is_test(path)).collect();
    let modules: BTreeSet<Vec<String>> = files.iter().map(|path| module_path(path)).collect();
    let uses = |path: &PathBuf| {
        let lines: Vec<String> =
            code(path).iter().map(|line| uncommented(line).trim().to_owned()).collect();
        let own = module_path(path);
        let used = uses_among(&own, &used_code(&lines.join(" ")), &modules);
        (own, used)
    };
    let mut left: Vec<(Vec<String>, BTreeSet<Vec<String>>)> = files.iter().map(uses).collect();
    loop {
        let names: BTreeSet<Vec<String>> = left.iter().map(|(name, _)| name.clone()).collect();
        let before = left.len();
        left.retain(|(_, used)| used.iter().any(|used| names.contains(used)));
        if left.len() == before {
            break;
        }
    }
    left.iter().map(|(name, used)| format!("{} uses {used:?}", name.join("::"))).collect()
}

#[test]
fn exports_are_no_uses() {
    let text = "use a::b; pub use c::{D, E}; fn f() {} pub(crate) use g::H; use i::J;";
    assert_eq!(without_exports(text), "use a::b;  fn f() {}  use i::J;");
}

#[test]
fn a_part_of_the_report_uses_only_those_before_it() {
    let mut problems = Vec::new();
    for path in sources("crates/view") {
        let own = module_path(&path);
        let place_of = |name: &str| REPORT_PARTS.iter().position(|part| *part == name);
        let Some(at) = own.get(1).filter(|_| own[0] == "report").and_then(|name| place_of(name))
        else {
            continue;
        };
        for (i, line) in code(&path).iter().enumerate() {
            let line = uncommented(line);
            for above in REPORT_PARTS.iter().skip(at + 1) {
                if line.contains(&format!("report::{above}::")) {
                    problems.push(format!(
                        "{}: `{}` may not use `{above}`",
                        place(&path, i),
                        own[1]
                    ));
                }
            }
        }
    }
    none(&problems);
}

/// Maximum number of lines of the file that is one step of training.
const LONGEST_STEP: usize = 60;

#[test]
fn a_step_is_read_on_one_page() {
    let path = root().join("maverl/src/train/step.rs");
    let lines = fs::read_to_string(&path).unwrap().lines().count();
    assert!(lines <= LONGEST_STEP, "{} has {lines} lines", path.display());
}

/// Returns the name by which other crates depend on the one in a folder.
fn dependency(dir: &str) -> String {
    match dir.strip_prefix("crates/") {
        Some(name) => format!("maverl-{name}"),
        None => dir.to_owned(),
    }
}

#[test]
fn crates_depend_only_on_those_below() {
    let dirs: Vec<&str> = CRATE_MAY_USE.iter().map(|(dir, _)| *dir).collect();
    let mut problems = Vec::new();
    for (at, (dir, allowed)) in CRATE_MAY_USE.iter().enumerate() {
        assert!(allowed.iter().all(|other| dirs[..at].contains(other)), "{dir} is above them");
        let text = fs::read_to_string(root().join(dir).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let names =
                manifest.get(table).and_then(|table| table.as_table()).into_iter().flatten();
            let of_name = |name: &String| dirs.iter().find(|dir| dependency(dir) == *name);
            for other in names.filter_map(|(name, _)| of_name(name)) {
                if !allowed.contains(other) {
                    problems.push(format!("{dir}: the table does not allow `{other}`"));
                }
            }
        }
    }
    none(&problems);
}

#[test]
fn modules_do_not_know_what_they_must_not() {
    let mut problems = Vec::new();
    let crates = LAYERED.iter().map(|(name, _)| *name).filter(|name| *name != SERVERS);
    for path in crates.flat_map(sources) {
        let path = &path;
        let below = below_src(path).with_extension("");
        let of_it = MUST_NOT_KNOW.iter().filter(|(name, _)| below.starts_with(name));
        let Some((module, words)) = of_it.max_by_key(|(name, _)| name.len()) else { continue };
        for (i, line) in code(path).iter().enumerate() {
            let line = uncommented(line);
            for word in words.iter().filter(|word| has_word(line, word)) {
                problems.push(format!("{}: `{module}` has `{word}`", place(path, i)));
            }
        }
    }
    none(&problems);
}

/// Returns true if a line has a word, alone or as the first part of a name like `Tensor_view`.
fn has_word(line: &str, word: &str) -> bool {
    let starts = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let ends = |at: usize| !line[at + word.len()..].starts_with(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| starts(at) && ends(at))
}

#[test]
fn no_file_is_longer_than_400_lines_without_its_tests() {
    let mut problems = Vec::new();
    for dir in CRATES {
        let files = rust_files(&root().join(dir));
        for path in files.iter().filter(|path| !is_test(path)) {
            let lines = code(path).len();
            if lines > LONGEST {
                problems.push(format!("{} has {lines} lines", place(path, 0)));
            }
        }
    }
    none(&problems);
}

#[test]
fn no_function_is_longer_than_60_lines() {
    let mut problems = Vec::new();
    for dir in CRATES {
        for path in rust_files(&root().join(dir)).iter().filter(|path| !is_test(path)) {
            let code = code(path);
            for (i, line) in code.iter().enumerate().filter(|(_, line)| opens_function(line)) {
                let indent: String = line.chars().take_while(|c| *c == ' ').collect();
                // A method without a body ends with the semicolon after its arguments.
                let (end, declared) = (format!("{indent}}}"), format!("{indent})"));
                let ends = |line: &String| {
                    *line == end || (line.starts_with(&declared) && line.ends_with(';'))
                };
                let lines = code[i..].iter().position(ends).unwrap_or(0) + 1;
                if lines > LONGEST_FUNCTION {
                    problems.push(format!("{} has {lines} lines", place(path, i)));
                }
            }
        }
    }
    none(&problems);
}

/// Maximum number of lines of a closure that `let` names. A longer one is a function.
const LONGEST_CLOSURE: usize = 3;

#[test]
fn no_closure_with_a_name_is_longer_than_three_lines() {
    let mut problems = Vec::new();
    for dir in CRATES {
        for path in rust_files(&root().join(dir)).iter().filter(|path| !is_test(path)) {
            let code = code(path);
            for (i, line) in code.iter().enumerate() {
                let indent = line.len() - line.trim_start().len();
                let bound =
                    line.trim_start().strip_prefix("let ").and_then(|rest| rest.split_once('='));
                let value = bound.map(|(_, value)| value.trim_start());
                let opens = value.is_some_and(|value| match value {
                    // The closure begins on the next line.
                    "" => code.get(i + 1).is_some_and(|next| opens_closure(next.trim_start())),
                    value => opens_closure(value),
                });
                let deeper = |line: &&String| line.len() - line.trim_start().len() > indent;
                let inside = code[i + 1..].iter().take_while(deeper).count();
                let closed = code.get(i + 1 + inside).is_some_and(|end| end.trim() == "};");
                let lines = 1 + inside + usize::from(closed);
                if opens && !line.ends_with(';') && lines > LONGEST_CLOSURE {
                    problems.push(place(path, i));
                }
            }
        }
    }
    none(&problems);
}

/// Returns true if an expression is a closure.
fn opens_closure(value: &str) -> bool {
    value.strip_prefix("move ").unwrap_or(value).starts_with('|')
}

/// Returns true if a function begins on a line, and does not end on it.
fn opens_function(line: &str) -> bool {
    let code = uncommented(line).trim_start();
    let named = code.split("fn ").next().is_some_and(|before| {
        before.split_whitespace().all(|word| {
            ["pub", "async", "const", "unsafe"].contains(&word) || word.starts_with("pub(")
        })
    });
    code.contains("fn ") && named && !code.ends_with([';', '}'])
}

#[test]
fn nothing_is_left_to_be_done() {
    let mut problems = Vec::new();
    let here = Path::new(file!()).file_name().unwrap();
    for dir in CRATES {
        let files = rust_files(&root().join(dir));
        for path in files.iter().filter(|path| path.file_name() != Some(here)) {
            let text = fs::read_to_string(path).unwrap();
            for (i, line) in text.lines().enumerate() {
                for word in NEVER.iter().filter(|word| line.contains(**word)) {
                    problems.push(format!("{}: `{word}`", place(path, i)));
                }
            }
        }
    }
    none(&problems);
}

/// Parts of a line that print, and the file that may have them: what is printed passes through one function.
const PRINTS: [&str; 6] =
    ["print!(", "println!(", "stdout().", "stderr().", "io::stdout(),", "io::stderr(),"];
const PRINTER: &str = "maverl/src/output.rs";

/// Files and folders that may name candle's crate: a device, and blocks of numbers in files.
const CANDLE: [&str; 3] = ["net/ops/candle.rs", "net/ops/candle/", "files/gguf/"];

#[test]
fn candle_is_named_where_its_device_and_its_files_are() {
    let engine = root().join("crates/engine/src");
    let named = |path: &PathBuf| code(path).iter().any(|line| has_word(line, "candle_core"));
    let crates = CRATES.iter().filter(|name| root().join(name).join("src").is_dir());
    let files = crates.flat_map(|name| sources(name)).filter(named);
    let own = |path: &PathBuf| path.strip_prefix(&engine).ok()?.to_str().map(str::to_owned);
    let may = |own: String| CANDLE.iter().any(|place| own.starts_with(place));
    let others = files.filter(|path| !own(path).is_some_and(may));
    none(&others.map(|path| place(&path, 0)).collect::<Vec<_>>());
}

#[test]
fn one_module_prints() {
    let mut problems = Vec::new();
    // Programs of `crates/lab` print for those who run them.
    for name in [
        "agents",
        "orchestras",
        "crates/answers",
        "crates/jinja",
        "crates/models",
        "crates/serve",
        "crates/settings",
        "crates/view",
        "maverl",
        "crates/cli",
        "crates/engine",
        "crates/sandbox",
    ] {
        // The second is a module of tests.
        let exempt = [PRINTER, "orchestras/src/cheats.rs"];
        let prints = |path: &&PathBuf| !exempt.iter().any(|exempt| path.ends_with(exempt));
        for path in sources(name).iter().filter(prints) {
            for (i, line) in code(path).iter().enumerate() {
                let line = uncommented(line).replace("().is_terminal()", "");
                for word in PRINTS.iter().filter(|word| line.contains(**word)) {
                    problems.push(format!("{}: `{word}` is for {PRINTER}", place(path, i)));
                }
            }
        }
    }
    none(&problems);
}

/// Public items of `maverl-engine`, by the file that exports them. What is not here is no API: it is hidden from the
/// documentation, and may change.
const ENGINE_API: &[(&str, &str)] = &[
    ("lib.rs", "files loss message net runtime text"),
    ("message.rs", "Finish Message Role Routes"),
    (
        "loss.rs",
        "AdaptiveKl Aggregation BuiltinSurrogate CapOptions CispoOptions Clip ClipCovOptions ClipOptions Clipped Correction CorrectionMeasure \
         CorrectionUnit CpgdOptions DistillLoss DistillOptions Divergence DppoOptions DroOptions GmpoOptions KeptWeight Kl KlCovOptions KtoReply LossOptions LossUnit \
         MaskOptions MinibatchTokens Pair PairLoss PolicyLoss PolicyReply PolicyToken PreferenceLoss PreferenceOptions Ratio ReinforceOptions \
         ReplyLoss RowTokens SapoOptions Selection Surrogate TeacherDivergence Term TokenUse TopEntropyOptions TruncateOptions ValueLimits ValueLoss VespoOptions cispo \
         clipped_surrogate clipped_value correction_weights covariances cpgd cross_entropy dppo dro gmpo huber importance_corrected kl \
         kl_reward kto kto_shift linear log_likelihood observation policy_drift policy_gradient preference reinforce sapo teacher_divergence token_weights value_loss vespo",
    ),
    (
        "files/mod.rs",
        "EncoderActivation EncoderConfig FlatMetric FlatVectors FlatWriter HfConfig Hub HubId ModelError ModelErrorKind ModelFiles ModelSource SaveOptions SentenceFiles \
         SentencePooling Shards Snapshot StoredDtype blank builtin create gguf save",
    ),
    (
        "text/mod.rs",
        "ChatInput ChatMessage Continuation Detokenizer Piece Rendered Tokenizer TokenizerError",
    ),
    (
        "net/mod.rs",
        "Adapter BertModel Context Decoder GgufOptions GgufReport Gradients HeadKind KvStore LoraConfig Model Param Params Pool RewardHead RewardModel Rows Tape \
         Tensor ValueHead ValueModel Weights decoder lora reply_ids reply_odds scored_ids",
    ),
    (
        "runtime/mod.rs",
        "AdapterSpec Batch Completion CriticSpec CustomSurrogate DeviceChoice DivergenceStats Dtype EngineStats Finish \
         Grammar GrammarState Host KvBlocks LayerLoad LoadedModel LoraSpec LossScaleOptions ModelHost NcclOptions \
         Normalize Objective ObservationStats ObservedText OptimOptions OptimizerKind PairStats Policy PolicyCopy PolicySpec Request RouterStats Routes Row Runtime \
         RuntimeError RuntimeOptions Sampling SavedMoments Scale ScaleStats Schedule Scores Shard SharedTokens Step TargetModules \
         TeacherTokens TokenColumns TopTokens Trunk UpdateStats ValueBatch ValueRow ValueStats ValueTarget ValueText \
         Watch \
         WorkerDevice WorkerSpec complete giving_back score",
    ),
];

/// Public items of `maverl`, by the file that exports them; see [`ENGINE_API`].
const MAVERL_API: &[(&str, &str)] = &[
    (
        "lib.rs",
        "Agent AgentName AskError Diagnostic Input Plan Prompt Purpose Reply ReplyError Settings Show Sources advantage \
         agent ballot check credit env environment eval files loss net orchestra prelude registry reward rng rollout run_dir runtime \
         settings surrogate task testing text tool tools train trajectory",
    ),
    (
        "agent.rs",
        "Agent AgentName Answer Approval AskError Input Prompt PromptForm Reply ReplyError Show tag",
    ),
    ("ballot.rs", "Ballot Ties alike"),
    (
        "credit.rs",
        "Advantage Baseline Clip Clipped CudaKernel GaeParams GaeSteps Gdpo GroupBy Grouping KernelSource KnownBaseline Moments \
         LossUnit PolicyReply PolicyToken RaggedRows Relative ReplyLoss RewardColumn Rewarded RewardedStep Segments Singleton Surrogate Term discounted_returns \
         Unbranched gae_advantages group_moments relative_advantages whiten_groups",
    ),
    (
        "env/mod.rs",
        "EnvError Environment EnvironmentName REPORT Session code grpc math nli openenv python reported search tools",
    ),
    ("env/code/mod.rs", "CodeEnvironment"),
    ("env/math.rs", "AnswerVerdict MathEnvironment compare_answers"),
    ("env/nli.rs", "Label NliEnvironment"),
    (
        "env/search/mod.rs",
        "AnswerReward DocumentFormat Neighbors Normalization Pooling Ranking RetrieverProtocol SearchEnvironment exact_match f1 normalize",
    ),
    ("env/tools/mod.rs", "FilesOptions McpServer PythonOptions SqliteOptions ToolsEnvironment"),
    (
        "eval.rs",
        "ComparedSystem Comparison EvalReport EvalSpec Interval Side Solved TaskScore paired_interval",
    ),
    (
        "orchestra/mod.rs",
        "Ask AskLimits Chat ChatBackend Conversation Includes Orchestra OrchestraName Response SeatCount SeatOf Team",
    ),
    ("registry.rs", "Registry RegistryError"),
    ("reward.rs", "Rewards"),
    ("rng.rs", "SplitMix64"),
    ("rollout/mod.rs", "RolloutError Script Scripted"),
    (
        "run_dir/mod.rs",
        "EstimatorRecord GroupRecord Missing ReplayedRecord RunDirError RunLocation SampleRecord StepSamples TokenRecord read_ended_rollouts \
         read_rollouts read_samples read_tokens",
    ),
    ("task.rs", "Action Observation Score Task TaskError TaskList"),
    ("testing.rs", "generated_steps right_derivative same_advantages"),
    (
        "tools/mod.rs",
        "Arguments Call CallError CallFormat DeclaredTool NoArguments ReplyFormat Schema SchemaError TemplateCalls ThoughtFormat ThoughtTags Tool ToolFuture ToolOutput calls check declared_tools read schemars serde template_calls unreadable_call",
    ),
    (
        "train/mod.rs",
        "DemonstrationError EndedEpisode EpisodeSink ErrorKind Evaluation Interrupt Launch Machine Options Progress RankError RecordedEpisode ReplayOptions ReplayScope Report RunSummary SinkError SplitScore StepLine TrainError Weights Which eval play replay silent train",
    ),
    (
        "trajectory.rs",
        "Act BranchPoint Episode Fault FaultKind Finish Message Outcome RewardOf RewardPart Role Seat TeacherScore Tokens Turn TurnPath",
    ),
];

/// Public items of `maverl-settings`; see [`ENGINE_API`].
const SETTINGS_API: &[(&str, &str)] =
    &[("lib.rs", "NoKeys OpenKind Settings TableKind Tagged TaggedConfig TaggedListConfig")];

/// Words between `pub` and the name of an item.
const ITEMS: [&str; 10] =
    ["async", "const", "enum", "fn", "macro", "mod", "static", "struct", "trait", "type"];

/// Returns the names that a file exports, sorted, but for those that are hidden from the documentation.
fn exported(path: &Path) -> BTreeSet<String> {
    let text = code(path).join("\n");
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("\npub ") {
        if text[..at].ends_with("#[doc(hidden)]") {
            continue;
        }
        let item = text[at + "\npub ".len()..].split(';').next().unwrap_or_default();
        let Some(used) = item.strip_prefix("use ") else {
            let mut words = item.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            names.extend(words.find(|word| !ITEMS.contains(word)));
            continue;
        };
        let list = used.split_once('{').map_or(used, |(_, list)| list.trim_end_matches('}'));
        names.extend(list.split(',').filter_map(|path| path.trim().rsplit([':', ' ']).next()));
    }
    names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn crates_export_what_their_lists_name() {
    let apis =
        [("crates/engine", ENGINE_API), ("crates/settings", SETTINGS_API), ("maverl", MAVERL_API)];
    for (name, api) in apis {
        for (file, names) in api {
            let listed: BTreeSet<String> = names.split_whitespace().map(str::to_owned).collect();
            let found = exported(&root().join(name).join("src").join(file));
            assert_eq!(found, listed, "{name}: {file}");
        }
        // Every module that is not hidden has a list.
        let listed: BTreeSet<String> =
            api.iter().map(|(file, _)| module(&root().join(name).join("src").join(file))).collect();
        let text = code(&root().join(name).join("src/lib.rs")).join("\n");
        let modules = text
            .match_indices("\npub mod ")
            .filter(|(at, _)| !text[..*at].ends_with("#[doc(hidden)]"));
        for (at, start) in modules {
            let module = text[at + start.len()..].split([';', ' ']).next().unwrap_or_default();
            assert!(
                module == "prelude" || listed.contains(module),
                "{name}: `{module}` has no list"
            );
        }
    }
}

/// Returns the first line of each doc comment of a file, with its place.
fn doc_comments(path: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).unwrap();
    let doc = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(text.trim().to_owned())
    };
    let (mut found, mut inside) = (Vec::new(), false);
    for (i, line) in text.lines().enumerate() {
        let comment = doc(line);
        if let Some(comment) = comment.clone().filter(|_| !inside) {
            found.push((place(path, i), comment));
        }
        inside = comment.is_some();
    }
    found
}

#[test]
fn doc_comments_begin_with_the_noun_or_verb_of_the_thing() {
    let files = CRATES.iter().flat_map(|name| rust_files(&root().join(name)));
    let comments: Vec<(String, String)> = files.flat_map(|path| doc_comments(&path)).collect();
    let questions = ["What", "How", "Whether", "Why"];
    let question =
        |comment: &str| comment.split(' ').next().is_some_and(|word| questions.contains(&word));
    let found: Vec<String> = comments
        .iter()
        .filter(|(_, comment)| question(comment))
        .map(|(place, comment)| format!("{place}: {comment}"))
        .collect();
    let (found_all, all) = (found.len(), comments.len());
    assert!(100 * found_all <= all, "{found_all} of {all} doc comments\n{}", found.join("\n"));
}

/// Names that were replaced, each with the name that took its place.
const REPLACED: &[(&str, &str)] = &[
    ("outsider", "endpoint"),
    ("outsiders", "endpoints"),
    ("Troupe", "EpisodeRunner"),
    ("Voice", "ChatBackend"),
    ("Ledger", "RewardParts"),
    ("Payee", "Recipient"),
    ("pay_all", "add_seat_reward"),
    ("pay_at", "add_turn_reward"),
    ("rest_at", "mask_turn"),
    ("kl_target", "adaptive_kl.target"),
    ("kl_horizon", "adaptive_kl.horizon"),
    ("factor_clip", "update_order.clip"),
    ("later_discount", "future_rewards.discount"),
    ("Lesson", "Batches"),
    ("recast", "with_plan"),
    ("of_rounds", "apply_future_rewards"),
    ("Entrant", "System"),
    ("telling", "with_template_kwargs"),
];

#[test]
fn replaced_names_do_not_come_back() {
    let mut problems = Vec::new();
    for path in CRATES.iter().flat_map(|name| rust_files(&root().join(name))) {
        if path.ends_with("tests/tests/tidy.rs") {
            continue;
        }
        for (i, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            for (old, new) in REPLACED.iter().filter(|(old, _)| has_word(line, old)) {
                problems.push(format!("{}: `{old}` is `{new}`", place(&path, i)));
            }
        }
    }
    none(&problems);
}

#[test]
fn every_dependency_is_used_and_comes_from_the_workspace() {
    let read = |path: &Path| -> toml::Table { fs::read_to_string(path).unwrap().parse().unwrap() };
    let workspace = read(&root().join("Cargo.toml"));
    let mut unused: BTreeSet<&String> =
        workspace["workspace"]["dependencies"].as_table().unwrap().keys().collect();
    let mut problems = Vec::new();
    for dir in CRATES {
        let dir = root().join(dir);
        let manifest = read(&dir.join("Cargo.toml"));
        let files = rust_files(&dir);
        let code: Vec<String> =
            files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
        let targets = manifest.get("target").and_then(|targets| targets.as_table());
        let places = targets.into_iter().flat_map(|targets| targets.values());
        let places = places.filter_map(|target| target.as_table()).chain([&manifest]);
        let found = |place: &'_ toml::Table| -> Vec<(String, toml::Value)> {
            let tables = tables.iter().filter_map(|table| place.get(*table)?.as_table());
            tables.flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        for (name, dependency) in places.flat_map(found) {
            let name = &name;
            unused.remove(name);
            let at = dir.strip_prefix(root()).unwrap().display();
            if dependency.get("workspace") != Some(&true.into()) {
                problems.push(format!("{at}: `{name}` has a version of its own"));
            }
            let ident = name.replace('-', "_");
            let named = code.iter().any(|text| text.lines().any(|line| has_word(line, &ident)));
            if !named && !UNNAMED.iter().any(|(unnamed, _)| unnamed == name) {
                problems.push(format!("{at}: `{name}` is not used"));
            }
        }
    }
    problems.extend(unused.iter().map(|name| format!("no crate depends on `{name}`")));
    none(&problems);
}

#[test]
fn every_feature_of_maverl_is_one_of_the_stock_binary() {
    let features = |dir: &str| -> BTreeSet<String> {
        let manifest = fs::read_to_string(root().join(dir).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        manifest["features"].as_table().unwrap().keys().cloned().collect()
    };
    // Parts of the command line that are crates are features of it alone.
    let own = ["default", "serve", "stock", "view"].map(str::to_owned);
    let below = ["maverl", "crates/serve"].into_iter().flat_map(features);
    let all: BTreeSet<String> = below.chain(own).collect();
    assert_eq!(features("crates/cli"), all);
}

/// Names of environment variables in the documents that stand for any key, or for none.
const PLACEHOLDERS: [&str; 2] = ["MAVERL_", "MAVERL_SECTION__KEY"];

#[test]
fn an_environment_variable_that_the_documents_name_is_a_key_or_is_none() {
    let mut names = BTreeSet::new();
    for page in pages() {
        let text = fs::read_to_string(page).unwrap();
        for (at, _) in text.match_indices("MAVERL_") {
            let end = |c: char| !(c.is_ascii_uppercase() || c == '_');
            let name = &text[at..];
            names.insert(name[..name.find(end).unwrap_or(name.len())].to_owned());
        }
    }
    names.retain(|name| !PLACEHOLDERS.contains(&name.as_str()));
    assert!(names.contains("MAVERL_KERNELS") && names.len() > 15, "{names:?}");
    let registry = maverl::registry::Registry::default();
    for name in names {
        let env = vec![(name.clone(), "1".to_owned())];
        let sources = maverl::Sources { env, ..maverl::Sources::default() };
        let Err(problems) = maverl::check(&sources, &registry, maverl::Purpose::Plan) else {
            continue;
        };
        let unknown = problems.iter().find(|problem| problem.to_string().contains("unknown key"));
        assert!(unknown.is_none(), "{name}: {unknown:?}");
    }
}

/// Returns the pages of the repository: those at the root and of the book, and the tables of recipes and fixtures.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/fixtures/README.md"]
            .map(|page| root().join(page))
            .to_vec();
    let mut dirs = vec![root().join("docs/src"), root().join("recipes")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Returns the numbered lines of a page that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the anchors of a page: its headings in lower case, with hyphens for spaces and without punctuation.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let text: String = heading.trim_start_matches('#').trim().chars().filter(kept).collect();
        let anchor = text.to_lowercase().replace(' ', "-");
        let again = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|a| !anchors.contains(a));
        anchors.extend(free);
    }
    anchors
}

/// Returns the targets of the links in a line, without those in code.
fn targets(line: &str) -> Vec<String> {
    let plain: Vec<&str> = line.split('`').step_by(2).collect();
    let plain = plain.join("`");
    let ends = plain.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    ends.map(str::to_owned).collect()
}

/// Returns the reason why a link of a page leads nowhere, if it does.
fn broken(page: &Path, target: &str) -> Option<String> {
    if ["http:", "https:", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    if !to.exists() {
        return Some(format!("there is no `{path}`"));
    }
    let missing =
        !anchor.is_empty() && !anchors(&fs::read_to_string(&to).unwrap()).contains(anchor);
    missing.then(|| format!("`{}` has no heading `#{anchor}`", to.display()))
}

#[test]
fn links_and_anchors_of_the_documents_lead_somewhere() {
    let mut problems = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (i, line) in prose(&text) {
            let found = targets(line).into_iter().filter_map(|target| broken(&page, &target));
            problems.extend(found.map(|reason| format!("{}: {reason}", place(&page, i))));
        }
    }
    none(&problems);
}

#[test]
fn links_and_anchors_are_read_as_they_are_written() {
    let text = "# A `b` c!\n```\n# no heading\n[x](no_link)\n```\n## A b c\n";
    assert_eq!(anchors(text), BTreeSet::from(["a-b-c".to_owned(), "a-b-c-1".to_owned()]));
    assert_eq!(targets("[a](b.md#c) `[d](e)` [f](#g \"title\")"), ["b.md#c", "#g"]);
    let page = root().join("README.md");
    assert_eq!(broken(&page, "docs/src/config.md#levels"), None);
    assert!(broken(&page, "docs/src/config.md#nothing").is_some());
    assert!(broken(&page, "docs/src/nothing.md").is_some());
}

/// Maximum length of a line of a document, but for tables, blocks of code and lines with a long link. Editors wrap at 124.
const LONGEST_LINE: usize = 140;

/// Pages that are written by programs.
const GENERATED: [&str; 2] = ["docs/src/cli.md", "tests/fixtures/README.md"];

#[test]
fn lines_of_the_documents_are_wrapped() {
    let mut problems = Vec::new();
    for page in pages() {
        if GENERATED.iter().any(|generated| page.ends_with(generated)) {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        let long = prose(&text).filter(|(_, line)| {
            let table = line.trim_start().starts_with('|');
            let link = line.split_whitespace().any(|word| word.chars().count() > 60);
            !table && !link && line.chars().count() > LONGEST_LINE
        });
        problems.extend(long.map(|(i, line)| format!("{}: {line}", place(&page, i))));
    }
    none(&problems);
}

#[test]
fn no_crate_names_one_above_it() {
    let above = ["agents::", "orchestras::", "maverl_tests", "maverl::"];
    let mut problems = Vec::new();
    // Macros of `maverl` and its generated code name it by `maverl::`.
    for (name, above) in [
        ("crates/answers", &above[..]),
        ("crates/dist", &above[..]),
        ("crates/hub", &above[..]),
        ("crates/engine", &above[..]),
        ("crates/settings", &above[..]),
        ("maverl", &above[..3]),
    ] {
        for path in &sources(name) {
            for (i, line) in code(path).iter().enumerate() {
                let line = uncommented(line);
                for above in above {
                    if has_word(line, above.trim_end_matches(':')) && line.contains(above) {
                        problems.push(format!("{}: `{above}`", place(path, i)));
                    }
                }
            }
        }
    }
    none(&problems);
}

/// A test that waits may give up after ten minutes. Guards of speed print and compare what they have measured, and are ignored.
#[test]
fn no_test_asserts_a_time_that_a_busy_machine_can_miss() {
    let mut problems = Vec::new();
    for path in CRATES.iter().flat_map(|name| rust_files(&root().join(name))) {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let asserts =
                lines[i.saturating_sub(1)..=i].iter().any(|line| line.contains("assert!("));
            let has_bound = line.contains(concat!("elapsed()", " < "));
            if asserts
                && has_bound
                && !line.contains("from_secs(600)")
                && !line.contains("PATIENCE")
            {
                problems.push(place(&path, i));
            }
            // A connection that gives up asserts that there was an answer.
            let gives_up = line.contains(concat!("_timeout(", "Some(Duration::from_"));
            if gives_up && !line.contains("from_secs(600)") {
                problems.push(place(&path, i));
            }
        }
    }
    none(&problems);
}
