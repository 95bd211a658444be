//! Branches of episodes, and what excludes them.

use super::*;
use crate::config::{BranchConfig, BranchUse};

fn told(toml: &str) -> String {
    let text = problems(&text(toml), &search());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const COUNTERFACTUAL: &str =
    "[algorithm]\nname = \"drgrpo\"\nadvantage.kind = \"counterfactual\"\n";
const BRANCH: &str = "[algorithm]\nname = \"drgrpo\"\nadvantage.by = \"branch\"\n";

#[test]
fn an_estimator_says_what_it_needs_branches_for() {
    let found = |toml: &str| plan_of(&text(toml)).algorithm.advantage.branches();
    assert_eq!(found(COUNTERFACTUAL), Some(BranchUse::Replies));
    assert_eq!(
        found(&COUNTERFACTUAL.replace("counterfactual", "continuations")),
        Some(BranchUse::States)
    );
    assert_eq!(found(BRANCH), Some(BranchUse::Rows));
    assert_eq!(found(""), None);
    let table = format!("{COUNTERFACTUAL}[rollout.branch]\nwidth = 3\nat = \"last\"\n");
    let plan = plan_of(&text(&table));
    let branch = plan.config.rollout.branch.clone().unwrap();
    assert_eq!(branch.width.get(), 3);
    assert_eq!(
        BranchConfig { width: BranchConfig::default().width, ..branch.clone() }.at,
        branch.at
    );
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan);
    let without = toml::to_string(&plan_of(&text("")).config).unwrap();
    assert!(!without.contains("branch"), "{without}");
}

#[test]
fn replies_at_a_branch_are_compared_in_groups_of_one_episode() {
    for baseline in ["leave_one_out", "mean"] {
        let toml = format!("{BRANCH}advantage.baseline = \"{baseline}\"\n[task]\ngroup_size = 1\n");
        let warnings = plan_of(&text(&toml)).warnings.join("\n");
        assert!(!warnings.contains("no other to be compared with"), "{warnings}");
    }
}

#[test]
fn what_branches_exclude_is_reported_with_a_remedy() {
    for (before, after, parts) in [
        (
            "",
            "[rollout.branch]\nwidth = 2",
            ["`rollout.branch` has no effect", "`by = \"branch\"`"],
        ),
        (COUNTERFACTUAL, "resample = 2", ["have the same score are replaced", "`resample = 0`"]),
        (
            COUNTERFACTUAL,
            "shaping = \"margin\"",
            ["shaped by earlier rounds", "`shaping = \"none\"`"],
        ),
        (
            COUNTERFACTUAL,
            "future_rewards = \"team\"",
            ["rewards of later rounds are added", "`future_rewards = \"none\"`"],
        ),
        (
            BRANCH,
            "influence.follow = 1.0",
            ["played turns are rewarded for their influence", "remove `influence`"],
        ),
        (
            COUNTERFACTUAL,
            "loss.kl_in = \"reward\"\nloss.kl_coef = 0.1",
            ["the KL penalty is in the rewards", "`kl_in = \"loss\"`"],
        ),
        (
            COUNTERFACTUAL,
            "[rollout.branch]\nseats = [\"search/searcheer\"]",
            ["no trained seat is called `search/searcheer`", "did you mean `search/searcher`?"],
        ),
        (COUNTERFACTUAL, "[rollout.branch]\nwidth = 1", ["`rollout.branch.width`", "2"]),
        (
            BRANCH,
            "update_order = \"fixed\"\n[agents.\"search/verifier\"]\nworker_group = \"its\"",
            ["a sequence of updates multiplies", "`update_order = \"together\"`"],
        ),
        (
            "[algorithm]\nname = \"grpo\"\n",
            "advantage.deviation_by = \"branch\"",
            ["`deviation_by` is \"branch\", and `by` is not", "set `by = \"branch\"` too"],
        ),
        (
            "[algorithm]\nname = \"remax\"\n",
            "advantage.by = \"branch\"",
            ["`by` is \"branch\", and `kind` is \"greedy\"", "`kind = \"group\"`"],
        ),
    ] {
        let told = told(&format!("{before}{after}\n"));
        let plain = told.replace("algorithm.advantage.", "");
        assert!(parts.iter().all(|part| plain.contains(part)), "{after}\n{told}");
    }
}
