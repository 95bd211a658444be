use super::*;
use crate::net::{Adapter, LoraConfig};
use crate::plan::{json, table};

/// Two adapters on one base: the verifier's own, and that of the others.
const TWO: &str = r#"
[models.small]
path = "builtin:tiny"
lora = { rank = 4 }
optim = { lr = 1e-5 }
[agents."search/verifier"]
adapter = "verify"
lora = { rank = 2, alpha = 4, target_modules = ["q_proj", "v_proj"] }
optim = { lr = 1e-4 }
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
fn adapters_of_one_base_are_policies_of_one_worker() {
    let plan = plan_of(&text(TWO));
    let names: Vec<&str> = plan.policies.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(names, ["small", "verify"]);
    assert_eq!(plan.workers.len(), 1);
    assert_eq!(plan.policies.iter().map(|p| p.optim.lr).collect::<Vec<_>>(), [1e-5, 1e-4]);
    let of = |name: &str| {
        let seat = plan.seats.iter().find(|seat| seat.seat.agent == name).unwrap();
        plan.policies[seat.policy].name.as_str()
    };
    assert_eq!(
        ["search/searcher", "search/answerer", "search/verifier"].map(of),
        ["small", "small", "verify"]
    );
    let adapters: Vec<_> = plan.policies.iter().filter_map(|p| p.adapter.as_ref()).collect();
    assert_eq!((adapters[0].lora.rank, adapters[0].lora.alpha), (4, 16.0));
    assert_eq!(adapters[0].lora.target_modules.len(), 7);
    assert_eq!((adapters[1].lora.rank, adapters[1].lora.alpha), (2, 4.0));
    assert_eq!(adapters[1].lora.target_modules, ["q_proj", "v_proj"]);
}

#[test]
fn adapters_cost_their_own_bytes_and_one_base() {
    let plan = plan_of(&text(&format!("{TWO}[algorithm.loss]\nkl_coef = 0.1")));
    let numbers: Vec<u64> =
        plan.policies.iter().map(|p| p.adapter.as_ref().unwrap().parameters).collect();
    let summary = plan.summary();
    let worker = &summary.workers[0];
    let (both, most) = (numbers[0] + numbers[1], numbers[0].max(numbers[1]));
    assert_eq!(worker.trainable_parameters, both);
    assert_eq!(worker.weight_bytes, 4 * (worker.parameters + both));
    assert_eq!(worker.reference_bytes, 4 * both);
    assert_eq!((worker.gradient_bytes, worker.moment_bytes), (4 * most, 8 * both));
    assert_eq!(summary.policies[1].bytes, 16 * numbers[1]);
    let table = table(&plan, 200);
    for part in ["adapter of rank 4", "adapter of rank 2", "verify"] {
        assert!(table.contains(part), "{table}");
    }
    assert!(json(&plan).contains("\"trainable_parameters\""));
}

#[test]
fn the_resolved_configuration_of_adapters_loads_to_the_same_plan() {
    let alone = "[agents.\"search/verifier\"]\nadapter = \"v\"\n\
                 [agents.\"search/searcher\"]\nadapter = \"s\"\nlora = { dropout = 0.1 }\n\
                 [agents.\"search/answerer\"]\nfrozen = true";
    for toml in [TWO, alone] {
        let plan = plan_of(&text(toml));
        let resolved = toml::to_string(&plan.config).unwrap();
        assert_eq!(plan_of(&text(&resolved)), plan, "{resolved}");
        assert!(resolved.contains("target_modules = \"all-linear\""), "{resolved}");
    }
    let plan = plan_of(&text(alone));
    assert!(plan.warnings.iter().any(|w| w.contains("`lora.dropout` of policy `s`")), "{plan:?}");
}

#[test]
fn agents_of_one_adapter_have_one_configuration_of_it() {
    check(
        &search(),
        r#"
[models.small]
path = "builtin:tiny"
lora = { rank = 4 }
[agents."search/verifier"]
lora = { rank = 8 }
"#,
        r#"
  x `lora.rank` is 8 for `search/verifier` and 4 for `search/answerer`, but both are policy `small`
   ,-[run.toml:3:17]
 3 | lora = { rank = 4 }
   :                 |
   :                 `-- for `search/answerer`
 4 | [agents."search/verifier"]
 5 | lora = { rank = 8 }
   :                 |
   :                 `-- for `search/verifier`
   `----
  help: a policy has one value of it: write the same for both, or give `search/verifier` its own adapter
        with `adapter = "verifier"`, or its own copy of the base with `worker_group = "verifier"`, in
        `[agents."search/verifier"]`
"#,
    );
}

#[test]
fn optimizers_of_agents_on_one_adapter_cannot_differ() {
    says(
        "[models.small]\npath = \"builtin:tiny\"\nlora = {}\n[agents.\"search/verifier\"]\noptim.lr = 1e-4",
        &[
            "`optim.lr` is 0.0001 for `search/verifier`",
            "`adapter = \"verifier\"`",
            "`worker_group = \"verifier\"`",
        ],
    );
}

#[test]
fn weights_under_an_adapter_are_not_trained() {
    check(
        &search(),
        r#"
[agents."search/verifier"]
adapter = "verify"
"#,
        r#"
  x `search/answerer` trains the weights that adapter `verify` of `search/verifier` sits on
   ,-[run.toml:2:11]
 2 | adapter = "verify"
   :           ^^^^|^^^
   :               `-- for `search/verifier`
   `----
  help: weights under an adapter stay as they are: with `lora` in `[models.tiny]` `search/answerer` trains
        an adapter too; or freeze it, or give it its own copy with `worker_group`
"#,
    );
}

#[test]
fn a_policy_is_an_adapter_for_all_of_its_agents() {
    says(
        "[agents.\"search/verifier\"]\nlora = { rank = 4 }",
        &[
            "policy `tiny` is an adapter for `search/verifier`, but the model's own weights for `search/answerer`",
            "write `lora` in `[models.tiny]` for both",
        ],
    );
}

#[test]
fn an_adapter_sits_on_one_base() {
    says(
        "[models.small]\npath = \"builtin:tiny\"\nlora = {}\n\
         [agents.\"search/verifier\"]\nadapter = \"x\"\n\
         [agents.\"search/searcher\"]\nadapter = \"x\"\nworker_group = \"other\"",
        &[
            "policy `x` is on worker `other` for `search/searcher`, but on `small` for `search/verifier`",
        ],
    );
}

#[test]
fn values_of_an_adapter_that_cannot_be_meant_are_reported() {
    let with = |lora: &str| format!("[models.small]\npath = \"builtin:tiny\"\nlora = {{ {lora} }}");
    for (lora, message) in [
        ("rank = 0", "`models.small.lora.rank` is 0; expected a whole number from 1"),
        (
            "rank = 70000",
            "`models.small.lora.rank` is 70000; expected a whole number from 1 to 65536",
        ),
        ("alpha = 0", "`models.small.lora.alpha` is 0; expected a finite number above 0"),
        ("dropout = 1.0", "`models.small.lora.dropout` is 1; expected a number from 0 to below 1"),
        ("target_modules = []", "`models.small.lora.target_modules` names no module"),
        (
            "target_modules = \"all\"",
            "`models.small.lora.target_modules` is \"all\"; expected \"all-linear\" or",
        ),
        (
            "target_modules = [\"query\"]",
            "has \"query\", which names no linear map of the model; there are `down_proj`",
        ),
        ("r = 4", "unknown key `models.small.lora.r`"),
    ] {
        says(&with(lora), &[message]);
    }
    says("[agents.\"search/verifier\"]\nadapter = \"a/b\"", &["\"a/b\" cannot name a model"]);
}

#[test]
fn an_adapter_starts_from_a_directory_of_peft() {
    let dir = tempfile::tempdir().unwrap();
    let base = Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap();
    let plan = plan_of(&text(TWO));
    let lora = plan.policies[1].adapter.as_ref().unwrap().lora.clone();
    Adapter::new(&base.config, lora.clone(), 1).unwrap().save(dir.path(), "tiny").unwrap();
    let toml = |more: &str| {
        let path = dir.path().display();
        format!("[models.small]\npath = \"builtin:tiny\"\nadapter = \"{path}\"\n{more}")
    };
    let plan = plan_of(&text(&toml("lora = { dropout = 0.25 }")));
    let adapter = plan.policies[0].adapter.as_ref().unwrap();
    assert_eq!(adapter.start.as_deref(), Some(dir.path()));
    assert_eq!((adapter.lora.rank, adapter.lora.alpha), (lora.rank, lora.alpha));
    assert_eq!(adapter.lora.target_modules, lora.target_modules);
    assert_eq!(adapter.lora.dropout, 0.25);
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan, "{resolved}");

    says(&toml("lora = { rank = 16 }"), &["`lora.rank` is 16, but the adapter in", "has 2"]);
    let file = dir.path().join("adapter_config.json");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace("\"r\": 2", "\"r\": 3")).unwrap();
    says(&toml(""), &["q_proj.lora_A.weight` is [2, ", "ask for [3, "]);
    std::fs::write(&file, config.replace("\"q_proj\"", "\"c_attn\"")).unwrap();
    says(&toml(""), &["\"c_attn\", which names no linear map"]);
    std::fs::remove_file(&file).unwrap();
    says(&toml(""), &["adapter_config.json", "names a PEFT directory"]);
}

#[test]
fn what_expressions_choose_in_a_directory_of_peft_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let base = Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap();
    let config =
        br#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ".*1\\.mlp\\..*_proj",
        "exclude_modules": ["up_proj"], "rank_pattern": {"down_proj": 2}}"#;
    let lora = LoraConfig::parse(config).unwrap();
    Adapter::new(&base.config, lora.clone(), 1).unwrap().save(dir.path(), "tiny").unwrap();
    let path = dir.path().display();
    let toml = |more: &str| {
        text(&format!("[models.small]\npath = \"builtin:tiny\"\nadapter = \"{path}\"\n{more}"))
    };
    let plan = plan_of(&toml("lora = { dropout = 0.25 }"));
    let adapter = plan.policies[0].adapter.as_ref().unwrap();
    assert_eq!(adapter.lora, LoraConfig { dropout: 0.25, ..lora.clone() });
    assert_eq!(adapter.parameters, lora.parameters(&base.config).unwrap());
    let targets = lora.targets(&base.config).unwrap();
    assert_eq!(targets.iter().map(|t| t.rank).collect::<Vec<_>>(), [4, 2]);
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan, "{resolved}");
    let other = format!(
        "[models.small]\npath = \"builtin:tiny\"\nadapter = \"{path}\"\nlora = {{ target_modules = [\"up_proj\"] }}"
    );
    says(&other, &["`lora.target_modules` is", "but the adapter in"]);
}
