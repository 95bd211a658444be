//! Layers of the configuration, and problems of the files themselves.

use serde_json::json;

use super::*;
use crate::config::AdvantagePlan;
use crate::config::Sampling;

#[test]
fn an_empty_file_is_a_plan_where_one_of_each_is_linked() {
    let plan = plan_of(&text(""));
    assert_eq!(plan.orchestra.name, "search/route");
    assert_eq!(plan.orchestra.options, json!({ "max_turns": 4, "greeting": "hello" }));
    assert_eq!(plan.environment.name, "library");
    assert_eq!(plan.policies.len(), 1);
    assert_eq!(plan.policies[0].name, "tiny");
    assert!(plan.policies[0].trained && !plan.policies[0].reference);
    assert_eq!(plan.workers[0].source, ModelSource::Builtin("tiny".into()));
    let seats: Vec<String> = plan.seats.iter().map(|seat| seat.seat.to_string()).collect();
    assert_eq!(seats, ["search/answerer", "search/searcher", "search/verifier"]);
    assert!(plan.seats.iter().all(|seat| seat.trained && seat.policy == 0));
    assert_eq!(plan.seats[0].sampling, Sampling::default());
    assert_eq!(plan.seats[0].options, json!({ "style": null, "examples": 2 }));
    assert_eq!(plan.algorithm.advantage, AdvantagePlan::default());
    assert!(plan.warnings.is_empty());
}

#[test]
fn layers_are_defaults_then_file_then_environment_then_set() {
    let mut sources = text("seed = 1\nsteps = 1\n[runtime]\nthreads = 1\nmax_requests = 7\n");
    let env = [
        ("MAVERL_STEPS", "2"),
        ("MAVERL_RUNTIME__THREADS", "2"),
        ("MAVERL_MODELS__SMALL__PATH", "builtin:tiny"),
        ("MAVERL_MODELS__SMALL__OPTIM__LR", "1e-5"),
        ("MAVERL_TEST_DATA", "/nowhere"),
        ("HOME", "/root"),
    ];
    sources.env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let sources = sources
        .with("runtime.threads=3")
        .with("agents.search/verifier.sampling.temperature=0.5")
        .with("agents.\"search/answerer\".sampling = { temperature = 0.25, stop = ['x'] }")
        .with("task.split=validation");
    let plan = plan_of(&sources);
    assert_eq!((plan.config.seed, plan.config.steps), (1, 2));
    assert_eq!((plan.config.runtime.threads, plan.config.runtime.max_requests.get()), (3, 7));
    assert_eq!(plan.policies[0].optim.lr, 1e-5);
    assert_eq!(plan.config.task.split, "validation");
    let temperatures: Vec<f32> = plan.seats.iter().map(|seat| seat.sampling.temperature).collect();
    assert_eq!(temperatures, [0.25, 1.0, 0.5]);
    assert_eq!(plan.seats[0].sampling.stop, ["x"]);
}

#[test]
fn problems_point_at_the_layer_that_has_them() {
    let mut sources = text("steps = 5\n[models.small]\npath = \"builtin:tiny\"\n");
    let env = [("MAVERL_STPES", "3"), ("MAVERL_RUNTIME__THREADS", "two")];
    sources.env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let sources = sources
        .with("models.small.optim.lr=-1")
        .with("agents.search/verifer.model=small")
        .with("steps=many");
    let expected = r#"
  x `runtime.threads` is "two"; expected a whole number from 0
   ,-[environment:1:25]
 1 | MAVERL_RUNTIME__THREADS=two
   :                         ^^^
   `----
  x unknown key `stpes`
   ,-[environment:1:1]
 1 | MAVERL_STPES=3
   : ^^^^^^^^^^^^
   `----
  help: did you mean `steps`?
  x `models.small.optim.lr` is -1; expected a finite number above 0
   ,-[--set:1:23]
 1 | models.small.optim.lr=-1
   :                       ^^
   `----
  x no agent is called `search/verifer`
   ,-[--set:1:1]
 1 | agents.search/verifer.model=small
   : ^^^^^^^^^^^^^^^^^^^^^^^^^^^
   `----
  help: did you mean `search/verifier`?
  x `steps` is "many"; expected a whole number from 0
   ,-[--set:1:7]
 1 | steps=many
   :       ^^^^
   `----
"#;
    same(&problems(&sources, &search()), expected);
}

#[test]
fn sources_that_cannot_be_read_are_all_reported() {
    let sources = Sources {
        file: Some(File::Path("/nowhere/run.toml".into())),
        env: vec![("MAVERL_SAMPLING__STOP".into(), "[1".into())],
        set: vec!["steps".into()],
        ..Sources::default()
    };
    let expected = r#"
  x there is no file /nowhere/run.toml
  help: / has no `nowhere`
  x the value is not TOML: invalid array; expected `]`
   ,-[environment:1:23]
 1 | MAVERL_SAMPLING__STOP=[1
   :                       ^^
   `----
  x `--set` is given something that is not `key=value`
   ,-[--set:1:1]
 1 | steps
   : ^^^^^
   `----
  help: write `--set steps=VALUE`, without spaces around `=`
"#;
    same(&problems(&sources, &search()), expected);
}

#[test]
fn a_key_of_very_many_parts_is_refused() {
    for parts in [33, 100_000] {
        let set = vec![format!("{}=1", vec!["a"; parts].join("."))];
        let env = vec![(format!("MAVERL_{}", vec!["A"; parts].join("__")), "1".to_owned())];
        let sources = Sources { env, set, ..Sources::default() };
        let told = problems(&sources, &search());
        let refused = format!("a key of {parts} parts; no key has more than 32");
        assert_eq!(told.matches(refused.as_str()).count(), 2, "{told:.2000}");
    }
}

#[test]
fn a_line_that_is_not_toml_is_shown() {
    check(
        &search(),
        r#"
seed = 1
[task
group_size = 1
"#,
        r#"
  x run.toml is not TOML: the header `[task` is not closed
   ,-[run.toml:2:1]
 2 | [task
   : ^^^^^
   `----
  help: write `[task]`
"#,
    );
}

#[test]
fn a_key_given_twice_is_shown() {
    check(
        &search(),
        r#"
seed = 1
seed = 2
"#,
        r#"
  x run.toml is not TOML: `seed` is set twice, first in line 1
   ,-[run.toml:2:1]
 2 | seed = 2
   : ^^^^^^^^
   `----
  help: remove one of the two
"#,
    );
}

#[test]
fn a_name_with_a_slash_is_quoted() {
    check(
        &search(),
        r#"
[agents.search/verifier]
frozen = true
"#,
        r#"
  x run.toml is not TOML: the name in `[agents.search/verifier]` is not quoted
   ,-[run.toml:1:1]
 1 | [agents.search/verifier]
   : ^^^^^^^^^^^^^^^^^^^^^^^^
   `----
  help: a name with `/` is quoted: `[agents."search/verifier"]`
"#,
    );
}

#[test]
fn what_is_given_beside_a_file_is_written_into_it_and_means_the_same() {
    let toml = r#"
# A comment that stays.
steps = 5 # a few

[models.small]
path = "builtin:tiny"
optim = { lr = 1e-5, betas = [0.9, 0.95] }

[agents."search/verifier"]
sampling.temperature = 0.5
"#;
    let mut sources = text(toml);
    sources.env = vec![("MAVERL_RUNTIME__THREADS".to_owned(), "2".to_owned())];
    let sources = sources
        .with("steps=2")
        .with("models.small.optim.lr=3e-4")
        .with("models.small.optim={ eps = 1e-7 }")
        .with("agents.search/verifier.sampling.max_tokens=9")
        .with("agents.\"search/answerer\".sampling = { temperature = 0.25, stop = ['x'] }")
        .with("eval.split=held out")
        .with("sampling.stop=[\n'a'\n]");
    let written = sources.merged_file().unwrap();
    assert_eq!(plan_of(&text(&written)), plan_of(&sources), "{written}");
    for part in [
        "# Given beside the file, and written into it:\n#   environment MAVERL_RUNTIME__THREADS=2\n",
        "#   --set steps=2\n",
        "# A comment that stays.\nsteps = 2 # a few\n",
        "split = \"held out\"",
    ] {
        assert!(written.contains(part), "{part:?} is not in\n{written}");
    }
    assert_eq!(text(toml).merged_file().unwrap(), toml, "nothing beside it is the file itself");
    assert_eq!(text("steps = ").merged_file(), None);
    let bare = Sources::default().with("seed=3").with("orchestra.max_turns=2");
    let mut plan = plan_of(&bare);
    plan.base = ".".into(); // without a file paths start from the working directory
    assert_eq!(plan_of(&text(&bare.merged_file().unwrap())), plan);
}

#[test]
fn a_kind_that_stands_alone_stays_that_of_the_keys_that_are_set_after_it() {
    for (file, set, kind) in [
        (
            "",
            &["algorithm.loss.surrogate=cispo", "algorithm.loss.surrogate.clip_high=0.28"][..],
            "cispo",
        ),
        ("[algorithm]\nshaping = \"margin\"\n", &["algorithm.shaping.weight=0.5"], "margin"),
        ("[algorithm]\nshaping = \"margin\"\n", &["algorithm.shaping={ weight = 0.5 }"], "margin"),
    ] {
        let sources = set.iter().fold(text(file), |sources, set| sources.with(*set));
        let written = sources.merged_file().unwrap();
        assert!(written.contains(&format!("kind = \"{kind}\"")), "{written}");
        assert_eq!(plan_of(&text(&written)), plan_of(&sources), "{written}");
    }
}

#[test]
fn relative_paths_start_from_the_file_or_from_base() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    std::fs::create_dir_all(home.join("runs/a")).unwrap();
    std::fs::create_dir(home.join("configs")).unwrap();
    let file = home.join("runs/a/resolved.toml");
    std::fs::write(&file, "base = \"../../configs\"\n[task]\ndata = \"tasks.jsonl\"\n").unwrap();
    let sources = Sources { file: Some(File::Path(file)), ..Sources::default() };
    let found = problems(&sources, &search());
    let missing = home.join("configs/tasks.jsonl").display().to_string();
    assert!(found.contains(&missing), "{missing} is not in\n{found}");
    let rows = "{\"question\": \"q\", \"answer\": \"a\", \"split\": \"train\"}\n".to_owned()
        + "{\"question\": \"p\", \"answer\": \"a\", \"split\": \"test\"}\n";
    std::fs::write(home.join("configs/tasks.jsonl"), rows).unwrap();
    assert_eq!(plan_of(&sources).base, home.join("configs"));
}
