//! Teachers: their models, the seats that have them, and what is refused.

use super::*;
use crate::config::DistillSupport;
use crate::loss::{DistillOptions, TeacherDivergence};
use crate::plan::{SeatTeachers, TeacherSource};

const MODELS: &str =
    "[models.tiny]\npath = \"builtin:tiny\"\n[models.big]\npath = \"builtin:generalist\"\n";

/// Returns a configuration of search whose agents have a model, with further text.
fn taught(more: &str) -> String {
    let model =
        |role: &str, keys: &str| format!("[agents.\"search/{role}\"]\nmodel = \"tiny\"\n{keys}\n");
    let answerer = model("answerer", more.split("---").next().unwrap());
    let rest = more.split_once("---").map_or("", |(_, rest)| rest);
    format!("{MODELS}{}{}{answerer}{rest}", model("verifier", ""), model("searcher", ""))
}

fn teachers(plan: &Plan, seat: &str) -> Option<SeatTeachers> {
    let found = plan.seats.iter().find(|found| found.seat.agent == seat).unwrap();
    found.teachers.clone()
}

#[track_caller]
fn warned(toml: &str, part: &str) {
    let plan = plan_of(&text(toml));
    assert!(plan.warnings.iter().any(|warning| warning.contains(part)), "{:?}", plan.warnings);
}

#[test]
fn the_model_of_a_teacher_is_a_frozen_policy_of_its_own() {
    let plan = plan_of(&text(&taught("teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"")));
    let names: Vec<_> =
        plan.policies.iter().map(|policy| (policy.name.as_str(), policy.trained)).collect();
    assert_eq!(names, [("guide", false), ("tiny", true)]);
    let [teacher] = &plan.teachers[..] else { panic!("{:?}", plan.teachers) };
    assert_eq!((teacher.name.as_str(), &teacher.source), ("guide", &TeacherSource::Policy(0)));
    let own = teachers(&plan, "search/answerer").unwrap();
    assert_eq!((own.coef, own.by_source["default"]), (1.0, 0));
    assert_eq!(teachers(&plan, "search/verifier"), None);
    let summary = plan.summary();
    assert_eq!(summary.workers[0].weight_bytes, plan.workers[0].parameters * 4);
    assert_eq!((summary.workers[0].kv_bytes, summary.workers[0].packed_bytes), (0, 0));
    assert!(summary.workers[1].kv_bytes > 0);
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan);
    let eval = super::super::check(&text(&resolved), &search(), Purpose::Eval).unwrap();
    assert_eq!((eval.policies.len(), eval.teachers.len()), (1, 0));
}

#[test]
fn a_frozen_agent_and_several_teachers_share_one_copy_of_a_model() {
    let toml = format!(
        "{MODELS}[agents.\"search/verifier\"]\nmodel = \"big\"\nfrozen = true\n[agents.\"search/searcher\"]\n\
         model = \"tiny\"\nteacher = \"plain\"\nloss.distill_coef = 0.25\n[agents.\"search/answerer\"]\nmodel = \"tiny\"\n\
         teacher = {{ default = \"hinted\", other = \"plain\" }}\n[teachers.plain]\nmodel = \"big\"\n\
         [teachers.hinted]\nmodel = \"big\"\nhint = \"{{{{answer}}}}\"\n[algorithm.distill]\ncoef = 0.5\n\
         [task.mixture.other]\n[task.mixture.one]\n"
    );
    let plan = plan_of(&text(&toml));
    assert_eq!(plan.policies.len(), 2);
    assert_eq!(teachers(&plan, "search/searcher").unwrap().coef, 0.25);
    assert_eq!(teachers(&plan, "search/answerer").unwrap().coef, 0.5);
    let answerer = plan.seats.iter().position(|seat| seat.seat.agent == "search/answerer").unwrap();
    let name =
        |source: &str| plan.teachers[plan.teacher_of(answerer, source).unwrap()].name.as_str();
    assert_eq!([name("other/train"), name("other"), name("one")], ["plain", "plain", "hinted"]);
}

#[test]
fn the_reference_is_kept_for_a_teacher() {
    let plan =
        plan_of(&text(&taught("teacher = \"old\"---[teachers.old]\npolicy = \"reference\"")));
    assert!(plan.policies[0].reference);
    let toml = taught("teacher = \"me\"---[teachers.me]\npolicy = \"self\"\nhint = \"{{answer}}\"");
    let plan = plan_of(&text(&toml));
    assert!(!plan.policies[0].reference && plan.policies.len() == 1);
    assert_eq!(plan.teachers[0].source, TeacherSource::Current);
}

#[test]
fn what_a_teacher_cannot_be_is_refused() {
    let guide = |keys: &str| taught(&format!("teacher = \"guide\"---[teachers.guide]\n{keys}"));
    refused(&guide(""), &["teacher `guide` has no `model`, `policy` or `endpoint`"]);
    refused(&guide("model = \"big\"\npolicy = \"self\""), &["has `model` and `policy`"]);
    refused(&guide("model = \"bog\""), &["no model is called `bog`", "did you mean `big`?"]);
    refused(&guide("model = \"big\"\nhint = \"{% if %}\""), &["the hint is no template: line 1"]);
    refused(&guide("model = \"big\"\nmax_hint_tokens = 0"), &["max_hint_tokens"]);
    refused(
        &taught("teacher = \"x\"---[teachers.tiny]\nmodel = \"big\""),
        &["no teacher is called `x`"],
    );
    refused(&taught("teacher = \"x\""), &["write a table `[teachers.x]`"]);
    refused(
        &taught("teacher = \"tiny\"---[teachers.tiny]\nmodel = \"big\""),
        &["has the name of a policy or worker group", "give the teacher another name"],
    );
    refused(
        &taught("teacher = { nowhere = \"guide\" }---[teachers.guide]\nmodel = \"big\""),
        &["no task has the source `nowhere`"],
    );
    refused(
        &taught("frozen = true\nteacher = \"guide\"---[teachers.guide]\nmodel = \"big\""),
        &["`search/answerer` has a teacher, and is frozen"],
    );
    refused(
        &taught(
            "teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"\n[algorithm]\nname = \"online_dpo\"",
        ),
        &["has a teacher, and `algorithm.name` is \"online_dpo\", which has no advantages"],
    );
}

#[test]
fn a_teacher_behind_an_endpoint_is_a_server_at_temperature_one_and_without_a_hint() {
    let guide = |keys: &str, more: &str| {
        let server = "[endpoints.far]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n[endpoints.file]\nscript = \"no\"\n";
        taught(&format!("teacher = \"guide\"---[teachers.guide]\n{keys}\n{server}{more}"))
    };
    let plan = plan_of(&text(
        &guide("endpoint = \"far\"\non_error = \"skip\"", "")
            .replace("[endpoints.file]\nscript = \"no\"\n", ""),
    ));
    assert!(
        matches!(&plan.teachers[0].source, TeacherSource::Endpoint { name, .. } if name == "far")
    );
    assert_eq!(plan.policies.len(), 1);
    refused(
        &guide("endpoint = \"fur\"", ""),
        &["no endpoint is called `fur`", "did you mean `far`?"],
    );
    refused(
        &guide("endpoint = \"file\"", ""),
        &["is a file of replies, and a teacher is a server"],
    );
    refused(
        &guide("endpoint = \"far\"\nhint = \"{{answer}}\"", ""),
        &["a teacher behind an endpoint reads no hint"],
    );
    refused(
        &guide("endpoint = \"far\"", "[algorithm.distill]\nkind = \"divergence\""),
        &[
            "teacher `guide` of `search/answerer` is a server, and `algorithm.distill.kind` is \"divergence\"",
        ],
    );
    refused(
        &guide("endpoint = \"far\"", "[sampling]\ntemperature = 0.7"),
        &["samples at temperature 0.7, and its teacher `guide` is a server"],
    );
    warned(
        &taught("teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"\non_error = \"skip\""),
        "`teachers.guide.on_error` has no effect",
    );
}

#[test]
fn a_teacher_with_other_tokens_is_refused() {
    let lab = tempfile::tempdir().unwrap();
    let model = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    for file in ["config.json", "tokenizer_config.json", "model.safetensors"] {
        std::fs::write(lab.path().join(file), model.require(file).unwrap()).unwrap();
    }
    let mut tokenizer: Value =
        serde_json::from_slice(&model.require("tokenizer.json").unwrap()).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    for id in vocabulary.values_mut() {
        *id = match id.as_u64().unwrap() {
            300 => 301.into(),
            301 => 300.into(),
            other => other.into(),
        };
    }
    std::fs::write(lab.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let path = lab.path().display();
    let toml = taught(&format!(
        "teacher = \"guide\"---[teachers.guide]\nmodel = \"other\"\n[models.other]\npath = \"{path}\""
    ));
    refused(&toml, &["has other tokens than `tiny`, the model of `search/answerer` (vocabulary)"]);
}

#[test]
fn keys_of_teachers_without_effect_are_named() {
    warned(&taught("---[teachers.big]\nmodel = \"big\""), "no agent has this `teacher`");
    warned(&taught("---[algorithm.distill]\ncoef = 2"), "`algorithm.distill` has no effect");
    warned(&taught("loss.distill_coef = 2.0"), "`loss.distill_coef` of `search/answerer`");
    warned(
        &taught("teacher = \"me\"---[teachers.me]\npolicy = \"self\""),
        "is the policy itself without a `hint`",
    );
    warned(
        &taught("teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"\nplace = \"system\""),
        "`teachers.guide.place` has no effect",
    );
    warned(
        &taught(
            "teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"\n[algorithm]\nname = \"gspo\"",
        ),
        "the mean over the reply is what is left of it",
    );
    let alone = "teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"\n[task]\ngroup_size = 1";
    warned(&taught(alone), "`task.group_size` is 1");
}

#[test]
fn a_divergence_has_keys_of_its_own_and_no_doubt_about_means_of_advantages() {
    let taught = |keys: &str, preset: &str| {
        taught(&format!(
            "teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"\n[algorithm]\nname = \"{preset}\"\n\
             [algorithm.distill]\n{keys}"
        ))
    };
    let plan = plan_of(&text(&taught(
        "kind = \"divergence\"\ndivergence = \"jsd\"\nbeta = 0.9\ntop_k = 8\ntail = false",
        "gspo",
    )));
    assert!(plan.warnings.iter().all(|warning| !warning.contains("mean over the reply")));
    let distill = &plan.algorithm.distill;
    assert_eq!(distill.support, DistillSupport::Teacher);
    let student = plan_of(&text(&taught("kind = \"divergence\"\nsupport = \"student\"", "drmas")));
    assert_eq!(student.algorithm.distill.support, DistillSupport::Student);
    warned(&taught("support = \"student\"", "drmas"), "`algorithm.distill.support` has no effect");
    let options = DistillOptions { divergence: TeacherDivergence::Jsd, beta: 0.9, tail: false };
    assert_eq!((distill.options(), distill.top_k.get()), (options, 8));
    warned(&taught("top_k = 8", "drmas"), "`algorithm.distill.top_k` has no effect");
    warned(
        &taught("kind = \"divergence\"\nclip = 2.0", "drmas"),
        "`algorithm.distill.clip` has no effect",
    );
    warned(
        &taught("kind = \"divergence\"\nbeta = 0.9", "drmas"),
        "`algorithm.distill.beta` has no effect",
    );
    refused(&taught("kind = \"divergence\"\ndivergence = \"jsd\"\nbeta = 1.0", "drmas"), &["beta"]);
}

#[test]
fn distributions_that_a_machine_cannot_hold_are_warned_of() {
    let plan = |keys: &str| {
        plan_of(&text(&taught(&format!(
            "teacher = \"guide\"---[teachers.guide]\nmodel = \"big\"\n[task]\ntasks_per_step = 3\ngroup_size = 5\n\
             [algorithm]\nname = \"drmas\"\n[algorithm.distill]\n{keys}"
        ))))
    };
    let warning = |plan: &Plan, purpose, machine| {
        super::super::machine::check_distribution_memory(plan, purpose, Some(machine))
    };
    let few = plan("kind = \"divergence\"\ntop_k = 16");
    let seats = few.seats.iter().filter(|seat| seat.teachers.is_some());
    let tokens: u64 = 15 * seats.map(|seat| seat.sampling.max_tokens as u64).sum::<u64>();
    let most = tokens * 16 * 8;
    assert_eq!(warning(&few, Purpose::Train, most), None);
    let said = warning(&few, Purpose::Train, most - 1).unwrap();
    assert!(
        said.contains("`algorithm.distill.top_k` is 16") && said.ends_with("lower it"),
        "{said}"
    );
    assert_eq!(warning(&few, Purpose::Eval, 0), None);
    // More tokens than the vocabulary has are those of the vocabulary.
    let all = plan("kind = \"divergence\"\ntop_k = 500000");
    let taught = all.seats.iter().find(|seat| seat.teachers.is_some()).unwrap();
    let vocab = all.workers[all.policies[taught.policy].worker].units.vocab as u64;
    assert_eq!(warning(&all, Purpose::Train, tokens * vocab * 8), None);
    assert!(warning(&all, Purpose::Train, tokens * vocab * 8 - 1).is_some());
    assert_eq!(warning(&plan("kind = \"advantage\""), Purpose::Train, 0), None);
}
