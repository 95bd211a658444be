#![allow(clippy::unwrap_used)]

use maverl::env::math::MathEnvironment;
use maverl::rollout::Scripted;
use serde_json::json;

use super::*;
use crate::testing::{answer, ended, fails_with, noted, paid, play, seats, task};

const JUDGE: &str = "debate/judge";

fn three() -> Rounds {
    Rounds { debaters: NonZeroU32::new(3).unwrap(), ..Rounds::default() }
}

#[test]
fn at_once_each_sees_the_round_before() {
    let episode =
        play(three(), |seat, shown| match (seat, shown.contains("Debater 2: <answer>42")) {
            // The second debater sees its own statement as its own.
            ("debate/debater#1", _) => answer(if shown.contains("You:") { "7" } else { "42" }),
            (_, true) => answer("42"),
            (_, false) => answer("41"),
        });
    assert_eq!(episode.turns.len(), 6);
    assert_eq!(episode.answer.as_deref(), Some("42"));
    assert_eq!(episode.turns[4].reply, "<answer>7</answer>");
}

#[test]
fn in_turn_each_sees_what_was_said_last() {
    let one = NonZeroU32::MIN;
    let rules = Rounds { protocol: Protocol::Sequential, rounds: one, ..three() };
    let episode = play(rules, |_, shown| answer(&shown.matches("<answer>").count().to_string()));
    let said: Vec<&str> = episode.turns.iter().map(|turn| turn.reply.as_str()).collect();
    // The prompt's format sentence contains the tag once, too.
    assert_eq!(said, ["<answer>1</answer>", "<answer>2</answer>", "<answer>3</answer>"]);
}

#[test]
fn who_cannot_be_understood_keeps_what_it_said_before() {
    let episode = play(Rounds { own_reward: 1.0, ..Rounds::default() }, |seat, shown| {
        match (seat, shown.contains("You:")) {
            ("debate/debater#0", true) => "I still think so".to_owned(),
            ("debate/debater#0", false) => answer("42"),
            _ => answer("41"),
        }
    });
    assert_eq!(episode.answer.as_deref(), Some("42"), "the first of two leaders");
    assert_eq!(paid(&episode, "own"), [("debate/debater#0".to_owned(), 1.0)]);
}

#[test]
fn consensus_ends_the_debate_if_that_is_wanted() {
    let rules = |until_consensus| Rounds { until_consensus, ..Rounds::default() };
    assert_eq!(play(rules(true), |_, _| answer("42")).turns.len(), 2);
    assert_eq!(play(rules(false), |_, _| answer("42")).turns.len(), 4);
}

/// Plays a moderated debate of 41 against 42.
fn moderated(judge: impl Fn(&str) -> String + Send + Sync + 'static) -> Episode {
    let rules = Rounds { protocol: Protocol::Moderated, lead_reward: 1.0, ..Rounds::default() };
    play(rules, move |seat, shown| match seat {
        JUDGE => judge(shown),
        "debate/debater#0" => answer("41"),
        _ => format!("certainly {}", answer("42")),
    })
}

#[test]
fn a_verdict_that_both_orders_give_ends_the_debate_and_pays_in_sum_zero() {
    let episode = moderated(|_| answer("42"));
    assert_eq!(seats(&episode).iter().filter(|seat| *seat == JUDGE).count(), 2);
    assert_eq!((episode.turns.len(), episode.answer.as_deref()), (4, Some("42")));
    let [loser, winner] = [0, 1].map(|i| format!("all of debate/debater#{i}"));
    assert_eq!(paid(&episode, "lead"), [(loser, -0.5), (winner, 0.5)]);
    assert_eq!(noted(&episode, "judge_order_flip"), Some(0.0));
    assert_eq!(noted(&episode, "judge_first_favored"), Some(0.5));
    assert_eq!(noted(&episode, "judge_longest_favored"), Some(1.0));
}

#[test]
fn a_judge_that_favors_whom_it_hears_first_decides_nothing_and_is_reported() {
    let episode = moderated(|shown| {
        let first = shown.find("41").unwrap() < shown.find("42").unwrap();
        answer(if first { "41" } else { "42" })
    });
    // Two rounds of two debaters, and two judge turns after each; then a tie that the first wins.
    assert_eq!((episode.turns.len(), episode.answer.as_deref()), (8, Some("41")));
    assert_eq!(noted(&episode, "judge_order_flip"), Some(1.0));
    assert_eq!(noted(&episode, "judge_first_favored"), Some(1.0));
}

#[test]
fn a_judge_may_say_what_to_discuss() {
    let rules = Rounds { protocol: Protocol::Moderated, ..Rounds::default() };
    let episode =
        play(rules, |seat, shown| match (seat, shown.contains("Judge: six times seven")) {
            (JUDGE, _) if shown.contains("40") => "<discuss>six times seven</discuss>".to_owned(),
            (JUDGE, _) => "no verdict".to_owned(),
            (_, false) => answer("40"),
            (_, true) => answer("42"),
        });
    assert_eq!((episode.turns.len(), episode.answer.as_deref()), (8, Some("42")));
}

#[test]
fn assigned_sides_need_choices_and_a_judge_and_nobody_leaves_them() {
    let rules = |protocol| Rounds { sides: Sides::Assigned, protocol, ..Rounds::default() };
    let episode = ended(rules(Protocol::Moderated), |_, _| answer("42"));
    assert!(fails_with(&episode, "has no two `choices`"), "{:?}", episode.outcome);
    let episode = ended(rules(Protocol::Sequential), |_, _| answer("42"));
    assert!(fails_with(&episode, "nobody judges"), "{:?}", episode.outcome);

    let mut task = task();
    task.data.insert("choices".to_owned(), json!(["41", "42"]));
    let rules = Rounds { lead_reward: 1.0, ..rules(Protocol::Moderated) };
    let script = Scripted::new(rules, MathEnvironment::default(), |_, _| answer("42"));
    let episode = script.play_blocking(&task);
    assert!(episode.turns[0].prompt[0].content.contains("Argue that the answer is 41."));
    // The first said 42 as well, and still loses.
    assert_eq!(paid(&episode, "lead")[0], ("all of debate/debater#0".to_owned(), -0.5));
}
