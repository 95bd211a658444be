//! Tests of the interface without a browser, and the run that all tests of pages look at.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use crate::pages::events::event_stream;
use crate::pages::serve::page_router;
use crate::pages::viewer::{NAME, address_name};
use crate::*;
use maverl::config::{AlgorithmConfig, AlgorithmPlan, Config};
use maverl::files::{ModelFiles, ModelSource};
use maverl::metrics::Metrics;
use maverl::run_dir::testing::{episode, origin, write_step};
use maverl::run_dir::{
    EpisodeRow, GroupRecord, Journal, Origin, RunDir, SampleRecord, SpanRecord, SpanRow,
    StepSamples, TRAIN, TokenRecord, TurnTime, WorkerSample,
};
use maverl::task::{Action, Score};
use maverl::text::Tokenizer;
use maverl::trajectory::{
    Act, Episode, Message, Outcome, RewardOf, RewardPart, Role, Seat, TurnPath,
};

mod bounds;
mod browser;
mod change;
mod compared;
mod estimators;
mod exports;
mod graphs;
mod lanes;
mod large;
mod numbers;
mod pages;
mod perfetto;
mod team;
mod trained;
mod types;
mod visits;
mod words;

/// Seats of the run.
const SEATS: [&str; 3] = ["search/answerer", "search/searcher", "search/verifier"];
/// Text of a model that means harm.
const HOSTILE: &str =
    "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u{202e}evil\u{200b}\u{1b}[31m";

/// Tokenizer of the run.
static WORDS: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
});

/// Held by tests that search, and alone by the test that takes every place of a search.
static SEARCHING: RwLock<()> = RwLock::new(());

/// Waits until no test takes every place of a search.
pub(crate) fn searching() -> RwLockReadGuard<'static, ()> {
    SEARCHING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the stride through the cases of a test: `n` in the first tier, 1 in the second (`MAVERL_FULL`).
fn stride(n: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { n }
}

/// Returns the origin of a run whose `resolved.toml` has every value of the algorithm, as that of a run.
fn resolved_origin() -> Origin {
    let mut origin = origin();
    let algorithm = AlgorithmPlan::from(&origin.config.algorithm);
    origin.config.algorithm = AlgorithmConfig::from(&algorithm);
    origin
}

/// A run that a test writes step by step, as training would.
pub(super) struct Written {
    pub(super) dir: RunDir,
    pub(super) journal: Journal,
    /// Metrics of each step.
    pub(super) rows: BTreeMap<u64, Metrics>,
}

impl Written {
    /// Creates a run without a step.
    pub(super) fn new(path: &Path) -> Self {
        Self::with(path, |_| {})
    }

    /// Creates a run without a step, with a changed configuration.
    pub(super) fn with(path: &Path, change: impl FnOnce(&mut Config)) -> Self {
        let mut origin = resolved_origin();
        origin.config.steps = 4;
        origin.config.orchestra.name = Some("search/orchestra".to_owned());
        change(&mut origin.config);
        let dir = RunDir::create(path, &origin).unwrap();
        let seat = |seat: &&str| json!({ "seat": seat, "policy": "tiny", "trained": true, "temperature": 1.0, "max_tokens": 24 });
        let plan = json!({
            "summary": {
                "seats": SEATS.iter().map(seat).collect::<Vec<_>>(),
                "policies": [{ "name": "tiny", "worker": "tiny", "adapter": null, "agents": SEATS, "trained": true, "parameters": 1000, "bytes": 0 }],
                "workers": [{ "name": "tiny", "model": "tiny", "path": "builtin:tiny", "trained": true, "weight_bytes": 4000, "gradient_bytes": 4000, "moment_bytes": 8000, "activation_bytes": 1 << 20, "kv_bytes": 2 << 20 }],
            },
            "endpoints": [], "environment": "search", "environments": [],
        });
        dir.write_plan(&plan).unwrap();
        let words = WORDS.to_json().unwrap();
        dir.write_tokenizers(&BTreeMap::from([("tiny".to_owned(), words)])).unwrap();
        let mut journal = Journal::open(dir.path(), &BTreeMap::new()).unwrap();
        journal.cut_to_checkpoint().unwrap();
        Self { dir, journal, rows: BTreeMap::new() }
    }

    /// Writes the evaluation before or after training: 16 tasks, of which `solved` are.
    pub(super) fn evaluation(&mut self, name: &str, step: u64, solved: u32) {
        let of = |i: u32| episode(&format!("test-{i}"), 0, i < solved, 1);
        self.evaluated(name, step, &(0..16).map(of).collect::<Vec<Episode>>());
    }

    /// Writes an evaluation with these episodes.
    pub(super) fn evaluated(&mut self, name: &str, step: u64, episodes: &[Episode]) {
        use maverl::eval::{EvalReport, EvalSpec};
        let spec = EvalSpec { split: "test".into(), samples: 1, temperature: None, ask: None };
        let report = EvalReport::of(&spec, episodes).unwrap();
        let both = json!({ "sampled": report, "greedy": report });
        let places = self.dir.write_evaluation_episodes(name, episodes).unwrap();
        self.dir.write_evaluation(name, &both).unwrap();
        self.index(name, step, episodes, &places);
    }

    /// Writes a step.
    pub(super) fn step(&mut self, step: u64) {
        let episodes: Vec<Episode> = (0..8).map(|n| searched(step, n)).collect();
        let samples = samples(&episodes);
        self.dir.write_samples(step, &samples).unwrap();
        self.dir.write_tokens(step, &tokens(&episodes, &samples)).unwrap();
        self.played(step, &episodes);
    }

    /// Writes the episodes of a step, without samples.
    pub(super) fn played(&mut self, step: u64, episodes: &[Episode]) {
        let places = write_step(&mut self.dir, step, episodes);
        self.clock(step, episodes);
        self.index(TRAIN, step, episodes, &places);
        let mut metrics = maverl::metrics::rollout(episodes);
        metrics.set("policy/tiny/entropy", 1.0 / step as f64);
        metrics.set("group/zero_std_frac", 0.25);
        let timing: Metrics = [("time/rollout_s", 0.5 + step as f64)].into_iter().collect();
        self.journal.append(step, &metrics, &timing, 0.0).unwrap();
        self.rows.insert(step, metrics);
    }

    /// Writes the metrics of a step that plays no episodes.
    pub(super) fn trained(&mut self, step: u64, metrics: &[(&str, f64)]) {
        let named = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let timing: Metrics = [("time/update_s", 0.5)].into_iter().collect();
        self.journal.append(step, &named.collect(), &timing, 0.0).unwrap();
    }

    /// Writes the times of a step of 2 s, of which its rollout takes 1.5.
    fn clock(&mut self, step: u64, episodes: &[Episode]) {
        let time = |n: usize, i: usize, seat: &Seat| {
            let (asked, ended) = (100 * i as u64, (100 * (i + 1) + 7 * n) as u64);
            TurnTime(n, i, seat.clone(), asked, ended, Some(asked + 25))
        };
        let times: Vec<TurnTime> = episodes
            .iter()
            .enumerate()
            .flat_map(|(n, episode)| {
                let turns = episode.turns.iter().enumerate();
                turns.map(move |(i, turn)| time(n, i, &turn.seat))
            })
            .collect();
        self.dir.write_clock(step, &times).unwrap();
        let span = |name: &str, policy: Option<&str>, at, lasts| {
            SpanRecord(name.to_owned(), policy.map(str::to_owned), at, lasts)
        };
        let spans = vec![
            span("files", None, 0.0, 0.125),
            span("rollout", None, 0.125, 1.5),
            span("update", None, 1.625, 0.375),
            span("update", Some("tiny"), 1.625, 0.25),
        ];
        let samples = vec![
            WorkerSample(0.0, 0, 0, 64),
            WorkerSample(0.5, 120, 48, 64),
            WorkerSample(1.0, 300, 16, 64),
        ];
        let samples = BTreeMap::from([("tiny".to_owned(), samples)]);
        let start = 2.0 * step as f64;
        self.journal.append_spans(&SpanRow { step, start, spans, samples }).unwrap();
    }

    fn index(&mut self, stage: &str, step: u64, episodes: &[Episode], places: &[[u64; 2]]) {
        let rows = episodes.iter().zip(places).zip(0..);
        let rows: Vec<EpisodeRow> =
            rows.map(|((episode, at), n)| EpisodeRow::new(stage, step, n, *at, episode)).collect();
        self.journal.append_episodes(&rows).unwrap();
    }
}

/// Returns an episode of the search team: two tasks, of four episodes each.
fn searched(step: u64, n: u32) -> Episode {
    let solved = (u64::from(n) + step).is_multiple_of(3);
    let mut one = episode(&format!("train-{}", n / 4), n % 4, solved, 3);
    one.task.question = "What is the capital of the country where Machu Picchu is?".into();
    let message = |role, content: &str| Message { role, content: content.to_owned() };
    let replies = [
        "<search>capital of Peru</search>",
        "<verify>these documents are enough</verify>",
        "<answer>Lima</answer>",
    ];
    let observed = "Lima is the capital and the largest city of Peru.";
    let prompts = [
        vec![message(Role::User, "Question: which city?")],
        vec![message(Role::User, &format!("Question: which city?\n{observed}\n{}", replies[0]))],
        vec![message(Role::System, "Answer."), message(Role::User, observed)],
    ];
    for (i, (turn, prompt)) in one.turns.iter_mut().zip(prompts).enumerate() {
        turn.seat = Seat::only(SEATS[[1, 2, 0][i]]);
        turn.policy = "tiny".into();
        turn.reply = replies[i].to_owned();
        turn.prompt = prompt;
    }
    let hostile = n == 5;
    one.acts.push(Act {
        path: TurnPath(vec![1]),
        nth: 0,
        environment: None,
        action: Action::Text("capital of Peru".into()),
        observation: observed.into(),
        done: false,
    });
    one.answer = Some(if solved { "Lima" } else { "Quito" }.into());
    if hostile {
        one.turns[0].error = Some("no <search> block".into());
        one.turns[0].reply = HOSTILE.to_owned();
        let of = RewardOf::Turn(0);
        one.rewards.push(RewardPart { name: "invalid_reply".into(), value: -0.1, of });
        one.answer = Some(HOSTILE.to_owned());
        one.turns[2].reply = "x".repeat(1 << 20);
    }
    for turn in one.turns.iter_mut().filter(|turn| turn.reply.len() < 1000) {
        let tokens = turn.tokens.as_mut().unwrap();
        let prompt: Vec<&str> = turn.prompt.iter().map(|m| m.content.as_str()).collect();
        tokens.prompt = WORDS.encode_plain(&prompt.join("\n")).unwrap();
        tokens.completion = WORDS.encode_plain(&turn.reply).unwrap();
        tokens.completion.push(WORDS.stop_ids()[0]);
        let logprob = |i: usize| -0.03125 - 0.75 * ((i * 5) % 7) as f32;
        tokens.logprobs = (0..tokens.completion.len()).map(logprob).collect();
    }
    let reward = if solved { 1.0 } else { 0.0 };
    one.outcome = Outcome::Scored(Score { reward, solved, metrics: serde_json::Map::new() });
    one
}

/// Returns the quantities of the tokens of a step. All values have few bits.
fn tokens(episodes: &[Episode], samples: &StepSamples) -> TokenRecord {
    let length = |sample: &SampleRecord| {
        episodes[sample.episode].turns[sample.turn].tokens.as_ref().unwrap().completion.len()
    };
    let of = |value: fn(usize) -> f32| -> Vec<Vec<f32>> {
        samples.samples.iter().map(|sample| (0..length(sample)).map(value).collect()).collect()
    };
    let entropy = of(|i| 0.25 * (i % 9) as f32);
    let moved = of(|i| 0.125 * (i % 5) as f32 - 0.25);
    let values = |i: usize| {
        let columns = [("entropy", entropy[i].as_slice()), ("moved", moved[i].as_slice())];
        (length(&samples.samples[i]), columns.into_iter().collect())
    };
    TokenRecord::of((0..samples.samples.len()).map(values))
}

/// Returns a record from its JSON: records of other crates have no constructor, as they get new fields.
fn of_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Returns the samples of a step with the Dr. MAS estimator: by task and seat.
fn samples(episodes: &[Episode]) -> StepSamples {
    let eps = 1e-6;
    let (mut groups, mut found) = (Vec::new(), Vec::new());
    for task in 0..2 {
        for turn in 0..3 {
            let its = task * 4..task * 4 + 4;
            let rewards: Vec<f64> =
                its.clone().map(|n| episodes[n].turn_reward(turn).unwrap()).collect();
            let mean = rewards.iter().sum::<f64>() / 4.0;
            let variance = rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / 3.0;
            let (id, deviation) = (groups.len(), variance.sqrt());
            let group: GroupRecord = of_json(json!({
                "id": id,
                "by": "task_seat",
                "source": "facts",
                "task": format!("train-{task}"),
                "seat": episodes[its.start].turns[turn].seat,
                "size": 4,
                "mean": mean,
                "deviation": deviation,
                "spread": deviation > 1e-9,
            }));
            groups.push(group);
            for (episode, reward) in its.zip(rewards) {
                let sample: SampleRecord = of_json(json!({
                    "episode": episode,
                    "turn": turn,
                    "group": id,
                    "policy": "tiny",
                    "reward": reward,
                    "advantage": (reward - mean) / (deviation + eps),
                }));
                found.push(sample);
            }
        }
    }
    found.sort_by_key(|sample| (sample.episode, sample.turn));
    let mut samples = StepSamples::default();
    samples.estimator = of_json(json!({
        "estimator": "group", "baseline": "mean", "normalize_std": true, "eps": eps, "singleton": "zero",
    }));
    (samples.groups, samples.samples) = (groups, found);
    samples
}

/// Writes a run of three steps with both evaluations.
pub(super) fn run(path: &Path) -> Written {
    let mut written = Written::new(path);
    written.evaluation("before", 0, 4);
    (1..=3).for_each(|step| written.step(step));
    written.evaluation("after", 3, 12);
    written
}

/// Runtime of the requests of all tests.
static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());

/// Returns pages about the runs in directories.
fn viewer_of(dirs: Vec<PathBuf>) -> Arc<Viewer> {
    Arc::new(Viewer::new(dirs).unwrap())
}

/// Sends a request to the pages, without a network.
fn send(viewer: &Arc<Viewer>, method: &str, target: &str, host: &str) -> Response {
    let request = axum::extract::Request::builder().method(method).uri(target);
    let request = request.header("host", host).body(Body::empty()).unwrap();
    let router = TowerToHyperService::new(page_router(Arc::clone(viewer)));
    RUNTIME.block_on(router.call(request)).unwrap()
}

/// Sends a request to the interface, and returns status and JSON; a list for lines of JSON.
fn ask(viewer: &Arc<Viewer>, path: &str) -> (u16, Value) {
    let response = send(viewer, "GET", &format!("{}{path}", viewer.secret_path()), "localhost");
    let status = response.status().as_u16();
    let is_stream = response.headers()["content-type"] == "application/x-ndjson";
    let body = RUNTIME.block_on(axum::body::to_bytes(response.into_body(), usize::MAX)).unwrap();
    if !is_stream {
        return (status, serde_json::from_slice(&body).unwrap_or(Value::Null));
    }
    let lines = std::str::from_utf8(&body).unwrap().lines();
    let lines: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    (status, lines.into())
}

#[test]
fn a_step_names_its_estimator_and_the_device_and_kernel_that_computed_the_advantages() {
    let home = tempfile::tempdir().unwrap();
    let mut written = run(&home.path().join("a"));
    let episodes: Vec<Episode> = (0..8).map(|n| searched(3, n)).collect();
    let mut samples = samples(&episodes);
    samples.estimator.estimator = "duo/margin".to_owned();
    samples.estimator.device = Some("emulated".to_owned());
    samples.estimator.kernel = Some("margin.cu".to_owned());
    written.dir.write_samples(3, &samples).unwrap();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let estimator =
        |step: u64| ask(&viewer, &format!("api/runs/0/steps/{step}")).1["estimator"].clone();
    let (first, last) = (estimator(1), estimator(3));
    assert_eq!((&first["estimator"], &first["device"]), (&json!("group"), &Value::Null));
    assert_eq!((&last["device"], &last["kernel"]), (&json!("emulated"), &json!("margin.cu")));
    assert_eq!(last["estimator"], "duo/margin");
}

#[test]
fn every_path_of_the_interface_answers_with_the_numbers_of_the_files() {
    let home = tempfile::tempdir().unwrap();
    let written = run(&home.path().join("a"));
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let get = |path: &str| {
        let (status, value) = ask(&viewer, path);
        assert_eq!(status, 200, "{path}: {value}");
        value
    };
    let runs = get("api/runs");
    assert_eq!((runs[0]["name"].as_str(), runs[0]["step"].as_u64()), (Some("a"), Some(3)));
    assert_eq!(runs[0]["before"]["mean"], 0.25);
    let overview = get("api/runs/0");
    assert_eq!(overview["gain"]["mean"], 0.5);
    assert_eq!(overview["gain"]["tasks"], 16);
    assert_eq!(
        overview["seats"],
        json!(["search/answerer", "search/searcher", "search/verifier", "t/a"])
    );
    let series = get("api/runs/0/series?names=rollout/*,policy/tiny/entropy");
    assert_eq!(series["steps"], json!([1, 2, 3]));
    for (step, metrics) in &written.rows {
        for (name, value) in metrics.iter().filter(|(name, _)| name.starts_with("rollout/")) {
            assert_eq!(series["columns"][name][*step as usize - 1], value, "{name}");
        }
    }
    let rows = get("api/runs/0/episodes?stage=train&step=2&flag=malformed");
    assert_eq!((rows["total"].as_u64(), rows["of"].as_u64()), (Some(1), Some(24 + 32)));
    let episode = get("api/runs/0/episodes/train/2/5");
    assert_eq!(episode["name"], "2/train-1/1");
    assert_eq!(episode["turns"][0]["error"], "no <search> block");
    assert_eq!(episode["turns"][0]["reward"]["parts"][0]["value"], -0.1);
    assert_eq!(episode["turns"][2]["reply"]["chars"], 1 << 20, "long texts are cut");
    let full = get("api/runs/0/episodes/train/2/5/turns/2");
    assert_eq!(full["reply"].as_str().unwrap().len(), 1 << 20);
    let plain = get("api/runs/0/episodes/train/2/0");
    assert_eq!(plain["turns"][1]["saw"], json!([{ "turn": 0 }, { "act": 0 }]));
    assert!(plain["turns"][0]["tokens"]["prompt"].is_u64(), "no token arrays");
    let team = get("api/runs/0/team");
    let late = &team["late"];
    let all: Vec<Episode> = (1..=3).flat_map(|s| (0..8).map(move |n| searched(s, n))).collect();
    assert_eq!((&late["steps"], late["episodes"].as_u64()), (&json!([1, 3]), Some(24)));
    let unsolved = all.iter().filter(|one| one.score().is_some_and(|score| !score.solved));
    let failed = unsolved.filter(|one| one.turns[0].error.is_some()).count();
    assert_eq!(late["seats"][SEATS[1]]["unsolved"]["failed"], failed);
    let reward: f64 =
        all.iter().filter(|o| o.score().unwrap().solved).map(|o| o.turn_reward(2).unwrap()).sum();
    let sums = &late["seats"][SEATS[0]];
    assert!((sums["solved"]["reward"].as_f64().unwrap() - reward).abs() < 1e-6, "{sums}");
    assert!(team["times"]["seats"][SEATS[2]]["busy"].as_f64().unwrap() > 0.0, "{team}");
    let step = get("api/runs/0/steps/3");
    let sum = |of: &[Episode]| of.iter().map(|one| one.score().unwrap().reward).sum::<f64>();
    assert_eq!(
        (&step["before"]["score"], &step["before"]["steps"]),
        (&json!(sum(&all[8..16])), &json!([2, 2]))
    );
    assert_eq!(
        (&step["usual"], &step["earlier"]),
        (&json!(sum(&all[..16]) / 16.0), &json!([1, 2]))
    );
    assert_eq!(step["of"].as_u64(), Some(2));
    let largest = get("api/runs/0/groups");
    let weights: Vec<f64> = largest["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["weight"].as_f64().unwrap())
        .collect();
    assert!(weights.len() == 18 && weights.is_sorted_by(|a, b| *a >= b - 1e-6), "{weights:?}");
    let groups = get("api/runs/0/groups/2");
    assert_eq!(groups["groups"].as_array().unwrap().len(), 6);
    let tasks = groups["tasks"].as_array().unwrap();
    let shares: f64 = tasks.iter().map(|task| task["share"].as_f64().unwrap()).sum();
    assert!(tasks.len() == 2 && (shares - 1.0).abs() < 1e-12, "{tasks:?}");
    for task in tasks {
        let parts = task["task"]["groups"].as_array().unwrap();
        let sum: f64 = parts.iter().map(|part| part["weight"].as_f64().unwrap()).sum();
        assert!((task["weight"].as_f64().unwrap() - sum).abs() < 1e-12, "{task}");
        assert_eq!((parts.len(), &task["samples"]), (3, &json!(12)), "{task}");
    }
    for id in 0..6 {
        let group = get(&format!("api/runs/0/groups/2/{id}"));
        let of_list = groups["groups"].as_array().unwrap().iter().find(|g| g["group"]["id"] == id);
        assert_eq!(group["weight"], of_list.unwrap()["weight"], "{group}");
        for line in group["samples"].as_array().unwrap() {
            let sample = &line["sample"];
            let computed = sample["arithmetic"]["advantage"].as_f64().unwrap();
            let recorded = sample["record"]["advantage"].as_f64().unwrap();
            assert!((computed - recorded).abs() < 1e-12, "{line}");
        }
    }
    let turn = get("api/runs/0/episodes/train/2/0/turns/0/tokens");
    let stored = searched(2, 0);
    let tokens = stored.turns[0].tokens.as_ref().unwrap();
    assert_eq!(turn["completion"]["ids"], json!(tokens.completion));
    assert_eq!(turn["completion"]["logprob"], json!(tokens.logprobs));
    let length = tokens.completion.len();
    assert_eq!(turn["completion"]["special"], json!([length - 1]), "the stop id");
    let texts = turn["completion"]["texts"].as_array().unwrap()[..length - 1].iter();
    let text: String = texts.map(|text| text.as_str().unwrap()).collect();
    assert_eq!(text, stored.turns[0].reply);
    assert_eq!(turn["completion"]["entropy"][3], 0.75);
    assert_eq!(turn["completion"]["moved"][4], 0.25);
    assert_eq!(turn["completion"]["advantage"][0], turn["sample"]["advantage"]);
    assert!(turn["words"] == true && turn["completion"]["reference"].is_null(), "{turn}");
    assert_eq!(turn["clip"], json!([0.8, 1.2]), "the bounds of the preset");
    let spans = get("api/runs/0/spans?from=2");
    assert_eq!(spans["steps"][0]["spans"][1], json!(["rollout", null, 0.125, 1.5]));
    assert_eq!(get("api/runs/0/clock/2")["turns"][1], json!([0, 1, SEATS[2], 100, 200, 125]));
    assert!(get("api/runs/0/trace/2")["traceEvents"].as_array().unwrap().len() > 24 * 2);
    let _searching = searching();
    let found = get("api/runs/0/search?q=LARGEST+city&stage=train&step=1");
    let hits = found.as_array().unwrap().iter().filter(|line| line["row"].is_object()).count();
    assert_eq!(hits, 8, "{found}");
    assert!(get("api/runs/0/config")["resolved"].as_str().unwrap().contains("steps = 4"));
}

#[test]
fn what_does_not_exist_is_refused_and_no_path_leaves_the_run() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    fs::write(home.path().join("secret"), "secret").unwrap();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let paths = [
        "api/runs/1",
        "api/runs/-1",
        "api/runs/99999999999999999999",
        "api/runs/../0",
        "api/",
        "api/x",
        "api/runs/0/episodes/../secret/1/0",
        "api/runs/0/episodes/train/1/8",
        "api/runs/0/episodes/..%2f/1/0",
        "api/runs/0/episodes/train/%2e%2e/0",
        "api/runs/0/episodes/train/1/0/turns/9",
        "api/runs/0/groups/1/6",
        "api/runs/0/episodes/train/1/0/turns/9/tokens",
        "api/runs/0/clock/9",
        "api/runs/0/trace/9",
        "api/runs/0/spans?from=x",
        "api/runs/0/groups/9",
        "api/runs/0/steps/9",
        "api/runs/0/steps/99999999999",
        "api/runs/0/search",
        "../../secret",
        "..%2f..%2fsecret",
        "%00",
        "main.js/",
        "//etc/passwd",
        "api/runs/0/episodes?step=x",
        "api/runs/0/episodes?q=%ff",
        "api/compare",
        "api/compare?runs=0,9",
    ];
    for path in paths {
        let (status, value) = ask(&viewer, path);
        assert!((400..500).contains(&status), "{path}: {status} {value}");
        assert!(!value.to_string().contains("secret\""), "{path}");
    }
    let before = maverl::run_dir::Manifest::of(&home.path().join("a")).unwrap();
    let mut seed = 7_u64;
    for _ in 0..10_000 {
        // A sequence of bytes from the alphabet of requests.
        let letters = b"/.%?&=#0129abrunsepiodgtx\0 -_;:\x7f";
        let target: String = (0..40)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(letters[(seed >> 33) as usize % letters.len()])
            })
            .collect();
        let target = format!("{}{target}", viewer.secret_path());
        if target.parse::<axum::http::Uri>().is_err() {
            continue;
        }
        let status = send(&viewer, "GET", &target, "localhost").status().as_u16();
        assert!(status == 200 || (400..500).contains(&status), "{target}: {status}");
    }
    assert_eq!(
        maverl::run_dir::Manifest::of(&home.path().join("a")).unwrap(),
        before,
        "nothing is written"
    );
}

#[test]
fn every_response_forbids_scripts_of_others() {
    let viewer = viewer_of(Vec::new());
    for path in ["", "main.js", "api/runs", "api/x", "api/events"] {
        let target = format!("{}{path}", viewer.secret_path());
        for host in ["localhost", "evil.example"] {
            let response = send(&viewer, "GET", &target, host);
            assert_eq!(response.status() == 403, host != "localhost", "{path}");
            let headers = response.headers();
            let policy = headers["content-security-policy"].to_str().unwrap();
            assert!(policy.contains("trusted-types 'none'"), "{path}");
            assert_eq!(headers["x-content-type-options"], "nosniff");
            assert_eq!(headers["cache-control"], "no-store");
            assert_eq!(headers["referrer-policy"], "no-referrer");
            assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
            assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
        }
    }
    let head = send(&viewer, "HEAD", &viewer.secret_path(), "localhost");
    let status = head.status();
    let body = RUNTIME.block_on(axum::body::to_bytes(head.into_body(), usize::MAX)).unwrap();
    assert!(status == 200 && body.is_empty(), "{status}");
    let posted = send(&viewer, "POST", &viewer.secret_path(), "localhost");
    assert_eq!(
        (posted.status().as_u16(), &posted.headers()["allow"]),
        (405, &"GET, HEAD".parse().unwrap())
    );
}

#[test]
fn events_tell_of_new_rows_and_of_rows_that_were_cut_back() {
    let home = tempfile::tempdir().unwrap();
    let mut written = run(&home.path().join("a"));
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let mut parts = event_stream(viewer.watched_runs(), None).unwrap();
    let mut next = || String::from_utf8(parts.find(|part| !part.is_empty()).unwrap()).unwrap();
    let first = next();
    assert!(first.starts_with("id: 0:") && first.contains("event: rows"), "{first}");
    written.step(4);
    let news = next();
    assert!(news.contains("event: rows") && news.contains("\"step\":4"), "{news}");
    let metrics = home.path().join("a/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let cut = text.lines().next().unwrap().len() as u64 + 1;
    fs::File::options().write(true).open(metrics).unwrap().set_len(cut).unwrap();
    assert!(next().contains("event: reset"));
}

#[test]
fn a_run_without_rows_gets_them_from_its_files() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    drop(run(&path));
    let expected = fs::read_to_string(path.join("episodes.jsonl")).unwrap();
    fs::remove_file(path.join("episodes.jsonl")).unwrap();
    fs::remove_dir_all(path.join("samples")).unwrap();
    let cache = home.path().join("cache");
    let listed = || {
        let viewer = Viewer::new(vec![path.clone()]).unwrap();
        let viewer = Arc::new(viewer.keeping_rows(Some(cache.clone())));
        let start = Instant::now();
        loop {
            let (_, rows) = ask(&viewer, "api/runs/0/episodes?limit=500");
            if rows["scanning"].is_null() {
                return (viewer, rows);
            }
            assert!(start.elapsed() < Duration::from_secs(600));
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let (_, made) = listed();
    let stored: Vec<_> = fs::read_dir(cache.join("rows")).unwrap().collect();
    assert_eq!(stored.len(), 1, "a directory for the run");
    let (viewer, rows) = listed();
    assert_eq!(rows, made, "rows that were stored are those that were made");
    assert_eq!(rows["total"].as_u64(), Some(expected.lines().count() as u64));
    let (status, episode) = ask(&viewer, "api/runs/0/episodes/train/2/5");
    assert_eq!((status, episode["name"].as_str()), (200, Some("2/train-1/1")), "{episode}");
    assert_eq!(episode["turns"][0]["untrained"], "there is no record of samples");
    let (_, overview) = ask(&viewer, "api/runs/0");
    assert_eq!(overview["gain"]["mean"], 0.5);
}

#[test]
fn compared_runs_show_the_keys_that_differ_and_no_interval_for_other_tasks() {
    let home = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        drop(run(&home.path().join(name)));
    }
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, same) = ask(&viewer, "api/compare?runs=0,1");
    assert_eq!((&same["keys"], &same["pairs"][0]["difference"]["mean"]), (&json!([]), &json!(0.0)));
    let mut other = resolved_origin();
    (other.config.seed, other.config.steps) = (8, 4);
    other.config.orchestra.name = Some("search/orchestra".to_owned());
    other.provenance.data.insert("held out test".into(), "c".repeat(64));
    RunDir::create(&home.path().join("c"), &other).unwrap();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, found) = ask(&viewer, "api/compare?runs=0,2");
    let keys: Vec<&str> =
        found["keys"].as_array().unwrap().iter().filter_map(|key| key["key"].as_str()).collect();
    assert_eq!(keys, ["seed"]);
    assert_eq!(found["seeds"][0]["members"], json!([0, 1]), "{found}");
    assert_eq!(same["seeds"][0]["interval"]["mean"], 0.75, "{same}");
    assert!(found["pairs"][0]["reason"].as_str().unwrap().contains("held out test"), "{found}");
}

#[test]
fn the_name_of_a_run_in_addresses_is_plain_and_tells_it_from_others() {
    let free = |_: &str| false;
    let of = |name: &str| address_name(name, Path::new("/runs/x"), free);
    assert_eq!(of("sweep/Seed-1"), "sweep-seed-1");
    assert_eq!(of("<img src=x>"), "-img-src-x-");
    let hash = address_name("seed-1", Path::new("/runs/a/seed-1"), |id| id == "seed-1");
    assert!(hash.starts_with("seed-1-") && hash.len() == "seed-1-".len() + 8, "{hash}");
    let other = address_name("seed-1", Path::new("/runs/b/seed-1"), |id| id == "seed-1");
    assert_ne!(hash, other);
    assert!(of("прогон").len() > "------".len(), "only other letters");
    assert_eq!(of(&"x".repeat(100)).len(), NAME + 9);
}

#[test]
fn an_address_opens_the_same_run_after_the_list_changed() {
    let home = tempfile::tempdir().unwrap();
    drop(Written::new(&home.path().join("sweep/B")));
    let name = |of: &str| {
        let viewer = viewer_of(vec![home.path().to_owned()]);
        let (status, found) = ask(&viewer, &format!("api/runs/{of}"));
        (status, found["run"]["name"].as_str().map(str::to_owned))
    };
    let found = (200, Some("sweep/B".to_owned()));
    assert_eq!((name("sweep-b"), name("0")), (found.clone(), found.clone()));
    drop(Written::new(&home.path().join("a")));
    assert_eq!((name("sweep-b"), name("1")), (found.clone(), found));
    assert_eq!(name("0"), (200, Some("a".to_owned())), "the number is another run now");
    assert_eq!(name("sweep%2FB").0, 404);
}
