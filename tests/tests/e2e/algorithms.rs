//! Every preset trains.

use maverl::config::Preset;
use serde_json::Value;

use crate::lab;

#[test]
fn every_preset_plays_learns_and_says_so() {
    let lab = lab();
    for preset in Preset::ALL.into_iter().filter(|preset| *preset != Preset::Sft) {
        let name = preset.name();
        let chosen = format!("algorithm.name=\"{name}\"");
        let set = [&chosen, "steps=2", "eval.before_and_after=false", "algorithm.epochs=2"];
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
fn a_target_of_the_kl_ends_the_epochs() {
    let set = ["steps=1", "eval.before_and_after=false", "algorithm.epochs=8"];
    let steps = |more: &str| {
        let lab = lab();
        let run = lab.train("run", &[&set[..], &[more]].concat());
        run.steps()[0]["policy/tiny/optimizer_steps"].as_f64().unwrap()
    };
    assert_eq!(steps("algorithm.target_kl=0"), 8.0);
    assert!((1.0..8.0).contains(&steps("algorithm.target_kl=1e-6")));
}
