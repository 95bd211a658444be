//! Effect of unequal rewards on gradients: a team in which one agent earns a hundred times the reward of the others. It
//! is trained with one baseline for all turns of a task (GRPO as commonly used for teams), with one for its episodes,
//! and with one for each agent (Dr. MAS). Learning rates are small, so that all three see nearly the same turns.
//!
//! `cargo run --release -p maverl-lab --bin gradient_norms` trains three times and draws `docs/src/algorithms/gradient-norms.svg`
//! from `metrics.jsonl` of the runs.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use maverl::prelude::*;
use maverl::registry::Registry;
use maverl::run_dir::RunLocation;
use maverl::train::Options;
use maverl::{Purpose, Sources, check};
use orchestras as _; // brings `search/route` and its agents
use serde_json::Value;

/// Draws gradient norms of three baselines.
#[derive(Parser)]
struct NormArguments {
    /// Steps of each run.
    #[arg(long, default_value_t = 30)]
    steps: u64,
    /// Additional setting of every run, such as `models.tiny.optim.lr=1e-3`.
    #[arg(long)]
    set: Vec<String>,
    /// Seed of every run.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Directory of the runs; existing ones are replaced.
    #[arg(long, default_value = "runs/gradient-norms")]
    runs: PathBuf,
    /// File of the drawing.
    #[arg(long, default_value = "docs/src/algorithms/gradient-norms.svg")]
    out: PathBuf,
}

/// Gives the answerer ninety-nine times the score on top of the score.
#[reward(name = "answerer_hundredfold")]
fn answerer_hundredfold(episode: &Episode) -> Rewards {
    let score = episode.score().map_or(0.0, |score| score.reward);
    Rewards::none().seat(Seat::only("search/answerer"), 99.0 * score)
}

const TEAM: &str = r#"
[task]
data = "builtin:facts"
tasks_per_step = 8
group_size = 8

[orchestra]
name = "search/route"

[environment]
name = "search"
corpus = "builtin:facts"
top_k = 1

[sampling]
max_tokens = 24

[models.tiny]
path = "builtin:tiny"
optim = { lr = 1e-5, betas = [0.9, 0.95], weight_decay = 0.0 }

[agents."search/verifier"]
worker_group = "verifier"

[agents."search/searcher"]
worker_group = "searcher"

[agents."search/answerer"]
worker_group = "answerer"

[rewards.answerer_hundredfold]
weight = 1.0

[algorithm]
normalize_std = true

[eval]
before_and_after = false

[checkpoint]
every = 0
"#;

/// Names in the drawing, settings and colours.
const BASELINES: [(&str, &str, &str); 3] = [
    ("GRPO over all turns of a task", "algorithm.advantage.by=\"task_turn\"", "#c0392b"),
    ("GRPO over the episodes of a task", "algorithm.advantage.by=\"task\"", "#d4a017"),
    ("Dr. MAS: each agent its own", "algorithm.advantage.by=\"task_seat\"", "#1f6fb2"),
];

/// Agents, each with its own policy.
const AGENTS: [&str; 3] = ["verifier", "searcher", "answerer"];

/// Gradient norms by step, for each agent.
type Norms = [Vec<f64>; 3];

fn main() -> Result<()> {
    let arguments = NormArguments::parse();
    let mut all = Vec::new();
    for (at, (name, setting, _)) in BASELINES.iter().enumerate() {
        let dir = arguments.runs.join(at.to_string());
        train_setting(&arguments, setting, &dir)?;
        let norms = read_norms(&dir)?;
        for (agent, norms) in AGENTS.iter().zip(&norms) {
            let (median, most) = (quantile(norms, 0.5), quantile(norms, 1.0));
            println!("{name}, {agent}: median {median:.3}, largest {most:.3}");
        }
        all.push(norms);
    }
    fs::write(&arguments.out, draw_norms(&all))?;
    println!("wrote {}", arguments.out.display());
    Ok(())
}

fn train_setting(arguments: &NormArguments, setting: &str, dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    let sources = Sources::default()
        .text("gradient_norms.toml", TEAM, "")
        .with(setting)
        .with(format!("steps={}", arguments.steps))
        .with(format!("seed={}", arguments.seed));
    let sources = arguments.set.iter().fold(sources, |sources, set| sources.with(set));
    let registry = Registry::collect()?;
    let plan = check(&sources, &registry, Purpose::Train).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow!(problems.join("\n"))
    })?;
    let options = Options::new(RunLocation::New(dir.to_owned()));
    tokio::runtime::Runtime::new()?.block_on(maverl::train(&plan, &registry, options))?;
    Ok(())
}

/// Reads the gradient norms of a run from its metrics.
fn read_norms(run: &Path) -> Result<Norms> {
    let text = fs::read_to_string(run.join("metrics.jsonl"))?;
    let mut norms = Norms::default();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line)?;
        for (agent, norms) in AGENTS.iter().zip(&mut norms) {
            norms.extend(row[format!("policy/{agent}/grad_norm")].as_f64());
        }
    }
    norms[0].first().context("the run has updated nothing")?;
    Ok(norms)
}

fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((q * sorted.len().saturating_sub(1) as f64) as usize).copied().unwrap_or(f64::NAN)
}

const WIDTH: f64 = 280.0;
const HEIGHT: f64 = 180.0;
const MARGIN: f64 = 46.0;

/// Draws a panel for each agent with a line for each baseline, on one scale.
fn draw_norms(all: &[Norms]) -> String {
    let most = all.iter().flatten().flatten().copied().fold(1e-9, f64::max);
    let steps = all.iter().flatten().map(Vec::len).max().unwrap_or(1);
    let (width, height) = (3.0 * (WIDTH + MARGIN) + MARGIN, HEIGHT + 110.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (agent, name) in AGENTS.iter().enumerate() {
        let left = MARGIN + agent as f64 * (WIDTH + MARGIN);
        draw_panel(&mut svg, name, left, most, steps);
        for (norms, (_, _, colour)) in all.iter().zip(BASELINES) {
            let points = norms[agent].iter().enumerate().map(|(step, norm)| {
                let x = left + WIDTH * step as f64 / steps.saturating_sub(1).max(1) as f64;
                let y = 30.0 + HEIGHT * (1.0 - norm / most);
                format!("{x:.1},{y:.1}")
            });
            // Writing to a `String` cannot fail, here and below.
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
                points.collect::<Vec<_>>().join(" ")
            );
        }
    }
    for (at, (name, _, colour)) in BASELINES.iter().enumerate() {
        let (x, y) = (MARGIN + at as f64 * (WIDTH + MARGIN), HEIGHT + 86.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{}\" y=\"{}\" fill=\"#222222\">{name}</text>",
            x + 24.0,
            x + 32.0,
            y + 4.0
        );
    }
    svg + "</svg>\n"
}

/// Draws a frame with its name and the ends of both axes.
fn draw_panel(svg: &mut String, name: &str, left: f64, most: f64, steps: usize) {
    let bottom = 30.0 + HEIGHT;
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"30\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999999\"/>\n\
         <text x=\"{left}\" y=\"22\" fill=\"#222222\">gradient norm, {name}</text>\n\
         <text x=\"{}\" y=\"36\" text-anchor=\"end\" fill=\"#222222\">{most:.2}</text>\n\
         <text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\" fill=\"#222222\">0</text>\n\
         <text x=\"{left}\" y=\"{}\" fill=\"#222222\">1</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#222222\">step {steps}</text>",
        left - 4.0,
        left - 4.0,
        bottom + 16.0,
        left + WIDTH,
        bottom + 16.0
    );
}
