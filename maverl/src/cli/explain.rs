//! What a name in a configuration stands for.

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use serde::Serialize;

use super::Failure;
use crate::config::{AlgorithmConfig, Preset};
use crate::plan::{AlgorithmPlan, LossPlan};

#[derive(Args)]
pub(super) struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The parts that a preset of `algorithm.name` sets.
    ///
    /// Without NAME, every preset. What a preset leaves to the defaults stands below, as comments; each part can be set
    /// otherwise.
    Algorithm {
        /// The preset.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// The explanation, as text.
pub(super) fn explain(args: &ExplainArgs) -> Result<String, Failure> {
    let What::Algorithm { name } = &args.what;
    let Some(name) = name else { return Ok(every()) };
    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == name);
    let preset = preset.ok_or_else(|| {
        let names = Preset::ALL.map(Preset::name).join(", ");
        Failure(format!("no preset is called `{name}`; there are {names}"))
    })?;
    one(preset)
}

fn every() -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["name", "paper", "what it is"]);
    for preset in Preset::ALL {
        let paper = preset.paper().map_or_else(String::new, |number| format!("arXiv:{number}"));
        table.add_row([preset.name().to_owned(), paper, preset.words().to_owned()]);
    }
    table.trim_fmt()
}

fn one(preset: Preset) -> Result<String, Failure> {
    let mut text = format!("{}: {}\n", preset.name(), preset.words());
    if let Some(number) = preset.paper() {
        text += &format!("https://arxiv.org/abs/{number}\n");
    }
    let set = table(&preset.parts())?;
    let left = without(table(&whole(preset))?, &set);
    text += &format!("\n{}\n# What it leaves to the defaults of the keys:\n", written(set)?);
    for line in written(left)?.lines() {
        let mark = if line.is_empty() { "" } else { "#" };
        text += &format!("{mark}{line}\n");
    }
    Ok(text)
}

/// A preset with every default written out.
fn whole(preset: Preset) -> AlgorithmConfig {
    let named = AlgorithmConfig { name: preset, ..AlgorithmConfig::default() };
    let loss = LossPlan::from(&preset.parts().loss);
    AlgorithmPlan::from(&named).written(&loss)
}

fn table(parts: &AlgorithmConfig) -> Result<toml::Table, Failure> {
    let mut table = toml::Table::try_from(parts)?;
    table.remove("max_flat_steps");
    table.retain(|_, value| value.as_table().is_none_or(|table| !table.is_empty()));
    Ok(table)
}

/// The keys that others lack, in tables as well.
fn without(mut table: toml::Table, others: &toml::Table) -> toml::Table {
    table.retain(|key, value| match (value, others.get(key)) {
        (toml::Value::Table(inner), Some(toml::Value::Table(other))) => {
            *inner = without(std::mem::take(inner), other);
            !inner.is_empty()
        }
        (_, other) => other.is_none(),
    });
    table
}

/// A table as a configuration.
fn written(algorithm: toml::Table) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Whole {
        algorithm: toml::Table,
    }
    Ok(toml::to_string(&Whole { algorithm })?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::Config;

    #[test]
    fn what_is_printed_means_the_same_as_the_name() {
        for preset in Preset::ALL {
            let text = one(preset).unwrap();
            let (_, text) = text.split_once("\n\n").unwrap();
            let written = toml::from_str::<Config>(text).unwrap().algorithm;
            assert_eq!(written, preset.parts(), "{text}");
            let named = AlgorithmConfig { name: preset, ..AlgorithmConfig::default() };
            assert_eq!(AlgorithmPlan::from(&written), AlgorithmPlan::from(&named));
            let loss = written.loss.over(&preset.parts().loss);
            assert_eq!(LossPlan::from(&written.loss), LossPlan::from(&loss));
        }
    }

    #[test]
    fn a_preset_is_explained_with_its_paper_and_its_parts() {
        let text = one(Preset::Dapo).unwrap();
        for part in
            ["arxiv.org/abs/2503.14476", "name = \"dapo\"", "resample = 10", "clip_high = 0.28"]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(!text.contains("max_flat_steps"));
        let text = one(Preset::Drmas).unwrap();
        assert!(text.contains("\n#group_by = \"task_seat\"\n"), "{text}");
        assert!(Preset::ALL.iter().all(|preset| every().contains(preset.name())));
    }

    #[test]
    fn an_unknown_preset_is_told_which_there_are() {
        let what = What::Algorithm { name: Some("qmixx".to_owned()) };
        let Failure(message) = explain(&ExplainArgs { what }).unwrap_err();
        assert!(
            message.starts_with("no preset is called `qmixx`; there are drmas, grpo"),
            "{message}"
        );
    }
}
