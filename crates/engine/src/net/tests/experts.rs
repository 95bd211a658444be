//! Routers and experts of the reference: choices, weights, the loss that balances the load, and tokens among others.

use super::reference::{apart, scalar, stripped};
use super::*;
use crate::files::parts::ExpertLayout;
use crate::files::save::{self, SavedTensor};
use crate::net::experts::{RouterLoad, SavedExperts};
use crate::net::ops::Ops;
use crate::net::tape::RoutedTokens;

/// Families with experts.
const NAMES: [&str; 3] = ["gpt_oss", "qwen3_5_moe", "qwen3_moe"];

fn directory(name: &str) -> PathBuf {
    fixture("families").join(name)
}

fn load(dir: &Path) -> Model {
    Model::load(&ModelFiles::new(&ModelSource::Directory(dir.to_owned()))).unwrap()
}

fn models() -> impl Iterator<Item = (&'static str, Model, Reference)> {
    NAMES.into_iter().map(|name| {
        let dir = directory(name);
        (name, load(&dir), Reference::open(&dir))
    })
}

/// Calls `f` with the experts of each layer that has them, in a pass over packed rows.
fn each_layer(model: &Model, packed: &PackedRows, mut f: impl FnMut(usize, &SavedExperts)) {
    let (decoder, mut pool) = (&model.decoder, Pool::default());
    let packing = Packing::from_offsets(&packed.offsets);
    let rows = Rows { ids: &packed.ids, positions: &packed.positions, packing };
    let at = decoder.ops().place(rows).unwrap();
    let mut x = decoder.embed(&at, &mut pool).unwrap();
    for index in 0..decoder.layers() {
        let (out, saved) = decoder.layer(index, x, (&at, None), &mut pool).unwrap();
        if let Some(experts) = saved.experts() {
            f(index, experts);
        }
        x = out;
    }
}

#[test]
fn experts_of_each_token_and_their_weights_equal_the_reference() {
    for (name, model, reference) in models() {
        let (rows, packed) = stripped(&reference, "right");
        let mut layers = 0;
        each_layer(&model, &packed, |layer, found| {
            layers += 1;
            let experts = reference.ints(&format!("route.{layer}.experts"));
            let width = reference.shape(&format!("route.{layer}.experts"))[1];
            let weights = reference.floats(&format!("route.{layer}.weights"));
            let k = experts[0].len();
            let tokens = rows
                .iter()
                .enumerate()
                .flat_map(|(r, row)| (0..row.len()).map(move |token| r * width + token));
            for (token, at) in tokens.enumerate() {
                let mut expected: Vec<(u32, f32)> =
                    (0..k).map(|slot| (experts[at][slot] as u32, weights[at * k + slot])).collect();
                expected.sort_by_key(|(expert, _)| *expert);
                let (experts, weights): (Vec<u32>, Vec<f32>) = expected.into_iter().unzip();
                assert_eq!(found.chosen[token * k..][..k], experts, "{name}, layer {layer}");
                let off = furthest(&found.weights[token * k..][..k], &weights);
                assert!(off <= 1e-5, "{name}, layer {layer}: {off:e}");
            }
        });
        assert_eq!(layers, 2, "{name}");
    }
}

/// Computes the sums of gradients of the loss that balances the load alone, times a coefficient.
fn balance_gradients<'m>(
    model: &'m Model,
    packed: &PackedRows,
    counts: &[f32],
    coefficient: f64,
) -> (RouterLoad, Gradients<'m>) {
    let (mut gradients, mut pool) = (Gradients::new(model.trainable()), Pool::default());
    let packing = Packing::from_offsets(&packed.offsets);
    let rows = Rows { ids: &packed.ids, positions: &packed.positions, packing };
    let tokens = Some(RoutedTokens { counts, ..RoutedTokens::default() });
    let tape = Tape::record_routed(&model.decoder, rows, tokens, true, &mut pool).unwrap();
    let load = RouterLoad::sum(tape.loads().iter().map(|(_, load)| load));
    let slopes = load.balance_slopes(coefficient);
    let tokens = Some(RoutedTokens { counts, slopes: Some(&slopes), routes: None });
    let tape = Tape::record_routed(&model.decoder, rows, tokens, true, &mut pool).unwrap();
    let zeros = vec![0.0; tape.hidden().len()];
    tape.backward(&zeros, &mut gradients, &mut pool).unwrap();
    gradients.mark_unused(model.decoder_head_slot());
    (load, gradients)
}

impl Model {
    /// Returns the slot of the output head, on which no load depends.
    fn decoder_head_slot(&self) -> Option<usize> {
        self.weights.vars().iter().position(|(name, _)| name == self.config.names.head)
    }
}

/// Returns the gradient of a tensor.
fn gradient<'g>(model: &Model, gradients: &'g Gradients<'_>, name: &str) -> &'g [f32] {
    let slot = model.weights.vars().iter().position(|(found, _)| found == name).unwrap();
    gradients.sums().unwrap()[slot]
}

#[test]
fn the_loss_that_balances_the_load_and_its_gradient_equal_the_reference() {
    for (name, model, reference) in models() {
        let (_, packed) = stripped(&reference, "right");
        let counts = vec![1.0; packed.ids.len()];
        let (load, gradients) = balance_gradients(&model, &packed, &counts, 1.0);
        let off = load.balance_loss() - scalar(&reference, "aux.loss");
        assert!(off.abs() <= 1e-5, "{name}: the loss is {off} off");
        let router = model.config.layers[0].mlp.experts().unwrap().scores.name;
        let router = model.config.names.in_layer(0, &format!("{router}.weight"));
        let expected = reference.floats(&format!("aux.grad.{router}"));
        let off = apart(gradient(&model, &gradients, &router), &expected);
        println!("{name}: gradient of the load's balance {off:.1e}");
        assert!(off <= 1e-3, "{name}: {off:e}");
    }
}

#[test]
fn a_token_of_several_texts_counts_for_each_of_them() {
    let (_, model, reference) = models().last().unwrap();
    let row = rows(&reference, "right").remove(0);
    let twice = pack(&[row.clone(), row.clone()]);
    let (load, gradients) = balance_gradients(&model, &twice, &vec![1.0; 2 * row.len()], 0.5);
    let once = pack(std::slice::from_ref(&row));
    let (counted, expected) = balance_gradients(&model, &once, &vec![2.0; row.len()], 0.5);
    assert_eq!((load.tokens, &load.chosen), (counted.tokens, &counted.chosen));
    assert!((load.balance_loss() - counted.balance_loss()).abs() < 1e-9);
    let router = "model.layers.2.mlp.gate.weight";
    let off = apart(gradient(&model, &gradients, router), gradient(&model, &expected, router));
    assert!(off <= 1e-5, "{off:e}");
}

#[test]
fn experts_without_tokens_have_a_gradient_of_zero_and_others_have_one() {
    for (name, model, _) in models() {
        let packed = pack(&[vec![7]]);
        let gradients = gradients_of(&model, &packed, &[3], &[1.0]);
        let mut zero = 0;
        for ((tensor, _), gradient) in model.weights.vars().iter().zip(gradients.sums().unwrap()) {
            let none = gradient.iter().all(|g| *g == 0.0);
            // Of one token alone, scores of attention and decays of a state have no effect.
            let unused = [".experts.", "self_attn", "linear_attn"];
            assert!(!none || unused.iter().any(|part| tensor.contains(part)), "{tensor}");
            zero +=
                usize::from(none && tensor.contains("experts") && tensor.contains("down_proj.w"));
        }
        let layer = model.config.layers[0].mlp.experts().unwrap().router;
        assert_eq!(zero, 2 * (layer.experts - layer.chosen), "{name}");
    }
}

#[test]
fn a_token_alone_has_the_bits_of_the_token_among_512() {
    for (name, model, _) in models() {
        let rows: Vec<Vec<u32>> = (0..512).map(|i| vec![(i * 37 + 5) % 290]).collect();
        let all = packed_logits(&model, &rows);
        for index in [0, 1, 100, 511] {
            let alone = packed_logits(&model, &rows[index..=index]);
            let bits =
                |logits: &[Vec<f32>]| logits[0].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&alone[0]), bits(&all[index]), "{name}");
        }
    }
}

#[test]
fn eight_continuations_of_one_prompt_have_the_bits_and_gradients_of_each_alone() {
    for (name, model, reference) in models() {
        let prompt = rows(&reference, "right").remove(0);
        let tails: Vec<Vec<u32>> =
            (0..8).map(|i| (0..5).map(|j| (i * 31 + j * 7 + 3) % 290).collect()).collect();
        let parts: Vec<Vec<u32>> = [prompt.clone()].into_iter().chain(tails.clone()).collect();
        let mut packed = pack(&parts);
        let start = prompt.len() as u32;
        packed.positions = (0..start).chain((0..8).flat_map(|_| start..start + 5)).collect();
        let parents: Vec<Option<usize>> = [None].into_iter().chain([Some(0); 8]).collect();
        let packing = Packing { offsets: &packed.offsets, parents: &parents };
        let (context, mut pool) = (Context::Packed(packing), Pool::default());
        let decoder = &model.decoder;
        let hidden = decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
        let logits = split(&decoder.logits(&hidden, &mut pool), &model);
        let n = packed.ids.len();
        let (targets, dlogp) = (vec![9; n], vec![0.1; n]);
        let found = gradients_packed(&model, &packed, packing, &targets, &dlogp);
        let mut sums: Vec<Vec<f64>> = Vec::new();
        for (i, tail) in tails.iter().enumerate() {
            let row = [&prompt[..], tail].concat();
            let alone = packed_logits(&model, std::slice::from_ref(&row)).remove(0);
            let own = &logits[prompt.len() + 5 * i..][..5];
            for (found, expected) in own.iter().zip(&alone[prompt.len()..]) {
                assert!(
                    found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{name}"
                );
            }
            // The prompt's own tokens count once.
            let mut dlogp = vec![0.1; row.len()];
            dlogp[..prompt.len()].fill(if i == 0 { 0.1 } else { 0.0 });
            let gradients = gradients_of(
                &model,
                &pack(std::slice::from_ref(&row)),
                &vec![9; row.len()],
                &dlogp,
            );
            for (at, gradient) in gradients.sums().unwrap().into_iter().enumerate() {
                sums.resize(sums.len().max(at + 1), vec![0.0; gradient.len()]);
                sums[at].resize(gradient.len(), 0.0);
                sums[at].iter_mut().zip(gradient).for_each(|(sum, g)| *sum += f64::from(*g));
            }
        }
        for ((tensor, _), (found, sum)) in
            model.weights.vars().iter().zip(found.sums().unwrap().into_iter().zip(&sums))
        {
            let expected: Vec<f32> = sum.iter().map(|x| *x as f32).collect();
            let off = apart(found, &expected);
            assert!(off <= 1e-5, "{name}, `{tensor}`: {off:e}");
        }
    }
}

#[test]
fn gradients_do_not_depend_on_checkpointing_to_the_bit() {
    for (name, model, reference) in models() {
        let (_, packed) = stripped(&reference, "right");
        let packing = Packing::from_offsets(&packed.offsets);
        let rows = Rows { ids: &packed.ids, positions: &packed.positions, packing };
        let of = |checkpointing| {
            let (mut gradients, mut pool) = (Gradients::new(model.trainable()), Pool::default());
            let tape = Tape::record(&model.decoder, rows, checkpointing, &mut pool).unwrap();
            let dhidden: Vec<f32> = tape.hidden().iter().map(|h| 0.1 * h + 0.01).collect();
            tape.backward(&dhidden, &mut gradients, &mut pool).unwrap();
            gradients.mark_unused(model.decoder_head_slot());
            let sums = gradients.sums().unwrap().concat();
            sums.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        };
        assert!(of(false) == of(true), "{name}");
    }
}

#[test]
fn experts_of_mxfp4_equal_those_that_were_dequantized_and_are_saved_as_numbers() {
    let (plain, packed) = (load(&directory("gpt_oss")), tempfile::tempdir().unwrap());
    for from in [directory("gpt_oss"), directory("gpt_oss").join("mxfp4")] {
        for file in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() && !file.ends_with("reference.safetensors") {
                std::fs::copy(&file, packed.path().join(file.file_name().unwrap())).unwrap();
            }
        }
    }
    let read = load(packed.path());
    assert_eq!(read.fingerprint(), plain.fingerprint());
    let saved = tempfile::tempdir().unwrap();
    read.save(saved.path()).unwrap();
    let config = std::fs::read_to_string(saved.path().join("config.json")).unwrap();
    assert!(!config.contains("quantization_config"), "{config}");
    assert_eq!(load(saved.path()).fingerprint(), plain.fingerprint());
}

/// Writes a directory of the model's files with other tensors.
fn with_tensors(name: &str, entries: &[SavedTensor<'_>]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(directory(name).join(file), dir.path().join(file)).unwrap();
    }
    save::one_file(&dir.path().join("model.safetensors"), entries).unwrap();
    dir
}

#[test]
fn experts_of_a_layer_in_one_tensor_are_read_as_those_with_tensors_of_their_own() {
    let model = load(&directory("qwen3_moe"));
    let mut stored: Vec<(String, Vec<usize>, Vec<f32>)> = Vec::new();
    for (name, var) in model.weights.vars() {
        let part = model.config.stored_part(ExpertLayout::Stacked, name, var.dims());
        if !stored.iter().any(|(found, ..)| *found == part.name) {
            let zeros = vec![0.0; part.shape.iter().product()];
            stored.push((part.name.clone(), part.shape.clone(), zeros));
        }
        let (_, _, to) = stored.iter_mut().find(|(found, ..)| *found == part.name).unwrap();
        let values = var.to_vec();
        part.each_number(var.dims(), |own, at| to[at] = values[own]);
    }
    let entries =
        stored.iter().map(|(name, shape, values)| SavedTensor::slice(name.as_str(), shape, values));
    let mut entries: Vec<SavedTensor<'_>> = entries.collect();
    let fused = with_tensors("qwen3_moe", &entries);
    let read = load(fused.path());
    assert_eq!(read.fingerprint(), model.fingerprint());
    let saved = tempfile::tempdir().unwrap();
    read.save(saved.path()).unwrap();
    assert_eq!(load(saved.path()).fingerprint(), model.fingerprint());
    let down = stored.iter().position(|(name, ..)| name.ends_with("experts.down_proj")).unwrap();
    entries.remove(down);
    let less = with_tensors("qwen3_moe", &entries);
    let files = ModelFiles::new(&ModelSource::Directory(less.path().to_owned()));
    let error = Model::load(&files).err().unwrap().to_string();
    let missing = "`model.layers.0.mlp.experts.down_proj` [6, 32, 12] is missing";
    assert!(error.contains(missing), "{error}");
}

#[test]
fn experts_of_qwen_3_5_in_one_tensor_are_those_with_tensors_of_their_own() {
    let Some(fused) = larger_fixture("families/qwen3_5_moe/fused") else {
        return eprintln!("skipped: MAVERL_TEST_DATA has no fixtures/families/qwen3_5_moe/fused");
    };
    let tensors = crate::files::Shards::open_file(&fused.join("model.safetensors")).unwrap();
    let name = "model.language_model.layers.0.mlp.experts.gate_up_proj";
    assert_eq!(tensors.shape(name), Some(vec![8, 24, 32]));
    assert_eq!(load(&fused).fingerprint(), load(&directory("qwen3_5_moe")).fingerprint());
}
