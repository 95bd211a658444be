//! Texts of the environment in conversations, as a part of the loss.

use maverl_tests::lab::Run;
use serde_json::Value;

use crate::algorithms::replays;
use crate::lab;

const WALK: [&str; 3] =
    ["orchestra.name=\"duo/walk\"", "eval.before_and_after=false", "sampling.max_tokens=8"];

fn number(row: &Value, key: &str) -> f64 {
    row[format!("policy/tiny/{key}")].as_f64().unwrap_or(f64::NAN)
}

#[test]
fn observations_become_likelier_and_a_resumed_run_ends_equally() {
    let lab = lab();
    let set = [&WALK[..], &["algorithm.loss.observation_coef=1.0"]].concat();
    let whole = lab.train("whole", &[&set[..], &["steps=8"]].concat());
    let steps = whole.steps();
    let nll: Vec<f64> = steps.iter().map(|row| number(row, "observation_nll")).collect();
    assert!(nll[0] > 0.0 && nll[7] < nll[0] - 0.1, "{nll:?}");
    lab.train("parted", &[&set[..], &["steps=4"]].concat());
    lab.run(&["train", "--resume", "parted", "--steps", "8"]).succeeded();
    let parted = Run(lab.path("parted"));
    assert_eq!(whole.bytes("metrics.jsonl"), parted.bytes("metrics.jsonl"));
    assert!(whole.weights(8, "tiny") == parted.weights(8, "tiny"));
    replays(&lab, "whole", 3);
}

#[test]
fn the_tokens_are_those_that_the_environment_wrote_and_cost_no_further_ones() {
    let lab = lab();
    let plain = lab.train("plain", &[&WALK[..], &["steps=1"]].concat());
    let observed = [&WALK[..], &["steps=1", "algorithm.loss.observation_coef=0.1"]].concat();
    let observed = lab.train("observed", &observed);
    let [plain, row] = [&plain, &observed].map(|run| run.steps().remove(0));
    for key in ["rows", "tokens", "tokens_computed", "entropy", "pg_loss", "adv_mean"] {
        assert_eq!(number(&plain, key), number(&row, key), "{key}");
    }
    assert!(plain.get("policy/tiny/observation_nll").is_none(), "{plain}");
    let added = 0.1 * number(&row, "observation_nll");
    let difference = number(&row, "loss") - number(&plain, "loss");
    assert!((difference - added).abs() < 1e-6, "{difference} {added}");
    // No more tokens than bytes, as a token has at least one.
    let acts = observed.episodes(1).into_iter().flat_map(|episode| episode.acts);
    let bytes: usize = acts.map(|act| act.observation.trim().len()).sum();
    let tokens = number(&row, "observation_tokens");
    assert!(tokens > 0.0 && tokens <= bytes as f64, "{tokens} tokens of {bytes} bytes");
}

#[test]
fn a_team_without_conversations_has_no_observations() {
    let lab = lab();
    let set = ["steps=1", "eval.before_and_after=false", "algorithm.loss.observation_coef=0.1"];
    let run = lab.train("relay", &set);
    assert!(run.steps()[0].get("policy/tiny/observation_nll").is_none());
}

#[test]
fn critics_and_several_minibatches_stand_beside_observations() {
    let lab = lab();
    let observed = ["algorithm.loss.observation_coef=0.1", "steps=2"];
    for more in [
        &["algorithm.name=\"ppo\"", "algorithm.advantage.trunk=\"shared\""][..],
        &["algorithm.minibatches=2", "algorithm.epochs=2"],
    ] {
        let run = lab.train(
            &more.join("-").replace(['"', '.', '='], ""),
            &[&WALK[..], &observed, more].concat(),
        );
        for row in run.steps() {
            let nll = number(&row, "observation_nll");
            assert!(nll > 0.0 && number(&row, "grad_norm") > 0.0, "{more:?} {row}");
        }
    }
}
