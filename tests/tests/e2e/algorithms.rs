//! Every preset trains.

use std::collections::BTreeMap;

use maverl::config::Preset;
use maverl::run_dir::read_samples;
use maverl_tests::lab::{Lab, Run};
use serde_json::Value;

use crate::lab;

/// Two agents with exchangeable policies.
const EXCHANGE: [&str; 3] = [
    "models.tiny.lora={}",
    r#"agents."duo/opener".adapter="tiny""#,
    r#"agents."duo/closer".adapter="other""#,
];

#[test]
fn every_preset_plays_learns_and_says_so() {
    let lab = lab();
    for preset in Preset::ALL.into_iter().filter(|preset| !preset.is_supervised()) {
        let name = preset.name();
        let chosen = format!("algorithm.name=\"{name}\"");
        let mut set =
            vec![&*chosen, "steps=2", "eval.before_and_after=false", "algorithm.epochs=2"];
        match preset {
            Preset::Cory => set.extend(EXCHANGE),
            Preset::Happo => set.push("agents.\"duo/closer\".worker_group=\"second\""),
            _ => {}
        }
        let run = lab.train(&name.replace("++", "pp"), &set);
        let steps = run.steps();
        assert_eq!(steps.len(), 2, "{name}");
        let updated: Vec<&Value> =
            steps.iter().filter(|row| row["policy/tiny/grad_norm"].is_number()).collect();
        assert!(!updated.is_empty(), "{name}: no step is updated");
        for row in updated {
            let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
            assert!(number("policy/tiny/grad_norm") > 0.0, "{name}: {row:#}");
            assert!(number("policy/tiny/loss").is_finite(), "{name}: {row:#}");
            assert_eq!(number("policy/tiny/optimizer_steps"), 2.0, "{name}");
        }
    }
}

#[test]
fn tokens_of_minibatches_are_selected_and_replays_select_them_again() {
    let lab = lab();
    let set = ["steps=2", "eval.before_and_after=false", "algorithm.epochs=2"];
    for (kind, options, kept) in [
        ("clip_cov", "share = 0.5, low = 0.0, high = 1e9", 0.5..1.0),
        ("kl_cov", "share = 0.1", 0.85..0.95),
        ("entropy", "share = 0.2", 0.2..0.25),
    ] {
        let select = format!("algorithm.select={{ kind = \"{kind}\", {options} }}");
        let run = lab.train(kind, &[&set[..], &[&select]].concat());
        let steps = run.steps();
        let updated: Vec<&Value> =
            steps.iter().filter(|row| row["policy/tiny/grad_norm"].is_number()).collect();
        assert!(!updated.is_empty(), "{kind}: no step is updated");
        for row in updated {
            let number = |key: &str| row[format!("policy/tiny/{key}")].as_f64();
            assert!(kept.contains(&number("select_kept").unwrap()), "{kind}: {row:#}");
            assert_eq!(number("select_covariance").is_some(), kind != "entropy", "{kind}");
            assert!(number("grad_norm").unwrap() > 0.0 && number("loss").unwrap().is_finite());
        }
        replays(&lab, kind, 2);
    }
}

#[test]
fn a_target_of_the_kl_ends_the_epochs() {
    let set = ["steps=1", "eval.before_and_after=false", "algorithm.epochs=8"];
    let steps = |more: &str| {
        let lab = lab();
        let run = lab.train("run", &[&set[..], &[more]].concat());
        run.steps()[0]["policy/tiny/optimizer_steps"].as_f64().unwrap()
    };
    assert_eq!(steps("algorithm.early_stop_kl=0"), 8.0);
    assert!((1.0..8.0).contains(&steps("algorithm.early_stop_kl=1e-6")));
}

#[test]
fn what_an_algorithm_remembers_is_in_the_checkpoint_and_in_replays() {
    let lab = lab();
    let set = [
        "eval.before_and_after=false",
        "algorithm.advantage.kind=\"moving_average\"",
        "algorithm.loss.kl_coef=0.5",
        "algorithm.loss.kl_in=\"reward\"",
        "algorithm.loss.kl=\"k1\"",
        "algorithm.adaptive_kl.target=0.001",
        "algorithm.adaptive_kl.horizon=10",
        "algorithm.shaping=\"margin\"",
        "algorithm.advantage.anchor.weight=0.5",
        "algorithm.advantage.anchor.similarity=0.9",
    ];
    let whole = lab.train("whole", &[&set[..], &["steps=4"]].concat());
    lab.train("parted", &[&set[..], &["steps=2"]].concat());
    lab.run(&["train", "--resume", "parted", "--steps", "4"]).succeeded();
    let parted = Run(lab.path("parted"));
    assert_eq!(whole.bytes("metrics.jsonl"), parted.bytes("metrics.jsonl"));
    let memory = "checkpoints/step-000004/algorithm.json";
    assert_eq!(whole.bytes(memory), parted.bytes(memory));
    let last = &whole.steps()[3];
    assert!(last["policy/tiny/reward_kl"].is_number(), "{last:#}");
    assert_ne!(last["policy/tiny/kl_scale"], 1.0);
    assert!(last["rollout/reward/kl"].is_number(), "{last:#}");
    replays(&lab, "whole", 4);
}

#[test]
fn a_greedy_baseline_is_played_beside_the_group_and_is_in_no_statistic() {
    let lab = lab();
    let run =
        lab.train("run", &["algorithm.name=\"remax\"", "steps=2", "eval.before_and_after=false"]);
    let episodes = run.episodes(2);
    let greedy: Vec<_> = episodes.iter().filter(|episode| episode.index == 4).collect();
    assert_eq!((episodes.len(), greedy.len()), (10, 2));
    let cold = |turn: &maverl::trajectory::Turn| turn.tokens.as_ref().unwrap().temperature == 0.0;
    assert!(greedy.iter().all(|episode| episode.turns.iter().all(cold)));
    assert_eq!(run.steps()[1]["rollout/episodes"], 8.0);
    replays(&lab, "run", 2);
}

#[test]
fn two_agents_exchange_what_they_have_learned() {
    let lab = lab();
    let set = ["algorithm.swap_every=1", "steps=3", "eval.before_and_after=false"];
    let run = lab.train("run", &[&set[..], &EXCHANGE].concat());
    for step in 1..=3 {
        for turn in run.episodes(step).iter().flat_map(|episode| &episode.turns) {
            let own = if turn.seat.agent == "duo/opener" { "tiny" } else { "other" };
            assert_eq!(turn.policy == own, step % 2 == 1, "step {step}: {turn:?}");
        }
        let row = &run.steps()[step as usize - 1];
        assert_eq!(row["mismatch/tiny/logp_abs_max"], 0.0, "who spoke learns");
        assert_eq!(row["mismatch/other/logp_abs_max"], 0.0);
    }
    replays(&lab, "run", 3);
}

#[test]
fn pairs_and_conversations_are_learned_from_files() {
    let lab = lab();
    let pair = |i: usize| {
        let prompt = format!("question {i}?");
        serde_json::json!({ "prompt": prompt, "chosen": "open evenly", "rejected": "close, who?" })
    };
    lab.write("pairs.jsonl", &(0..8).map(|i| format!("{}\n", pair(i))).collect::<String>());
    let set = ["algorithm.name=\"dpo\"", "task.data=\"pairs.jsonl\"", "steps=8"];
    for loss in ["sigmoid", "hinge", "ipo", "robust", "orpo", "simpo", "kto"] {
        let loss = format!("algorithm.preference.loss=\"{loss}\"");
        let run = lab.train(&loss.replace('"', ""), &[&set[..], &[&loss]].concat());
        let (rows, number) = (run.rows(), |row: &Value, key: &str| {
            row[format!("policy/tiny/{key}")].as_f64().unwrap_or(f64::NAN)
        });
        // At first nothing is told apart from the reference, if there is one.
        let compared = !["orpo", "simpo"].iter().any(|free| loss.contains(free));
        assert!(!compared || number(&rows[0], "pair_accuracy") == 0.0, "{loss}");
        assert_eq!(number(&rows[7], "pair_accuracy"), 1.0, "{loss}");
        assert!(number(&rows[7], "reward_margin") > 0.0, "{loss}");
        assert!(number(&rows[7], "loss") < number(&rows[0], "loss"), "{loss}");
    }
    let said = |role: &str, content: &str| serde_json::json!({ "role": role, "content": content });
    let talk = serde_json::json!({ "messages": [
        said("user", "question?"), said("assistant", "open"), said("user", "who, when"), said("assistant", "close"),
    ] });
    lab.write("talks.jsonl", &format!("{talk}\n").repeat(4));
    for (train_on, rows) in [("assistant", 2.0), ("observations", 2.0), ("all", 4.0)] {
        let train_on = format!("algorithm.train_on=\"{train_on}\"");
        let set = ["algorithm.name=\"sft\"", "task.data=\"talks.jsonl\"", "steps=6", &train_on];
        let run = lab.train(&train_on.replace('"', ""), &set);
        let found = run.rows();
        assert_eq!(found[0]["policy/tiny/rows"], rows, "{train_on}");
        let loss = |row: &Value| row["policy/tiny/pg_loss"].as_f64().unwrap();
        assert!(loss(&found[5]) < loss(&found[0]), "{train_on}");
    }
}

/// The loss of a pair that nothing tells apart: ln 2.
const LN_2: f64 = std::f64::consts::LN_2;

/// Writes demonstrations for self-play.
fn demonstrations(lab: &Lab) {
    let line = |i: usize| serde_json::json!({ "prompt": format!("question {i}?"), "completion": "open evenly" });
    lab.write("shown.jsonl", &(0..8).map(|i| format!("{}\n", line(i))).collect::<String>());
}

#[test]
fn self_play_begins_every_iteration_against_itself_and_resumes_to_the_bit() {
    let lab = lab();
    demonstrations(&lab);
    let set = [
        "algorithm.name=\"spin\"",
        "algorithm.reference.every=3",
        "task.data=\"shown.jsonl\"",
        "checkpoint.every=1",
        "steps=8",
    ];
    let whole = lab.train("whole", &set);
    let loss = |row: &Value| row["policy/tiny/loss"].as_f64().unwrap();
    let losses: Vec<f64> = whole.rows().iter().map(loss).collect();
    for (step, loss) in losses.iter().enumerate() {
        // The policy and its opponent have the same bits.
        assert_eq!((loss - LN_2).abs() < 1e-9, step % 3 == 0, "step {}: {losses:?}", step + 1);
    }
    assert!(losses[2] < LN_2 && losses[5] < LN_2, "{losses:?}");
    // Interrupted within an iteration: the opponent's replies and weights are those of the checkpoint.
    let mut halves = set;
    halves[4] = "steps=5";
    let run = lab.train("halves", &halves);
    assert!(run.0.join("checkpoints/step-000005/policies/tiny/reference").is_dir());
    assert!(run.json("checkpoints/step-000005/algorithm.json")["opponents"].is_object());
    lab.run(&["train", "--resume", "halves", "--steps", "8"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    let weights = "checkpoints/step-000008/policies/tiny/model.safetensors";
    assert_eq!(run.bytes(weights), whole.bytes(weights));
}

#[test]
fn a_renewed_reference_starts_the_kl_and_the_pairs_again_and_is_in_checkpoints_and_replays() {
    let lab = lab();
    let set = [
        "eval.before_and_after=false",
        "algorithm.loss.kl_coef=0.1",
        "algorithm.reference.every=2",
        "checkpoint.every=5",
        "checkpoint.keep=2",
        "steps=5",
    ];
    let whole = lab.train("whole", &set);
    let kl = |row: &Value| row["policy/tiny/kl"].as_f64().unwrap();
    let found: Vec<f64> = whole.steps().iter().map(kl).collect();
    let zero: Vec<bool> = found.iter().map(|kl| *kl == 0.0).collect();
    assert_eq!(zero, [true, false, true, false, true], "{found:?}");
    let mut halves = set;
    halves[5] = "steps=3";
    let run = lab.train("halves", &halves);
    lab.run(&["train", "--resume", "halves", "--steps", "5"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    replays(&lab, "whole", 4);
    let pair = serde_json::json!({ "prompt": "question?", "chosen": "open", "rejected": "close" });
    lab.write("pairs.jsonl", &format!("{pair}\n").repeat(4));
    let set = [
        "algorithm.name=\"dpo\"",
        "task.data=\"pairs.jsonl\"",
        "algorithm.reference.every=2",
        "steps=4",
    ];
    let run = lab.train("pairs", &set);
    let start = |row: &Value| (row["policy/tiny/loss"].as_f64().unwrap() - LN_2).abs() < 1e-9;
    let starts: Vec<bool> = run.rows().iter().map(start).collect();
    assert_eq!(starts, [true, false, true, false]);
}

#[test]
fn online_dpo_prefers_the_better_of_its_own_replies_and_resumes_to_the_bit() {
    let lab = lab();
    let set = [
        "algorithm.name=\"online_dpo\"",
        "algorithm.reference.every=2",
        "eval.before_and_after=false",
        "checkpoint.every=1",
        "rewards.length.weight=0.1",
        "steps=5",
    ];
    let whole = lab.train("whole", &set);
    let steps = whole.steps();
    let number = |row: &Value, key: &str| row[format!("policy/tiny/{key}")].as_f64().unwrap();
    for (step, row) in steps.iter().enumerate() {
        // The policy has the bits of the reference where it is renewed.
        let is_start = (number(row, "loss") - LN_2).abs() < 1e-9;
        assert_eq!(is_start, step % 2 == 0, "step {}: {row:#}", step + 1);
        assert!((0.0..=1.0).contains(&number(row, "pair_accuracy")), "{row:#}");
        let recorded =
            read_samples(&whole.0.join(format!("samples/step-{:06}.jsonl.zst", step + 1)));
        let recorded = recorded.unwrap();
        assert_eq!(recorded.estimator.estimator, "pair");
        let mut turns = 0;
        for group in 0..recorded.groups.len() {
            let its: Vec<_> = recorded.of_group(group).collect();
            let reward =
                |sign: f64| its.iter().filter(move |of| of.advantage == sign).map(|of| of.reward);
            let rewards = || its.iter().map(|of| of.reward);
            let (low, high) =
                (rewards().fold(f64::MAX, f64::min), rewards().fold(f64::MIN, f64::max));
            assert_eq!(recorded.groups[group].spread, high - low > 1e-9);
            assert!(
                reward(1.0).all(|reward| reward == high)
                    && reward(-1.0).all(|reward| reward == low)
            );
            let paired = reward(1.0).count() + reward(-1.0).count();
            assert_eq!(paired > 0, recorded.groups[group].spread, "{its:?}");
            turns += paired;
        }
        assert_eq!(number(row, "rows"), turns as f64, "{row:#}");
    }
    let mut halves = set;
    halves[5] = "steps=3";
    let run = lab.train("halves", &halves);
    lab.run(&["train", "--resume", "halves", "--steps", "5"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    let weights = "checkpoints/step-000005/policies/tiny/model.safetensors";
    assert_eq!(run.bytes(weights), whole.bytes(weights));
    replays(&lab, "whole", 4);
    // Without a difference of rewards there is no pair, and nothing changes.
    let flat = lab.train(
        "flat",
        &[set[0], set[2], "algorithm.loss.invalid_reply_penalty=0", "task.limit=1", "steps=1"],
    );
    let row = &flat.steps()[0];
    let spread = row["group/zero_std_frac"].as_f64().unwrap() < 1.0;
    assert_eq!(row["policy/tiny/loss"].is_number(), spread, "{row:#}");
}

#[test]
fn a_reference_that_moves_is_resumed_to_the_bit() {
    let lab = lab();
    let set = [
        "algorithm.loss.kl_coef=0.1",
        "algorithm.reference.every=1",
        "algorithm.reference.mix=0.5",
        "eval.before_and_after=false",
        "steps=4",
    ];
    let whole = lab.train("whole", &set);
    let mut halves = set;
    halves[4] = "steps=2";
    let run = lab.train("halves", &halves);
    lab.run(&["train", "--resume", "halves", "--steps", "4"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    let reference = "checkpoints/step-000004/policies/tiny/reference/model.safetensors";
    assert_eq!(run.bytes(reference), whole.bytes(reference));
    replays(&lab, "whole", 3);
}

#[test]
fn kto_learns_from_every_reply_by_its_label_and_resumes_to_the_bit() {
    let lab = lab();
    let set = [
        "algorithm.name=\"online_dpo\"",
        "algorithm.preference.loss=\"kto\"",
        "algorithm.preference.threshold=0.05",
        "algorithm.minibatches=2",
        "eval.before_and_after=false",
        "steps=4",
    ];
    let whole = lab.train("whole", &set);
    for (step, row) in whole.steps().iter().enumerate() {
        let number = |key: &str| row[format!("policy/tiny/{key}")].as_f64();
        assert!(number("grad_norm").unwrap() > 0.0 && number("kto_shift").unwrap() >= 0.0);
        let recorded =
            read_samples(&whole.0.join(format!("samples/step-{:06}.jsonl.zst", step + 1)));
        let recorded = recorded.unwrap();
        assert_eq!(recorded.estimator.estimator, "label");
        assert_eq!(number("rows"), Some(recorded.samples.len() as f64), "every reply counts");
        for sample in &recorded.samples {
            let good = sample.unit.unwrap_or(sample.reward - sample.baseline) >= 0.05 - 1e-9;
            assert_eq!(sample.advantage, if good { 1.0 } else { -1.0 }, "{sample:?}");
        }
    }
    let mut halves = set;
    halves[5] = "steps=2";
    let run = lab.train("halves", &halves);
    lab.run(&["train", "--resume", "halves", "--steps", "4"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    let weights = "checkpoints/step-000004/policies/tiny/model.safetensors";
    assert_eq!(run.bytes(weights), whole.bytes(weights));
    replays(&lab, "whole", 3);
    let one = lab.train("one", &[&set[..], &["task.group_size=1", "steps=2"]].concat());
    assert!(one.steps().iter().all(|row| row["policy/tiny/grad_norm"].as_f64().unwrap() > 0.0));
}

#[test]
fn a_pair_is_the_same_to_kto_as_its_two_replies_with_labels() {
    let lab = lab();
    let (mut pairs, mut replies) = (String::new(), String::new());
    for i in 0..8 {
        let prompt = format!("question {i}?");
        let [good, bad] = ["open evenly", "close, who?"];
        pairs += &format!(
            "{}\n",
            serde_json::json!({ "prompt": prompt, "chosen": good, "rejected": bad })
        );
        for (reply, label) in [(good, true), (bad, false)] {
            let row = serde_json::json!({ "prompt": prompt, "completion": reply, "label": label });
            replies += &format!("{row}\n");
        }
    }
    lab.write("pairs.jsonl", &pairs);
    lab.write("replies.jsonl", &replies);
    let set = [
        "algorithm.name=\"dpo\"",
        "algorithm.preference.loss=\"kto\"",
        "task.shuffle=false",
        "steps=4",
    ];
    let paired = ["task.data=\"pairs.jsonl\"", "task.tasks_per_step=2"];
    let paired = lab.train("paired", &[&set[..], &paired].concat());
    let single = ["task.data=\"replies.jsonl\"", "task.tasks_per_step=4"];
    let single = lab.train("single", &[&set[..], &single].concat());
    assert_eq!(paired.bytes("metrics.jsonl"), single.bytes("metrics.jsonl"));
    assert!(paired.weights(4, "tiny") == single.weights(4, "tiny"));
    // Good replies alone are learned too.
    let good = |line: &&str| line.contains("true");
    let good: String = replies.lines().filter(good).map(|line| format!("{line}\n")).collect();
    lab.write("good.jsonl", &good);
    let run = lab.train("good", &[&set[..], &["task.data=\"good.jsonl\"", "steps=8"]].concat());
    let rows = run.rows();
    let reward = |row: &Value| row["policy/tiny/reward_chosen"].as_f64().unwrap();
    assert!(reward(&rows[7]) > reward(&rows[0]), "{rows:#?}");
    assert!(rows[7].get("policy/tiny/reward_rejected").is_none());
    let refused = lab.fails("pairs_only", &["algorithm.name=\"dpo\"", "task.data=\"good.jsonl\""]);
    refused.says(&["`completion`, `label`, which is not read", "`chosen`"]);
}

#[test]
fn a_curriculum_plays_what_is_not_yet_solved_and_resumes_to_the_bit() {
    let lab = lab();
    let pools =
        "task.curriculum.pools=[{ up_to = 0.0, weight = 1.0 }, { up_to = 1.0, weight = 1e-9 }]";
    let set = [
        pools,
        "algorithm.loss.invalid_reply_penalty=0.3",
        "eval.before_and_after=false",
        "steps=6",
    ];
    let whole = lab.train("whole", &set);
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    let mut sizes = Vec::new();
    for (step, row) in whole.steps().iter().enumerate() {
        let episodes = whole.episodes(step as u64 + 1);
        // What was solved once has almost no weight beside the other of 18 tasks.
        let again = episodes.iter().find(|episode| seen.get(&episode.task.id) == Some(&true));
        assert!(again.is_none(), "step {step}: {again:?}");
        for episode in episodes {
            let solved = episode.score().is_some_and(|score| score.solved);
            *seen.entry(episode.task.id).or_default() |= solved;
        }
        let size = |pool: u64| row[format!("curriculum/{pool}")].as_f64().unwrap();
        let solved = seen.values().filter(|solved| **solved).count() as f64;
        assert_eq!([size(1), size(2)], [seen.len() as f64 - solved, solved], "{row:#}");
        sizes.push(solved);
    }
    assert!(sizes.is_sorted(), "{sizes:?}");
    let mut halves = set;
    halves[3] = "steps=3";
    let run = lab.train("halves", &halves);
    lab.run(&["train", "--resume", "halves", "--steps", "6"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    let state = "checkpoints/step-000006/algorithm.json";
    assert_eq!(run.bytes(state), whole.bytes(state));
    replays(&lab, "whole", 5);
    let retired = "task.curriculum.pools=[{ up_to = 1.0, weight = 0.0 }]";
    let refused = lab.run(&["check", "run.toml", "--set", retired]);
    assert!(
        refused.stderr.contains("every pool of `task.curriculum.pools` has weight 0"),
        "{refused:?}"
    );
}

#[test]
fn moments_in_8_bits_resume_to_the_bit() {
    let lab = lab();
    let kind = "models.tiny.optim.kind=\"adamw8bit\"";
    let whole = lab.train("whole", &[kind, "eval.before_and_after=false", "steps=4"]);
    let run = lab.train("halves", &[kind, "eval.before_and_after=false", "steps=2"]);
    lab.run(&["train", "--resume", "halves", "--steps", "4"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let file = format!("checkpoints/step-000004/policies/tiny/{file}");
        assert_eq!(run.bytes(&file), whole.bytes(&file), "{file}");
    }
    replays(&lab, "whole", 3);
    let sharded = ["--set", kind, "--set", "dist.shard=\"optimizer\""];
    let refused = lab.run(&[&["check", "run.toml"], &sharded[..]].concat());
    assert!(refused.stderr.contains("moments in 8 bits have whole blocks"), "{refused}");
    let bytes = |set: &[&str]| {
        let shown = lab.run(&[&["check", "run.toml", "--json"], set].concat()).succeeded().stdout;
        let plan: serde_json::Value = serde_json::from_str(&shown).unwrap();
        plan["summary"]["workers"][0]["moment_bytes"].as_u64()
    };
    let (eight, whole) = (bytes(&["--set", kind]).unwrap(), bytes(&[]).unwrap());
    assert!(4 * eight > whole && 3 * eight < whole, "{eight} of {whole} bytes");
}

#[test]
fn rounded_moments_and_none_are_told_of_on_a_resume_and_make_checkpoints_smaller() {
    let lab = lab();
    let set = ["checkpoint.every=1", "eval.before_and_after=false", "steps=2"];
    let whole = lab.train("whole", &[&set[..2], &["steps=4"]].concat());
    let file = "checkpoints/step-000002/policies/tiny/optimizer.safetensors";
    let mut sizes = Vec::new();
    for (moments, says) in [
        ("f32", None),
        ("bf16", Some("the moments of the optimizers are rounded to bf16")),
        ("none", Some("the optimizers begin with fresh moments, because there are none")),
    ] {
        let key = format!("checkpoint.moments={moments:?}");
        let run = lab.train(moments, &[&set[..], &[&key]].concat());
        let rows = run.bytes("metrics.jsonl");
        assert!(whole.bytes("metrics.jsonl").starts_with(&rows), "{moments}");
        sizes.push(run.bytes(file).len());
        let ended = lab.run(&["train", "--resume", moments, "--steps", "4"]).succeeded();
        let ended = ended.says(&["checkpoints: ", "copied in memory between two steps"]);
        match says {
            Some(says) => drop(ended.says(&[says, "checkpoint of step 2 (`checkpoint.moments`)"])),
            None => assert!(!ended.stderr.contains("moments"), "{ended}"),
        }
        assert_eq!(run.weights(4, "tiny") == whole.weights(4, "tiny"), says.is_none(), "{moments}");
        let warned = String::from_utf8(run.bytes("warnings.jsonl")).unwrap();
        assert_eq!(says.is_some_and(|says| warned.contains(says)), says.is_some(), "{warned}");
        // Steps before the resume were learned with whole moments.
        replays(&lab, moments, 2);
    }
    println!("optimizer.safetensors has {sizes:?} bytes");
    assert!(2 * sizes[1] < sizes[0] + 20_000 && sizes[2] < 200, "{sizes:?}");
    std::fs::remove_dir_all(lab.path("bf16/checkpoints/step-000003")).unwrap();
    std::fs::remove_dir_all(lab.path("bf16/checkpoints/step-000004")).unwrap();
    let name = lab.run(&["replay", "bf16", "4"]).succeeded().stdout;
    let name = name.lines().next().unwrap().trim().to_owned();
    let ended = lab.run(&["replay", "bf16", &name]);
    ended.says(&[
        "`checkpoint.moments`",
        "Steps right after a checkpoint have nothing learned again",
    ]);
    let kind = "models.tiny.optim.kind=\"adamw8bit\"";
    let rounded = ["check", "run.toml", "--set", kind, "--set", "checkpoint.moments=\"bf16\""];
    lab.run(&rounded).failed().says(&["moments in 8 bits are not rounded again"]);
    let none = ["check", "run.toml", "--set", kind, "--set", "checkpoint.moments=\"none\""];
    lab.run(&none).succeeded().prints(&["checkpoints: ", "copied in memory"]);
}

#[test]
fn muon_updates_matrices_and_resumes_to_the_bit() {
    let lab = lab();
    let set = ["models.tiny.optim.kind=\"muon\"", "eval.before_and_after=false", "steps=4"];
    let whole = lab.train("whole", &set);
    let updated = whole.steps().into_iter().filter(|row| row["policy/tiny/grad_norm"].is_number());
    let rms: Vec<f64> =
        updated.map(|row| row["policy/tiny/muon_rms"].as_f64().unwrap_or(f64::NAN)).collect();
    // The scale of a direction is about 0.2, whatever the gradient is.
    assert!(!rms.is_empty() && rms.iter().all(|rms| (0.1..0.3).contains(rms)), "{rms:?}");
    let mut halves = set;
    halves[2] = "steps=2";
    let run = lab.train("halves", &halves);
    lab.run(&["train", "--resume", "halves", "--steps", "4"]).succeeded();
    assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let file = format!("checkpoints/step-000004/policies/tiny/{file}");
        assert_eq!(run.bytes(&file), whole.bytes(&file), "{file}");
    }
    replays(&lab, "whole", 3);
    for (more, told) in [
        ("dist.shard=\"optimizer\"", "whose momentum is not divided"),
        ("models.tiny.lora={}", "which an adapter does not train"),
    ] {
        let refused = lab.run(&["check", "run.toml", "--set", set[0], "--set", more]);
        assert!(refused.stderr.contains(told), "{refused:?}");
    }
}

#[test]
fn self_play_reads_the_rows_of_gsm8k() {
    let lab = lab();
    let line = |i: usize| serde_json::json!({ "question": format!("{i} + 1?"), "answer": format!("#### {}", i + 1) });
    lab.write("gsm8k.jsonl", &(0..8).map(|i| format!("{}\n", line(i))).collect::<String>());
    let renamed = |i: usize| serde_json::json!({ "q": format!("{i} + 1?"), "a": { "text": format!("#### {}", i + 1) } });
    lab.write("renamed.jsonl", &(0..8).map(|i| format!("{}\n", renamed(i))).collect::<String>());
    for (name, more) in [
        ("spin", &["task.data=\"gsm8k.jsonl\"", "algorithm.reference.every=2"][..]),
        (
            "sft",
            &[
                "task.data=\"renamed.jsonl\"",
                "task.keys.prompt=\"q\"",
                "task.keys.completion=\"a.text\"",
            ],
        ),
    ] {
        let chosen = format!("algorithm.name={name:?}");
        let run =
            lab.train(name, &[&[&*chosen, "steps=2", "task.tasks_per_step=4"], more].concat());
        let norm = |row: &Value| row["policy/tiny/grad_norm"].as_f64().unwrap();
        assert!(run.rows().iter().all(|row| norm(row) > 0.0), "{name}");
    }
}

#[test]
fn an_adaptive_coefficient_follows_the_mean_of_the_kl_over_tokens_whatever_the_aggregation() {
    const HORIZON: f64 = 1000.0;
    let lab = lab();
    let number = |row: &Value, key: &str| row[format!("policy/tiny/{key}")].as_f64().unwrap();
    for name in ["grpo", "luspo"] {
        let chosen = format!("algorithm.name=\"{name}\"");
        let run = |out: &str, target: f64| {
            let target = format!("algorithm.adaptive_kl.target={target}");
            let horizon = format!("algorithm.adaptive_kl.horizon={HORIZON}");
            let set = [
                &*chosen,
                &target,
                &horizon,
                "algorithm.loss.kl_coef=0.1",
                "eval.before_and_after=false",
                "steps=2",
            ];
            lab.train(&format!("{name}-{out}"), &set).steps()
        };
        // The first step is one of the policy itself, so that no target changes the KL of the second.
        let kl = number(&run("any", 1.0)[1], "kl");
        let target = 1.1 * kl;
        let mut scale = 1.0;
        for row in run("near", target) {
            // Proportional control of Ziegler et al., 1909.08593, by the number that the run shows.
            let error = (number(&row, "kl") / target - 1.0).clamp(-0.2, 0.2);
            scale *= 1.0 + error * number(&row, "rows") / HORIZON;
            assert!((number(&row, "kl_scale") - scale).abs() < 1e-12, "{name}: {row:#}");
            // Within the bounds of the control in the second step, beyond them in the first, where the KL is 0.
            assert_eq!(error > -0.2, row["step"] == 2, "{name}: {row:#}");
        }
    }
}

/// Panics unless an episode of the step is replayed to the bit.
pub(crate) fn replays(lab: &Lab, run: &str, step: u64) {
    let names = lab.run(&["replay", run, &step.to_string()]).succeeded().stdout;
    for name in [names.lines().next().unwrap(), names.lines().last().unwrap()] {
        let json = lab.run(&["replay", run, name.trim(), "--json"]).succeeded().stdout;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["identical"], true, "{name}");
    }
}

#[test]
fn a_run_learns_by_an_estimator_and_a_surrogate_of_a_crate_outside() {
    let lab = lab();
    let set = [
        "steps=1",
        "eval.before_and_after=false",
        "algorithm.advantage.kind=\"duo/margin\"",
        "algorithm.advantage.scale=2.0",
        "algorithm.loss.surrogate.kind=\"duo/soft\"",
    ];
    let run = lab.train("declared", &set);
    let resolved = String::from_utf8(run.bytes("resolved.toml")).unwrap();
    for part in ["kind = \"duo/margin\"\nscale = 2.0", "kind = \"duo/soft\"\nwidth = 0.2"] {
        assert!(resolved.contains(part), "{resolved}");
    }
    let norm = |run: &Run| run.steps()[0]["policy/tiny/grad_norm"].as_f64().unwrap();
    assert!(norm(&run) > 0.0);
    let gdpo = lab.train("gdpo", &[set[0], set[1], "algorithm.advantage.kind=\"gdpo\""]);
    assert!(norm(&gdpo) > 0.0 && norm(&gdpo) != norm(&run));
}
