//! Unknown keys, names and options, and values of the wrong type or size.

use super::*;
use crate::task::TaskList;

#[test]
fn unknown_keys_and_wrong_types_are_all_reported_together() {
    check(
        &search(),
        r#"
stpes = 3
seed = "7"
lr = 1e-5
[task]
group_size = 0
tasks_per_step = -1
shuffle = 1
[modles.small]
path = "x"
[models.small]
optim = { lr = "fast", betas = [0.9, "x"] }
[sampling]
stop = 3
[algorithm]
name = "drmass"
"#,
        r#"
  x unknown key `stpes`
   ,-[run.toml:1:1]
 1 | stpes = 3
   : ^^^^^
   `----
  help: did you mean `steps`?
  x `seed` is "7"; expected a whole number from 0
   ,-[run.toml:2:8]
 2 | seed = "7"
   :        ^^^
   `----
  help: write it without quotes
  x unknown key `lr`
   ,-[run.toml:3:1]
 3 | lr = 1e-5
   : ^^
   `----
  help: `lr` is a key of a model's (or agent's) `optim` and `[algorithm.verifier]`
  x `task.group_size` is 0; expected a whole number from 1
   ,-[run.toml:5:14]
 5 | group_size = 0
   :              ^
   `----
  x `task.tasks_per_step` is -1; expected a whole number from 1
   ,-[run.toml:6:18]
 6 | tasks_per_step = -1
   :                  ^^
   `----
  x `task.shuffle` is 1; expected true or false
   ,-[run.toml:7:11]
 7 | shuffle = 1
   :           ^
   `----
  help: write `shuffle = true`
  x unknown key `modles`
   ,-[run.toml:8:2]
 8 | [modles.small]
   :  ^^^^^^
   `----
  help: did you mean `models`?
  x `models.small` has no `path`
    ,-[run.toml:10:9]
 10 | [models.small]
    :         ^^^^^
    `----
  help: write `path = "builtin:tiny"`, or the path of a Hugging Face model directory
  x `models.small.optim.lr` is "fast"; expected a number
    ,-[run.toml:11:16]
 11 | optim = { lr = "fast", betas = [0.9, "x"] }
    :                ^^^^^^
    `----
  x `models.small.optim.betas[1]` is "x"; expected a number
    ,-[run.toml:11:32]
 11 | optim = { lr = "fast", betas = [0.9, "x"] }
    :                                ^^^^^^^^^^
    `----
  x `sampling.stop` is 3; expected a list
    ,-[run.toml:13:8]
 13 | stop = 3
    :        ^
    `----
  help: write `stop = [3]`
  x `algorithm.name` is "drmass"; expected one of "drmas", "grpo", "drgrpo", "dapo", "rloo", "gigpo",
  | "reinforce++", "reinforce++_baseline", "gspo", "cispo", "sapo", "cpgd", "passk", "remax", "luspo",
  | "gspo_token", "gmpo", "vespo", "dppo", "dro", "maxrl", "gpg", "opo", "otb", "cory", "ppo", "ippo",
  | "mappo", "happo", "marft", "vdn", "qmix", "maporl", "sft", "dpo", "spin", "online_dpo", "verifier"
    ,-[run.toml:15:8]
 15 | name = "drmass"
    :        ^^^^^^^^
    `----
  help: did you mean "drmas"?
"#,
    );
}

#[test]
fn a_name_is_needed_where_several_are_linked() {
    check(
        &everything(),
        r#"
"#,
        r#"
  x `environment.name` is not set, and 2 are linked: `library` and `quiz`
  help: write `name = "library"` in `[environment]`
  x `orchestra.name` is not set, and 2 are linked: `debate/vote` and `search/route`
  help: write `name = "debate/vote"` in `[orchestra]`
"#,
    );
}

#[test]
fn unknown_names_have_suggestions() {
    check(
        &everything(),
        r#"
[orchestra]
name = "route"
[environment]
name = "libary"
"#,
        r#"
  x no orchestra is called `route`
   ,-[run.toml:2:8]
 2 | name = "route"
   :        ^^^^^^^
   `----
  help: did you mean `search/route`?
  x no environment is called `libary`
   ,-[run.toml:4:8]
 4 | name = "libary"
   :        ^^^^^^^^
   `----
  help: did you mean `library`?
"#,
    );
}

#[test]
fn options_are_checked_against_the_declared_type() {
    check(
        &everything(),
        r#"
[orchestra]
name = "search/route"
max_turn = 3
greeting = 5
[environment]
name = "library"
top = "x"
[agents."search/verifier".options]
exmples = 1
examples = -1
"#,
        r#"
  x unknown key `orchestra.max_turn`: `search/route` has no such option
   ,-[run.toml:3:1]
 3 | max_turn = 3
   : ^^^^^^^^
   `----
  help: did you mean `max_turns`?
  x `orchestra.greeting` is 5; expected text in quotes
   ,-[run.toml:4:12]
 4 | greeting = 5
   :            ^
   `----
  help: write `greeting = "5"`
  x `environment.top` is "x"; expected a whole number from 0
   ,-[run.toml:7:7]
 7 | top = "x"
   :       ^^^
   `----
  x unknown key `agents."search/verifier".options.exmples`: `search/verifier` has no such option
   ,-[run.toml:9:1]
 9 | exmples = 1
   : ^^^^^^^
   `----
  help: did you mean `examples`?
  x `agents."search/verifier".options.examples` is -1; expected a whole number from 0
    ,-[run.toml:10:12]
 10 | examples = -1
    :            ^^
    `----
"#,
    );
}

#[test]
fn keys_of_a_step_are_no_keys_of_an_agent() {
    check(
        &search(),
        r#"
[agents."search/answerer"]
tasks_per_step = 4
normalize_std = false
temperature = 0.5
"#,
        r#"
  x unknown key `agents."search/answerer".tasks_per_step`
   ,-[run.toml:2:1]
 2 | tasks_per_step = 4
   : ^^^^^^^^^^^^^^
   `----
  help: `tasks_per_step` is a key of `[task]`
  x unknown key `agents."search/answerer".normalize_std`
   ,-[run.toml:3:1]
 3 | normalize_std = false
   : ^^^^^^^^^^^^^
   `----
  help: `normalize_std` is a key of `[algorithm.advantage]` with `kind = "group"`
  x unknown key `agents."search/answerer".temperature`
   ,-[run.toml:4:1]
 4 | temperature = 0.5
   : ^^^^^^^^^^^
   `----
  help: `temperature` is a key of `[sampling]` (or an agent's `sampling`) and `[eval]`
"#,
    );
}

#[test]
fn numbers_out_of_range_are_reported() {
    check(
        &search(),
        r#"
[sampling]
temperature = -1
top_p = 1.5
min_p = nan
[models.small]
path = "builtin:tiny"
optim = { lr = inf, betas = [0.9, 1.0], eps = 0, grad_clip = 0, weight_decay = -0.1 }
[algorithm]
advantage.eps = -1e-6
[algorithm.loss]
surrogate.clip_dual = 1.0
surrogate.clip_low = -0.1
kl_coef = -1
[rollout]
timeout_s = 0
max_unscored = 1.5
[eval]
temperature = -0.5
[runtime]
threads = 1025
"#,
        r#"
  x `sampling.temperature` is -1; expected a finite number from 0
   ,-[run.toml:2:15]
 2 | temperature = -1
   :               ^^
   `----
  x `sampling.top_p` is 1.5; expected a number above 0 and at most 1
   ,-[run.toml:3:9]
 3 | top_p = 1.5
   :         ^^^
   `----
  x `sampling.min_p` is NaN; expected a number from 0 to 1
   ,-[run.toml:4:9]
 4 | min_p = nan
   :         ^^^
   `----
  x `models.small.optim.lr` is inf; expected a finite number above 0
   ,-[run.toml:7:16]
 7 | optim = { lr = inf, betas = [0.9, 1.0], eps = 0, grad_clip = 0, weight_decay = -0.1 }
   :                ^^^
   `----
  x `models.small.optim.betas` holds 1; expected numbers from 0 to below 1
   ,-[run.toml:7:29]
 7 | optim = { lr = inf, betas = [0.9, 1.0], eps = 0, grad_clip = 0, weight_decay = -0.1 }
   :                             ^^^^^^^^^^
   `----
  x `models.small.optim.eps` is 0; expected a finite number above 0
   ,-[run.toml:7:47]
 7 | optim = { lr = inf, betas = [0.9, 1.0], eps = 0, grad_clip = 0, weight_decay = -0.1 }
   :                                               ^
   `----
  x `models.small.optim.grad_clip` is 0; expected a finite number above 0
   ,-[run.toml:7:62]
 7 | optim = { lr = inf, betas = [0.9, 1.0], eps = 0, grad_clip = 0, weight_decay = -0.1 }
   :                                                              ^
   `----
  x `models.small.optim.weight_decay` is -0.1; expected a finite number from 0
   ,-[run.toml:7:80]
 7 | optim = { lr = inf, betas = [0.9, 1.0], eps = 0, grad_clip = 0, weight_decay = -0.1 }
   :                                                                                ^^^^
   `----
  x `algorithm.advantage.eps` is -1e-6; expected a finite number from 0
   ,-[run.toml:9:17]
 9 | advantage.eps = -1e-6
   :                 ^^^^^
   `----
  x `algorithm.loss.surrogate.clip_dual` is 1; expected a finite number above 1
    ,-[run.toml:11:23]
 11 | surrogate.clip_dual = 1.0
    :                       ^^^
    `----
  x `algorithm.loss.surrogate.clip_low` is -0.1; expected a number above 0 and at most 1
    ,-[run.toml:12:22]
 12 | surrogate.clip_low = -0.1
    :                      ^^^^
    `----
  x `algorithm.loss.kl_coef` is -1; expected a finite number from 0
    ,-[run.toml:13:11]
 13 | kl_coef = -1
    :           ^^
    `----
  x `rollout.timeout_s` is 0; expected a finite number above 0
    ,-[run.toml:15:13]
 15 | timeout_s = 0
    :             ^
    `----
  x `rollout.max_unscored` is 1.5; expected a number from 0 to 1
    ,-[run.toml:16:16]
 16 | max_unscored = 1.5
    :                ^^^
    `----
  x `eval.temperature` is -0.5; expected a finite number from 0
    ,-[run.toml:18:15]
 18 | temperature = -0.5
    :               ^^^^
    `----
  x `runtime.threads` is 1025; expected a whole number from 0 to 1024
    ,-[run.toml:20:11]
 20 | threads = 1025
    :           ^^^^
    `----
"#,
    );
}

#[test]
fn a_number_that_is_too_large_and_a_stop_that_is_empty_are_reported() {
    let seed = text("").with("seed=99999999999999999999");
    let found = problems(&seed, &search());
    assert!(found.contains("`seed` is 99999999999999999999; the largest is 9223372036854775807"));
    let found = problems(&text("").with("seed='7'"), &search());
    assert!(found.contains("write it without quotes"), "{found}");
    let found = problems(&text("[sampling]\nstop = ['</a>', '']"), &search());
    assert!(found.contains("`sampling.stop` holds an empty text"), "{found}");
}

#[test]
fn a_number_with_a_unit_is_answered_with_the_number_in_the_unit_of_the_key() {
    for (set, help) in [
        ("runtime.kv_mib='2GB'", "a number of MiB without a unit: write `kv_mib = 2048`"),
        (
            "rollout.timeout_s='5 min'",
            "a number of seconds without a unit: write `timeout_s = 300`",
        ),
    ] {
        let found = problems(&text("").with(set), &search());
        assert!(found.contains(help), "{found}");
    }
}

#[test]
fn pools_of_a_curriculum_cover_all_solve_rates_and_have_a_weight() {
    let pools = |pools: &str, more: &str| format!("[task]\n{more}curriculum.pools = {pools}");
    let plan =
        plan_of(&text(&pools("[{ up_to = 0.5, weight = 1 }, { up_to = 1, weight = 0 }]", "")));
    assert_eq!(plan.config.task.curriculum.memory, 0.9);
    let told = "with `up_to` 1 have weight 0: once there, a task is never played again";
    assert!(plan.warnings.iter().any(|warning| warning.contains(told)), "{:?}", plan.warnings);
    let whole = "[{ up_to = 1.0, weight = 1.0 }]";
    for (set, told) in [
        (pools("[{ up_to = 0.5, weight = 1.0 }]", ""), "`task.curriculum.pools` has `up_to` [0.5]"),
        (
            pools("[{ up_to = 1.0, weight = 1.0 }, { up_to = 0.5, weight = 1.0 }]", ""),
            "write rising numbers, the last one 1.0",
        ),
        (pools("[{ up_to = 1.0, weight = -1.0 }]", ""), "a weight is 0 or more"),
        (pools("[{ up_to = 1.0, weight = 0.0 }]", ""), "has weight 0"),
        (pools(whole, "harder_every = 3\n"), "and `task.harder_every` is 3"),
    ] {
        let found = problems(&text(&set), &search());
        assert!(found.contains(told), "{found}");
    }
}

#[test]
fn levels_that_no_task_has_and_facts_outside_of_search_are_warned_of() {
    let plan = plan_of(&text("[task]\nmax_level = 3\nharder_every = 2"));
    for key in ["max_level", "harder_every"] {
        let told = format!("`task.{key}` has no effect: no task has a `level`");
        assert!(plan.warnings.contains(&told), "{:?}", plan.warnings);
    }
    let chosen = Chosen { name: "math".to_owned(), options: Value::Null };
    let math = super::super::choice::ChosenEnvironment { chosen, component: None };
    let registry = registry(&[
        Entry::agent::<Searcher>(HERE),
        Entry::environment::<crate::env::math::MathEnvironment>(HERE),
    ]);
    let doubts =
        super::super::team::task_doubts(&plan.config, &[math], &TaskList::default(), &registry);
    assert!(doubts[0].contains("which environment `math` is not made for"), "{doubts:?}");
}
