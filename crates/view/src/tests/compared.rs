//! The comparison of runs: its numbers are those of the files.

use super::pages::Visit;
use super::visits::signed;
use super::*;
use maverl::eval::paired_interval;

/// Writes two runs; the second solves fewer tasks and has another entropy in step 2.
fn two() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let mut other = Written::new(&home.path().join("b"));
    other.evaluation("before", 0, 4);
    (1..=3).for_each(|step| other.step(step));
    other.evaluation("after", 3, 8);
    drop(other);
    let metrics = home.path().join("b/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(metrics, text + "{\"step\":2,\"policy/tiny/entropy\":0.7}\n").unwrap();
    home
}

/// Returns the share of solved episodes of each held-out task by the report of a run.
fn shares(run: &Path) -> BTreeMap<String, f64> {
    evaluated(run, "after")
}

/// Returns the same of an evaluation.
fn evaluated(run: &Path, name: &str) -> BTreeMap<String, f64> {
    let file = run.join(format!("evaluations/{name}.json"));
    let report: Value = maverl::run_dir::disk::read_json(&file).unwrap();
    let tasks = report["sampled"]["tasks"].as_array().unwrap().iter();
    let share = |task: &Value| {
        let solved = task["solved"].as_f64().unwrap() / task["episodes"].as_f64().unwrap();
        (task["id"].as_str().unwrap().to_owned(), solved)
    };
    tasks.map(share).collect()
}

#[test]
fn the_difference_of_runs_is_the_paired_one_of_the_reports() {
    let home = two();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, found) = ask(&viewer, "api/compare?runs=0,1");
    let (a, b) = (shares(&home.path().join("a")), shares(&home.path().join("b")));
    let differences: Vec<f64> = a.iter().map(|(task, a)| b[task] - a).collect();
    let expected = paired_interval(&differences);
    let pair = &found["pairs"][0];
    assert_eq!(
        pair["difference"],
        json!({ "mean": expected.mean, "low": expected.low, "high": expected.high })
    );
    assert_eq!(
        (&pair["better"], &pair["worse"], &pair["tasks"]),
        (&json!(0), &json!(4), &json!(16))
    );
    // The gains of the runs, paired by task too.
    let gains = ["a", "b"].map(|name| {
        let [before, after] = ["before", "after"].map(|of| evaluated(&home.path().join(name), of));
        let gain = |(task, share): (&String, &f64)| (task.clone(), after[task] - share);
        before.iter().map(gain).collect::<BTreeMap<String, f64>>()
    });
    let gain: Vec<f64> = gains[0].iter().map(|(task, gain)| gains[1][task] - gain).collect();
    let gain = paired_interval(&gain);
    assert_eq!(pair["gain"], json!({ "mean": gain.mean, "low": gain.low, "high": gain.high }));
    let changed = pair["changed"].as_array().unwrap();
    assert_eq!(changed.len(), differences.iter().filter(|of| **of != 0.0).count());
    for task in changed {
        // An episode of each run that shows the difference.
        let of = |i: usize| {
            let place = &task["episodes"][i];
            let path = format!("api/runs/{i}/episodes/after/{}/{}", place[0], place[1]);
            let (status, episode) = ask(&viewer, &path);
            assert_eq!(status, 200, "{path}");
            assert_eq!(format!("facts/{}", episode["task"]["id"].as_str().unwrap()), task["task"]);
            episode["outcome"]["scored"]["solved"] == true
        };
        assert_eq!((of(0), of(1)), (true, false));
    }
}

#[test]
fn every_two_runs_are_compared_and_the_interval_of_a_share_is_within_0_to_1() {
    let home = two();
    let mut third = Written::new(&home.path().join("c"));
    third.evaluation("after", 3, 16);
    drop(third);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("compare?runs=0,1,2");
    at.browser.wait("document.querySelector('[data-seeds=ABC]') !== null");
    let after: Vec<BTreeMap<String, f64>> =
        ["a", "b", "c"].map(|name| shares(&home.path().join(name))).into();
    for (i, j, name) in [(0, 1, "B − A"), (0, 2, "C − A"), (1, 2, "C − B")] {
        let of = paired_interval(
            &after[i].iter().map(|(task, a)| after[j][task] - a).collect::<Vec<_>>(),
        );
        let [mean, low, high] = [of.mean, of.low, of.high].map(signed);
        let row = at.browser.text(&format!("[data-pair='{name}']"));
        assert!(row.contains(&format!("{mean} (95 % interval {low} to {high})")), "{row}: {mean}");
    }
    let seeds = at.browser.text("[data-seeds=ABC]");
    let head = at.browser.text("#main p.line");
    assert!(head.contains("a held-out score after training 0.750"), "{head}");
    assert!(seeds.contains("mean 0.750 (0.129 to 1.000, 95 %"), "{seeds}");
    at.browser.assert_quiet();
}

#[test]
fn charts_are_over_steps_episodes_tokens_or_seconds_and_seeds_are_one_line() {
    let home = two();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("compare?runs=0,1");
    let open = "[...document.querySelectorAll('[data-title=Entropy] button')].find((b) => b.textContent === 'table').click()";
    let rows = "[...document.querySelectorAll('[data-title=Entropy] .chart-table tr')].map((r) => [...r.children].map((c) => c.textContent))";
    let table = |at: &mut Visit, page: &str| -> Vec<Vec<String>> {
        at.go(page);
        at.browser.wait("document.querySelector('[data-title=Entropy] .plot svg') !== null");
        at.browser.value(open);
        serde_json::from_value(at.browser.value(rows)).unwrap()
    };
    let steps = table(&mut at, "compare?runs=0,1");
    assert_eq!((steps[0].join(" "), steps[2].join(" ")), ("step A B".into(), "2 0.5 0.7".into()));
    let tokens = table(&mut at, "compare?runs=0,1&x=tokens");
    let mut all = 0;
    for (step, row) in (1..=3).zip(&tokens[1..]) {
        let turns = (0..8).flat_map(|n| searched(step, n).turns);
        all += turns.map(|turn| turn.tokens.unwrap().completion.len()).sum::<usize>();
        assert_eq!((&row[0], &tokens[0][0]), (&all.to_string(), &"tokens".to_owned()));
    }
    let episodes = table(&mut at, "compare?runs=0,1&x=episodes");
    assert_eq!([&episodes[1][0], &episodes[3][0]], ["8", "24"]);
    // By the controls of the page: both runs as one line, the mean of both.
    at.browser.value("[...document.querySelectorAll('button')].find((b) => b.textContent === 'seeds as one line').click()");
    at.browser.wait("document.querySelectorAll('[data-title=Entropy] path.band').length === 1");
    assert_eq!(
        at.browser
            .value("location.hash.includes('x=episodes') && location.hash.includes('seeds=one')"),
        true
    );
    at.browser.value(open);
    let joined: Vec<Vec<String>> = serde_json::from_value(at.browser.value(rows)).unwrap();
    assert_eq!(joined[2][0], "16");
    assert!((joined[2][1].parse::<f64>().unwrap() - 0.6).abs() < 1e-9, "{joined:?}");
    // The crosshair finds the nearest place of a line that has other places.
    let legend = at.browser.value(
        "(() => { const s = document.querySelector('[data-title^=Solved] .plot svg'); const b = s.getBoundingClientRect(); \
         document.querySelector('[data-title^=Solved] .plot svg').dispatchEvent(new PointerEvent('pointermove', { clientX: b.left + b.width / 2, clientY: b.top + 60 })); \
         return document.querySelector('[data-title^=Solved] .legend').textContent; })()",
    );
    assert!(legend.as_str().unwrap().contains("16 episodes"), "{legend}");
    at.browser.assert_quiet();
}

#[test]
fn an_interval_that_ends_at_0_says_so() {
    // With fewer tasks, an interval does not end at a difference.
    let home = tempfile::tempdir().unwrap();
    for (name, solved) in [("a", 12), ("c", 13)] {
        let of = |i: u32| episode(&format!("test-{i}"), 0, i < solved, 1);
        let mut run = Written::new(&home.path().join(name));
        run.evaluated("after", 3, &(0..24).map(of).collect::<Vec<_>>());
    }
    let [a, c] = ["a", "c"].map(|name| shares(&home.path().join(name)));
    let expected = paired_interval(&a.iter().map(|(task, a)| c[task] - a).collect::<Vec<_>>());
    assert_eq!(expected.low, 0.0);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("compare?runs=0,1");
    at.browser.wait("document.querySelector('[data-pair]') !== null");
    let row = at.browser.text("[data-pair]");
    let shown = format!(
        "{} (95 % interval 0 to {}), not distinguishable",
        signed(expected.mean),
        signed(expected.high)
    );
    assert!(row.contains(&shown), "{row}: {shown}");
    let seeds = at.browser.text("[data-seeds]");
    assert!(
        seeds.starts_with(
            "Held-out score after training: no two of these seeds differ beyond chance."
        ),
        "{seeds}"
    );
    // Gains are compared apart, as they depend on the start too: no run has an evaluation before training.
    assert!(!seeds.contains("Gain over training"), "{seeds}");
    at.browser.assert_quiet();
}

#[test]
fn a_task_that_differs_leads_to_its_episodes_side_by_side() {
    let home = two();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("compare?runs=0,1");
    at.browser.wait("document.querySelector('[data-pair] details') !== null");
    let row = at.browser.text("[data-pair]");
    let (a, b) = (shares(&home.path().join("a")), shares(&home.path().join("b")));
    let expected = paired_interval(&a.iter().map(|(task, a)| b[task] - a).collect::<Vec<_>>());
    let [mean, low, high] = [expected.mean, expected.low, expected.high].map(signed);
    let shown = format!("{mean} (95 % interval {low} to {high}), lower");
    assert!(
        row.contains(&shown) && row.contains("over 16 tasks0 better, 4 worse"),
        "{row}: {shown}"
    );
    let seeds = at.browser.text("[data-seeds]");
    let scores = "Held-out score after training: seeds differ beyond chance: B lower than A.Gain over training: seeds differ beyond chance: B lower than A.";
    // Both begin with equal scores, so their gains differ as their scores do.
    let both = format!("B − A: score {shown}, over 16 tasks; gain {shown}");
    assert!(seeds.starts_with(scores) && seeds.ends_with(&both), "{seeds}");
    assert!(seeds.contains("Their starting weights are equal, so"), "{seeds}");
    at.browser.value("document.querySelector('[data-pair] summary').click()");
    at.browser.value("document.querySelector('[data-pair] details a').click()");
    at.browser.wait("document.querySelectorAll('[data-side]').length === 2");
    assert_eq!(at.browser.text("[data-back]"), "back toab", "no training steps: the runs");
    let sides = at
        .browser
        .value("[...document.querySelectorAll('[data-side] dl')].map((s) => s.textContent)");
    let sides: Vec<String> = serde_json::from_value(sides).unwrap();
    assert!(!sides[0].contains("not solved") && sides[1].contains("not solved"), "{sides:?}");
    at.browser.value("history.back()");
    at.browser.wait("document.querySelector('[data-pair] details') !== null");
    at.browser.value("document.querySelectorAll('[data-pair] details a')[2].click()");
    at.browser.wait("location.hash.startsWith('#/r/b/episodes')");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length >= 1");
    at.browser.assert_quiet();
}

#[test]
fn every_table_of_the_comparison_names_the_runs_above_its_columns() {
    let home = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "d"];
    for (seed, name) in names.iter().enumerate() {
        let mut origin = resolved_origin();
        origin.config.seed = seed as u64;
        origin.provenance.data.insert("train".into(), seed.to_string().repeat(64));
        RunDir::create(&home.path().join(name), &origin).unwrap();
    }
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("compare?runs=a,b,c,d");
    at.browser.wait("document.querySelectorAll('#main thead').length === 2");
    let heads = "[...document.querySelectorAll('#main thead')].map((head) => [...head.querySelectorAll('a')].map((a) => a.textContent.at(-1)))";
    assert_eq!(at.browser.value(heads), json!([names, names]));
    at.browser.assert_quiet();
}
