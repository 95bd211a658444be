//! Models embedded in the library.

/// Names that `path = "builtin:NAME"` may have.
pub const NAMES: &[&str] = &["tiny", "generalist"];

/// Files of an embedded model directory.
pub const FILES: &[&str] = &[
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

macro_rules! embedded {
    ($name:literal) => {
        &[
            include_bytes!(concat!("../../models/", $name, "/config.json")) as &[u8],
            include_bytes!(concat!("../../models/", $name, "/generation_config.json")),
            include_bytes!(concat!("../../models/", $name, "/model.safetensors")),
            include_bytes!(concat!("../../models/", $name, "/tokenizer.json")),
            include_bytes!(concat!("../../models/", $name, "/tokenizer_config.json")),
        ]
    };
}

/// Returns a file of an embedded model.
pub fn file(model: &str, name: &str) -> Option<&'static [u8]> {
    let files: &[&'static [u8]] = match model {
        "tiny" => embedded!("tiny"),
        "generalist" => embedded!("generalist"),
        _ => return None,
    };
    let index = FILES.iter().position(|file| *file == name)?;
    files.get(index).copied()
}
