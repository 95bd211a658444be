use super::*;
use crate::plan::table;

/// The answerer has an endpoint.
const EXPERT: &str = r#"
[endpoints.expert]
url = "http://127.0.0.1:8000/v1"
model = "big"
[agents."search/answerer"]
endpoint = "expert"
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
fn an_endpoint_is_a_member_without_a_policy() {
    let plan = plan_of(&text(EXPERT));
    assert_eq!(plan.seats.len(), 2);
    let [endpoint] = &plan.endpoints[..] else { panic!("{:?}", plan.endpoints) };
    assert_eq!(
        (endpoint.seat.agent.as_str(), endpoint.name.as_str()),
        ("search/answerer", "expert")
    );
    assert_eq!((endpoint.sampling.temperature, endpoint.endpoint.retries), (0.5, 3));
    assert!(plan.policies.iter().all(|policy| policy.name != "expert"));
    assert!(table(&plan, 200).contains("endpoint expert"));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan, "{resolved}");
}

#[test]
fn an_endpoint_that_cannot_speak_is_reported() {
    let who = |keys: &str| format!("[endpoints.expert]\n{keys}\n");
    says(&who("retries = 1"), &["endpoint `expert` has neither a `url` nor a `script`"]);
    says(&who("url = \"http://a\""), &["endpoint `expert` has a `url` and no `model`"]);
    says(&who("url = \"a:80\"\nmodel = \"m\""), &["it begins with http:// or https://"]);
    says(&who("script = \"nowhere.jsonl\""), &["cannot be read", "nowhere.jsonl"]);
    let nowhere = "url = \"http://a\"\nmodel = \"m\"\nkey_env = \"MAVERL_NO_SUCH_KEY\"";
    says(&who(nowhere), &["the environment variable `MAVERL_NO_SUCH_KEY` is not set, or empty"]);
    let price = "url = \"http://a\"\nmodel = \"m\"\nprompt_price = -1";
    says(
        &who(price),
        &["`endpoints.expert.prompt_price` is -1; expected a number from 0 to 1000000000"],
    );
    says(
        &who("url = \"http://a\"\nmodel = \"m\"\ntimeout_s = 0"),
        &["`endpoints.expert.timeout_s` is 0; expected a number above 0"],
    );
}

#[test]
fn a_team_of_endpoints_alone_is_evaluated_and_not_trained() {
    let others = ["verifier", "searcher"]
        .map(|role| format!("[agents.\"search/{role}\"]\nendpoint = \"expert\"\n"));
    let toml = format!("{EXPERT}{}", others.concat());
    says(
        &toml,
        &["nothing is trained: every agent is an endpoint's", "`maverl eval` evaluates a team"],
    );
}

#[test]
fn what_an_endpoint_has_not_is_not_written_for_it() {
    says(
        &EXPERT
            .replace("sampling = { temperature = 0.5 }", "worker_group = \"own\"\nfrozen = false"),
        &[
            "spoken for by the endpoint `expert`, which has no `worker_group`",
            "which has no `frozen`",
        ],
    );
    says(
        &EXPERT.replace("endpoint = \"expert\"", "endpoint = \"export\""),
        &["no endpoint is called `export`", "did you mean `expert`?"],
    );
}

/// Two debaters, of which the second has an endpoint.
const SEAT: &str = r#"
[orchestra]
name = "debate/vote"
debaters = 2
[environment]
name = "quiz"
[endpoints.expert]
url = "http://127.0.0.1:8000/v1"
model = "big"
[agents."debate/debater"]
sampling = { temperature = 0.7 }
[agents."debate/debater".seats.1]
endpoint = "expert"
"#;

fn debate(toml: &str) -> Plan {
    super::super::check(&text(toml), &everything(), Purpose::Train)
        .unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())))
}

#[test]
fn a_seat_may_be_an_endpoints_and_the_resolved_configuration_means_that() {
    let models = "[models.a]\npath = \"builtin:tiny\"\n[models.b]\npath = \"builtin:tiny\"\n";
    let policy =
        "model = \"b\"\nworker_group = \"own\"\nfrozen = false\nloss = { kl_coef = 0.1 }\nsampling";
    let reversed = SEAT
        .replace("endpoint = \"expert\"", "model = \"b\"")
        .replace("sampling = {", "endpoint = \"expert\"\nsampling = {");
    let several = format!("{SEAT}{models}");
    let cases = [
        (SEAT.to_owned(), 1),
        (several.replacen("sampling", policy, 1), 1),
        (format!("{reversed}{models}"), 0),
    ];
    for (toml, outside) in cases {
        let plan = debate(&toml);
        assert_eq!((plan.seats.len(), plan.endpoints.len()), (1, 1), "{toml}");
        assert_eq!(plan.endpoints[0].seat, Seat::at("debate/debater", outside));
        assert_eq!(plan.endpoints[0].sampling.temperature, 0.7, "how it samples is inherited");
        let resolved = toml::to_string(&plan.config).unwrap();
        assert_eq!(debate(&resolved), plan, "{resolved}");
    }
}

#[test]
fn a_secret_in_a_url_is_refused_wherever_it_is_written() {
    let url = |url: &str| EXPERT.replace("http://127.0.0.1:8000/v1", url);
    let help = "the variable's name into `key_env`";
    says(
        &url("https://me:hush@host/v1"),
        &["`endpoints.expert.url` holds a user or a password", help],
    );
    says(&url("https://host/v1?api_key=hush"), &["`endpoints.expert.url` holds a key", help]);
    let orchestra = "[orchestra]\nname = \"search/route\"\ngreeting = \"https://t@host\"";
    says(orchestra, &["`orchestra.greeting` holds a user or a password"]);
    let set = text("").with("orchestra.greeting=https://host?token=hush");
    assert!(problems(&set, &search()).contains("`orchestra.greeting` holds a key"));
}
