//! Statements of the pages on a team: replies of its seats, sources of the tasks of a step, and requests that wait.

use super::pages::{Visit, home};
use super::visits::js;
use super::*;

/// Returns all episodes of the run of the tests.
fn played() -> Vec<Episode> {
    (1..=3).flat_map(|step| (0..8).map(move |n| searched(step, n))).collect()
}

/// Returns the share of the turns of a seat in episodes of an outcome that end with a text, as the pages write it.
fn share(turn: usize, end: &str, solved: bool) -> String {
    let of: Vec<Episode> =
        played().into_iter().filter(|one| one.score().unwrap().solved == solved).collect();
    let is = of.iter().filter(|one| one.turns[turn].reply.trim_end().ends_with(end)).count();
    format!("{:.1} %", 100.0 * is as f64 / of.len() as f64)
}

#[test]
fn the_replies_of_a_seat_are_counted_by_the_outcome_of_the_episode() {
    let home = home();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (status, found) = ask(&viewer, "api/runs/0/replies");
    assert_eq!((status, &found["late"], &found["early"]), (200, &json!([1, 3]), &Value::Null));
    let verifier = &found["seats"]["search/verifier"];
    let solved = played().iter().filter(|one| one.score().unwrap().solved).count();
    assert_eq!(verifier["late"], json!({ "solved": solved, "unsolved": 24 - solved }));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0");
    at.browser.wait("document.querySelectorAll('[data-said]').length >= 3");
    let text = at.browser.text("#main");
    let expected = "Reward hacked? No. search/verifier replies “<verify>these documents are enough</verify>” in 100.0 % of \
                    its turns where the task is not solved, and in 100.0 % where it is, but no reward part pays it for this.";
    assert!(text.contains(expected), "{text}");
    at.browser.value("document.querySelectorAll('.brief button')[1].click()");
    let top = "document.querySelector('#replies').getBoundingClientRect().top";
    assert!(at.browser.value(top).as_f64().unwrap() < 800.0, "the button shows the table");
    let row = at.browser.text("[data-said='search/searcher']");
    for solved in [true, false] {
        let share = share(0, "<search>capital of Peru</search>", solved);
        assert!(row.contains(&share), "{share}: {row}");
    }
    at.browser.assert_quiet();
}

#[test]
fn the_agent_that_loses_most_is_told_only_beyond_chance() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0");
    at.browser.wait("document.querySelectorAll('[data-team]').length === 3");
    let text = at.browser.text("#main");
    let unsolved: Vec<Episode> =
        played().into_iter().filter(|one| !one.score().unwrap().solved).collect();
    // The searcher has malformed replies, and in step 1 three episodes leave the only solved one of their task, which has a
    // malformed reply too. The others have the turns of a solved episode.
    let lost = 3 + unsolved.iter().filter(|one| one.turns[0].error.is_some()).count();
    let all = unsolved.len();
    let expected = format!(
        "Quality: no agent stands out. {all} of 24 episodes are unsolved: {lost} lost by search/searcher, {} after equal replies.",
        all - lost
    );
    assert!(text.contains(&expected), "{expected}: {text}");
    // The three largest parts of the steps of the run, of all of their seconds.
    let mut parts: BTreeMap<String, f64> = BTreeMap::new();
    for row in fs::read_to_string(home.path().join("a/spans.jsonl")).unwrap().lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        for span in row["spans"].as_array().unwrap().iter().filter(|span| span[1].is_null()) {
            *parts.entry(span[0].as_str().unwrap().to_owned()).or_default() +=
                span[3].as_f64().unwrap();
        }
    }
    let seconds: f64 = parts.values().sum();
    let mut parts: Vec<(String, f64)> = parts.into_iter().collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts =
        parts.iter().take(3).map(|(name, of)| format!("{} % {name}", js(100.0 * of / seconds, 1)));
    let time = format!("Time: a step is {}. search/", parts.collect::<Vec<_>>().join(", "));
    assert!(
        text.contains(&time) && text.contains("is the bottleneck of the rollout"),
        "{time}: {text}"
    );
    // Both are above everything else.
    let top = at.browser.text("#main .card");
    assert!(top.starts_with("In short, steps 1 to 3Quality: "), "{top}");
    assert!(top.contains("Time: a step is "), "{top}");
    let row = at.browser.text("[data-team='search/searcher']");
    assert!(row.contains(&format!("{:.1} %", 100.0 * lost as f64 / all as f64 + 1e-9)), "{row}");
    // What no agent lost has rows of its own.
    let table = at.browser.text("#bottlenecks tbody tr:last-child");
    let share = format!("after equal replies{} %", js(100.0 * (all - lost) as f64 / all as f64, 1));
    assert_eq!(table, share);
    at.browser.assert_quiet();
}

#[test]
fn requests_that_wait_are_above_those_that_run_and_all_steps_are_the_first_list_of_groups() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/timeline");
    at.browser.wait("document.querySelectorAll('path.queue').length === 3");
    // Each request of the run waits for 25 ms: fewer run than are open.
    let higher = "[...document.querySelectorAll('path.queue')].every((of) => of.getBBox().height >= of.nextElementSibling.getBBox().height && \
        of.getAttribute('d') !== of.nextElementSibling.getAttribute('d'))";
    assert_eq!(at.browser.value(higher), true);
    at.go("r/0/groups");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 18");
    at.browser.assert_quiet();
}

/// Returns an episode in which the verifier refuses the first answer: the first and the last answer, and the right one. The
/// verifier is paid for a right verdict.
fn refused(task: u32, index: u32, [first, last]: [u32; 2], right: u32) -> Episode {
    let mut one = episode(&format!("train-{task}"), index, last == right, 3);
    let reply = |answer: u32| format!("So it is <answer>{answer}</answer>");
    let replies = [reply(first), "<verify>no</verify>".to_owned(), reply(last)];
    for ((turn, reply), seat) in one.turns.iter_mut().zip(replies).zip([0, 2, 0]) {
        (turn.seat, turn.reply) = (Seat::only(SEATS[seat]), reply);
    }
    one.answer = Some(last.to_string());
    let value = if first == right { -0.5 } else { 0.5 };
    one.rewards.push(RewardPart { name: "verdict".into(), value, of: RewardOf::Turn(1) });
    one
}

/// First and last answers of the episodes of each task, of which 7 is right.
const ANSWERS: [[[u32; 2]; 4]; 2] =
    [[[7, 7], [7, 8], [8, 7], [5, 8]], [[7, 6], [5, 6], [6, 6], [6, 5]]];

#[test]
fn right_answers_that_were_replaced_are_counted_and_a_verifier_is_judged_by_what_it_saw() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    let played: Vec<Episode> =
        (0..8).map(|n| refused(n / 4, n % 4, ANSWERS[n as usize / 4][n as usize % 4], 7)).collect();
    (1..=3).for_each(|step| written.played(step, &played));
    drop(written);
    // An answer is seen to be right or wrong if an episode of its task ended with it: in the second task, none did with 7.
    // Of the others, the reward of the verdict tells it.
    let (mut right, mut wrong, mut lost, mut mended, mut seen) = (0, 0, 0, 0, [0, 0]);
    for task in &ANSWERS {
        let is_seen = |answer: u32| task.iter().any(|[_, last]| *last == answer);
        for [first, last] in task {
            right += usize::from(*first == 7);
            wrong += usize::from(*first != 7);
            lost += usize::from(*first == 7 && *last != 7);
            mended += usize::from(*first != 7 && *last == 7);
            seen[usize::from(*first != 7)] += usize::from(is_seen(*first));
        }
    }
    assert_eq!((right, wrong, lost, mended, seen), (3, 5, 2, 1, [2, 4]));
    // The same in each of the three steps.
    let [right, wrong, lost, mended] = [right, wrong, lost, mended].map(|n| 3 * n);
    let [seen_right, seen_wrong] = seen.map(|n| 3 * n);
    let (judged, kept) = (24 - seen_right - seen_wrong, right - lost);
    let solved = 3 * ANSWERS.iter().flatten().filter(|[_, last]| *last == 7).count();
    assert_eq!(solved, kept + mended);
    let [solver, _, verifier] = SEATS;
    let answers = format!(
        "Answers: {lost} of {right} right first answers were replaced by wrong ones, {mended} of {wrong} wrong ones by right ones. \
         So {solved} of the 24 episodes with more than one answer are solved: {kept} after a right first answer, {mended} after a \
         wrong one. Right ones were replaced by {solver} ({lost}), after replies of {verifier} ({lost}). {judged} first \
         answers are known by the rewards of {verifier} alone, which tell right from wrong wherever outcomes do."
    );
    let hacked = format!(
        "Reward hacked? Yes, that of {verifier}. {verifier} replies “<verify>no</verify>” in 100.0 % of its turns after a wrong \
         answer, and in 100.0 % after a right one, so it is paid although it does not tell right from wrong. Reward parts give it \
         0.50 a turn after a wrong answer, and −0.50 after a right one. The answer before is known to be right in \
         {seen_right} and wrong in {seen_wrong} of its 24 turns, by the outcomes of episodes that ended with it."
    );
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, found) = ask(&viewer, "api/runs/a/replies");
    assert_eq!((&found["replaced"]["text"], &found["reward"]), (&json!(answers), &json!(hacked)));
    let (_, run) = ask(&viewer, "api/runs/a");
    let notice = format!("the reward of {verifier} is hacked: in steps 1 to 3 it replies the same");
    assert!(run["notices"].to_string().contains(&notice), "{run}");
    assert!(notices_of(&home.path().join("a"))[0].starts_with(&notice));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/a");
    at.browser.wait("document.querySelectorAll('[data-said]').length >= 1");
    let brief = at.browser.text(".brief");
    assert!(brief.contains(&answers) && brief.contains(&hacked), "{brief}");
    let heads = at.browser.text("#bottlenecks thead");
    assert!(heads.contains("replaced"), "{heads}");
    let share = format!("{} %", js(100.0 * lost as f64 / (24 - solved) as f64, 1));
    for seat in [solver, verifier] {
        let cell = at.browser.text(&format!("[data-team='{seat}'] td:nth-child(3)"));
        assert_eq!(cell, share, "{seat}");
    }
    let said = at.browser.text(&format!("[data-said='{verifier}']"));
    assert!(said.contains("by the answer before") && said.ends_with("100.0 %100.0 %"), "{said}");
    at.browser.assert_quiet();
}
