//! Adapters of experts that are one tensor for all experts of a layer (gpt-oss): results, gradients and files.

use super::expert_adapters::{bits, load, perturb, some_rows};
use super::reference::apart;
use super::*;
use crate::files::Shards;
use crate::net::lora::{Patterns, split_targets};

/// Rank and scale of the corrections of `down_proj`, and of the others.
const RANKS: [usize; 2] = [3, 2];
const SCALES: [f32; 2] = [4.0 / 3.0, 2.0];

fn config(parameters: &[&str]) -> LoraConfig {
    LoraConfig {
        rank: RANKS[1],
        alpha: 4.0,
        dropout: 0.0,
        target_modules: vec!["q_proj".to_owned()],
        rslora: false,
        patterns: Patterns {
            rank_pattern: vec![(r"experts\.down_proj".to_owned(), RANKS[0])],
            target_parameters: parameters.iter().map(|&name| name.to_owned()).collect(),
            ..Patterns::default()
        },
    }
}

/// Returns a model under an adapter that corrects its experts.
fn adapted(base: &Model, parameters: &[&str]) -> Model {
    let adapter = Adapter::new(&base.config, config(parameters), 1).unwrap();
    let model = base.with_adapter(adapter);
    perturb(model.trainable(), 5);
    model
}

const BOTH: [&str; 2] = ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"];

/// Reads a tensor of a directory with its dimensions.
fn read(dir: &std::path::Path, file: &str, name: &str) -> (Vec<f32>, Vec<usize>) {
    let shards = Shards::open_file(&dir.join(file)).unwrap();
    let shape = shards.shape(name).unwrap_or_else(|| panic!("{name} in {file}"));
    let mut values = vec![0.0; shape.iter().product()];
    shards.fill(name, &shape, &mut values).unwrap();
    (values, shape)
}

#[test]
fn an_adapter_of_expert_tensors_is_written_as_peft_multiplies_it_and_read_back() {
    let base = load("gpt_oss");
    let [base_dir, merged_dir] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    base.save(base_dir.path()).unwrap();
    for (parameters, holders) in [
        (&BOTH[..], [Some("experts"), Some("experts.base_layer")]),
        (&BOTH[..1], [Some("experts"), None]),
        (&BOTH[1..], [None, Some("experts")]),
    ] {
        let model = adapted(&base, parameters);
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("adapter_config.json")).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["target_parameters"], json!(parameters));
        assert_eq!(json["target_modules"], json!(["q_proj"]));
        let again = base.load_adapter(dir.path()).unwrap();
        assert_eq!(again.fingerprint(), model.fingerprint());
        let parameter_count: usize =
            model.trainable().vars().iter().map(|(_, var)| var.elem_count()).sum();
        let planned = config(parameters).parameters(&base.config).unwrap();
        assert_eq!(planned, parameter_count as u64);

        let (merged, _) = model.merge().unwrap();
        merged.save(merged_dir.path()).unwrap();
        let of = |model: &Model| packed_logits(model, &some_rows()).concat().concat();
        assert!(furthest(&of(&merged), &of(&model)) <= 2e-4);
        assert!(furthest(&of(&base), &of(&model)) > 1e-2);
        for (which, (tensor, holder)) in
            ["down_proj", "gate_up_proj"].iter().zip(holders).enumerate()
        {
            let name = format!("model.layers.1.mlp.experts.{tensor}");
            let (before, shape) = read(base_dir.path(), "model.safetensors", &name);
            let (after, _) = read(merged_dir.path(), "model.safetensors", &name);
            let Some(holder) = holder else {
                assert_eq!(before, after);
                continue;
            };
            let factor = |end: &str| {
                let name = format!("base_model.model.model.layers.1.mlp.{holder}.{end}.weight");
                read(dir.path(), "adapter_model.safetensors", &name)
            };
            let ((a, of_a), (b, of_b)) = (factor("lora_A"), factor("lora_B"));
            let ([e, i, o], r) = ([shape[0], shape[1], shape[2]], RANKS[which]);
            assert_eq!((of_a, of_b), (vec![r * e, i], vec![o, r * e]));
            // torch.einsum("o r e, e r i -> e i o", B.reshape(o, r, e), A.reshape(e, r, i)) of peft's `ParamWrapper`.
            for (at, (before, after)) in before.iter().zip(&after).enumerate() {
                let (expert, input, output) = (at / (i * o), at / o % i, at % o);
                let term = |rank: usize| {
                    b[output * r * e + rank * e + expert] * a[(expert * r + rank) * i + input]
                };
                let delta = SCALES[which] * (0..r).map(term).sum::<f32>();
                assert!((after - before - delta).abs() <= 1e-5, "{name}, {at}");
            }
        }
    }
}

#[test]
fn gradients_of_an_adapter_of_expert_tensors_are_those_of_the_weights_through_its_product() {
    let model = adapted(&load("gpt_oss"), &BOTH);
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
    let mut wanted: Vec<Vec<f32>> =
        vars.iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
    let index = |tensor: &Tensor| vars.iter().position(|(_, var)| var.range() == tensor.range());
    for (target, [a, b]) in model.adapter().unwrap().pairs() {
        let slot = model.weights.vars().iter().position(|(name, _)| *name == target.weight);
        let (dw, r, i) = (whole[slot.unwrap()], target.rank, target.input);
        let [of_a, of_b] = [a, b].map(|tensor| index(tensor).unwrap());
        let (a, b) = (a.values(), b.values());
        for (at, dw) in dw.iter().enumerate() {
            let (row, column) = (at / i, at % i);
            for rank in 0..r {
                wanted[of_a][rank * i + column] += target.scale * b[row * r + rank] * dw;
                wanted[of_b][row * r + rank] += target.scale * dw * a[rank * i + column];
            }
        }
    }
    let (mut compared, mut worst) = (0, 0.0_f64);
    for (((name, _), found), wanted) in vars.iter().zip(&found).zip(&wanted) {
        if wanted.iter().all(|x| *x == 0.0) {
            assert!(found.iter().all(|x| *x == 0.0), "{name}");
            continue;
        }
        let off = apart(found, wanted);
        assert!(off <= 1e-4, "{name}: {off:e}");
        (compared, worst) = (compared + 1, worst.max(off));
    }
    println!("gpt_oss: {compared} matrices compared, furthest {worst:.1e}");
    assert!(compared > 20, "{compared}");
}

#[test]
fn a_row_under_an_adapter_of_expert_tensors_has_the_same_bits_alone_and_packed() {
    let model = adapted(&load("gpt_oss"), &BOTH);
    let packed = packed_logits(&model, &some_rows());
    for (row, packed) in some_rows().iter().zip(&packed) {
        let alone = packed_logits(&model, std::slice::from_ref(row)).remove(0);
        assert_eq!(bits(&alone), bits(packed));
    }
}

#[test]
fn an_adapter_of_expert_tensors_that_is_read_cannot_be_trained_with_dropout() {
    let base = load("gpt_oss");
    let dir = tempfile::tempdir().unwrap();
    adapted(&base, &BOTH).save(dir.path()).unwrap();
    let read = || Adapter::load(dir.path(), &base.config).unwrap();
    assert_eq!(read().with_dropout(0.0).unwrap().config().dropout, 0.0);
    let refused = read().with_dropout(0.25).err().unwrap().to_string();
    assert!(refused.starts_with("`dropout` is 0.25, which PEFT does not have"), "{refused}");
    assert!(refused.contains("`mlp.experts.down_proj`"), "{refused}");
    // Other adapters may have some.
    let names = ["q_proj".to_owned()];
    let plain = LoraConfig { target_modules: names.to_vec(), ..config(&[]) };
    let plain = Adapter::new(&base.config, plain, 1).unwrap();
    assert_eq!(plain.with_dropout(0.25).unwrap().config().dropout, 0.25);
}

#[test]
fn what_peft_has_no_form_for_is_refused_by_name() {
    let base = load("gpt_oss").config;
    let named = |targets: &[&str], dropout: f32| {
        let names = targets.iter().map(|&name| name.to_owned()).collect();
        let (target_modules, target_parameters) = split_targets(&base, names);
        let patterns = Patterns { target_parameters, ..Patterns::default() };
        LoraConfig { target_modules, patterns, dropout, ..config(&[]) }
    };
    let chosen = named(&["q_proj", "gate_up_proj", "experts.down_proj"], 0.0);
    assert_eq!(chosen.target_modules, ["q_proj"]);
    assert_eq!(chosen.patterns.target_parameters, ["gate_up_proj", "experts.down_proj"]);
    let experts = base.layers[0].mlp.experts().unwrap().router.experts;
    let count = chosen.targets(&base).unwrap().len();
    assert_eq!(count, base.layers.len() * (1 + 3 * experts));
    let one_layer = named(&["layers.0.mlp.experts.down_proj"], 0.0);
    assert_eq!(one_layer.targets(&base).unwrap().len(), experts);

    let refused = |config: LoraConfig| config.targets(&base).unwrap_err().to_string();
    let dropout = refused(named(&["down_proj"], 0.1));
    assert!(dropout.starts_with("`dropout` is 0.1, which PEFT does not have"), "{dropout}");
    for part in ["experts.3.down_proj", "experts.0.up_proj", "gate_proj"] {
        let message = refused(named(&[part], 0.0));
        assert!(message.contains(&format!("`target_modules` has {part:?}")), "{message}");
        assert!(message.contains("`gate_up_proj` and `down_proj` of all experts"), "{message}");
    }
    let message = refused(config(&["mlp.experts.up_proj"]));
    assert!(message.contains("`target_parameters` has \"mlp.experts.up_proj\""), "{message}");
}
