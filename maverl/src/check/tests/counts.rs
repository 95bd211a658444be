//! Numbers that are too large for the machine or for their purpose.

use std::num::NonZeroUsize;

use super::*;
use crate::config::Shard;
use crate::plan::{json, table};

#[test]
fn counts_that_no_machine_has_room_for_are_reported() {
    check(
        &search(),
        r#"
[task]
group_size = 1000000000
tasks_per_step = 9223372036854775807
[sampling]
max_tokens = 99999999
[runtime]
kv_mib = 4611686018427387904
"#,
        r#"
  x `task.group_size` is 1000000000; expected a whole number from 1 to 65536
   ,-[run.toml:2:14]
 2 | group_size = 1000000000
   :              ^^^^^^^^^^
   `----
  x `task.tasks_per_step` is 9223372036854775807; expected a whole number from 1 to 1048576
   ,-[run.toml:3:18]
 3 | tasks_per_step = 9223372036854775807
   :                  ^^^^^^^^^^^^^^^^^^^
   `----
  x `sampling.max_tokens` is 99999999; expected a whole number from 1 to 16777216
   ,-[run.toml:5:14]
 5 | max_tokens = 99999999
   :              ^^^^^^^^
   `----
  x `runtime.kv_mib` is 4611686018427387904; expected a whole number from 1 to 1073741824
   ,-[run.toml:7:10]
 7 | kv_mib = 4611686018427387904
   :          ^^^^^^^^^^^^^^^^^^^
   `----
"#,
    );
    let found = problems(&text("[task]\ngroup_size = 65536\ntasks_per_step = 17"), &search());
    assert!(
        found.contains("a step would play 17 x 65536 = 1114112 episodes; at most 1048576"),
        "{found}"
    );
    assert!(found.contains("help: lower `task.tasks_per_step` or `task.group_size`"), "{found}");
    let found = problems(&text("[eval]\nsamples = 65536"), &search());
    assert!(
        found.contains("an evaluation would play ") && found.contains("`eval.samples`"),
        "{found}"
    );
}

#[test]
fn more_seats_than_there_may_be_are_refused_at_the_option_that_says_so() {
    for (debaters, fine) in [(1024_u32, true), (1025, false), (1_000_000_000, false)] {
        let set = format!("orchestra.debaters={debaters}");
        let sources = text(DEBATE);
        let plan = super::super::check(&sources.with(set), &everything(), Purpose::Train);
        assert_eq!(plan.is_ok(), fine, "{debaters}");
        if let Err(problems) = plan {
            let found = render(&problems, GraphicalTheme::none());
            let wanted = format!(
                "`orchestra.debaters` is {debaters}: orchestra `debate/vote` has more than 1024 seats of `debate/debater`"
            );
            assert!(found.contains(&wanted) && found.contains("write at most 1024"), "{found}");
        }
    }
}

/// Returns every whole number in a table, by its path.
fn whole_numbers(value: &toml::Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value {
        toml::Value::Integer(_) => found.push(path.clone()),
        toml::Value::Table(table) => {
            for (key, value) in table {
                path.push(key.clone());
                whole_numbers(value, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

#[test]
fn no_whole_number_of_a_configuration_ends_the_process() {
    let toml = format!(
        "{DEBATE}\n[models.small.lora]\nrank = 4\n[endpoints.expert]\nscript = \"none\"\nretries = 1\n\
         [algorithm.advantage]\nkind = \"mixer\"\nwidth = 4\nwarmup_steps = 1\n[task]\nlimit = 8\nmax_level = 4\n[eval]\ntasks = 8\n"
    );
    let config: crate::config::Config = toml::from_str(&toml).unwrap();
    let written = toml::Value::try_from(&config).unwrap();
    let mut paths = Vec::new();
    whole_numbers(&written, &mut Vec::new(), &mut paths);
    assert!(paths.len() >= 20, "{}: {paths:?}", paths.len());
    for path in &paths {
        for number in [i64::from(u32::MAX), i64::MAX] {
            let key = crate::config::source::key(path);
            let sources = text(&toml).with(format!("{key}={number}"));
            if let Ok(plan) = super::super::check(&sources, &everything(), Purpose::Train) {
                // An accepted plan can be shown.
                assert!(!table(&plan, 80).is_empty() && !json(&plan).is_empty(), "{key}");
            }
        }
    }
}

#[test]
fn a_plan_beside_a_machine_that_is_too_small_is_refused_or_warned_of() {
    use crate::config::source::{Problems, read_layers};

    let plan = plan_of(&text("[runtime]\nkv_mib = 4096"));
    let sure = plan.summary().workers[0].bytes() + plan.summary().workers[0].activation_bytes;
    let sources = text("[runtime]\nkv_mib = 4096");
    let layers = read_layers(&sources).unwrap();
    let on = |plan: &Plan, machine: u64| {
        let mut problems = Problems::new(&layers);
        let warning = super::super::machine::check_memory(
            (plan, &[]),
            Purpose::Train,
            Some(machine),
            &mut problems,
        );
        let refused = problems.finish(Some(())).err().unwrap_or_default();
        (warning.unwrap_or_default(), render(&refused, GraphicalTheme::none()))
    };
    let (warning, refused) = on(&plan, sure / 2);
    assert!(warning.is_empty() && refused.contains("the plan takes at least "), "{refused}");
    assert!(refused.contains("and this machine has "), "{refused}");
    // The default size of keys and values, which is seldom filled, is no reason to refuse.
    let (warning, refused) = on(&plan, 2 * sure);
    assert!(refused.is_empty(), "{refused}");
    assert!(warning.contains("keys and values may take up to 4.00 GiB"), "{warning}");
    assert!(warning.contains("`runtime.kv_mib = ") && warning.ends_with(" fits"), "{warning}");
    let chosen = plan_of(&text("[runtime]\nkv_mib = 8192"));
    let (warning, refused) = on(&chosen, 2 * sure);
    assert!(warning.is_empty() && refused.contains("may take up to 8.00 GiB"), "{refused}");
    // Ranks that divide weights may need less than one of them, but each one has the model once.
    let divided = plan.config.with(|config| config.dist.shard = Shard::Full);
    let divided = Plan { config: divided, ..plan.clone() };
    let [worker] = &divided.summary().workers[..] else { panic!("several worker groups") };
    let whole = worker.weight_bytes + worker.reference_bytes + worker.packed_bytes;
    let (warning, refused) = on(&divided, whole);
    assert!(refused.is_empty() && warning.contains("takes at least "), "{warning}{refused}");
    let (warning, refused) = on(&divided, whole - 1);
    assert!(warning.is_empty() && refused.contains("takes at least "), "{warning}{refused}");
    let fits = (5 << 30) + 2 * sure;
    assert_eq!(on(&plan, fits), (String::new(), String::new()));
    let narrow = Plan {
        config: plan.config.with(|config| config.runtime.kv_mib = NonZeroUsize::MIN),
        ..plan
    };
    let (warning, refused) = on(&narrow, sure * 11 / 10);
    assert!(refused.is_empty(), "{refused}");
    assert!(warning.starts_with("the plan takes at least "), "{warning}");
}

#[test]
fn settings_that_are_seldom_meant_are_warned_of() {
    let toml = "[task]\ntasks_per_step = 99999\n[models.tiny]\npath = \"builtin:tiny\"\n\
                optim = { lr = 1e6 }\n[sampling]\ntemperature = 50";
    let warnings = plan_of(&text(toml)).warnings;
    for wanted in [
        "`task.tasks_per_step` is 99999, and there are ",
        "`lr` of policy `tiny` is 1000000: AdamW moves every weight by about so much",
        "`sampling.temperature` is 50: replies are little more than chance",
    ] {
        assert!(
            warnings.iter().any(|warning| warning.starts_with(wanted)),
            "{wanted}: {warnings:?}"
        );
    }
    let decay = "[models.tiny]\npath = \"builtin:tiny\"\noptim = { lr = 0.01, weight_decay = 100 }";
    let warnings = plan_of(&text(decay)).warnings;
    assert!(warnings.iter().any(|w| w.contains("times `weight_decay` is 1")), "{warnings:?}");
}

#[test]
fn replies_that_leave_no_room_for_a_prompt_are_refused_and_questions_are_counted() {
    let context = 512;
    let found = problems(&text("[sampling]\nmax_tokens = 511"), &search());
    assert!(found.contains("leaves 1 of the 512 tokens"), "{found}");
    assert!(found.contains("even an empty prompt takes"), "{found}");
    let found = problems(&text(&format!("[sampling]\nmax_tokens = {}", context - 6)), &search());
    assert!(found.contains("leaves 6 of the 512 tokens"), "{found}");
    let plan = plan_of(&text("[eval]\nevery = 1"));
    let survey = survey(&plan);
    let names: Vec<&str> = survey.splits.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["train", "test", "validation"]);
    let questions = &survey.questions[0];
    assert_eq!((questions.context, questions.too_long), (context, 0));
    assert!(questions.median > 5 && questions.longest >= questions.median, "{questions:?}");
    assert!(survey.warnings().is_empty());
    let longest = questions.longest;
    let tight = context - longest + 1;
    let plan = plan_of(&text(&format!("[sampling]\nmax_tokens = {tight}")));
    let survey = super::super::survey(&plan);
    let warnings = survey.warnings();
    assert!(survey.questions[0].too_long > 0, "{survey:?}");
    assert!(
        warnings[0].contains(&format!("leave no room for `max_tokens` = {tight}")),
        "{warnings:?}"
    );
    assert!(survey.text().starts_with("tasks: train "), "{}", survey.text());
}

#[test]
fn what_an_environment_refuses_is_told_with_its_file_and_row() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "{\"question\": \"1 + 1?\", \"answer\": \"2\"}\n\n{\"question\": \"2 + 2?\"}\n";
    std::fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    let registry = registry(&[
        Entry::agent::<Debater>(HERE),
        Entry::orchestra::<Debate>(HERE),
        Entry::environment::<crate::env::math::MathEnvironment>(HERE),
    ]);
    let math = "[environment]\nname = \"math\"\n[task]\ndata = \"rows.jsonl\"\nsplit = \"all\"\n[eval]\nbefore_and_after = false";
    let file = File::Text { name: "run.toml".into(), text: math.into(), base: dir.path().into() };
    let sources = Sources { file: Some(file), ..Sources::default() };
    let found = problems(&sources, &registry);
    assert!(
        found.contains("rows.jsonl:3: the task `3` of `rows` has no answer to judge by"),
        "{found}"
    );
    let rows = "{\"question\": \"1 + 1?\", \"answer\": \"2\"}\n\n{\"question\": \"Whose?\", \"answer\": \"\\\\frac{1\"}\n";
    std::fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    let plan = super::super::check(&sources, &registry, Purpose::Train).unwrap();
    let warned = plan.warnings.iter().any(|warning| {
        warning
            .starts_with("rows.jsonl:3: the task `3` of `rows` has a reference that cannot be read")
    });
    assert!(warned, "{:?}", plan.warnings);
}
