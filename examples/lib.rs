//! Examples, each of one idea. A configuration runs with `maverl train examples/NAME.toml`, with `--quick` in seconds;
//! a
//! program with `cargo run --release --example NAME`.
//!
//! - `single`, `act`, `refine`, `vote`, `debate`, `chain`, `summary`, `mixture`, `manager`, `tree`, `self_play`,
//!   `tools`,
//!   `workflow`, `workflow_cycle`: each built-in orchestra, in a built-in environment.
//! - `worlds.toml`: a mixture of two environments, easy tasks first.
//! - `search_orchestra`: three agents learn to search and answer, from the built-in model and questions.
//! - `learners`: trains every preset for a minute, and reports the improvement of each.
//! - `worlds`, the program: trains each of the configurations for a minute, and reports solved tasks before and after.
//! - `gradient_norms`: effect of unequal rewards on gradients with one baseline for all agents and with one for each.
//! - `make_tiny`: generates `builtin:tiny`: tokenizer, random weights, supervised training on imperfect demonstrations.
//! - `make_generalist`: generates `builtin:generalist`: `builtin:tiny` trained on replies of every example's team in its
//!   environment.
//!
//! The Rust code of the README and of the book is compiled and run by this crate's documentation tests; their
//! configurations are checked by the test below.

pub mod measure;
pub mod teach;

#[cfg(doctest)]
mod book {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/src/declare.md")]
    mod declare {}
    #[doc = include_str!("../docs/src/configuring.md")]
    mod configuring {}
    #[doc = include_str!("../docs/src/environment.md")]
    mod environment {}
    #[doc = include_str!("../docs/src/sharing.md")]
    mod sharing {}
    #[doc = include_str!("../docs/src/adapters.md")]
    mod adapters {}
    #[doc = include_str!("../docs/src/corpora.md")]
    mod corpora {}
    #[doc = include_str!("../docs/src/testing.md")]
    mod testing {}
    #[doc = include_str!("../docs/src/tools.md")]
    mod tools {}
    #[doc = include_str!("../docs/src/engine.md")]
    mod engine {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::path::{Path, PathBuf};

    use maverl::registry::Registry;
    use maverl::{Purpose, Sources, check};
    use orchestras as _; // brings `search/route` and its agents

    fn pages() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let list = |dir: &str| fs::read_dir(root.join(dir)).unwrap();
        let files = list("docs/src").chain(list("docs/src/algorithms"));
        let pages = files.map(|file| file.unwrap().path());
        // Files that the walk-through shows belong to a crate, and are tested there.
        let wanted = |path: &PathBuf| {
            path.extension().is_some_and(|e| e == "md") && !path.ends_with("walkthrough.md")
        };
        let mut pages: Vec<PathBuf> = pages.filter(wanted).collect();
        pages.push(root.join("README.md"));
        pages
    }

    #[test]
    fn the_page_on_runs_shows_the_script_that_logs_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = fs::read_to_string(root.join("log_run.py")).unwrap();
        let page = fs::read_to_string(root.join("../docs/src/runs.md")).unwrap();
        assert!(page.contains(&format!("```python\n{script}```\n")));
    }

    #[test]
    fn the_page_on_the_engine_shows_its_example() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let example = root.join("maverl-engine/examples/one_step.rs");
        let example = fs::read_to_string(example).unwrap();
        let program = example.split("\n#[cfg(test)]").next().unwrap();
        let program = program.split_once("\n\n").unwrap().1.trim_end();
        let page = fs::read_to_string(root.join("docs/src/engine.md")).unwrap();
        assert!(page.contains(&format!("```rust\n{program}\n```\n")));
    }

    #[test]
    fn configurations_in_the_book_have_only_known_keys_and_right_types() {
        let registry = Registry::collect().unwrap();
        let mut blocks = 0;
        for page in pages() {
            let text = fs::read_to_string(&page).unwrap();
            for block in text.split("```toml\n").skip(1) {
                let block = block.split("```").next().unwrap();
                let sources = Sources::default().text("run.toml", block, "");
                let problems = check(&sources, &registry, Purpose::Train).err().unwrap_or_default();
                for problem in problems.iter().map(ToString::to_string) {
                    let wrong = ["unknown key", "expected", "TOML"];
                    let wrong = wrong.iter().any(|words| problem.contains(words));
                    assert!(!wrong, "{}: {problem}\n{block}", page.display());
                }
                blocks += 1;
            }
        }
        assert!(blocks > 10, "only {blocks} configurations were found");
    }
}
