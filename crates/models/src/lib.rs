//! The models that ship with maverl, as data: names, files, license, origin.
//!
//! Each folder of this crate is a model directory in the format of Hugging Face. The library `maverl-engine` reads them as
//! `builtin:NAME` with its feature `models`. The version of this crate is that of the files.
//!
//! ```
//! let config = maverl_models::model_file("tiny", "config.json").unwrap();
//! assert!(config.starts_with(b"{"));
//! assert!(maverl_models::model_card("tiny").unwrap().starts_with("# `builtin:tiny`"));
//! ```

/// Names of the models.
pub const NAMES: &[&str] = &["tiny", "generalist"];

/// Names of the files that each model has.
pub const FILES: &[&str] = &[
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// License of the models, as an SPDX expression. They were trained on generated texts alone.
pub const LICENSE: &str = env!("CARGO_PKG_LICENSE");

/// Files of a model, in the order of [`FILES`], and its card.
struct ShippedModelFiles {
    files: [&'static [u8]; 5],
    card: &'static str,
}

macro_rules! shipped {
    ($name:literal) => {
        ShippedModelFiles {
            files: [
                include_bytes!(concat!("../", $name, "/config.json")),
                include_bytes!(concat!("../", $name, "/generation_config.json")),
                include_bytes!(concat!("../", $name, "/model.safetensors")),
                include_bytes!(concat!("../", $name, "/tokenizer.json")),
                include_bytes!(concat!("../", $name, "/tokenizer_config.json")),
            ],
            card: include_str!(concat!("../", $name, "/README.md")),
        }
    };
}

/// The models, in the order of [`NAMES`].
static SHIPPED: [ShippedModelFiles; 2] = [shipped!("tiny"), shipped!("generalist")];

/// Returns the content of a file of a model; `None` for a model or a file that there is not.
pub fn model_file(model: &str, name: &str) -> Option<&'static [u8]> {
    let index = FILES.iter().position(|file| *file == name)?;
    Some(find_shipped(model)?.files[index])
}

/// Returns the card of a model in Markdown: its shape, and how it was made from which texts.
pub fn model_card(model: &str) -> Option<&'static str> {
    Some(find_shipped(model)?.card)
}

fn find_shipped(model: &str) -> Option<&'static ShippedModelFiles> {
    SHIPPED.get(NAMES.iter().position(|name| *name == model)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_model_has_its_files_and_says_where_it_is_from() {
        for name in NAMES {
            for file_name in FILES {
                assert!(!model_file(name, file_name).unwrap().is_empty(), "{name}/{file_name}");
            }
            let origin = model_card(name).unwrap();
            assert!(origin.starts_with(&format!("# `builtin:{name}`\n")), "{origin}");
            assert!(origin.contains(&format!("License: {LICENSE}")), "{origin}");
        }
        assert_ne!(
            model_file("tiny", "model.safetensors"),
            model_file("generalist", "model.safetensors")
        );
    }

    #[test]
    fn there_is_nothing_of_other_names() {
        assert_eq!((model_file("small", "config.json"), model_card("small")), (None, None));
        assert_eq!(model_file("tiny", "README.md"), None);
    }

    #[test]
    fn what_is_published_stays_below_the_limit_of_the_registry() {
        let sizes =
            NAMES.iter().flat_map(|name| FILES.iter().filter_map(|part| model_file(name, part)));
        assert!(sizes.map(<[u8]>::len).sum::<usize>() < 8_000_000);
    }
}
