//! Declared estimators and surrogates.

use super::*;
use crate::credit::Gdpo;

/// The search team, and GDPO.
fn with_gdpo() -> Registry {
    registry(&[
        Entry::agent::<Verifier>(HERE),
        Entry::agent::<Searcher>(HERE),
        Entry::agent::<Answerer>(HERE),
        Entry::orchestra::<Route>(HERE),
        Entry::environment::<Library>(HERE),
        Entry::advantage::<Gdpo>("gdpo", "GDPO.", HERE),
    ])
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
        ("eps = 1e-6", ["`algorithm.advantage` has no `kind`", "`gdpo`"]),
    ] {
        let told = told(&format!("[algorithm.advantage]\n{toml}"));
        assert!(parts.iter().all(|part| told.contains(part)), "{toml}\n{told}");
    }
    let told = told("[algorithm.surrogate]\nkind = \"soft\"");
    assert!(told.contains("no surrogate is called `soft`"), "{told}");
}

#[test]
fn the_resolved_configuration_has_the_estimator_with_every_setting() {
    let plan = planned("[algorithm.advantage]\nkind = \"gdpo\"\nweights = { brevity = 0.5 }");
    let chosen = &plan.algorithm.declared.advantage.as_ref().unwrap().chosen;
    assert_eq!(chosen.name, "gdpo");
    assert_eq!(chosen.options["eps"], 1e-4);
    let resolved = toml::to_string(&plan.config).unwrap();
    assert!(
        resolved.contains("[algorithm.advantage]\nkind = \"gdpo\"\neps = 0.0001"),
        "{resolved}"
    );
    assert_eq!(planned(&resolved), plan);
}

#[test]
fn keys_without_effect_beside_a_declared_estimator_are_warned_about() {
    let plan = planned(
        "[algorithm]\nnormalize_std = false\ngroup_by = \"task\"\n[algorithm.advantage]\nkind = \"gdpo\"",
    );
    let expected = "`algorithm.normalize_std` has no effect beside `[algorithm.advantage]`";
    assert!(plan.warnings.iter().any(|warning| warning == expected), "{:?}", plan.warnings);
    assert!(!plan.warnings.iter().any(|warning| warning.contains("group_by")));
}

#[test]
fn an_estimator_without_advantages_to_estimate_is_refused() {
    let told = told(
        "[algorithm]\nestimator = \"critic\"\ncritic = { mixer = \"sum\" }\n[algorithm.advantage]\nkind = \"gdpo\"",
    );
    assert!(told.contains("advantages come from a mixer"), "{told}");
}
