//! Models, copies and optimizers that agents share.

use serde_json::json;

use super::*;

#[test]
fn agents_with_one_model_share_a_policy_and_a_worker_is_another_copy() {
    let toml = r#"
        [models.small]
        path = "builtin:tiny"
        optim = { lr = 1e-5 }
        [models.judge]
        path = "builtin:tiny"
        frozen = true
        [agents."search/answerer"]
        model = "small"
        worker_group = "answers"
        optim = { lr = 5e-6 }
        sampling = { temperature = 0.8, top_p = 1 }
        loss = { kl_coef = 0.1 }
        [agents."search/searcher"]
        model = "small"
        [agents."search/verifier"]
        model = "judge"
        sampling.top_k = 5
        options.examples = 0
    "#;
    let plan = plan_of(&text(toml));
    let policies: Vec<(&str, bool, bool, f64)> = plan
        .policies
        .iter()
        .map(|policy| (policy.name.as_str(), policy.trained, policy.reference, policy.optim.lr))
        .collect();
    let expected = [
        ("answers", true, true, 5e-6),
        ("judge", false, false, 1e-6),
        ("small", true, false, 1e-5),
    ];
    assert_eq!(policies, expected);
    let models: Vec<&str> = plan.workers.iter().map(|worker| worker.model.as_str()).collect();
    assert_eq!(models, ["small", "judge", "small"]);
    let seats: Vec<(usize, bool)> =
        plan.seats.iter().map(|seat| (seat.policy, seat.trained)).collect();
    assert_eq!(seats, [(0, true), (2, true), (1, false)]);
    assert_eq!(plan.seats[0].sampling.temperature, 0.8);
    assert_eq!(plan.seats[0].loss.kl_coef, 0.1);
    assert_eq!(plan.seats[2].options, json!({ "style": null, "examples": 0 }));
}

#[test]
fn a_frozen_agent_leaves_its_policy_trained_by_the_others() {
    let toml = "[agents.\"search/searcher\"]\nfrozen = true\n[agents.\"search/searcher\".loss]\nkl_coef = 1";
    let plan = plan_of(&text(toml));
    assert!(plan.policies[0].trained);
    assert!(!plan.policies[0].reference, "only a trained seat needs a reference");
    assert!(!plan.seats[1].trained);
    assert_eq!(
        plan.warnings,
        ["`agents.\"search/searcher\".loss` has no effect: the agent is frozen"]
    );
}

#[test]
fn an_override_on_which_all_agents_of_a_policy_agree_is_theirs() {
    let toml = ["answerer", "searcher", "verifier"]
        .map(|role| format!("[agents.\"search/{role}\".optim]\nlr = 1e-3\n"))
        .concat();
    assert_eq!(plan_of(&text(&toml)).policies[0].optim.lr, 1e-3);
}

#[test]
fn a_seat_has_its_table_on_top_of_its_agents() {
    let plan = super::super::check(&text(DEBATE), &everything(), Purpose::Train).unwrap();
    let [first, second] = &plan.seats[..] else { panic!("{:?}", plan.seats) };
    assert_eq!(first.seat, Seat::at("debate/debater", 0));
    assert_eq!((first.sampling.temperature, first.sampling.max_tokens), (0.7, 64));
    assert_eq!((second.sampling.temperature, second.sampling.max_tokens), (0.9, 64));
    assert_eq!(first.options, json!({ "style": "calm", "examples": 2 }));
    assert_eq!(second.options, json!({ "style": "calm", "examples": 5 }));
    assert_eq!((first.trained, second.trained), (true, false));
    assert_eq!(plan.policies[first.policy].name, "small");
    assert_eq!(plan.policies[second.policy].name, "large");
}

#[test]
fn an_agent_needs_a_model_where_there_are_several() {
    check(
        &search(),
        r#"
[models.small]
path = "builtin:tiny"
[models.large]
path = "builtin:tiny"
[agents."search/verifier"]
model = "larg"
"#,
        r#"
  x no `model` for `search/answerer` and `search/searcher`, and `[models]` has several: `large` and `small`
   ,-[run.toml:1:2]
 1 | [models.small]
   :  ^^^|^^
   :     `-- which one?
   `----
  help: write `model = "large"` in `[agents."search/answerer"]`
  x `agents."search/verifier".model` is "larg", but `[models]` has only `large` and `small`
   ,-[run.toml:6:9]
 6 | model = "larg"
   :         ^^^^^^
   `----
  help: did you mean `large`?
"#,
    );
}

#[test]
fn a_worker_holds_one_model() {
    check(
        &search(),
        r#"
[models.small]
path = "builtin:tiny"
[models.large]
path = "builtin:tiny"
[agents."search/verifier"]
model = "small"
worker_group = "shared"
[agents."search/answerer"]
model = "large"
worker_group = "shared"
[agents."search/searcher"]
model = "large"
"#,
        r#"
  x worker `shared` is model `large` for `search/answerer`, but model `small` for `search/verifier`
    ,-[run.toml:7:16]
  7 | worker_group = "shared"
    :                ^^^^|^^^
    :                    `-- for `search/verifier`
  8 | [agents."search/answerer"]
  9 | model = "large"
 10 | worker_group = "shared"
    :                ^^^^|^^^
    :                    `-- for `search/answerer`
    `----
  help: a worker group holds one model: give one of them another `worker_group` name
"#,
    );
}

#[test]
fn agents_that_share_weights_share_an_optimizer() {
    check(
        &search(),
        r#"
[models.small]
path = "builtin:tiny"
optim = { lr = 1e-5 }
[agents."search/verifier"]
optim = { lr = 5e-6, warmup_steps = 3 }
"#,
        r#"
  x `optim.lr` is 5e-6 for `search/verifier` and 1e-5 for `search/answerer`, but both are policy `small`
   ,-[run.toml:3:16]
 3 | optim = { lr = 1e-5 }
   :                ^^|^
   :                  `-- for `search/answerer`
 4 | [agents."search/verifier"]
 5 | optim = { lr = 5e-6, warmup_steps = 3 }
   :                ^^|^
   :                  `-- for `search/verifier`
   `----
  help: a policy has one value of it: write the same for both, or give `search/verifier` its own copy with
        `worker_group = "verifier"` in `[agents."search/verifier"]`, or, with `lora` in `[models.small]`,
        its own adapter with `adapter = "verifier"`
  x `optim.warmup_steps` is 3 for `search/verifier` and 0 for `search/answerer`, but both are policy `small`
   ,-[run.toml:5:37]
 5 | optim = { lr = 5e-6, warmup_steps = 3 }
   :                                     |
   :                                     `-- for `search/verifier`
   `----
  help: a policy has one value of it: write the same for both, or give `search/verifier` its own copy with
        `worker_group = "verifier"` in `[agents."search/verifier"]`, or, with `lora` in `[models.small]`,
        its own adapter with `adapter = "verifier"`
"#,
    );
}

#[test]
fn two_overrides_of_one_policy_are_both_shown() {
    check(
        &search(),
        r#"
[agents."search/answerer"]
optim.lr = 5e-6
[agents."search/searcher"]
optim.lr = 5e-6
[agents."search/verifier"]
optim.lr = 1e-7
"#,
        r#"
  x `optim.lr` is 5e-6 for `search/answerer` and 1e-7 for `search/verifier`, but both are policy `tiny`
   ,-[run.toml:2:12]
 2 | optim.lr = 5e-6
   :            ^^|^
   :              `-- for `search/answerer`
   `----
   ,-[run.toml:6:12]
 6 | optim.lr = 1e-7
   :            ^^|^
   :              `-- for `search/verifier`
   `----
  help: a policy has one value of it: write the same for both, or give `search/answerer` its own copy with
        `worker_group = "answerer"` in `[agents."search/answerer"]`, or, with `lora` in `[models.tiny]`, its
        own adapter with `adapter = "answerer"`
"#,
    );
}

#[test]
fn a_frozen_model_has_no_trained_agents() {
    check(
        &search(),
        r#"
[models.small]
path = "builtin:tiny"
frozen = true
[agents."search/verifier"]
frozen = false
"#,
        r#"
  x `search/verifier` is to be trained, but its model `small` is frozen
   ,-[run.toml:3:10]
 3 | frozen = true
   :          ^^|^
   :            `-- frozen
 4 | [agents."search/verifier"]
 5 | frozen = false
   :          ^^|^^
   :            `-- trained
   `----
  help: remove one of the two
  x nothing is trained: every agent, or its model, is frozen
  help: remove `frozen = true` from one of them
"#,
    );
}

#[test]
fn models_that_cannot_be_opened_are_reported() {
    check(
        &search(),
        r#"
[models.a]
path = "builtin:tony"
[models."b c"]
path = "builtin:tiny"
[models.x]
frozen = true
[agents."search/answerer"]
model = "a"
[agents."search/searcher"]
model = "a"
[agents."search/verifier"]
model = "a"
"#,
        r#"
  x no built-in model is called "tony"
   ,-[run.toml:2:8]
 2 | path = "builtin:tony"
   :        ^^^^^^^^^^^^^^
   `----
  help: did you mean `tiny`?
  x "b c" cannot name a model, worker or adapter
   ,-[run.toml:3:9]
 3 | [models."b c"]
   :         ^^^^^
   `----
  help: it becomes the name of metrics and of a directory: use letters, digits, `_`, `-` and `.`
  x `models.x` has no `path`
   ,-[run.toml:5:9]
 5 | [models.x]
   :         ^
   `----
  help: write `path = "builtin:tiny"`, or the path of a Hugging Face model directory
"#,
    );
}

#[test]
fn moments_in_8_bits_are_not_rounded_in_checkpoints_and_those_of_other_optimizers_may_be() {
    let file = |kind: &str, moments: &str| {
        format!(
            "[models.tiny]\npath = \"builtin:tiny\"\noptim.kind = {kind:?}\n[checkpoint]\nmoments = {moments:?}\n"
        )
    };
    for (kind, moments) in [
        ("adamw", "bf16"),
        ("muon", "bf16"),
        ("muon", "none"),
        ("adamw8bit", "f32"),
        ("adamw8bit", "none"),
    ] {
        plan_of(&text(&file(kind, moments)));
    }
    let found = problems(&text(&file("adamw8bit", "bf16")), &search());
    let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "`checkpoint.moments` is \"bf16\", and policy `tiny` has `optim.kind = \"adamw8bit\"`",
        "write `moments = \"f32\"`",
        "or `moments = \"none\"`",
    ] {
        assert!(found.contains(part), "{part} is missing in {found}");
    }
}
