//! Worker groups that train on several ranks, which are threads of this process here.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::*;
use crate::loss::{Selection, TopEntropyOptions};
use crate::net::ops::Cpu;
use crate::net::tests::fixture;
use crate::net::{Gradients, Params};
use crate::runtime::peers::Peers;
#[cfg(feature = "cuda")]
use maverl_dist::NcclOptions;
use maverl_dist::{DistOptions, Launch, Machines, Ranks, Shard};
use testing::on_ranks;

#[cfg(feature = "cuda")]
#[path = "../../../../dist/src/nccl/testing.rs"]
mod nccl;
#[path = "../../../../dist/src/testing.rs"]
pub(super) mod testing;

/// Moments of a directory that was saved.
const MOMENTS: &str = "optimizer.safetensors";

/// Result of a rank.
#[derive(Debug, Clone, PartialEq)]
struct Trained {
    fingerprint: String,
    grad_norms: [f64; 2],
    loss: f64,
    critic: Option<(f64, f64)>,
    /// Bytes in the memory of a device.
    bytes: Option<u64>,
}

fn rows() -> Vec<Row> {
    given_rows(280, -6.0)
}

pub(super) fn values() -> ValueBatch {
    let text = |row: Row| {
        let places = row.completion.len();
        ValueRow {
            text: ValueText { ids: [row.prompt, row.completion].concat(), places },
            aim: ValueTarget::Returns { old: vec![0.0; places], returns: vec![0.5; places] },
        }
    };
    ValueBatch { rows: rows().into_iter().map(text).collect(), minibatches: 2, epochs: 1, lr: 1e-3 }
}

/// Loads a directory unless it is `None`, updates twice, and saves into another one, on a rank.
async fn train(
    setup: &Setup,
    ranks: Option<&Ranks>,
    from: Option<&PathBuf>,
    to: Option<&PathBuf>,
) -> Trained {
    let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
    let policy = runtime.policies()[0].clone();
    if let Some(dir) = from {
        policy.load(dir).await.unwrap();
    }
    let batch = Batch { lr: 1e-3, ..batch(rows()) };
    let first = policy.update(batch.clone()).await.unwrap();
    let critic = if setup.workers[0].policies[0].critic.is_some() {
        Some(policy.update_critic(values()).await.unwrap())
    } else {
        None
    };
    let second = policy.update(batch).await.unwrap();
    match (to, ranks.is_none_or(|ranks| ranks.rank() == 0)) {
        (Some(dir), true) => policy.save(dir).await.unwrap(),
        (Some(_), false) => policy.share().await.unwrap(),
        (None, _) => {}
    }
    #[cfg(feature = "cuda")]
    let bytes = policy.device_memory().map(|[used, _]| used);
    #[cfg(not(feature = "cuda"))]
    let bytes = None;
    if let Some(ranks) = ranks {
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    }
    Trained {
        fingerprint: policy.fingerprint().await.unwrap(),
        grad_norms: [first.grad_norm, second.grad_norm],
        loss: second.loss,
        critic: critic.map(|stats| (stats.loss, stats.grad_norm)),
        bytes,
    }
}

/// Trains on ranks that divide a model or not. Returns the result of each.
fn on(
    setup: &mut Setup,
    shard: Shard,
    size: usize,
    from: Option<&PathBuf>,
    to: Option<&PathBuf>,
) -> Vec<Trained> {
    setup.options.shard = shard;
    let setup = &*setup;
    let run = |ranks: Option<&Ranks>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(train(setup, ranks, from, to))
    };
    match size {
        1 => vec![run(None)],
        size => on_ranks(size, |ranks| run(Some(&ranks))),
    }
}

/// Compares ranks that divide a model with ranks that do not, and resumes what they saved on other numbers of ranks.
fn is_as_whole(setup: &mut Setup, shard: Shard) {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = dir.path().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    };
    let [whole, sharded] = ["whole", "sharded"].map(place);
    let of_whole = on(setup, Shard::None, 2, None, Some(&whole));
    let of_shards = on(setup, shard, 2, None, Some(&sharded));
    for (rank, (one, other)) in of_whole.iter().zip(&of_shards).enumerate() {
        let other = Trained { bytes: one.bytes, ..other.clone() };
        assert_eq!(one, &other, "rank {rank}");
    }
    let critic = Path::new("critic").join(MOMENTS);
    for file in [Path::new(MOMENTS), Path::new("model.safetensors"), &critic] {
        let [one, other] = [&whole, &sharded].map(|dir| std::fs::read(dir.join(file)).ok());
        assert!(one == other, "{} differs", file.display());
        let of_critic = setup.workers[0].policies[0].critic.is_some();
        assert!(one.is_some() || file != Path::new(MOMENTS));
        assert!(file != critic || one.is_some() == of_critic);
    }
    for size in [1, 3] {
        let of_whole = on(setup, Shard::None, size, Some(&whole), None);
        let of_shards = on(setup, shard, size, Some(&sharded), None);
        let prints = |of: &[Trained]| -> Vec<String> {
            of.iter().map(|rank| rank.fingerprint.clone()).collect()
        };
        assert_eq!(prints(&of_whole), prints(&of_shards), "resumed on {size}");
    }
}

/// Returns numbers of a rank whose sum depends on the order of addition.
fn numbers(rank: usize, part: usize, count: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + rank * 104_729 + part * 131) % 1009) as f32 - 504.0;
    (0..count).map(|i| number(i) * 10_f32.powi((rank as i32 * 3 + i as i32) % 7 - 3)).collect()
}

/// Parameters of a small model whose embedding is also the head.
fn tied_params() -> Params {
    let shapes = [
        ("model.embed_tokens.weight", vec![45, 8]),
        ("model.layers.0.a.weight", vec![70, 3]),
        ("model.layers.0.b.weight", vec![5]),
        ("model.layers.1.a.weight", vec![33, 9]),
        ("model.norm.weight", vec![8]),
    ];
    Params::zeros(shapes.map(|(name, dims)| (name.to_owned(), dims)))
}

/// Combines numbers as gradients, those of the embedding apart from those of the head. Returns sums and norm.
fn combined(ranks: &Ranks, shard: Shard) -> (Vec<f32>, f64) {
    let (params, peers) = (tied_params(), Peers::new(Some(ranks.channel(1)), shard));
    let (ops, mut gradients) = (Cpu::default(), Gradients::new(&params));
    gradients.separate_embedding(&ops, Some(0)).unwrap();
    for slot in 0..params.vars().len() {
        let sums = gradients.of(Some(slot)).unwrap();
        sums.copy_from_slice(&numbers(ranks.rank(), slot, sums.len()));
    }
    let apart = gradients.of_embedding(Some(0)).unwrap();
    apart.copy_from_slice(&numbers(ranks.rank(), 99, apart.len()));
    peers.combine(&ops, &mut gradients).unwrap();
    let norm = peers.norm(&ops, &gradients).unwrap();
    ranks.channel(0).barrier().unwrap();
    (gradients.into_all().unwrap(), norm)
}

/// Adds the numbers of ranks in their order.
fn sum_of_ranks(ranks: usize, part: usize, count: usize) -> Vec<f32> {
    let mut sum = numbers(0, part, count);
    for rank in 1..ranks {
        sum.iter_mut().zip(numbers(rank, part, count)).for_each(|(sum, value)| *sum += value);
    }
    sum
}

#[test]
fn a_tied_embedding_is_the_sum_of_heads_and_that_of_embeddings_and_the_norm_goes_by_units_and_ranks()
 {
    let params = tied_params();
    let places: Vec<_> = params.vars().iter().map(|(_, var)| var.range()).collect();
    let units = [0..384, 384..704, 704..1088];
    assert_eq!(params.elements(), units[2].end);
    for size in [2, 3, 4] {
        let mut expected = vec![0.0; params.elements()];
        for (slot, place) in places.iter().enumerate() {
            expected[place.clone()].copy_from_slice(&sum_of_ranks(size, slot, place.len()));
        }
        let embeddings = sum_of_ranks(size, 99, places[0].len());
        expected.iter_mut().zip(embeddings).for_each(|(head, value)| *head += value);
        let machines = Machines::new(size, size);
        let owned = |rank: usize| {
            let ranges =
                units.iter().map(move |unit| (unit.start, machines.range(unit.len(), rank)));
            ranges.map(|(start, range)| start + range.start..start + range.end)
        };
        let mut squares = 0.0;
        for unit in 0..units.len() {
            for rank in 0..size {
                let range = owned(rank).nth(unit).unwrap();
                let parts = places
                    .iter()
                    .map(|place| place.start.max(range.start)..place.end.min(range.end));
                let of = |part: Range<usize>| {
                    expected[part].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>()
                };
                squares += parts.filter(|part| part.start < part.end).map(of).sum::<f64>();
            }
        }
        for shard in [Shard::None, Shard::Optimizer] {
            for (rank, (sums, norm)) in
                on_ranks(size, |ranks| combined(&ranks, shard)).iter().enumerate()
            {
                assert!((norm - squares.sqrt()).abs() < 1e-9 * norm, "{size} ranks, {shard:?}");
                let here: Vec<Range<usize>> = match shard {
                    Shard::None => std::iter::once(0..expected.len()).collect(),
                    _ => owned(rank).collect(),
                };
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                for range in here {
                    assert!(
                        bits(&sums[range.clone()]) == bits(&expected[range]),
                        "{size} {shard:?}"
                    );
                }
            }
        }
        let norms = [Shard::None, Shard::Optimizer]
            .map(|shard| on_ranks(size, |ranks| combined(&ranks, shard).1));
        assert_eq!(norms[0], norms[1], "{size} ranks");
    }
}

#[test]
fn divided_moments_change_no_bit_and_are_resumed_on_any_number_of_ranks() {
    let mut setup = setup(&["p"]);
    let mut critic = CriticSpec::new(Trunk::Own);
    critic.optim.grad_clip = 0.1;
    setup.workers[0].policies[0].optim.grad_clip = 0.1;
    setup.workers[0].policies[0].critic = Some(critic);
    is_as_whole(&mut setup, Shard::Optimizer);
}

#[test]
fn divided_moments_of_experts_and_of_a_head_of_its_own_change_no_bit() {
    let mut setup = setup(&["p"]);
    setup.workers[0].source = ModelSource::Directory(fixture("families").join("qwen3_moe"));
    is_as_whole(&mut setup, Shard::Optimizer);
}

#[test]
fn divided_moments_of_an_adapter_change_no_bit() {
    let mut setup = setup(&["p"]);
    let lora = LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() };
    setup.workers[0].policies[0].adapter = Some(AdapterSpec::New(lora));
    is_as_whole(&mut setup, Shard::Optimizer);
}

#[cfg(feature = "cuda")]
#[test]
fn sums_over_nccl_have_the_bits_of_those_over_tcp() {
    let Some(fake) = nccl::Fake::open() else { return };
    let mut setup = setup(&["p"]);
    setup.options.device = DeviceChoice::Emulated;
    setup.workers[0].dtype = Dtype::Bf16;
    setup.workers[0].policies[0].critic = Some(CriticSpec::new(Trunk::Own));
    for (size, shard) in [(2, Shard::None), (2, Shard::Optimizer), (3, Shard::Optimizer)] {
        setup.options.nccl = None;
        let over_tcp = on(&mut setup, shard, size, None, None);
        setup.options.nccl = Some(fake.options(std::time::Duration::from_secs(60)));
        let over_nccl = on(&mut setup, shard, size, None, None);
        assert_eq!(over_tcp, over_nccl, "{size} ranks, {shard:?}");
    }
    for rank in 0..3 {
        let calls = fake.calls(rank);
        assert!(calls.iter().any(|call| call.starts_with("send")), "{calls:?}");
        assert!(!calls.iter().any(|call| call == "abort"), "{calls:?}");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn ranks_on_devices_have_their_part_of_the_moments() {
    if let Err(error) = maverl_kernels::emulate::check_compiler() {
        eprintln!("skipped: {error}");
        return;
    }
    let mut setup = setup(&["p"]);
    setup.options.device = DeviceChoice::Emulated;
    setup.workers[0].dtype = Dtype::Bf16;
    is_as_whole(&mut setup, Shard::Optimizer);
    let [whole, sharded] =
        [Shard::None, Shard::Optimizer].map(|shard| on(&mut setup, shard, 2, None, None));
    let files = crate::files::ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let elements = crate::net::Model::load(&files).unwrap().trainable().elements() as u64;
    for (whole, sharded) in whole.iter().zip(&sharded) {
        let saved = whole.bytes.unwrap() - sharded.bytes.unwrap();
        // Half of two moments in f32, up to the sizes of allocations: two for each of six units.
        assert!(saved.abs_diff(4 * elements) <= 12 * 1024, "{saved} bytes of {elements} elements");
    }
}

/// Returns a policy and a batch.
fn case(name: &str) -> (Setup, Batch) {
    let mut setup = setup(&["p"]);
    let family = |name: &str| ModelSource::Directory(fixture("families").join(name));
    setup.options.micro_batch_tokens = 30.try_into().unwrap();
    let mut batch = Batch { lr: 1e-3, minibatches: 2, epochs: 2, ..batch(rows()) };
    let policy = &mut setup.workers[0].policies[0];
    match name {
        "checkpointing and a KL" => {
            (policy.gradient_checkpointing, policy.reference) = (true, true);
            batch.rows.iter_mut().for_each(|row| row.loss.kl_coef = 0.1);
            batch.early_stop_kl = 1e-6;
        }
        "a head of its own and balanced experts" => {
            setup.workers[0].source = family("qwen3_moe");
            batch.router_aux_coef = 0.1;
        }
        "norms after layers" => setup.workers[0].source = family("gemma3_text"),
        "few rows" => {
            batch.rows.truncate(2);
            batch.minibatches = 1;
        }
        "supervised rows" => batch.objective = Objective::Supervised,
        "labeled replies" => {
            policy.reference = true;
            batch = Batch { minibatches: 1, epochs: 2, ..labeled::labeled(|_| ()) };
        }
        _ => batch.selection = Selection::Entropy(TopEntropyOptions { share: 0.5 }),
    }
    (setup, batch)
}

/// Updates twice on ranks, and returns what each rank measures, generates and has as weights.
fn measured(setup: &Setup, size: usize, batch: &Batch) -> Vec<String> {
    let train = async |ranks: Option<&Ranks>| {
        let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
        let policy = runtime.policies()[0].clone();
        let mut found = Vec::new();
        for turn in 0..2 {
            found.push(format!("{:?}", policy.update(batch.clone()).await.unwrap()));
            let done = policy.generate(request(turn)).await.unwrap();
            found.push(format!("{:?} {:?}", done.ids, done.logprobs));
            let logprobs = policy.logprobs(batch.rows.clone()).await.unwrap();
            found.push(format!("{logprobs:?}"));
        }
        found.push(policy.fingerprint().await.unwrap());
        if let Some(ranks) = ranks {
            ranks.channel(0).barrier().unwrap();
            ranks.leave();
        }
        found.join("\n")
    };
    let run = |ranks: Option<&Ranks>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(train(ranks))
    };
    match size {
        1 => vec![run(None)],
        size => on_ranks(size, |ranks| run(Some(&ranks))),
    }
}

#[test]
fn divided_weights_change_no_bit_of_losses_norms_replies_and_weights_on_one_to_four_ranks() {
    let cases = [
        "checkpointing and a KL",
        "a head of its own and balanced experts",
        "norms after layers",
        "few rows",
        "supervised rows",
        "labeled replies",
        "tokens of high entropy",
    ];
    for (at, name) in cases.into_iter().enumerate() {
        let (mut setup, batch) = case(name);
        // Every number of ranks for the first two, and one of them for each other.
        let sizes = if at < 2 { vec![1, 2, 3, 4] } else { vec![2 + at % 3] };
        for size in sizes {
            let [none, optimizer, full] =
                [Shard::None, Shard::Optimizer, Shard::Full].map(|shard| {
                    setup.options.shard = shard;
                    measured(&setup, size, &batch)
                });
            for (rank, whole) in none.iter().enumerate() {
                assert_eq!(whole, &optimizer[rank], "{name}, rank {rank} of {size}");
                assert_eq!(whole, &full[rank], "{name}, rank {rank} of {size}");
            }
        }
    }
}

#[test]
fn divided_weights_are_saved_as_whole_ones_and_resumed_on_any_number_of_ranks() {
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].optim.grad_clip = 0.1;
    is_as_whole(&mut setup, Shard::Full);
}

#[test]
fn what_ranks_do_not_divide_is_named() {
    let start = |ranks: &Ranks, change: fn(&mut Setup)| {
        let mut setup = setup(&["p"]);
        setup.options.shard = Shard::Full;
        change(&mut setup);
        let started = Runtime::start_on(&setup.workers, &setup.options, Some(ranks));
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
        started.err().map(|error| error.to_string())
    };
    let refused = |change: fn(&mut Setup)| on_ranks(2, |ranks| start(&ranks, change)).remove(0);
    assert_eq!(refused(|_| ()), None);
    let adapter = |setup: &mut Setup| {
        setup.policies().for_each(|it| it.adapter = Some(AdapterSpec::New(LoraSpec::default())));
    };
    let critic = |setup: &mut Setup| {
        setup.policies().for_each(|it| it.critic = Some(CriticSpec::new(Trunk::Own)));
    };
    let expected =
        "`dist.shard` is \"full\", and policy `p` is an adapter: \"none\" or \"optimizer\"";
    assert_eq!(refused(adapter).unwrap(), expected);
    assert!(refused(critic).unwrap().contains("policy `p` has a critic"));
    let f16 = refused(|setup| setup.workers.iter_mut().for_each(|it| it.dtype = Dtype::F16));
    assert!(f16.unwrap().contains("worker group `p` is in f16"));
    let emulated = refused(|setup| setup.options.device = DeviceChoice::Emulated).unwrap();
    assert!(emulated.contains("worker group `p` is not on the CPU"), "{emulated}");
    let hybrid = refused(|setup| setup.options.shard = Shard::Hybrid).unwrap();
    assert!(hybrid.contains("`dist.shard` is \"hybrid\""), "{hybrid}");
}
