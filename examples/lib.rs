//! Examples, one idea each. `maverl train examples/NAME.toml` runs a configuration, with `--quick` in seconds;
//! `cargo run --release --example NAME` runs a program.
//!
//! - `single`, `act`, `refine`, `vote`, `debate`, `chain`, `pair`, `summary`, `mixture`, `manager`, `tree`,
//!   `search_r1`, `self_play`, `tools`, `code`, `workflow`, `workflow_cycle`: the built-in orchestras, in built-in environments.
//! - `verifier`: a head that tells right replies to arithmetic from wrong ones.
//! - `two_environments`: a mixture of two environments, easy tasks first.
//! - `program`, `program_workers`: the team of `search_orchestra` as a Python program that calls an OpenAI-compatible API: one
//!   process for each episode, and long-lived processes.
//! - `search_orchestra`: three agents learn to search and answer, from the built-in model and questions.
//!
//! The Rust code of the README and of the book is compiled and run by this crate's documentation tests; their
//! configurations are checked by the test below.

#[cfg(doctest)]
mod book {
    use {maverl_engine as _, tokio as _}; // programs of the pages name them

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
    #[doc = include_str!("../docs/src/runs.md")]
    mod runs {}
    #[doc = include_str!("../docs/src/tools.md")]
    mod tools {}
    #[doc = include_str!("../docs/src/engine.md")]
    mod engine {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use maverl::config::Preset;
    use maverl::files::HfConfig;
    use maverl::registry::{Registry, lacking_gates};
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

    /// Returns a page of the repository.
    fn page(path: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
    }

    /// Returns the row of the README's table with this title.
    fn row(title: &str) -> String {
        let readme = page("README.md");
        let row = readme.lines().find(|line| line.starts_with(&format!("| **{title}** |")));
        row.unwrap_or_else(|| panic!("the README has no row {title}")).to_owned()
    }

    /// Returns the code spans of the headings of a page.
    fn headings(path: &str) -> BTreeSet<String> {
        let text = page(path);
        let headings = text.lines().filter(|line| line.starts_with("## "));
        headings.flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
    }

    #[test]
    fn the_readme_counts_and_names_presets() {
        let row = row("Algorithms");
        assert!(row.contains(&format!("| {} presets: ", Preset::ALL.len())), "{row}");
        let (_, named) = row.split_once("presets: ").unwrap();
        let (named, _) = named.split_once(" and more").unwrap();
        let presets = Preset::ALL.map(|preset| preset.name());
        for name in named.split(", ") {
            let name = name.to_lowercase().replace(". ", "");
            assert!(presets.contains(&&*name), "{name} is no preset");
        }
    }

    #[test]
    fn the_readme_counts_orchestras_and_the_page_on_teams_has_each() {
        let registry = Registry::collect().unwrap();
        let lacking = lacking_gates().into_iter().map(|gate| gate.name.to_owned());
        let orchestras = registry.orchestras.keys().map(ToString::to_string);
        let orchestras: BTreeSet<String> =
            orchestras.chain(lacking).filter(|name| name.contains('/')).collect();
        let row = row("Teams");
        assert!(row.contains(&format!("| {} ready-made [orchestras]", orchestras.len())), "{row}");
        let described: BTreeSet<String> =
            headings("docs/src/teams.md").into_iter().filter(|name| name.contains('/')).collect();
        assert_eq!(described, orchestras);
    }

    #[test]
    fn the_readme_names_every_environment() {
        let registry = Registry::collect().unwrap();
        let row = row("Environments");
        let named: BTreeSet<&str> = row
            .split("](docs/src/")
            .filter_map(|part| part.rsplit_once('[').map(|(_, name)| name))
            .filter(|name| *name != "your own")
            .collect();
        let lacking = lacking_gates().into_iter().map(|gate| gate.name);
        let lacking = lacking.filter(|name| !name.contains('/'));
        assert_eq!(named, registry.environments.keys().copied().chain(lacking).collect());
    }

    #[test]
    fn the_readme_names_every_family_of_models() {
        let title = |family: &&str| match *family {
            "llama" => "llama3".to_owned(),
            family => family.trim_end_matches("_text").replace('_', ""),
        };
        let families: BTreeSet<String> = HfConfig::FAMILIES.iter().map(title).collect();
        let text = page("README.md");
        let (_, rest) = text.split_once("of the families ").unwrap();
        let list = rest.split(':').next().unwrap().to_lowercase().replace("(dense)", "");
        let list: String =
            list.split_whitespace().collect::<Vec<_>>().join(" ").replace(" and ", ",");
        let named: BTreeSet<String> =
            list.split(',').map(|name| name.replace([' ', '-', '.'], "")).collect();
        assert_eq!(named, families);
    }

    #[test]
    fn every_example_is_in_the_list_of_examples() {
        let text = page("examples/lib.rs");
        let list: String = text.lines().filter(|line| line.starts_with("//!")).collect();
        let files = fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
        for path in files.map(|file| file.unwrap().path()) {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let is_program = path.is_dir() && path.join("main.rs").exists();
            let is_run = path.extension().is_some_and(|e| e == "toml") && name != "Cargo";
            if is_program || is_run {
                assert!(list.contains(&format!("`{name}`")), "{name} is missing");
            }
        }
    }

    #[test]
    fn the_page_on_the_engine_shows_its_example() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let example = root.join("crates/engine/examples/one_step.rs");
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
