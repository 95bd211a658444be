//! Benchmarks of the code around the model, at the sizes where it could hurt: `cargo bench -p maverl --bench library [-- filter]`.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use maverl::agent::AskError;
use maverl::builtin::{Document, facts};
use maverl::env::search::{Index, SearchEnvironment};
use maverl::files::{ModelFiles, ModelSource};
use maverl::orchestra::{Orchestra, OrchestraName, Team};
use maverl::registry::{AgentEntry, Build, Declaration, Entry, Registry, SourceLocation};
use maverl::task::Task;
use maverl::text::Tokenizer;
use maverl::trajectory::Seat;
use maverl::{Purpose, Sources, check};
use maverl_kernels::advantage::{Baseline, Grouping, Relative, Singleton, relative_advantages};
use maverl_kernels::sample::derive_seed;
use serde_json::{Value, json};

const ENTRIES: usize = 10_000;
const DOCUMENTS: usize = 10_000;
const ROWS: usize = 100_000;
/// The configuration of the main example.
const CONFIG: &str = include_str!("../../examples/search_orchestra.toml");

const PLACE: SourceLocation = SourceLocation { file: file!(), line: 1, item: module_path!() };

/// An orchestra with the declaration of the main example's, never played.
struct Route;

impl Route {
    const MEMBERS: [&'static str; 3] = ["search/answerer", "search/searcher", "search/verifier"];
}

impl Build for Route {
    fn defaults() -> Value {
        json!({ "max_turns": 3 })
    }

    fn build(_: &Value) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Orchestra for Route {
    async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
        Ok(None)
    }
}

impl OrchestraName for Route {
    const NAME: &'static str = "search/route";
    const SUMMARY: &'static str = "Looks things up.";
    const NEEDS: &'static [&'static str] = &["search"];

    fn members(&self) -> Vec<Seat> {
        Self::MEMBERS.into_iter().map(Seat::only).collect()
    }
}

fn agent(name: &'static str) -> Entry {
    let defaults = || json!({});
    let declaration =
        Declaration { name, summary: "Says something.", place: PLACE, defaults, keys: &[] };
    let build = |_: &Value| Ok(Arc::new(()) as _);
    Entry::Agent(AgentEntry { declaration, inputs: &[], reply_format: String::new, build })
}

/// The main example's team among thousands of agents.
fn entries() -> Vec<Entry> {
    let names = (0..ENTRIES).map(|i| &*format!("team_{}/agent_{i}", i % 100).leak());
    let mut entries: Vec<Entry> = names.chain(Route::MEMBERS).map(agent).collect();
    entries.push(Entry::orchestra::<Route>(PLACE));
    entries.push(Entry::environment::<SearchEnvironment>(PLACE));
    entries
}

fn declarations(c: &mut Criterion) {
    let entries = entries();
    let registry = Registry::from_entries(&entries).expect("every name is there once");
    let sources = Sources::default().text("search_orchestra.toml", CONFIG, "");
    c.bench_function("registry of 10,000 agents", |b| {
        b.iter(|| Registry::from_entries(black_box(&entries)).expect("as before"));
    });
    c.bench_function("check of search_orchestra.toml", |b| {
        b.iter(|| check(black_box(&sources), &registry, Purpose::Train).expect("it is in order"));
    });
}

fn tokenizer(c: &mut Criterion) {
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let tokenizer = Tokenizer::load(&files).expect("the built-in model loads");
    let text =
        facts::corpus().iter().take(100).map(|d| format!("{}\n", d.text)).collect::<String>();
    let ids = tokenizer.encode(&text).expect("it is plain text");
    let mut group = c.benchmark_group("tokenizer");
    group.throughput(Throughput::Elements(ids.len() as u64));
    group.bench_function("encode", |b| b.iter(|| tokenizer.encode(black_box(&text))));
    group.bench_function("decode", |b| b.iter(|| tokenizer.decode(black_box(&ids))));
    group.finish();
}

/// Documents of 50 words, of which some are common and most are rare.
fn documents() -> Vec<Document> {
    (0..DOCUMENTS as u64).map(random_document).collect()
}

fn random_document(i: u64) -> Document {
    let words: Vec<String> = (0..50).map(|j| random_word(50 * i + j)).collect();
    Document {
        key: format!("d{i:05}"),
        title: format!("title {i}"),
        text: words.join(" "),
        contents: None,
    }
}

fn random_word(i: u64) -> String {
    let draw = derive_seed(i, 0) % 50_000;
    format!("w{}", draw * draw / 50_000)
}

fn index(c: &mut Criterion) {
    let documents = documents();
    let mut group = c.benchmark_group("index of 10,000 documents");
    group.sample_size(10);
    group.bench_function("build", |b| {
        b.iter_batched(|| documents.clone(), Index::new, BatchSize::PerIteration);
    });
    let index = Index::new(documents.clone()).expect("there are documents");
    let queries: Vec<String> = (0..64)
        .map(|i| documents[i * 97].text.split(' ').take(8).collect::<Vec<_>>().join(" "))
        .collect();
    group.throughput(Throughput::Elements(queries.len() as u64));
    group.bench_function("64 queries of 8 words", |b| {
        b.iter(|| {
            let found = |query| index.search(&[query], 3).map_or(0, |found| found[0].len());
            queries.iter().map(found).sum::<usize>()
        });
    });
    group.finish();
}

/// Five rows an episode, eight episodes a task, three seats.
fn advantages(c: &mut Criterion) {
    let rewards: Vec<f64> = (0..ROWS as u64).map(|i| (derive_seed(i, 1) % 2) as f64).collect();
    let episodes: Vec<usize> = (0..ROWS).map(|i| i / 5).collect();
    let (tasks, seats): (Vec<usize>, Vec<usize>) =
        (0..ROWS).map(|i| (i / 40, 3 * (i / 40) + i % 3)).unzip();
    let options = Relative {
        baseline: Baseline::Mean,
        normalize_std: true,
        eps: 1e-6,
        singleton: Singleton::Raw,
    };
    let mut group = c.benchmark_group("advantages of 100,000 rows");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("GRPO: episodes by task", |b| {
        b.iter(|| {
            let by = Grouping::from_units(&episodes, &tasks);
            relative_advantages(black_box(&rewards), &by, None, &options)
        });
    });
    group.bench_function("Dr. MAS: rows by task and seat", |b| {
        b.iter(|| {
            relative_advantages(
                black_box(&rewards),
                &Grouping::from_row_groups(&seats),
                None,
                &options,
            )
        });
    });
    group.finish();
}

criterion_group!(benches, declarations, tokenizer, index, advantages);
criterion_main!(benches);
