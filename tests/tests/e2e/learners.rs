//! Algorithms with critics: they train, resume to the bit, and predicted values approach the returns.

use std::collections::BTreeMap;

use maverl::run_dir::read_samples;
use maverl_tests::lab::{Lab, Run};
use serde_json::Value;

use crate::lab;

const LEARNERS: [&str; 8] = ["ppo", "ippo", "mappo", "happo", "marft", "vdn", "qmix", "maporl"];
/// Algorithms with one critic for all policies.
const OF_THE_TEAM: [&str; 4] = ["ppo", "mappo", "happo", "marft"];

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("`{name}` is missing in {row:#}"))
}

/// Trains two policies of one model, each with its own worker group.
fn train(lab: &Lab, out: &str, learner: &str, more: &[&str]) -> Run {
    let name = format!("algorithm.name=\"{learner}\"");
    let set = [
        &name[..],
        "eval.before_and_after=false",
        "agents.\"duo/closer\".worker_group=\"second\"",
        "checkpoint.every=1",
        "checkpoint.keep=9",
    ];
    lab.train(out, &[&set[..], more].concat())
}

#[test]
fn every_learner_with_a_critic_goes_on_to_the_bit_after_a_step() {
    let lab = lab();
    for learner in LEARNERS {
        let whole = train(&lab, &format!("{learner}-whole"), learner, &["steps=2"]);
        let halves = train(&lab, &format!("{learner}-halves"), learner, &["steps=1"]);
        let out = format!("{learner}-halves");
        lab.run(&["train", "--resume", &out, "--steps", "2"]).succeeded();
        assert_eq!(halves.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"), "{learner}");
        let checkpoint = |run: &Run| -> Vec<(String, Vec<u8>)> {
            let last = |(name, _): &(String, Vec<u8>)| {
                name.starts_with("checkpoints/step-000002") && name.ends_with(".safetensors")
            };
            run.lasting().into_iter().filter(last).collect()
        };
        let files = checkpoint(&whole);
        let critics = files.iter().filter(|(name, _)| name.contains("/critic/value_head"));
        let expected = if OF_THE_TEAM.contains(&learner) { 1 } else { 2 };
        assert_eq!(critics.count(), expected, "{learner}");
        let mixer = files.iter().any(|(name, _)| name.ends_with("/mixer.safetensors"));
        assert_eq!(mixer, learner == "qmix", "{learner}");
        assert!(files == checkpoint(&halves), "{learner}: a checkpoint differs");
    }
}

#[test]
fn the_more_often_critics_see_a_batch_the_nearer_they_come_to_it() {
    let lab = lab();
    for learner in LEARNERS {
        let loss = |epochs: &str| {
            let epochs = format!("algorithm.epochs={epochs}");
            let mut set = vec![
                "steps=1",
                "algorithm.advantage.optim.lr=3e-3",
                "algorithm.advantage.clip=0",
                &epochs[..],
            ];
            // The values of a mixer are in units of reward.
            let mixed = ["vdn", "qmix"].contains(&learner);
            set.extend((!mixed).then_some("algorithm.advantage.normalize=\"none\""));
            let run = train(&lab, &format!("{learner}-{}", epochs.len()), learner, &set);
            let row = run.steps().remove(0);
            let all = row.as_object().unwrap().iter();
            let is_loss = |name: &str| {
                name == "mixer/loss" || name.starts_with("critic/") && name.ends_with("/loss")
            };
            let its = all.filter(|(name, _)| is_loss(name));
            its.map(|(_, value)| value.as_f64().unwrap()).sum::<f64>()
        };
        let (once, often) = (loss("1"), loss("40"));
        println!("{learner}: value loss {once:.4}, over 40 epochs {often:.4}");
        assert!(often < 0.7 * once, "{learner}: {once}, {often}");
    }
}

#[test]
fn every_way_to_share_what_a_team_earned_moves_policies_critics_and_mixer() {
    let lab = lab();
    for credit in ["weight", "difference", "without", "tokens"] {
        let chosen = format!("algorithm.advantage.credit=\"{credit}\"");
        let set = ["steps=3", "algorithm.advantage.huber=0.1", &chosen[..]];
        let row = &train(&lab, credit, "qmix", &set).steps()[2];
        for name in ["policy/tiny/grad_norm", "critic/tiny/grad_norm", "mixer/loss"] {
            assert!(number(row, name) > 0.0, "{credit}: {name} in {row:#}");
        }
    }
}

#[test]
fn a_reply_of_vdn_is_compared_with_values_from_before_it_as_its_record_shows() {
    let lab = lab();
    let set = ["steps=3", "algorithm.advantage.optim.lr=3e-3"];
    let run = train(&lab, "vdn", "vdn", &set);
    let step = read_samples(&run.0.join("samples/step-000003.jsonl.zst")).unwrap();
    // Value of each turn by episode; the duo speaks in order, each once.
    let mut turns: BTreeMap<usize, Vec<(f64, f64, f64)>> = BTreeMap::new();
    for sample in &step.samples {
        let own = (sample.values[0], sample.reward, sample.unwhitened.unwrap());
        turns.entry(sample.episode).or_default().push(own);
    }
    // An episode ends with a first reply that cannot be read.
    assert!(
        turns.len() > 4 && turns.values().filter(|own| own.len() == 2).count() > 2,
        "{turns:?}"
    );
    let mut moved = 0.0_f64;
    for (episode, own) in &turns {
        let reward = own.iter().map(|turn| turn.1).sum::<f64>() / own.len() as f64;
        let others = turns.iter().filter(|(other, _)| *other != episode);
        let others: Vec<f64> = others.filter_map(|(_, own)| Some(own.get(1)?.0)).collect();
        let expected = others.iter().sum::<f64>() / others.len() as f64;
        let first = reward - own[0].0 - expected;
        assert!((own[0].2 - first).abs() < 1e-9, "{episode}: {} is not {first}", own[0].2);
        if let Some(&(value, _, advantage)) = own.get(1) {
            let second = reward - own[0].0 - value;
            assert!((advantage - second).abs() < 1e-9, "{episode}: {advantage} is not {second}");
            moved = moved.max((value - expected).abs());
        }
    }
    assert!(moved > 1e-4, "the values of the second agent differ: {moved}");
}

#[test]
fn critics_have_passes_and_minibatches_of_their_own() {
    let lab = lab();
    let steps = |out: &str, learner: &str, more: &[&str]| {
        let set = [&["steps=1"][..], more].concat();
        let row = train(&lab, out, learner, &set).steps().remove(0);
        ["policy", "critic"].map(|of| number(&row, &format!("{of}/tiny/optimizer_steps")))
    };
    let own = ["algorithm.advantage.epochs=3", "algorithm.advantage.minibatches=2"];
    assert_eq!(steps("own", "ippo", &own), [1.0, 6.0]);
    let both = ["algorithm.epochs=2", "algorithm.advantage.minibatches=2"];
    assert_eq!(steps("both", "ippo", &both), [2.0, 4.0]);
    // A mixer and its critics learn more of a batch in more passes; policies are as before.
    let loss = |out: &str, more: &[&str]| {
        let set =
            [&["steps=1", "algorithm.advantage.optim.lr=3e-3", "algorithm.advantage.clip=0"], more]
                .concat();
        let row = train(&lab, out, "qmix", &set).steps().remove(0);
        assert_eq!(number(&row, "policy/tiny/optimizer_steps"), 1.0);
        number(&row, "mixer/loss")
    };
    let passes = ["algorithm.advantage.epochs=20", "algorithm.advantage.minibatches=2"];
    let (once, often) = (loss("once", &[]), loss("often", &passes));
    assert!(often < 0.8 * once, "{once}, {often}");
}

#[test]
fn a_head_on_the_policy_and_an_adapter_are_critics_too() {
    let lab = lab();
    let shared = |coef: &str| {
        let coef = format!("algorithm.advantage.value_coef={coef}");
        let set = ["steps=3", "algorithm.advantage.trunk=\"shared\"", &coef[..]];
        let run = train(&lab, &format!("shared-{}", coef.len()), "ippo", &set);
        let steps = run.steps();
        assert!(number(&steps[2], "critic/tiny/grad_norm") > 0.0);
        assert!(number(&steps[2], "policy/tiny/grad_norm") > 0.0);
        run.weights(3, "tiny")
    };
    assert_ne!(shared("0"), shared("0.5"), "the value loss moves a trunk that it counts in");
    let set = [
        "steps=2",
        "models.tiny.lora.rank=4",
        "algorithm.advantage.trunk=\"lora\"",
        "algorithm.advantage.scope=\"policy\"",
    ];
    let run = train(&lab, "lora", "ppo", &set);
    assert!(number(&run.steps()[1], "critic/tiny/grad_norm") > 0.0);
    run.bytes("checkpoints/step-000002/policies/second/critic/adapter_model.safetensors");
}

#[test]
fn the_first_policy_of_a_sequence_is_weighed_by_one_and_the_second_by_what_the_first_changed() {
    let lab = lab();
    let set = ["steps=1", "algorithm.update_order={ kind = 'fixed', factor = 'exact' }"];
    let row = &train(&lab, "happo", "happo", &set).steps()[0];
    let of = |policy: &str, name: &str| number(row, &format!("policy/{policy}/factor_{name}"));
    assert_eq!((of("second", "min"), of("second", "max")), (1.0, 1.0));
    assert!(of("tiny", "min") != 1.0 || of("tiny", "max") != 1.0);
}

#[test]
fn in_warm_up_critics_learn_and_policies_do_not() {
    let lab = lab();
    let run = train(&lab, "run", "ppo", &["steps=2", "algorithm.advantage.warmup_steps=1"]);
    let (first, second) = (&run.steps()[0], &run.steps()[1]);
    assert!(first.get("policy/tiny/loss").is_none() && number(first, "critic/second/loss") > 0.0);
    assert!(number(second, "policy/tiny/grad_norm") > 0.0);
    assert_eq!(run.weights(0, "tiny"), run.weights(1, "tiny"));
}

#[test]
fn in_a_cycle_one_policy_changes_at_a_time_and_they_take_turns() {
    let lab = lab();
    let run = train(&lab, "run", "ppo", &["steps=4", "algorithm.train_cycle=1"]);
    let changes = |policy: &str| -> Vec<bool> {
        (0..4).map(|step| run.weights(step, policy) != run.weights(step + 1, policy)).collect()
    };
    let (first, second) = ([true, false, true, false], [false, true, false, true]);
    assert_eq!((changes("tiny"), changes("second")), (second.to_vec(), first.to_vec()));
}

#[test]
fn micro_batches_do_not_change_what_critics_learn() {
    let lab = lab();
    for (trunk, name) in [("own", "critic/tiny/grad_norm"), ("shared", "policy/tiny/grad_norm")] {
        let trunk = format!("algorithm.advantage.trunk=\"{trunk}\"");
        let row = |tokens: &str| {
            let tokens = format!("runtime.micro_batch_tokens={tokens}");
            let set = ["steps=1", &trunk[..], &tokens, "algorithm.advantage.value_coef=2"];
            let out = format!("{}-{}", trunk.len(), tokens.len());
            train(&lab, &out, "ippo", &set).steps().remove(0)
        };
        let (whole, parts) = (row("4096"), row("90"));
        for name in [name, "critic/tiny/loss", "critic/tiny/value_mean"] {
            let (whole, parts) = (number(&whole, name), number(&parts, name));
            assert!((whole - parts).abs() < 1e-5 * (1.0 + whole.abs()), "{name}: {whole}, {parts}");
        }
    }
}

#[test]
fn the_teams_value_after_replies_is_in_the_metrics_where_the_credit_uses_it() {
    let lab = lab();
    for (credit, is_used) in [("shared", false), ("difference", true), ("tokens", true)] {
        let set = format!("algorithm.advantage.credit=\"{credit}\"");
        let row = train(&lab, credit, "vdn", &["steps=1", &set]).steps().remove(0);
        assert!(row["mixer/explained_variance"].is_number(), "{credit}: {row:#}");
        let after = &row["mixer/explained_variance_after"];
        assert_eq!(after.is_number(), is_used, "{credit}: {row:#}");
    }
}

#[test]
fn a_run_of_one_episode_a_step_learns_with_critics_and_not_from_a_group() {
    let lab = lab();
    let one = ["steps=2", "task.tasks_per_step=1", "task.group_size=1"];
    for (learner, learns) in
        [("ippo", true), ("ppo", true), ("vdn", true), ("qmix", true), ("grpo", false)]
    {
        let run = train(&lab, learner, learner, &one);
        for (step, row) in run.steps().iter().enumerate() {
            let norm = row["policy/tiny/grad_norm"].as_f64();
            assert_eq!(norm.is_some_and(|norm| norm > 0.0), learns, "{learner}: {row:#}");
            let (before, after) = (step as u64, step as u64 + 1);
            let moves = run.weights(before, "tiny") != run.weights(after, "tiny");
            assert_eq!(moves, learns, "{learner}, step {after}");
            let flat = if learns { 0.0 } else { after as f64 };
            assert_eq!(number(row, "group/flat_steps"), flat, "{learner}: {row:#}");
        }
    }
}
