//! Teachers: on-policy distillation as an advantage.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use maverl::run_dir::read_samples;
use maverl_tests::lab::{Lab, Run};
use serde_json::Value;

use crate::algorithms::replays;
use crate::lab;

const SHORT: [&str; 2] = ["steps=3", "eval.before_and_after=false"];
/// A model beside the policy's, which both agents name.
const MODELS: [&str; 3] = [
    "models.big.path=\"model\"",
    "agents.\"duo/opener\".model=\"tiny\"",
    "agents.\"duo/closer\".model=\"tiny\"",
];

/// Trains a model that differs from the one at the start, and names it as the model `big`.
fn trained_model(lab: &Lab) -> String {
    lab.train("earlier", &["steps=4", "eval.before_and_after=false"]);
    "models.big.path=\"earlier/checkpoints/step-000004/policies/tiny\"".to_owned()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

#[test]
fn a_teacher_equal_to_the_policy_changes_no_weight() {
    let lab = lab();
    let plain = lab.train("plain", &SHORT);
    let me = ["teachers.me.policy=\"self\"", "agents.\"duo/opener\".teacher=\"me\""];
    let itself = lab.train("itself", &[&SHORT[..], &me].concat());
    for (step, row) in itself.steps().iter().enumerate() {
        assert_eq!(row["distill/tiny/kl"], 0.0, "step {step}");
        assert_eq!(row["distill/tiny/first_token"], 0.0, "step {step}");
        let share = number(row, "distill/tiny/share");
        assert!(share > 0.1 && share < 0.9, "one of two seats has a teacher: {share}");
    }
    assert!(plain.weights(2, "tiny") == itself.weights(2, "tiny"));
    assert!(plain.weights(3, "tiny") == itself.weights(3, "tiny"));
    let alone =
        ["teachers.copy.model=\"big\"", "agents.\"duo/closer\".teacher=\"copy\"", "steps=1"];
    let set = [&SHORT[..], &MODELS, &alone, &["algorithm.distill.task_coef=0.0"]].concat();
    let copied = lab.train("copied", &set);
    assert_eq!(copied.steps()[0]["distill/tiny/kl"], 0.0, "the model of the policy at the start");
}

#[test]
fn two_seats_have_two_teachers_and_a_resumed_run_ends_equally() {
    let lab = lab();
    let big = trained_model(&lab);
    let teachers = [
        "algorithm.reference.every=2",
        "algorithm.distill.horizon=\"reply\"",
        "algorithm.distill.clip=2.0",
        "teachers.earlier.model=\"big\"",
        "teachers.me.policy=\"reference\"",
        "teachers.me.hint=\"{% if reward < 1 %}{{question}} {{success}}{% endif %}\"",
        "agents.\"duo/opener\".teacher=\"earlier\"",
        "agents.\"duo/closer\".teacher={ default = \"me\" }",
        "agents.\"duo/closer\".loss.distill_coef=0.1",
        "eval.before_and_after=false",
    ];
    let set = [&MODELS[..], &[&*big], &teachers].concat();
    let whole = lab.train("whole", &[&set[..], &["steps=4"]].concat());
    lab.train("parted", &[&set[..], &["steps=2"]].concat());
    lab.run(&["train", "--resume", "parted", "--steps", "4"]).succeeded();
    let parted = Run(lab.path("parted"));
    assert_eq!(whole.bytes("metrics.jsonl"), parted.bytes("metrics.jsonl"));
    assert!(whole.weights(4, "tiny") == parted.weights(4, "tiny"));
    let samples = read_samples(&whole.0.join("samples/step-000003.jsonl.zst")).unwrap();
    let episodes = whole.episodes(3);
    let terms = |agent: &str| -> Vec<Option<f64>> {
        let its = samples
            .samples
            .iter()
            .filter(|sample| episodes[sample.episode].turns[sample.turn].seat.agent == agent);
        its.map(|sample| sample.teacher).collect()
    };
    for sample in &samples.samples {
        let Some(teacher) = sample.teacher else { continue };
        let tokens = sample.token_advantages(sample.taught_tokens.len().max(1));
        let mean = tokens.iter().sum::<f64>() / tokens.len() as f64;
        for total in [sample.loss_advantage(), mean] {
            assert!((total - (sample.advantage + teacher)).abs() < 1e-9, "{sample:?}");
        }
    }
    let opener = terms("duo/opener");
    assert!(!opener.is_empty() && opener.iter().all(|term| term.is_some_and(|term| term != 0.0)));
    let closer = terms("duo/closer");
    assert!(closer.iter().any(Option::is_some), "{closer:?}");
    replays(&lab, "whole", 3);
}

#[test]
fn a_teacher_alone_moves_the_policy_towards_it() {
    let lab = lab();
    let big = trained_model(&lab);
    let set = [
        "steps=12",
        "eval.before_and_after=false",
        "task.group_size=1",
        "task.tasks_per_step=8",
        "algorithm.distill.task_coef=0.0",
        "algorithm.loss.invalid_reply_penalty=0.0",
        "teachers.earlier.model=\"big\"",
        "agents.\"duo/opener\".teacher=\"earlier\"",
        "agents.\"duo/closer\".teacher=\"earlier\"",
    ];
    let run = lab.train("run", &[&MODELS[..], &[&*big], &set].concat());
    let steps = run.steps();
    assert_eq!(number(&steps[0], "distill/tiny/share"), 1.0);
    let mean = |rows: &[Value]| {
        rows.iter().map(|row| number(row, "distill/tiny/kl")).sum::<f64>() / rows.len() as f64
    };
    let (first, last) = (mean(&steps[..3]), mean(&steps[9..]));
    assert!(first > 0.0 && last < 0.8 * first, "KL to the teacher {first} then {last}");
}

#[test]
fn a_divergence_alone_moves_the_policy_towards_the_teacher_and_a_resumed_run_ends_equally() {
    let lab = lab();
    let big = trained_model(&lab);
    let set = [
        "eval.before_and_after=false",
        "task.group_size=1",
        "task.tasks_per_step=8",
        "algorithm.distill.task_coef=0.0",
        "algorithm.distill.kind=\"divergence\"",
        "algorithm.distill.divergence=\"forward\"",
        "algorithm.distill.top_k=16",
        "algorithm.loss.invalid_reply_penalty=0.0",
        "teachers.earlier.model=\"big\"",
        "agents.\"duo/opener\".teacher=\"earlier\"",
        "agents.\"duo/closer\".teacher=\"earlier\"",
    ];
    let set = [&MODELS[..], &[&*big], &set].concat();
    let whole = lab.train("whole", &[&set[..], &["steps=12"]].concat());
    let steps = whole.steps();
    let mean = |rows: &[Value], name: &str| {
        rows.iter().map(|row| number(row, name)).sum::<f64>() / rows.len() as f64
    };
    for name in ["distill/tiny/divergence", "distill/tiny/kl"] {
        let (first, last) = (mean(&steps[..3], name), mean(&steps[9..], name));
        assert!(first > 0.0 && last < 0.8 * first, "{name}: {first} then {last}");
    }
    for name in ["mass", "teacher_entropy", "share"] {
        let found = number(&steps[0], &format!("distill/tiny/{name}"));
        assert!(found > 0.0 && found < 10.0, "{name}: {found}");
    }
    lab.train("parted", &[&set[..], &["steps=5"]].concat());
    lab.run(&["train", "--resume", "parted", "--steps", "12"]).succeeded();
    let parted = Run(lab.path("parted"));
    assert_eq!(whole.bytes("metrics.jsonl"), parted.bytes("metrics.jsonl"));
    assert!(whole.weights(12, "tiny") == parted.weights(12, "tiny"));
}

/// The divergence over the policy's own tokens from a model that was trained.
const STUDENT: [&str; 6] = [
    "eval.before_and_after=false",
    "algorithm.distill.task_coef=0.0",
    "algorithm.distill.kind=\"divergence\"",
    "algorithm.distill.support=\"student\"",
    "algorithm.distill.top_k=8",
    "teachers.earlier.model=\"big\"",
];

#[test]
fn a_divergence_over_the_policy_s_own_tokens_moves_it_towards_the_teacher() {
    let lab = lab();
    let big = trained_model(&lab);
    let both = [
        "steps=12",
        "task.group_size=1",
        "task.tasks_per_step=8",
        "algorithm.loss.invalid_reply_penalty=0.0",
        "agents.\"duo/opener\".teacher=\"earlier\"",
        "agents.\"duo/closer\".teacher=\"earlier\"",
    ];
    let run = lab.train("run", &[&MODELS[..], &[&*big], &STUDENT, &both].concat());
    let steps = run.steps();
    let mean = |rows: &[Value]| {
        let found = rows.iter().map(|row| number(row, "distill/tiny/divergence"));
        found.sum::<f64>() / rows.len() as f64
    };
    let (first, last) = (mean(&steps[..3]), mean(&steps[9..]));
    println!("divergence {first:.4} in the first steps, {last:.4} in the last");
    assert!(first > 0.0 && last < 0.8 * first, "{first} then {last}");
    let mass = number(&steps[0], "distill/tiny/mass");
    assert!(mass > 0.0 && mass < 1.0, "{mass}");
}

#[test]
fn a_run_that_compares_the_policy_s_own_tokens_resumes_equally_and_is_the_same_on_two_ranks() {
    let lab = lab();
    let big = trained_model(&lab);
    let hinted = [
        "teachers.me.policy=\"reference\"",
        "teachers.me.hint=\"{{question}}\"",
        "agents.\"duo/opener\".teacher=\"earlier\"",
        "agents.\"duo/closer\".teacher=\"me\"",
        "runtime.threads=1",
    ];
    let set = [&MODELS[..], &[&*big], &STUDENT, &hinted].concat();
    let whole = lab.train("whole", &[&set[..], &["steps=4"]].concat());
    lab.train("parted", &[&set[..], &["steps=2"]].concat());
    lab.run(&["train", "--resume", "parted", "--steps", "4"]).succeeded();
    let parted = Run(lab.path("parted"));
    assert_eq!(whole.bytes("metrics.jsonl"), parted.bytes("metrics.jsonl"));
    assert!(whole.weights(4, "tiny") == parted.weights(4, "tiny"));
    replays(&lab, "whole", 4);
    let short = [&set[..], &["steps=2"]].concat();
    let (one, two) = (lab.train("one", &short), crate::ranks::train(&lab, "two", 2, &short));
    crate::ranks::alike(&one, &two);
}

#[test]
fn the_divergence_from_the_policy_itself_is_zero_and_changes_no_weight() {
    let lab = lab();
    let plain = lab.train("plain", &SHORT);
    let me = ["teachers.me.policy=\"self\"", "agents.\"duo/opener\".teacher=\"me\""];
    for support in ["teacher", "student"] {
        let over = format!("algorithm.distill.support=\"{support}\"");
        let divergence = ["algorithm.distill.kind=\"divergence\"", &over];
        let itself =
            lab.train(&format!("itself-{support}"), &[&SHORT[..], &me, &divergence].concat());
        for row in itself.steps() {
            assert_eq!(row["distill/tiny/divergence"], 0.0, "{row}");
            assert_eq!(row["distill/tiny/kl"], 0.0, "{row}");
        }
        assert!(plain.weights(3, "tiny") == itself.weights(3, "tiny"));
    }
}

/// A server of a run's policies, which ends with the test.
struct PolicyServer(Child);

impl Drop for PolicyServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server of the last policies of a run. Returns it and its address.
fn serve_run(lab: &Lab, run: &str) -> (PolicyServer, String) {
    let args = ["serve", "model", "--run", run, "--checkpoint", "last", "--address", "127.0.0.1:0"];
    let mut child =
        lab.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
    (PolicyServer(child), told["listening"].as_str().unwrap().to_owned())
}

#[test]
fn a_teacher_on_a_server_scores_as_the_same_model_in_this_process() {
    let lab = lab();
    let big = trained_model(&lab);
    let taught = ["agents.\"duo/opener\".teacher=\"far\"", "checkpoint.every=1"];
    let set = [&SHORT[..], &MODELS, &[&*big], &taught].concat();
    let here = lab.train("here", &[&set[..], &["teachers.far.model=\"big\""]].concat());
    let (server, address) = serve_run(&lab, "earlier");
    let url = format!("endpoints.served.url=\"{address}/v1\"");
    let endpoint = [&*url, "endpoints.served.model=\"tiny\"", "teachers.far.endpoint=\"served\""];
    let there = lab.train("there", &[&set[..], &endpoint].concat());
    for (here, there) in here.steps().iter().zip(&there.steps()) {
        for name in ["kl", "first_token", "share", "length"] {
            let name = format!("distill/tiny/{name}");
            assert_eq!(here[&name], there[&name], "{name}");
        }
    }
    assert!(here.weights(3, "tiny") == there.weights(3, "tiny"));
    drop(server);
    replays(&lab, "there", 3);
    let refused = lab.fails("refused", &[&set[..], &endpoint].concat());
    refused.says(&["endpoint `served`"]);
}
