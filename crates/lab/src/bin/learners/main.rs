//! Trains every preset for at most a minute on the built-in environment and model, and compares the tasks that the team
//! solves before and after.
//!
//! `cargo run --release -p maverl-lab --bin learners` takes about an hour on two cores; `-- drmas dpo` trains only those two. The
//! table is written again after every run, so that it exists if a later run fails.

mod arguments;
mod score;
mod settings;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use clap::Parser;
use maverl::config::Preset;
use maverl::registry::Registry;
use maverl::train::Weights;
use maverl_lab::measure::{self, TaskScores};

use arguments::LearnerArguments;
use score::{PresetRow, format_table};
use settings::plan_run;

fn main() -> Result<()> {
    let arguments = LearnerArguments::parse();
    let presets = chosen_presets(&arguments.presets)?;
    let registry = Registry::collect()?;
    fs::create_dir_all(&arguments.out)?;
    let (mut rows, mut before) = (Vec::new(), BTreeMap::new());
    for preset in presets {
        for seed in 0..arguments.seeds {
            let row = measure::catch_panic(|| {
                train_preset(preset, seed, &arguments, &registry, &mut before)
            });
            let row = row.unwrap_or_else(|error| PresetRow::failed_row(preset, seed, &error));
            eprintln!("{}", row.format_line());
            rows.push(row);
            fs::write(arguments.out.join("table.md"), format_table(&rows))?;
        }
    }
    println!("{}", format_table(&rows));
    Ok(())
}

/// Returns the presets of these names, or all. A verifier solves no tasks, and is left out.
fn chosen_presets(names: &[String]) -> Result<Vec<Preset>> {
    let all: Vec<Preset> =
        Preset::ALL.into_iter().filter(|preset| *preset != Preset::Verifier).collect();
    if names.is_empty() {
        return Ok(all);
    }
    let known: Vec<&str> = all.iter().map(|preset| preset.name()).collect();
    let found = names.iter().map(|name| {
        let found = all.iter().copied().find(|preset| preset.name() == name);
        found.with_context(|| {
            format!("no preset is called `{name}`; there are {}", known.join(", "))
        })
    });
    found.collect()
}

/// Trains one preset with one seed. Evaluations of the starting model are reused for other presets of the same team.
fn train_preset(
    preset: Preset,
    seed: u64,
    arguments: &LearnerArguments,
    registry: &Registry,
    before: &mut BTreeMap<(String, u64), TaskScores>,
) -> Result<PresetRow> {
    let runtime = tokio::runtime::Runtime::new()?;
    let dir = arguments.out.join(format!("{}-{seed}", preset.name().replace('+', "p")));
    let plan = runtime.block_on(plan_run(preset, seed, arguments, registry))?;
    let team = (plan.orchestra.name.clone(), seed);
    let start = match before.get(&team) {
        Some(start) => start.clone(),
        None => runtime.block_on(measure::evaluate_test_split(&plan, registry, &Weights::Start))?,
    };
    before.insert(team, start.clone());
    let trained = measure::train_until(&plan, registry, &dir, arguments.seconds, start);
    Ok(PresetRow::trained_row(preset, seed, runtime.block_on(trained)?))
}
