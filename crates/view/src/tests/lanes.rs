//! Lanes of an episode, and two episodes side by side.

use super::pages::{Visit, home};
use super::*;

/// Turns of a long episode.
const TURNS: u32 = 1000;

/// Writes a run with one long episode: all seats in turn, and an action before every tenth turn.
fn long(path: &Path) {
    let mut written = Written::new(path);
    let mut one = episode("train-0", 0, true, TURNS);
    for (i, turn) in one.turns.iter_mut().enumerate() {
        turn.seat = Seat::only(SEATS[i % 3]);
        turn.reply = format!("reply {i} of many");
        turn.error = (i == 700).then(|| "no block".to_owned());
    }
    one.acts.extend((0..TURNS / 10).map(|i| Act {
        path: TurnPath(vec![10 * i]),
        nth: 0,
        environment: None,
        action: Action::Text(format!("query {i}")),
        observation: "a document".into(),
        done: false,
    }));
    written.played(1, &[one]);
}

/// Number of cards in the document.
const CARDS: &str = "document.querySelectorAll('.turn').length";

#[test]
fn of_a_thousand_turns_those_near_the_window_are_in_the_document_and_the_heads_stay() {
    let home = tempfile::tempdir().unwrap();
    long(&home.path().join("a"));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/episode/train/1/0");
    at.browser.wait("document.querySelector('[data-turn=\"5\"]') !== null");
    let cards = |at: &mut Visit| at.browser.value(CARDS).as_u64().unwrap();
    assert!(cards(&mut at) < 200, "{}", cards(&mut at));
    let now = "document.querySelector('.minimap').getAttribute('aria-valuenow')";
    at.browser.wait(&format!("{now} === '1'"));
    // To the end, by the scroll bar.
    let end = "(scrollTo(0, document.documentElement.scrollHeight), document.querySelector('[data-turn=\"999\"]') !== null)";
    at.browser.wait(end);
    at.browser.wait("document.querySelector('[data-turn=\"5\"]') === null");
    assert!(cards(&mut at) < 250, "{}", cards(&mut at));
    let heads = "(() => { const b = document.querySelector('.lane-heads').getBoundingClientRect(); return b.top >= 0 && b.bottom < 200; })()";
    assert_eq!(at.browser.value(heads), true, "the heads of the lanes stay");
    at.browser.wait(&format!("Number({now}) > 1050"));
    // To the middle, by the map.
    at.browser.value(
        "(() => { const m = document.querySelector('.minimap'); const b = m.getBoundingClientRect(); \
         m.dispatchEvent(new MouseEvent('click', { clientX: b.left + b.width / 2, clientY: b.top + 3, bubbles: true })); })()",
    );
    let seen = |turn: u32| {
        format!(
            "(() => {{ const c = document.querySelector('[data-turn=\"{turn}\"]'); if (!c) return false; \
             const b = c.getBoundingClientRect(); return b.bottom > 0 && b.top < innerHeight; }})()"
        )
    };
    at.browser.wait(&seen(500));
    assert!(cards(&mut at) < 250, "{}", cards(&mut at));
    let marks = at.browser.value("document.querySelectorAll('.map-bad').length");
    assert_eq!(marks, 1, "the malformed reply is marked in the map");
    at.browser.value("document.querySelector('.minimap').focus()");
    at.browser.press("Home");
    at.browser.wait(&format!("{now} === '1'"));
    at.browser.wait(&seen(0));
    at.browser.press("End");
    at.browser.wait(&seen(999));
    // In the order of time a row has the second at which it was asked.
    at.browser.value(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'time').click()",
    );
    at.browser.wait("location.hash.includes('order=time')");
    at.browser.wait("document.querySelectorAll('.lane-path')[2]?.textContent === '0.10 s'");
    at.browser.assert_quiet();
}

#[test]
fn a_text_that_a_turn_was_given_is_revealed_from_its_card() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 500) else { return };
    at.go("r/0/episode/train/2/0");
    at.browser.wait("document.querySelectorAll('.turn').length === 4");
    let order =
        "[...document.querySelectorAll('.turn header b:first-child, .turn .seat')].length > 0";
    at.browser.wait(order);
    at.browser.value("document.querySelector('[data-turn=\"1\"]').dispatchEvent(new PointerEvent('pointerenter'))");
    let marked = at.browser.value(
        "[...document.querySelectorAll('.turn.seen')].map((c) => c.getAttribute('aria-label'))",
    );
    assert_eq!(marked, json!(["turn 0, search/searcher", "action 0"]));
    assert_eq!(at.browser.value("document.querySelectorAll('.links path.on').length"), 2);
    at.browser
        .value("[...document.querySelectorAll('[data-turn=\"1\"] footer button')].at(-1).click()");
    at.browser.assert_quiet();
}

#[test]
fn two_episodes_of_a_group_are_shown_from_where_they_part() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    // The episodes of the first task have equal replies, those of the second part at their first reply.
    at.go("r/0/episode/train/2/0");
    at.browser.wait("document.querySelector('.facts a[href*=beside]') !== null");
    at.browser.value("document.querySelector('.facts a[href*=beside]').click()");
    at.browser.wait("document.querySelector('[data-parting]') !== null");
    assert_eq!(at.browser.text("[data-parting]"), "Both are equal, turn by turn.");
    let sides = at.browser.value("[...document.querySelectorAll('[data-side]')].map((s) => s.querySelector('dl').textContent)");
    let sides: Vec<String> = serde_json::from_value(sides).unwrap();
    assert!(sides[0].contains("Quito") && sides[0].contains("not solved"), "{sides:?}");
    assert!(sides[1].contains("Lima") && sides[1].contains("score 1.000"), "{sides:?}");
    at.go("beside?a=0/train/2/4&b=0/train/2/5");
    at.browser.wait("document.querySelector('[data-parting]') !== null");
    let parting = at.browser.text("[data-parting]");
    assert_eq!(
        parting,
        "They part at turn 0: the replies of search/searcher to equal prompts differ. "
    );
    assert_eq!(at.browser.value("document.querySelectorAll('.beside > article').length"), 8);
    assert_eq!(at.browser.value("document.querySelectorAll('main img, main script').length"), 0);
    // Another episode of the task.
    at.browser.value("(() => { const s = document.querySelectorAll('[data-side] select')[1]; s.value = '0/train/2/6'; s.dispatchEvent(new Event('change')); })()");
    at.browser
        .wait("document.querySelector('[data-parting]')?.textContent.includes('Both are equal')");
    at.go("r/0/group/2/3");
    at.browser.value("document.querySelector('a[href*=beside]').click()");
    at.browser.wait("document.querySelectorAll('[data-side]').length === 2");
    at.browser.assert_quiet();
}
