use serde_json::json;

use super::*;

const TWO: &str = r#"
[task.mixture.quiz]
weight = 2
environment = { name = "quiz", top = 5 }
[task.mixture.sums]
data = "builtin:arithmetic"
environment = { name = "library" }
[orchestra]
name = "debate/vote"
"#;

fn says(toml: &str, registry: &Registry, parts: &[&str]) {
    let found = problems(&text(toml.trim_start()), registry);
    // Wrapped lines are one sentence.
    let flat = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(flat.contains(part), "{part:?} is not in\n{found}");
    }
}

#[test]
fn each_world_has_its_environment() {
    let plan = super::super::check(&text(TWO), &everything(), Purpose::Train).unwrap();
    let names: Vec<(&str, &str)> = plan
        .mixture
        .iter()
        .map(|(component, chosen)| (component.as_str(), chosen.name.as_str()))
        .collect();
    assert_eq!(names, [("quiz", "quiz"), ("sums", "library")]);
    assert_eq!(plan.mixture["quiz"].options["top"], 5);
    assert_eq!(plan.environment.name, "quiz, sums");
    let resolved = toml::to_string(&plan.config).unwrap();
    let again = super::super::check(&text(&resolved), &everything(), Purpose::Train).unwrap();
    assert_eq!(again, plan, "{resolved}");
}

#[test]
fn what_is_wrong_with_a_world_is_told_where_it_stands() {
    let all = everything();
    says(
        &TWO.replace("\"quiz\", top = 5", "\"quix\""),
        &all,
        &["no environment is called `quix`", "did you mean `quiz`?"],
    );
    says(
        &TWO.replace("top = 5", "tops = 5"),
        &all,
        &["unknown key `task.mixture.quiz.environment.tops`"],
    );
    says(
        &TWO.replace("weight = 2", "weight = 0"),
        &all,
        &["`task.mixture.quiz.weight` is 0; expected a finite number above 0"],
    );
    says(
        &TWO.replace("builtin:arithmetic", "nowhere.jsonl"),
        &all,
        &["there is no file", "nowhere.jsonl"],
    );
    says(
        &format!("{TWO}[environment]\nname = \"quiz\"\n[eval]\ndata = \"builtin:facts\""),
        &all,
        &["`environment` has no effect", "`eval.data` is of no component"],
    );
}

/// An orchestra that acts in a library beside its component.
struct Roam;

impl Build for Roam {
    fn defaults() -> Value {
        json!({})
    }

    fn build(_: &Value) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Orchestra for Roam {
    async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
        Ok(None)
    }

    fn environments(&self) -> Vec<String> {
        vec!["shelf".to_owned()]
    }
}

impl OrchestraName for Roam {
    const NAME: &'static str = "debate/roam";
    const SUMMARY: &'static str = "Acts in several environments.";
    const NEEDS: &'static [&'static str] = &["any"];

    fn members(&self) -> Vec<Seat> {
        vec![Seat::only("debate/debater")]
    }
}

fn roaming() -> Registry {
    registry(&[
        Entry::agent::<Debater>(HERE),
        Entry::orchestra::<Roam>(HERE),
        Entry::environment::<Library>(HERE),
        Entry::environment::<Quiz>(HERE),
    ])
}

#[test]
fn an_orchestra_acts_in_the_worlds_that_it_names() {
    let toml = "[environments.shelf]\nname = \"library\"\ntop = 9\n";
    let plan = super::super::check(&text(toml), &roaming(), Purpose::Train).unwrap();
    let shelf = &plan.environments["shelf"];
    assert_eq!((shelf.name.as_str(), &shelf.options["top"]), ("library", &json!(9)));
    // An orchestra that accepts any actions runs in an environment that has some.
    assert_eq!(plan.environment.name, "library");
    let resolved = toml::to_string(&plan.config).unwrap();
    let again = super::super::check(&text(&resolved), &roaming(), Purpose::Train).unwrap();
    assert_eq!(again, plan, "{resolved}");
}

#[test]
fn worlds_that_an_orchestra_lacks_or_does_not_act_in_are_told() {
    let all = roaming();
    says("seed = 1", &all, &["`debate/roam` acts in `shelf`", "write `[environments.shelf]`"]);
    let shelf = "[environments.shelf]\nname = \"library\"\n";
    says(
        &format!("{shelf}[environments.desk]\nname = \"quiz\""),
        &all,
        &["`environments.desk` has no effect", "remove it"],
    );
    says(&shelf.replace("library", "libary"), &all, &["did you mean `library`?"]);
    says(&format!("{shelf}tops = 1"), &all, &["unknown key `environments.shelf.tops`"]);
    says(
        &format!("{shelf}[environment]\nname = \"quiz\""),
        &all,
        &["`debate/roam` acts, and environment `quiz` understands no action"],
    );
}
