#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::net::tests::fixture;

fn config(name: &str) -> HfConfig {
    let path = fixture("families").join(name).join("config.json");
    HfConfig::parse(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_tensors_of_a_model_fill_those_of_files_of_every_layout_without_gaps() {
    for (name, layouts) in [
        ("qwen3_moe", [ExpertLayout::Each, ExpertLayout::Stacked]),
        ("qwen3_5_moe", [ExpertLayout::Each, ExpertLayout::Stacked]),
        ("gpt_oss", [ExpertLayout::ByInputs, ExpertLayout::Blocks]),
    ] {
        let config = config(name);
        for layout in layouts {
            let mut filled: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for (name, dims) in config.tensors() {
                let part = config.stored_part(layout, &name, &dims);
                let numbers = part.shape.iter().product();
                let filled = filled.entry(part.name.clone()).or_insert_with(|| vec![0; numbers]);
                part.each_number(&dims, |_, stored| filled[stored] += 1);
            }
            assert!(filled.values().flatten().all(|count| *count == 1), "{name}, {layout:?}");
        }
    }
}

/// Returns the stored tensor of a tensor of the model, and the index there of one of its numbers.
fn first_number(
    config: &HfConfig,
    layout: ExpertLayout,
    name: &str,
    dims: &[usize],
    index: usize,
) -> (String, usize) {
    let (part, mut found) = (config.stored_part(layout, name, dims), 0);
    part.each_number(dims, |own, stored| {
        if own == index {
            found = stored;
        }
    });
    (part.name, found)
}

#[test]
fn gates_and_ups_are_where_each_layout_has_them() {
    let config = config("gpt_oss");
    let gate = "model.layers.0.mlp.experts.1.gate_proj.weight";
    // Row 2, column 3 of the second of four experts: D = F = 32.
    let index = 2 * 32 + 3;
    let stored = "model.layers.0.mlp.experts.gate_up_proj".to_owned();
    assert_eq!(
        first_number(&config, ExpertLayout::ByInputs, gate, &[32, 32], index),
        (stored.clone(), 32 * 64 + 3 * 64 + 4)
    );
    assert_eq!(
        first_number(&config, ExpertLayout::Blocks, gate, &[32, 32], index),
        (stored.clone(), 64 * 32 + 4 * 32 + 3)
    );
    assert_eq!(
        first_number(&config, ExpertLayout::Stacked, gate, &[32, 32], index),
        (stored, 64 * 32 + 2 * 32 + 3)
    );
    let up = gate.replace("gate_proj.weight", "up_proj.bias");
    assert_eq!(
        first_number(&config, ExpertLayout::ByInputs, &up, &[32], 5),
        ("model.layers.0.mlp.experts.gate_up_proj_bias".to_owned(), 64 + 11)
    );
}

#[test]
fn tensors_are_written_under_the_names_of_their_checkpoints() {
    for name in ["qwen3_moe", "gpt_oss", "gemma2"] {
        let file = fixture("families").join(name).join("model.safetensors");
        let shards = crate::files::Shards::open_file(&file).unwrap();
        let stored = config(name).stored_tensors();
        assert_eq!(stored.len(), shards.names().count(), "{name}");
        for (tensor, dims) in stored {
            assert_eq!(shards.shape(&tensor), Some(dims), "{name}, `{tensor}`");
        }
    }
}
