//! The model card of an exported directory: `README.md` with its base and what is known of the run.

use std::fmt::Write;
use std::path::Path;

use crate::cli::failure::Failure;
use crate::cli::paths;
use crate::cli::runs::Run;
use crate::config::Config;
use crate::train::SplitScore;

/// Content of a model card.
pub(super) struct Card {
    /// Name of the base: a repository of the hub, a built-in model, or the name of a directory.
    base: Option<String>,
    kind: Kind,
    run: Option<TrainedModel>,
}

/// Content of the directory.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// An adapter, in PEFT's files.
    Adapter,
    /// A whole model.
    Model,
}

/// A policy of a run.
struct TrainedModel {
    policy: String,
    step: u64,
    config: Config,
    run: Run,
}

impl Card {
    /// The card of a model or an adapter that is of no run; `base` is as users write it.
    pub(super) fn new(kind: Kind, base: &str) -> Self {
        Self { base: Some(public(base)), kind, run: None }
    }

    /// The card of a policy at a step of a run.
    pub(super) fn of_run(
        kind: Kind,
        base: Option<&str>,
        (dir, policy, step): (&Path, &str, u64),
    ) -> Result<Self, Failure> {
        let config = paths::run(dir)?.origin()?.config;
        let run = Run::read(dir, String::new())?;
        let models = &config.models;
        let only = models.values().next().filter(|_| models.len() == 1);
        let path = models.get(policy).or(only).map(|model| model.path.as_str());
        let base = base.or(path).map(public);
        Ok(Self {
            base,
            kind,
            run: Some(TrainedModel { policy: policy.to_owned(), step, config, run }),
        })
    }

    /// The text of `README.md`.
    pub(super) fn text(&self) -> String {
        let mut text = self.head();
        let what = match self.kind {
            Kind::Adapter => "LoRA adapter",
            Kind::Model => "Language model",
        };
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(text, "# {what}\n\nWritten by `maverl export` (maverl {version}).\n");
        let mut rows: Vec<(&str, String)> = Vec::new();
        rows.extend(self.base.iter().map(|base| ("base", base.clone())));
        rows.extend(self.run.iter().flat_map(TrainedModel::rows));
        if !rows.is_empty() {
            text += "| | |\n|---|---|\n";
            rows.iter().for_each(|(name, value)| {
                let _ = writeln!(text, "| {name} | {value} |");
            });
            text.push('\n');
        }
        text + match self.kind {
            Kind::Adapter => {
                "```python\nfrom peft import AutoPeftModelForCausalLM\nfrom transformers import AutoTokenizer\n\n\
                 model = AutoPeftModelForCausalLM.from_pretrained(\"DIRECTORY\")\n\
                 tokenizer = AutoTokenizer.from_pretrained(\"DIRECTORY\")\n```\n"
            }
            Kind::Model => {
                "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n\
                 model = AutoModelForCausalLM.from_pretrained(\"DIRECTORY\")\n\
                 tokenizer = AutoTokenizer.from_pretrained(\"DIRECTORY\")\n```\n"
            }
        }
    }

    /// Metadata that the hub reads.
    fn head(&self) -> String {
        let (library, relation, tag) = match self.kind {
            Kind::Adapter => ("peft", "adapter", "\n- lora"),
            Kind::Model => ("transformers", "finetune", ""),
        };
        let on_hub = self.base.as_ref().filter(|base| base.contains('/'));
        let base = on_hub.map_or(String::new(), |base| {
            let name = base.split('@').next().unwrap_or_default();
            format!("base_model: {name}\nbase_model_relation: {relation}\n")
        });
        let learned = self.run.as_ref().map_or("", |_| "\n- reinforcement-learning");
        format!(
            "---\nlibrary_name: {library}\npipeline_tag: text-generation\n{base}tags:\n- maverl{learned}{tag}\n---\n\n"
        )
    }
}

impl TrainedModel {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { policy, step, config, run } = self;
        let orchestra = config.orchestra.name.clone().unwrap_or_default();
        let mut rows = vec![
            ("policy", format!("`{policy}`")),
            ("orchestra", format!("`{orchestra}`")),
            ("algorithm", config.algorithm.name.name().to_owned()),
            ("steps", format!("{step} of {}", config.steps)),
            ("seed", config.seed.to_string()),
        ];
        let summary = run.summary();
        let measure = summary.map_or("solved", |summary| summary.measure.as_str());
        let [before, after] = run.scores();
        rows.extend(before.map(|score| ("before training", score_words(measure, score))));
        // The evaluation after training is of the last step.
        let last = summary.is_some_and(|summary| summary.steps == *step);
        let after = after.filter(|_| last);
        rows.extend(after.map(|score| ("after training", score_words(measure, score))));
        let best = summary.and_then(|summary| summary.best).filter(|best| best.step == *step);
        rows.extend(
            best.map(|best| ("best validation", format!("{measure} {:.3}", best.exact_match))),
        );
        rows
    }
}

fn score_words(measure: &str, score: &SplitScore) -> String {
    let SplitScore { exact_match, greedy, tasks, interval: (low, high), .. } = score;
    format!(
        "{measure} {exact_match:.3} ({low:.3} to {high:.3}, 95 %), greedy {greedy:.3}, {tasks} tasks"
    )
}

/// Public name of a base: the last part of a path on this machine.
fn public(base: &str) -> String {
    if let Some(id) = base.strip_prefix("hf:") {
        return id.to_owned();
    }
    if base.starts_with("builtin:") {
        return base.to_owned();
    }
    Path::new(base).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_names_a_base_on_the_hub_and_no_directory_of_this_machine() {
        let text = Card::new(Kind::Adapter, "hf:Qwen/Qwen2.5-0.5B@abc").text();
        assert!(text.starts_with("---\nlibrary_name: peft\npipeline_tag: text-generation\n"));
        assert!(text.contains("\nbase_model: Qwen/Qwen2.5-0.5B\nbase_model_relation: adapter\n"));
        assert!(text.contains("| base | Qwen/Qwen2.5-0.5B@abc |") && text.contains("AutoPeft"));
        let text = Card::new(Kind::Model, "/home/me/models/small").text();
        assert!(!text.contains("base_model:") && !text.contains("/home"), "{text}");
        assert!(text.contains("| base | small |") && text.contains("library_name: transformers"));
    }
}
