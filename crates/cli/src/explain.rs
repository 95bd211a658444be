//! `maverl explain`: keys, tables and presets of a configuration.

mod declared;
mod key;
mod level;

use clap::Args;
use serde::Serialize;

use crate::{Failure, usage};
use maverl::config::table::table_of;
use maverl::config::{AlgorithmConfig, Preset};
use maverl::plan::AlgorithmPlan;
use maverl::registry::Registry;
use maverl::table::{Table, paragraphs};

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// `algorithm`, or a key or table: its full name (`algorithm.loss.surrogate.clip_low`) or the end of it (`clip_low`);
    /// or the name of an orchestra, an environment, an estimator or a surrogate, whose keys are printed.
    ///
    /// Default: all tables.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// After `algorithm`: a preset of `algorithm.name`, whose keys are printed.
    ///
    /// Keys that it leaves at their defaults follow as comments. Each key can be overridden.
    #[arg(value_name = "PRESET", requires = "key")]
    preset: Option<String>,
}

/// Formats the explanation in lines of at most `width` columns.
pub(super) fn explain(
    args: &ExplainArgs,
    registry: &Registry,
    width: usize,
) -> Result<String, Failure> {
    match (args.key.as_deref(), args.preset.as_deref()) {
        (Some("algorithm"), None) => Ok(format!(
            "{}\n\n{}",
            every().draw(width),
            key::explain("algorithm", registry, width)?
        )),
        (Some("algorithm"), Some(name)) => explain_preset(preset(name, width)?, width),
        (Some(key), None) => key::explain(key, registry, width),
        (Some(key), Some(more)) => {
            let message = format!(
                "`{more}` follows `{key}`; only `algorithm` is followed by a name, that of a preset"
            );
            Err(Failure(message))
        }
        (None, _) => Ok(key::tables(width)),
    }
}

fn preset(name: &str, width: usize) -> Result<Preset, Failure> {
    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == name);
    preset.ok_or_else(|| {
        let names = Preset::ALL.iter().map(|preset| preset.name());
        Failure(paragraphs(&usage::none_called("preset", name, names), width))
    })
}

fn every() -> Table {
    let mut table = Table::without_frame(["preset", "paper", "what it is"]).prose(&[2]);
    for preset in Preset::ALL {
        let paper = preset.paper().map_or_else(String::new, |number| format!("arXiv:{number}"));
        table.row([preset.name().to_owned(), paper, preset.summary().to_owned()]);
    }
    table
}

fn explain_preset(preset: Preset, width: usize) -> Result<String, Failure> {
    let summary = format!("{}: {}", preset.name(), preset.summary());
    let mut text = format!("{}\n", paragraphs(&summary, width));
    if let Some(number) = preset.paper() {
        text += &format!("https://arxiv.org/abs/{number}\n");
    }
    let set = table(&preset.parts())?;
    let left = remove_keys(table(&whole_preset(preset))?, &set);
    text += &format!("\n{}\n# What it leaves to the defaults of the keys:\n", format_table(set)?);
    for line in format_table(left)?.lines() {
        let mark = if line.is_empty() { "" } else { "#" };
        text += &format!("{mark}{line}\n");
    }
    Ok(text)
}

/// Returns a preset with every default written out.
fn whole_preset(preset: Preset) -> AlgorithmConfig {
    let named = AlgorithmConfig { name: preset, ..AlgorithmConfig::default() };
    AlgorithmConfig::from(&AlgorithmPlan::from(&named))
}

fn table(parts: &AlgorithmConfig) -> Result<toml::Table, Failure> {
    let mut table = table_of(parts)?;
    table.remove("max_flat_steps");
    table.retain(|_, value| value.as_table().is_none_or(|table| !table.is_empty()));
    Ok(table)
}

/// Removes the keys that `others` has, also in nested tables.
fn remove_keys(mut table: toml::Table, others: &toml::Table) -> toml::Table {
    table.retain(|key, value| match (value, others.get(key)) {
        (toml::Value::Table(inner), Some(toml::Value::Table(other))) => {
            *inner = remove_keys(std::mem::take(inner), other);
            !inner.is_empty()
        }
        (_, other) => other.is_none(),
    });
    table
}

/// Formats a table as a configuration.
fn format_table(algorithm: toml::Table) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct WholeFile {
        algorithm: toml::Table,
    }
    Ok(toml::to_string(&WholeFile { algorithm })?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use maverl::config::Config;
    use maverl::plan::LossPlan;

    #[test]
    fn what_is_printed_means_the_same_as_the_name() {
        for preset in Preset::ALL {
            let text = explain_preset(preset, 80).unwrap();
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
        let text = explain_preset(Preset::Dapo, 60).unwrap();
        for part in
            ["arxiv.org/abs/2503.14476", "name = \"dapo\"", "resample = 10", "clip_high = 0.28"]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(!text.contains("max_flat_steps"));
        let (head, _) = text.split_once("\n\n").unwrap();
        assert!(head.lines().all(|line| line.len() <= 60), "{head}");
        let text = explain_preset(Preset::Drmas, 80).unwrap();
        assert!(text.contains("\n#by = \"task_seat\"\n"), "{text}");
        assert!(Preset::ALL.iter().all(|preset| every().draw(80).contains(preset.name())));
    }

    #[test]
    fn an_unknown_preset_is_told_which_was_meant_and_which_there_are() {
        let Failure(message) = preset("grppo", 60).unwrap_err();
        assert_eq!(
            message.lines().next(),
            Some("no preset is called `grppo`; did you mean `grpo`?"),
            "{message}"
        );
        assert!(message.contains("there are drmas, grpo, drgrpo"), "{message}");
        assert!(message.lines().all(|line| line.len() <= 60), "{message}");
        let Failure(message) = preset("zzz", 60).unwrap_err();
        assert!(message.starts_with("no preset is called `zzz`\nthere are drmas"), "{message}");
    }
}
