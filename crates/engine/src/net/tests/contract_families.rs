//! Families whose parts the kernels of a GPU have, on the emulated machine and on the CPU.

use maverl_kernels::cuda::Emulated;

use super::contract::{
    Next, OnDevice, Tested, a_row_has_its_bits, apart, coarse, emulated, some_rows,
};
use super::*;
use crate::net::ops::device::{Device, unsupported_reasons};

/// A family, and sizes of a small model whose heads the kernels have.
type Sizes = (&'static str, &'static [(&'static str, u64)]);

const FAMILIES: [Sizes; 14] = [
    ("smollm3", &[("hidden_size", 64), ("num_attention_heads", 2), ("num_hidden_layers", 4)]),
    ("mistral", &[("head_dim", 32), ("sliding_window", 9)]),
    ("ministral", &[("head_dim", 64)]),
    ("ministral3", &[("head_dim", 32)]),
    ("gemma2", &[("head_dim", 256), ("num_attention_heads", 2), ("num_key_value_heads", 1)]),
    ("gemma3", &[("head_dim", 32)]),
    ("gemma3_text", &[("head_dim", 128)]),
    ("olmo3", &[("hidden_size", 64), ("num_attention_heads", 2), ("num_key_value_heads", 1)]),
    ("phi3", &[("hidden_size", 192), ("num_attention_heads", 2), ("num_key_value_heads", 1)]),
    ("qwen3_moe", &[("head_dim", 32), ("moe_intermediate_size", 16)]),
    ("gpt_oss", &[("head_dim", 64)]),
    ("lfm2", &[("hidden_size", 64), ("num_attention_heads", 2), ("num_key_value_heads", 1)]),
    ("qwen3_5_text", &[]),
    ("qwen3_5_moe", &[("moe_intermediate_size", 16), ("shared_expert_intermediate_size", 16)]),
];

/// Returns the configuration of a family with sizes.
fn sized(name: &str, sizes: &[(&str, u64)]) -> Value {
    let text = std::fs::read(fixture("families").join(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    let nested = config.get("text_config").is_some();
    let own = if nested { &mut config["text_config"] } else { &mut config };
    for (key, size) in sizes {
        own[*key] = (*size).into();
    }
    if name == "phi3" {
        // Factors of three quarters of a head of 96.
        for (list, factor) in [("short_factor", 1.0), ("long_factor", 1.5)] {
            own["rope_parameters"][list] = vec![factor; 36].into();
        }
    }
    config
}

/// Writes a small model of a listed family to a directory.
pub(crate) fn write_model(name: &str, dir: &Path) {
    let (_, sizes) = FAMILIES.iter().find(|(found, _)| *found == name).unwrap();
    let config = sized(name, sizes);
    let read = |file: &str| std::fs::read(fixture("families").join(name).join(file)).unwrap();
    let files = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"];
    let companions = files.into_iter().map(|file| (file.to_owned(), read(file)));
    let text = config.to_string().into_bytes();
    let companions = companions.chain([("config.json".to_owned(), text.clone())]).collect();
    let weights = coarse(&config).weights;
    let model = Model::new(HfConfig::parse(&text).unwrap(), weights, companions).unwrap();
    model.save(dir).unwrap();
}

fn models() -> Vec<(&'static str, Model)> {
    FAMILIES.iter().map(|(name, sizes)| (*name, coarse(&sized(name, sizes)))).collect()
}

#[test]
fn every_listed_family_runs_on_a_device() {
    for (name, model) in models() {
        assert_eq!(unsupported_reasons(&model.config), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn log_probs_and_gradients_of_families_agree_with_the_cpu() {
    let Some(device) = emulated() else { return };
    let cpu = Cpu::default();
    for (name, model) in models() {
        // Rounding may change the choice of a router.
        let next = Next::of(&some_rows()).with_routes_of(&model);
        let on_cpu = OnDevice::new(&cpu, &model);
        let (expected, wanted) = next.backward(&cpu, &on_cpu.decoder, &on_cpu.params, false);
        let on_device = OnDevice::new(&device, &model);
        let (found, gradients) =
            next.backward(&device, &on_device.decoder, &on_device.params, false);
        let off = f64::from(furthest(&found, &expected));
        let (mut worst, mut of) = (0.0_f64, "");
        let vars = on_cpu.params.vars().iter();
        for ((parameter, _), (found, wanted)) in vars.zip(gradients.iter().zip(&wanted)) {
            let wanted: Vec<f64> = wanted.iter().map(|x| f64::from(*x)).collect();
            if wanted.iter().all(|x| *x == 0.0) {
                assert!(found.iter().all(|x| *x == 0.0), "{name}, {parameter}");
                continue;
            }
            let apart = apart(found, &wanted);
            if apart > worst {
                (worst, of) = (apart, parameter);
            }
        }
        println!("{name}: log-probs differ by {off:.1e}, gradients by {worst:.1e} ({of})");
        assert!(off <= Device::<Emulated>::LOGPROB, "{name}: {off:e}");
        assert!(worst <= Device::<Emulated>::GRADIENT, "{name}, {of}: {worst:e}");
    }
}

#[test]
fn a_row_of_a_family_has_the_same_bits_alone_packed_and_in_chunks_from_a_cache() {
    let Some(device) = emulated() else { return };
    for (name, model) in models() {
        println!("{name}");
        a_row_has_its_bits(&device, &model);
    }
}

#[test]
fn a_layer_of_a_family_computed_again_gives_the_bits_of_a_kept_one() {
    let Some(device) = emulated() else { return };
    let next = Next::of(&some_rows());
    for (name, model) in models() {
        let OnDevice { params, decoder } = OnDevice::new(&device, &model);
        let kept = next.backward(&device, &decoder, &params, false);
        assert!(next.backward(&device, &decoder, &params, true) == kept, "{name}");
    }
}
