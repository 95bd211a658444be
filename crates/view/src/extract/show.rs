//! One episode as text for a terminal, or as JSON.

mod tokens;

use std::fmt::Write as _;
use std::path::Path;

use maverl::output::visible;
use maverl::run_dir::{
    RunDir, RunDirError, SampleRecord, StepSamples, read_rollouts, read_samples,
};
use maverl::table::paragraphs;
use maverl::task::Action;
use maverl::train::{RecordedEpisode, TrainError};
use maverl::trajectory::{Act, Episode, Outcome, Turn};
use serde_json::Value;

pub use self::tokens::Detail;
use crate::compact::sort_by;
use crate::report::problem::ReportProblem;
use crate::report::reading::files::RunFiles;

/// Episodes to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownEpisodes {
    /// The episode of this name, `STEP/[SOURCE/]TASK/INDEX`.
    Named(String),
    /// The episodes of a step with the lowest scores, so many.
    Worst(u64, usize),
}

/// Error of showing an episode.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// There is no such episode, or a file cannot be read.
    #[error(transparent)]
    Run(#[from] TrainError),
    /// A file of the tokens cannot be read.
    #[error("the tokens cannot be read: {0}")]
    Tokens(String),
}

impl From<RunDirError> for ShowError {
    fn from(error: RunDirError) -> Self {
        Self::Run(error.into())
    }
}

/// Returns episodes of a run as text of at most `width` columns; lines of tokens are as long as they are.
///
/// # Errors
///
/// See [`ShowError`].
pub fn show_episodes(
    dir: &Path,
    shown: &ShownEpisodes,
    detail: Detail,
    width: usize,
) -> Result<String, ShowError> {
    let run = RunDir::open(dir)?;
    let files = RunFiles::new(dir.to_owned());
    let mut parts = Vec::new();
    for (step, n, episode) in &chosen_episodes(&run, shown)? {
        let samples = step_samples(&run, *step)?;
        let tokens = match detail {
            Detail::Turns => Vec::new(),
            Detail::Tokens => {
                let turns = episode.turns.iter().enumerate();
                let lines =
                    turns.map(|(i, turn)| tokens::token_lines(&files, *step, (*n, i), turn));
                lines.collect::<Result<_, _>>().map_err(unreadable_tokens)?
            }
        };
        parts.push(episode_text((*step, *n, episode), samples.as_ref(), &tokens, width));
    }
    Ok(visible(&parts.join("\n")).into_owned())
}

/// Returns episodes of a run as a list of JSON objects, with complete texts.
///
/// # Errors
///
/// See [`ShowError`].
pub fn show_json(dir: &Path, shown: &ShownEpisodes, detail: Detail) -> Result<Value, ShowError> {
    let run = RunDir::open(dir)?;
    let files = RunFiles::new(dir.to_owned());
    let mut found = Vec::new();
    for (step, n, episode) in &chosen_episodes(&run, shown)? {
        let samples = step_samples(&run, *step)?;
        let its = samples.as_ref().map(|samples| samples.of_episode(*n));
        let value = tokens::episode_json(&files, (*step, *n, episode), its.as_ref(), detail);
        found.push(value.map_err(unreadable_tokens)?);
    }
    Ok(found.into())
}

/// Returns the error of tokens that cannot be read.
fn unreadable_tokens(problem: ReportProblem) -> ShowError {
    ShowError::Tokens(problem.reason)
}

/// Returns the chosen episodes with their step and their index in it.
fn chosen_episodes(
    run: &RunDir,
    shown: &ShownEpisodes,
) -> Result<Vec<(u64, usize, Episode)>, TrainError> {
    Ok(match shown {
        ShownEpisodes::Named(name) => {
            let RecordedEpisode { step, episode } = RecordedEpisode::read(run, name)?;
            let all = read_rollouts(&run.rollouts(step))?;
            let n = all.iter().position(|other| *other == episode).unwrap_or(0);
            vec![(step, n, episode)]
        }
        ShownEpisodes::Worst(step, count) => worst_episodes(run, *step, *count)?,
    })
}

/// Returns the episodes of a step with the lowest scores; unscored ones are last.
fn worst_episodes(
    run: &RunDir,
    step: u64,
    count: usize,
) -> Result<Vec<(u64, usize, Episode)>, TrainError> {
    if !run.rollout_steps()?.contains(&step) {
        // The error names the steps that there are.
        RecordedEpisode::read(run, &step.to_string())?;
    }
    let mut all: Vec<(usize, Episode)> =
        read_rollouts(&run.rollouts(step))?.into_iter().enumerate().collect();
    sort_by(&mut all, |(_, a), (_, b)| {
        let [a, b] = [a, b].map(|one| one.score().map_or(f64::INFINITY, |score| score.reward));
        a.total_cmp(&b)
    });
    Ok(all.into_iter().take(count).map(|(n, episode)| (step, n, episode)).collect())
}

fn step_samples(run: &RunDir, step: u64) -> Result<Option<StepSamples>, RunDirError> {
    let path = run.samples(step);
    if path.is_file() { read_samples(&path).map(Some) } else { Ok(None) }
}

/// Formats an episode: turns and actions in their order, with rewards and advantages, and the lines of the tokens of each
/// turn.
fn episode_text(
    (step, n, episode): (u64, usize, &Episode),
    samples: Option<&StepSamples>,
    tokens: &[String],
    width: usize,
) -> String {
    let name = format!("{step}/{}/{}", episode.task.id, episode.index);
    let mut text = format!("episode {name}\n");
    text += &labeled_block("question", &episode.task.question, width);
    let its = samples.map(|samples| samples.of_episode(n)).unwrap_or_default();
    for (i, turn) in episode.turns.iter().enumerate() {
        for act in episode.acts.iter().filter(|act| act.path == turn.path) {
            text += &of_act(act, width);
        }
        text += &of_turn(episode, i, turn, its.get(&i).copied(), width);
        text += tokens.get(i).map_or("", String::as_str);
    }
    let last = episode.turns.iter().map(|turn| &turn.path);
    for act in episode.acts.iter().filter(|act| !last.clone().any(|path| *path == act.path)) {
        text += &of_act(act, width);
    }
    text += &labeled_block("answer", episode.answer.as_deref().unwrap_or("(none)"), width);
    let end = match &episode.outcome {
        Outcome::Scored(score) => {
            let solved = if score.solved { "solved" } else { "not solved" };
            format!("{solved}, score {}", score.reward)
        }
        Outcome::Unscored(fault) => format!("unscored: {fault}"),
    };
    text + &labeled_block("outcome", &end, width)
}

fn of_turn(
    episode: &Episode,
    i: usize,
    turn: &Turn,
    sample: Option<&SampleRecord>,
    width: usize,
) -> String {
    let mut head = format!("\n{}  {}  {}", turn.path, turn.seat, turn.policy);
    if let Some(reward) = episode.turn_reward(i) {
        let _ = write!(head, "  R {reward:.3}");
    }
    if let Some(sample) = sample {
        let _ = write!(head, "  A {:+.3}", sample.loss_advantage());
    }
    let flags = [(turn.truncated, "truncated"), (turn.masked, "masked"), (turn.forked, "forked")];
    for (_, flag) in flags.iter().filter(|(set, _)| *set) {
        let _ = write!(head, "  {flag}");
    }
    let mut text = head + "\n";
    if let Some(last) = turn.prompt.last() {
        text += &labeled_block("prompt", &last.content, width);
    }
    text += &labeled_block("reply", &turn.reply, width);
    if let Some(error) = &turn.error {
        text += &labeled_block("error", error, width);
    }
    text
}

fn of_act(act: &Act, width: usize) -> String {
    let what = match &act.action {
        Action::Text(text) => text.clone(),
        Action::Tool { name, arguments } => format!("{name}({arguments})"),
    };
    let name = act.environment.as_deref().unwrap_or("environment");
    let text = format!("\n{name}\n{}", labeled_block("action", &what, width));
    text + &labeled_block("observed", &act.observation, width)
}

/// Formats a label and its text, wrapped.
fn labeled_block(label: &str, text: &str, width: usize) -> String {
    let lines = paragraphs(&visible(text.trim_end()), width.saturating_sub(12).max(20));
    let mut block = String::new();
    for (i, line) in lines.lines().enumerate() {
        let label = if i == 0 { label } else { "" };
        block += format!("  {label:<9} {line}").trim_end();
        block.push('\n');
    }
    if block.is_empty() { format!("  {label:<9} (empty)\n") } else { block }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use maverl::run_dir::testing::{episode, origin, write_step};
    use maverl::trajectory::TurnPath;

    #[test]
    fn an_episode_is_shown_with_its_rewards_advantages_and_actions_in_order() {
        let home = tempfile::tempdir().unwrap();
        let mut run = RunDir::create(&home.path().join("a"), &origin()).unwrap();
        let mut one = episode("train-1", 3, false, 2);
        one.turns[1].error = Some("no block".into());
        one.acts.push(Act {
            path: TurnPath(vec![1]),
            nth: 0,
            environment: None,
            action: Action::Text("capital of Peru".into()),
            observation: "Lima \u{1b}[31mred\u{202e}".into(),
            done: false,
        });
        let good = episode("train-1", 4, true, 1);
        write_step(&mut run, 12, &[good, one]);
        let mut samples = StepSamples::default();
        for (turn, advantage) in [(0, -0.5), (1, -1.25)] {
            let mut sample = SampleRecord::default();
            (sample.episode, sample.turn, sample.advantage) = (1, turn, advantage);
            samples.samples.push(sample);
        }
        run.write_samples(12, &samples).unwrap();
        let named = show_episodes(
            run.path(),
            &ShownEpisodes::Named("12/train-1/3".into()),
            Detail::Turns,
            80,
        )
        .unwrap();
        let parts = [
            "0  t/a  small  R 0.000  A -0.500",
            "action    capital of Peru",
            "1  t/a  small  R 0.000  A -1.250",
        ];
        let found: Vec<usize> = parts
            .iter()
            .map(|part| named.find(part).unwrap_or_else(|| panic!("{part}: {named}")))
            .collect();
        assert!(found.is_sorted(), "{named}");
        assert!(named.contains("<U+001B>[31mred<U+202E>") && !named.contains('\u{1b}'), "{named}");
        assert!(
            named.contains("error     no block") && named.ends_with("not solved, score 0\n"),
            "{named}"
        );
        let worst =
            show_episodes(run.path(), &ShownEpisodes::Worst(12, 1), Detail::Turns, 80).unwrap();
        assert_eq!(worst, named);
        let error = show_episodes(run.path(), &ShownEpisodes::Worst(13, 1), Detail::Turns, 80)
            .unwrap_err()
            .to_string();
        assert!(error.contains("its steps are 12 to 12"), "{error}");
    }
}
