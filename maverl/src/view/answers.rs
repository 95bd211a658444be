//! Answers that replies of an episode give, and whether they are right. The part of a reply that is its answer is that
//! which the answer of every episode equals. An answer is known to be right or wrong where an episode of the same task
//! ended with the same one, and all such episodes were scored alike.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::agent::tag;

/// Maximum number of tags of a reply, and of bytes of the name of one.
const TAGS: usize = 8;
const NAME: usize = 32;
/// Name of the part that is the whole reply.
const WHOLE: &str = "";

/// Scored episode, as far as its answers go. Texts are kept as hashes.
#[derive(Debug, Default, Clone)]
pub(super) struct Spoken {
    pub(super) task: u32,
    pub(super) solved: bool,
    pub(super) answer: Option<u64>,
    pub(super) turns: Vec<Spoke>,
}

/// Reply of a turn. A malformed one has no parts.
#[derive(Debug, Default, Clone)]
pub(super) struct Spoke {
    pub(super) seat: String,
    pub(super) parts: BTreeMap<String, u64>,
}

/// Answer that a turn gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Given {
    turn: usize,
    /// `None` if it is not known.
    right: Option<bool>,
}

/// Returns the hash of a text without blanks at its ends.
pub(super) fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.trim().hash(&mut hasher);
    hasher.finish()
}

/// Returns the parts of a reply by name: the whole, and the content of each tag that occurs once.
pub(super) fn parts(reply: &str) -> BTreeMap<String, u64> {
    let is_name = |name: &&str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !name.is_empty() && name.len() <= NAME && name.chars().all(is_part)
    };
    let ends = reply.match_indices("</").map(|(at, _)| &reply[at + 2..]);
    let names = ends.filter_map(|rest| rest.split('>').next()).filter(is_name);
    let names: BTreeSet<String> = names.map(str::to_ascii_lowercase).take(TAGS).collect();
    let content = |name: String| Some((name.clone(), hash(tag(reply, &name).ok()?)));
    names.into_iter().filter_map(content).chain([(WHOLE.to_owned(), hash(reply))]).collect()
}

/// Answers of episodes.
pub(super) struct Answers<'e> {
    episodes: &'e [Spoken],
    /// Name of the part of a reply that is its answer; `None` if no part always is.
    part: Option<&'e str>,
    /// Outcome of each answer of a task; `None` if episodes with it have different ones.
    outcomes: BTreeMap<(u32, u64), Option<bool>>,
}

impl<'e> Answers<'e> {
    /// Finds the answers of episodes.
    pub(super) fn new(episodes: &'e [Spoken]) -> Self {
        let mut outcomes: BTreeMap<(u32, u64), Option<bool>> = BTreeMap::new();
        for one in episodes {
            let Some(answer) = one.answer else { continue };
            let known = outcomes.entry((one.task, answer)).or_insert(Some(one.solved));
            *known = known.filter(|solved| *solved == one.solved);
        }
        let turns = || episodes.iter().flat_map(|one| &one.turns);
        let names: BTreeSet<&str> =
            turns().flat_map(|turn| turn.parts.keys().map(String::as_str)).collect();
        // The whole reply is the last choice.
        let part = names.into_iter().rev().find(|name| is_answer(episodes, name));
        Self { episodes, part, outcomes }
    }

    /// Returns the answers of an episode, in the order of its turns.
    fn given(&self, one: &Spoken) -> Vec<Given> {
        let Some(part) = self.part else { return Vec::new() };
        let given = |(turn, spoke): (usize, &Spoke)| {
            let outcome = self.outcomes.get(&(one.task, *spoke.parts.get(part)?)).copied();
            // A whole reply may be anything else, too.
            let is_answer = part != WHOLE || outcome.is_some();
            is_answer.then_some(Given { turn, right: outcome.flatten() })
        };
        one.turns.iter().enumerate().filter_map(given).collect()
    }

    /// Returns for each turn of an episode if the answer before it is right; `None` for turns without one, for those that
    /// give an answer themselves, and if it is not known.
    pub(super) fn seen(&self, one: &Spoken) -> Vec<Option<bool>> {
        let given = self.given(one);
        let seen = |turn: usize| {
            let last = given.iter().rev().find(|given| given.turn <= turn)?;
            last.right.filter(|_| last.turn < turn)
        };
        (0..one.turns.len()).map(seen).collect()
    }

    /// Describes the answers that were replaced; null if there are none.
    pub(super) fn replaced(&self) -> Value {
        if self.part.is_none() {
            let again = |one: &Spoken| {
                let seats: BTreeSet<&str> = one.turns.iter().map(|turn| &*turn.seat).collect();
                one.answer.is_some() && seats.len() < one.turns.len()
            };
            let text = "Answers: whether an earlier one was right cannot be told, as no part of the replies is always the answer.";
            let was_replaced = self.episodes.iter().any(again);
            return if was_replaced {
                object!({ "text": text, "undone": object!({}) })
            } else {
                Value::Null
            };
        }
        let mut all = Replaced::default();
        self.episodes.iter().for_each(|one| all.add(one, &self.given(one)));
        if all.episodes == 0 { Value::Null } else { all.told() }
    }
}

/// Returns true if a part is the answer of every episode that has one: that of the last reply with the part.
fn is_answer(episodes: &[Spoken], name: &str) -> bool {
    let mut answered = episodes.iter().filter(|one| one.answer.is_some()).peekable();
    let last = |one: &Spoken| one.turns.iter().rev().find_map(|turn| turn.parts.get(name).copied());
    answered.peek().is_some() && answered.all(|one| last(one) == one.answer)
}

/// Episodes with more than one answer.
#[derive(Debug, Default)]
struct Replaced {
    episodes: usize,
    /// Episodes whose first answer is right, and wrong.
    right: usize,
    wrong: usize,
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
    fn add(&mut self, one: &Spoken, given: &[Given]) {
        let [first, .., last] = given else { return };
        self.episodes += 1;
        self.right += usize::from(first.right == Some(true));
        self.wrong += usize::from(first.right == Some(false));
        self.solved += usize::from(one.solved);
        self.mended += usize::from(first.right == Some(false) && one.solved);
        if first.right != Some(true) || one.solved {
            return;
        }
        self.lost += 1;
        *self.by.entry(one.turns[last.turn].seat.clone()).or_default() += 1;
        let gives = |turn: &usize| given.iter().any(|of| of.turn == *turn);
        let between = (first.turn..last.turn).filter(|turn| !gives(turn));
        let seats: BTreeSet<&String> = between.map(|turn| &one.turns[turn].seat).collect();
        for seat in seats {
            *self.after.entry(seat.clone()).or_default() += 1;
        }
    }

    fn told(&self) -> Value {
        let Self { episodes, right, wrong, solved, lost, mended, .. } = *self;
        let unknown = episodes - right - wrong;
        let list = |of: &BTreeMap<String, usize>| {
            of.iter().map(|(seat, n)| format!("{seat} ({n})")).collect::<Vec<_>>().join(", ")
        };
        let mut text = format!(
            "Answers: {lost} of {right} right first answers were replaced by wrong ones, {mended} of {wrong} wrong ones by right \
             ones. {episodes} episodes have more than one answer, and {solved} of them are solved."
        );
        if lost > 0 {
            text += &format!(" Right ones were replaced by {}", list(&self.by));
            if !self.after.is_empty() {
                text += &format!(", after replies of {}", list(&self.after));
            }
            text.push('.');
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
            "text": text, "undone": undone, "episodes": episodes, "right": right, "wrong": wrong, "solved": solved,
            "lost": lost, "mended": mended,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns an episode of a task from its answer, its outcome, and the seats with their replies.
    fn spoken(task: u32, answer: &str, solved: bool, turns: &[(&str, &str)]) -> Spoken {
        let spoke =
            |(seat, reply): &(&str, &str)| Spoke { seat: (*seat).to_owned(), parts: parts(reply) };
        let turns = turns.iter().map(spoke).collect();
        Spoken { task, solved, answer: Some(hash(answer)), turns }
    }

    /// Returns an episode of a solver whose first answer is refused.
    fn refused(task: u32, first: &str, last: &str, solved: bool) -> Spoken {
        let reply = |answer: &str| format!("So: <answer> {answer} </answer>");
        let (a, b) = (reply(first), reply(last));
        let turns = [("m/s", a.as_str()), ("m/v", "<verify>no</verify>"), ("m/s", b.as_str())];
        spoken(task, last, solved, &turns)
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
        let answers = Answers::new(&all);
        assert_eq!(answers.part, Some("answer"));
        let found = answers.replaced();
        assert_eq!(
            found["text"],
            "Answers: 1 of 2 right first answers were replaced by wrong ones, 1 of 1 wrong ones by right ones. 4 episodes have \
             more than one answer, and 2 of them are solved. Right ones were replaced by m/s (1), after replies of m/v (1). Of 1 \
             first answers it cannot be known, as no episode of the task ended with them."
        );
        assert_eq!(found["undone"], json!({ "m/s": 1, "m/v": 1 }));
        let seen = |i: usize| answers.seen(&all[i]);
        assert_eq!(seen(0), [None, Some(true), None], "the verifier saw 7");
        assert_eq!(seen(1), [None, Some(false), None]);
        assert_eq!(seen(3), [None, None, None]);
    }

    #[test]
    fn nothing_is_said_of_an_answer_that_was_scored_unlike_or_of_replies_that_are_no_answers() {
        // The same answer is right once and wrong once: the score depends on more than the answer.
        let all =
            [refused(1, "7", "8", false), refused(1, "8", "7", true), refused(1, "7", "7", false)];
        let found = Answers::new(&all).replaced();
        assert_eq!(
            (&found["right"], &found["wrong"], &found["lost"]),
            (&json!(0), &json!(1), &json!(0))
        );
        // A vote: the last reply is not always the answer.
        let vote = |first: &str, last: &str| {
            let reply = |answer: &str| format!("<answer>{answer}</answer>");
            let (a, b) = (reply(first), reply(last));
            spoken(1, "7", true, &[("v/a", a.as_str()), ("v/a", b.as_str())])
        };
        let all = [vote("7", "7"), vote("7", "8")];
        let text = Answers::new(&all).replaced()["text"].clone();
        assert!(text.as_str().is_some_and(|text| text.contains("cannot be told")), "{text}");
        // Without a second reply of a seat, nothing was replaced.
        let single = [spoken(1, "7", true, &[("a/b", "<answer>7</answer>")])];
        assert_eq!(Answers::new(&single).replaced(), Value::Null);
    }

    #[test]
    fn a_whole_reply_is_an_answer_only_if_an_episode_of_the_task_ended_with_it() {
        let whole = |answer: &str, solved| {
            spoken(1, answer, solved, &[("a/x", "7"), ("a/y", "fine"), ("a/x", answer)])
        };
        let all = [whole("7", true), whole("8", false)];
        let answers = Answers::new(&all);
        assert_eq!((answers.part, answers.replaced()["episodes"].clone()), (Some(WHOLE), json!(2)));
        assert_eq!(answers.seen(&all[1]), [None, Some(true), None]);
        assert_eq!(answers.replaced()["lost"], 1);
    }
}
