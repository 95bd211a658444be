//! Runs on the emulated device: the kernels of a GPU as C++ on the CPU.

use maverl::runtime::DeviceChoice;
use serde_json::Value;

use crate::lab;

/// A small part of a run, on a model that a device supports.
const SET: [&str; 7] = [
    "runtime.device=emulated",
    "models.tiny.path=\"builtin:tiny\"",
    "task.tasks_per_step=1",
    "task.group_size=2",
    "sampling.max_tokens=6",
    "eval.before_and_after=false",
    "checkpoint.every=1",
];

#[test]
fn a_run_on_the_emulated_device_has_no_mismatch_and_resumes_to_the_bit() {
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let lab = lab();
    let whole = lab.train("whole", &[&SET[..], &["steps=2"]].concat());
    let part = lab.train("part", &[&SET[..], &["steps=1"]].concat());
    lab.run(&["train", "--resume", "part", "--set", "steps=2"]).succeeded();
    assert_eq!(whole.rows(), part.rows());
    assert_eq!(whole.weights(2, "tiny"), part.weights(2, "tiny"));
    assert_ne!(whole.weights(1, "tiny"), whole.weights(2, "tiny"));
    for step in whole.steps() {
        assert_eq!(step["mismatch/tiny/logp_abs_max"], Value::from(0.0), "{step:#}");
    }
    let provenance = whole.json("provenance.json");
    assert!(provenance["device"].as_str().unwrap().starts_with("emulated; cpu"), "{provenance}");
}

#[test]
fn everything_that_a_device_does_not_support_is_an_error_before_the_run() {
    let lab = lab();
    lab.fails("other", &["runtime.device=\"gpu\""]).says(&["\"cuda:1\""]);
    let wrong =
        ["runtime.device=emulated", "models.tiny.dtype=\"f32\"", "models.tiny.lora.dropout=0.5"];
    lab.fails("other", &wrong).says(&[
        "`runtime.device` is \"emulated\"",
        "write `dtype = \"bf16\"`",
        "write `dropout = 0`",
        "heads of 16 numbers",
    ]);
    let missing = lab.fails("other", &["runtime.device=\"cuda:99\""]);
    missing.says(&["`runtime.device` is \"cuda:99\", which cannot be used here", "\"cpu\""]);
}
