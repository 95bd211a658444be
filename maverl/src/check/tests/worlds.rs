use super::*;

const TWO: &str = r#"
[task.worlds.quiz]
weight = 2
environment = { name = "quiz", top = 5 }
[task.worlds.sums]
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
    let names: Vec<(&str, &str)> =
        plan.worlds.iter().map(|(world, chosen)| (world.as_str(), chosen.name.as_str())).collect();
    assert_eq!(names, [("quiz", "quiz"), ("sums", "library")]);
    assert_eq!(plan.worlds["quiz"].options["top"], 5);
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
        &["unknown key `task.worlds.quiz.environment.tops`"],
    );
    says(
        &TWO.replace("weight = 2", "weight = 0"),
        &all,
        &["`task.worlds.quiz.weight` is 0; expected a number above 0"],
    );
    says(
        &TWO.replace("builtin:arithmetic", "nowhere.jsonl"),
        &all,
        &["there is no file", "nowhere.jsonl"],
    );
    says(
        &format!("{TWO}[environment]\nname = \"quiz\"\n[eval]\ndata = \"builtin:facts\""),
        &all,
        &["`environment` has no effect", "`eval.data` is of no world"],
    );
}
