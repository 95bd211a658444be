//! The configurations of `examples` and `recipes`, and the files that they name, as parts of the program:
//! `maverl train example:single`.
//!
//! `orchestras/examples` and `orchestras/recipes` link to them, so that the published crate contains them.

use maverl::__private::inventory;
use maverl::config::source::{ShippedFile, ShippedFiles};

/// Submits files of this crate.
macro_rules! ship {
    ($($path:literal,)*) => {
        inventory::submit!(ShippedFiles(&[$(
            ShippedFile { path: $path, content: include_bytes!(concat!("../", $path)) },
        )*]));
    };
}

ship! {
    "examples/act.toml",
    "examples/chain.toml",
    "examples/code.toml",
    "examples/debate.toml",
    "examples/manager.toml",
    "examples/mixture.toml",
    "examples/pair.toml",
    "examples/program.toml",
    "examples/program_workers.toml",
    "examples/programs/messages.toml",
    "examples/programs/messages/messages.py",
    "examples/programs/search.py",
    "examples/programs/sums.jsonl",
    "examples/programs/sums_v1.py",
    "examples/programs/verifiers.toml",
    "examples/programs/verifiers_env.py",
    "examples/programs/worker.py",
    "examples/refine.toml",
    "examples/search_orchestra.toml",
    "examples/search_r1.toml",
    "examples/self_play.toml",
    "examples/single.toml",
    "examples/summary.toml",
    "examples/tools.toml",
    "examples/tree.toml",
    "examples/two_environments.toml",
    "examples/verifier.toml",
    "examples/verifier/debate.toml",
    "examples/verifier/debaters.toml",
    "examples/verifier/solver.jsonl.gz",
    "examples/verifier/solver.toml",
    "examples/verifier/stages.toml",
    "examples/verifier/test.jsonl.gz",
    "examples/verifier/train.jsonl.gz",
    "examples/vote.toml",
    "examples/workflow.toml",
    "examples/workflow_cycle.toml",
    "recipes/cory/gsm8k-llama-2-7b.toml",
    "recipes/drmas/grpo-math-qwen3-4b-separate.toml",
    "recipes/drmas/grpo-math-qwen3-4b-shared.toml",
    "recipes/drmas/grpo-math-qwen3-8b-separate.toml",
    "recipes/drmas/grpo-math-qwen3-8b-shared.toml",
    "recipes/drmas/grpo-search-qwen2.5-3b-separate.toml",
    "recipes/drmas/grpo-search-qwen2.5-3b-shared.toml",
    "recipes/drmas/grpo-search-qwen2.5-7b-separate.toml",
    "recipes/drmas/grpo-search-qwen2.5-7b-shared.toml",
    "recipes/drmas/math-qwen3-4b-separate.toml",
    "recipes/drmas/math-qwen3-4b-shared.toml",
    "recipes/drmas/math-qwen3-8b-separate.toml",
    "recipes/drmas/math-qwen3-8b-shared.toml",
    "recipes/drmas/search-qwen2.5-3b-separate.toml",
    "recipes/drmas/search-qwen2.5-3b-shared.toml",
    "recipes/drmas/search-qwen2.5-7b-separate.toml",
    "recipes/drmas/search-qwen2.5-7b-shared.toml",
    "recipes/gpu/gsm8k-qwen2.5-0.5b-24gb.toml",
    "recipes/gpu/gsm8k-qwen2.5-3b-lora-80gb.toml",
    "recipes/gpu/gsm8k-qwen2.5-7b-lora-141gb.toml",
    "recipes/maporl/anli-2-agents-3-turns.toml",
    "recipes/maporl/gsm8k-2-agents-2-turns.toml",
    "recipes/maporl/gsm8k-2-agents-3-turns-verifier.toml",
    "recipes/maporl/gsm8k-2-agents-3-turns.toml",
    "recipes/maporl/gsm8k-3-agents-3-turns.toml",
    "recipes/maporl/gsm8k-pipeline.toml",
    "recipes/maporl/gsm8k-verifier.toml",
    "recipes/marft/deepscaler-siirl.toml",
    "recipes/marft/gsm8k-duo.toml",
    "recipes/marft/math-duo.toml",
    "recipes/maverl/gsm8k-qwen2.5-3b-happo.toml",
    "recipes/maverl/gsm8k-qwen2.5-3b-ippo.toml",
    "recipes/maverl/gsm8k-qwen2.5-3b-mappo.toml",
    "recipes/maverl/gsm8k-qwen2.5-3b-online-dpo.toml",
    "recipes/maverl/gsm8k-qwen2.5-3b-qmix.toml",
    "recipes/maverl/gsm8k-qwen2.5-3b-spin.toml",
    "recipes/maverl/gsm8k-qwen2.5-3b-vdn.toml",
    "recipes/mrlm/01-simple-ppo.toml",
    "recipes/mrlm/02-code-ppo.toml",
    "recipes/mrlm/03-math-ppo.toml",
    "recipes/mrlm/04-grpo-math.toml",
    "recipes/mrlm/05-dpo.toml",
    "recipes/mrlm/06-sft-world-model.toml",
    "recipes/mrlm/07-tool-use-ppo.toml",
    "recipes/mrlm/08-multi-environment-ppo.toml",
    "recipes/mrlm/09-hybrid-1-sft.toml",
    "recipes/mrlm/09-hybrid-2-ppo.toml",
    "recipes/mrlm/09-hybrid.toml",
    "recipes/mrlm/10-distributed-ppo.toml",
    "recipes/mrlm/11-demo.toml",
    "recipes/search_r1/grpo-qwen2.5-3b-instruct.toml",
    "recipes/stopping/arithmetic-qwen2.5-1.5b.toml",
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use maverl::config::source::{ShippedName, shipped_configs};

    /// Adds the configurations below a directory, by their path in this crate.
    fn add_configurations(dir: &Path, found: &mut BTreeSet<String>) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            if root.join(&path).is_dir() {
                add_configurations(&path, found);
            } else if path.extension().is_some_and(|e| e == "toml") && !path.ends_with("Cargo.toml")
            {
                found.insert(path.display().to_string());
            }
        }
    }

    #[test]
    fn every_configuration_of_the_repository_ships_and_no_other() {
        let names: BTreeSet<String> =
            shipped_configs().iter().map(|one| one.name.to_string()).collect();
        for above in ["", ".."] {
            let mut found = BTreeSet::new();
            for dir in ["examples", "recipes"] {
                add_configurations(&PathBuf::from(above).join(dir), &mut found);
            }
            let named = |path: &String| {
                let path = path.trim_start_matches("../").trim_end_matches(".toml");
                let (dir, rest) = path.split_once('/').unwrap();
                format!("{}:{rest}", dir.trim_end_matches('s'))
            };
            assert_eq!(found.iter().map(named).collect::<BTreeSet<_>>(), names, "{above}");
        }
    }

    #[test]
    fn a_configuration_comes_with_its_stages_and_the_files_that_it_names() {
        let files = |name: &str| {
            let found = ShippedName::parse(Path::new(name)).unwrap().find().unwrap();
            found.files().into_iter().map(|file| file.path).collect::<Vec<_>>()
        };
        assert_eq!(files("example:single"), ["examples/single.toml"]);
        assert_eq!(
            files("example:program_workers"),
            [
                "examples/program_workers.toml",
                "examples/programs/search.py",
                "examples/programs/worker.py"
            ]
        );
        assert_eq!(
            files("example:verifier/stages"),
            [
                "examples/verifier.toml",
                "examples/verifier/solver.jsonl.gz",
                "examples/verifier/solver.toml",
                "examples/verifier/stages.toml",
                "examples/verifier/test.jsonl.gz",
                "examples/verifier/train.jsonl.gz",
            ]
        );
        assert_eq!(files("recipe:mrlm/09-hybrid").len(), 3);
        // Each file is part of one of them.
        let all: BTreeSet<&str> =
            shipped_configs().iter().flat_map(|one| one.files()).map(|file| file.path).collect();
        for path in ["examples/programs/sums_v1.py", "examples/programs/sums.jsonl"] {
            assert!(all.contains(path), "{path}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_next_one() {
        let unknown = |name: &str| ShippedName::parse(Path::new(name)).unwrap().unknown_name();
        let (message, help) = unknown("example:serch_orchestra");
        assert_eq!(message, "there is no example `serch_orchestra`");
        assert_eq!(help, "did you mean `example:search_orchestra`?");
        assert_eq!(unknown("recipe:x").1, "`maverl examples` lists those that there are");
    }
}
