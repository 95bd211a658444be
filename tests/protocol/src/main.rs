//! Generates the code and the descriptors of `maverl/src/env/grpc/environment.proto`, and the digests of these three files.

use std::error::Error;
use std::fs;
use std::path::Path;

use protox::Compiler;
use sha2::{Digest as _, Sha256};

/// The protocol, its code, and its descriptors.
const FILES: [&str; 3] =
    ["environment.proto", "maverl.environment.v1.rs", "maverl.environment.v1.binpb"];

fn main() -> Result<(), Box<dyn Error>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../maverl/src/env/grpc");
    let mut commented = Compiler::new([&dir])?;
    commented.include_source_info(true).open_file(FILES[0])?;
    let generate = tonic_prost_build::configure().build_transport(false).out_dir(&dir);
    generate.compile_fds(commented.file_descriptor_set())?;
    let mut plain = Compiler::new([&dir])?;
    plain.open_file(FILES[0])?;
    fs::write(dir.join(FILES[2]), plain.encode_file_descriptor_set())?;
    let mut digests = String::new();
    for name in FILES {
        let digest = Sha256::digest(fs::read(dir.join(name))?);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        digests += &format!("{digest}  {name}\n");
    }
    fs::write(dir.join("generated.sha256"), digests)?;
    Ok(())
}
