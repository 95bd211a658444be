//! Groups that are trained on again, and what excludes them.

use super::*;

const CORRECTED: &str = "loss.correction = { kind = \"truncate\" }";

/// Returns an algorithm that replays groups, with further keys.
fn replaying(keys: &str) -> String {
    format!("[algorithm]\nreplay.groups = 8\n{keys}")
}

#[test]
fn groups_are_replayed_with_a_correction_and_an_estimator_of_groups() {
    let plan = plan_of(&text(&replaying(&format!("replay.max_age = 4\n{CORRECTED}"))));
    assert_eq!((plan.algorithm.replay.groups, plan.algorithm.replay.max_age), (8, 4));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan);
    for name in ["grpo", "drgrpo", "rloo", "gspo", "opo", "maxrl", "gigpo"] {
        plan_of(&text(&replaying(&format!("name = \"{name}\"\n{CORRECTED}"))));
    }
    let idle = plan_of(&text("[algorithm]\nreplay.max_age = 4"));
    let told = "`algorithm.replay.max_age` has no effect";
    assert!(idle.warnings.iter().any(|warning| warning.contains(told)), "{:?}", idle.warnings);
}

#[test]
fn what_excludes_the_replay_of_groups_is_reported_with_a_remedy() {
    let start = "`algorithm.replay.groups` is 8, and";
    let remedy = "write `algorithm.loss.correction = { kind = \"truncate\" }`";
    refused(&replaying(""), &[start, "has no correction for the older weights", remedy]);
    for (keys, part) in [
        ("name = \"online_dpo\"", "`algorithm.name` is \"online_dpo\", which has no advantages"),
        ("name = \"reinforce++\"", "`algorithm.whiten` compares the tokens of the whole step"),
        ("resample = 2", "`algorithm.resample` is 2: both replace the tasks"),
        ("name = \"ppo\"", "`algorithm.advantage.kind` is \"critic\", which compares rewards with"),
        ("name = \"otb\"", "is \"token_baseline\", which compares the places of replies"),
        ("name = \"remax\"", "is \"greedy\", which compares an episode with more than"),
        ("advantage.kind = \"counterfactual\"", "is \"counterfactual\", which compares"),
        ("advantage.by = \"branch\"", "is \"group\", which compares branches"),
        (
            "name = \"gpg\"",
            "`algorithm.advantage.compensate_flat` makes up for groups without signal",
        ),
    ] {
        refused(&replaying(&format!("{CORRECTED}\n{keys}")), &[start, part]);
    }
    let own = |role: &str| format!("[agents.\"search/{role}\"]\nworker_group = \"{role}\"\n");
    let apart = [own("verifier"), own("answerer")].concat();
    for (keys, part) in [
        ("swap_every = 2", "`algorithm.swap_every` is 2: another policy"),
        ("update_order = \"random\"", "`algorithm.update_order` multiplies advantages"),
    ] {
        refused(&format!("{}\n{apart}", replaying(&format!("{CORRECTED}\n{keys}"))), &[part]);
    }
    let taught = "[models.tiny]\npath = \"builtin:tiny\"\n[teachers.me]\npolicy = \"self\"\nhint = \"?\"\n\
                  [agents.\"search/answerer\"]\nteacher = \"me\"";
    refused(
        &format!("{}\n{taught}", replaying(CORRECTED)),
        &["`search/answerer` has a teacher, which scores the replies of a step"],
    );
}
