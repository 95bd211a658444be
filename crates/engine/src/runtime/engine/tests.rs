#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::files::create::{Size, byte_level_bpe, random_model};
use crate::files::{ModelFiles, ModelSource};
use crate::net::tests::counting;
use crate::net::tests::mutation::case_count;
use crate::runtime::{Sampling, Step, Watch};

mod ahead;
#[cfg(feature = "cuda")]
mod device;
mod families;
mod grammar;

type Steps = tokio::sync::mpsc::UnboundedReceiver<Step>;
type Answer = oneshot::Receiver<Result<Completion, RuntimeError>>;

/// A small model with random weights, in two versions.
struct Fixture {
    tokenizer: Arc<Tokenizer>,
    versions: [Model; 2],
}

impl Fixture {
    fn new() -> Self {
        Self::of(32, 4, 2)
    }

    /// Creates models of a width, and of so many heads of queries and of keys.
    fn of(hidden_size: usize, num_attention_heads: usize, num_key_value_heads: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let texts = vec!["the cat sat on the mat; the cat ate".to_owned(); 3];
        let tokenizer = byte_level_bpe(&texts, 280, |_| None).unwrap();
        let size = Size {
            vocab_size: 280,
            hidden_size,
            num_hidden_layers: 2,
            num_attention_heads,
            num_key_value_heads,
            intermediate_size: 48,
            max_position_embeddings: 1024,
        };
        let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
        let versions = [1, 2].map(|seed| {
            random_model(dir.path(), size, &tokenizer, seed).unwrap();
            Model::load(&files).unwrap()
        });
        Self { tokenizer: Arc::new(Tokenizer::load(&files).unwrap()), versions }
    }

    /// Creates an engine with a capacity of `blocks` blocks.
    fn engine(&self, blocks: usize, share: bool, prefill_tokens: usize) -> Engine {
        let config = &*self.versions[0].config;
        let options = RuntimeOptions {
            prefill_tokens: prefill_tokens.try_into().unwrap(),
            ..RuntimeOptions::default()
        };
        let mut engine =
            Engine::new("w", Arc::clone(&self.tokenizer), &Cpu::default(), config, &options, 1);
        let bytes = blocks * KvStore::new(config).block_bytes();
        engine.cache = Cache::new(&Cpu::default(), config, bytes, share, 1, prefill_tokens);
        engine
    }

    /// Completes requests with the weights of one version, one after the other, without sharing.
    fn alone(&self, version: usize, requests: impl Iterator<Item = Request>) -> Vec<Completion> {
        let mut engine = self.engine(1000, false, 4096);
        let mut done = Vec::new();
        for request in requests {
            let answer = send(&mut engine, &self.versions[version], request);
            done.push(finish(&mut engine, &self.versions[version], vec![answer]).remove(0));
        }
        done
    }
}

fn send<O: Backend>(engine: &mut Engine<O>, model: &Model<O>, request: Request) -> Answer {
    let (reply, answer) = oneshot::channel();
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    engine.admit(0, &model.config, 0, request, reply, permit);
    answer
}

/// Steps until all requests are done; checks every count after each step.
fn finish(engine: &mut Engine, model: &Model, answers: Vec<Answer>) -> Vec<Completion> {
    while !engine.is_idle() {
        step(engine, model);
    }
    answers.into_iter().map(|mut answer| answer.try_recv().unwrap().unwrap()).collect()
}

fn step(engine: &mut Engine, model: &Model) {
    engine.step(std::iter::once(model));
    engine.cache.check(&engine.slots.iter().map(|slot| &slot.table).collect::<Vec<_>>());
}

fn work<O: Backend>(engine: &Engine<O>) -> EngineStats {
    *lock(&engine.work[0])
}

fn request(prompt: Vec<u32>, max_tokens: usize, seed: u64) -> Request {
    let sampling = Sampling { max_tokens, temperature: 1.5, ..Sampling::default() };
    Request::new(prompt, Arc::new(sampling), seed)
}

/// Returns one of many requests, some of which share a prefix.
fn some(i: u64) -> Request {
    let shared = (0..20 + 25 * (i % 3)).map(|t| 3 + ((i % 3) * 97 + t * 13) as u32 % 250);
    let own = (0..i % 7).map(|t| 3 + (i * 31 + t * 7) as u32 % 250);
    request(shared.chain(own).collect(), 4 + i as usize % 23, i)
}

/// Returns the same request with a watch. Every second one watches its prompt too.
fn watched(i: u64) -> (Request, Steps) {
    let (watch, steps) = Watch::new(i as usize % 3, i.is_multiple_of(2));
    (Request { watch: Some(watch), ..some(i) }, steps)
}

/// Returns all steps that were sent.
fn received(mut steps: Steps) -> Vec<Step> {
    std::iter::from_fn(|| steps.try_recv().ok()).collect()
}

/// Next operation of a test.
#[derive(Debug, Clone)]
enum Op {
    Send(u64),
    Step,
    Cancel(usize),
    Update,
}

/// Completions of `some` requests, and the steps that their watchers are sent, by version of the weights.
struct Alone {
    completions: [Vec<Completion>; 2],
    steps: [Vec<Vec<Step>>; 2],
}

impl Alone {
    fn new(fixture: &Fixture) -> Self {
        let completions = [0, 1].map(|version| fixture.alone(version, (0..24).map(some)));
        let steps = [0, 1].map(|version| {
            let (requests, steps): (Vec<Request>, Vec<Steps>) = (0..24).map(watched).unzip();
            assert_eq!(fixture.alone(version, requests.into_iter()), completions[version]);
            steps.into_iter().map(received).collect()
        });
        Self { completions, steps }
    }
}

/// Requests that wait for an answer, each with its number and its watcher.
type Waiting = Vec<((u64, Option<Steps>), Answer)>;

/// Sends a request. Of three, one is not watched, one is, and the watcher of one is gone.
fn send_some(engine: &mut Engine, model: &Model, i: u64, waiting: &mut Waiting) {
    let (request, steps) = match (i % 3, watched(i)) {
        (0, _) => (some(i), None),
        (1, (request, steps)) => (request, Some(steps)),
        (_, (request, _)) => (request, None),
    };
    waiting.push(((i, steps), send(engine, model, request)));
}

/// Runs operations, compares every completion and every step with those of requests alone, and returns the work done.
fn run(
    fixture: &Fixture,
    alone: &Alone,
    mut engine: Engine,
    ops: Vec<Op>,
) -> Result<EngineStats, TestCaseError> {
    let (mut version, mut waiting) = (0, Waiting::new());
    for op in ops.into_iter().chain([Op::Update]) {
        let model = &fixture.versions[version];
        match op {
            Op::Send(i) => send_some(&mut engine, model, i, &mut waiting),
            Op::Step => step(&mut engine, model),
            Op::Cancel(which) if !waiting.is_empty() => {
                drop(waiting.swap_remove(which % waiting.len()));
            }
            Op::Cancel(_) => {}
            Op::Update => {
                let (which, answers): (Vec<_>, Vec<Answer>) = waiting.drain(..).unzip();
                let done = finish(&mut engine, model, answers);
                for ((i, watched), done) in which.into_iter().zip(done) {
                    let expected = &alone.completions[version][i as usize];
                    prop_assert_eq!(&done, expected, "request {}", i);
                    if let Some(watched) = watched {
                        let expected = &alone.steps[version][i as usize];
                        prop_assert_eq!(&received(watched), expected, "steps of {}", i);
                    }
                }
                engine.forget(0);
                prop_assert_eq!(engine.cache.blocks(), 0);
                version = 1 - version;
            }
        }
    }
    Ok(work(&engine))
}

#[test]
fn whatever_is_shared_set_back_or_cancelled_every_completion_is_the_same_to_the_bit() {
    let fixture = Fixture::new();
    let alone = Alone::new(&fixture);
    let op = prop_oneof![
        4 => (0..24u64).prop_map(Op::Send),
        8 => Just(Op::Step),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => Just(Op::Update),
    ];
    let flags = [any::<bool>(), any::<bool>()];
    let cases = (7..14usize, flags, 1..200usize, prop::collection::vec(op, 1..80));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(case_count(16, 48) as u32)
    });
    let result = runner.run(&cases, |(blocks, [share, ahead], prefill, ops)| {
        let engine = Engine { ahead, ..fixture.engine(blocks, share, prefill) };
        run(&fixture, &alone, engine, ops).map(drop)
    });
    result.unwrap();
}

#[test]
fn requests_that_share_are_set_back_where_memory_ends_and_have_the_same_completions() {
    let fixture = Fixture::new();
    let alone = Alone::new(&fixture);
    for (ahead, blocks) in [(false, 9), (true, 9), (false, 12), (true, 12)] {
        let engine = Engine { ahead, ..fixture.engine(blocks, true, 100) };
        let ops = (0..24).map(Op::Send).collect();
        let EngineStats { reused, preempted, .. } = run(&fixture, &alone, engine, ops).unwrap();
        println!("{blocks} blocks: {reused} tokens reused, {preempted} requests set back");
        assert!(reused > 0 && preempted > 0);
    }
}

#[test]
fn a_group_computes_its_prompt_once_though_it_arrives_at_once() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let group = |prompt: usize| {
        let prompt: Vec<u32> = (0..prompt as u32).map(|t| 3 + t * 7 % 250).collect();
        (0..8).map(move |seed| request(prompt.clone(), 8, seed))
    };
    let prefilled = |share: bool, prompt: usize, chunk: usize| {
        let mut engine = fixture.engine(1000, share, chunk);
        let answers = group(prompt).map(|request| send(&mut engine, model, request)).collect();
        let done = finish(&mut engine, model, answers);
        (work(&engine).prefilled, done)
    };
    for (prompt, chunk) in [(512, 4096), (512, 100), (500, 4096), (40, 4096)] {
        let ((on, shared), (off, apart)) =
            (prefilled(true, prompt, chunk), prefilled(false, prompt, chunk));
        println!("8 x {prompt} tokens by {chunk}: {off} computed, {on} with shared prefixes");
        assert_eq!(shared, apart);
        assert_eq!(off, 8 * prompt as u64);
        assert!(4 * on <= off, "{on} of {off}");
    }
}

#[test]
fn a_conversation_computes_only_what_is_new_until_the_weights_change() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let mut engine = fixture.engine(1000, true, 4096);
    let mut prompt: Vec<u32> = (0..100).map(|t| 3 + t * 11 % 250).collect();
    let mut before = 0_usize;
    for turn in 0..4 {
        let answer = send(&mut engine, model, request(prompt.clone(), 20, turn));
        let done = finish(&mut engine, model, vec![answer]).remove(0);
        assert_eq!(std::mem::take(&mut *lock(&engine.work[0])).reused, before as u64);
        // All tokens of the conversation but the last have keys and values.
        before = prompt.len() + done.ids.len() - 1;
        prompt.extend(done.ids);
        prompt.extend([5, 6, 7]);
    }
    engine.forget(0);
    let answer = send(&mut engine, model, request(prompt.clone(), 20, 0));
    finish(&mut engine, model, vec![answer]);
    assert_eq!((work(&engine).reused, work(&engine).prefilled), (0, prompt.len() as u64));
}

#[test]
fn memory_is_bounded_and_who_came_first_is_never_set_back() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let expected = fixture.alone(0, (0..64).map(some));
    for (share, blocks) in [(true, 8), (false, 8), (true, 40), (false, 40)] {
        let mut engine = fixture.engine(blocks, share, 4096);
        let answers: Vec<Answer> = (0..64).map(|i| send(&mut engine, model, some(i))).collect();
        let mut before = (0, 0);
        while !engine.is_idle() {
            step(&mut engine, model);
            assert!(engine.cache.blocks() <= blocks);
            let Some(oldest) = engine.slots.first() else { break };
            let now = (oldest.seed, oldest.table.len);
            assert!(now > before, "the oldest request stands still");
            before = now;
        }
        let EngineStats { prefilled, reused, preempted, .. } = work(&engine);
        println!("{blocks} blocks: {prefilled} computed, {reused} reused, {preempted} set back");
        for (i, mut answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.try_recv().unwrap().unwrap(), expected[i], "request {i}");
        }
    }
}

#[test]
fn requests_that_grow_out_of_memory_are_set_back_and_lose_nothing() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let growing = |i| request(vec![5 + i as u32; 10], 60, i);
    let expected = fixture.alone(0, (0..8).map(growing));
    for share in [true, false] {
        let mut engine = fixture.engine(8, share, 4096);
        let answers = (0..8).map(|i| send(&mut engine, model, growing(i))).collect();
        assert_eq!(finish(&mut engine, model, answers), expected);
        println!("prefixes shared: {share}; {:?}", work(&engine));
        assert!(work(&engine).preempted > 2);
    }
}

#[test]
fn a_request_that_can_never_fit_is_refused() {
    let fixture = Fixture::new();
    let mut engine = fixture.engine(2, true, 4096);
    let mut answer = send(&mut engine, &fixture.versions[0], request(vec![5; 20], 13, 0));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, RuntimeError::Memory { tokens: 33, capacity: 32, .. }), "{error}");
    let answer = send(&mut engine, &fixture.versions[0], request(vec![5; 20], 12, 0));
    assert!(finish(&mut engine, &fixture.versions[0], vec![answer])[0].ids.len() <= 12);
}

#[test]
fn decoding_asks_for_no_memory_once_it_is_warm() {
    let fixture = Fixture::new();
    let mut engine = fixture.engine(1000, true, 4096);
    let prompt = |i: u32| (0..20).map(|t| 3 + (i * 31 + t * 7) % 250).collect();
    let requests = (0..16).map(|i| request(prompt(i), 40, u64::from(i)));
    let answers: Vec<Answer> =
        requests.map(|request| send(&mut engine, &fixture.versions[0], request)).collect();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let asked = || threads.broadcast(|_| counting::asked()).into_iter().sum::<u64>();
    let steps = |engine: &mut Engine, n: usize| {
        let before = asked();
        threads.install(|| (0..n).for_each(|_| engine.step(std::iter::once(&fixture.versions[0]))));
        asked() - before
    };
    // The third block of every request begins after 32 tokens; none begins another before 49. A thread may be late to
    // warm up.
    steps(&mut engine, 14);
    let least = (0..4).map(|_| steps(&mut engine, 3)).min();
    assert_eq!(least, Some(0));
    drop(answers);
}

#[test]
fn steps_are_the_completion_and_those_of_the_prompt_its_scores() {
    let fixture = Fixture::new();
    for i in 0..12 {
        let (request, steps) = watched(i);
        // Scores are those at temperature 1.
        let sampling = Sampling { temperature: 1.0, ..(*request.sampling).clone() };
        let request = Request { sampling: Arc::new(sampling), ..request };
        let prompt = request.prompt.clone();
        let done = fixture.alone(0, std::iter::once(request)).remove(0);
        let steps = received(steps);
        let echoed = if i.is_multiple_of(2) { prompt.len() - 1 } else { 0 };
        let ids: Vec<u32> = steps.iter().map(|step| step.id).collect();
        let logprobs: Vec<f32> = steps.iter().map(|step| step.logprob).collect();
        assert_eq!(ids[echoed..], done.ids);
        assert_eq!(logprobs[echoed..], done.logprobs);
        let scores =
            crate::runtime::score(&fixture.versions[0], std::slice::from_ref(&prompt)).unwrap();
        assert_eq!(logprobs[..echoed], scores[0].logprobs[..echoed]);
        assert_eq!(ids[..echoed], prompt[1..1 + echoed]);
        for step in &steps {
            assert_eq!(step.top.len(), i as usize % 3);
            assert!(step.top.is_sorted_by(|a, b| a.1 >= b.1), "{step:?}");
            let known = step.top.iter().find(|(id, _)| *id == step.id);
            assert!(known.is_none_or(|(_, logprob)| *logprob == step.logprob), "{step:?}");
        }
    }
}
