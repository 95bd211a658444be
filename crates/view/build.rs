//! Packs the scripts and styles of `maverl view` into one file, which the program contains.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    pack("web")?;
    Ok(())
}

/// Writes the files of a directory to `$OUT_DIR/web.gz`: name, NUL, content, NUL.
fn pack(web: &str) -> std::io::Result<()> {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::path::{Path, PathBuf};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    println!("cargo::rerun-if-changed={web}");
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let mut packed =
        GzEncoder::new(File::create(Path::new(&out).join("web.gz"))?, Compression::best());
    let files: std::io::Result<Vec<PathBuf>> =
        fs::read_dir(web)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut files = files?;
    files.sort();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Types are for the checker of the scripts.
        if !name.ends_with(".d.ts") {
            write!(packed, "{name}\0{}\0", fs::read_to_string(&path)?)?;
        }
    }
    packed.finish()?;
    Ok(())
}
