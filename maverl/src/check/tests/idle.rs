use super::*;
use crate::config::Preset;

/// Configuration in which the verifier has a separate policy.
const TWO: &str = "[models.small]\npath = \"builtin:tiny\"\n[agents.\"search/verifier\"]\nworker_group = \"verify\"\n";

fn idle(toml: &str) -> Vec<String> {
    let warnings = plan_of(&text(toml)).warnings;
    warnings.into_iter().filter(|warning| warning.contains("has no effect")).collect()
}

#[test]
fn a_key_that_changes_nothing_is_told_with_the_reason() {
    let cases = [
        ("name = \"grpo\"\nearly_stop_kl = 0.1", "early_stop_kl` has no effect: `epochs` is 1"),
        (
            "name = \"grpo\"\nrouter_aux_coef = 0.001",
            "router_aux_coef` has no effect: no model is a mixture of experts",
        ),
        ("name = \"grpo\"\ntrain_on = \"all\"", "train_on` has no effect: `name` is not \"sft\""),
        ("name = \"grpo\"\nloss.kl = \"k1\"", "loss.kl` has no effect: `kl_coef` is 0"),
        (
            "name = \"ippo\"\nadvantage.value_coef = 0.9",
            "advantage.value_coef` has no effect: `trunk`",
        ),
        (
            "name = \"qmix\"\nadvantage.gamma = 0.9",
            "advantage.gamma` has no effect: `credit` is not \"tokens\"",
        ),
        ("name = \"online_dpo\"\nwhiten = true", "whiten` has no effect: `name` is \"online_dpo\""),
        (
            "name = \"online_dpo\"\nepochs = 2\nearly_stop_kl = 0.1",
            "early_stop_kl` has no effect: `name` is \"online_dpo\"",
        ),
        (
            "name = \"online_dpo\"\naggregation = \"sequence_mean\"",
            "aggregation` has no effect: `name` is \"online_dpo\"",
        ),
        (
            "name = \"online_dpo\"\nloss.entropy_coef = 0.1",
            "loss.entropy_coef` has no effect: the loss of pairs has no such term",
        ),
        (
            "name = \"online_dpo\"\nloss.observation_coef = 0.1",
            "loss.observation_coef` has no effect: the loss of pairs has no such term",
        ),
        (
            "name = \"online_dpo\"\nloss.kl_coef = 0.1",
            "loss.kl_coef` has no effect: the loss of pairs has no such term",
        ),
        (
            "name = \"online_dpo\"\nloss.correction = \"truncate\"",
            "loss.correction` has no effect: the loss of pairs has no such term",
        ),
        (
            "name = \"online_dpo\"\npreference.reference_free = true\nreference.every = 5",
            "reference.every` has no effect: `preference.reference_free` is true",
        ),
        ("name = \"grpo\"\npreference.beta = 0.5", "preference` has no effect: `name` is not"),
        (
            "name = \"online_dpo\"\npreference = { loss = \"orpo\", reference_free = true }",
            "preference.reference_free` has no effect: `loss` is \"orpo\"",
        ),
        (
            "name = \"ippo\"\nadvantage.optim.momentum = 0.5",
            "`algorithm.advantage.optim.momentum` has no effect: `kind` is not \"muon\"",
        ),
        ("name = \"vdn\"\nadvantage.width = 8", "advantage.width` has no effect: `network`"),
    ];
    for (algorithm, told) in cases {
        let found = idle(&format!("{TWO}[algorithm]\n{algorithm}\n"));
        assert!(matches!(&found[..], [one] if one.contains(told)), "{algorithm}: {found:?}");
    }
    let both =
        "name = \"grpo\"\nepochs = 2\nearly_stop_kl = 0.1\nloss = { kl = \"k1\", kl_coef = 0.1 }";
    assert_eq!(idle(&format!("{TWO}[algorithm]\n{both}\n")), [] as [&str; 0]);
    let paid = "name = \"online_dpo\"\nepochs = 2\npreference = { beta = 0.5, loss = \"ipo\" }\n\
                loss = { kl_coef = 0.1, kl_in = \"reward\", kl = \"k1\", invalid_reply_penalty = 0.5 }";
    assert_eq!(idle(&format!("{TWO}[algorithm]\n{paid}\n")), [] as [&str; 0]);
}

#[test]
fn observations_of_a_team_that_never_acts_are_told_once_to_have_no_effect() {
    let learned = "[algorithm.loss]\nobservation_coef = 0.1\n";
    let silent = |toml: &str| {
        let plan = super::super::check(&text(toml), &everything(), Purpose::Train).unwrap();
        let told = |warning: &String| warning.contains("loss.observation_coef` has no effect");
        plan.warnings.into_iter().filter(told).collect::<Vec<_>>()
    };
    let found = silent(&format!("{DEBATE}{learned}"));
    assert!(
        matches!(&found[..], [one] if one.contains("the orchestra declares no actions")),
        "{found:?}"
    );
    assert_eq!(silent(DEBATE), [] as [&str; 0], "nothing is to be learned");
    // The team of the search acts, and pairs have no such term in any team.
    assert_eq!(idle(&format!("{TWO}{learned}")), [] as [&str; 0]);
    let pairs = silent(&format!("{DEBATE}[algorithm]\nname = \"online_dpo\"\n{learned}"));
    assert!(matches!(&pairs[..], [one] if !one.contains("declares no actions")), "{pairs:?}");
}

#[test]
fn keys_of_other_tables_that_change_nothing_are_told_too() {
    let cases = [
        (
            "[record]\nsamples = false\ntokens_every = 5",
            "`record.tokens_every` has no effect: `samples` is false",
        ),
        (
            "[task.curriculum]\nmemory = 0.5",
            "`task.curriculum.memory` has no effect: `pools` is []",
        ),
        ("[track]\nproject = \"x\"\nwait_s = 3", "`track.wait_s` has no effect: `to` is []"),
        (
            "[models.small.optim]\nmomentum = 0.5",
            "`models.small.optim.momentum` has no effect: `kind` is not \"muon\"",
        ),
        (
            "[agents.\"search/searcher\"]\noptim = { momentum = 0.5 }\nworker_group = \"s\"",
            "`agents.\"search/searcher\".optim.momentum` has no effect: `kind` is not \"muon\"",
        ),
    ];
    for (table, told) in cases {
        let found = idle(&format!("{TWO}{table}\n"));
        assert!(matches!(&found[..], [one] if one == told), "{table}: {found:?}");
    }
    let used = "[models.small.optim]\nmomentum = 0.5\n[agents.\"search/searcher\"]\nworker_group = \"s\"\n\
                optim = { kind = \"muon\" }\n[task.curriculum]\nmemory = 0.5\npools = [{ up_to = 1.0, weight = 1.0 }]";
    assert_eq!(idle(&format!("{TWO}{used}\n")), [] as [&str; 0]);
}

#[test]
fn nothing_is_said_of_what_a_preset_sets_nor_of_what_a_run_wrote_out() {
    let teams =
        Preset::ALL.into_iter().filter(|preset| !preset.is_supervised() && *preset != Preset::Cory);
    for preset in teams {
        let plan = plan_of(&text(&format!("{TWO}[algorithm]\nname = \"{}\"\n", preset.name())));
        let written = toml::to_string(&plan.config).unwrap();
        for found in [plan.warnings, plan_of(&text(&written)).warnings] {
            assert!(!found.iter().any(|told| told.contains("has no effect")), "{found:?}");
        }
    }
}
