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

#[test]
fn the_verifier_of_a_stage_rewards_a_later_stage_as_one_that_is_exported_by_hand() {
    let lab = lab();
    lab.judged();
    let command = ["train", "judged.toml", "--out", "both"];
    let told = lab.run(&command).succeeded().says(&[
        "a reward model of step 2",
        "reward `verified` has the verifier `both/1-judge/verifier-000002`",
    ]);
    // The trunk of the verifier has the name of the model, which is no policy that was trained.
    assert!(!told.stderr.contains("`tiny` starts from"), "{told}");
    // The same by hand.
    lab.run(&["train", "judge.toml", "--out", "first"]).succeeded();
    lab.run(&["export", "--run", "first", "--verifier", "--out", "exported"]).succeeded();
    let path = "rewards.verified.verifier.path=\"exported\"";
    lab.run(&["train", "rl.toml", "--set", path, "--out", "second"]).succeeded();
    let [stage, alone] = ["both/2-rl", "second"].map(|dir| Run(lab.path(dir)));
    assert_eq!(stage.bytes("metrics.jsonl"), alone.bytes("metrics.jsonl"));
    assert!(stage.steps()[0]["rollout/reward/verified"].as_f64() > Some(0.0));
    // In a second call, the verifier is the one that was written.
    let done = stage.bytes("metrics.jsonl");
    fs::remove_dir_all(lab.path("both/2-rl")).unwrap();
    let again = lab.run(&command).succeeded();
    assert!(!again.stderr.contains("a reward model of step 2"), "{again}");
    assert_eq!(Run(lab.path("both/2-rl")).bytes("metrics.jsonl"), done);
}

#[test]
fn the_verifier_that_a_reward_names_is_checked_before_the_first_stage_is_trained() {
    let lab = lab();
    lab.judged();
    lab.run(&["check", "judged.toml"]).succeeded();
    let rl = fs::read_to_string(lab.path("rl.toml")).unwrap();
    let judge = fs::read_to_string(lab.path("judge.toml")).unwrap();
    let row = |n: usize, label: bool| {
        let reply = if label { "yes" } else { "no" };
        format!(
            "{}\n",
            serde_json::json!({"prompt": format!("question {n}?"), "completion": reply, "label": label})
        )
    };
    let seen = (0..36).flat_map(|n| [row(n, true), row(n, false)]).collect::<String>();
    lab.write("seen.jsonl", &seen);
    for (name, text, found) in [
        ("rl.toml", rl.replace("stage:judge", "stage:jugde"), "did you mean `judge`?"),
        (
            "rl.toml",
            rl.replace("stage:judge", "stage:rl"),
            "no earlier stage `rl` trains a verifier",
        ),
        (
            "judge.toml",
            judge.replace("labeled.jsonl", "seen.jsonl"),
            "the verifier was trained on ",
        ),
    ] {
        let whole = fs::read_to_string(lab.path(name)).unwrap();
        lab.write(name, &text);
        for command in ["train", "check"] {
            lab.run(&[command, "judged.toml"]).failed().says(&["stage 2 of 2: rl.toml", found]);
        }
        lab.write(name, &whole);
        assert!(!lab.path("runs").exists());
    }
    lab.run(&["check", "rl.toml"]).failed().says(&["no earlier stage `judge` trains a verifier"]);
}
