//! Comparison of further families with transformers, from `tests/fixtures/families`, and their bits in packed rows and caches.

use super::reference::{apart, best, loss, norm, scalar, stripped, unpadded};
use super::*;

const LOGPROBS: f32 = 1e-4;
/// The same where transformers' own f32 is 1e-4 off.
const LOGPROBS_OF_DELTA_NET: f32 = 2e-4;
const GRADIENTS: f64 = 1e-3;

/// Families with a directory of values.
const NAMES: [&str; 15] = [
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gpt_oss",
    "lfm2",
    "ministral",
    "ministral3",
    "mistral",
    "olmo3",
    "phi3",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_text",
    "qwen3_moe",
    "smollm3",
];

/// Returns how far log-probs of a family may be off.
fn allowed(name: &str) -> f32 {
    if name.starts_with("qwen3_5") { LOGPROBS_OF_DELTA_NET } else { LOGPROBS }
}

fn directory(name: &str) -> PathBuf {
    fixture("families").join(name)
}

fn load(dir: &Path) -> Model {
    Model::load(&ModelFiles::new(&ModelSource::Directory(dir.to_owned()))).unwrap()
}

/// Returns the model of a directory with another `config.json`.
fn load_variant(name: &str, config: &Path) -> Model {
    let dir = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(name).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_file() && !file.ends_with("reference.safetensors") {
            std::fs::copy(&file, dir.path().join(file.file_name().unwrap())).unwrap();
        }
    }
    std::fs::copy(config, dir.path().join("config.json")).unwrap();
    load(dir.path())
}

fn models() -> impl Iterator<Item = (&'static str, Model, Reference)> {
    NAMES.into_iter().map(|name| {
        let dir = directory(name);
        (name, load(&dir), Reference::open(&dir))
    })
}

/// Returns the log-probs of the next tokens of rows, and the entropies after all tokens.
fn scored(model: &Model, rows: &[Vec<u32>]) -> (Vec<f32>, Vec<f32>) {
    let packed = pack(rows);
    let targets = rows.iter().flat_map(|row| row.iter().copied().skip(1).chain([0]));
    let targets: Vec<u32> = targets.collect();
    let (even, mut pool) = (vec![1.0; targets.len()], Pool::default());
    let context = Context::Packed(Packing::from_offsets(&packed.offsets));
    let hidden = model.decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
    let (logp, entropy) = model.decoder.logprobs(&hidden, &targets, &even).unwrap();
    let rows = packed.offsets.windows(2);
    (rows.flat_map(|row| logp[row[0]..row[1] - 1].to_vec()).collect(), entropy)
}

/// Returns the log-probs of `[rows, T - 1]` of right-padded rows, without padding.
fn expected(reference: &Reference, name: &str, rows: &[Vec<u32>]) -> Vec<f32> {
    let (values, width) = (reference.floats(name), reference.shape(name)[1]);
    let rows = values.chunks_exact(width).zip(rows);
    rows.flat_map(|(values, row)| values[..row.len() - 1].to_vec()).collect()
}

#[test]
fn logprobs_and_entropies_equal_the_reference_however_rows_were_padded() {
    for (name, model, reference) in models() {
        for side in ["left", "right"] {
            let (rows, _) = stripped(&reference, side);
            let (logprobs, entropies) = scored(&model, &rows);
            let logprobs =
                furthest(&logprobs, &unpadded(&reference, &format!("{side}.logprobs"), 1));
            let entropies =
                furthest(&entropies, &unpadded(&reference, &format!("{side}.entropy"), 1));
            println!("{name}, {side}: furthest log-prob {logprobs:.1e}, entropy {entropies:.1e}");
            assert!(logprobs <= allowed(name) && entropies <= allowed(name), "{name}");
        }
        let rows = rows(&reference, "right");
        let exact = expected(&reference, "exact.right.logprobs", &rows);
        let off = furthest(&scored(&model, &rows).0, &exact);
        assert!(off <= allowed(name), "{name}: {off:e} from values of f64");
    }
}

#[test]
fn other_configurations_of_the_same_weights_equal_the_reference() {
    let mut count = 0;
    for name in NAMES {
        let (dir, reference) = (directory(name), Reference::open(&directory(name)));
        let rows = rows(&reference, "right");
        let Ok(variants) = std::fs::read_dir(dir.join("variants")) else { continue };
        for config in variants.map(|entry| entry.unwrap().path()) {
            let variant = config.file_stem().unwrap().to_str().unwrap();
            let model = load_variant(dir.to_str().unwrap(), &config);
            let stored = format!("variant.{variant}.logprobs");
            let off = furthest(&scored(&model, &rows).0, &expected(&reference, &stored, &rows));
            println!("{name}, {variant}: furthest log-prob {off:.1e}");
            assert!(off <= allowed(name), "{name}, {variant}: {off:e}");
            count += 1;
        }
    }
    assert_eq!(count, 27);
}

#[test]
fn other_ropes_and_windows_of_the_first_families_equal_the_reference() {
    let Some(dir) = larger_fixture("families/rope") else {
        return eprintln!("skipped: MAVERL_TEST_DATA has no fixtures/families/rope");
    };
    let reference = Reference::open(&dir);
    let mut count = 0;
    for config in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
        let name = config.file_stem().unwrap().to_str().unwrap();
        let Some((family, _)) = name.split_once('-') else { continue };
        let base = dir.parent().unwrap().with_file_name(family);
        let model = load_variant(base.to_str().unwrap(), &config);
        let rows = rows(&Reference::open(&base), "right");
        let expected = expected(&reference, &format!("{name}.logprobs"), &rows);
        let off = furthest(&scored(&model, &rows).0, &expected);
        println!("{name}: furthest log-prob {off:.1e}");
        assert!(off <= LOGPROBS, "{name}: {off:e}");
        count += 1;
    }
    assert_eq!(count, 9);
}

/// Returns the gradients of the tensors of the checkpoint.
fn stored_gradients(model: &Model, gradients: &Gradients<'_>) -> Vec<(String, Vec<f32>)> {
    let mut stored: Vec<(String, Vec<f32>)> = Vec::new();
    for ((name, var), grad) in model.weights.vars().iter().zip(gradients.sums().unwrap()) {
        let part = model.config.stored_part(model.config.expert_layout, name, var.dims());
        if !stored.iter().any(|(found, _)| *found == part.name) {
            stored.push((part.name.clone(), vec![0.0; part.shape.iter().product()]));
        }
        let (_, to) = stored.iter_mut().find(|(found, _)| *found == part.name).unwrap();
        part.each_number(var.dims(), |own, at| to[at] = grad[own]);
    }
    stored
}

#[test]
fn every_gradient_equals_the_reference() {
    for (name, model, reference) in models() {
        let (loss, gradients) = loss(&reference, &model);
        let off = loss - scalar(&reference, "loss");
        assert!(off.abs() <= f64::from(allowed(name)), "{name}: the loss is {off} off");
        let expected = scalar(&reference, "grad_norm");
        let all = (gradients.norm(&Cpu::default()).unwrap() - expected).abs() / expected;
        let json: Value =
            serde_json::from_slice(&std::fs::read(directory(name).join("reference.json")).unwrap())
                .unwrap();
        let (mut whole, mut numbers) = (0.0_f64, 0.0_f64);
        for (parameter, grad) in &stored_gradients(&model, &gradients) {
            let [norm_of, dot_of] = [0, 1].map(|at| json["gradients"][parameter][at].as_f64());
            let (norm_of, dot_of) = (norm_of.unwrap(), dot_of.unwrap());
            let wide = || grad.iter().map(|g| f64::from(*g));
            let dot: f64 = wide().enumerate().map(|(i, g)| g * (i as f64).cos()).sum();
            let worst = (norm(wide()) - norm_of).abs().max((dot - dot_of).abs()) / norm_of;
            assert!(worst <= GRADIENTS, "{name}, `{parameter}`: {worst:e}");
            numbers = numbers.max(worst);
            let stored = format!("grad.{parameter}");
            if reference.has(&stored) {
                whole = whole.max(apart(grad, &reference.floats(&stored)));
            }
        }
        let embed = model.config.names.embedding();
        let vars = model.weights.vars().iter().zip(gradients.sums().unwrap());
        let (_, grad) = vars.into_iter().find(|((found, _), _)| *found == embed).unwrap();
        let (index, d) = (reference.ints("grad_rows.index").remove(0), model.config.hidden_size);
        let rows: Vec<f32> =
            index.iter().flat_map(|&row| grad[row as usize * d..][..d].to_vec()).collect();
        let rows = apart(&rows, &reference.floats(&format!("grad_rows.{embed}")));
        println!(
            "{name}: gradients {whole:.1e}, norms and dots {numbers:.1e}, rows {rows:.1e}, all {all:.1e}"
        );
        assert!([whole, rows, all].iter().all(|x| *x <= GRADIENTS), "{name}");
    }
}

#[test]
fn greedy_tokens_and_their_logprobs_equal_the_reference() {
    for (name, model, reference) in models() {
        let (prompts, mask) =
            (reference.ints("gen.prompt_ids"), reference.ints("gen.attention_mask"));
        let prompts = prompts.iter().zip(&mask).map(|(ids, mask)| {
            ids.iter().zip(mask).filter(|(_, m)| **m == 1).map(|(id, _)| *id as u32).collect()
        });
        let mut next: Vec<Vec<u32>> = prompts.collect();
        let mut caches = Caches::new(&model, next.len());
        let (mut ids, mut logprobs) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
        for _ in 0..32 {
            let logits = cached_logits(&model, &mut caches, &next);
            for (row, logits) in logits.iter().enumerate() {
                let (id, logprob) = best(logits.last().unwrap());
                ids[row].push(i64::from(id));
                logprobs[row].push(logprob);
                next[row] = vec![id];
            }
        }
        assert_eq!(ids, reference.ints("gen.output_ids"), "{name}");
        let off = furthest(&logprobs.concat(), &reference.floats("gen.logprobs"));
        println!("{name}: 96 greedy tokens; log-probs {off:.1e}");
        assert!(off <= allowed(name), "{name}: {off:e}");
    }
}

fn bits(logits: &[Vec<f32>]) -> Vec<Vec<u32>> {
    logits.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn a_row_has_the_same_bits_alone_packed_cut_anywhere_and_token_by_token() {
    for (name, model, reference) in models() {
        let rows = rows(&reference, "right");
        let packed = packed_logits(&model, &rows);
        for (row, packed) in rows.iter().zip(&packed) {
            let alone = packed_logits(&model, std::slice::from_ref(row));
            assert_eq!(bits(&alone[0]), bits(packed), "{name}");
        }
        let (row, whole) = (&rows[0], bits(&packed[0]));
        for cut in 1..row.len() {
            let mut caches = Caches::new(&model, 1);
            let mut found = cached_logits(&model, &mut caches, &[row[..cut].to_vec()]).remove(0);
            found.extend(cached_logits(&model, &mut caches, &[row[cut..].to_vec()]).remove(0));
            assert_eq!(bits(&found), whole, "{name}, cut at {cut}");
        }
        let mut caches = Caches::new(&model, 1);
        let tokens = row.iter().map(|&id| cached_logits(&model, &mut caches, &[vec![id]]));
        let found: Vec<Vec<f32>> = tokens.flat_map(|mut logits| logits.remove(0)).collect();
        assert_eq!(bits(&found), whole, "{name}, token by token");
    }
}

/// Two sequences that share their first tokens, packed with these stored once, and each whole.
struct Shared {
    packed: PackedRows,
    parents: [Option<usize>; 3],
    whole: PackedRows,
    /// Index among the packed tokens of each token of the whole rows.
    at: Vec<usize>,
}

fn shared(row: &[u32], common: usize) -> Shared {
    let (first, second) = (row.to_vec(), [&row[..common], &row[1..9]].concat());
    let parts = [row[..common].to_vec(), row[common..].to_vec(), second[common..].to_vec()];
    let mut packed = pack(&parts);
    let ends = [common, row.len(), row.len() + 8];
    let continued = (0..common).chain(common..row.len()).chain(common..common + 8);
    packed.positions = continued.map(|at| at as u32).collect();
    let at = (0..ends[1]).chain(0..common).chain(ends[1]..ends[2]).collect();
    Shared { packed, parents: [None, Some(0), Some(0)], whole: pack(&[first, second]), at }
}

#[test]
fn rows_with_a_shared_prefix_have_the_bits_and_gradients_of_whole_rows() {
    for (name, model, reference) in models() {
        let row = rows(&reference, "right").remove(0);
        let Shared { packed, parents, whole, at } = shared(&row, 19);
        let packing = Packing { offsets: &packed.offsets, parents: &parents };
        let mut pool = Pool::default();
        let hidden = model
            .decoder
            .forward(&packed.ids, &packed.positions, Context::Packed(packing), &mut pool)
            .unwrap();
        let logits = split(&model.decoder.logits(&hidden, &mut pool), &model);
        let expected = split(&logits_of(&model.decoder, &whole), &model);
        let found: Vec<Vec<f32>> = at.iter().map(|&token| logits[token].clone()).collect();
        assert_eq!(bits(&found), bits(&expected), "{name}");

        // The loss of the second row's own tokens counts; in whole rows those of the prefix count in the first alone.
        let n = packed.ids.len();
        let dlogp: Vec<f32> = (0..n).map(|i| 0.5 + (i % 3) as f32).collect();
        let targets: Vec<u32> = (0..n as u32).map(|i| (i * 7 + 3) % 60).collect();
        let mut of_whole = vec![0.0; at.len()];
        for (i, &token) in at.iter().enumerate() {
            of_whole[i] = if i >= row.len() && token < 19 { 0.0 } else { dlogp[token] };
        }
        let whole_targets: Vec<u32> = at.iter().map(|&token| targets[token]).collect();
        let expected = gradients_of(&model, &whole, &whole_targets, &of_whole);
        let found = gradients_packed(&model, &packed, packing, &targets, &dlogp);
        let vars = model.weights.vars().iter().zip(found.sums().unwrap());
        for (((parameter, _), found), expected) in vars.zip(expected.sums().unwrap()) {
            let off = apart(found, expected);
            assert!(off <= 1e-5, "{name}, `{parameter}`: {off:e}");
        }
    }
}

#[test]
fn a_written_model_is_read_back_with_all_tensors_of_its_checkpoint() {
    for (name, model, _) in models() {
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path()).unwrap();
        let again = load(dir.path());
        assert_eq!(again.fingerprint(), model.fingerprint(), "{name}");
        assert_eq!(again.config, model.config, "{name}");
        let tensors = |dir: &Path| {
            let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
            let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            let tensors = read.tensors().into_iter();
            let mut all: Vec<(String, Vec<u8>)> =
                tensors.map(|(name, view)| (name, view.data().to_vec())).collect();
            all.sort();
            all
        };
        assert!(tensors(dir.path()) == tensors(&directory(name)), "{name}: other tensors");
    }
}

#[test]
fn an_adapter_of_peft_equals_the_reference_and_is_merged_and_saved() {
    for name in ["phi3", "qwen3_5_text", "lfm2"] {
        let dir = directory(name);
        let (base, reference) = (load(&dir), Reference::open(&dir));
        let model = base.load_adapter(&dir.join("lora")).unwrap();
        let rows = rows(&reference, "right");
        let expected = expected(&reference, "lora.right.logprobs", &rows);
        let off = furthest(&scored(&model, &rows).0, &expected);
        println!("{name} with an adapter: furthest log-prob {off:.1e}");
        assert!(off <= allowed(name), "{name}: {off:e}");
        let (merged, _) = model.merge().unwrap();
        let off = furthest(&scored(&merged, &rows).0, &expected);
        assert!(off <= allowed(name), "{name}, merged: {off:e}");
        let out = tempfile::tempdir().unwrap();
        model.save(out.path()).unwrap();
        assert_eq!(base.load_adapter(out.path()).unwrap().fingerprint(), model.fingerprint());
    }
}

#[test]
fn adapters_of_a_decoder_within_a_larger_model_have_the_names_of_its_modules() {
    let base = load(&directory("gemma3"));
    let config = LoraConfig {
        rank: 2,
        alpha: 4.0,
        dropout: 0.0,
        target_modules: vec!["q_proj".to_owned(), "down_proj".to_owned()],
        rslora: false,
        patterns: crate::net::lora::Patterns::default(),
    };
    let model = base.with_adapter(Adapter::new(&base.config, config, 1).unwrap());
    let (name, _) = &model.trainable().vars()[0];
    assert_eq!(name, "model.language_model.layers.0.self_attn.q_proj.lora_A.weight");
    model.trainable().update(|values| values.iter_mut().for_each(|x| *x += 0.05));
    let rows = [vec![5, 9, 200, 31]];
    let (merged, _) = model.merge().unwrap();
    assert!(furthest(&scored(&merged, &rows).0, &scored(&model, &rows).0) <= LOGPROBS);
    assert!(furthest(&scored(&base, &rows).0, &scored(&model, &rows).0) > 1e-2);
}

#[test]
fn the_long_factors_of_longrope_are_those_of_all_rows() {
    let dir = directory("phi3");
    let (short, reference) = (load(&dir), Reference::open(&dir));
    assert_eq!(short.config.max_position_embeddings, 64);
    let long = short.with_long_rope().unwrap();
    assert_eq!(long.config.max_position_embeddings, 256);
    let rows = rows(&reference, "long");
    let off = furthest(&scored(&long, &rows).0, &expected(&reference, "long.logprobs", &rows));
    println!("phi3 beyond the original context: furthest log-prob {off:.1e}");
    assert!(off <= LOGPROBS, "{off:e}");
}

#[cfg(feature = "cuda")]
#[test]
fn parts_without_a_kernel_of_a_gpu_are_named() {
    for (name, parts) in [
        ("smollm3", vec!["layers without rotary positions"]),
        (
            "gemma2",
            vec![
                "a window of attention",
                "a bound of scores",
                "norms of `1 + w`",
                "GELU",
                "a bound of logits",
            ],
        ),
        ("olmo3", vec!["norms of all heads together", "layers without a norm before them"]),
        ("phi3", vec!["heads that are rotated in part", "fused maps"]),
        ("ministral3", vec!["queries scaled by positions"]),
        ("qwen3_moe", vec!["experts"]),
        ("gpt_oss", vec!["experts", "sinks of attention"]),
        ("lfm2", vec!["short convolutions"]),
        ("qwen3_5_moe", vec!["Gated DeltaNet", "experts"]),
        ("qwen3_5_text", vec!["Gated DeltaNet", "output gates", "heads that are rotated in part"]),
    ] {
        let reasons = crate::net::ops::device::unsupported_reasons(&load(&directory(name)).config);
        for part in parts {
            assert!(reasons.iter().any(|reason| reason == part), "{name}: {part} in {reasons:?}");
        }
    }
}
