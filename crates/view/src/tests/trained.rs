//! Pages of runs without advantages: verifiers, demonstrations, pairs of replies; and of estimators without groups.

use super::pages::Visit;
use super::*;
use maverl::config::{AgentConfig, Preset};

/// Returns the titles of the charts of the open page.
fn titles(at: &mut Visit) -> Vec<String> {
    let found =
        "[...document.querySelectorAll('[data-title]')].map((chart) => chart.dataset.title)";
    serde_json::from_value(at.browser.value(found)).unwrap()
}

/// Writes three steps of a run that plays no episodes. `metrics` are those of a step.
fn supervised(path: &Path, preset: Preset, metrics: impl Fn(f64) -> Vec<(&'static str, f64)>) {
    let mut written = Written::with(path, |config| config.algorithm.name = preset);
    for step in 1..=3_u32 {
        written.trained(u64::from(step), &metrics(f64::from(step)));
    }
}

/// Metrics of an update by given replies, or by pairs of them.
fn update(step: f64, pairs: bool) -> Vec<(&'static str, f64)> {
    let mut metrics = vec![
        ("policy/tiny/loss", 0.7 / step),
        ("policy/tiny/pg_loss", 0.7 / step),
        ("policy/tiny/kl", 0.0),
        ("policy/tiny/clip_frac_low", 0.0),
        ("policy/tiny/adv_mean", 0.0),
        ("policy/tiny/grad_norm", 1.5),
        ("policy/tiny/lr", 1e-5),
        ("mismatch/tiny/logp_abs_max", 0.0),
        ("mismatch/tiny/logp_abs_mean", 0.0),
    ];
    if pairs {
        metrics.extend([
            ("policy/tiny/pair_accuracy", 0.25 * step),
            ("policy/tiny/reward_margin", 0.1 * step),
            ("policy/tiny/reward_chosen", 0.04 * step),
            ("policy/tiny/reward_rejected", -0.06 * step),
        ]);
    }
    metrics
}

#[test]
fn a_verifier_has_its_loss_accuracy_auc_and_calibration() {
    let home = tempfile::tempdir().unwrap();
    supervised(&home.path().join("a"), Preset::Verifier, |step| {
        vec![
            ("verifier/loss", 0.7 / step),
            ("verifier/accuracy", 0.5 + 0.1 * step),
            ("verifier/grad_norm", 2.0),
            ("verifier/lr", 1e-4),
            ("verifier/temperature", 1.25),
            ("verifier/validation/auc", 0.55 + 0.1 * step),
            ("verifier/validation/accuracy", 0.5 + 0.05 * step),
            ("verifier/validation/nll", 0.6 / step),
            ("verifier/validation/ece", 0.04),
            ("verifier/validation/ece_unscaled", 0.125),
            ("verifier/validation/mean", 0.45),
            ("verifier/validation/base_rate", 0.5),
            ("verifier/test/auc", 0.5 + 0.1 * step),
            ("verifier/test/auc_low", 0.45 + 0.1 * step),
            ("verifier/test/auc_high", 0.55 + 0.1 * step),
            ("verifier/test/accuracy", 0.5 + 0.07 * step),
            ("verifier/test/ece", 0.0625),
            ("verifier/test/base_rate", 0.375),
            ("verifier/test/n", 128.0),
            ("verifier/probe/length", 0.5625),
        ]
    });
    let Some(mut at) = Visit::new(home.path(), 1200, 1600) else { return };
    at.go("r/0");
    at.browser.wait("document.querySelector('[data-judged=test]') !== null");
    let titles = titles(&mut at);
    for title in ["Loss", "Accuracy", "AUC", "Calibration error", "AUC of probes", "Gradient norm"]
    {
        assert!(titles.iter().any(|found| found == title), "{title}: {titles:?}");
    }
    for title in ["Rollout against trainer", "Clipped tokens", "Entropy"] {
        assert!(!titles.iter().any(|found| found == title), "{title}: {titles:?}");
    }
    let outcome = at.browser.text("[data-judged=test]");
    for part in [
        "0.800 (0.750 to 0.850, 95 %)",
        "accuracy0.710",
        "calibration error0.063",
        "right rows0.375",
        "in step 3; 128 rows",
    ] {
        assert!(outcome.contains(part), "{part}: {outcome}");
    }
    let page = at.browser.text("#main");
    assert!(!page.contains("log-probs of rollout and trainer"), "{page}");
    at.browser.assert_quiet();
}

#[test]
fn pairs_have_their_accuracy_and_margin_and_no_run_on_given_replies_is_praised_for_its_sampler() {
    let home = tempfile::tempdir().unwrap();
    for (name, preset, pairs) in
        [("a", Preset::Sft, false), ("b", Preset::Dpo, true), ("c", Preset::Spin, true)]
    {
        supervised(&home.path().join(name), preset, |step| update(step, pairs));
    }
    // Online DPO plays episodes, and its pairs have no ratio to the sampler either.
    let mut online =
        Written::with(&home.path().join("d"), |config| config.algorithm.name = Preset::OnlineDpo);
    for step in 1..=3_u32 {
        online.step(u64::from(step));
        online.trained(u64::from(step), &update(f64::from(step), true));
    }
    drop(online);
    // A policy gradient keeps its charts and its praise.
    let mut gradient = Written::new(&home.path().join("e"));
    for step in 1..=3_u32 {
        gradient.step(u64::from(step));
        gradient.trained(u64::from(step), &update(f64::from(step), false));
    }
    drop(gradient);
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let praised = |run: usize| {
        let (_, found) = ask(&viewer, &format!("api/runs/{run}"));
        found["notices"].to_string().contains("log-probs of rollout and trainer are equal")
    };
    assert_eq!([0, 1, 2, 3, 4].map(praised), [false, false, false, false, true]);
    let Some(mut at) = Visit::new(home.path(), 1200, 1600) else { return };
    for (run, pairs) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
        at.go(&format!("r/{run}"));
        at.browser.wait("document.querySelector(\"[data-title='Gradient norm'] svg\") !== null");
        let titles = titles(&mut at);
        let has = |title: &str| titles.iter().any(|found| found == title);
        assert_eq!(
            (has("Pair accuracy"), has("Reward margin")),
            (pairs, pairs),
            "{run}: {titles:?}"
        );
        assert!(has("Loss"), "{run}: {titles:?}");
        let page = at.browser.text("#main");
        let idle = ["Clipped tokens", "Rollout against trainer", "Advantages"];
        let named = idle.iter().any(|title| page.contains(title));
        assert_eq!(named, run == 4, "{run}: {page}");
    }
    at.browser.assert_quiet();
}

#[test]
fn an_estimator_without_groups_says_so_and_has_no_baseline() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    let episodes: Vec<Episode> = (0..8).map(|n| searched(1, n)).collect();
    let mut of_step = samples(&episodes);
    of_step.estimator = of_json(json!({ "estimator": "shop/own" }));
    of_step.groups = Vec::new();
    of_step.samples.iter_mut().for_each(|sample| sample.group = None);
    written.dir.write_samples(1, &of_step).unwrap();
    written.played(1, &episodes);
    drop(written);
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, found) = ask(&viewer, "api/runs/0/groups/1");
    assert_eq!(found["estimator"], json!({ "estimator": "shop/own" }));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    for page in ["r/0/groups?step=1", "r/0/groups?step=all"] {
        at.go(page);
        at.browser.wait("document.querySelector('.answer') !== null");
        let text = at.browser.text("#main");
        assert!(text.contains("“shop/own” compares no groups."), "{text}");
        assert!(text.contains("has its advantage on the page of its episode"), "{text}");
        assert!(!text.contains("0 groups"), "{text}");
    }
    at.go("r/0/episode/train/1/0");
    at.browser.wait("document.querySelector('#main').textContent.includes('advantage −0.500')");
    at.browser.assert_quiet();
}

#[test]
fn the_replies_of_a_pair_are_named() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    let episodes: Vec<Episode> = (0..8).map(|n| searched(1, n)).collect();
    let mut of_step = samples(&episodes);
    of_step.estimator = of_json(json!({ "estimator": "pair" }));
    for sample in &mut of_step.samples {
        sample.advantage = [1.0, 0.0, -1.0, 0.0][sample.episode % 4];
    }
    written.dir.write_samples(1, &of_step).unwrap();
    written.played(1, &episodes);
    drop(written);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/group/1/0");
    at.browser.wait("document.querySelectorAll('td.sum').length === 4");
    let texts = at
        .browser
        .value("[...document.querySelectorAll('td.sum')].map((cell) => cell.textContent)");
    let expected = [
        "the better reply of the pair = +1.000",
        "in no pair = 0.000",
        "the worse reply of the pair = −1.000",
        "in no pair = 0.000",
    ];
    let found: Vec<String> = serde_json::from_value(texts).unwrap();
    let found: Vec<String> =
        found.into_iter().map(|text| text.replace("+0.000", "0.000")).collect();
    assert_eq!(found, expected);
    let rule = at.browser.text("#main dl");
    assert!(rule.contains("The loss is that of DPO."), "{rule}");
    at.browser.assert_quiet();
}

/// Writes a run of a team without a step.
fn team(path: &Path, orchestra: &str, agents: &[&str], steps: u64) {
    drop(Written::with(path, |config| {
        config.orchestra.name = Some(orchestra.to_owned());
        config.steps = steps;
        for agent in agents {
            let adapter = Some(agent.replace('/', "-"));
            let own = AgentConfig { adapter, frozen: Some(false), ..AgentConfig::default() };
            config.agents.insert((*agent).to_owned(), own);
        }
    }));
}

#[test]
fn keys_that_one_run_alone_has_are_listed_by_run() {
    let home = tempfile::tempdir().unwrap();
    let debaters: Vec<String> = (0..10).map(|i| format!("debate/debater{i}")).collect();
    let debaters: Vec<&str> = debaters.iter().map(String::as_str).collect();
    team(&home.path().join("a"), "debate/rounds", &debaters, 4);
    team(&home.path().join("b"), "cory/pair", &["cory/pioneer"], 5);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("compare?runs=0,1");
    let rows = "[...document.querySelectorAll('#main .scroll tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))";
    let rows: Vec<Vec<String>> = serde_json::from_value(at.browser.value(rows)).unwrap();
    let keys: Vec<&str> = rows.iter().map(|row| &*row[0]).collect();
    for key in ["orchestra.name", "steps"] {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
    assert!(rows.iter().all(|row| !row.iter().any(|cell| cell == "–")), "{rows:?}");
    let only = at.browser.text("[data-only=A] summary");
    assert!(only.starts_with("Only A, a, has 20 keys: agents.debate/debater0, "), "{only}");
    assert!(only.ends_with(" and 4 more"), "{only}");
    let only = at.browser.text("[data-only=B]");
    assert!(only.contains("Only B, b, has 2 keys: agents.cory/pioneer"), "{only}");
    assert!(only.contains("agents.cory/pioneer.adaptercory-pioneer"), "{only}");
    at.browser.assert_quiet();
}
