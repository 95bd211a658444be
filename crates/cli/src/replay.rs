//! `maverl replay`: compares a recorded episode with its replay, turn by turn.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::{Failure, block_on, number, of_run, paths, plan_with_warnings, print, terminal};
use maverl::check::Purpose;
use maverl::output;
use maverl::registry::Registry;
use maverl::rollout::Replayed;
use maverl::table::lines;
use maverl::train::{self, RecordedEpisode, ReplayOptions, ReplayScope};
use maverl::trajectory::{Outcome, Seat, Turn};

/// Number of characters shown of a prompt, from its end.
const TAIL: usize = 240;

/// Arguments of `maverl replay`.
#[derive(Args)]
pub(super) struct ReplayArgs {
    /// Run directory.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// `STEP/TASK/INDEX`, for example `12/train-0001/3`. A step (`12`) lists its episodes.
    #[arg(value_name = "EPISODE")]
    episode: String,
    /// Sample every recorded turn again from its own prompt, without playing the episode: for programs and servers that are
    /// not repeatable.
    #[arg(long)]
    turns: bool,
    /// Print the turns, or the list, as JSON.
    #[arg(long)]
    json: bool,
    /// Write the likeliest tokens at each sampled token, so many, to the file of `--out`.
    #[arg(long, value_name = "K", value_parser = number::from_1, requires = "out")]
    top: Option<NonZeroUsize>,
    /// File of the likeliest tokens, JSON.
    #[arg(long, value_name = "FILE", value_parser = paths::to_write(), requires = "top")]
    out: Option<PathBuf>,
}

/// Replays an episode and prints it; fails if it differs from the recording. For a step, prints the names of its
/// episodes.
pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let ReplayArgs { run: dir, episode, turns, json, top, out } = args;
    let scope = if *turns { ReplayScope::Turns } else { ReplayScope::Episode };
    let run = paths::run_of(dir, episode, "replay")?;
    let listed = episode.parse().ok().map(|step| RecordedEpisode::names(&run, step)).transpose()?;
    if let Some(names) = listed.flatten().filter(|names| !names.is_empty()) {
        return print(&if *json { output::json(&names)? } else { names.join("\n") });
    }
    let recorded = RecordedEpisode::read(&run, episode)?;
    let registry = Registry::collect()?;
    let plan = plan_with_warnings(&of_run(dir)?.0, &registry, Purpose::Replay)?;
    let progress = train::stderr();
    let options = ReplayOptions { scope, top: top.map(NonZeroUsize::get) };
    let (replayed, top) = block_on(async {
        Ok::<_, Failure>(
            train::replay(&plan, &registry, &run, &recorded, options, &progress).await?,
        )
    })?;
    if let Some((top, out)) = top.zip(out.as_ref()) {
        top.write(out)?;
    }
    let report = ReplayReport::new(&recorded, &replayed);
    print(&if *json { output::json(&report)? } else { report.text(terminal::width()) })?;
    Ok(if report.identical { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A recorded episode, and its differences from the replay.
#[derive(Debug, Serialize)]
struct ReplayReport {
    episode: String,
    question: String,
    identical: bool,
    /// Difference of log-probs that is none; absent if they are compared to the bit.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<f32>,
    turns: Vec<TurnReport>,
    answer: Option<String>,
    outcome: Outcome,
    /// Reason why the replay is unscored, if it is not identical.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

#[derive(Debug, Serialize)]
struct TurnReport {
    path: String,
    seat: Seat,
    /// Last message of the prompt.
    prompt: String,
    reply: String,
    /// Reason why the reply is malformed.
    error: Option<String>,
    /// Difference from the recording.
    difference: Option<String>,
}

impl TurnReport {
    fn new(turn: &Turn, replayed: &Replayed) -> Self {
        let mut differences = replayed.differences.iter();
        Self {
            path: turn.path.to_string(),
            seat: turn.seat.clone(),
            prompt: turn.prompt.last().map_or_else(String::new, |last| last.content.clone()),
            reply: turn.reply.clone(),
            error: turn.error.clone(),
            difference: differences.find(|d| d.path == turn.path).map(|d| d.what.clone()),
        }
    }
}

impl ReplayReport {
    fn new(recorded: &RecordedEpisode, replayed: &Replayed) -> Self {
        let RecordedEpisode { episode, .. } = recorded;
        let played = replayed.episode.turns.iter();
        let played =
            played.filter(|turn| episode.turns.iter().all(|other| other.path != turn.path));
        let turns = episode.turns.iter().chain(played);
        Self {
            episode: recorded.name(),
            question: episode.task.question.clone(),
            identical: replayed.identical(),
            bound: Some(replayed.bound).filter(|bound| *bound > 0.0),
            turns: turns.map(|turn| TurnReport::new(turn, replayed)).collect(),
            answer: episode.answer.clone(),
            outcome: episode.outcome.clone(),
            fault: match &replayed.episode.outcome {
                Outcome::Unscored(fault) if !replayed.identical() => Some(fault.to_string()),
                _ => None,
            },
        }
    }

    fn text(&self, width: usize) -> String {
        let mut text = format!("episode {}: {}\n", self.episode, self.question);
        for turn in &self.turns {
            let TurnReport { path, seat, prompt, reply, error, difference } = turn;
            text.push_str(&format!("\nturn {path}, {seat}\n"));
            text.push_str(&block("prompt", &tail(prompt), width));
            text.push_str(&block("reply", reply, width));
            if let Some(error) = error {
                text.push_str(&block("error", error, width));
            }
            text.push_str(&block("now", difference.as_deref().unwrap_or("same"), width));
        }
        let different = self.turns.iter().filter(|turn| turn.difference.is_some()).count();
        let same = match self.bound {
            None => "identical".to_owned(),
            Some(bound) => format!("the same tokens, log-probs within {bound:.0e}"),
        };
        let end = match (self.identical, &self.outcome) {
            (false, _) => {
                let fault = self.fault.as_ref();
                let fault = fault.map(|fault| format!("the replay is unscored: {fault}\n"));
                let turns = self.turns.len();
                format!(
                    "{}{different} of {turns} turns are not the same",
                    fault.unwrap_or_default()
                )
            }
            (true, Outcome::Scored(score)) => format!("{same}; reward {}", score.reward),
            (true, Outcome::Unscored(fault)) => format!("{same}; unscored: {fault}"),
        };
        text + "\n" + &end
    }
}

/// Number of columns before the text of a block.
const INDENT: usize = 10;

/// Formats a label and a text, further lines below the first. Lines that are too wide are wrapped.
fn block(label: &str, text: &str, width: usize) -> String {
    let room = width.saturating_sub(INDENT);
    let text = text.trim_end().split('\n');
    let text =
        text.flat_map(
            |line| {
                if line.width() > room { lines(line, room) } else { vec![line.to_owned()] }
            },
        );
    let text: Vec<String> = text.collect();
    format!("  {label:<8}{}\n", text.join(&format!("\n{}", " ".repeat(INDENT))))
}

/// Returns the end of a text.
fn tail(text: &str) -> String {
    match text.char_indices().rev().nth(TAIL) {
        None => text.to_owned(),
        Some((start, first)) => format!("...{}", &text[start + first.len_utf8()..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maverl::rollout::TurnDifference;
    use maverl::task::{Score, Task};
    use maverl::trajectory::{Episode, Fault, FaultKind, Outcome, Seat, Turn, TurnPath};

    /// A solved episode with so many turns.
    fn episode(turns: u32) -> Episode {
        let turn = |i: u32| Turn {
            path: TurnPath(vec![i]),
            seat: Seat::only("t/a"),
            policy: "small".into(),
            prompt: Vec::new(),
            tools: Vec::new(),
            reply: "yes".into(),
            error: None,
            truncated: false,
            shortened: 0,
            forked: false,
            masked: false,
            tokens: None,
            teacher: None,
        };
        let task = Task {
            id: "train/1".into(),
            source: "facts".into(),
            question: "who?".into(),
            data: serde_json::Map::new(),
        };
        Episode {
            task,
            index: 3,
            seed: 7,
            branch: None,
            turns: (0..turns).map(turn).collect(),
            acts: Vec::new(),
            answer: Some("yes".into()),
            outcome: Outcome::Scored(Score::binary(true)),
            rewards: Vec::new(),
            log: String::new(),
        }
    }

    fn report(turns: [u32; 2], differences: Vec<TurnDifference>) -> ReplayReport {
        let recorded = RecordedEpisode { step: 12, episode: episode(turns[0]) };
        let played = episode(turns[1]);
        ReplayReport::new(&recorded, &Replayed { episode: played, differences, bound: 0.0 })
    }

    fn difference(turn: u32, what: &str) -> TurnDifference {
        TurnDifference { path: TurnPath(vec![turn]), what: what.to_owned() }
    }

    #[test]
    fn an_identical_episode_says_so_turn_by_turn() {
        let text = report([2, 2], Vec::new()).text(80);
        assert!(text.starts_with("episode 12/train/1/3: who?\n\nturn 0, t/a\n"), "{text}");
        assert_eq!(text.matches("  now     same\n").count(), 2, "{text}");
        assert!(text.ends_with("\nidentical; reward 1"), "{text}");
    }

    #[test]
    fn differences_stand_with_their_turns_also_those_that_were_not_recorded() {
        let differences = vec![difference(1, "sampled id 0 was 4, now 5"), difference(2, "new")];
        let report = report([2, 3], differences);
        let found: Vec<_> = report.turns.iter().map(|turn| turn.difference.as_deref()).collect();
        assert_eq!(found, [None, Some("sampled id 0 was 4, now 5"), Some("new")]);
        let text = report.text(80);
        assert!(text.ends_with("\n2 of 3 turns are not the same"), "{text}");
    }

    #[test]
    fn a_replay_that_ended_by_a_fault_says_which() {
        let recorded = RecordedEpisode { step: 12, episode: episode(2) };
        let fault = Fault::new(FaultKind::Environment, "no connection to 127.0.0.1:9");
        let played = Episode { outcome: Outcome::Unscored(fault), ..episode(1) };
        let differences = vec![difference(1, "not played")];
        let report =
            ReplayReport::new(&recorded, &Replayed { episode: played, differences, bound: 0.0 });
        let text = report.text(80);
        let (_, end) = text.rsplit_once("\n\n").unwrap_or_default();
        assert!(end.starts_with("the replay is unscored: "), "{end}");
        assert!(
            end.contains("no connection to 127.0.0.1:9\n1 of 2 turns are not the same"),
            "{end}"
        );
    }

    #[test]
    fn long_prompts_show_their_end_and_lines_stay_in_their_column() {
        let long = "ä".repeat(TAIL + 1);
        assert_eq!(tail(&long), format!("...{}", "ä".repeat(TAIL)));
        assert_eq!(tail(&long[2..]), &long[2..]);
        assert_eq!(block("prompt", "one\ntwo\n", 80), "  prompt  one\n          two\n");
        assert_eq!(
            block("reply", "one two\n  x", 16),
            "  reply   one\n          two\n            x\n"
        );
    }
}
