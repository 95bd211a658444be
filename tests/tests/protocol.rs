//! Generated code of the gRPC protocol, which is checked in.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use sha2::{Digest as _, Sha256};

#[test]
fn the_code_of_the_protocol_was_generated_from_its_file() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../maverl/src/env/grpc");
    let digests = std::fs::read_to_string(dir.join("generated.sha256")).unwrap();
    let names: Vec<&str> = digests.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    assert_eq!(
        names,
        ["environment.proto", "maverl.environment.v1.rs", "maverl.environment.v1.binpb"]
    );
    for line in digests.lines() {
        let (wanted, name) = line.split_once("  ").unwrap();
        let digest = Sha256::digest(std::fs::read(dir.join(name)).unwrap());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, wanted, "{name} was changed; `just protocol` generates the code again");
    }
}
