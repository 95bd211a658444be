//! Adapters of experts: their names, results, gradients and files.

use super::reference::apart;
use super::*;
use crate::net::lora::{Patterns, linear_names, with_dropout};
use crate::net::values::Params;

/// Families whose experts have adapters.
const NAMES: [&str; 2] = ["qwen3_moe", "qwen3_5_moe"];

pub(super) fn load(name: &str) -> Model {
    let source = ModelSource::Directory(fixture("families").join(name));
    Model::load(&ModelFiles::new(&source)).unwrap()
}

/// Returns a configuration with some targets, and another rank for the last maps of experts.
fn config(targets: &[&str]) -> LoraConfig {
    LoraConfig {
        rank: 2,
        alpha: 4.0,
        dropout: 0.0,
        target_modules: targets.iter().map(|&target| target.to_owned()).collect(),
        rslora: false,
        patterns: Patterns {
            rank_pattern: vec![(r"experts\.\d+\.down_proj".to_owned(), 3)],
            ..Patterns::default()
        },
    }
}

const EXPERTS: [&str; 4] = ["down_proj", "gate_proj", "q_proj", "up_proj"];

/// Gives parameters values that change results.
pub(super) fn perturb(params: &Params, seed: u64) {
    for (index, (_, var)) in params.vars().iter().enumerate() {
        let stream = derive_seed(seed, index as u64);
        let draw = |i: usize| 0.4 * uniform_number(stream, i as u64) as f32 - 0.2;
        var.set(&(0..var.elem_count()).map(draw).collect::<Vec<f32>>()).unwrap();
    }
}

/// Returns a model under an adapter that corrects experts among others.
fn adapted(base: &Model) -> Model {
    let model = base.with_adapter(Adapter::new(&base.config, config(&EXPERTS), 1).unwrap());
    perturb(model.trainable(), 5);
    model
}

pub(super) fn some_rows() -> Vec<Vec<u32>> {
    [40, 3, 17].map(|n: u32| (0..n).map(|t| (n * 7 + t * t * 5 + t) % 280).collect()).to_vec()
}

pub(super) fn bits(logits: &[Vec<f32>]) -> Vec<u32> {
    logits.iter().flatten().map(|x| x.to_bits()).collect()
}

#[test]
fn all_linear_leaves_experts_out_and_their_maps_are_named_by_their_ends() {
    let dense =
        ["k_proj", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "o_proj", "q_proj", "v_proj"];
    assert_eq!(linear_names(&load("qwen3_moe").config), dense);
    let names = linear_names(&load("qwen3_5_moe").config);
    for name in ["mlp.shared_expert.gate_proj", "shared_expert_gate", "in_proj_qkv", "q_proj"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    for name in NAMES {
        let base = load(name).config;
        let of_experts = |targets: &[&str]| {
            let targets = config(targets).targets(&base).unwrap();
            targets.iter().filter(|target| target.name.contains(".experts.")).count()
        };
        let experts = base.layers[0].mlp.experts().unwrap().router.experts;
        let all = linear_names(&base);
        assert_eq!(of_experts(&all.iter().map(String::as_str).collect::<Vec<_>>()), 0, "{name}");
        assert_eq!(of_experts(&["gate_proj"]), 2 * experts, "{name}");
        assert_eq!(of_experts(&["experts.1.up_proj"]), 2, "{name}");
        let expression = |text: &str| LoraConfig {
            target_modules: Vec::new(),
            patterns: Patterns { target_modules: Some(text.to_owned()), ..Patterns::default() },
            ..config(&[])
        };
        let chosen = expression(r".*\.experts\.[02]\..*").targets(&base).unwrap();
        assert_eq!(chosen.len(), 2 * 2 * 3, "{name}");
        let chosen = expression("all-linear").targets(&base).unwrap();
        assert!(chosen.iter().all(|target| !target.name.contains(".experts.")), "{name}");
        for target in ["gate", "experts", "proj", "experts.99.up_proj"] {
            let refused = config(&[target]).targets(&base).unwrap_err().to_string();
            assert!(refused.contains("`up_proj` of experts (`experts.0.down_proj`"), "{refused}");
            assert!(refused.contains("routers have no adapters"), "{refused}");
        }
    }
    let base = load("gpt_oss").config;
    assert_eq!(linear_names(&base), ["k_proj", "o_proj", "q_proj", "v_proj"]);
    for target in ["experts.0.down_proj", "gate_proj", "router"] {
        let refused = config(&[target]).targets(&base).unwrap_err().to_string();
        assert!(refused.contains("`gate_up_proj` and `down_proj` of all experts"), "{refused}");
    }
}

#[test]
fn an_adapter_of_experts_is_merged_and_written_under_the_names_of_peft_and_read_back() {
    for name in NAMES {
        let base = load(name);
        let model = adapted(&base);
        let of = |model: &Model| packed_logits(model, &some_rows()).concat().concat();
        let (merged, _) = model.merge().unwrap();
        assert!(furthest(&of(&merged), &of(&model)) <= 2e-4, "{name}");
        assert!(furthest(&of(&base), &of(&model)) > 1e-2, "{name}");
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path()).unwrap();
        let file = dir.path().join("adapter_model.safetensors");
        let shards = crate::files::Shards::open_file(&file).unwrap();
        let prefix = if name == "qwen3_moe" { "model" } else { "model.language_model" };
        let tensor =
            |map: &str| format!("base_model.model.{prefix}.layers.0.mlp.experts.1.{map}.weight");
        assert_eq!(shards.shape(&tensor("gate_proj.lora_A")), Some(vec![2, 32]), "{name}");
        assert_eq!(shards.shape(&tensor("up_proj.lora_B")), Some(vec![12, 2]), "{name}");
        assert_eq!(shards.shape(&tensor("down_proj.lora_A")), Some(vec![3, 12]), "{name}");
        let text = std::fs::read_to_string(dir.path().join("adapter_config.json")).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["target_modules"], json!(EXPERTS), "{name}");
        assert_eq!(json["rank_pattern"], json!({r"experts\.\d+\.down_proj": 3}), "{name}");
        let again = base.load_adapter(dir.path()).unwrap();
        assert_eq!(again.fingerprint(), model.fingerprint(), "{name}");
        let parameters: usize = model.trainable().vars().iter().map(|(_, v)| v.elem_count()).sum();
        let planned = config(&EXPERTS).parameters(&base.config).unwrap();
        assert_eq!(planned, parameters as u64, "{name}");
        // PEFT's form for fused experts is another adapter.
        let fused = text.replacen('{', "{\"target_parameters\": [\"mlp.experts.down_proj\"],", 1);
        let fused = LoraConfig::parse(fused.as_bytes()).unwrap();
        let refused = fused.targets(&base.config).unwrap_err().to_string();
        assert!(refused.contains("`target_parameters` has \"mlp.experts.down_proj\""), "{refused}");
        assert!(refused.ends_with("this model has none"), "{refused}");
    }
}

#[test]
fn gradients_of_an_adapter_of_experts_are_those_of_the_weights_through_its_product() {
    for name in NAMES {
        let model = adapted(&load(name));
        let (merged, _) = model.merge().unwrap();
        let packed = pack(&some_rows());
        let n = packed.ids.len();
        let targets: Vec<u32> = (0..n as u32).map(|i| (i * 13 + 5) % 280).collect();
        let dlogp: Vec<f32> = (0..n).map(|i| 0.5 - (i % 4) as f32).collect();
        let found = gradients_of(&model, &packed, &targets, &dlogp);
        let found = found.sums().unwrap();
        let whole = gradients_of(&merged, &packed, &targets, &dlogp);
        let whole = whole.sums().unwrap();
        let vars = model.trainable().vars();
        let mut of_experts = 0;
        for (index, pair) in vars.chunks_exact(2).enumerate() {
            let module = pair[0].0.strip_suffix(".lora_A.weight").unwrap();
            let weight = model.config.names.weight_of_module(module);
            let slot = model.weights.vars().iter().position(|(name, _)| *name == weight).unwrap();
            let (a, b, dw) = (pair[0].1.to_vec(), pair[1].1.to_vec(), whole[slot]);
            let ([r, i], o) = ([pair[0].1.dims()[0], pair[0].1.dims()[1]], pair[1].1.dims()[0]);
            let scale = 4.0 / r as f64;
            let (mut da, mut db) = (vec![0.0; r * i], vec![0.0; o * r]);
            for (row, dw) in dw.chunks_exact(i).enumerate() {
                for (rank, (column, dw)) in
                    (0..r).flat_map(|r| dw.iter().enumerate().map(move |x| (r, x)))
                {
                    da[rank * i + column] += scale * f64::from(b[row * r + rank] * dw);
                    db[row * r + rank] += scale * f64::from(dw * a[rank * i + column]);
                }
            }
            for (found, wanted) in [(found[2 * index], da), (found[2 * index + 1], db)] {
                let wanted: Vec<f32> = wanted.into_iter().map(|x| x as f32).collect();
                if wanted.iter().all(|x| *x == 0.0) {
                    assert!(found.iter().all(|x| *x == 0.0), "{module}");
                    continue;
                }
                let off = apart(found, &wanted);
                assert!(off <= 1e-4, "{name}, {module}: {off:e}");
                of_experts += usize::from(module.contains(".experts."));
            }
        }
        println!("{name}: {of_experts} matrices of experts compared");
        assert!(of_experts > 40, "{name}: {of_experts}");
    }
}

#[test]
fn a_row_under_an_adapter_of_experts_has_the_same_bits_alone_packed_and_token_by_token() {
    for name in NAMES {
        let model = adapted(&load(name));
        let rows = some_rows();
        let packed = packed_logits(&model, &rows);
        for (row, packed) in rows.iter().zip(&packed) {
            let alone = packed_logits(&model, std::slice::from_ref(row)).remove(0);
            assert_eq!(bits(&alone), bits(packed), "{name}");
        }
        for is_packed in [false, true] {
            if is_packed {
                model.decoder.pack();
            }
            let mut caches = Caches::new(&model, 1);
            let tokens = rows[0].iter().map(|&id| cached_logits(&model, &mut caches, &[vec![id]]));
            let found: Vec<Vec<f32>> = tokens.flat_map(|mut logits| logits.remove(0)).collect();
            assert_eq!(bits(&found), bits(&packed[0]), "{name}, token by token");
        }
        model.decoder.unpack();
    }
}

#[test]
fn dropout_of_experts_depends_on_the_token_and_not_on_what_shares_its_experts() {
    let model = adapted(&load("qwen3_moe"));
    let rows = some_rows();
    let packed = pack(&rows);
    let keys: Vec<u64> = (0..packed.ids.len() as u64).map(|key| key * 31 + 7).collect();
    let dropped = |packed: &PackedRows, keys: &[u64]| {
        let decoder = with_dropout(&model.decoder, 0.5, &keys.to_vec().into());
        logits_of(&decoder, packed)
    };
    let all = dropped(&packed, &keys);
    assert_ne!(all, logits_of(&model.decoder, &packed));
    for (row, at) in rows.iter().zip(packed.offsets.windows(2)) {
        let alone = dropped(&pack(std::slice::from_ref(row)), &keys[at[0]..at[1]]);
        let own = at[0] * model.config.vocab_size..at[1] * model.config.vocab_size;
        assert!(alone == all[own], "a mask depends on other rows");
    }
    let experts: Vec<&str> = ["gate_proj", "up_proj", "down_proj"].to_vec();
    let config = LoraConfig { patterns: Patterns::default(), ..config(&experts) };
    let alone = load("qwen3_moe");
    let alone = alone.with_adapter(Adapter::new(&alone.config, config, 1).unwrap());
    perturb(alone.trainable(), 3);
    let decoder = with_dropout(&alone.decoder, 0.5, &keys.into());
    assert_ne!(logits_of(&decoder, &packed), logits_of(&alone.decoder, &packed));
}

#[test]
fn experts_without_tokens_leave_their_adapters_a_gradient_of_zero() {
    let model = adapted(&load("qwen3_moe"));
    let gradients = gradients_of(&model, &pack(&[vec![7]]), &[3], &[1.0]);
    let sums = gradients.sums().unwrap();
    let vars = model.trainable().vars().iter().zip(&sums);
    let of_experts = vars.filter(|((name, _), _)| name.contains(".experts."));
    let zero = of_experts.filter(|(_, sum)| sum.iter().all(|x| *x == 0.0)).count();
    // Three maps of two matrices, of three experts in two layers.
    assert_eq!(zero, 3 * 2 * 3 * 2);
}
