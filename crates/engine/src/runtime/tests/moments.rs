use super::*;

/// Returns the names of the tensors in the file of moments.
fn written(dir: &std::path::Path) -> Vec<String> {
    let bytes = std::fs::read(dir.join("optimizer.safetensors")).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let head: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    head.as_object().unwrap().keys().filter(|name| *name != "__metadata__").cloned().collect()
}

#[tokio::test]
async fn moments_before_the_first_step_are_zero_and_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = setup(&["p"]).start();
    let policy = &runtime.policies()[0];
    let completion = policy.generate(request(1)).await.unwrap();
    let rows = vec![row(&completion, request(1).prompt, 1.0)];
    policy.save(dir.path()).await.unwrap();
    assert_eq!(written(dir.path()), ["counters"]);
    policy.update(batch(rows.clone())).await.unwrap();
    let once = policy.fingerprint().await.unwrap();
    policy.update(batch(rows.clone())).await.unwrap();
    assert_ne!(policy.fingerprint().await.unwrap(), once);
    // The state before the first step returns, whatever the moments are by now.
    policy.load(dir.path()).await.unwrap();
    policy.update(batch(rows)).await.unwrap();
    assert_eq!(policy.fingerprint().await.unwrap(), once);
    policy.save(dir.path()).await.unwrap();
    assert!(written(dir.path()).iter().any(|name| name.starts_with("m.")), "after a step");
}

#[tokio::test]
async fn moments_in_bf16_take_half_of_the_bytes_and_without_moments_the_optimizer_begins_again() {
    let runtime = setup(&["p"]).start();
    let policy = &runtime.policies()[0];
    let completion = policy.generate(request(1)).await.unwrap();
    let rows = vec![row(&completion, request(1).prompt, 1.0)];
    policy.update(batch(rows.clone())).await.unwrap();
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let saved = [SavedMoments::F32, SavedMoments::Bf16, SavedMoments::None];
    for (dir, saved) in dirs.iter().zip(saved) {
        policy.save_with(dir.path(), saved).await.unwrap();
    }
    let [whole, half, none] = dirs
        .each_ref()
        .map(|dir| std::fs::metadata(dir.path().join("optimizer.safetensors")).unwrap().len());
    assert_eq!(written(dirs[0].path()), written(dirs[1].path()));
    assert_eq!(written(dirs[2].path()), ["counters"]);
    let moments = |all: u64| all as f64 / (whole - none) as f64;
    println!("optimizer.safetensors has {whole}, {half} and {none} bytes");
    assert!((moments(half - none) - 0.5).abs() < 0.01);
    let mut after = Vec::new();
    for dir in &dirs {
        policy.load(dir.path()).await.unwrap();
        assert_eq!(policy.version().await.unwrap(), 1, "all know the number of updates");
        policy.update(batch(rows.clone())).await.unwrap();
        after.push(policy.fingerprint().await.unwrap());
    }
    // Other moments, other weights.
    after.dedup();
    assert_eq!(after.len(), 3);
}
