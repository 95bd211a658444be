//! Replies of the seats of a team: their last lines, by the outcome of the episode, or by the answer that the seat saw. A
//! seat with few of them, such as a verifier, is of use only if they differ between right and wrong.

use std::collections::BTreeMap;

use maverl::run_dir::{TRAIN, Texts};
use maverl::trajectory::{RewardOf, RewardPart};
use serde_json::Value;

use super::answers::{AnsweredEpisode, AnsweredTurn, EpisodeAnswers, reply_parts, text_hash};
use super::divergence::{loss_causes, loss_summary};
use super::fall::fall_summary;
use super::hacking::{HackedReward, hacking_summary};
use super::last_lines::{LINES, SeatReplies, last_line};
use super::team::WINDOW;
use crate::compact::collect_into;
use crate::report::rows::index::counts::Played;
use crate::report::rows::run::ReportedRun;
use crate::report::rows::texts::read_texts;

/// Maximum number of episodes that are read at either end of a run.
const EPISODES: usize = 640;
/// Replies of each seat.
#[derive(Debug, Default)]
struct TeamReplies {
    seats: BTreeMap<String, SeatReplies>,
    /// Description of the answers that were replaced.
    replaced: Value,
    /// Number of episodes that cannot be read.
    unreadable: usize,
}

/// Texts of an episode. Those of its turns are last lines.
#[derive(Debug, Default)]
struct EpisodeTexts {
    lines: Vec<String>,
    rewards: Vec<RewardPart>,
}

/// Reads the replies of episodes, at most [`EPISODES`] of them.
fn read_replies(run: &ReportedRun, played: &[Played]) -> TeamReplies {
    let episodes: Vec<(usize, &Played)> = played.iter().take(EPISODES).enumerate().collect();
    let mut answered: Vec<AnsweredEpisode> = episodes
        .iter()
        .map(|(_, one): &(usize, &Played)| AnsweredEpisode {
            task: one.task,
            solved: one.solved,
            ..AnsweredEpisode::default()
        })
        .collect();
    let mut texts_of: Vec<EpisodeTexts> =
        episodes.iter().map(|_| EpisodeTexts::default()).collect();
    let unreadable = read_texts(
        &run.files,
        &episodes,
        |_| true,
        |i, texts| match texts {
            Texts::Episode { answer, rewards, .. } => {
                answered[i].answer = answer.as_deref().map(text_hash);
                texts_of[i].rewards = rewards;
            }
            Texts::Turn { seat, reply, error, .. } => {
                let parts = if error.is_none() { reply_parts(&reply) } else { BTreeMap::new() };
                answered[i].turns.push(AnsweredTurn {
                    seat: seat.to_string(),
                    parts,
                    ..AnsweredTurn::default()
                });
                texts_of[i].lines.push(last_line(&reply));
            }
        },
    );
    for (one, texts) in answered.iter_mut().zip(&texts_of) {
        for (turn, (reply, line)) in one.turns.iter_mut().zip(&texts.lines).enumerate() {
            let its = texts.rewards.iter().filter(|part| part.of == RewardOf::Turn(turn));
            reply.line = text_hash(line);
            reply.paid = (its.map(|part| part.value).sum::<f64>() * 1e6).round() as i64;
        }
    }
    let answers = EpisodeAnswers::new(&answered);
    let mut seats: BTreeMap<String, SeatReplies> = BTreeMap::new();
    for (one, texts) in answered.iter().zip(&texts_of) {
        let turns = one.turns.iter().zip(&texts.lines).zip(answers.seen_verdicts(one));
        for (turn, ((reply, line), seen)) in turns.enumerate() {
            let parts = sum_parts(&texts.rewards, &reply.seat, turn);
            seats.entry(reply.seat.clone()).or_default().add(line, one.solved, seen, parts);
        }
    }
    TeamReplies { seats, replaced: answers.replaced_answers(), unreadable }
}

/// Returns the sum of the reward parts of a turn of a seat.
fn sum_parts(rewards: &[RewardPart], seat: &str, turn: usize) -> f64 {
    let its = rewards.iter().filter(|part| match &part.of {
        RewardOf::Episode => true,
        RewardOf::Seat(of) => of.to_string() == seat,
        RewardOf::Turn(of) => *of == turn,
    });
    its.map(|part| part.value).sum()
}

/// Statements on the replies of the last steps of a run.
#[derive(Debug, Clone)]
pub(crate) struct ReplyFindings {
    pub(crate) answer: Value,
    pub(crate) hacked: Vec<HackedReward>,
}

/// Reads the replies of the last and the first steps.
pub(crate) fn read_findings(run: &ReportedRun) -> ReplyFindings {
    let steps = run.lock_content().index.stage_steps(TRAIN);
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        let answer = object!({
            "early": Value::Null, "late": Value::Null, "seats": object!({}), "lost": Value::Null, "reward": Value::Null,
            "replaced": Value::Null, "fall": Value::Null,
        });
        return ReplyFindings { answer, hacked: Vec::new() };
    };
    let late = [steps[steps.len().saturating_sub(WINDOW)], *last];
    let early = [*first, steps[WINDOW.min(steps.len()) - 1]];
    let early = (early[1] < late[0]).then_some(early);
    let played = |steps| run.lock_content().index.played_episodes(TRAIN, steps);
    let before = early.map(|steps| read_replies(run, &played(steps))).unwrap_or_default();
    let last = played(late);
    let now = read_replies(run, &last);
    let lost = loss_summary(
        &loss_causes(&run.files, &last).into_iter().map(|(cause, _)| cause).collect::<Vec<_>>(),
    );
    let seats = now.seats.iter();
    let seats: BTreeMap<String, Value> = collect_into(
        seats.map(|(seat, late)| (seat.clone(), of_seat(late, before.seats.get(seat)))),
    );
    let sums = run.lock_content().index.team_sums(TRAIN, late);
    let (reward, hacked) = hacking_summary(&sums, &now.seats);
    let unreadable = before.unreadable + now.unreadable;
    let fall = fall_summary(run);
    let answer = object!({
        "early": early, "late": late, "seats": seats, "unreadable": unreadable, "lost": lost, "reward": reward,
        "replaced": now.replaced, "fall": fall,
    });
    ReplyFindings { answer, hacked }
}

/// Returns the replies of a seat in the last and the first steps, in both split in the same way.
fn of_seat(late: &SeatReplies, early: Option<&SeatReplies>) -> Value {
    let seen = late.by_seen_answer();
    let before = early.map(|replies| if seen.is_some() { &replies.seen } else { &replies.outcome });
    let now = seen.unwrap_or(&late.outcome);
    let lines = now.ranked_lines();
    let shown = lines.iter().take(LINES).map(|(line, turns)| {
        let early = before.map(|of| of.lines.get(*line).copied().unwrap_or_default());
        object!({ "text": line, "late": turns, "early": early })
    });
    object!({
        "seen": seen.is_some(),
        "few": now.has_few_lines(),
        "late": now.turns,
        "early": before.map(|of| of.turns),
        "distinct": lines.len(),
        "lines": shown.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::last_lines::{LENGTH, SEEN};
    use super::*;

    #[test]
    fn replies_are_counted_by_their_last_line_and_the_outcome() {
        assert_eq!(last_line("I think.\n\n <verify>yes</verify> \n\n"), "<verify>yes</verify>");
        assert_eq!(last_line(" \n"), "");
        let long = last_line(&format!("{}é", "x".repeat(200)));
        assert_eq!((long.chars().count(), long.ends_with("xé")), (LENGTH + 2, true));
        let (mut late, mut early) = (SeatReplies::default(), SeatReplies::default());
        for (reply, solved) in [("yes", true), ("yes", false), ("yes", false), ("no", false)] {
            late.add(reply, solved, None, 0.0);
        }
        early.add("a reason\nno", false, None, 0.0);
        let found = of_seat(&late, Some(&early));
        assert_eq!(found["late"], json!({ "solved": 1, "unsolved": 3 }));
        assert_eq!(found["distinct"], 2);
        let yes = json!({ "text": "yes", "late": { "solved": 1, "unsolved": 2 }, "early": { "solved": 0, "unsolved": 0 } });
        assert_eq!(found["lines"][0], yes);
        assert_eq!(found["lines"][1]["early"], json!({ "solved": 0, "unsolved": 1 }));
        assert_eq!(of_seat(&late, None)["lines"][0]["early"], Value::Null);
    }

    #[test]
    fn replies_are_counted_by_the_answer_that_the_seat_saw_if_enough_are_known() {
        let mut replies = SeatReplies::default();
        replies.add("no", false, None, 0.5);
        for i in 0..SEEN {
            replies.add("no", i > 0, Some(true), 0.5);
        }
        assert_eq!(of_seat(&replies, None)["late"], json!({ "solved": 4, "unsolved": 2 }));
        for _ in 0..SEEN {
            replies.add("yes", true, Some(false), -0.5);
        }
        let found = of_seat(&replies, Some(&SeatReplies::default()));
        assert_eq!(found["seen"], true);
        assert_eq!(found["late"], json!({ "solved": SEEN, "unsolved": SEEN }));
        assert_eq!(found["early"], json!({ "solved": 0, "unsolved": 0 }));
        assert_eq!(replies.by_seen_answer().map(|lines| lines.parts), Some([2.5, -2.5]));
    }
}
