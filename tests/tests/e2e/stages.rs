//! Several configurations in one command: models of a stage start from what was trained before.

use std::fs;

use maverl_tests::lab::Run;

use crate::lab;

#[test]
fn a_stage_goes_on_with_the_policy_of_the_stage_before_to_the_bit() {
    let lab = lab();
    lab.hybrid();
    let command = ["train", "hybrid.toml", "--out", "both"];
    let told = lab.run(&command).succeeded();
    told.says(&[
        "stage 1 of 2: sft.toml",
        "stage 2 of 2: rl.toml",
        "`tiny` starts from `both/1-sft/",
    ]);
    // The same by hand.
    lab.run(&["train", "sft.toml", "--out", "first"]).succeeded();
    let policy = lab.path("first/checkpoints/step-000002/policies/tiny").display().to_string();
    let start = format!("models.tiny.path=\"{policy}\"");
    lab.run(&["train", "rl.toml", "--set", &start, "--out", "second"]).succeeded();
    for (stage, alone) in [("both/1-sft", "first"), ("both/2-rl", "second")] {
        let [stage, alone] = [stage, alone].map(|dir| Run(lab.path(dir)));
        assert_eq!(stage.bytes("metrics.jsonl"), alone.bytes("metrics.jsonl"));
        let weights = "checkpoints/step-000002/policies/tiny/model.safetensors";
        assert_eq!(stage.bytes(weights), alone.bytes(weights));
    }
    // In a second call, complete stages are unchanged; a stage that is not there is trained again.
    let done = Run(lab.path("both/2-rl")).bytes("metrics.jsonl");
    fs::remove_dir_all(lab.path("both/2-rl")).unwrap();
    lab.run(&command).succeeded().says(&["the run is complete"]);
    assert_eq!(Run(lab.path("both/2-rl")).bytes("metrics.jsonl"), done);
    let list = lab.run(&["runs", "both"]).succeeded().stdout;
    assert!(list.contains("1-sft") && list.contains("2-rl"), "{list}");
}

#[test]
fn an_adapter_of_a_stage_is_trained_on_in_the_next() {
    let lab = lab();
    lab.hybrid();
    let lora = ["--set", "models.tiny.lora.rank=2", "--out", "adapters"];
    lab.run(&[&["train", "hybrid.toml"], &lora[..]].concat()).succeeded();
    let resolved = fs::read_to_string(lab.path("adapters/2-rl/resolved.toml")).unwrap();
    assert!(resolved.contains("1-sft/checkpoints/step-000002/policies/tiny"), "{resolved}");
    assert!(resolved.contains("path = \"model\"") || resolved.contains("/model\""), "{resolved}");
}

#[test]
fn stages_are_checked_before_the_first_is_trained() {
    let lab = lab();
    lab.hybrid();
    let plans = lab.run(&["check", "hybrid.toml"]).succeeded().stdout;
    assert!(plans.contains("stage 1 of 2: sft.toml") && plans.contains("stage 2 of 2: rl.toml"));
    let json = lab.run(&["check", "hybrid.toml", "--json"]).succeeded().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 2);
    let rl = fs::read_to_string(lab.path("rl.toml")).unwrap();
    for (text, found) in [
        (rl.replace("steps = 2", "stepz = 2"), "unknown key `stepz`"),
        (rl.replace("[models.tiny]", "[models.other]"), "models: `other`; policies: `tiny`"),
    ] {
        lab.write("rl.toml", &text);
        for command in ["train", "check"] {
            lab.run(&[command, "hybrid.toml"]).failed().says(&["stage 2 of 2: rl.toml", found]);
        }
        assert!(!lab.path("runs").exists());
    }
    lab.run(&["train", "hybrid.toml", "--seeds", "0..2"]).failed().says(&["--seeds", "--seed"]);
    lab.run(&["eval", "hybrid.toml"]).failed().says(&["unknown key `stages`", "a file of stages"]);
}
