use super::*;
use crate::plan::table;

/// The answerer is somebody else's.
const EXPERT: &str = r#"
[outsiders.expert]
url = "http://127.0.0.1:8000/v1"
model = "big"
[agents."search/answerer"]
outsider = "expert"
sampling = { temperature = 0.5 }
"#;

fn says(toml: &str, parts: &[&str]) {
    let found = problems(&text(toml.trim_start()), &search());
    // Wrapped lines are one sentence.
    let flat = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(flat.contains(part), "{part:?} is not in\n{found}");
    }
}

#[test]
fn an_outsider_is_a_member_without_a_policy() {
    let plan = plan_of(&text(EXPERT));
    assert_eq!(plan.seats.len(), 2);
    let [outsider] = &plan.outsiders[..] else { panic!("{:?}", plan.outsiders) };
    assert_eq!(
        (outsider.seat.agent.as_str(), outsider.name.as_str()),
        ("search/answerer", "expert")
    );
    assert_eq!((outsider.sampling.temperature, outsider.outsider.retries), (0.5, 3));
    assert!(plan.policies.iter().all(|policy| policy.name != "expert"));
    assert!(table(&plan, 200).contains("outsider expert"));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan, "{resolved}");
}

#[test]
fn an_outsider_that_cannot_speak_is_reported() {
    let who = |keys: &str| format!("[outsiders.expert]\n{keys}\n");
    says(&who("retries = 1"), &["outsider `expert` has neither a `url` nor a `script`"]);
    says(&who("url = \"http://a\""), &["outsider `expert` has a `url` and no `model`"]);
    says(&who("url = \"a:80\"\nmodel = \"m\""), &["it begins with http:// or https://"]);
    says(&who("script = \"nowhere.jsonl\""), &["cannot be read", "nowhere.jsonl"]);
    let nowhere = "url = \"http://a\"\nmodel = \"m\"\nkey_env = \"MAVERL_NO_SUCH_KEY\"";
    says(&who(nowhere), &["the environment variable `MAVERL_NO_SUCH_KEY` is not set, or empty"]);
    let price = "url = \"http://a\"\nmodel = \"m\"\nprompt_price = -1";
    says(&who(price), &["`outsiders.expert.prompt_price` is -1; expected 0 or more"]);
    says(
        &who("url = \"http://a\"\nmodel = \"m\"\ntimeout_s = 0"),
        &["`outsiders.expert.timeout_s` is 0; expected a number above 0"],
    );
}

#[test]
fn what_an_outsider_has_not_is_not_written_for_it() {
    says(
        &EXPERT.replace("sampling = { temperature = 0.5 }", "worker = \"own\"\nfrozen = false"),
        &["spoken for by the outsider `expert`, which has no `worker`", "which has no `frozen`"],
    );
    says(
        &EXPERT.replace("outsider = \"expert\"", "outsider = \"export\""),
        &["no outsider is called `export`", "did you mean `expert`?"],
    );
}
