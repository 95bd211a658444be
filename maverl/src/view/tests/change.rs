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
    let viewer = Viewer::new(vec![home.path().to_owned()]).unwrap();
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
    let start = format!("The score fell by {by:.2} from step 1: −");
    assert!(answer.starts_with(&start), "{answer}");
    assert!(
        answer[start.len()..].contains(" lost by search/searcher, "),
        "the largest part first: {answer}"
    );
    assert!(answer.contains(" another mix of tasks") && !answer.contains("0.00"), "{answer}");
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

#[test]
fn a_click_in_a_chart_and_a_notice_lead_to_the_page_of_the_step() {
    let home = three();
    let metrics = home.path().join("a/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let line = |step: u32| {
        format!(
            "{{\"step\":{step},\"rollout/score_mean\":{}}}\n",
            [0.9, 0.5][usize::from(step == 12)]
        )
    };
    fs::write(&metrics, text + &(4..=12).map(line).collect::<String>()).unwrap();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0");
    let plot = "document.querySelector('[data-title=Reward] .plot svg')";
    at.browser.wait(&format!("{plot} !== null"));
    let cursor = at.browser.value(&format!("getComputedStyle({plot}).cursor"));
    assert_eq!(cursor, "pointer");
    let notice = at.browser.text(".notices");
    assert!(
        notice
            .contains("the score fell to 0.500 in step 12; it was 0.900 (median of steps 2 to 11)"),
        "{notice}"
    );
    let link = at.browser.value("document.querySelector('.notices a').hash");
    assert_eq!(link, "#/r/0/step?step=12");
    at.browser.value(&format!(
        "(() => {{ const s = {plot}; const b = s.getBoundingClientRect(); for (const kind of ['pointermove', 'pointerdown', 'pointerup']) \
         s.dispatchEvent(new PointerEvent(kind, {{ clientX: b.left + 44 + (b.width - 54) / 11, clientY: b.top + 60 }})); }})()"
    ));
    at.browser.wait("location.hash === '#/r/0/step?step=2'");
    at.browser.wait("document.querySelector('.answer') !== null");
    at.browser.assert_quiet();
}

#[test]
fn a_small_change_is_told_to_be_within_chance() {
    let home = home();
    let viewer = Viewer::new(vec![home.path().to_owned()]).unwrap();
    let (_, found) = ask(&viewer, "api/runs/0/steps/2");
    let text = found["text"][0].as_str().unwrap();
    assert!(text.starts_with("Other tasks of the same kinds are reason enough"), "{text}");
    let terms = found["change"]["terms"].as_array().unwrap();
    // The hostile episode has a malformed reply.
    assert!(terms.iter().any(|term| term["cause"]["kind"] == "malformed"), "{terms:?}");
}
