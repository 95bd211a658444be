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
