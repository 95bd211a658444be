//! Runs on the emulated device: the kernels of a GPU as C++ on the CPU.

use maverl::run_dir::read_samples;
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
    let samples = read_samples(&whole.0.join("samples/step-000001.jsonl.zst")).unwrap();
    assert_eq!(samples.estimator.device.as_deref(), Some("emulated"));
    for sample in &samples.samples {
        let written = samples.arithmetic(sample).unwrap().advantage;
        let largest = sample.advantage.abs().max(1.0);
        assert!((written - sample.advantage).abs() <= 1e-5 * largest, "{sample:?}: {written}");
    }
    for step in whole.steps() {
        assert_eq!(step["mismatch/tiny/logp_abs_max"], Value::from(0.0), "{step:#}");
    }
    let provenance = whole.json("provenance.json");
    assert!(provenance["device"].as_str().unwrap().starts_with("emulated; cpu"), "{provenance}");
}

#[test]
fn the_kernel_of_a_declared_estimator_computes_the_advantages_of_a_run_on_a_device() {
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let lab = lab();
    let margin = ["algorithm.advantage.kind=\"duo/margin\"", "algorithm.advantage.scale=2.5"];
    // Among eight episodes, some have replies of both seats: with those of one alone, a margin is 0.
    let set = [&SET[..], &margin, &["steps=1", "task.group_size=8"]].concat();
    let ended = lab.run(&maverl_tests::lab::train_args("run", &set)).succeeded();
    let note = "advantages are computed on emulated, by the kernel `margin.cu`";
    assert!(ended.stderr.contains(note) || ended.stdout.contains(note), "{ended}");
    let samples = read_samples(&lab.path("run/samples/step-000001.jsonl.zst")).unwrap();
    let of = &samples.estimator;
    assert_eq!(of.estimator, "duo/margin");
    assert_eq!((of.device.as_deref(), of.kernel.as_deref()), (Some("emulated"), Some("margin.cu")));
    // Numbers of a kernel are of f32.
    assert!(samples.samples.iter().any(|sample| sample.advantage != 0.0));
    for sample in &samples.samples {
        assert_eq!(sample.advantage, f64::from(sample.advantage as f32), "{sample:?}");
    }
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
        wrong.contains(
            "expected \"cpu\", \"auto\", \"cuda\", \"cuda:1\", \"candle:cpu\" or \"emulated\""
        ),
        "{wrong}"
    );
    let wrong =
        told(&["runtime.device=emulated", "models.tiny.dtype=f32", "models.tiny.lora.dropout=0.5"]);
    for part in ["write `dtype = \"bf16\"`", "write `dropout = 0`", "heads of 16 numbers"] {
        assert!(wrong.contains(part), "{wrong}");
    }
    let missing = told(&["runtime.device=cuda:99"]);
    assert!(missing.contains("\"cuda:99\", which cannot be used here"), "{missing}");
    let other = told(&["runtime.device=candle:metal"]);
    assert!(other.contains("candle runs on its CPU alone; write \"candle:cpu\""), "{other}");
    if DeviceChoice::CandleCpu.unavailable().is_some() {
        let missing = told(&["runtime.device=candle:cpu"]);
        assert!(missing.contains("this program lacks the feature `candle`"), "{missing}");
    }
}

#[test]
fn the_machine_is_described_without_a_run() {
    let lab = lab();
    let text = lab.run(&["info"]).succeeded().stdout;
    for part in ["maverl ", "features ", "processor ", "gpu ", "\"cpu\" can be used"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = lab.run(&["info", "--json"]).succeeded().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let processor = &json["processor"];
    assert!(processor["paths"].as_array().unwrap().contains(&processor["used"]), "{json}");
    for feature in ["cuda", "view"] {
        assert!(json["features"].as_array().unwrap().contains(&feature.into()), "{json}");
    }
    assert_eq!(json["gpus"].as_array().unwrap().is_empty(), json["no_gpu"].is_string(), "{json}");
    let libraries = json["libraries"].as_array().unwrap();
    let named: Vec<&str> = libraries.iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["driver", "NVRTC", "cubins", "cuBLASLt"]);
    let told = |of: &Value| of["found"].is_string() != of["missing"].is_string();
    assert!(libraries.iter().all(told), "{json}");
}

#[test]
#[ignore = "second tier: takes half a minute"]
fn a_check_of_a_device_prints_a_line_for_each_result() {
    let lab = lab();
    let missing = lab.run(&["device", "check", "cuda:99"]);
    assert_eq!(
        (missing.code, missing.stderr.matches("error: ").count()),
        (Some(2), 1),
        "{missing}"
    );
    lab.run(&["device", "check", "cpu"]).failed().says(&["`emulated`"]);
    lab.run(&["device", "compile", "--arch", "sm_90,gfx90"]).failed().says(&["`gfx90` is no arch"]);
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        return eprintln!("skipped: {reason}");
    }
    let parts = ["device", "parity", "invariance", "step", "rollout"];
    let args = ["--only", "copies_leave", "--json"];
    let ended = lab.run(&[&["device", "check", "emulated"], &parts[..], &args].concat());
    let ended = ended.succeeded();
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for part in parts {
        assert!(lines.iter().any(|line| line["part"] == part), "{part}: {ended}");
    }
    let checks = lines.iter().filter(|line| line["part"] != "device" && !line["ok"].is_null());
    assert!(checks.clone().all(|line| line["ok"] == true), "{ended}");
    assert_eq!(checks.count(), 1 + 2 + 2, "{ended}");
    let rollout = lines.iter().find(|line| line["part"] == "rollout").unwrap();
    assert_eq!(rollout["note"], "skipped: the emulated device has no speed");
}
