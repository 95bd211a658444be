//! Settings of each preset.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use maverl::Sources;
use maverl::config::Preset;
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::trajectory::{Message, Role, Turn};
use maverl_lab::measure::resolve_plan;
use serde_json::{Value, json};

use super::arguments::LearnerArguments;

/// Built-in environment and model, as in `search_orchestra`.
const WORLD: &str = r#"
[task]
data = "builtin:facts"
tasks_per_step = 16
group_size = 8

[environment]
name = "search"
corpus = "builtin:facts"
top_k = 1

[sampling]
max_tokens = 24

[models.tiny]
path = "builtin:tiny"
optim = { lr = 5e-4, betas = [0.9, 0.95], weight_decay = 0.0 }

[eval]
before_and_after = false

[checkpoint]
every = 0
"#;

/// The search team.
const SEARCH: [&str; 2] = ["orchestra.name=\"search/route\"", "orchestra.max_turns=3"];

/// Two answerers, of which the second sees the first one's reply, each with its own policy.
const PAIR: [&str; 4] = [
    "orchestra.name=\"cory/pair\"",
    "orchestra.looks_up=true",
    "agents.\"cory/pioneer\".worker_group=\"one\"",
    "agents.\"cory/observer\".worker_group=\"other\"",
];

/// Separate policies for the agents of the search team.
const APART: [&str; 3] = [
    "agents.\"search/verifier\".worker_group=\"verifier\"",
    "agents.\"search/searcher\".worker_group=\"searcher\"",
    "agents.\"search/answerer\".worker_group=\"answerer\"",
];

/// Learning rate of critics, which begin with a head of zeros and train for a minute.
const CRITIC: &str = "algorithm.advantage.optim.lr=5e-4";

/// Number of lines of a training file.
const LINES: usize = 4096;

/// Returns the plan of a run.
pub(crate) async fn plan_run(
    preset: Preset,
    seed: u64,
    arguments: &LearnerArguments,
    registry: &Registry,
) -> Result<Plan> {
    let mut set = vec![
        format!("algorithm.name={:?}", preset.name()),
        format!("seed={seed}"),
        format!("steps={}", arguments.steps),
        format!("eval.tasks={}", arguments.tasks),
    ];
    match preset {
        Preset::Cory => set.extend(PAIR.map(str::to_owned)),
        _ => set.extend(SEARCH.map(str::to_owned)),
    }
    match preset {
        Preset::Sft | Preset::Dpo | Preset::Spin => {
            let file = write_training_file(preset, seed, &arguments.out).await?;
            set.push(format!("task.data={:?}", std::path::absolute(file)?));
            set.push("task.tasks_per_step=64".to_owned());
            set.push("eval.data=\"builtin:facts\"".to_owned());
        }
        // PPO and MAPPO have one policy for all agents.
        Preset::Ippo
        | Preset::Happo
        | Preset::Marft
        | Preset::Vdn
        | Preset::Qmix
        | Preset::Maporl => set.extend(APART.map(str::to_owned)),
        _ => {}
    }
    match preset {
        Preset::Dpo | Preset::Spin | Preset::OnlineDpo => {
            set.push("models.tiny.optim.lr=1e-4".to_owned());
        }
        // The two agents rarely find anything at first.
        Preset::Cory => set.push("models.tiny.optim.lr=2e-4".to_owned()),
        // Its four epochs, of three policies with a critic each, would leave too few steps in a minute.
        Preset::Maporl => set.push("algorithm.epochs=1".to_owned()),
        // Greedy episodes are far better than sampled ones here: nearly every advantage would be negative.
        Preset::Remax => set.push("algorithm.whiten=true".to_owned()),
        _ => {}
    }
    let kind = preset.parts().advantage.kind;
    if kind.is_some_and(|kind| ["critic", "mixer"].contains(&kind.as_str())) {
        set.push(CRITIC.to_owned());
    }
    set.extend(arguments.set.iter().cloned());
    let start = Sources::default().text("learners.toml", WORLD, "");
    let sources = set.into_iter().fold(start, Sources::with);
    resolve_plan(&sources, registry)
}

/// Writes the training file of a supervised preset: perfect replies in generated environments; or pairs of those with
/// replies that the same agent gave to other prompts.
async fn write_training_file(preset: Preset, seed: u64, out: &Path) -> Result<PathBuf> {
    let turns = orchestras::search::demonstrations(1000 + seed, LINES, 0.0).await?;
    let lines: Vec<Value> = match preset {
        Preset::Dpo => turns
            .iter()
            .enumerate()
            .filter_map(|(at, turn)| preference_pair(&turns, at, turn))
            .collect(),
        _ => turns.iter().map(|turn| json!({ "messages": turn_messages(turn) })).collect(),
    };
    let path = out.join(format!("{}-{seed}.jsonl", preset.name()));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text)?;
    Ok(path)
}

fn turn_messages(turn: &Turn) -> Vec<Message> {
    let reply = Message { role: Role::Assistant, content: turn.reply.clone() };
    turn.prompt.iter().cloned().chain([reply]).collect()
}

/// Pairs a reply with the next different one of the same agent.
fn preference_pair(turns: &[Turn], at: usize, turn: &Turn) -> Option<Value> {
    let mut others = turns[at + 1..].iter().chain(&turns[..at]);
    let other = others.find(|other| other.seat == turn.seat && other.reply != turn.reply)?;
    Some(json!({ "prompt": turn.prompt, "chosen": turn.reply, "rejected": other.reply }))
}
