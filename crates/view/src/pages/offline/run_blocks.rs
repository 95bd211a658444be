//! Answers about a run in the blocks of pages without a server.

use std::collections::{BTreeMap, BTreeSet};

use maverl::run_dir::TRAIN;
use serde_json::Value;

use super::blocks::PageBlocks;
use super::error::PageError;
use crate::compact::{collect_into, sort_by};
use crate::pages::answer::MOST_VALUES;
use crate::report::analyses::episode::episode_json;
use crate::report::analyses::groups::group_samples;
use crate::report::analyses::team::{step_comparison, team_summary};
use crate::report::analyses::times::{step_times, turn_times};
use crate::report::analyses::tokens::{TurnPrompt, turn_tokens};
use crate::report::problem::ReportProblem;
use crate::report::rows::episodes::read_stored;
use crate::report::rows::index::RowIndex;
use crate::report::rows::run::ReportedRun;
use crate::report::rows::selection::RowSelection;
use crate::report::watched::WatchedRun;

/// Choice of the training episodes in a page: whole tasks of the steps, those first whose scores differ most. A page
/// without episodes has no texts of models at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageChoice {
    /// Maximum number of episodes of each run.
    pub episodes: usize,
    /// First and last step; `None` for the first and the last step of the run alone.
    pub steps: Option<(u32, u32)>,
}

/// Adds the answer of a path to a block, and returns it. `named` is the name of the block, and that of the run for errors.
pub(super) fn add_answer(
    blocks: &mut PageBlocks,
    named: (&str, &str),
    path: &str,
    answer: Result<Value, ReportProblem>,
) -> Result<Value, PageError> {
    let (block, run) = named;
    blocks.add_answer(block, path, answer).map_err(|problem| PageError::Part {
        run: run.to_owned(),
        path: path.to_owned(),
        reason: problem.reason,
    })
}

/// Adds the parts of a run.
pub(super) fn add_run(
    blocks: &mut PageBlocks,
    watched: &WatchedRun,
    choice: &PageChoice,
) -> Result<(), PageError> {
    let run = &*watched.run;
    let (r, name) = (&run.id, run.name.as_str());
    let parts = [
        ("", Ok(watched.overview())),
        ("/config", Ok(watched.configuration_texts())),
        ("/spans", Ok(step_times(&run.files, 0, u64::MAX))),
        ("/team", team_summary(run)),
        ("/replies", Ok(watched.reply_findings().answer)),
        ("/groups", watched.largest_groups()),
    ];
    for (part, answer) in parts {
        add_answer(blocks, ("all", name), &format!("runs/{r}{part}"), answer)?;
    }
    add_series(blocks, run)?;
    let (rows, of) = chosen_rows(run, choice)?;
    if rows.is_empty() {
        blocks.forget_replies(r);
    }
    blocks.episodes += rows.len();
    blocks.of += of;
    let mut groups = BTreeSet::new();
    for row in &rows {
        add_episode(blocks, run, row, &mut groups)?;
    }
    let train = rows.iter().filter(|row| row["stage"] == TRAIN);
    for step in collect_into::<BTreeSet<u64>, u64>(train.filter_map(|row| row["step"].as_u64())) {
        let (block, path) = (format!("{r}-{step}"), format!("runs/{r}/steps/{step}"));
        add_answer(blocks, (&block, name), &path, step_comparison(run, step))?;
    }
    add_groups(blocks, watched, &groups)?;
    let list = object!({ "rows": rows, "total": rows.len(), "of": of, "scanning": Value::Null });
    let all = blocks.blocks.entry("all".to_owned()).or_default();
    all.insert(format!("runs/{r}/episodes"), list);
    Ok(())
}

/// Adds groups by step and id, with the times of their steps.
fn add_groups(
    blocks: &mut PageBlocks,
    watched: &WatchedRun,
    groups: &BTreeSet<(u64, u64)>,
) -> Result<(), PageError> {
    let run = &*watched.run;
    let (r, name) = (&run.id, run.name.as_str());
    for step in collect_into::<BTreeSet<u64>, u64>(groups.iter().map(|(step, _)| *step)) {
        let (block, path) = (format!("{r}-{step}"), format!("runs/{r}/groups/{step}"));
        add_answer(blocks, (&block, name), &path, watched.step_groups(step))?;
        if run.files.clock_file(step).is_file() {
            let path = format!("runs/{r}/clock/{step}");
            add_answer(blocks, (&block, name), &path, turn_times(&run.files, step))?;
        }
    }
    for (step, id) in groups {
        let (block, path) = (format!("{r}-{step}"), format!("runs/{r}/groups/{step}/{id}"));
        add_answer(blocks, (&block, name), &path, group_samples(run, *step, *id as usize))?;
    }
    Ok(())
}

/// Adds the metrics of a run, in as many answers as they need.
fn add_series(blocks: &mut PageBlocks, run: &ReportedRun) -> Result<(), PageError> {
    let (mut path, mut from) = (format!("runs/{}/series", run.id), 0);
    loop {
        let part = run.lock_content().series.select_columns(&[], from, MOST_VALUES);
        let part = add_answer(blocks, ("all", &run.name), &path, Ok(part))?;
        let Some(next) = part["next"].as_u64() else { return Ok(()) };
        (path, from) = (format!("runs/{}/series?from={next}", run.id), next);
    }
}

/// Adds an episode with its turns in tokens. Its groups are added to `groups`.
fn add_episode(
    blocks: &mut PageBlocks,
    run: &ReportedRun,
    row: &Value,
    groups: &mut BTreeSet<(u64, u64)>,
) -> Result<(), PageError> {
    let (r, name) = (&run.id, run.name.as_str());
    let (step, n) = (row["step"].as_u64().unwrap_or_default(), row["n"].as_u64());
    let (stage, n) = (row["stage"].as_str().unwrap_or_default(), n.unwrap_or_default());
    let (block, path) = (format!("{r}-{step}"), format!("runs/{r}/episodes/{stage}/{step}/{n}"));
    let stored = read_stored(run, stage, step, n).map_err(|problem| PageError::Part {
        run: name.to_owned(),
        path: path.clone(),
        reason: problem.reason,
    })?;
    let episode = add_answer(blocks, (&block, name), &path, episode_json(run, &stored))?;
    for (i, turn) in episode["turns"].as_array().into_iter().flatten().enumerate() {
        groups.extend(turn["sample"]["record"]["group"].as_u64().map(|id| (step, id)));
        if !turn["tokens"].is_null() {
            let path = format!("{path}/turns/{i}/tokens");
            let tokens = turn_tokens(run, &stored.row, &stored.episode, i, TurnPrompt::New);
            add_answer(blocks, (&block, name), &path, tokens)?;
        }
    }
    Ok(())
}

/// Reads the rows of the chosen training episodes, and returns them with the number of all rows.
fn chosen_rows(run: &ReportedRun, choice: &PageChoice) -> Result<(Vec<Value>, usize), PageError> {
    let content = run.lock_content();
    let chosen = choose_rows(&content.index, choice);
    let rows = content.index.read_rows(content.rows_file(), &chosen);
    Ok((
        rows.map_err(|error: std::io::Error| PageError::Part {
            run: run.name.clone(),
            path: "episodes".to_owned(),
            reason: error.to_string(),
        })?,
        content.index.len(),
    ))
}

/// Returns the rows of the chosen training episodes, by whole groups of a task, those with the largest difference of
/// scores first.
fn choose_rows(index: &RowIndex, choice: &PageChoice) -> Vec<usize> {
    let steps = index.stage_steps(TRAIN);
    let ends = [steps.first(), steps.last()];
    let mut groups: Vec<(f64, Vec<usize>)> = Vec::new();
    for step in steps.iter().copied().filter(|step: &u32| match choice.steps {
        Some((first, last)) => (first..=last).contains(step),
        None => ends.contains(&Some(step)),
    }) {
        let selection = RowSelection {
            stage: Some(TRAIN.to_owned()),
            steps: (Some(step), Some(step)),
            limit: usize::MAX,
            ..RowSelection::default()
        };
        let mut tasks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for at in index.select_rows(&selection).0 {
            tasks.entry(index.task_and_score(at).0).or_default().push(at);
        }
        groups.extend(tasks.into_values().map(|rows| {
            let scores = rows.iter().map(|at| index.task_and_score(*at).1);
            let most = scores.clone().fold(f64::NEG_INFINITY, f64::max);
            let spread = most - scores.fold(f64::INFINITY, f64::min);
            (if spread.is_finite() { spread } else { 0.0 }, rows)
        }));
    }
    // Equal differences keep the order of steps and tasks.
    sort_by(&mut groups, |(a, _), (b, _)| b.total_cmp(a));
    let mut rows = Vec::new();
    for (_, group) in groups {
        if group.len() <= choice.episodes - rows.len() {
            rows.extend(group);
        }
    }
    rows.sort_unstable();
    rows
}
