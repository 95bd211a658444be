//! Answers that replies of an episode give, and whether they are right. The part of a reply that is its answer is that
//! which the answer of every episode equals. An answer is known to be right or wrong where an episode of the same task
//! ended with the same one, and all such episodes were scored alike; or else if the reward of an agent that saw it tells so.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::compact::collect_into;
use maverl::agent::tag;

/// Maximum number of tags of a reply, and of bytes of the name of one.
const TAGS: usize = 8;
const NAME: usize = 32;
/// Name of the part that is the whole reply.
const WHOLE: &str = "";
/// Number of right answers, and of wrong ones, from which on the rewards of equal replies to them separate right from wrong.
const JUDGED: usize = 5;

/// Scored episode, as far as its answers go. Texts are stored as hashes.
#[derive(Debug, Default, Clone)]
pub(crate) struct AnsweredEpisode {
    pub(crate) task: u32,
    pub(crate) solved: bool,
    pub(crate) answer: Option<u64>,
    pub(crate) turns: Vec<AnsweredTurn>,
}

/// Reply of a turn. A malformed one has no parts.
#[derive(Debug, Default, Clone)]
pub(crate) struct AnsweredTurn {
    pub(crate) seat: String,
    pub(crate) parts: BTreeMap<String, u64>,
    /// Last line.
    pub(crate) line: u64,
    /// Sum of the reward parts of the turn alone, in millionths.
    pub(crate) paid: i64,
}

/// Answer that a turn gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GivenAnswer {
    turn: usize,
    answer: u64,
    /// `None` if it is not known from the outcomes of episodes.
    right: Option<bool>,
    /// True if no episode of the task ended with it.
    is_open: bool,
}

/// Returns the hash of a text without blanks at its ends.
pub(crate) fn text_hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.trim().hash(&mut hasher);
    hasher.finish()
}

/// Returns the parts of a reply by name: the whole, and the content of each tag that occurs once.
pub(crate) fn reply_parts(reply: &str) -> BTreeMap<String, u64> {
    let ends = reply.match_indices("</").map(|(at, _)| &reply[at + 2..]);
    let names = ends.filter_map(|rest| rest.split('>').next()).filter(|name| is_tag_name(name));
    let names: BTreeSet<String> = collect_into(names.map(str::to_ascii_lowercase).take(TAGS));
    let contents = names.into_iter().filter_map(|name| {
        let hash = text_hash(tag(reply, &name).ok()?);
        Some((name, hash))
    });
    collect_into(contents.chain([(WHOLE.to_owned(), text_hash(reply))]))
}

/// Returns true for a text that may be the name of a tag.
fn is_tag_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Answers of episodes.
pub(crate) struct EpisodeAnswers<'e> {
    episodes: &'e [AnsweredEpisode],
    /// Name of the part of a reply that is its answer; `None` if no part always is.
    part: Option<&'e str>,
    /// Outcome of each answer of a task; `None` if episodes with it have different ones.
    outcomes: BTreeMap<(u32, u64), Option<bool>>,
    /// Answers of a task that no episode ended with, if the rewards of agents that saw them show that they are right or
    /// wrong; `None` if these rewards contradict each other.
    judged: BTreeMap<(u32, u64), Option<bool>>,
    /// Agents with such rewards.
    judges: BTreeSet<String>,
}

impl<'e> EpisodeAnswers<'e> {
    /// Finds the answers of episodes.
    pub(crate) fn new(episodes: &'e [AnsweredEpisode]) -> Self {
        let mut outcomes: BTreeMap<(u32, u64), Option<bool>> = BTreeMap::new();
        for one in episodes {
            let Some(answer) = one.answer else { continue };
            let known = outcomes.entry((one.task, answer)).or_insert(Some(one.solved));
            *known = known.filter(|solved| *solved == one.solved);
        }
        let turns = episodes.iter().flat_map(|one| &one.turns);
        let names: BTreeSet<&str> =
            collect_into(turns.flat_map(|turn| turn.parts.keys().map(String::as_str)));
        // The whole reply is the last choice.
        let part = names.into_iter().rev().find(|name| is_answer(episodes, name));
        let (judged, judges) = (BTreeMap::new(), BTreeSet::new());
        let mut answers = Self { episodes, part, outcomes, judged, judges };
        answers.find_judges();
        answers
    }

    /// Finds agents that equal replies earn one reward after right answers and another one after wrong answers, such as
    /// verifiers that are paid for right verdicts, and learns from their rewards if further answers are right.
    fn find_judges(&mut self) {
        let mut known: BTreeMap<(&str, u64, i64), [usize; 2]> = BTreeMap::new();
        let mut open = Vec::new();
        for one in self.episodes {
            for (reply, shown) in one.turns.iter().zip(self.shown_answers(one)) {
                let Some(GivenAnswer { answer, right, is_open, .. }) = shown else { continue };
                let mark = (reply.seat.as_str(), reply.line, reply.paid);
                if let Some(right) = right {
                    known.entry(mark).or_default()[usize::from(!right)] += 1;
                } else if is_open {
                    open.push((mark, (one.task, answer)));
                }
            }
        }
        for ((seat, line, paid), answer) in open {
            let mut its = known.range((seat, line, i64::MIN)..=(seat, line, i64::MAX));
            let sides = [0, 1].map(|side| its.clone().map(|(_, n)| n[side]).sum::<usize>());
            let is_judge = its.all(|(_, n)| n.contains(&0)) && sides.iter().all(|n| *n >= JUDGED);
            let Some([right, _]) = known.get(&(seat, line, paid)).filter(|_| is_judge) else {
                continue;
            };
            let right = *right > 0;
            let known = self.judged.entry(answer).or_insert(Some(right));
            *known = known.filter(|known| *known == right);
            self.judges.insert(seat.to_owned());
        }
    }

    /// Returns the answers of an episode, in the order of its turns.
    fn given_answers(&self, one: &AnsweredEpisode) -> Vec<GivenAnswer> {
        let Some(part) = self.part else { return Vec::new() };
        one.turns
            .iter()
            .enumerate()
            .filter_map(|(turn, reply): (usize, &AnsweredTurn)| {
                let answer = *reply.parts.get(part)?;
                let outcome = self.outcomes.get(&(one.task, answer)).copied();
                // A whole reply may be anything else, too.
                let is_answer = part != WHOLE || outcome.is_some();
                let is_open = outcome.is_none();
                is_answer.then_some(GivenAnswer { turn, answer, right: outcome.flatten(), is_open })
            })
            .collect()
    }

    /// Returns for each turn of an episode the answer before it; `None` for turns without one, and for those that give an
    /// answer themselves.
    fn shown_answers(&self, one: &AnsweredEpisode) -> Vec<Option<GivenAnswer>> {
        let given = self.given_answers(one);
        (0..one.turns.len())
            .map(|turn: usize| {
                let last = given.iter().rev().find(|given| given.turn <= turn)?;
                (last.turn < turn).then_some(*last)
            })
            .collect()
    }

    /// Returns for each turn of an episode if the answer before it is right, by the outcomes of episodes; `None` if
    /// there is none, or it is not known.
    pub(crate) fn seen_verdicts(&self, one: &AnsweredEpisode) -> Vec<Option<bool>> {
        self.shown_answers(one).into_iter().map(|shown| shown?.right).collect()
    }

    /// Returns true for a right answer of a task by rewards, and false for a wrong one; `None` if they do not show it.
    fn judge_answer(&self, task: u32, given: &GivenAnswer) -> Option<bool> {
        self.judged.get(&(task, given.answer)).copied().flatten().filter(|_| given.is_open)
    }

    /// Describes the answers that were replaced; null if there are none.
    pub(crate) fn replaced_answers(&self) -> Value {
        if self.part.is_none() {
            let text = "Answers: whether an earlier one was right cannot be told, as no part of the replies is always the answer.";
            let was_replaced = self.episodes.iter().any(AnsweredEpisode::may_replace);
            return if was_replaced {
                object!({ "text": text, "undone": object!({}) })
            } else {
                Value::Null
            };
        }
        let mut all = Replaced::default();
        for one in self.episodes {
            let given = self.given_answers(one);
            let judgment = given.first().and_then(|first| self.judge_answer(one.task, first));
            all.add_episode(one, &given, judgment);
        }
        if all.episodes == 0 { Value::Null } else { all.summary(&self.judges) }
    }
}

fn list_counts(counts: &BTreeMap<String, usize>) -> String {
    counts.iter().map(|(seat, n)| format!("{seat} ({n})")).collect::<Vec<_>>().join(", ")
}

/// Returns true if a part is the answer of every episode that has one: that of the last reply with the part.
fn is_answer(episodes: &[AnsweredEpisode], name: &str) -> bool {
    let mut answered = episodes.iter().filter(|one| one.answer.is_some()).peekable();
    answered.peek().is_some()
        && answered.all(|one| {
            let last = one.turns.iter().rev().find_map(|turn| turn.parts.get(name).copied());
            last == one.answer
        })
}

/// Episodes with more than one answer.
#[derive(Debug, Default)]
struct Replaced {
    episodes: usize,
    /// Episodes whose first answer is right, and wrong.
    right: usize,
    wrong: usize,
    /// Episodes whose first answer is right or wrong by rewards.
    judged: usize,
    /// Episodes that are solved.
    solved: usize,
    /// Episodes whose first answer is right and the last one wrong.
    lost: usize,
    /// Episodes whose first answer is wrong and the last one right.
    mended: usize,
    /// Lost episodes by the seat of the last answer.
    by: BTreeMap<String, usize>,
    /// Lost episodes by the seats with other replies between both answers.
    after: BTreeMap<String, usize>,
}

impl Replaced {
    fn add_episode(
        &mut self,
        one: &AnsweredEpisode,
        given: &[GivenAnswer],
        judgment: Option<bool>,
    ) {
        let [first, .., last] = given else { return };
        let is_right = first.right.or(judgment);
        self.episodes += 1;
        self.right += usize::from(is_right == Some(true));
        self.wrong += usize::from(is_right == Some(false));
        self.judged += usize::from(judgment.is_some());
        self.solved += usize::from(one.solved);
        self.mended += usize::from(is_right == Some(false) && one.solved);
        if is_right != Some(true) || one.solved {
            return;
        }
        self.lost += 1;
        *self.by.entry(one.turns[last.turn].seat.clone()).or_default() += 1;
        let between =
            (first.turn..last.turn).filter(|turn| given.iter().all(|of| of.turn != *turn));
        let seats: BTreeSet<&String> = collect_into(between.map(|turn| &one.turns[turn].seat));
        for seat in seats {
            *self.after.entry(seat.clone()).or_default() += 1;
        }
    }

    fn summary(&self, judges: &BTreeSet<String>) -> Value {
        let Self { episodes, right, wrong, judged, solved, lost, mended, .. } = *self;
        let (unknown, unchanged) = (episodes - right - wrong, right - lost);
        let mut text = format!(
            "Answers: {lost} of {right} right first answers were replaced by wrong ones, {mended} of {wrong} wrong ones by right \
             ones. So {solved} of the {episodes} episodes with more than one answer are solved: {unchanged} after a right first answer, \
             {mended} after a wrong one"
        );
        if unknown > 0 {
            text +=
                &format!(", {} after one of which it is not known", solved - unchanged - mended);
        }
        text.push('.');
        if lost > 0 {
            text += &format!(" Right ones were replaced by {}", list_counts(&self.by));
            if !self.after.is_empty() {
                text += &format!(", after replies of {}", list_counts(&self.after));
            }
            text.push('.');
        }
        if judged > 0 {
            let judges: Vec<&str> = judges.iter().map(String::as_str).collect();
            text += &format!(
                " {judged} first answers are known by the rewards of {} alone, which tell right from wrong wherever outcomes do.",
                judges.join(", ")
            );
        }
        if unknown > 0 {
            text += &format!(
                " Of {unknown} first answers it cannot be known, as no episode of the task ended with them."
            );
        }
        let mut undone = self.by.clone();
        for (seat, n) in &self.after {
            *undone.entry(seat.clone()).or_default() += n;
        }
        object!({
            "text": text, "undone": undone, "episodes": episodes, "right": right, "wrong": wrong, "judged": judged,
            "solved": solved, "lost": lost, "mended": mended,
        })
    }
}

impl AnsweredEpisode {
    /// Returns true if an agent took more than one turn, so that its answer may have been replaced.
    fn may_replace(&self) -> bool {
        let seats: BTreeSet<&str> = collect_into(self.turns.iter().map(|turn| &*turn.seat));
        self.answer.is_some() && seats.len() < self.turns.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns an episode of a task from its answer, its outcome, and the seats with their replies.
    fn answered(task: u32, answer: &str, solved: bool, turns: &[(&str, &str)]) -> AnsweredEpisode {
        let turn = |(seat, reply): &(&str, &str)| AnsweredTurn {
            seat: (*seat).to_owned(),
            parts: reply_parts(reply),
            ..AnsweredTurn::default()
        };
        let turns = turns.iter().map(turn).collect();
        AnsweredEpisode { task, solved, answer: Some(text_hash(answer)), turns }
    }

    /// Returns an episode of a solver whose first answer is refused.
    fn refused(task: u32, first: &str, last: &str, solved: bool) -> AnsweredEpisode {
        let reply = |answer: &str| format!("So: <answer> {answer} </answer>");
        let (a, b) = (reply(first), reply(last));
        let turns = [("m/s", a.as_str()), ("m/v", "<verify>no</verify>"), ("m/s", b.as_str())];
        answered(task, last, solved, &turns)
    }

    #[test]
    fn an_earlier_answer_is_right_where_another_episode_of_the_task_ended_with_it() {
        let all = [
            refused(1, "7", "8", false),
            refused(1, "8", "7", true),
            refused(1, "7", "7", true),
            // Of another task, 7 is not known.
            refused(2, "7", "8", false),
        ];
        let answers = EpisodeAnswers::new(&all);
        assert_eq!(answers.part, Some("answer"));
        let found = answers.replaced_answers();
        assert_eq!(
            found["text"],
            "Answers: 1 of 2 right first answers were replaced by wrong ones, 1 of 1 wrong ones by right ones. So 2 of the 4 \
             episodes with more than one answer are solved: 1 after a right first answer, 1 after a wrong one, 0 after one of which \
             it is not known. Right ones were replaced by m/s (1), after replies of m/v (1). Of 1 first answers it cannot be known, \
             as no episode of the task ended with them."
        );
        assert_eq!(found["undone"], json!({ "m/s": 1, "m/v": 1 }));
        let seen = |i: usize| answers.seen_verdicts(&all[i]);
        assert_eq!(seen(0), [None, Some(true), None], "the verifier saw 7");
        assert_eq!(seen(1), [None, Some(false), None]);
        assert_eq!(seen(3), [None, None, None]);
    }

    #[test]
    fn an_answer_that_no_episode_ended_with_is_right_as_the_reward_of_its_verdict_tells() {
        let paid = |task: u32, first: &str, last: &str, paid: i64| {
            let mut one = refused(task, first, last, last == "7");
            one.turns[1].paid = paid;
            one
        };
        let known = |n: usize, right: i64, wrong: i64| {
            let pair = [paid(1, "7", "8", right), paid(1, "8", "7", wrong)];
            pair.into_iter().cycle().take(2 * n).collect::<Vec<AnsweredEpisode>>()
        };
        // Of task 2, no episode ended with 7 or 5.
        let open = [paid(2, "7", "8", -500_000), paid(2, "5", "8", 500_000)];
        let of = |known: Vec<AnsweredEpisode>| {
            let all = [known, open.to_vec()].concat();
            let answers = EpisodeAnswers::new(&all);
            let found = answers.replaced_answers();
            let seen = answers.seen_verdicts(&all[all.len() - 1]);
            assert_eq!(seen[1], None, "outcomes alone do not show it");
            ["right", "wrong", "judged", "lost", "mended"].map(|key| found[key].clone())
        };
        assert_eq!(of(known(5, -500_000, 500_000)), [6, 6, 2, 6, 5]);
        assert_eq!(of(known(4, -500_000, 500_000)), [4, 4, 0, 4, 4], "too few are known");
        assert_eq!(of(known(5, 500_000, 500_000)), [5, 5, 0, 5, 5], "paid alike");
        let found = EpisodeAnswers::new(&[known(5, -500_000, 500_000), open.to_vec()].concat())
            .replaced_answers();
        let text = found["text"].as_str().unwrap_or_default();
        assert!(text.contains("So 5 of the 12 episodes with more than one answer are solved: 0 after a right first answer, 5 after a wrong one."), "{text}");
        assert!(text.ends_with("2 first answers are known by the rewards of m/v alone, which tell right from wrong wherever outcomes do."), "{text}");
    }

    #[test]
    fn nothing_is_said_of_an_answer_that_was_scored_unlike_or_of_replies_that_are_no_answers() {
        // The same answer is right once and wrong once: the score depends on more than the answer.
        let all =
            [refused(1, "7", "8", false), refused(1, "8", "7", true), refused(1, "7", "7", false)];
        let found = EpisodeAnswers::new(&all).replaced_answers();
        assert_eq!(
            (&found["right"], &found["wrong"], &found["lost"]),
            (&json!(0), &json!(1), &json!(0))
        );
        // A vote: the last reply is not always the answer.
        let vote = |first: &str, last: &str| {
            let reply = |answer: &str| format!("<answer>{answer}</answer>");
            let (a, b) = (reply(first), reply(last));
            answered(1, "7", true, &[("v/a", a.as_str()), ("v/a", b.as_str())])
        };
        let all = [vote("7", "7"), vote("7", "8")];
        let text = EpisodeAnswers::new(&all).replaced_answers()["text"].clone();
        assert!(text.as_str().is_some_and(|text| text.contains("cannot be told")), "{text}");
        // Without a second reply of a seat, nothing was replaced.
        let single = [answered(1, "7", true, &[("a/b", "<answer>7</answer>")])];
        assert_eq!(EpisodeAnswers::new(&single).replaced_answers(), Value::Null);
    }

    #[test]
    fn a_whole_reply_is_an_answer_only_if_an_episode_of_the_task_ended_with_it() {
        let whole = |answer: &str, solved| {
            answered(1, answer, solved, &[("a/x", "7"), ("a/y", "fine"), ("a/x", answer)])
        };
        let all = [whole("7", true), whole("8", false)];
        let answers = EpisodeAnswers::new(&all);
        assert_eq!(
            (answers.part, answers.replaced_answers()["episodes"].clone()),
            (Some(WHOLE), json!(2))
        );
        assert_eq!(answers.seen_verdicts(&all[1]), [None, Some(true), None]);
        assert_eq!(answers.replaced_answers()["lost"], 1);
    }
}
