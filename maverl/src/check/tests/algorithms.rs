//! Presets and their parts.

use super::*;
use crate::config::{
    AdvantagePlan, ClipOptions, GroupBy, GroupPlan, HappoFactor, Ratio, SequencePlan, Shaping,
    ShapingPlan, SurrogatePlan, UpdateOrder,
};

#[test]
fn what_cannot_be_trained_with_can_be_evaluated() {
    let toml = "[sampling]\ntemperature = 0\n[models.tiny]\npath = \"builtin:tiny\"\nfrozen = true";
    let plan = super::super::check(&text(toml), &search(), Purpose::Eval).unwrap();
    assert!(!plan.policies[0].trained);
}

#[test]
fn a_preset_sets_its_parts_and_each_can_be_overridden() {
    let advantage = |toml: &str| plan_of(&text(toml)).algorithm.advantage;
    let group = |by, normalize_std| {
        AdvantagePlan::Group(GroupPlan { by, normalize_std, ..GroupPlan::default() })
    };
    assert_eq!(advantage("[algorithm]\nname = \"grpo\""), group(GroupBy::Task, true));
    assert_eq!(advantage("[algorithm]\nname = \"drmas\""), group(GroupBy::TaskSeat, true));
    let mixed = "[algorithm]\nname = \"drgrpo\"\nadvantage.by = \"task_seat\"";
    assert_eq!(advantage(mixed), group(GroupBy::TaskSeat, false));
    let same = "[algorithm]\nname = \"drgrpo\"\nadvantage = { kind = \"group\", eps = 1e-6 }";
    assert_eq!(advantage(same), group(GroupBy::Task, false));
    let other = "[algorithm]\nname = \"ppo\"\nadvantage = { kind = \"group\" }";
    assert_eq!(advantage(other), AdvantagePlan::default());
}

#[test]
fn agents_inherit_the_loss_of_the_preset() {
    let plan = plan_of(&text("[algorithm]\nname = \"gspo\"\nloss.surrogate = { clip_low = 0.1 }"));
    let loss = &plan.seats[0].loss;
    let clip = ClipOptions { clip_low: 0.1, clip_high: 4e-4, clip_dual: 3.0 };
    assert_eq!((loss.ratio, &loss.surrogate), (Ratio::Sequence, &SurrogatePlan::Clip(clip)));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan);
}

#[test]
fn a_kind_may_be_written_by_its_name_alone_and_keys_of_another_layer_keep_it() {
    let algorithm = |toml: &str, set: &[&str]| {
        let sources = set.iter().fold(text(toml), |sources, set| sources.with(*set));
        plan_of(&sources).algorithm
    };
    let margin = |weight| Shaping::Margin(ShapingPlan { weight });
    let named = "[algorithm]\nname = \"grpo\"\nshaping = \"margin\"";
    assert_eq!(algorithm(named, &[]).shaping, margin(0.5));
    assert_eq!(algorithm(named, &["algorithm.shaping.weight=0.25"]).shaping, margin(0.25));
    let table = "[algorithm]\nname = \"grpo\"\nshaping = { kind = \"margin\", weight = 2 }";
    assert_eq!(algorithm(table, &[]).shaping, margin(2.0));
    assert_eq!(algorithm(table, &["algorithm.shaping=none"]).shaping, Shaping::None);
    let happo = "[algorithm]\nname = \"happo\"\nupdate_order = { clip = 0.1 }\n\
                 [agents.\"search/verifier\"]\nworker_group = \"its\"";
    let factor = HappoFactor::Length;
    let random = UpdateOrder::Random(SequencePlan { factor, clip: Some(0.1) });
    assert_eq!(algorithm(happo, &[]).update_order, random);
}

#[test]
fn parts_of_an_algorithm_that_do_not_go_together_are_refused_with_the_reason() {
    let refused = |toml: &str, part: &str| {
        let problems = super::super::check(&text(toml), &search(), Purpose::Train).unwrap_err();
        let found = render(&problems, GraphicalTheme::none());
        assert!(found.contains(part), "{found}");
    };
    refused(
        "[algorithm]\nadaptive_kl.target = 0.1",
        "`algorithm.adaptive_kl.target` is set, and `algorithm.loss.kl_coef` is 0",
    );
    refused(
        "[algorithm]\nname = \"cory\"",
        "`algorithm.swap_every` is 5, and 3 trained agents speak through 1 policies",
    );
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("[task]\ndata = {path:?}\n")
    };
    let pair = file("pairs.jsonl", r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#);
    refused(
        &(pair
            + "[algorithm]\nname = \"dpo\"\npreference = { loss = \"ipo\", label_smoothing = 0.1 }"),
        "`algorithm.preference.label_smoothing` is 0.1, which this loss does not have",
    );
    let same = file("same.jsonl", r#"{"prompt": "a", "chosen": "b", "rejected": "b"}"#);
    refused(&(same + "[algorithm]\nname = \"dpo\""), "`chosen` and `rejected` are the same");
    let shown = file("shown.jsonl", r#"{"prompt": "a", "completion": "b"}"#);
    refused(
        &(shown + "[algorithm]\nname = \"sft\"\ntrain_on = \"observations\""),
        "in which no user answers a reply",
    );
    refused(
        "[algorithm]\nname = \"dapo\"\n[task]\ngroup_size = 1",
        "`algorithm.resample` is 10, and `task.group_size` is 1",
    );
    let online = "[algorithm]\nname = \"online_dpo\"\n";
    refused(
        &format!("{online}[task]\ngroup_size = 1"),
        "`algorithm.name` is \"online_dpo\", and `task.group_size` is 1",
    );
    refused(
        &format!("{online}advantage.kind = \"critic\""),
        "`algorithm.advantage` has no effect: pairs of replies have no advantages",
    );
    refused(
        &format!("{online}advantage.by = \"task\""),
        "`algorithm.advantage` has no effect: pairs of replies have no advantages",
    );
    refused(
        &format!(
            "{online}update_order = \"random\"\n[agents.\"search/verifier\"]\nworker_group = \"its\""
        ),
        "a sequence of policies, and `algorithm.name` is \"online_dpo\"",
    );
    refused(
        &format!("{online}preference = {{ loss = \"hinge\", label_smoothing = 0.1 }}"),
        "`algorithm.preference.label_smoothing` is 0.1, which this loss does not have",
    );
    refused(&format!("{online}[sampling]\ntop_p = 0.9"), "`top_p` is set for");
    refused("[algorithm]\nname = \"rloo\"\n[task]\ngroup_size = 1", "compares with other episodes");
    refused(
        "[algorithm]\nname = \"cispo\"\nloss = { ratio = \"sequence\" }",
        "is trained with the surrogate \"cispo\" and a ratio of the reply",
    );
}

#[test]
fn pairs_of_own_replies_have_a_reference_unless_neither_loss_nor_reward_needs_one() {
    let has = |more: &str| {
        let plan = plan_of(&text(&format!("[algorithm]\nname = \"online_dpo\"\n{more}")));
        plan.policies.iter().any(|policy| policy.reference)
    };
    let free = "preference.reference_free = true\n";
    assert!(has("") && has("loss.kl_coef = 0.1\nloss.kl_in = \"reward\""));
    assert!(!has(free) && !has(&format!("{free}loss.kl_coef = 0.1")));
    assert!(has(&format!("{free}loss.kl_coef = 0.1\nloss.kl_in = \"reward\"")));
}

#[test]
fn a_group_of_one_is_legal_and_warned_about() {
    let plan = plan_of(&text("[task]\ngroup_size = 1"));
    assert_eq!(plan.warnings.len(), 1);
    assert!(plan.warnings[0].starts_with("`task.group_size` is 1"), "{:?}", plan.warnings);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("shown.jsonl");
    std::fs::write(&data, "{\"prompt\": \"a\", \"completion\": \"b\"}").unwrap();
    let data = format!(
        "[task]\ntasks_per_step = 1\ngroup_size = 1\ndata = {data:?}\n[algorithm]\nname = \"sft\""
    );
    assert!(plan_of(&text(&data)).warnings.is_empty());
}

#[test]
fn filtered_and_greedy_samples_are_not_trained_on() {
    check(
        &search(),
        r#"
[sampling]
top_k = 20
[agents."search/answerer".sampling]
temperature = 0
[agents."search/searcher"]
frozen = true
sampling = { top_p = 0.9, temperature = 0 }
[agents."search/verifier".sampling]
top_k = 0
min_p = 0.1
"#,
        r#"
  x `top_k` is set for `search/answerer`, which is trained with the ratio of unfiltered probabilities
   ,-[run.toml:2:9]
 2 | top_k = 20
   :         ^^
   `----
  help: remove it, or freeze the agent: log-probabilities of filtered samples would be wrong
  x `search/answerer` is trained, but its replies are greedy (temperature 0)
   ,-[run.toml:4:15]
 4 | temperature = 0
   :               ^
   `----
  help: training needs replies that differ; `eval.temperature = 0` makes evaluation greedy
  x `min_p` is set for `search/verifier`, which is trained with the ratio of unfiltered probabilities
    ,-[run.toml:10:9]
 10 | min_p = 0.1
    :         ^^^
    `----
  help: remove it, or freeze the agent: log-probabilities of filtered samples would be wrong
"#,
    );
}

#[test]
fn unknown_parts_of_an_algorithm_list_the_known_ones() {
    check(
        &search(),
        r#"
[algorithm]
name = "reinforce"
aggregation = "token-mean"
[algorithm.loss]
kl = "k4"
"#,
        r#"
  x `algorithm.name` is "reinforce"; expected one of "drmas", "grpo", "drgrpo", "dapo", "rloo", "gigpo",
  | "reinforce++", "reinforce++_baseline", "gspo", "cispo", "sapo", "cpgd", "passk", "remax", "luspo",
  | "gspo_token", "gmpo", "vespo", "dppo", "dro", "maxrl", "gpg", "opo", "otb", "cory", "ppo", "ippo",
  | "mappo", "happo", "marft", "vdn", "qmix", "maporl", "sft", "dpo", "spin", "online_dpo", "verifier"
   ,-[run.toml:2:8]
 2 | name = "reinforce"
   :        ^^^^^^^^^^^
   `----
  help: did you mean "reinforce++"?
  x `algorithm.aggregation` is "token-mean"; expected one of "token_mean", "sequence_mean", "sequence_sum",
  | "constant"
   ,-[run.toml:3:15]
 3 | aggregation = "token-mean"
   :               ^^^^^^^^^^^^
   `----
  help: did you mean "token_mean"?
  x `algorithm.loss.kl` is "k4"; expected one of "k1", "k2", "k3"
   ,-[run.toml:5:6]
 5 | kl = "k4"
   :      ^^^^
   `----
  help: did you mean "k1"?
"#,
    );
}

#[test]
fn a_key_of_another_kind_of_estimator_is_refused() {
    check(
        &search(),
        r#"
[algorithm.advantage]
kind = "reward"
normalize_std = true
"#,
        r#"
  x unknown key `algorithm.advantage.normalize_std`
   ,-[run.toml:3:1]
 3 | normalize_std = true
   : ^^^^^^^^^^^^^
   `----
  help: `normalize_std` is a key of `[algorithm.advantage]` with `kind = "group"`
"#,
    );
}

#[test]
fn values_of_an_estimator_are_told_with_their_place() {
    check(
        &search(),
        r#"
[algorithm.advantage]
kind = "critic"
gamma = 1.5
trunk = "lorra"
optim = { lr = "small" }
"#,
        r#"
  x `algorithm.advantage.gamma` is 1.5; expected a number from 0 to 1
   ,-[run.toml:3:9]
 3 | gamma = 1.5
   :         ^^^
   `----
  x `algorithm.advantage.trunk` is "lorra"; expected one of "own", "lora", "shared"
   ,-[run.toml:4:9]
 4 | trunk = "lorra"
   :         ^^^^^^^
   `----
  help: did you mean "lora"?
  x `algorithm.advantage.optim.lr` is "small"; expected a number
   ,-[run.toml:5:16]
 5 | optim = { lr = "small" }
   :                ^^^^^^^
   `----
"#,
    );
}

#[test]
fn keys_that_have_moved_are_answered_with_where_they_are() {
    let found = |toml: &str| {
        let problems = super::super::check(&text(toml), &search(), Purpose::Train).unwrap_err();
        let found = render(&problems, GraphicalTheme::none());
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (toml, help) in [
        ("group_by = \"task\"", "did you mean `algorithm.advantage.by`?"),
        ("estimator = \"critic\"", "did you mean `algorithm.advantage.kind`?"),
        ("normalize_std = false", "did you mean `algorithm.advantage.normalize_std`?"),
        (
            "critic = { gamma = 0.9 }",
            "did you mean `[algorithm.advantage]` with `kind = \"critic\"`",
        ),
    ] {
        let found = found(&format!("[algorithm]\n{toml}"));
        assert!(found.contains(help), "{toml}: {found}");
    }
}
