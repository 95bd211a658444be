use super::*;
use crate::plan::RewardSource;
use crate::python::testing::{has_python, python_dir, write_python};

const SERVER: &str = "[rewards.style]\nweight = 0.5\n[rewards.style.server]\nurl = \"http://127.0.0.1:8501/v1/score\"\n";

fn says(toml: &str, parts: &[&str]) {
    let found = problems(&text(toml), &search());
    let flat = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(flat.contains(part), "{part:?} is not in\n{found}");
    }
}

#[test]
fn a_server_is_a_part_of_the_reward_under_any_name() {
    let plan = plan_of(&text(SERVER));
    let [reward] = &plan.rewards[..] else { panic!("{:?}", plan.rewards) };
    assert_eq!((reward.name.as_str(), reward.weight), ("style", 0.5));
    let RewardSource::Server(server) = &reward.source else { panic!("{:?}", reward.source) };
    assert_eq!((server.batch.get(), server.retries), (32, 3));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan, "{resolved}");
}

#[test]
fn parts_of_the_reward_that_cannot_be_are_reported() {
    let with = |keys: &str| format!("{SERVER}{keys}\n");
    says(&with("seats = [\"search/nobody\"]"), &["nobody of the team sits at `search/nobody`"]);
    says(&with("seats = [\"search/answerer\"]\nof = \"answer\""), &["`seats` has no effect"]);
    says(&with("protocol = \"predict\"\nsend = [\"a\"]"), &["`send` has no effect"]);
    says(&with("protocol = \"rm\"\nsend = [\"a\", \"b\"]"), &["carries one, as `label`"]);
    says(&with("batch = 257"), &["`rewards.style.server.batch` is 257; expected a whole number"]);
    says(
        &with("key_env = \"MAVERL_NO_SUCH_KEY\""),
        &["the environment variable `MAVERL_NO_SUCH_KEY` is not set, or empty"],
    );
    says("rewards.style.server.url = \"host:80\"", &["it begins with http:// or https://"]);
    says(
        "rewards.style.server.url = \"http://a/?key=b\"",
        &["`rewards.style.server.url` holds a key"],
    );
    says(
        "rewards.style.server.url = \"http://169.254.169.254/v1\"",
        &["`rewards.style.server.url` is a link-local address", "write another address"],
    );
    says(
        "rewards.style.verifier.path = \"nowhere\"",
        &["there is no directory `nowhere`; it was looked for at"],
    );
    says(
        "[rewards.style]\nserver = { url = \"http://a\" }\nverifier = { path = \"a\" }",
        &["reward `style` has a `server` and a `verifier`"],
    );
    let named = text("rewards.brevity.server.url = \"http://a\"");
    let found = problems(&named, &everything());
    assert!(found.contains("`brevity` is the name of a declared reward function"), "{found}");
}

#[test]
fn a_verifier_of_a_stage_is_one_that_an_earlier_stage_trains() {
    let named = |name: &str| text(&format!("rewards.style.verifier.path = \"stage:{name}\""));
    let verifiers = |task: &str| {
        let tasks = std::collections::BTreeSet::from([task.to_owned()]);
        std::collections::BTreeMap::from([("judge".to_owned(), tasks)])
    };
    let plan = plan_of(&Sources { verifiers: verifiers("another task"), ..named("judge") });
    let RewardSource::Verifier(verifier) = &plan.rewards[0].source else { panic!("{plan:?}") };
    assert_eq!(verifier.path, "stage:judge");
    let found = |sources: Sources| {
        let found = problems(&sources, &search());
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let wrong = found(Sources { verifiers: verifiers("another task"), ..named("jugde") });
    assert!(wrong.contains("no earlier stage `jugde` trains a verifier"), "{wrong}");
    assert!(wrong.contains("did you mean `judge`?"), "{wrong}");
    let alone = found(named("judge"));
    assert!(alone.contains("no earlier stage `judge` trains a verifier"), "{alone}");
    assert!(alone.contains("write the directory that `maverl export --verifier` wrote"), "{alone}");
    let question = &crate::data::load(&plan.config.task, "train", &plan.base).unwrap()[0].question;
    let key = crate::task::question_key(question);
    let seen = found(Sources { verifiers: verifiers(&key), ..named("judge") });
    assert!(seen.contains("the verifier was trained on 1 of the tasks"), "{seen}");
}

#[test]
fn a_python_file_is_a_part_of_the_reward_under_any_name() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", "def style(item):\n    return 1.0\n");
    let within = |toml: &str| {
        let base = dir.path().to_owned();
        let file = File::Text { name: "run.toml".into(), text: toml.into(), base };
        Sources { file: Some(file), ..Sources::default() }
    };
    let plan = plan_of(&within("rewards.style.python = {}"));
    let RewardSource::Python(python) = &plan.rewards[0].source else { panic!("{plan:?}") };
    assert_eq!(
        (python.file.as_str(), python.batch.get(), &python.function),
        ("rewards.py", 8, &None)
    );
    let found = |toml: &str| {
        let found = problems(&within(toml), &search());
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (toml, parts) in [
        (
            "file = \"reward.py\"",
            &["there is no file `reward.py`", "did you mean `rewards.py`?"][..],
        ),
        ("function = \"stile\"", &["`rewards.py` defines no `stile`", "did you mean `style`?"]),
        ("watch = [\"lib/*.py\"]", &["`lib/*.py` names no file"]),
        ("python = \"python-4\"", &["`python-4` does not run", "write the path of a Python 3.9"]),
        ("send = [\"ground_truth\"]", &["no task has the key `ground_truth`"]),
        ("of = \"answer\"\nseats = [\"search/answerer\"]", &["`seats` has no effect"]),
        ("batch = 0", &["`rewards.style.python.batch` is 0"]),
    ] {
        let found = found(&format!("[rewards.style.python]\n{toml}\n"));
        for part in parts {
            assert!(found.contains(part), "{part:?} is not in\n{found}");
        }
    }
    let two = found("[rewards.style]\nserver = { url = \"http://a\" }\npython = {}");
    assert!(two.contains("reward `style` has a `server` and a `python`"), "{two}");
    write_python(dir.path(), "rewards.py", "def style(item)\n    return 1.0\n");
    let wrong = found("rewards.style.python = {}");
    assert!(wrong.contains("rewards.py, line 1: expected ':'"), "{wrong}");
}

#[test]
fn a_judge_has_an_endpoint_and_a_rubric_that_shows_the_reply() {
    let dir = tempfile::tempdir().unwrap();
    let rubric = |text: &str| std::fs::write(dir.path().join("rubric.md"), text).unwrap();
    let within = |toml: &str| {
        let base = dir.path().to_owned();
        let file = File::Text { name: "run.toml".into(), text: toml.into(), base };
        Sources { file: Some(file), ..Sources::default() }
    };
    let endpoint = "[endpoints.judge]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
    rubric("{{ question }} {{ reply }}");
    let plan = plan_of(&within(&format!("{endpoint}[rewards.help.judge]\n")));
    let RewardSource::Judge(judge) = &plan.rewards[0].source else { panic!("{plan:?}") };
    assert_eq!((judge.scale, judge.samples.get()), ([1.0, 10.0], 1));
    let found = |toml: &str| {
        let found = problems(&within(toml), &search());
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let judged = |keys: &str| found(&format!("{endpoint}[rewards.help.judge]\n{keys}\n"));
    for (found, part) in [
        (found("[rewards.help.judge]\n"), "no endpoint is called `judge`"),
        (judged("endpoint = \"juge\""), "did you mean `judge`?"),
        (judged("rubric = \"rubrik.md\""), "there is no file `rubrik.md`"),
        (judged("scale = [5.0, 1.0]"), "`scale` is [5.0, 1.0]"),
        (judged("mode = \"pairs\"\nof = \"answer\""), "does not show `{{ a }}` and `{{ b }}`"),
        (judged("mode = \"pairs\""), "pairs are answers to a task"),
        (judged("mode = \"pairs\"\nparse = \"last_number\""), "a pair has no number"),
        (judged("mode = \"pairs\"\n[task]\ngroup_size = 1"), "a group of one answer has no pairs"),
        (
            judged("mode = \"pairs\"\nof = \"answer\"\n[algorithm]\nname = \"remax\""),
            "the judge of `rewards.help` compares the answers of a group, and the baseline is a greedy episode",
        ),
        (judged("send = [\"nothing\"]"), "no task has the key `nothing`"),
        (judged("samples = 0"), "`rewards.help.judge.samples` is 0"),
    ] {
        assert!(found.contains(part), "{part:?} is not in\n{found}");
    }
    rubric("{{ reply }} {{ task.level }} {{ answer }}");
    let names = judged("");
    for part in ["has `{{ task.level }}`, `{{ answer }}`", "`send = [\"KEY\"]` adds"] {
        assert!(names.contains(part), "{part:?} is not in\n{names}");
    }
}

#[test]
fn prices_are_a_part_of_the_reward() {
    let with = |keys: &str| format!("[rewards.price.usage]\n{keys}\n");
    let plan = plan_of(&text(&with("turn = 0.02\nseats = [\"search/verifier\"]")));
    let RewardSource::Usage(usage) = &plan.rewards[0].source else { panic!("{plan:?}") };
    assert_eq!((usage.turn, usage.token), (0.02, 0.0));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan, "{resolved}");
    says(&with("after = \"always\""), &["has no price", "set `token`, `turn` or `call`"]);
    says(&with("turn = -1"), &["`rewards.price.usage.turn`"]);
    says(&with("turn = 1\nseats = [\"a/b\"]"), &["nobody of the team sits at `a/b`"]);
}
