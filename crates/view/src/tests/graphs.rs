//! The plan as a graph, the evaluations on the overview, the list of runs, and keys of rows.

use super::pages::{Visit, home};
use super::*;
use maverl::eval::{EvalReport, EvalSpec};

#[test]
fn the_plan_leads_from_seats_to_policies_and_worker_groups() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    let seat = |seat: &str, policy: &str, trained: bool| json!({ "seat": seat, "policy": policy, "trained": trained, "temperature": 1.0, "max_tokens": 24 });
    let policy = |name: &str, worker: &str, trained: bool| json!({ "name": name, "worker": worker, "adapter": null, "agents": [], "trained": trained, "parameters": 1000, "bytes": 10 });
    let worker = |name: &str, kv: u64| json!({ "name": name, "model": name, "path": "builtin:tiny", "trained": kv > 0, "weight_bytes": 3 << 20, "gradient_bytes": 0, "moment_bytes": 0, "activation_bytes": 0, "kv_bytes": kv });
    let plan = json!({
        "summary": {
            "seats": [seat("a/one", "tiny", true), seat("a/two", "tiny", true), seat("a/judge", "judge", false)],
            "policies": [policy("tiny", "tiny", true), policy("judge", "judge", false)],
            "workers": [worker("tiny", 9 << 20), worker("judge", 0)],
        },
        "endpoints": [{ "seat": "a/outside", "endpoint": "remote" }], "environment": "search", "environments": [],
    });
    written.dir.write_plan(&plan).unwrap();
    written.step(1);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/config");
    let edges = at
        .browser
        .value("[...document.querySelectorAll('.plan [data-edge]')].map((e) => e.dataset.edge)");
    assert_eq!(
        edges,
        json!([
            "seat a/one > policy tiny",
            "seat a/two > policy tiny",
            "seat a/judge > policy judge",
            "seat a/outside > endpoint remote",
            "policy tiny > worker tiny",
            "policy judge > worker judge"
        ])
    );
    let of = |name: &str| {
        format!("[...document.querySelectorAll('.plan g.{name}')].map((g) => g.dataset.box)")
    };
    assert_eq!(
        at.browser.value(&of("frozen")),
        json!(["seat a/judge", "policy judge", "worker judge"])
    );
    assert_eq!(at.browser.value(&of("outside")), json!(["seat a/outside", "endpoint remote"]));
    // Bars are on one scale: 3 MiB of weights in both, 9 MiB of the cache in one.
    let widths = at.browser.value("[...document.querySelectorAll('.plan [data-part]')].map((b) => Math.round(Number(b.getAttribute('width')) / 53.5))");
    assert_eq!(widths, json!([1, 3, 1]));
    let apart = at.browser.value(
        "(() => { const b = [...document.querySelectorAll('.plan .box')].map((b) => b.getBoundingClientRect()); \
         return b.every((x, i) => b.every((y, j) => i === j || x.right <= y.left || y.right <= x.left || x.bottom <= y.top || y.bottom <= x.top)); })()",
    );
    assert_eq!(apart, true, "no box covers another");
    at.browser.assert_quiet();
}

#[test]
fn evaluations_are_marked_on_the_chart_of_solved_tasks() {
    let home = home();
    let path = home.path().join("a");
    let spec = EvalSpec { split: "validation".into(), samples: 1, temperature: None, ask: None };
    let of = |i: u32| episode(&format!("valid-{i}"), 0, i < 3, 1);
    let report = EvalReport::of(&spec, &(0..8).map(of).collect::<Vec<Episode>>()).unwrap();
    let mut dir = RunDir::open(&path).unwrap();
    dir.write_validation("step-000002", &report).unwrap();
    let metrics = path.join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text + "{\"step\":2,\"eval/validation/exact_match\":0.375}\n").unwrap();
    let after = path.join("evaluations/after.json");
    let mut value: Value = maverl::run_dir::disk::read_json(&after).unwrap();
    value["sampled"]["overall"]["pass"]["8"] = json!({ "mean": 0.875, "low": 0.7, "high": 1.0 });
    fs::write(&after, value.to_string()).unwrap();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0");
    at.browser.wait("document.querySelectorAll('[data-title=Solved] line.whisker').length === 3");
    at.browser.value("[...document.querySelectorAll('[data-title=Solved] button')].find((b) => b.textContent === 'table').click()");
    let rows = at.browser.value("[...document.querySelectorAll('[data-title=Solved] .chart-table tr')].map((r) => [...r.children].map((c) => c.textContent).join(' '))");
    let rows: Vec<String> = serde_json::from_value(rows).unwrap();
    assert_eq!(rows[0], "step training validation before after");
    assert!(rows[1] == "0 – – 0.25 –" && rows[3].ends_with(" 0.375 – –"), "{rows:?}");
    assert!(rows[4].ends_with(" – – 0.75"), "{rows:?}");
    // A line that ends before the others says at which step; at another step it has no value.
    let legend = at.browser.text("[data-title=Solved] .legend");
    for expected in ["validation 0.375 (step 2)", "before 0.25 (step 0)"] {
        assert!(legend.contains(expected), "{legend}");
    }
    assert!(!legend.contains("after 0.75 ("), "{legend}");
    let outcome = at.browser.text(".dotplot");
    assert!(outcome.contains("pass@8 0.875") && !outcome.contains("pass@1"), "{outcome}");
    // Shares of shortened and forked conversations: there are none.
    let agents = at.browser.text("[data-agent='search/verifier']");
    assert!(agents.contains(" 0.0 %"), "{agents}");
    // Other tasks after than before: nothing is paired.
    value["sampled"]["tasks"].as_array_mut().unwrap().iter_mut().for_each(|task| {
        task["id"] = format!("other-{}", task["id"].as_str().unwrap()).into();
    });
    fs::write(&after, value.to_string()).unwrap();
    // Files are looked at twice a second.
    std::thread::sleep(Duration::from_millis(600));
    at.go("r/0");
    at.browser.wait("document.querySelector('#main').textContent.includes('not paired')");
    at.browser.assert_quiet();
}

#[test]
fn a_new_run_appears_in_the_list_and_chosen_boxes_stay() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 1");
    at.browser.value("window.loaded = 'once'");
    at.browser.value("document.querySelector('tbody input').click()");
    let mut other = Written::new(&home.path().join("b"));
    other.step(1);
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 2");
    assert_eq!(at.browser.value("window.loaded"), "once");
    let boxes = "[...document.querySelectorAll('tbody input')].map((b) => b.checked)";
    assert_eq!(at.browser.value(boxes), json!([true, false]));
    // The new run is watched, too.
    other.step(2);
    at.browser.wait(
        "[...document.querySelectorAll('tbody tr.row')][1].textContent.includes('step 2 of 4')",
    );
    at.browser.value("document.querySelectorAll('tbody input')[1].click()");
    at.browser.value("[...document.querySelectorAll('#main button')].find((b) => b.textContent === 'compare').click()");
    at.browser.wait("location.hash === '#/compare?runs=a%2Cb'");
    at.browser.wait("document.querySelector('figure.chart') !== null");
    at.browser.assert_quiet();
}

#[test]
fn the_key_g_opens_the_group_of_a_row() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/episodes?stage=train&step=2");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 8");
    for key in ["j", "j", "g"] {
        at.browser.press(key);
    }
    at.browser.wait("location.hash.startsWith('#/r/0/group/2/')");
    at.go("r/0/episodes?stage=after");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 16");
    at.browser.press("j");
    at.browser.press("g");
    at.browser.wait(
        "document.querySelector('#main').textContent.includes('This episode is in no group.')",
    );
    at.browser.assert_quiet();
}

#[test]
fn a_list_that_grows_keeps_the_focus_on_its_row() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    written.step(1);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0/episodes?stage=train&sort=-step");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 8");
    for _ in 0..3 {
        at.browser.press("j");
    }
    let focused = "document.activeElement.getAttribute('href')";
    let third = at.browser.value(focused);
    assert!(third.as_str().unwrap().contains("/episode/train/1/"), "{third}");
    written.step(2);
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 16");
    assert_eq!(at.browser.value(focused), third);
    at.browser.press("Enter");
    at.browser.wait(&format!("location.hash === {third}"));
    at.browser.assert_quiet();
}

#[test]
fn notices_are_told_without_a_page_too() {
    let home = home();
    let path = home.path().join("a");
    assert_eq!(notices_of(&path), Vec::<String>::new());
    let metrics = path.join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text + "{\"step\":4,\"policy/tiny/clip_frac_dual\":0.5}\n").unwrap();
    assert_eq!(notices_of(&path), ["policy tiny: 50 % of tokens clipped in step 4"]);
}

#[test]
fn trackers_that_lack_rows_are_named_with_the_run_until_they_have_them() {
    let home = home();
    let path = home.path().join("a");
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let tracking = || {
        // Files are looked at twice a second.
        std::thread::sleep(Duration::from_millis(600));
        let [list, run] = ["api/runs", "api/runs/0"].map(|route| ask(&viewer, route).1);
        assert_eq!(list[0]["tracking"], run["run"]["tracking"]);
        run["run"]["tracking"].clone()
    };
    let write_cursor = |evaluated: &[u64]| {
        let cursor = json!({ "protocol": 1, "last_step": 0, "evaluated": evaluated });
        fs::write(path.join("track/mlflow.json"), cursor.to_string()).unwrap();
    };
    assert_eq!(tracking(), json!([]));
    fs::create_dir(path.join("track")).unwrap();
    write_cursor(&[]);
    let rows = fs::read_to_string(path.join("metrics.jsonl")).unwrap().lines().count();
    let behind = format!("tracking: mlflow is {rows} rows behind");
    assert_eq!(tracking(), json!([behind]));
    if let Some(mut at) = Visit::new(home.path(), 1200, 800) {
        for page in ["", "r/0"] {
            at.go(page);
            at.browser
                .wait(&format!("document.querySelector('#main').textContent.includes({behind:?})"));
        }
        at.browser.assert_quiet();
    }
    write_cursor(&(0..10).collect::<Vec<u64>>());
    assert_eq!(tracking(), json!([]));
}
