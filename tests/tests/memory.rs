//! Memory of an update, counted by the allocator and by the system, compared with the plan; that of many steps; and that of a
//! check of many tasks.
//!
//! Each case runs in a separate process, since the peak memory of a process cannot be reset.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // an allocator is nothing else

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use maverl::files::blank::{SHAPES, blank_model};
use maverl::files::{HfConfig, StoredDtype};
use maverl::net::{Model, Weights};
use maverl::plan::{Plan, WorkerSummary};
use maverl::registry::Registry;
use maverl::run_dir::RunLocation;
use maverl::runtime::{Batch, Row, Runtime};
use maverl::train::{EndedEpisode, EpisodeSink, Options, SinkError};
use maverl::{Purpose, Sources, check};
use maverl_tests::lab::Lab;
use serde_json::Value;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(HELD.fetch_add(layout.size(), SeqCst) + layout.size(), SeqCst);
        // SAFETY: the caller's guarantees are those that the system requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), SeqCst);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CASE: &str = "MAVERL_MEMORY_CASE";

/// A model's shape, tokens of the micro-batch, and settings.
type Case = (&'static str, usize, &'static [&'static str]);

const CHECKPOINTING: &str = "models.any.gradient_checkpointing=true";
const LORA: &str = "models.any.lora.rank=8";

const MEDIUM: [Case; 5] = [
    ("bench-m", 1024, &[]),
    ("bench-m", 1024, &[CHECKPOINTING]),
    ("bench-m", 1024, &[LORA]),
    ("bench-m", 1024, &[LORA, CHECKPOINTING]),
    ("bench-m", 128, &[]),
];
const HALF_BILLION: [Case; 3] = [
    ("qwen2.5-0.5b", 512, &[CHECKPOINTING]),
    ("qwen2.5-0.5b", 512, &[LORA, CHECKPOINTING]),
    ("qwen2.5-0.5b", 512, &[LORA]),
];

/// Target modules of an adapter that corrects experts.
const EXPERTS: &str =
    "models.any.lora.target_modules=[\"q_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]";
/// Families of `fixtures/families`, with wider layers.
const FAMILIES: [Case; 11] = [
    ("gemma3_text", 1024, &[]),
    ("olmo3", 1024, &[]),
    ("phi3", 1024, &[]),
    ("qwen3_moe", 1024, &[]),
    ("qwen3_moe", 1024, &[LORA, EXPERTS, CHECKPOINTING]),
    ("gpt_oss", 1024, &[]),
    ("qwen3_5_text", 1024, &[]),
    ("qwen3_5_moe", 1024, &[]),
    ("qwen3_5_moe", 1024, &[CHECKPOINTING]),
    ("lfm2", 1024, &[]),
    ("lfm2", 1024, &[CHECKPOINTING]),
];

#[test]
fn an_update_of_each_family_takes_what_the_plan_says() {
    for case in 0..FAMILIES.len() {
        apart(MEDIUM.len() + HALF_BILLION.len() + case);
    }
}

#[test]
fn an_update_takes_what_the_plan_says() {
    for case in 0..MEDIUM.len() {
        apart(case);
    }
}

#[test]
#[ignore = "minutes, and 10 GiB of memory"]
fn an_update_of_half_a_billion_parameters_takes_what_the_plan_says() {
    for case in 0..HALF_BILLION.len() {
        apart(MEDIUM.len() + case);
    }
}

/// Runs a case in a separate process.
fn apart(case: usize) {
    alone("one_case", case);
}

/// Runs a test of this file in a separate process.
fn alone(test: &str, case: usize) {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this)
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(CASE, case.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().filter(|line| line.contains("counted")).for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "run by the others"]
fn one_case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let case: usize = case.parse().unwrap();
    let (name, tokens, set) = [&MEDIUM[..], &HALF_BILLION, &FAMILIES].concat()[case];
    let dir = tempfile::tempdir().unwrap();
    let vocabulary = match SHAPES.iter().find(|known| known.name == name) {
        Some(shape) => {
            blank_model(dir.path(), *shape, StoredDtype::Bf16, 1).unwrap();
            shape.size.vocab_size
        }
        None => write_family(dir.path(), name),
    };
    let plan = plan(dir.path(), tokens, set);
    let planned = plan.summary().workers.remove(0);

    let before = HELD.load(SeqCst);
    let runtime = Runtime::start(&plan.worker_specs(), &plan.runtime_options()).unwrap();
    let started = HELD.load(SeqCst) - before;
    let policy = runtime.policies()[0].clone();
    MOST.store(HELD.load(SeqCst), SeqCst);
    let base = HELD.load(SeqCst);
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(policy.update(batch(tokens, vocabulary as u32)))
        .unwrap();
    let taken = MOST.load(SeqCst) - base;
    report(name, tokens, set, &planned, [started, taken, resident()]);
}

/// Sizes of layers that are wider than those of fixtures, where a family has them.
const WIDE: [(&str, u64); 14] = [
    ("hidden_size", 256),
    ("intermediate_size", 704),
    ("moe_intermediate_size", 176),
    ("shared_expert_intermediate_size", 176),
    ("num_attention_heads", 4),
    ("num_key_value_heads", 2),
    ("head_dim", 64),
    ("linear_num_key_heads", 4),
    ("linear_num_value_heads", 8),
    ("linear_key_head_dim", 32),
    ("linear_value_head_dim", 32),
    ("vocab_size", 2048),
    ("max_position_embeddings", 512),
    ("original_max_position_embeddings", 512),
];

/// Writes a model of a family with wide layers, twice as many as its fixture has, and random weights. Returns the rows of its
/// embedding.
fn write_family(dir: &Path, name: &str) -> usize {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/families").join(name);
    let read = |file: &str| std::fs::read(fixture.join(file)).unwrap();
    let mut json: Value = serde_json::from_slice(&read("config.json")).unwrap();
    let nested = json.get("text_config").is_some();
    let text = if nested { &mut json["text_config"] } else { &mut json };
    for (key, wide) in WIDE {
        if text.get(key).is_some() {
            text[key] = wide.into();
        }
    }
    text["num_hidden_layers"] = (2 * text["num_hidden_layers"].as_u64().unwrap()).into();
    if let Some(kinds) = text.get_mut("layer_types").and_then(Value::as_array_mut) {
        kinds.extend(kinds.clone());
    }
    if name == "lfm2" {
        // An MLP of four times the width of the stream, two thirds of this number, as in the published models.
        text["intermediate_size"] = 1536.into();
    }
    if name == "phi3" {
        // Factors of three quarters of a head of 64.
        for list in ["short_factor", "long_factor"] {
            text["rope_parameters"][list] = vec![1.0; 24].into();
        }
        text["rope_parameters"]["original_max_position_embeddings"] = 512.into();
    }
    let config = HfConfig::parse(json.to_string().as_bytes()).unwrap();
    let mut drawn = 0_u32;
    let weights = Weights::init(&config, |_, dims| {
        let draw = |_| {
            drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(drawn) / f64::from(u32::MAX) * 0.08 - 0.04) as f32
        };
        (0..dims.iter().product::<usize>()).map(draw).collect()
    });
    let files = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"];
    let companions = files.into_iter().map(|file| (file.to_owned(), read(file)));
    let companions = companions.chain([("config.json".to_owned(), json.to_string().into_bytes())]);
    let vocabulary = config.vocab_size;
    let model = Model::new(config, weights.unwrap(), companions.collect()).unwrap();
    model.save(dir).unwrap();
    vocabulary
}

/// Number of steps of the run, of those before memory is compared, and of those between two compared ones.
const STEPS: [u64; 3] = [850, 250, 300];
/// Bytes that a step may leave: entries of lists that a run writes again.
const GROWTH: f64 = 2048.0;

#[test]
fn a_step_of_training_leaves_nothing_in_memory() {
    alone("many_steps", 0);
}

/// Memory at the first episode of each step.
#[derive(Default)]
struct Held(Mutex<BTreeMap<u64, usize>>);

impl EpisodeSink for Held {
    fn on_episode(&self, ended: &EndedEpisode<'_>) -> Result<(), SinkError> {
        self.0.lock().unwrap().entry(ended.step).or_insert_with(|| HELD.load(SeqCst));
        Ok(())
    }
}

#[test]
#[ignore = "run by another"]
fn many_steps() {
    if std::env::var(CASE).is_err() {
        return;
    }
    let lab = Lab::new(env!("CARGO_BIN_EXE_team"));
    let text = std::fs::read_to_string(lab.path("run.toml")).unwrap();
    let sources = Sources::default().text("run.toml", text, lab.path(""));
    let registry = Registry::collect().unwrap();
    let set = [
        &format!("steps={}", STEPS[0]),
        "eval.before_and_after=false",
        "checkpoint.every=1000",
        "sampling.max_tokens=24",
        "runtime.kv_mib=1",
        "algorithm.max_flat_steps=1000",
        // Replies that grow while they are learned would need longer buffers.
        "models.tiny.optim.lr=1e-30",
    ];
    let sources = set.into_iter().fold(sources, |all, set| all.with(set));
    let plan = check(&sources, &registry, Purpose::Train).unwrap();
    let held = Arc::new(Held::default());
    let options = Options::new(RunLocation::New(lab.path("many"))).sink(Arc::clone(&held));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(maverl::train(&plan, &registry, options)).unwrap();
    // Buffers differ with the length of texts, so that many pairs of steps are compared.
    let held = held.0.lock().unwrap();
    let [steps, before, apart] = STEPS;
    let mut grown: Vec<f64> = (before..steps - apart)
        .map(|step| (held[&(step + apart)] as f64 - held[&step] as f64) / apart as f64)
        .collect();
    grown.sort_by(f64::total_cmp);
    let each = grown[grown.len() / 2];
    println!("counted {each:.0} bytes a step; resident at most {}", resident());
    assert!(each < GROWTH, "{each:.0} bytes a step stay in memory");
}

/// Bytes of an index of tasks, and of the table of their ids, for each task. Both grow by doubling, with a copy.
const INDEX: usize = 3 * 32 + 2 * 64;

#[test]
fn a_check_of_many_tasks_holds_little_more_than_their_texts() {
    alone("check_of_tasks", 20_000);
}

#[test]
#[ignore = "a minute without optimizations"]
fn a_check_of_a_million_tasks_takes_less_than_400_mb() {
    alone("check_of_tasks", 1_000_000);
}

#[test]
#[ignore = "run by the others"]
fn check_of_tasks() {
    let Ok(count) = std::env::var(CASE) else { return };
    let count: usize = count.parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let row = |i: usize| {
        let (question, answer) = (format!("What is {i} plus {}?", 3 * i), 4 * i);
        format!(
            "{{\"id\": \"sum-{i:07}\", \"question\": \"{question}\", \"answer\": \"{answer}\"}}\n"
        )
    };
    let file = std::fs::File::create(dir.path().join("rows.jsonl")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    (0..count).for_each(|i| file.write_all(row(i).as_bytes()).unwrap());
    let bytes = file.into_inner().unwrap().metadata().unwrap().len() as usize;
    let text = "models.tiny.path = \"builtin:tiny\"\norchestra.name = \"duo/alone\"\nenvironment.name = \"math\"\n\
                task.data = \"rows.jsonl\"\n";
    let sources = Sources::default().text("tasks.toml", text, dir.path());
    let registry = Registry::collect().unwrap();
    // Models and tokenizers are opened once.
    check(&sources.clone().with("task.limit=1"), &registry, Purpose::Plan).unwrap();
    let base = HELD.load(SeqCst);
    MOST.store(base, SeqCst);
    let start = std::time::Instant::now();
    let plan = check(&sources, &registry, Purpose::Plan).unwrap();
    let survey = maverl::check::survey(&plan);
    let (seconds, taken) = (start.elapsed().as_secs_f64(), MOST.load(SeqCst) - base);
    println!(
        "{count} tasks of {bytes} bytes: {seconds:.2} s, counted {taken} bytes, resident at most {}",
        resident()
    );
    let trained = survey.splits[0].1;
    assert!((0.79..0.81).contains(&(trained as f64 / count as f64)), "{:?}", survey.splits);
    assert!(taken < 3 * bytes + count * INDEX + (16 << 20), "{taken}");
    assert!(resident() < 400_000_000, "{}", resident());
}

/// Prints a case, and asserts that the counted memory is the planned one.
fn report(
    shape: &str,
    tokens: usize,
    set: &[&str],
    planned: &WorkerSummary,
    [started, taken, resident]: [usize; 3],
) {
    const MIB: f64 = 1_048_576.0;
    let mib = |bytes: u64| bytes as f64 / MIB;
    let [started, taken, resident] = [started, taken, resident].map(|bytes| bytes as f64 / MIB);
    let kept = mib(planned.weight_bytes + planned.moment_bytes);
    let (activations, gradients) = (mib(planned.activation_bytes), mib(planned.gradient_bytes));
    let counted = taken - gradients;
    let whole = kept + gradients + activations;
    println!(
        "{shape}, {tokens} tokens, {set:?}: activations planned {activations:.1} MiB, counted {counted:.1} \
         ({:+.1}%); weights and moments {kept:.1}, counted {started:.1}; all {whole:.1}, resident {resident:.1}",
        100.0 * (counted / activations - 1.0)
    );
    assert!((started - kept).abs() < 16.0);
    assert!((counted / activations - 1.0).abs() < 0.15);
    assert!((resident - whole).abs() < 0.25 * whole + 150.0);
}

/// Returns the peak resident memory of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

fn plan(model: &Path, tokens: usize, set: &[&str]) -> Plan {
    let text = format!(
        "models.any.path = {model:?}\nruntime.micro_batch_tokens = {tokens}\norchestra.name = \"duo/relay\"\n\
         environment.name = \"letters\"\n"
    );
    let mut sources = Sources::default().text("memory.toml", text, model);
    sources.set = set.iter().map(|set| (*set).to_owned()).collect();
    check(&sources, &Registry::collect().unwrap(), Purpose::Train).unwrap()
}

/// Returns one micro-batch of rows of 128 tokens, trained on all of them.
fn batch(tokens: usize, vocabulary: u32) -> Batch {
    const LENGTH: usize = 128;
    let row = |i: u32| Row {
        prompt: vec![i],
        completion: (0..LENGTH as u32).map(|t| (i * 131 + t * 17) % vocabulary).collect(),
        logprobs: vec![-9.0; LENGTH],
        advantages: vec![if i.is_multiple_of(2) { 1.0 } else { -1.0 }; LENGTH],
        ..Row::default()
    };
    Batch { rows: (0..(tokens / LENGTH) as u32).map(row).collect(), ..Batch::default() }
}
