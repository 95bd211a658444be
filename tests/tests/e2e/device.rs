//! Runs on the emulated device: the kernels of a GPU as C++ on the CPU.

use maverl::runtime::DeviceChoice;
use serde_json::Value;

use crate::lab;

/// A small part of a run, on a model that a device supports.
const SET: [&str; 8] = [
    "runtime.device=emulated",
    "models.tiny.path=\"builtin:tiny\"",
    "task.tasks_per_step=1",
    "task.group_size=4",
    // Replies of so few tokens are malformed: lengths let rewards differ.
    "rewards.length.weight=0.1",
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
    let told = |set: &[&str]| {
        let stderr = lab.fails("other", set).stderr;
        stderr.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ")
    };
    let wrong = told(&["runtime.device=gpu"]);
    assert!(
        wrong.contains("expected \"cpu\", \"auto\", \"cuda\", \"cuda:1\" or \"emulated\""),
        "{wrong}"
    );
    let wrong =
        told(&["runtime.device=emulated", "models.tiny.dtype=f32", "models.tiny.lora.dropout=0.5"]);
    for part in ["write `dtype = \"bf16\"`", "write `dropout = 0`", "heads of 16 numbers"] {
        assert!(wrong.contains(part), "{wrong}");
    }
    let missing = told(&["runtime.device=cuda:99"]);
    assert!(missing.contains("\"cuda:99\", which cannot be used here"), "{missing}");
}
