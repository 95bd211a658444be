#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::files::{ModelFiles, ModelSource};
use crate::net::Model;
use crate::net::tests::mutation::{fuzz, fuzz_over, length_fits};
use crate::net::tests::{
    PackedRows, Reference, fixture, gradients_of, logits_of, made, made_configs, pack, rows,
};

fn tiny() -> Model {
    Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
}

fn config(base: &Model) -> LoraConfig {
    LoraConfig {
        rank: 4,
        alpha: 8.0,
        dropout: 0.0,
        target_modules: linear_names(&base.config),
        rslora: false,
        patterns: Patterns::default(),
    }
}

/// A base under an adapter that changes something.
fn trained(base: &Model, seed: u64) -> Model {
    let adapter = Adapter::new(&base.config, config(base), seed).unwrap();
    for (index, (_, var)) in adapter.vars().iter().enumerate() {
        let n = var.elem_count() as u64;
        let values = (0..n).map(|i| 0.2 * uniform(derive_seed(seed, index as u64), i) as f32 - 0.1);
        var.set(&values.collect::<Vec<_>>()).unwrap();
    }
    base.with_adapter(adapter)
}

fn some_rows() -> PackedRows {
    pack(&[(1..20).collect(), (30..37).collect()])
}

fn logits(decoder: &Decoder, packed: &PackedRows) -> Vec<Vec<f32>> {
    let logits = logits_of(decoder, packed);
    logits.chunks_exact(logits.len() / packed.ids.len()).map(<[f32]>::to_vec).collect()
}

/// Every number of an adapter, by the name of its tensor.
fn values(adapter: &Adapter) -> BTreeMap<String, Vec<u32>> {
    let bits = |var: &Tensor| -> Vec<u32> { var.values().iter().map(|v| v.to_bits()).collect() };
    adapter.vars().iter().map(|(name, var)| (name.clone(), bits(var))).collect()
}

/// The adapters of the reference that are supported.
const ADAPTERS: [&str; 4] = ["lora", "lora_patterns", "lora_layers", "lora_regex"];

#[test]
fn logits_under_an_adapter_of_peft_equal_the_reference() {
    let dir = fixture("qwen2");
    let reference = Reference::open(&dir);
    let base = Model::load(&ModelFiles::new(&ModelSource::Directory(dir.clone()))).unwrap();
    let columns = reference.columns(base.config.vocab_size);
    let rows = rows(&reference, "right");
    for adapter in ADAPTERS {
        let model = base.load_adapter(&dir.join(adapter)).unwrap();
        let name = format!("{adapter}.right.logits");
        let [_, tokens, kept] = reference.shape(&name)[..] else { unreachable!() };
        let expected = reference.floats(&name);
        let expected = rows.iter().zip(expected.chunks(tokens * kept));
        let expected = expected.flat_map(|(row, e)| e.chunks(kept).take(row.len()));
        let mut worst = 0.0_f32;
        for (ours, theirs) in logits(&model.decoder, &pack(&rows)).iter().zip(expected) {
            let of_columns = columns.iter().map(|&column| ours[column]);
            worst = of_columns.zip(theirs).fold(worst, |w, (a, b)| w.max((a - b).abs()));
        }
        println!("{adapter}: max |logit difference| {worst:e}");
        assert!(worst < 2e-4, "{adapter}: {worst}");
        let (_, moved) = model.merge().unwrap();
        println!("{adapter}: max |logit difference| of the merged model {moved:e}");
        assert!(moved < 1e-4, "{adapter}: {moved}");
    }
}

#[test]
fn an_adapter_written_and_read_back_is_the_same_to_the_bit() {
    let base = tiny();
    let model = trained(&base, 3);
    let dir = tempfile::tempdir().unwrap();
    model.save(dir.path()).unwrap();
    let read = base.load_adapter(dir.path()).unwrap();
    assert_eq!(values(read.adapter().unwrap()), values(model.adapter().unwrap()));
    assert_eq!(read.adapter().unwrap().config(), model.adapter().unwrap().config());
    let again = tempfile::tempdir().unwrap();
    read.save(again.path()).unwrap();
    for file in [CONFIG_FILE, WEIGHTS_FILE] {
        let [a, b] = [&dir, &again].map(|dir| std::fs::read(dir.path().join(file)).unwrap());
        assert_eq!(a, b, "{file}");
    }
    let text = std::fs::read_to_string(dir.path().join(CONFIG_FILE)).unwrap();
    for line in [r#""base_model_name_or_path": "builtin:tiny""#, r#""lora_alpha": 8,"#] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn the_adapter_of_peft_is_written_back_with_the_same_tensors() {
    let dir = fixture("qwen2");
    let base = Model::load(&ModelFiles::new(&ModelSource::Directory(dir.clone()))).unwrap();
    let out = tempfile::tempdir().unwrap();
    base.load_adapter(&dir.join("lora")).unwrap().save(out.path()).unwrap();
    let [a, b] = [dir.join("lora"), out.path().to_owned()]
        .map(|dir| std::fs::read(dir.join(WEIGHTS_FILE)).unwrap());
    let [a, b] = [&a, &b].map(|bytes| safetensors::SafeTensors::deserialize(bytes).unwrap());
    assert_eq!(a.len(), b.len());
    for (name, tensor) in a.tensors() {
        assert_eq!(tensor.data(), b.tensor(&name).unwrap().data(), "{name}");
    }
}

#[test]
fn a_new_adapter_changes_nothing_and_its_seed_decides_it() {
    let base = tiny();
    let new = |seed| Adapter::new(&base.config, config(&base), seed).unwrap();
    assert_eq!(values(&new(1)), values(&new(1)));
    assert_ne!(values(&new(1)), values(&new(2)));
    let model = base.with_adapter(new(1));
    assert_eq!(logits(&model.decoder, &some_rows()), logits(&base.decoder, &some_rows()));
    let bound = (base.config.hidden_size as f32).sqrt().recip();
    let a = new(1).vars()[0].1.to_vec();
    assert!(a.iter().all(|a| a.abs() <= bound) && a.iter().any(|a| a.abs() > 0.9 * bound));
}

/// Where the numbers of a variable lie in memory.
fn address(var: &Tensor) -> usize {
    var.values().as_ptr() as usize
}

#[test]
fn several_adapters_over_one_base_cost_one_base() {
    let base = tiny();
    let models = [trained(&base, 1), trained(&base, 2), trained(&base, 3)];
    let mut buffers = BTreeMap::new();
    for model in &models {
        for (_, var) in model.weights.vars().iter().chain(model.trainable().vars()) {
            buffers.insert(address(var), 4 * var.elem_count());
        }
    }
    let of =
        |vars: &[(String, Tensor)]| vars.iter().map(|(_, v)| 4 * v.elem_count()).sum::<usize>();
    let (base_bytes, adapter_bytes) = (of(base.weights.vars()), of(models[0].trainable().vars()));
    println!("a base of {base_bytes} bytes under three adapters of {adapter_bytes}");
    assert_eq!(buffers.values().sum::<usize>(), base_bytes + 3 * adapter_bytes);
    let parameters = config(&base).parameters(&base.config).unwrap();
    assert_eq!(4 * parameters as usize, adapter_bytes);
}

#[test]
fn adapter_weights_get_gradients_and_nothing_else_has_room_for_one() {
    let base = tiny();
    let fresh = Adapter::new(&base.config, config(&base), 1).unwrap();
    for model in [trained(&base, 1), base.with_adapter(fresh)] {
        let packed = some_rows();
        let targets: Vec<u32> = packed.ids.iter().map(|id| (id + 1) % 500).collect();
        let gradients = gradients_of(&model, &packed, &targets, &vec![1.0; targets.len()]);
        let sums = gradients.sums().unwrap();
        let numbers: usize = sums.iter().map(|sum| sum.len()).sum();
        let adapter: usize = model.trainable().vars().iter().map(|(_, var)| var.elem_count()).sum();
        println!("gradients of {numbers} numbers for an adapter of {adapter}");
        assert_eq!(numbers, adapter);
    }
}

#[test]
fn dropout_depends_on_its_keys_alone_and_is_off_without_them() {
    let base = tiny();
    let model = trained(&base, 1);
    let packed = some_rows();
    let keys: Vec<u64> = (0..packed.ids.len() as u64).collect();
    let dropped = |keys: &[u64]| {
        let decoder = with_dropout(&model.decoder, 0.5, &keys.to_vec().into());
        logits(&decoder, &packed)
    };
    assert_eq!(dropped(&keys), dropped(&keys));
    assert_ne!(dropped(&keys), logits(&model.decoder, &packed));
    let mut other = keys.clone();
    *other.last_mut().unwrap() += 1000;
    let (a, b) = (dropped(&keys), dropped(&other));
    let last = a.len() - 1;
    assert_eq!(a[..last], b[..last], "a token's mask reaches other tokens");
    assert_ne!(a[last], b[last]);
    // The second row alone, with its own keys.
    let alone = pack(&[packed.ids[19..].to_vec()]);
    let decoder = with_dropout(&model.decoder, 0.5, &keys[19..].to_vec().into());
    assert_eq!(logits(&decoder, &alone), a[19..]);
}

#[test]
fn a_merged_model_holds_the_adapter_and_leaves_the_base_alone() {
    let base = tiny();
    let before = base.fingerprint();
    let (merged, moved) = trained(&base, 5).merge().unwrap();
    println!("max |logit difference| of the merged model {moved:e}");
    assert!(merged.adapter().is_none());
    assert_ne!(merged.fingerprint(), before);
    assert_eq!(base.fingerprint(), before);
    assert!(base.merge().err().unwrap().to_string().contains("no adapter"));
}

#[test]
fn rank_stabilized_adapters_scale_with_the_root_of_the_rank() {
    let config = |rslora| LoraConfig {
        rank: 16,
        alpha: 8.0,
        dropout: 0.0,
        target_modules: vec!["q_proj".to_owned()],
        rslora,
        patterns: Patterns::default(),
    };
    assert_eq!((config(false).scale(), config(true).scale()), (0.5, 2.0));
}

#[test]
fn targets_are_named_by_their_ends() {
    let base = tiny();
    let targets = |entries: &[&str]| {
        let target_modules = entries.iter().map(|&e| e.to_owned()).collect();
        let targets = LoraConfig { target_modules, ..config(&base) }.targets(&base.config);
        targets.map(|targets| targets.into_iter().map(|t| t.name).collect::<Vec<_>>())
    };
    let first = "model.layers.0.self_attn.q_proj";
    assert_eq!(targets(&[first]).unwrap(), [first]);
    assert_eq!(targets(&["self_attn.q_proj"]).unwrap(), targets(&["q_proj"]).unwrap());
    assert_eq!(linear_names(&base.config).len(), 7);
    let error = targets(&["q_proj", "query"]).unwrap_err().to_string();
    assert!(error.contains("\"query\"") && error.contains("`up_proj`"), "{error}");
    assert!(targets(&["proj"]).is_err(), "an end after a dot, not any end");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let good = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}"#;
    let parse = |key: &str, value: Value| {
        let mut object: serde_json::Map<String, Value> = serde_json::from_str(good).unwrap();
        object.insert(key.to_owned(), value);
        LoraConfig::parse(&serde_json::to_vec(&object).unwrap())
    };
    assert!(LoraConfig::parse(good.as_bytes()).is_ok());
    for (key, value) in [
        ("bias", json!("lora_only")),
        ("use_dora", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("rank_pattern", json!({"q_proj": 0})),
        ("rank_pattern", json!({"q_proj[": 8})),
        ("rank_pattern", json!(8)),
        ("alpha_pattern", json!({"q_proj": "8"})),
        ("alpha_pattern", json!({"a)|(b": 8})),
        ("layers_to_transform", json!(["0"])),
        ("layers_pattern", json!("layers")),
        ("exclude_modules", json!({"q_proj": 1})),
        ("exclude_modules", json!("(")),
        ("exclude_modules", json!("(?:a{0,1000}){0,1000}")),
        ("peft_type", json!("IA3")),
        ("task_type", json!("SEQ_CLS")),
        ("init_lora_weights", json!("pissa")),
        ("fan_in_fan_out", json!(true)),
        ("an_option_of_tomorrow", json!({"on": 1})),
        ("target_modules", json!("[[a]&&b]_proj")),
        ("target_modules", json!("")),
        ("target_modules", json!(7)),
        ("target_modules", json!([])),
        ("r", json!(0)),
        ("r", json!(-4)),
        ("r", json!(1u64 << 60)),
        ("lora_alpha", json!("8")),
        ("lora_alpha", Value::Null),
    ] {
        let error = parse(key, value.clone()).unwrap_err();
        assert!(error.contains(&format!("`{key}` is {value}")), "{error}");
    }
    assert!(LoraConfig::parse(b"[]").unwrap_err().contains("not a JSON object"));
    assert!(LoraConfig::parse(b"{}").unwrap_err().contains("`peft_type` is missing"));
}

#[test]
fn modules_ranks_and_scales_are_chosen_as_peft_chooses_them() {
    let base = tiny();
    let layers = base.config.layers.len();
    let targets = |keys: Value| {
        let mut json = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]});
        json.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let config = LoraConfig::parse(&serde_json::to_vec(&json).unwrap()).unwrap();
        config.targets(&base.config).map_err(|error| error.to_string())
    };
    let of = |keys: Value| -> Vec<(String, usize, f32)> {
        let short = |name: &str| name.strip_prefix("model.layers.").unwrap().to_owned();
        targets(keys).unwrap().iter().map(|t| (short(&t.name), t.rank, t.scale)).collect()
    };
    let names = |keys: Value| of(keys).into_iter().map(|(name, ..)| name).collect::<Vec<String>>();
    assert!(layers >= 2, "{layers}");
    // The first pattern that matches counts, at the end of a name after a dot.
    let ranked = of(json!({
        "layers_to_transform": [1],
        "rank_pattern": {"proj": 7, "1.self_attn.q_proj": 2, "q_proj": 3},
        "alpha_pattern": {".*v_proj": 1, "^v_proj": 5}
    }));
    assert_eq!(
        ranked,
        [("1.self_attn.q_proj".to_owned(), 2, 4.0), ("1.self_attn.v_proj".to_owned(), 4, 0.25)]
    );
    // A whole name is corrected in whichever layer; PEFT's pattern of layers is no group.
    let whole = json!({
        "layers_to_transform": 1, "target_modules": ["model.layers.0.mlp.up_proj", "k_proj"]
    });
    assert_eq!(names(whole), ["0.mlp.up_proj", "1.self_attn.k_proj"]);
    for (pattern, found) in
        [(json!("layers"), 1), (json!(["blocks", "layers"]), 1), (json!([]), 1), (json!(""), 1)]
    {
        let keys = json!({
            "target_modules": ["q_proj"], "layers_to_transform": [1, 99], "layers_pattern": pattern
        });
        assert_eq!(names(keys).len(), found, "{pattern}");
    }
    for pattern in ["blocks", "layers|blocks", "model"] {
        let keys = json!({"layers_to_transform": [0], "layers_pattern": pattern});
        assert!(targets(keys).unwrap_err().contains("leave no linear map"), "{pattern}");
    }
    // Expressions are for whole names, with what Python has.
    let ahead = r"^(?!.*mlp).*layers\.(?P<n>[01])\.self_attn\.[qk]_proj";
    assert_eq!(names(json!({"target_modules": ahead})).len(), 4);
    assert!(targets(json!({"target_modules": "q_proj"})).is_err());
    let all = names(json!({"target_modules": "All-Linear", "exclude_modules": ["mlp.up_proj"]}));
    assert_eq!(all.len(), 6 * layers);
    assert!(all.iter().all(|name| !name.ends_with("up_proj")));
    assert_eq!(names(json!({"exclude_modules": r".*\.0\..*|.*v_proj"})).len(), layers - 1);
    // Off.
    let off = json!({
        "exclude_modules": [], "layers_to_transform": [], "rank_pattern": {}, "alpha_pattern": null
    });
    assert_eq!(names(off).len(), 2 * layers);
    // An expression that never ends is an error, and one of PEFT's own errors too.
    let slow = json!({"target_modules": r"(?=((.*)*)*x)model.*y"});
    println!("{:?}", targets(slow).map(|targets| targets.len()));
    let both = br#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": "a", "layers_to_transform": []}"#;
    assert!(LoraConfig::parse(both).unwrap_err().contains("`layers_to_transform` is []"));
}

#[test]
fn patterns_are_written_back_and_another_adapter_differs_by_them() {
    let dir = fixture("qwen2");
    let base = Model::load(&ModelFiles::new(&ModelSource::Directory(dir.clone()))).unwrap();
    for name in ADAPTERS {
        let model = base.load_adapter(&dir.join(name)).unwrap();
        let out = tempfile::tempdir().unwrap();
        model.save(out.path()).unwrap();
        let again = base.load_adapter(out.path()).unwrap();
        assert_eq!(again.adapter().unwrap().config(), model.adapter().unwrap().config(), "{name}");
        assert_eq!(again.fingerprint(), model.fingerprint(), "{name}");
        model.restore(out.path()).unwrap();
        let path = out.path().join(CONFIG_FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"^model.layers.0.mlp.up_proj$\": 0.5", "\"up\": 1"))
            .unwrap();
        let restored = model.restore(out.path());
        assert_eq!(restored.is_err(), name == "lora_patterns", "{name}: {restored:?}");
    }
}

#[test]
fn every_tensor_that_does_not_fit_is_named_at_once() {
    let base = tiny();
    let dir = tempfile::tempdir().unwrap();
    let names = ["q_proj", "v_proj"].map(|name| format!("layers.0.self_attn.{name}"));
    let few = LoraConfig { target_modules: names.to_vec(), ..config(&base) };
    Adapter::new(&base.config, few, 1).unwrap().save(dir.path(), "base").unwrap();
    let path = dir.path().join(CONFIG_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let other = text.replace("\"r\": 4", "\"r\": 2").replace("v_proj\"", "k_proj\"");
    std::fs::write(&path, other).unwrap();
    let error = base.load_adapter(dir.path()).err().unwrap().to_string();
    for part in [
        "q_proj.lora_A.weight` is [4, ",
        "k_proj.lora_B.weight` [",
        "v_proj.lora_B.weight` is no correction",
    ] {
        assert!(error.contains(part), "{error}");
    }
    trained(&base, 1).save(dir.path()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"r\": 4", "\"r\": 2")).unwrap();
    let error = base.load_adapter(dir.path()).err().unwrap().to_string();
    let tensors = 2 * config(&base).targets(&base.config).unwrap().len();
    assert_eq!(error.matches(" is [").count(), 8, "{error}");
    assert!(error.ends_with(&format!("; and {} more", tensors - 8)), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = base.load_adapter(dir.path()).err().unwrap().to_string();
    assert!(error.contains("adapter_config.json"), "{error}");
}

#[test]
fn another_adapter_is_not_restored_from() {
    let base = tiny();
    let dir = tempfile::tempdir().unwrap();
    let model = trained(&base, 1);
    model.save(dir.path()).unwrap();
    let fresh = base.with_adapter(Adapter::new(&base.config, config(&base), 9).unwrap());
    fresh.restore(dir.path()).unwrap();
    assert_eq!(fresh.fingerprint(), model.fingerprint());
    let other = LoraConfig { alpha: 16.0, ..config(&base) };
    let other = base.with_adapter(Adapter::new(&base.config, other, 9).unwrap());
    let error = other.restore(dir.path()).unwrap_err().to_string();
    assert!(error.contains("holds another adapter: rank 4, alpha 8"), "{error}");
}

#[test]
fn an_adapter_takes_the_place_of_another() {
    let base = tiny();
    let (one, other) = (trained(&base, 1), trained(&base, 2));
    let adapter = other.adapter().unwrap().clone();
    let replaced = logits(&one.with_adapter(adapter).decoder, &some_rows());
    assert_eq!(replaced, logits(&other.decoder, &some_rows()));
    let few = LoraConfig { target_modules: vec!["q_proj".to_owned()], ..config(&base) };
    let few = Adapter::new(&base.config, few, 1).unwrap();
    assert_eq!(
        logits(&one.with_adapter(few).decoder, &some_rows()),
        logits(&base.decoder, &some_rows())
    );
}

/// A base, and the files of an adapter on it whose numbers are all zero.
fn zeros() -> (Model, Vec<u8>, Vec<u8>) {
    let base = made(&made_configs()[0]);
    let config = LoraConfig { rank: 2, ..config(&base) };
    let adapter = Adapter::new(&base.config, config, 1).unwrap();
    for (_, var) in adapter.vars() {
        var.update(|values| values.fill(0.0));
    }
    let dir = tempfile::tempdir().unwrap();
    adapter.save(dir.path(), "base").unwrap();
    let read = |file: &str| std::fs::read(dir.path().join(file)).unwrap();
    (base, read(CONFIG_FILE), read(WEIGHTS_FILE))
}

#[test]
fn damaged_adapter_configurations_are_errors_or_work_and_cost_what_their_file_costs() {
    let (base, config, _) = zeros();
    let mut files = vec![config];
    for adapter in ADAPTERS {
        let path = fixture("qwen2").join(adapter).join(CONFIG_FILE);
        files.push(std::fs::read(path).unwrap());
    }
    // One expression at a time is compiled, which takes some 350 KB, whatever it is.
    fuzz_over(CONFIG_FILE, &files, [64, 512 * 1024], |bytes| match LoraConfig::parse(bytes) {
        Ok(config) => {
            assert!(config.scale() >= 0.0);
            config.targets(&base.config).is_ok_and(|_| config.parameters(&base.config).unwrap() > 0)
        }
        Err(error) => {
            assert!(error.len() < 4096, "{} bytes of message", error.len());
            false
        }
    });
}

#[test]
fn damaged_adapters_are_errors_or_work_and_cost_what_their_file_costs() {
    let (base, config, weights) = zeros();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(CONFIG_FILE), config).unwrap();
    let mut odd = 0_u64;
    fuzz(WEIGHTS_FILE, &[weights], 64, |bytes| {
        odd += 1;
        let mut bytes = bytes.to_vec();
        if odd.is_multiple_of(2) {
            length_fits(&mut bytes);
        }
        std::fs::write(dir.path().join(WEIGHTS_FILE), bytes).unwrap();
        Adapter::load(dir.path(), &base.config).is_ok()
    });
}
