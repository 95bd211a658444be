use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::*;
use crate::files::StoredDtype;
use crate::files::blank::{SHAPES, blank_model};
use maverl_dist::Shard;
use ranks::testing::on_ranks;
use tempfile::TempDir;

/// Every choice of the moments in a checkpoint.
const CHOICES: [SavedMoments; 3] = [SavedMoments::F32, SavedMoments::Bf16, SavedMoments::None];

/// Returns the names of the tensors in a file, sorted.
fn written(file: &std::path::Path) -> Vec<String> {
    let bytes = std::fs::read(file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let head: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let names = head.as_object().unwrap().keys().filter(|name| *name != "__metadata__");
    let mut names: Vec<String> = names.cloned().collect();
    names.sort();
    names
}

#[tokio::test]
async fn moments_before_the_first_step_are_zero_and_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("optimizer.safetensors");
    let runtime = setup(&["p"]).start();
    let policy = &runtime.policies()[0];
    let completion = policy.generate(request(1)).await.unwrap();
    let rows = vec![row(&completion, request(1).prompt, 1.0)];
    policy.save(dir.path()).await.unwrap();
    assert_eq!(written(&file), ["counters"]);
    policy.update(batch(rows.clone())).await.unwrap();
    let once = policy.fingerprint().await.unwrap();
    policy.update(batch(rows.clone())).await.unwrap();
    assert_ne!(policy.fingerprint().await.unwrap(), once);
    // The state before the first step returns, whatever the moments are by now.
    policy.load(dir.path()).await.unwrap();
    policy.update(batch(rows)).await.unwrap();
    assert_eq!(policy.fingerprint().await.unwrap(), once);
    policy.save(dir.path()).await.unwrap();
    assert!(written(&file).iter().any(|name| name.starts_with("m.")), "after a step");
}

/// Saves a policy with every choice of moments.
async fn saved_in_all_forms(policy: &Policy) -> [TempDir; 3] {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    for (dir, moments) in dirs.iter().zip(CHOICES) {
        policy.save_with(dir.path(), moments).await.unwrap();
    }
    dirs
}

/// Returns the bytes of a file in each of the directories.
fn sizes(dirs: &[TempDir; 3], file: &str) -> [u64; 3] {
    dirs.each_ref().map(|dir| std::fs::metadata(dir.path().join(file)).unwrap().len())
}

/// Returns the share of the first choice that the second one has of the bytes of moments.
fn share_of_moments([whole, rounded, none]: [u64; 3]) -> f64 {
    (rounded - none) as f64 / (whole - none) as f64
}

#[tokio::test]
async fn moments_in_bf16_take_half_of_the_bytes_and_without_moments_the_optimizer_begins_again() {
    let mut setup = setup(&["p"]);
    setup.workers[0].policies[0].critic = Some(CriticSpec::new(Trunk::Own));
    let runtime = setup.start();
    let policy = &runtime.policies()[0];
    let completion = policy.generate(request(1)).await.unwrap();
    let rows = vec![row(&completion, request(1).prompt, 1.0)];
    policy.update(batch(rows.clone())).await.unwrap();
    policy.update_critic(ranks::values()).await.unwrap();
    let dirs = saved_in_all_forms(policy).await;
    for (file, left) in [
        ("optimizer.safetensors", &["counters", "steps_taken"][..]),
        ("critic/optimizer.safetensors", &["counters", "scale"]),
    ] {
        let names = dirs.each_ref().map(|dir| written(&dir.path().join(file)));
        assert_eq!(names[0], names[1]);
        assert_eq!(names[2], left);
        let sizes = sizes(&dirs, file);
        println!("{file} has {sizes:?} bytes");
        assert!((share_of_moments(sizes) - 0.5).abs() < 0.01, "{sizes:?}");
    }
    let mut after = Vec::new();
    for dir in &dirs {
        policy.load(dir.path()).await.unwrap();
        assert_eq!(policy.version().await.unwrap(), 1, "all know the number of updates");
        policy.update(batch(rows.clone())).await.unwrap();
        policy.update_critic(ranks::values()).await.unwrap();
        policy.save_with(dir.path(), SavedMoments::None).await.unwrap();
        let critic = std::fs::read(dir.path().join("critic/model.safetensors")).unwrap();
        after.push((policy.fingerprint().await.unwrap(), critic));
    }
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let (one, other) = (&after[one], &after[other]);
        assert!(one.0 != other.0 && one.1 != other.1, "other moments, other weights");
    }
}

#[tokio::test]
async fn without_moments_the_next_update_is_that_of_a_new_optimizer() {
    let runtime = setup(&["p"]).start();
    let policy = &runtime.policies()[0];
    let rows = || Batch { lr: 1e-3, ..batch(given_rows(500, -6.0)) };
    for _ in 0..3 {
        policy.update(rows()).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    policy.save_with(dir.path(), SavedMoments::None).await.unwrap();
    policy.load(dir.path()).await.unwrap();
    policy.update(rows()).await.unwrap();
    let resumed = policy.fingerprint().await.unwrap();
    // Another run begins with the same weights.
    let mut setup = setup(&["p"]);
    setup.workers[0] = WorkerSpec::new("p", ModelSource::Directory(dir.path().to_owned()));
    setup.workers[0].policies[0].optim.weight_decay = 0.0;
    let fresh = setup.start().policies()[0].clone();
    fresh.update(rows()).await.unwrap();
    assert_eq!(fresh.fingerprint().await.unwrap(), resumed);
}

#[tokio::test]
async fn dropout_masks_go_on_after_a_resume_without_moments_as_without_a_resume() {
    let runtime = adapters::adapters(&["a"], 0.3).start();
    let policy = &runtime.policies()[0];
    let step = async |lr: f64| {
        let batch = Batch { lr, ..batch(given_rows(500, -6.0)) };
        policy.update(batch).await.unwrap().loss
    };
    step(1e-3).await;
    let (one, other) = (step(0.0).await, step(0.0).await);
    assert!(one != other, "equal weights have other masks in another step: {one}");
    let [none, whole] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    policy.save_with(none.path(), SavedMoments::None).await.unwrap();
    // The loss of a step is that of the weights before it, which the moments do not change.
    let uninterrupted = step(1e-3).await;
    policy.load(none.path()).await.unwrap();
    assert_eq!(step(1e-3).await, uninterrupted);
    // Moments that began later are kept with the number of all steps.
    policy.save(whole.path()).await.unwrap();
    let file = whole.path().join("optimizer.safetensors");
    assert!(written(&file).iter().any(|name| name == "steps_taken"));
    let uninterrupted = [step(1e-3).await, step(1e-3).await];
    policy.load(whole.path()).await.unwrap();
    assert_eq!([step(1e-3).await, step(1e-3).await], uninterrupted);
}

#[tokio::test]
async fn a_checkpoint_with_the_moments_of_all_steps_has_no_other_number_of_steps() {
    let runtime = setup(&["p"]).start();
    let policy = &runtime.policies()[0];
    policy.update(batch(given_rows(500, -6.0))).await.unwrap();
    for moments in [SavedMoments::F32, SavedMoments::Bf16] {
        let dir = tempfile::tempdir().unwrap();
        policy.save_with(dir.path(), moments).await.unwrap();
        let names = written(&dir.path().join("optimizer.safetensors"));
        assert!(!names.iter().any(|name| name == "steps_taken"), "{names:?}");
    }
}

#[tokio::test]
async fn moments_of_muon_are_rounded_and_those_in_8_bits_are_written_as_they_are() {
    for (kind, share) in [(OptimizerKind::Muon, 0.5), (OptimizerKind::Adamw8bit, 1.0)] {
        let mut setup = setup(&["p"]);
        setup.workers[0].policies[0].optim.kind = kind;
        let runtime = setup.start();
        let policy = &runtime.policies()[0];
        let rows = || Batch { lr: 1e-3, ..batch(given_rows(500, -6.0)) };
        policy.update(rows()).await.unwrap();
        let dirs = saved_in_all_forms(policy).await;
        let sizes = sizes(&dirs, "optimizer.safetensors");
        println!("{kind:?}: optimizer.safetensors has {sizes:?} bytes");
        assert!((share_of_moments(sizes) - share).abs() < 0.01, "{sizes:?}");
        let left = written(&dirs[2].path().join("optimizer.safetensors"));
        assert_eq!(left, ["counters", "steps_taken"]);
        let mut after = Vec::new();
        for dir in &dirs {
            policy.load(dir.path()).await.unwrap();
            let stats = policy.update(rows()).await.unwrap();
            assert!(stats.loss.is_finite());
            after.push(policy.fingerprint().await.unwrap());
        }
        assert_eq!(after[0] == after[1], share == 1.0, "{kind:?}");
        assert_ne!(after[0], after[2], "{kind:?}");
    }
}

/// Returns every file below a directory by its path.
fn all_files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let inner = all_files(&path).into_iter();
            files.extend(inner.map(|(name, bytes)| (path.join(name), bytes)));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            files.insert(path, bytes);
        }
    }
    let relative = |path: PathBuf| path.strip_prefix(dir).unwrap().to_owned();
    files.into_iter().map(|(path, bytes)| (relative(path), bytes)).collect()
}

#[tokio::test]
async fn a_policy_is_written_from_its_copy_as_it_was_before_the_next_updates() {
    let mut setup = setup(&["p"]);
    let spec = &mut setup.workers[0].policies[0];
    (spec.critic, spec.reference) = (Some(CriticSpec::new(Trunk::Own)), true);
    let runtime = setup.start();
    let policy = &runtime.policies()[0];
    let rows = || Batch { lr: 1e-3, ..batch(given_rows(500, -6.0)) };
    for moments in CHOICES {
        policy.update(rows()).await.unwrap();
        policy.update_critic(ranks::values()).await.unwrap();
        policy.renew_reference().await.unwrap();
        let [direct, copied] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        policy.save_with(direct.path(), moments).await.unwrap();
        let copy = policy.copy_with(copied.path(), moments).await.unwrap();
        let early = all_files(copied.path());
        assert!(early.keys().all(|name| !name.ends_with("model.safetensors")), "{moments:?}");
        policy.update(rows()).await.unwrap();
        policy.update_critic(ranks::values()).await.unwrap();
        let bytes = copy.byte_count();
        std::thread::spawn(move || copy.write()).join().unwrap().unwrap();
        let (direct, copied) = (all_files(direct.path()), all_files(copied.path()));
        assert!(direct.keys().eq(copied.keys()), "{:?} {:?}", direct.keys(), copied.keys());
        for (name, bytes) in &direct {
            assert!(*bytes == copied[name], "{moments:?}: {}", name.display());
        }
        let names = ["model", "critic/model", "critic/value_head", "reference/model"];
        for name in names.map(|name| format!("{name}.safetensors")) {
            assert!(copied.contains_key(Path::new(&name)), "{name}: {:?}", copied.keys());
        }
        let tensors =
            copied.iter().filter(|(name, _)| name.extension().is_some_and(|e| e == "safetensors"));
        let tensors: usize = tensors.map(|(_, bytes)| bytes.len()).sum();
        assert!(
            bytes < tensors as u64 && tensors as u64 - bytes < tensors as u64 / 50,
            "{bytes} {tensors}"
        );
    }
}

/// Updates a policy on two ranks, which have all moments or a half, and returns the file of moments that they save, from a copy
/// or at once.
fn saved_by_two(shard: Shard, moments: SavedMoments, copied: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = setup(&["p"]);
    setup.options.shard = shard;
    let setup = &setup;
    on_ranks(2, |ranks| {
        let runtime = Runtime::start_on(&setup.workers, &setup.options, Some(&ranks)).unwrap();
        let policy = runtime.policies()[0].clone();
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio.block_on(policy.update(batch(given_rows(500, -6.0)))).unwrap();
        let saved = match (ranks.rank(), copied) {
            (0, false) => tokio.block_on(policy.save_with(dir.path(), moments)),
            (0, true) => {
                tokio.block_on(policy.copy_with(dir.path(), moments)).and_then(PolicyCopy::write)
            }
            _ => tokio.block_on(policy.share()),
        };
        saved.unwrap();
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    });
    std::fs::read(dir.path().join("optimizer.safetensors")).unwrap()
}

#[test]
fn ranks_that_divide_moments_write_the_file_of_those_that_do_not_in_every_form() {
    for moments in CHOICES {
        let ways = [(Shard::None, false), (Shard::Optimizer, false), (Shard::Optimizer, true)];
        let [whole, divided, copied] =
            ways.map(|(shard, copied)| saved_by_two(shard, moments, copied));
        assert!(whole == divided && whole == copied, "{moments:?}");
    }
}

#[tokio::test]
#[ignore = "minutes, 16 GB of memory and 7 of disk; prints times"]
async fn a_checkpoint_of_half_a_billion_parameters_has_at_most_4_gb_with_moments_in_bf16() {
    let dir = tempfile::tempdir().unwrap();
    let shape = *SHAPES.iter().find(|shape| shape.name == "qwen2.5-0.5b").unwrap();
    let parameters = blank_model(dir.path(), shape, StoredDtype::Bf16, 3).unwrap();
    let mut setup = setup(&["p"]);
    setup.workers[0] = WorkerSpec::new("p", ModelSource::Directory(dir.path().to_owned()));
    let runtime = setup.start();
    let policy = &runtime.policies()[0];
    let row = given_rows(500, -6.0).remove(8);
    policy.update(batch(vec![row])).await.unwrap();
    for moments in CHOICES {
        for memory in ["new memory, if there is none yet", "memory of the copy before"] {
            let out = tempfile::tempdir().unwrap();
            let began = Instant::now();
            let copy = policy.copy_with(out.path(), moments).await.unwrap();
            let copied = began.elapsed().as_secs_f64();
            copy.write().unwrap();
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "{moments:?}, {memory}: copied in {copied:.2} s, written after {seconds:.2} s"
            );
        }
        let out = tempfile::tempdir().unwrap();
        let began = Instant::now();
        policy.save_with(out.path(), moments).await.unwrap();
        let seconds = began.elapsed().as_secs_f64();
        let files = ["model.safetensors", "optimizer.safetensors"];
        let bytes = files.map(|file| std::fs::metadata(out.path().join(file)).unwrap().len());
        let bytes: u64 = bytes.iter().sum();
        println!("{parameters} parameters, {moments:?}: {bytes} bytes in {seconds:.2} s");
        assert!(moments == SavedMoments::F32 || bytes <= 4_000_000_000, "{bytes}");
    }
}
