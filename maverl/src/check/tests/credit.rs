//! Declared estimators and surrogates.

use super::*;
use crate::config::{AdvantagePlan, CriticPlan};
use crate::credit::{Advantage, Gdpo, Rewarded};

/// The search team.
fn search_entries() -> Vec<Entry> {
    vec![
        Entry::agent::<Verifier>(HERE),
        Entry::agent::<Searcher>(HERE),
        Entry::agent::<Answerer>(HERE),
        Entry::orchestra::<Route>(HERE),
        Entry::environment::<Library>(HERE),
    ]
}

/// The search team, and GDPO.
fn with_gdpo() -> Registry {
    let mut entries = search_entries();
    entries.push(Entry::advantage::<Gdpo>("gdpo", "GDPO.", HERE));
    registry(&entries)
}

fn told(toml: &str) -> String {
    let text = problems(&text(toml), &with_gdpo());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn planned(toml: &str) -> Plan {
    super::super::check(&text(toml), &with_gdpo(), Purpose::Train)
        .unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())))
}

#[test]
fn unknown_estimators_and_settings_are_reported_with_the_nearest_name() {
    for (toml, parts) in [
        ("kind = \"gpdo\"", ["no advantage is called `gpdo`", "did you mean `gdpo`?"]),
        (
            "kind = \"gdpo\"\nesp = 1e-6",
            ["unknown key `algorithm.advantage.esp`", "did you mean `eps`?"],
        ),
        ("kind = \"gdpo\"\neps = \"small\"", ["`algorithm.advantage.eps` is", "small"]),
        ("kind = \"gdpo\"\nby = \"tsak\"", ["`algorithm.advantage.by`", "expected one of `task`"]),
    ] {
        let told = told(&format!("[algorithm.advantage]\n{toml}"));
        assert!(parts.iter().all(|part| told.contains(part)), "{toml}\n{told}");
    }
    let told = told("[algorithm.loss.surrogate]\nkind = \"soft\"");
    assert!(told.contains("no surrogate is called `soft`"), "{told}");
}

#[test]
fn the_resolved_configuration_has_the_estimator_with_every_setting() {
    let plan = planned("[algorithm.advantage]\nkind = \"gdpo\"\nweights = { brevity = 0.5 }");
    let AdvantagePlan::Declared(declared) = &plan.algorithm.advantage else { panic!("gdpo") };
    assert_eq!(declared.chosen.name, "gdpo");
    assert_eq!(declared.chosen.options["eps"], 1e-4);
    let resolved = toml::to_string(&plan.config).unwrap();
    assert!(
        resolved.contains("[algorithm.advantage]\nkind = \"gdpo\"\nby = \"task\"\neps = 0.0001"),
        "{resolved}"
    );
    assert_eq!(planned(&resolved), plan);
}

#[test]
fn a_weight_that_names_no_part_of_the_reward_is_reported_with_the_parts_that_exist() {
    let gdpo = |weights: &str| {
        format!(
            "[algorithm.advantage]\nkind = \"gdpo\"\nweights = {{ {weights} }}\n[rewards.style.server]\nurl = \"http://a\""
        )
    };
    let misspelt = told(&gdpo("styel = 0.5"));
    assert!(misspelt.contains("no part of the reward is called `styel`"), "{misspelt}");
    assert!(misspelt.contains("`algorithm.advantage.weights.styel`"), "{misspelt}");
    let help =
        "did you mean `style`? the parts of the reward are `score`, `style` and `invalid_reply`";
    assert!(misspelt.contains(help), "{misspelt}");
    let warned = |weights: &str| {
        let warnings = planned(&gdpo(weights)).warnings;
        warnings.into_iter().find(|warning| warning.contains("names no part of the reward"))
    };
    assert_eq!(warned("score = 2.0, style = 0.5, other = 1.0"), None);
    let unknown = warned("verdict = 0.5").unwrap();
    for part in [
        "`algorithm.advantage.weights.verdict`",
        "(`score`, `style` and `invalid_reply`)",
        "only if the orchestra adds a part",
    ] {
        assert!(unknown.contains(part), "{part} is missing in {unknown}");
    }
    let charged = gdpo("invalid_reply = 1.0") + "\n[algorithm.loss]\ninvalid_reply_penalty = 0.5";
    let warnings = planned(&charged).warnings;
    assert!(!warnings.iter().any(|warning| warning.contains("names no part")), "{warnings:?}");
}

#[test]
fn keys_of_the_built_in_estimators_are_no_keys_of_a_declared_one() {
    let told = told("[algorithm.advantage]\nkind = \"gdpo\"\nnormalize_std = false");
    assert!(told.contains("unknown key `algorithm.advantage.normalize_std`"), "{told}");
    assert!(told.contains("is a key of `[algorithm.advantage]` with `kind = \"group\"`"), "{told}");
}

#[test]
fn an_estimator_without_advantages_to_estimate_is_refused() {
    let told = told("[algorithm]\nname = \"spin\"\n[algorithm.advantage]\nkind = \"gdpo\"");
    assert!(told.contains("given replies have no advantages"), "{told}");
}

/// The mean of a critic's values.
#[crate::advantage(name = "t/values")]
#[derive(crate::Settings)]
struct Values {
    /// Critics.
    #[setting(inner)]
    critic: CriticPlan,
}

impl Advantage for Values {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        for (out, values) in out.iter_mut().zip(step.values.unwrap_or_default()) {
            *out = values.iter().sum::<f64>() / values.len() as f64 * self.critic.gamma;
        }
    }
}

/// An estimator with a setting of this name that describes no critic.
#[crate::advantage(name = "t/odd")]
#[derive(crate::Settings)]
struct Odd {
    /// Name of a critic.
    #[setting(default = "judge")]
    critic: String,
}

impl Advantage for Odd {
    fn estimate(&self, _: &Rewarded<'_>, out: &mut [f64]) {
        out.fill(self.critic.len() as f64);
    }
}

#[test]
fn a_setting_that_is_called_critic_and_describes_none_is_refused() {
    let mut entries = search_entries();
    entries.push(Entry::advantage::<Odd>("t/odd", "Odd.", HERE));
    let toml = "[algorithm.advantage]\nkind = \"t/odd\"";
    let problems = super::super::check(&text(toml), &registry(&entries), Purpose::Train);
    let told = render(&problems.unwrap_err(), GraphicalTheme::none());
    assert!(told.contains("the setting `critic` of `t/odd` is not that of a critic"), "{told}");
}

#[test]
fn a_declared_estimator_has_critics_by_a_setting_of_that_name() {
    let entries = || {
        let mut entries = search_entries();
        entries.push(Entry::advantage::<Values>("t/values", "Values.", HERE));
        registry(&entries)
    };
    let toml = "[algorithm.advantage]\nkind = \"t/values\"\ncritic = { gamma = 0.5, optim = { lr = 1e-3 } }";
    let plan = super::super::check(&text(toml), &entries(), Purpose::Train)
        .unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())));
    let critic = plan.algorithm.critic.as_ref().unwrap();
    assert_eq!((critic.gamma, critic.optim().lr, critic.optim().eps), (0.5, 1e-3, 1e-8));
    assert_eq!(plan.critic_of(0), Some(0));
}
