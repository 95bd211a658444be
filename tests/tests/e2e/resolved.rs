//! Configurations in a run directory: `resolved.toml` and `config.toml` are valid configurations in place, with the
//! meaning of the original.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::run_dir::{Origin, Provenance, RunDir};
use maverl::{Purpose, Sources, check};
use maverl_tests::lab::{Lab, stride};
use maverl_tests::schema::Validator;
use orchestras as _;

use crate::lab;

/// Returns the number of generated configurations; overridden by `MAVERL_FUZZ_CASES`.
fn cases() -> usize {
    std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(250 / stride(20))
}

/// A fixed sequence of numbers below `n` (SplitMix64).
struct SplitMix64(u64);

impl SplitMix64 {
    fn index(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.index(items.len())]
    }
}

/// Keys of any run, with values of which most are accepted.
const KEYS: &[(&str, &[&str])] = &[
    ("seed", &["0", "3", "9223372036854775807"]),
    ("steps", &["0", "1", "400"]),
    ("task.tasks_per_step", &["1", "7"]),
    ("task.group_size", &["1", "2", "8"]),
    ("task.shuffle", &["false"]),
    ("task.limit", &["5", "100"]),
    ("task.max_level", &["1", "3"]),
    ("task.harder_every", &["5"]),
    ("task.curriculum.pools", &["[{ up_to = 1.0, weight = 1.0 }]"]),
    ("task.curriculum.memory", &["0.5"]),
    ("task.data", &["tasks.jsonl", "\"builtin:facts\"", "\"builtin:arithmetic\""]),
    ("environment.name", &["search", "math", "nli", "letters"]),
    ("environment.corpus", &["corpus.jsonl"]),
    ("environment", &["{ top_k = 2 }", "{ name = 'letters', delay_ms = 3 }"]),
    ("sampling.temperature", &["0.7", "1", "0.33333"]),
    ("sampling.max_tokens", &["1", "24", "100"]),
    ("sampling.stop", &["['</answer>']", "[]", "[\"a\\nb\", 'c\"d']"]),
    ("sampling.stop_ids", &["[1, 2]"]),
    ("sampling", &["{ temperature = 0.9, max_tokens = 16 }"]),
    ("models.tiny.path", &["model", "\"builtin:tiny\""]),
    ("models.other.path", &["model", "\"builtin:tiny\""]),
    ("models.tiny.optim.lr", &["1e-5", "0.1", "3e-7"]),
    ("models.tiny.optim", &["{ betas = [0.8, 0.95], warmup_steps = 3 }"]),
    ("models.tiny.optim.kind", &["muon", "adamw8bit", "adamw"]),
    ("models.tiny.optim.schedule", &["linear", "cosine"]),
    ("models.tiny.lora", &["{}", "{ rank = 4, dropout = 0.1 }"]),
    ("models.tiny.lora.target_modules", &["[\"q_proj\", \"v_proj\"]", "\"all-linear\""]),
    ("models.tiny.dtype", &["bf16", "f16"]),
    ("models.tiny.loss_scale", &["{}", "{ every = 3 }"]),
    ("models.tiny.loss_scale.start", &["1024"]),
    ("models.tiny.gradient_checkpointing", &["true"]),
    ("models.tiny.calls", &["qwen_xml", "auto"]),
    ("models.tiny.thoughts", &["none", "\"[THINK] [/THINK]\""]),
    ("models.tiny.chat_template_kwargs", &["{ enable_thinking = false, depth = { a = 1 } }"]),
    (
        "algorithm.name",
        &["grpo", "drgrpo", "rloo", "dapo", "gspo", "ppo", "mappo", "ippo", "reinforce++", "remax"],
    ),
    ("algorithm.name", &["vdn", "qmix", "happo", "marft", "cispo", "sapo", "maporl", "drmas"]),
    ("algorithm.advantage.kind", &["group", "reward", "moving_average", "critic", "mixer"]),
    ("algorithm.advantage.baseline", &["mean", "leave_one_out"]),
    ("algorithm.advantage.by", &["task", "task_turn", "episode_seat"]),
    ("algorithm.advantage.deviation_by", &["task"]),
    ("algorithm.advantage.normalize_std", &["false"]),
    ("algorithm.advantage.anchor", &["{ weight = 0.5 }", "{ similarity = 0.9 }"]),
    ("algorithm.minibatches", &["2"]),
    ("algorithm.epochs", &["3"]),
    ("algorithm.early_stop_kl", &["0.01"]),
    ("algorithm.router_aux_coef", &["0.001"]),
    ("algorithm.whiten", &["true"]),
    ("algorithm.update_order", &["random", "{ kind = 'fixed', factor = 'exact', clip = 0.1 }"]),
    ("algorithm.future_rewards", &["team", "{ kind = 'own', discount = 0.5 }"]),
    ("algorithm.select", &["kl_cov", "{ kind = 'entropy', share = 0.5 }", "none"]),
    ("algorithm.shaping", &["margin", "{ kind = 'quality', weight = 1 }", "none"]),
    ("algorithm.influence", &["{ follow = 0.1, provoke = 0.3 }"]),
    ("algorithm.adaptive_kl", &["{ target = 0.1, horizon = 100.0 }"]),
    ("algorithm.reference", &["{ every = 3 }", "{ every = 3, mix = 0.5 }"]),
    ("algorithm.max_flat_steps", &["0", "99"]),
    ("algorithm.loss.kl_coef", &["0.01", "1e-4"]),
    ("algorithm.loss.surrogate.clip_high", &["0.28"]),
    ("algorithm.loss.kl_in", &["reward"]),
    ("algorithm.loss.surrogate", &["cispo", "{ kind = 'sapo', gate = [1.5, 2.0] }", "clip"]),
    (
        "algorithm.loss.correction",
        &[
            "truncate",
            "{ kind = 'mask_tokens', cap = 3 }",
            "[{ kind = 'mask', of = 'mean' }, 'truncate']",
        ],
    ),
    ("algorithm.advantage.lambda", &["0.9"]),
    ("algorithm.advantage.epochs", &["5"]),
    ("algorithm.advantage.minibatches", &["2"]),
    ("algorithm.advantage.trunk", &["shared", "own", "lora"]),
    ("algorithm.advantage.lora", &["{ rank = 4 }"]),
    ("algorithm.advantage.optim.lr", &["2e-4"]),
    ("algorithm.advantage", &["{ kind = 'critic', granularity = 'turn', huber = 1 }"]),
    ("rewards.length.weight", &["0.1", "-2.0"]),
    ("rewards.style.server", &["{ url = 'http://127.0.0.1:1', of = 'answer', on_error = 'skip' }"]),
    ("algorithm.verifier", &["{ trunk = 'own', loss = 'span' }", "{ rank = 4, validation = 0.2 }"]),
    ("rollout.max_episodes", &["3"]),
    ("rollout.timeout_s", &["7.5"]),
    ("rollout.overflow", &["truncate_observation"]),
    ("rollout.max_unscored", &["0", "1.0"]),
    ("rollout.staleness", &["0", "1", "3"]),
    ("rollout.advance_turns", &["0"]),
    ("eval.every", &["5"]),
    ("eval.samples", &["4"]),
    ("eval.temperature", &["0.0", "0.1"]),
    ("eval.test_split", &["validation", "train"]),
    ("eval.data", &["tasks.jsonl"]),
    ("eval.before_and_after", &["false"]),
    ("checkpoint.every", &["0", "3"]),
    ("checkpoint.best", &["false"]),
    ("checkpoint.moments", &["f32", "bf16", "none"]),
    ("runtime.threads", &["2"]),
    ("runtime.kv_mib", &["64"]),
    ("runtime.micro_batch_tokens", &["100"]),
    ("worker_groups.tiny", &["{ device = 'cpu' }", "{ micro_batch_tokens = 300 }", "{}"]),
    ("dist.shard", &["optimizer", "none"]),
    ("endpoints.idle", &["{ script = 'replies.jsonl' }"]),
];

/// Keys of an agent, or of one of its seats.
const AGENT: &[(&str, &[&str])] = &[
    ("model", &["tiny", "other"]),
    ("worker_group", &["own", "tiny"]),
    ("adapter", &["its"]),
    ("lora", &["{ rank = 2 }"]),
    ("frozen", &["true", "false"]),
    ("sampling.temperature", &["0.5"]),
    ("sampling", &["{ max_tokens = 9, stop = ['x'] }"]),
    ("loss.kl_coef", &["0.02"]),
    ("optim.lr", &["4e-6"]),
    ("critic", &["judge"]),
    ("endpoint", &["expert"]),
];

/// Returns the configurations of the examples.
pub(crate) fn shipped() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_run = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "toml") && !path.ends_with("Cargo.toml")
    };
    let mut runs: Vec<PathBuf> = files.filter(is_run).collect();
    runs.sort();
    assert!(runs.len() >= 14, "{runs:?}");
    runs
}

/// Returns a plan without the parts that depend on its place.
fn meaning(mut plan: Plan) -> Plan {
    plan.config = plan.config.with(|config| config.base = None);
    plan
}

fn planned(sources: &Sources, registry: &Registry) -> Result<Plan, String> {
    check(sources, registry, Purpose::Train)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Panics unless both files of a run directory are valid by the schema and give the plan of the sources; returns false if the sources are rejected.
fn means_the_same(
    sources: &Sources,
    (registry, schema): (&Registry, &Validator),
    dir: &Path,
) -> bool {
    let Ok(plan) = planned(sources, registry) else { return false };
    let provenance = Provenance {
        version: "0".into(),
        data: Default::default(),
        files: Default::default(),
        weights: Default::default(),
        device: "cpu".into(),
        threads: 1,
        ranks: 1,
        exact: true,
    };
    let given = sources.merged_file().expect("what is accepted can be read");
    let base = plan.base.clone();
    let origin = Origin { given, config: (*plan.config).clone(), base, provenance };
    RunDir::create(dir, &origin).unwrap();
    for file in ["resolved.toml", "config.toml"] {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        let here = Sources {
            file: Some(maverl::config::source::File::Path(dir.join(file))),
            ..Default::default()
        };
        schema.accepts(&text);
        let again = planned(&here, registry).unwrap_or_else(|problems| {
            panic!("{file} is refused: {problems}\n{text}\nof {:?}", sources.set)
        });
        assert!(
            meaning(again.clone()) == meaning(plan.clone()),
            "{file} means another run\n{text}\nof {:?}\n{again:#?}\nand not\n{plan:#?}",
            sources.set
        );
    }
    true
}

/// Creates a test directory with a file for every key that names one.
fn library() -> (Lab, PathBuf) {
    let lab = lab();
    lab.write("replies.jsonl", "{\"reply\": \"yes\"}\n");
    lab.write("corpus.jsonl", "{\"title\": \"Oslo\", \"text\": \"The capital of Norway.\"}\n");
    fs::create_dir(lab.path("programs")).unwrap();
    lab.write("programs/search.py", "");
    lab.write("programs/worker.py", "");
    fs::create_dir(lab.path("verifier")).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    for name in ["verifier/train.jsonl.gz", "verifier/test.jsonl.gz"] {
        fs::copy(examples.join(name), lab.path(name)).unwrap();
    }
    let base = lab.path("").canonicalize().unwrap();
    (lab, base)
}

#[test]
fn every_shipped_configuration_means_the_same_from_its_run_directory() {
    let (lab, base) = library();
    let registry = Registry::collect().unwrap();
    let schema = Validator::new(maverl::check::schema(&registry));
    let linked = (&registry, &schema);
    for path in shipped().into_iter().step_by(stride(5)) {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let sources = Sources::default().text(format!("{name}.toml"), text, &base);
        let accepted = means_the_same(&sources, linked, &lab.path(&format!("runs/{name}")));
        assert!(accepted || name == "code", "{name} is refused");
    }
    let own = fs::read_to_string(lab.path("run.toml")).unwrap();
    let sources = Sources::default().text("run.toml", own, &base);
    assert!(means_the_same(&sources, linked, &lab.path("deep/er/run")));
}

#[test]
fn made_configurations_mean_the_same_from_their_run_directories() {
    let (lab, base) = library();
    let registry = Registry::collect().unwrap();
    let schema = Validator::new(maverl::check::schema(&registry));
    let texts: Vec<String> = shipped()
        .iter()
        .filter(|path| !path.ends_with("code.toml"))
        .map(|path| fs::read_to_string(path).unwrap())
        .chain([fs::read_to_string(lab.path("run.toml")).unwrap()])
        .collect();
    let seats: Vec<BTreeSet<(String, Option<u32>)>> = texts
        .iter()
        .map(|text| {
            let sources = Sources::default().text("run.toml", text, &base);
            let plan = planned(&sources, &registry).unwrap();
            plan.members().into_iter().map(|seat| (seat.agent, seat.index)).collect()
        })
        .collect();
    let (mut draw, mut accepted, mut tried, mut outside) = (SplitMix64(5), 0, 0, 0);
    while accepted < cases() {
        let which = draw.index(texts.len());
        let mut sources = Sources::default().text("run.toml", &texts[which], &base);
        let expert = "endpoints.expert={ script = \"replies.jsonl\", retries = 1 }";
        let mut with_endpoint = false;
        for _ in 0..draw.index(7) {
            let (key, values) = KEYS[draw.index(KEYS.len())];
            sources = sources.with(format!("{key}={}", draw.of(values)));
        }
        for _ in 0..draw.index(4) {
            let seats: Vec<_> = seats[which].iter().collect();
            let (agent, index) = draw.of(&seats);
            let (key, values) = AGENT[draw.index(AGENT.len())];
            let table = match index {
                Some(index) if draw.index(3) > 0 => format!("agents.{agent:?}.seats.{index}"),
                _ => format!("agents.{agent:?}"),
            };
            with_endpoint |= key == "endpoint";
            sources = sources.with(format!("{table}.{key}={}", draw.of(values)));
        }
        if with_endpoint {
            sources = sources.with(expert);
        }
        tried += 1;
        let dir = lab.path(&format!("runs/{tried}"));
        if means_the_same(&sources, (&registry, &schema), &dir) {
            accepted += 1;
            outside += usize::from(with_endpoint);
            fs::remove_dir_all(dir).unwrap();
        }
        assert!(tried < 60 * cases(), "{accepted} of {tried} were accepted");
    }
    println!("{accepted} of {tried} configurations were accepted, {outside} with an endpoint");
    // The few of the first tier may have none.
    assert!(outside * 50 > accepted || accepted < 100, "hardly any has an endpoint");
}
