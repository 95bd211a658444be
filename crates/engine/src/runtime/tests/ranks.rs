//! Worker groups that train on several ranks, which are threads of this process here.

use std::path::{Path, PathBuf};

use super::*;
#[cfg(feature = "cuda")]
use maverl_dist::NcclOptions;
use maverl_dist::{DistOptions, Launch, Ranks, Shard};
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
    given_rows(500, -6.0)
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

/// Trains on ranks, with the moments divided among them or not. Returns the result of each.
fn on(
    setup: &mut Setup,
    sharded: bool,
    size: usize,
    from: Option<&PathBuf>,
    to: Option<&PathBuf>,
) -> Vec<Trained> {
    setup.options.shard = if sharded { Shard::Optimizer } else { Shard::None };
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

/// Compares ranks that divide the moments with ranks that do not, and resumes what they saved on other numbers of ranks.
fn is_as_whole(setup: &mut Setup) {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = dir.path().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    };
    let [whole, sharded] = ["whole", "sharded"].map(place);
    let of_whole = on(setup, false, 2, None, Some(&whole));
    let of_shards = on(setup, true, 2, None, Some(&sharded));
    for (rank, (one, other)) in of_whole.iter().zip(&of_shards).enumerate() {
        let other = Trained { bytes: one.bytes, ..other.clone() };
        assert_eq!(one, &other, "rank {rank}");
    }
    let critic = Path::new("critic").join(MOMENTS);
    for file in [Path::new(MOMENTS), &critic] {
        let [one, other] = [&whole, &sharded].map(|dir| std::fs::read(dir.join(file)).ok());
        assert!(one == other, "{} differs", file.display());
        assert_eq!(one.is_some(), file != critic || setup.workers[0].policies[0].critic.is_some());
    }
    for size in [1, 3] {
        let of_whole = on(setup, false, size, Some(&whole), None);
        let of_shards = on(setup, true, size, Some(&sharded), None);
        let prints = |of: &[Trained]| -> Vec<String> {
            of.iter().map(|rank| rank.fingerprint.clone()).collect()
        };
        assert_eq!(prints(&of_whole), prints(&of_shards), "resumed on {size}");
    }
}

#[test]
fn divided_moments_change_no_bit_and_are_resumed_on_any_number_of_ranks() {
    let mut setup = setup(&["p"]);
    let mut critic = CriticSpec::new(Trunk::Own);
    critic.optim.grad_clip = 0.1;
    setup.workers[0].policies[0].optim.grad_clip = 0.1;
    setup.workers[0].policies[0].critic = Some(critic);
    is_as_whole(&mut setup);
}

#[test]
fn divided_moments_of_an_adapter_change_no_bit() {
    let mut setup = setup(&["p"]);
    let lora = LoraSpec { rank: 4, alpha: 8.0, ..LoraSpec::default() };
    setup.workers[0].policies[0].adapter = Some(AdapterSpec::New(lora));
    is_as_whole(&mut setup);
}

#[cfg(feature = "cuda")]
#[test]
fn sums_over_nccl_have_the_bits_of_those_over_tcp() {
    let Some(fake) = nccl::Fake::open() else { return };
    let mut setup = setup(&["p"]);
    setup.options.device = DeviceChoice::Emulated;
    setup.workers[0].dtype = Dtype::Bf16;
    setup.workers[0].policies[0].critic = Some(CriticSpec::new(Trunk::Own));
    for (size, sharded) in [(2, false), (2, true), (3, true)] {
        setup.options.nccl = None;
        let over_tcp = on(&mut setup, sharded, size, None, None);
        setup.options.nccl = Some(fake.options(std::time::Duration::from_secs(60)));
        let over_nccl = on(&mut setup, sharded, size, None, None);
        assert_eq!(over_tcp, over_nccl, "{size} ranks, sharded: {sharded}");
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
    is_as_whole(&mut setup);
    let [whole, sharded] = [false, true].map(|sharded| on(&mut setup, sharded, 2, None, None));
    let files = crate::files::ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let elements = crate::net::Model::load(&files).unwrap().trainable().elements() as u64;
    for (whole, sharded) in whole.iter().zip(&sharded) {
        let saved = whole.bytes.unwrap() - sharded.bytes.unwrap();
        // Half of two moments in f32, up to the size of an allocation.
        assert!(saved.abs_diff(4 * elements) <= 1024, "{saved} bytes of {elements} elements");
    }
}
