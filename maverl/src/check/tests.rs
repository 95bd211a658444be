#![allow(clippy::unwrap_used)]

mod adapters;
mod critics;
mod files;
mod idle;
mod outsiders;
mod worlds;

use miette::GraphicalTheme;
use serde_json::{Value, json};

use super::*;
use crate::agent::{Agent, AgentName, AskError, Prompt};
use crate::config::{GroupBy, Ratio};
use crate::env::{EnvError, Environment, EnvironmentName, Session};
use crate::model::{Model, ModelFiles};
use crate::orchestra::{Orchestra, OrchestraName, Team};
use crate::plan::{ModelSource, json as plan_json, table};
use crate::registry::{Build, Entry, Place};
use crate::reward::Rewards;
use crate::task::{Action, Observation, Score, Task};
use crate::trajectory::Seat;

struct Question;

impl crate::agent::Input for Question {
    const FIELDS: &'static [&'static str] = &["question"];
    const OBSERVATIONS: &'static [&'static str] = &[];

    fn show(&self, _: usize) -> String {
        String::new()
    }
}

/// `defaults` and `build` by serde, as the attributes write them.
macro_rules! options {
    ($t:ident { $($field:ident: $ty:ty = $default:expr),* }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct $t { $($field: $ty),* }

        impl Default for $t {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl Build for $t {
            fn defaults() -> Value {
                serde_json::to_value(Self::default()).unwrap()
            }

            fn build(options: &Value) -> Result<Self, String> {
                serde_json::from_value(options.clone()).map_err(|error| error.to_string())
            }
        }
    };
}

macro_rules! agent {
    ($t:ident $name:literal) => {
        options!($t { style: Option<String> = None, examples: u32 = 2 });

        impl Agent for $t {
            type Input = Question;
            type Output = String;

            fn prompt(&self, _: &Question) -> Prompt {
                Prompt::default()
            }
        }

        impl AgentName for $t {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "An agent.";
        }
    };
}

agent!(Verifier "search/verifier");
agent!(Searcher "search/searcher");
agent!(Answerer "search/answerer");
agent!(Debater "debate/debater");

macro_rules! orchestra {
    ($t:ident $name:literal needs $needs:expr, |$self:ident| $members:expr) => {
        impl Orchestra for $t {
            async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
                Ok(None)
            }
        }

        impl OrchestraName for $t {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "An orchestra.";
            const NEEDS: &'static [&'static str] = $needs;

            fn members(&$self) -> Vec<Seat> {
                $members
            }
        }
    };
}

options!(Route { max_turns: u32 = 4, greeting: String = "hello".to_owned() });
orchestra!(Route "search/route" needs &["search"], |self| {
    ["verifier", "searcher", "answerer"].map(|role| Seat::only(format!("search/{role}"))).to_vec()
});
options!(Debate { debaters: u32 = 3 });
orchestra!(Debate "debate/vote" needs &[], |self| {
    (0..self.debaters).map(|index| Seat::at("debate/debater", index)).collect()
});

macro_rules! environment {
    ($t:ident $name:literal offers $offers:expr) => {
        options!($t { top: u32 = 3 });

        impl Environment for $t {
            async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
                Ok(Observation::new(""))
            }

            fn score(&self, _: &Session, _: Option<&str>) -> Score {
                Score::binary(false)
            }
        }

        impl EnvironmentName for $t {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "A world.";
            const OFFERS: &'static [&'static str] = $offers;
        }
    };
}

environment!(Library "library" offers &["search"]);
environment!(Quiz "quiz" offers &[]);

const HERE: Place = Place { file: file!(), line: 1, item: "here" };

/// Search and debate in a library or a quiz.
fn everything() -> Registry {
    registry(&[
        Entry::agent::<Verifier>(HERE),
        Entry::agent::<Searcher>(HERE),
        Entry::agent::<Answerer>(HERE),
        Entry::agent::<Debater>(HERE),
        Entry::orchestra::<Route>(HERE),
        Entry::orchestra::<Debate>(HERE),
        Entry::environment::<Library>(HERE),
        Entry::environment::<Quiz>(HERE),
        Entry::reward("brevity", "Short replies.", HERE, |_| Rewards::none()),
    ])
}

/// Search in a library: nothing needs a name.
fn search() -> Registry {
    registry(&[
        Entry::agent::<Verifier>(HERE),
        Entry::agent::<Searcher>(HERE),
        Entry::agent::<Answerer>(HERE),
        Entry::orchestra::<Route>(HERE),
        Entry::environment::<Library>(HERE),
    ])
}

fn registry(entries: &[Entry]) -> Registry {
    Registry::from_entries(entries).unwrap()
}

/// What is wrong with a file is exactly this.
#[track_caller]
fn check(registry: &Registry, toml: &str, expected: &str) {
    same(&problems(&text(toml.trim_start()), registry), expected);
}

fn text(toml: &str) -> Sources {
    let file = File::Text { name: "run.toml".into(), text: toml.into(), base: ".".into() };
    Sources { file: Some(file), ..Sources::default() }
}

fn plan_of(sources: &Sources) -> Plan {
    super::check(sources, &search(), Purpose::Train)
        .unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())))
}

fn problems(sources: &Sources, registry: &Registry) -> String {
    let problems = super::check(sources, registry, Purpose::Train).unwrap_err();
    render(&problems, GraphicalTheme::none())
}

/// Compares without the space at line ends and around the whole.
#[track_caller]
fn same(found: &str, expected: &str) {
    let plain = |text: &str| {
        let lines: Vec<&str> = text.trim_matches('\n').lines().map(str::trim_end).collect();
        lines.join("\n")
    };
    assert!(plain(found) == plain(expected), "found:\n{found}\nexpected:\n{expected}");
}

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
    assert_eq!(plan.algorithm.group_by, GroupBy::TaskSeat);
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
    assert_eq!((plan.seed, plan.steps), (1, 2));
    assert_eq!((plan.runtime.threads, plan.runtime.max_requests.get()), (3, 7));
    assert_eq!(plan.policies[0].optim.lr, 1e-5);
    assert_eq!(plan.task.split, "validation");
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
    };
    let expected = r#"
  x /nowhere/run.toml could not be read: No such file or directory (os error 2)
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
  help: write `--set task.group_size=4`
"#;
    same(&problems(&sources, &search()), expected);
}

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
        worker = "answers"
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

const DEBATE: &str = r#"
    [orchestra]
    name = "debate/vote"
    debaters = 2
    [environment]
    name = "quiz"
    [models.small]
    path = "builtin:tiny"
    [models.large]
    path = "builtin:tiny"
    [agents."debate/debater"]
    model = "small"
    sampling = { temperature = 0.7, max_tokens = 64 }
    options = { style = "calm" }
    [agents."debate/debater".seats.1]
    model = "large"
    frozen = true
    sampling.temperature = 0.9
    options.examples = 5
"#;

#[test]
fn a_seat_has_its_table_on_top_of_its_agents() {
    let plan = super::check(&text(DEBATE), &everything(), Purpose::Train).unwrap();
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
fn what_cannot_be_trained_with_can_be_evaluated() {
    let toml = "[sampling]\ntemperature = 0\n[models.tiny]\npath = \"builtin:tiny\"\nfrozen = true";
    let plan = super::check(&text(toml), &search(), Purpose::Eval).unwrap();
    assert!(!plan.policies[0].trained);
}

#[test]
fn a_preset_sets_its_parts_and_each_can_be_overridden() {
    let group_by = |toml: &str| plan_of(&text(toml)).algorithm.group_by;
    assert_eq!(group_by("[algorithm]\nname = \"grpo\""), GroupBy::Task);
    assert_eq!(group_by("[algorithm]\nname = \"drmas\""), GroupBy::TaskSeat);
    let mixed = "[algorithm]\nname = \"grpo\"\ngroup_by = \"task_seat\"";
    assert_eq!(group_by(mixed), GroupBy::TaskSeat);
}

#[test]
fn agents_inherit_the_loss_of_the_preset() {
    let plan = plan_of(&text("[algorithm]\nname = \"gspo\"\nloss = { clip_low = 0.1 }"));
    let loss = &plan.seats[0].loss;
    assert_eq!((loss.ratio, loss.clip_low, loss.clip_high), (Ratio::Sequence, 0.1, 4e-4));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan);
}

#[test]
fn parts_of_an_algorithm_that_do_not_go_together_are_refused_with_the_reason() {
    let refused = |toml: &str, part: &str| {
        let problems = super::check(&text(toml), &search(), Purpose::Train).unwrap_err();
        let found = render(&problems, GraphicalTheme::none());
        assert!(found.contains(part), "{found}");
    };
    refused(
        "[algorithm]\nbaseline = \"none\"",
        "`algorithm.normalize_std` is true, and `algorithm.baseline` compares with no group",
    );
    refused(
        "[algorithm]\nkl_target = 0.1",
        "`algorithm.kl_target` is set, and `algorithm.loss.kl_coef` is 0",
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
        &(shown + "[algorithm]\nname = \"sft\"\nlearn = \"observations\""),
        "in which no user answers a reply",
    );
    refused(
        "[algorithm]\nname = \"dapo\"\n[task]\ngroup_size = 1",
        "`algorithm.resample` is 10, and `task.group_size` is 1",
    );
    refused("[algorithm]\nname = \"rloo\"\n[task]\ngroup_size = 1", "compares with other episodes");
    refused(
        "[algorithm]\nname = \"cispo\"\nloss = { ratio = \"sequence\" }",
        "is trained with the surrogate \"cispo\" and a ratio of the reply",
    );
}

#[test]
fn a_group_of_one_is_legal_and_warned_about() {
    let plan = plan_of(&text("[task]\ngroup_size = 1"));
    assert_eq!(plan.warnings.len(), 1);
    assert!(plan.warnings[0].starts_with("`task.group_size` is 1"), "{:?}", plan.warnings);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("shown.jsonl");
    std::fs::write(&data, "{\"prompt\": \"a\", \"completion\": \"b\"}").unwrap();
    let data = format!("[task]\ngroup_size = 1\ndata = {data:?}\n[algorithm]\nname = \"sft\"");
    assert!(plan_of(&text(&data)).warnings.is_empty());
}

#[test]
fn the_resolved_configuration_loads_to_the_same_plan() {
    let frozen = r#"
        [models.a]
        path = "builtin:tiny"
        frozen = true
        [models.b]
        path = "builtin:tiny"
        optim = { lr = 3e-7, betas = [0.9, 0.95] }
        [agents."search/verifier"]
        model = "a"
        [agents."search/searcher"]
        model = "b"
        sampling = { temperature = 0.7, stop = ["</search>"] }
        [agents."search/answerer"]
        model = "b"
        [orchestra]
        name = "search/route"
        [environment]
        name = "library"
        [rewards.brevity]
        weight = 0.1
        [eval]
        temperature = 0.1
    "#;
    for toml in [DEBATE, frozen] {
        let plan = super::check(&text(toml), &everything(), Purpose::Train).unwrap();
        let resolved = toml::to_string(&plan.config).unwrap();
        let again = super::check(&text(&resolved), &everything(), Purpose::Train)
            .unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())));
        assert_eq!(again, plan, "{resolved}");
    }
}

#[test]
fn every_default_is_written_out_in_short_decimals() {
    let resolved = toml::to_string(&plan_of(&text("")).config).unwrap();
    for line in [
        "name = \"search/route\"",
        "max_turns = 4",
        "temperature = 1.0",
        "clip_low = 0.2",
        "invalid_reply_penalty = 0.1",
        "group_by = \"task_seat\"",
        "lr = 0.000001",
        "worker = \"tiny\"",
        "frozen = false",
        "examples = 2",
    ] {
        assert!(resolved.lines().any(|found| found == line), "no {line:?} in\n{resolved}");
    }
}

#[test]
fn the_table_says_what_a_step_means() {
    let mut plan = super::check(&text(DEBATE), &everything(), Purpose::Train).unwrap();
    plan.workers.iter_mut().for_each(|worker| worker.parameters = 1_500_000);
    let expected = r#"
debate/vote on quiz, 100 steps of drmas

+------------------------------------------------------------------------------------------------------------------------------------------------------------+
| worker   model          agents             parameters   weights    reference   gradients   moments     together    activations     packed     keys, values |
+============================================================================================================================================================+
| large    builtin:tiny   debate/debater#1   1.50M        5.72 MiB   -           -           -           5.72 MiB    -               3.39 MiB   <= 4.00 GiB  |
| small    builtin:tiny   debate/debater#0   1.50M        5.72 MiB   -           5.72 MiB    11.44 MiB   22.89 MiB   <= 122.00 MiB   3.39 MiB   <= 4.00 GiB  |
+------------------------------------------------------------------------------------------------------------------------------------------------------------+

+----------------------------------------------------------------+
| seat               policy   trained   temperature   max tokens |
+================================================================+
| debate/debater#0   small    yes       0.7           64         |
| debate/debater#1   large    no        0.9           64         |
+----------------------------------------------------------------+

a step: 16 tasks x 8 episodes = 128 episodes; each time every seat speaks once, 256 samples and at most 16384 tokens
"#;
    same(&table(&plan), expected);
    let one = table(&plan_of(&text("steps = 1")));
    assert!(one.starts_with("search/route on library, 1 step of drmas"), "{one}");
}

#[test]
fn the_plan_for_machines_has_numbers_and_the_whole_plan() {
    let plan = plan_of(&text("[sampling]\ntemperature = 0.8"));
    let text = plan_json(&plan);
    assert!(text.contains("\"temperature\": 0.8,"), "floats are short: {text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["summary"]["step"]["episodes"], 128);
    assert_eq!(value["summary"]["step"]["samples_per_call"], 384);
    assert_eq!(value["plan"]["seats"][0]["seat"], "search/answerer");
    assert_eq!(value["plan"]["config"]["task"]["group_size"], 8);
}

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
  help: `lr` is a key of a model's (or agent's) `optim`
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
  x `algorithm.name` is "drmass"; expected one of "drmas", "grpo", "drgrpo", "dapo", "rloo", "gigpo",
  | "reinforce++", "reinforce++_baseline", "gspo", "cispo", "sapo", "cpgd", "passk", "remax", "luspo",
  | "cory", "ppo", "ippo", "mappo", "happo", "marft", "vdn", "qmix", "maporl", "sft", "dpo"
    ,-[run.toml:15:8]
 15 | name = "drmass"
    :        ^^^^^^^^
    `----
  help: did you mean "drmas"?
"#,
    );
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
  x run.toml is not TOML: invalid table header; expected `.`, `]`
   ,-[run.toml:2:5]
 2 | [task
   :     ^
   `----
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
  x run.toml is not TOML: duplicate key `seed` in document root
   ,-[run.toml:2:1]
 2 | seed = 2
   : ^
   `----
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
fn an_environment_must_understand_the_orchestra() {
    check(
        &everything(),
        r#"
[orchestra]
name = "search/route"
[environment]
name = "quiz"
"#,
        r#"
  x orchestra `search/route` sends `search` actions, and environment `quiz` does not understand them
   ,-[run.toml:4:8]
 4 | name = "quiz"
   :        ^^^^^^
   `----
  help: environments that do: `library`
"#,
    );
}

#[test]
fn agents_that_do_not_sit_in_the_team_are_reported() {
    check(
        &everything(),
        r#"
[orchestra]
name = "search/route"
[environment]
name = "library"
[agents."debate/debater"]
[agents.verifier]
[agents."search/verifer"]
[agents."chess/king"]
[rewards.brevety]
"#,
        r#"
  x agent `debate/debater` is not a member of orchestra `search/route`
   ,-[run.toml:5:9]
 5 | [agents."debate/debater"]
   :         ^^^^^^^^^^^^^^^^
   `----
  help: the members of `search/route` are `search/answerer`, `search/searcher` and `search/verifier`
  x no agent is called `verifier`
   ,-[run.toml:6:9]
 6 | [agents.verifier]
   :         ^^^^^^^^
   `----
  help: did you mean `search/verifier`?
  x no agent is called `search/verifer`
   ,-[run.toml:7:9]
 7 | [agents."search/verifer"]
   :         ^^^^^^^^^^^^^^^^
   `----
  help: did you mean `search/verifier`?
  x no agent is called `chess/king`
   ,-[run.toml:8:9]
 8 | [agents."chess/king"]
   :         ^^^^^^^^^^^^
   `----
  help: the members of `search/route` are `search/answerer`, `search/searcher` and `search/verifier`
  x no reward function is called `brevety`
   ,-[run.toml:9:10]
 9 | [rewards.brevety]
   :          ^^^^^^^
   `----
  help: did you mean `brevity`?
"#,
    );
}

#[test]
fn seats_that_are_not_there_are_reported() {
    check(
        &everything(),
        r#"
[orchestra]
name = "debate/vote"
[environment]
name = "quiz"
[agents."debate/debater".seats.3]
frozen = true
[agents."debate/debater".seats.x]
frozen = true
[agents."debate/debater".seats.1.seats.2]
frozen = true
"#,
        r#"
  x agent `debate/debater` has no seat 3
   ,-[run.toml:5:32]
 5 | [agents."debate/debater".seats.3]
   :                                ^
   `----
  help: its seats are 0 to 2
  x `agents."debate/debater".seats.x`: seat `x` is not a number; seats are numbered from 0
   ,-[run.toml:7:32]
 7 | [agents."debate/debater".seats.x]
   :                                ^
   `----
  x seat 1 of agent `debate/debater` has no seats of its own
   ,-[run.toml:9:34]
 9 | [agents."debate/debater".seats.1.seats.2]
   :                                  ^^^^^
   `----
"#,
    );
}

#[test]
fn a_role_that_sits_once_has_no_seats() {
    check(
        &search(),
        r#"
[agents."search/verifier".seats.0]
frozen = true
"#,
        r#"
  x agent `search/verifier` has no seat 0
   ,-[run.toml:1:33]
 1 | [agents."search/verifier".seats.0]
   :                                 ^
   `----
  help: it sits once: write the keys in its own table
"#,
    );
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
worker = "shared"
[agents."search/answerer"]
model = "large"
worker = "shared"
[agents."search/searcher"]
model = "large"
"#,
        r#"
  x worker `shared` is model `large` for `search/answerer`, but model `small` for `search/verifier`
    ,-[run.toml:7:10]
  7 | worker = "shared"
    :          ^^^^|^^^
    :              `-- for `search/verifier`
  8 | [agents."search/answerer"]
  9 | model = "large"
 10 | worker = "shared"
    :          ^^^^|^^^
    :              `-- for `search/answerer`
    `----
  help: a worker group holds one model: give one of them another `worker` name
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
        `worker = "verifier"` in `[agents."search/verifier"]`, or, with `lora` in `[models.small]`, its own
        adapter with `adapter = "verifier"`
  x `optim.warmup_steps` is 3 for `search/verifier` and 0 for `search/answerer`, but both are policy `small`
   ,-[run.toml:5:37]
 5 | optim = { lr = 5e-6, warmup_steps = 3 }
   :                                     |
   :                                     `-- for `search/verifier`
   `----
  help: a policy has one value of it: write the same for both, or give `search/verifier` its own copy with
        `worker = "verifier"` in `[agents."search/verifier"]`, or, with `lora` in `[models.small]`, its own
        adapter with `adapter = "verifier"`
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
        `worker = "answerer"` in `[agents."search/answerer"]`, or, with `lora` in `[models.tiny]`, its own
        adapter with `adapter = "answerer"`
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
group_by = "task"
temperature = 0.5
"#,
        r#"
  x unknown key `agents."search/answerer".tasks_per_step`
   ,-[run.toml:2:1]
 2 | tasks_per_step = 4
   : ^^^^^^^^^^^^^^
   `----
  help: `tasks_per_step` is a key of `[task]`
  x unknown key `agents."search/answerer".group_by`
   ,-[run.toml:3:1]
 3 | group_by = "task"
   : ^^^^^^^^
   `----
  help: `group_by` is a key of `[algorithm]`
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
fn models_that_cannot_be_opened_are_reported() {
    check(
        &search(),
        r#"
[models.a]
path = "builtin:tony"
[models."b c"]
path = "nowhere"
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
  x ./nowhere is not a directory
   ,-[run.toml:4:8]
 4 | path = "nowhere"
   :        ^^^^^^^^^
   `----
  help: `path` names a Hugging Face model directory, relative to the file that names it; `builtin:tiny`
        needs no files
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
advantage_eps = -1e-6
[algorithm.loss]
clip_dual = 1.0
clip_low = -0.1
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
  x `algorithm.advantage_eps` is -1e-6; expected a finite number from 0
   ,-[run.toml:9:17]
 9 | advantage_eps = -1e-6
   :                 ^^^^^
   `----
  x `algorithm.loss.clip_dual` is 1; expected a finite number above 1
    ,-[run.toml:11:13]
 11 | clip_dual = 1.0
    :             ^^^
    `----
  x `algorithm.loss.clip_low` is -0.1; expected a number above 0 and at most 1
    ,-[run.toml:12:12]
 12 | clip_low = -0.1
    :            ^^^^
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
  x `runtime.threads` is 1025; expected a whole number from 0 (one per core) to 1024
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
fn data_that_is_not_there_is_reported() {
    check(
        &search(),
        r#"
[task]
data = "builtin:fcts"
[eval]
data = "questions.jsonl"
"#,
        r#"
  x no built-in data is called "fcts"
   ,-[run.toml:2:8]
 2 | data = "builtin:fcts"
   :        ^^^^^^^^^^^^^^
   `----
  help: did you mean `facts`?
  x there is no file ./questions.jsonl
   ,-[run.toml:4:8]
 4 | data = "questions.jsonl"
   :        ^^^^^^^^^^^^^^^^^
   `----
  help: a path is relative to the file that names it; `builtin:facts` needs no file
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
  x run.toml is not TOML: invalid table header; expected `.`, `]`
   ,-[run.toml:1:15]
 1 | [agents.search/verifier]
   :               ^
   `----
  help: a name with `/` is quoted: `[agents."search/verifier"]`
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
  | "cory", "ppo", "ippo", "mappo", "happo", "marft", "vdn", "qmix", "maporl", "sft", "dpo"
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
fn a_directory_with_a_model_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("qwen")).unwrap();
    let tiny = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let tiny = Model::load(&tiny).unwrap();
    tiny.save(&dir.path().join("qwen")).unwrap();
    let file = dir.path().join("run.toml");
    std::fs::write(&file, "[models.small]\npath = \"qwen\"\n[algorithm.loss]\nkl_coef = 0.1")
        .unwrap();
    let sources = Sources { file: Some(File::Path(file)), ..Sources::default() };
    let plan = plan_of(&sources);
    assert_eq!(plan.base, dir.path());
    assert_eq!(plan.workers[0].source, ModelSource::Directory(dir.path().join("qwen")));
    let worker = &plan.summary().workers[0];
    let n = tiny.weights.parameters() as u64;
    let bytes = (worker.weight_bytes, worker.reference_bytes, worker.gradient_bytes);
    assert_eq!((worker.parameters, bytes), (n, (4 * n, 4 * n, 4 * n)));
    assert_eq!((worker.moment_bytes, worker.bytes()), (8 * n, 20 * n));
}
