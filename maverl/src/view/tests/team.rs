//! Statements of the pages on a team: replies of its seats, sources of the tasks of a step, and requests that wait.

use super::pages::{Visit, home};
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
    let viewer = Viewer::new(vec![home.path().to_owned()]).unwrap();
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
    assert!(text.contains("Time: search/") && text.contains("is the bottleneck"), "{text}");
    // Both are above everything else.
    let top = at.browser.text("#main .card");
    assert!(top.starts_with("In short, steps 1 to 3Quality: "), "{top}");
    assert!(top.contains("Time: search/"), "{top}");
    let row = at.browser.text("[data-team='search/searcher']");
    assert!(row.contains(&format!("{:.1} %", 100.0 * lost as f64 / all as f64 + 1e-9)), "{row}");
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
