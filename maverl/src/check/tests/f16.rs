//! Models whose products are in f16.

use super::mistakes::plain;
use super::*;
use crate::config::{Dtype, LossScaleOptions};
use crate::runtime::DeviceChoice;

/// A model in f16, with other keys of its table.
fn model(keys: &str) -> String {
    format!("[models.base]\npath = \"builtin:tiny\"\ndtype = \"f16\"\n{keys}\n")
}

fn told(toml: &str) -> String {
    plain(&problems(&text(toml), &search()))
}

#[test]
fn a_model_in_f16_has_a_scale_of_the_loss_that_its_resolved_configuration_writes_out() {
    let cases = [
        ("", LossScaleOptions { start: 65_536, every: 400 }),
        ("loss_scale.every = 3", LossScaleOptions { start: 65_536, every: 3 }),
        ("loss_scale = { start = 1024, every = 20 }", LossScaleOptions { start: 1024, every: 20 }),
    ];
    for (keys, scale) in cases {
        let plan = plan_of(&text(&model(keys)));
        let worker = &plan.workers[0];
        assert_eq!((worker.dtype, worker.loss_scale), (Dtype::F16, Some(scale)));
        let spec = &plan.worker_specs()[0];
        assert_eq!((spec.dtype, spec.loss_scale), (Dtype::F16, scale));
        let resolved = toml::to_string(&plan.config).unwrap();
        let LossScaleOptions { start, every } = scale;
        let written = format!("[models.base.loss_scale]\nstart = {start}\nevery = {every}\n");
        assert!(resolved.contains(&written), "{resolved}");
        assert_eq!(plan_of(&text(&resolved)), plan);
        // Weights that products read have half of the bytes.
        let whole = plan_of(&text(&model(keys).replace("f16", "f32").replace("loss_scale", "#")));
        let packed = [worker.packed_bytes, whole.workers[0].packed_bytes];
        assert!(packed[0] * 2 < packed[1] + packed[1] / 10, "{packed:?}");
    }
    let others = toml::to_string(&plan_of(&text("")).config).unwrap();
    assert!(!others.contains("loss_scale"), "{others}");
}

#[test]
fn a_scale_of_the_loss_is_refused_out_of_its_range_and_has_no_effect_in_another_precision() {
    for (keys, part) in [
        (
            "loss_scale.start = 1000",
            "`models.base.loss_scale.start` is 1000, which is no power of two",
        ),
        ("loss_scale.start = 1000", "write 1024 or 512"),
        ("loss_scale.start = 33554432", "loss_scale.start"),
        ("loss_scale.every = 0", "loss_scale.every"),
        ("loss_scale.growth = 2", "loss_scale.growth"),
    ] {
        let found = told(&model(keys));
        assert!(found.contains(part), "{part} is missing in {found}");
    }
    for dtype in ["f32", "bf16"] {
        let toml = model("loss_scale.start = 1000").replace("f16", dtype);
        let warnings = plan_of(&text(&toml)).warnings;
        let told = "`models.base.loss_scale` has no effect: `dtype` is not \"f16\"";
        assert!(warnings.iter().any(|warning| warning == told), "{warnings:?}");
    }
}

#[test]
fn a_family_with_activations_beyond_f16_is_refused_in_it_by_name() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/families/gemma3_text");
    let message =
        "`models.base.dtype` is \"f16\": gemma3_text has activations beyond 65,504: bf16 or f32";
    let toml = model("").replace("builtin:tiny", path);
    for purpose in [Purpose::Train, Purpose::Eval, Purpose::Ranks] {
        let found = super::super::check(&text(&toml), &search(), purpose).unwrap_err();
        let found = plain(&render(&found, GraphicalTheme::none()));
        assert!(found.contains(message), "{found}");
        assert!(found.contains("write `dtype = \"bf16\"`"), "{found}");
    }
    let other = toml.replace("\"f16\"", "\"bf16\"");
    let found = super::super::check(&text(&other), &search(), Purpose::Ranks).err();
    let found = found.map_or_else(String::new, |all| render(&all, GraphicalTheme::none()));
    assert!(!found.contains("65,504"), "{found}");
}

#[test]
fn devices_other_than_the_cpu_refuse_f16_by_name() {
    for (device, part) in [
        (
            DeviceChoice::Emulated,
            "products in f16 are computed on a CPU alone: write `dtype = \"bf16\"`",
        ),
        (DeviceChoice::CandleCpu, "products are in f32: write `dtype = \"f32\"`"),
    ] {
        if let Some(reason) = device.unavailable() {
            eprintln!("skipped: {reason}");
            continue;
        }
        let found = told(&format!("{}[runtime]\ndevice = \"{device}\"\n", model("")));
        assert!(found.contains(part), "{found}");
    }
}
