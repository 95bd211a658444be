//! Runs whose worker groups are on different devices.

use maverl::run_dir::read_samples;
use maverl::runtime::DeviceChoice;
use maverl_tests::lab::{Lab, Run};
use serde_json::Value;

use crate::lab;

/// Two policies on a model that a device supports. Rewards of the opener depend on its own replies alone: every score is 1, and
/// lengths let rewards differ.
const SET: [&str; 10] = [
    "agents.\"duo/closer\".worker_group=\"own\"",
    "models.tiny.path=\"builtin:tiny\"",
    "models.tiny.dtype=bf16",
    "environment.flat=true",
    "rewards.length.weight=0.1",
    "task.tasks_per_step=1",
    "task.group_size=8",
    "sampling.max_tokens=6",
    "eval.before_and_after=false",
    "checkpoint.every=1",
];
const OPENER_ON_CPU: &str = "worker_groups.own.device=emulated";
const CLOSER_ON_CPU: [&str; 2] = ["runtime.device=emulated", "worker_groups.own.device=cpu"];

/// Returns the ids that end a reply: so many that most openers do not reach the limit of tokens, after which no closer is asked.
fn stop() -> String {
    format!("sampling.stop_ids={:?}", (100..300).collect::<Vec<_>>())
}

/// Trains for two steps.
fn train(lab: &Lab, out: &str, set: &[&str]) -> Run {
    lab.train(out, &[&SET[..], &["steps=2", &stop()], set].concat())
}

/// Returns everything that two runs have in common if the opener is trained on the same device: its replies with their
/// log-probs, its metrics, and the files of its policy.
fn of_the_opener(run: &Run) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for step in [1, 2] {
        for episode in run.episodes(step) {
            let turns = episode.turns.iter().filter(|turn| turn.seat.agent == "duo/opener");
            for turn in turns {
                let name = format!("step {step}, episode {}", episode.index);
                found.push((name, format!("{:?} {:?}", turn.prompt, turn.tokens)));
            }
        }
        let row = &run.steps()[step as usize - 1];
        for (name, value) in row.as_object().unwrap() {
            if name.split('/').nth(1) == Some("tiny") {
                found.push((format!("{name} of step {step}"), value.to_string()));
            }
        }
    }
    let policy = "checkpoints/step-000002/policies/tiny/";
    for (name, bytes) in run.lasting() {
        if name.starts_with(policy) {
            found.push((name, format!("{bytes:?}")));
        }
    }
    found
}

/// Panics unless the opener is the same in two runs.
fn same_opener(one: &Run, other: &Run) {
    let (ours, theirs) = (of_the_opener(one), of_the_opener(other));
    for ((name, ours), (other, theirs)) in ours.iter().zip(&theirs) {
        assert_eq!(name, other);
        assert!(ours == theirs, "{name} differs");
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(ours.iter().any(|(name, _)| name.ends_with("optimizer.safetensors")), "{ours:?}");
    assert!(one.weights(1, "tiny") != one.weights(2, "tiny"), "the opener is trained");
}

#[test]
#[ignore = "second tier: takes half a minute"]
fn each_worker_group_is_trained_as_in_a_run_whose_groups_are_all_on_its_device() {
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        return eprintln!("skipped: {reason}");
    }
    let lab = lab();
    let on_cpu = train(&lab, "on_cpu", &[OPENER_ON_CPU]);
    same_opener(&on_cpu, &train(&lab, "cpu", &[]));
    let on_device = train(&lab, "on_device", &CLOSER_ON_CPU);
    same_opener(&on_device, &train(&lab, "emulated", &["runtime.device=emulated"]));
    for (run, device) in [(&on_cpu, None), (&on_device, Some("emulated"))] {
        assert!(run.weights(1, "own") != run.weights(2, "own"), "the closer is trained");
        for step in run.steps() {
            for policy in ["tiny", "own"] {
                let mismatch = &step[&format!("mismatch/{policy}/logp_abs_max")];
                assert_eq!(mismatch, &Value::from(0.0), "{step:#}");
                let norm = step[&format!("policy/{policy}/grad_norm")].as_f64();
                assert!(norm.is_some_and(|norm| norm > 0.0), "{step:#}");
            }
        }
        // Advantages are computed on `runtime.device`.
        let samples = read_samples(&run.0.join("samples/step-000001.jsonl.zst")).unwrap();
        assert_eq!(samples.estimator.device.as_deref(), device);
    }
}

#[test]
#[ignore = "second tier: takes half a minute"]
fn a_run_on_two_devices_repeats_and_resumes_to_the_bit_and_names_both() {
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        return eprintln!("skipped: {reason}");
    }
    let lab = lab();
    let whole = train(&lab, "whole", &[OPENER_ON_CPU]);
    whole.equals(&train(&lab, "again", &[OPENER_ON_CPU]));
    let stop = stop();
    let args = [&SET[..], &["steps=1", &stop, OPENER_ON_CPU]].concat();
    let part = lab.run(&maverl_tests::lab::train_args("part", &args)).succeeded();
    let told = format!("{}{}", part.stdout, part.stderr);
    assert!(told.contains("device: cpu; worker group `own`: emulated"), "{told}");
    lab.run(&["train", "--resume", "part", "--set", "steps=2"]).succeeded();
    let part = Run(lab.path("part"));
    assert_eq!(part.rows(), whole.rows());
    for policy in ["tiny", "own"] {
        assert!(part.weights(2, policy) == whole.weights(2, policy), "{policy}");
    }
    let provenance = whole.json("provenance.json");
    let device = provenance["device"].as_str().unwrap();
    assert!(device.starts_with("cpu ") && device.ends_with("; worker group `own`: emulated"));
    let info = lab.run(&["info", "whole"]).succeeded().stdout;
    assert!(info.contains("worker group `own`: emulated"), "{info}");
    let workers = whole.json("plan.json")["summary"]["workers"].clone();
    let devices: Vec<&Value> =
        workers.as_array().unwrap().iter().map(|worker| &worker["device"]).collect();
    assert_eq!(devices, [&Value::from("emulated"), &Value::Null]);

    // The device of a worker group may not change on resume.
    let other = ["train", "--resume", "whole", "--set", "worker_groups.own.device=cpu"];
    lab.run(&other).failed().says(&["`worker_groups.own.device` was \"emulated\", is \"cpu\""]);

    // Commands on the run use the same devices, or say that they do not.
    lab.run(&["eval", "--run", "whole", "--set", "eval.tasks=1"]).succeeded();
    let names = lab.run(&["replay", "whole", "2"]).succeeded().stdout;
    let name = names.lines().next().unwrap().trim();
    let replayed = lab.run(&["replay", "whole", name, "--json"]).succeeded().stdout;
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!(replayed["identical"], true, "{replayed:#}");
    let serve = ["serve", "model", "--run", "whole", "--address", "127.0.0.1:0"];
    lab.run(&serve).failed().says(&["`worker_groups.own.device` of the run is \"emulated\""]);
}

#[test]
fn worker_groups_that_name_the_device_of_the_runtime_change_no_file() {
    let lab = lab();
    let own = "agents.\"duo/closer\".worker_group=\"own\"";
    let none = lab.train("none", &[own, "steps=2"]);
    let both = ["worker_groups.own.device=cpu", "worker_groups.tiny.device=cpu"];
    let named = lab.train("named", &[&[own, "steps=2"], &both[..]].concat());
    named.equals(&none);
    assert_eq!(named.bytes("provenance.json"), none.bytes("provenance.json"));
    let resolved = |run: &Run| String::from_utf8(run.bytes("resolved.toml")).unwrap();
    let tables =
        "\n[worker_groups.own]\ndevice = \"cpu\"\n\n[worker_groups.tiny]\ndevice = \"cpu\"\n";
    assert_eq!(resolved(&named).replacen(tables, "", 1), resolved(&none));
}

#[test]
fn mistakes_about_devices_of_worker_groups_are_answered_before_the_run() {
    let lab = lab();
    let told = |set: &[&str]| lab.fails("other", set);
    let own = "agents.\"duo/closer\".worker_group=\"own\"";
    told(&[own, "worker_groups.owm.device=cpu"]).says(&[
        "no agent uses a worker group `owm`",
        "worker groups of the plan: `own` and `tiny`",
        "did you mean `own`?",
    ]);
    told(&[own, "worker_groups.own.device=cuda:99"])
        .says(&["`worker_groups.own.device` is \"cuda:99\", which cannot be used here"]);
    let explained = lab.run(&["explain", "worker_groups.own.device"]).succeeded().stdout;
    for part in ["worker_groups.NAME.device", "a value of `runtime.device`", "gpu.md"] {
        assert!(explained.contains(part), "{part} is missing in {explained}");
    }
    if DeviceChoice::Emulated.unavailable().is_none() {
        // The shape of this model, and its `dtype`, are wrong for one of two worker groups.
        told(&[own, OPENER_ON_CPU, "models.tiny.dtype=f32"]).says(&[
            "`worker_groups.own.device` is \"emulated\"",
            "group `own`: heads of 16 numbers",
        ]);
    }
}

#[test]
fn the_single_agent_of_a_comparison_is_on_the_device_of_its_model() {
    let lab = lab();
    let groups = [
        "agents.\"duo/opener\".worker_group=\"one\"",
        "agents.\"duo/closer\".worker_group=\"own\"",
    ];
    let devices = ["worker_groups.one.device=cpu", "worker_groups.own.device=auto"];
    lab.train("run", &[&groups[..], &devices, &["steps=1"]].concat());
    let args = ["eval", "--compare", "--run", "run", "--single", "duo/alone"];
    lab.run(&args).succeeded();
}
