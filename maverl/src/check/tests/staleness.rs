//! Episodes that are played with earlier weights, and what excludes them.

use super::*;

fn warnings(toml: &str) -> String {
    plan_of(&text(toml)).warnings.join("\n")
}

#[test]
fn what_excludes_episodes_of_earlier_weights_is_reported_with_a_remedy() {
    for (toml, parts) in [
        ("[rollout]\nstaleness = 65", ["`rollout.staleness` is 65", "from 0 to 64"]),
        (
            "[rollout]\nstaleness = 2\n[algorithm]\nname = \"cory\"",
            ["agents exchange their policies while", "`staleness = 0`"],
        ),
        (
            "[rollout]\nadvance_turns = 2",
            [
                "`rollout.advance_turns` is 2, and `rollout.staleness` is 0",
                "write `staleness = 1` or more, or write `advance_turns = 0`",
            ],
        ),
    ] {
        let found = problems(&text(toml), &search());
        let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(parts.iter().all(|part| found.contains(part)), "{toml}: {found}");
    }
}

#[test]
fn a_loss_that_bounds_no_ratio_is_warned_about_from_a_staleness_of_two() {
    let told = "has neither a ratio nor a correction";
    let gpg = |staleness: u64, more: &str| {
        warnings(&format!(
            "[rollout]\nstaleness = {staleness}\n[algorithm]\nname = \"gpg\"\n{more}"
        ))
    };
    assert!(gpg(2, "").contains(told), "{}", gpg(2, ""));
    assert!(!gpg(1, "").contains(told));
    assert!(!gpg(2, "loss.correction = \"truncate\"").contains(told));
    let clipped = warnings("[rollout]\nstaleness = 3\n[algorithm]\nname = \"grpo\"");
    assert!(!clipped.contains("staleness"), "{clipped}");
    let never_learned = |steps: u64| {
        warnings(&format!("steps = {steps}\n[rollout]\nstaleness = 3"))
            .contains("play every episode")
    };
    assert_eq!([1, 3, 4].map(never_learned), [false, true, false]);
}

#[test]
fn an_early_stop_that_would_measure_the_staleness_is_warned_about() {
    let warned = |staleness: u64, more: &str| {
        let toml = format!(
            "[rollout]\nstaleness = {staleness}\n[algorithm]\nname = \"grpo\"\nearly_stop_kl = 0.1\n{more}"
        );
        warnings(&toml).contains("skips epochs for what earlier steps learned")
    };
    assert!(warned(1, "epochs = 2"));
    assert!(!warned(0, "epochs = 2") && !warned(1, "epochs = 1"));
    assert!(!warned(1, "epochs = 2\nloss.correction = \"truncate\""));
}

#[test]
fn a_penalty_on_the_distance_from_the_sampler_has_one_under_staleness_without_a_correction() {
    let warned = |staleness: u64, more: &str| {
        let toml = format!(
            "[rollout]\nstaleness = {staleness}\n[algorithm]\nname = \"grpo\"\nselect = \"kl_cov\"\n{more}"
        );
        warnings(&toml).contains("which is 0 in the first optimizer step")
    };
    let cases = [(0, ""), (1, ""), (1, "loss.correction = \"truncate\"")];
    assert_eq!(cases.map(|(staleness, more)| warned(staleness, more)), [true, false, true]);
}

#[test]
fn episodes_that_go_on_with_newer_weights_need_no_more_snapshots() {
    let bytes = |toml: &str| plan_of(&text(toml)).summary().workers.remove(0).snapshot_bytes;
    let (without, with) =
        ("[rollout]\nstaleness = 3", "[rollout]\nstaleness = 3\nadvance_turns = 1");
    assert_eq!(bytes(with), bytes(without));
}

#[test]
fn snapshots_of_trained_weights_are_counted() {
    let summary = |toml: &str| plan_of(&text(toml)).summary().workers.remove(0);
    let (without, with) = (summary(""), summary("[rollout]\nstaleness = 3"));
    assert_eq!(without.snapshot_bytes, 0);
    assert_eq!(with.snapshot_bytes, 4 * 4 * with.parameters);
    let plan = plan_of(&text("[rollout]\nstaleness = 3"));
    assert_eq!(plan.training_specs()[0].snapshots, 4);
    assert_eq!(plan.worker_specs()[0].snapshots, 0, "evaluations and replays have none");
    let adapter =
        summary("[rollout]\nstaleness = 3\n[models.tiny]\npath = \"builtin:tiny\"\nlora = {}");
    assert!(adapter.snapshot_bytes < with.snapshot_bytes);
}
