//! The tables of metrics in `docs/src/runs.md`, compared with the metrics of runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use maverl_tests::inference::{InferenceServer, Manner, Protocol};
use maverl_tests::lab::{Lab, Run};
use serde_json::{Value, json};

use crate::lab;
use crate::rollout_servers::{over, over_experts, write_experts};

/// A name in a table, with the full names that it stands for; `<..>` is any text.
struct Row {
    name: String,
    patterns: Vec<String>,
}

impl Row {
    /// Returns the row of a name: itself if it begins with a stage, or below each stage of the section.
    fn new(name: &str, stages: &[String]) -> Self {
        let begins = |stage: &String| {
            name.starts_with(&format!("{}/", stage.split('/').next().unwrap_or_default()))
        };
        let patterns = if stages.is_empty() || stages.iter().any(begins) {
            vec![name.to_owned()]
        } else {
            stages.iter().map(|stage| format!("{stage}/{name}")).collect()
        };
        Self { name: patterns.join(" or "), patterns }
    }

    fn is(&self, metric: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, metric))
    }
}

/// Returns true if a name is a pattern with each `<..>` replaced by some text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('<') {
        None => pattern == name,
        Some((before, after)) => {
            let (_, after) = after.split_once('>').unwrap();
            let Some(name) = name.strip_prefix(before) else { return false };
            name.char_indices().skip(1).map(|(at, _)| &name[at..]).any(|rest| matches(after, rest))
                || after.is_empty() && !name.is_empty()
        }
    }
}

/// Returns the part of the page below the heading "Metrics".
fn tables() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/runs.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, text) = text.split_once("\n## Metrics\n").unwrap();
    text.split_once("\n## ").unwrap().0.to_owned()
}

/// Returns the rows of all tables.
fn rows(tables: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for section in tables.split("\n### ").skip(1) {
        let (title, body) = section.split_once('\n').unwrap();
        let stages =
            spans(title).into_iter().filter_map(|span| span.strip_suffix("/..").map(str::to_owned));
        let stages: Vec<String> = stages.collect();
        for line in body.lines().filter(|line| line.starts_with("| `")) {
            // A name without a path has that of the name before it.
            let mut path = String::new();
            for span in spans(line.split(" | ").next().unwrap()) {
                let name = if path.is_empty() || span.contains('/') {
                    span
                } else {
                    format!("{path}/{span}")
                };
                path = name.rsplit_once('/').map(|(path, _)| path.to_owned()).unwrap_or_default();
                rows.push(Row::new(&name, &stages));
            }
        }
    }
    rows
}

/// Returns the code spans of a line.
fn spans(line: &str) -> Vec<String> {
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Masks of off-policy tokens and replies, and a selection of tokens.
const MASKS: [&str; 4] = [
    "algorithm.loss.correction=[\"truncate\", { kind = \"mask\", of = \"max\" }]",
    "algorithm.loss.off_policy_mask=0.5",
    "algorithm.select=\"kl_cov\"",
    "algorithm.epochs=2",
];

/// A conversation with an environment whose texts are trained on.
const OBSERVED: [&str; 2] = ["orchestra.name=\"duo/walk\"", "algorithm.loss.observation_coef=0.1"];

/// Pools of tasks by their solve rates.
const CURRICULUM: &str =
    "task.curriculum.pools=[{ up_to = 0.5, weight = 1.0 }, { up_to = 1.0, weight = 0.5 }]";

/// Groups that are replayed in place of flat ones.
const REPLAY: [&str; 5] = [
    "algorithm.replay.groups=4",
    "algorithm.loss.correction=\"truncate\"",
    "task.tasks_per_step=6",
    "task.group_size=2",
    "steps=6",
];

/// Runs in which together every metric occurs: name and settings.
fn settings() -> Vec<(&'static str, Vec<&'static str>)> {
    let with = |more: &[&'static str]| [&["steps=2", "eval.before_and_after=false"], more].concat();
    let kl = [
        "algorithm.loss.kl_coef=0.5",
        "algorithm.loss.kl_in=\"reward\"",
        "algorithm.loss.kl=\"k1\"",
        "algorithm.adaptive_kl.target=0.001",
        "algorithm.adaptive_kl.horizon=10",
        "algorithm.loss.correction=\"truncate\"",
        "rewards.length.weight=0.1",
    ];
    let served =
        ["endpoints.closer.script=\"script.jsonl\"", "agents.\"duo/closer\".endpoint=\"closer\""];
    let sequence = ["algorithm.name=\"happo\"", "agents.\"duo/closer\".worker_group=\"second\""];
    let evaluated = [
        "steps=2",
        "eval.every=1",
        "eval.samples=4",
        "task.data=\"sources.jsonl\"",
        "algorithm.name=\"dapo\"",
    ];
    let pairs = ["steps=2", "algorithm.name=\"dpo\"", "task.data=\"pairs.jsonl\""];
    let labeled = [&pairs[..], &["algorithm.preference.loss=\"kto\""]].concat();
    let verifier = [
        "steps=2",
        "algorithm.name=\"verifier\"",
        "models.tiny.dtype=\"f16\"",
        "task.data=\"labeled.jsonl\"",
        "eval.data=\"held_out.jsonl\"",
    ];
    let taught = [
        "teachers.me.policy=\"self\"",
        "agents.\"duo/closer\".teacher=\"me\"",
        "algorithm.adaptive_entropy.target=9.0",
    ];
    vec![
        ("kl", with(&kl)),
        ("taught", with(&taught)),
        ("compared", with(&[&taught[..2], &["algorithm.distill.kind=\"divergence\""]].concat())),
        ("observed", with(&OBSERVED)),
        ("masks", with(&MASKS)),
        ("endpoint", with(&served)),
        ("sequence", with(&sequence)),
        ("mixer", with(&["algorithm.name=\"qmix\"", "algorithm.advantage.credit=\"difference\""])),
        ("critic", with(&["algorithm.name=\"ppo\"", "models.tiny.dtype=\"f16\""])),
        ("ahead", with(&["rollout.staleness=1", "rollout.advance_turns=1"])),
        ("groups", with(&REPLAY)),
        ("branches", with(&["algorithm.advantage.kind=\"counterfactual\""])),
        ("pairs", pairs.to_vec()),
        ("labeled", labeled),
        ("curriculum", with(&[CURRICULUM, "models.tiny.optim.kind=\"muon\""])),
        ("verifier", verifier.to_vec()),
        ("evaluated", evaluated.to_vec()),
    ]
}

/// Writes the files of the settings.
fn files(lab: &Lab) {
    lab.write("script.jsonl", "{\"contains\": \"Close\", \"reply\": \"even\"}\n");
    let pair = json!({ "prompt": "question?", "chosen": "open evenly", "rejected": "close, who?" });
    lab.write("pairs.jsonl", &format!("{pair}\n").repeat(8));
    crate::verifier::write_rows(lab, "labeled.jsonl", 100, 140);
    crate::verifier::write_rows(lab, "held_out.jsonl", 200, 220);
    let task = |i: usize| {
        let split = ["train", "validation", "test"][i % 3];
        let source = ["first", "second"][i / 3 % 2];
        json!({ "id": format!("t{i}"), "question": format!("question {i}?"), "split": split, "source": source })
    };
    lab.write("sources.jsonl", &(0..36).map(|i| format!("{}\n", task(i))).collect::<String>());
}

/// Returns the names in `metrics.jsonl` and `timing.jsonl` of a run.
fn names(run: &Run) -> BTreeSet<String> {
    let text =
        ["metrics.jsonl", "timing.jsonl"].map(|file| String::from_utf8(run.bytes(file)).unwrap());
    let rows = text.iter().flat_map(|text| text.lines());
    let keys = rows.flat_map(|line| {
        let row: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
        row.into_keys().collect::<Vec<_>>()
    });
    keys.filter(|key| key != "step").collect()
}

#[test]
fn every_metric_is_in_the_tables_and_every_row_of_the_tables_is_a_metric() {
    let lab = lab();
    files(&lab);
    let mut found = BTreeSet::new();
    for (out, set) in settings() {
        found.extend(names(&lab.train(out, &set)));
    }
    lab.run(&["export", "--run", "verifier", "--verifier", "--out", "exported"]).succeeded();
    let rewarded = ["rewards.verified.verifier.path=\"exported\"", "rewards.verified.weight=0.5"];
    found.extend(names(&lab.train("rewarded", &rewarded)));
    lab.write("rewards.py", "def units(item):\n    return 1.0\n");
    let python = crate::python::has_python();
    if python {
        found.extend(names(&lab.train("python", &["rewards.units.python.workers=1"])));
    }
    lab.write("rubric.md", "{{ reply }}");
    lab.write("verdicts.jsonl", "{\"reply\": \"{\\\"score\\\": 7}\"}\n");
    let judged =
        ["endpoints.judge.script=\"verdicts.jsonl\"", "rewards.help.judge.rubric=\"rubric.md\""];
    found.extend(names(&lab.train("judged", &judged)));
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/families/qwen3_moe");
    let model = format!("models.tiny.path={model:?}");
    let experts = [
        "steps=2",
        "algorithm.name=\"dpo\"",
        "task.data=\"pairs.jsonl\"",
        "algorithm.router_aux_coef=0.01",
        &model,
    ];
    found.extend(names(&lab.train("experts", &experts)));
    let server = InferenceServer::start(Protocol::Sglang, &lab.path("model"), Manner::default());
    let set = over("sglang", &[&server]);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    found.extend(names(&lab.train("servers", &set)));
    write_experts(&lab);
    let manner = Manner { routes: true, ..Manner::default() };
    let server = InferenceServer::start(Protocol::Sglang, &lab.path("experts"), manner);
    let set = over_experts(&lab, "sglang", &server);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    found.extend(names(&lab.train("replayed", &set)));
    for example in ["two_environments", "search_orchestra"] {
        let config = format!("{}/../examples/{example}.toml", env!("CARGO_MANIFEST_DIR"));
        lab.run(&["train", &config, "--quick", "--out", example]).succeeded();
        found.extend(names(&Run(lab.path(example))));
    }
    let tables = tables();
    let rows = rows(&tables);
    assert!(rows.len() > 80, "{} rows", rows.len());
    let lacks = |name: &&String| {
        let kind = name.strip_prefix("rollout/unscored/");
        let kind = kind.is_none_or(|kind| tables.contains(&format!("`{kind}`")));
        !kind || !rows.iter().any(|row| row.is(name))
    };
    let missing: Vec<&String> = found.iter().filter(lacks).collect();
    assert!(missing.is_empty(), "docs/src/runs.md lacks {missing:#?}");
    let idle = rows.iter().filter(|row| python || !row.name.starts_with("reward/"));
    let idle = idle.filter(|row| !found.iter().any(|name| row.is(name)));
    let idle: Vec<&String> = idle.map(|row| &row.name).collect();
    assert!(idle.is_empty(), "no run has {idle:#?}");
}
