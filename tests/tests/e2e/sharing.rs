//! Weights that a step changes, and the rows that change them.

use maverl_tests::lab::Run;
use serde_json::{Value, json};

use crate::lab;

/// Settings that keep every checkpoint, without evaluations.
const SET: [&str; 4] =
    ["steps=3", "checkpoint.every=1", "checkpoint.keep=9", "eval.before_and_after=false"];
const OWN: &str = "agents.\"duo/closer\".worker_group=\"own\"";
const FROZEN: &str = "agents.\"duo/closer\".frozen=true";

fn set<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SET[..], more].concat()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("`{name}` is missing in {row:#}"))
}

#[test]
fn an_optimizer_step_of_a_shared_policy_uses_the_rows_of_all_its_agents() {
    let lab = lab();
    let run = lab.train("run", &set(&[]));
    for row in run.steps() {
        let turns = |agent: &str| number(&row, &format!("rollout/duo/{agent}/turns"));
        assert!(turns("opener") > 0.0 && turns("closer") > 0.0);
        assert_eq!(number(&row, "policy/tiny/rows"), turns("opener") + turns("closer"));
        assert_eq!(number(&row, "policy/tiny/optimizer_steps"), 1.0);
        let tokens: usize = run
            .episodes(row["step"].as_u64().unwrap())
            .iter()
            .flat_map(|episode| &episode.turns)
            .filter_map(|turn| Some(turn.tokens.as_ref()?.completion.len()))
            .sum();
        assert_eq!(number(&row, "policy/tiny/tokens"), tokens as f64);
    }
}

#[test]
fn agents_with_their_own_workers_train_their_own_weights() {
    let lab = lab();
    let run = lab.train("run", &set(&[OWN]));
    for row in run.steps() {
        let pairs = [("tiny", "opener"), ("own", "closer")];
        for (policy, agent) in pairs {
            let turns = number(&row, &format!("rollout/duo/{agent}/turns"));
            assert_eq!(number(&row, &format!("policy/{policy}/rows")), turns);
        }
    }
    assert_eq!(run.weights(0, "tiny"), run.weights(0, "own"));
    assert_ne!(run.weights(3, "tiny"), run.weights(3, "own"));
}

#[test]
fn weights_that_get_no_update_keep_every_bit() {
    let lab = lab();
    let run = lab.train("run", &set(&[OWN, "orchestra.close=false"]));
    assert_ne!(run.weights(0, "tiny"), run.weights(1, "tiny"));
    for step in 1..=3 {
        assert!(run.weights(step, "own") == run.weights(0, "own"), "step {step}");
    }
    assert!(run.steps().iter().all(|row| row.get("policy/own/rows").is_none()));
}

#[test]
fn a_frozen_agent_never_changes_and_never_trains_others() {
    let lab = lab();
    let apart = lab.train("apart", &set(&[OWN, FROZEN]));
    assert_ne!(apart.weights(3, "tiny"), apart.weights(0, "tiny"));
    assert!(apart.weights(3, "own") == apart.weights(0, "own"));
    let shared = lab.train("shared", &set(&[FROZEN]));
    for row in shared.steps() {
        assert!(number(&row, "rollout/duo/closer/turns") > 0.0);
        assert_eq!(number(&row, "policy/tiny/rows"), number(&row, "rollout/duo/opener/turns"));
    }
}

#[test]
fn what_is_set_for_one_agent_reaches_its_rows_and_no_others() {
    let own = [
        "agents.\"duo/closer\".sampling={temperature=0.5,max_tokens=3}",
        "agents.\"duo/closer\".loss={invalid_reply_penalty=0.5}",
    ];
    let lab = lab();
    let run = lab.train("run", &set(&own));
    let mut penalties = 0;
    for episode in run.episodes(1) {
        for (i, turn) in episode.turns.iter().enumerate() {
            let tokens = turn.tokens.as_ref().unwrap();
            let closer = turn.seat.agent == "duo/closer";
            let (temperature, longest) = if closer { (0.5, 3) } else { (1.0, 16) };
            assert_eq!(tokens.temperature, temperature);
            assert!(tokens.completion.len() <= longest);
            if turn.error.is_some() {
                let penalty = if closer { 0.5 } else { 0.1 };
                let score = episode.score().unwrap().reward;
                assert_eq!(episode.turn_reward(i), Some(score - penalty));
                penalties += u32::from(closer);
            }
        }
    }
    assert!(penalties > 0, "the seed gives the closer no malformed reply; choose another");
}

/// Returns the adapter of a policy in the checkpoint of a step.
fn adapter(run: &Run, step: u64, policy: &str) -> Vec<u8> {
    let dir = format!("checkpoints/step-{step:06}/policies/{policy}");
    assert!(!run.0.join(&dir).join("model.safetensors").exists(), "the base is not saved again");
    run.bytes(&format!("{dir}/adapter_model.safetensors"))
}

#[test]
fn adapters_of_one_base_train_apart_and_go_on_after_a_resume() {
    let adapters = ["models.tiny.lora={rank=2}", "agents.\"duo/closer\".adapter=\"own\""];
    let lab = lab();
    let whole = lab.train("whole", &set(&adapters));
    for row in whole.steps() {
        for (policy, agent) in [("tiny", "opener"), ("own", "closer")] {
            let turns = number(&row, &format!("rollout/duo/{agent}/turns"));
            assert_eq!(number(&row, &format!("policy/{policy}/rows")), turns);
            assert_eq!(number(&row, &format!("mismatch/{policy}/logp_abs_max")), 0.0);
        }
    }
    for policy in ["tiny", "own"] {
        assert_ne!(adapter(&whole, 3, policy), adapter(&whole, 0, policy));
        let config = format!("checkpoints/step-000003/policies/{policy}/adapter_config.json");
        let config = whole.json(&config);
        assert_eq!((&config["r"], &config["peft_type"]), (&json!(2), &json!("LORA")));
        assert!(config["base_model_name_or_path"].as_str().unwrap().ends_with("model"));
    }
    let args = [&set(&adapters)[..], &["steps=2"]].concat();
    let resumed = lab.train("resumed", &args);
    lab.run(&["train", "--resume", "resumed", "--steps", "3"]).succeeded();
    for policy in ["tiny", "own"] {
        assert!(adapter(&resumed, 3, policy) == adapter(&whole, 3, policy), "{policy}");
    }
    assert_eq!(resumed.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));

    // Another run starts from the end of this one.
    let path = whole.0.join("checkpoints/step-000003/policies/own").display().to_string();
    let start = format!("models.tiny.adapter={path:?}");
    let on = lab.train("on", &set(&[&start]));
    assert_eq!(adapter(&on, 0, "tiny"), adapter(&whole, 3, "own"));
    assert_ne!(adapter(&on, 3, "tiny"), adapter(&on, 0, "tiny"));
}

#[test]
fn optimizers_of_agents_that_share_cannot_differ() {
    let set = set(&["agents.\"duo/closer\".optim={lr=1e-4}"]);
    lab().fails("run", &set).says(&["duo/closer", "optim", "worker_group", "adapter"]);
}
