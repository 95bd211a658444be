//! The change of the score from one step to the next: its parts are those of the files, add up, and lead to episodes.

use super::pages::{Visit, home};
use super::visits::signed;
use super::*;

/// Returns an episode of a task with the replies of a searcher and an answerer.
fn replied(source: &str, task: &str, index: u32, [query, answer]: [&str; 2]) -> Episode {
    let mut one = episode(task, index, answer == "Lima", 2);
    one.task.source = source.into();
    for (turn, (seat, reply)) in
        one.turns.iter_mut().zip([("search/searcher", query), ("search/answerer", answer)])
    {
        (turn.seat, turn.reply) = (Seat::only(seat), reply.to_owned());
    }
    one
}

/// Writes three steps. Step 2 has more tasks of two hops, and its searcher loses most; step 3 has a new source.
fn three() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    let good = ["Peru", "Lima"];
    for (step, hops, lost) in [(1, 8, 1), (2, 16, 3)] {
        let mut all = Vec::new();
        for task in 0..24 {
            let source = if task < hops { "facts/two_hop" } else { "facts/one_hop" };
            for index in 0..4 {
                let replies = match (task < hops, index) {
                    (true, index) if index < lost => ["Perv", "Quito"],
                    (false, 0) if task % 4 == 0 => ["Peru", "Quito"],
                    _ => good,
                };
                all.push(replied(source, &format!("train-{step}-{task}"), index, replies));
            }
        }
        written.played(step, &all);
    }
    let of = |n: u32| {
        let (source, answer) = if n < 8 { ("facts/one_hop", "Lima") } else { ("sums", "Quito") };
        replied(source, &format!("train-3-{}", n / 4), n % 4, ["Peru", answer])
    };
    written.played(3, &(0..64).map(of).collect::<Vec<Episode>>());
    home
}

/// Returns the number and the mean score of the episodes of a source in a step by the rows of the run.
fn rows(run: &Path, step: u64, source: &str) -> (f64, f64) {
    let text = fs::read_to_string(run.join("episodes.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<EpisodeRow>(line).unwrap());
    let scores: Vec<f64> = rows
        .filter(|row| row.step == step && row.source.starts_with(source))
        .filter_map(|row| row.score)
        .collect();
    (scores.len() as f64, scores.iter().sum::<f64>() / scores.len().max(1) as f64)
}

#[test]
fn the_parts_of_a_change_are_those_of_the_files_and_add_up() {
    let home = three();
    let run = home.path().join("a");
    let viewer = viewer_of(vec![home.path().to_owned()]);
    for step in [2, 3] {
        let (_, found) = ask(&viewer, &format!("api/runs/0/steps/{step}"));
        let change = &found["change"];
        let number = |value: &Value| value.as_f64().unwrap();
        let ((n, now), (m, before)) = (rows(&run, step, ""), rows(&run, step - 1, ""));
        let by = now - before;
        let terms = change["terms"].as_array().unwrap().iter().map(|term| number(&term["by"]));
        let sum = number(&change["mix"]) + number(&change["new"]) + terms.sum::<f64>();
        assert!((number(&change["by"]) - by).abs() < 1e-12, "{change}");
        assert!((sum - by).abs() < 1e-12, "{sum}: {change}");
        let mix = ["facts/one_hop", "facts/two_hop", "sums"].map(|source| {
            let ((is, _), (was, score)) = (rows(&run, step, source), rows(&run, step - 1, source));
            (is / n - was / m) * if was > 0.0 { score } else { before }
        });
        assert!((number(&change["mix"]) - mix.iter().sum::<f64>()).abs() < 1e-12, "{change}");
        let [low, high] = [0, 1].map(|i| number(&change["interval"][i]));
        assert!(low < by && by < high, "{change}");
    }
    assert_eq!(ask(&viewer, "api/runs/0/steps/1").1["change"], Value::Null);
}

#[test]
fn a_step_names_the_largest_part_of_the_change_and_shows_an_episode_of_it() {
    let home = three();
    let run = home.path().join("a");
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/step?step=2");
    let reasons = at.browser.text(".reasons");
    let [one, two] = ["facts/one_hop", "facts/two_hop"].map(|source| {
        let (now, before) = (rows(&run, 2, source).1, rows(&run, 1, source).1);
        format!("“{source}” {now:.3}, {before:.3} in step 1")
    });
    for expected in [
        "Equal kinds of tasks were answered worse: ".to_owned(),
        format!("({two}; {one})"),
        "comes from 48 episodes (8 in step 1): unsolved, lost by a reply of search/searcher."
            .to_owned(),
        "How search/searcher failed: “Perv” where the solved one has “Peru” (48 times).".to_owned(),
        "No task of this step was in an earlier one".to_owned(),
        format!("Step 3, with other tasks, scores {:.3}.", rows(&run, 3, "").1),
    ] {
        assert!(reasons.contains(&expected), "{expected}: {reasons}");
    }
    let answer = at.browser.text(".answer");
    let by = rows(&run, 1, "").1 - rows(&run, 2, "").1;
    let (n, m) = (rows(&run, 2, "").0, rows(&run, 1, "").0);
    let cause = format!(
        "The score fell by {by:.2} from step 1: search/searcher lost 48 of {n} episodes (8 of {m} in step 1), mostly of “facts/two_hop”, \
         with “Perv” where the solved one has “Peru” (48 times)."
    );
    assert_eq!(answer, cause);
    let parts = at.browser.text(".answer + p");
    assert!(parts.starts_with("In parts: −") && parts.contains(" another mix of tasks"), "{parts}");
    let (first, others) = parts.split_once(", ").unwrap();
    assert!(first.ends_with(" lost by search/searcher") && !others.contains("0.00"), "{parts}");
    // The parts of the sentence add up to its change in all digits that it shows.
    let digits = |text: &str| text.split([' ', ',']).filter_map(hundredths).sum::<i64>();
    assert_eq!(digits(&parts), -hundredths(&format!("+{by:.2}")).unwrap(), "{parts}");
    // The numbers of tasks beside the mix, and the episodes of step 1 as if there were 16 tasks of two hops instead of 8.
    let mix = at.browser.text("tr[data-term]");
    assert!(
        mix.contains("facts/one_hop 8 tasks, 16 before, facts/two_hop 16 tasks, 8 before"),
        "{mix}"
    );
    let searcher = at.browser.value(
        "[...[...document.querySelectorAll('tr[data-term]')].find((row) => row.textContent.includes('a reply of search/searcher')).children].map((cell) => cell.textContent)",
    );
    assert_eq!(searcher.as_array().unwrap()[1..4], ["48", "8", "16.0"]);
    // The parts that are shown add up to the change that is shown.
    let shown = at.browser.value(
        "[...[...document.querySelectorAll('table')].find((t) => t.textContent.includes('sum: change')).querySelectorAll('tr[data-term]')]\
         .map((row) => Number(row.dataset.term))",
    );
    let parts: Vec<f64> = serde_json::from_value(shown).unwrap();
    let (sum, parts) = parts.split_last().unwrap();
    let rounding = at
        .browser
        .value("Number(document.querySelector('[data-rounding]')?.dataset.rounding ?? 0)");
    let thousandths = |of: f64| (1e3 * of).round();
    let written: f64 = parts.iter().map(|of| thousandths(*of)).sum();
    assert_eq!(written + thousandths(rounding.as_f64().unwrap()), thousandths(*sum), "{parts:?}");
    let by = rows(&run, 2, "").1 - rows(&run, 1, "").1;
    assert!(
        (sum - by).abs() < 1e-12 && (parts.iter().sum::<f64>() - by).abs() < 1e-12,
        "{parts:?}"
    );
    assert!(at.browser.text("#main").contains(&format!("in step 1 {}", signed(by))));
    at.browser.value("[...document.querySelectorAll('tr[data-term]')].find((row) => row.textContent.includes('a reply of search/searcher')).querySelector('a').click()");
    at.browser.wait("document.querySelector('[data-parting]') !== null");
    let parting = at.browser.text("[data-parting]");
    assert!(
        parting.contains("the replies of search/searcher to equal prompts differ"),
        "{parting}"
    );
    // Alike tasks are one row, until they are unfolded.
    at.go("r/0/step?step=2");
    let shown =
        "[...document.querySelectorAll('tr.row')].filter((row) => row.checkVisibility()).length";
    let folded = at.browser.value(shown).as_u64().unwrap();
    at.browser.value(
        "[...document.querySelectorAll('tr.row button')].forEach((button) => button.click())",
    );
    assert!(folded < 24 && at.browser.value(shown) == 24, "{folded}");
    at.go("r/0/step?step=3");
    let reasons = at.browser.text(".reasons");
    for expected in ["Tasks of new sources: ", "New are 56 episodes of “sums”; they score 0.000."]
    {
        assert!(reasons.contains(expected), "{reasons}");
    }
    at.browser.assert_quiet();
}

/// Returns a number with a sign and two decimals in hundredths; `None` for another word.
fn hundredths(word: &str) -> Option<i64> {
    let digits = word.strip_prefix(['+', '−'])?.replace('.', "");
    let value: i64 = digits.parse().ok()?;
    Some(if word.starts_with('−') { -value } else { value })
}

/// Writes 12 steps of 8 tasks, of whose 4 episodes the searcher loses one, and three in the last step.
fn fallen() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    for step in 1..=12 {
        let lost = if step == 12 { 3 } else { 1 };
        let of = |n: u32| {
            let replies = if n % 4 < lost { ["Perv", "Quito"] } else { ["Peru", "Lima"] };
            replied("facts", &format!("train-{step}-{}", n / 4), n % 4, replies)
        };
        written.played(step, &(0..32).map(of).collect::<Vec<Episode>>());
    }
    home
}

#[test]
fn a_fall_is_told_with_its_cause_on_the_page_of_the_run_and_at_the_top_of_that_of_the_step() {
    let home = fallen();
    let run = home.path().join("a");
    let [was, is] = [11, 12].map(|step| rows(&run, step, ""));
    let lost = |(n, score): (f64, f64)| format!("{} of {n}", n * (1.0 - score));
    let cause = format!(
        ": search/searcher lost {} episodes ({} in step 11), with “Perv” where the solved one has “Peru” ({} times).",
        lost(is),
        lost(was),
        is.0 * (1.0 - is.1)
    );
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let short = format!(
        "Reward: its largest fall is in step 12. The score fell from {:.3} to {:.3}{cause}",
        was.1, is.1
    );
    let (_, replies) = ask(&viewer, "api/runs/a/replies");
    assert_eq!((&replies["fall"]["text"], &replies["fall"]["step"]), (&json!(short), &json!(12)));
    let answer = format!("The score fell by {:.2} from step 11{cause}", was.1 - is.1);
    let (_, step) = ask(&viewer, "api/runs/a/steps/12");
    assert_eq!(step["change"]["answer"], answer);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/a");
    at.browser.wait("document.querySelector('.brief') !== null");
    let brief = at.browser.text(".brief");
    assert!(brief.contains(&short), "{short}: {brief}");
    let press = "[...document.querySelectorAll('.brief button')].find((b) => b.textContent === 'step 12').click()";
    at.browser.value(press);
    at.browser.wait("location.hash === '#/r/a/step?step=12'");
    at.browser.wait("document.querySelector('.answer') !== null");
    assert_eq!(at.browser.text(".answer"), answer);
    at.browser.assert_quiet();
}

#[test]
fn a_click_in_a_chart_and_a_notice_lead_to_the_page_of_the_step() {
    let home = fallen();
    let run = home.path().join("a");
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/a");
    let plot = "document.querySelector('[data-title=Reward] .plot svg')";
    at.browser.wait(&format!("{plot} !== null"));
    let cursor = at.browser.value(&format!("getComputedStyle({plot}).cursor"));
    assert_eq!(cursor, "pointer");
    let notice = at.browser.text(".notices");
    let [was, is] = [11, 12].map(|step| rows(&run, step, "").1);
    let expected = format!("the score fell from {was:.3} in step 11 to {is:.3} in step 12");
    assert!(notice.contains(&expected), "{notice}");
    let link = at.browser.value("document.querySelector('.notices a').hash");
    assert_eq!(link, "#/r/a/step?step=12");
    at.browser.value(&format!(
        "(() => {{ const s = {plot}; const b = s.getBoundingClientRect(); for (const kind of ['pointermove', 'pointerdown', 'pointerup']) \
         s.dispatchEvent(new PointerEvent(kind, {{ clientX: b.left + 44 + (b.width - 54) / 11, clientY: b.top + 60 }})); }})()"
    ));
    at.browser.wait("location.hash === '#/r/a/step?step=2'");
    at.browser.wait("document.querySelector('.answer') !== null");
    assert_eq!(at.browser.text("[data-notice]"), "", "the notice is about another step");
    at.go("r/a/step?step=12");
    assert_eq!(at.browser.text("[data-notice]"), format!("! {expected}"));
    at.browser.assert_quiet();
}

#[test]
fn a_small_change_is_told_to_be_within_chance_everywhere() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    // Three of eight episodes are solved, then two.
    for (step, of) in [(1, 2), (2, 1)] {
        written.played(step, &(0..8).map(|n| searched(of, n)).collect::<Vec<Episode>>());
    }
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, found) = ask(&viewer, "api/runs/a/steps/2");
    let text = found["text"][0].as_str().unwrap();
    assert!(text.starts_with("Other tasks of the same kinds are reason enough"), "{text}");
    let change = &found["change"];
    assert_eq!(change["answer"], "The score fell by 0.12 from step 1, which is within chance.");
    let terms = change["terms"].as_array().unwrap();
    // The hostile episode has a malformed reply.
    assert!(terms.iter().any(|term| term["cause"]["kind"] == "malformed"), "{terms:?}");
    // The page of the run and its notices follow the rule of the page of the step.
    let (_, replies) = ask(&viewer, "api/runs/a/replies");
    assert_eq!(
        replies["fall"]["text"],
        "Reward: no fall is beyond chance. The largest is in step 2, from 0.375 to 0.250: other tasks of the same kinds are \
         reason enough."
    );
    let (_, run) = ask(&viewer, "api/runs/a");
    assert!(!run["notices"].to_string().contains("the score fell"), "{run}");
    // A score that only rises has no fall.
    let home = self::home();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, replies) = ask(&viewer, "api/runs/a/replies");
    assert_eq!(replies["fall"]["text"], "Reward: the score never fell from one step to the next.");
}
