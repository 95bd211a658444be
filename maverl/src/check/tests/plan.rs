//! The plan as it is written out and shown.

use super::*;
use crate::plan::{json, table};

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
        let plan = super::super::check(&text(toml), &everything(), Purpose::Train).unwrap();
        let resolved = toml::to_string(&plan.config).unwrap();
        let again = super::super::check(&text(&resolved), &everything(), Purpose::Train)
            .unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())));
        assert_eq!(again, plan, "{resolved}");
    }
}

#[test]
fn an_environment_is_planned_without_a_team() {
    let check = |toml: &str| super::super::check(&text(toml), &everything(), Purpose::Environment);
    let plan = check("[environment]\nname = \"library\"\n").unwrap();
    assert_eq!(plan.environment.name, "library");
    assert!(plan.seats.is_empty() && plan.policies.is_empty() && plan.workers.is_empty());
    for (toml, wanted) in [
        ("[environment]\nname = \"libary\"\n", "no environment is called `libary`"),
        ("[environment]\nname = \"library\"\n[task]\ndata = \"none.jsonl\"\n", "none.jsonl"),
        ("", "`environment.name` is not set"),
    ] {
        let found = render(&check(toml).unwrap_err(), GraphicalTheme::none());
        assert!(found.contains(wanted) && !found.contains("orchestra"), "{found}");
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
        "by = \"task_seat\"",
        "lr = 0.000001",
        "worker_group = \"tiny\"",
        "frozen = false",
        "examples = 2",
    ] {
        assert!(resolved.lines().any(|found| found == line), "no {line:?} in\n{resolved}");
    }
}

#[test]
fn the_table_says_what_a_step_means() {
    let mut plan = super::super::check(&text(DEBATE), &everything(), Purpose::Train).unwrap();
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
checkpoints: 22.89 MiB, copied in memory between two steps, and written while the run goes on
"#;
    same(&table(&plan, 200), expected);
    let one = table(&plan_of(&text("steps = 1")), 200);
    assert!(one.starts_with("search/route on library, 1 step of drmas"), "{one}");
}

#[test]
fn the_table_fits_60_80_and_120_columns() {
    let adapters = format!("{DEBATE}[models.small.lora]\nrank = 4\n[task]\nmax_level = 3\n");
    let plan = super::super::check(&text(&adapters), &everything(), Purpose::Train).unwrap();
    for width in [60, 80, 120] {
        let text = table(&plan, width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let parts = ["debate/debater#1", "adapter of rank 4", "each time every", "warning: "];
        for part in parts {
            assert!(plain.contains(part), "{part} is missing at {width}\n{text}");
        }
    }
}

#[test]
fn the_plan_for_machines_has_numbers_and_the_whole_plan() {
    let plan = plan_of(&text("[sampling]\ntemperature = 0.8"));
    let text = json(&plan);
    assert!(text.contains("\"temperature\": 0.8,"), "floats are short: {text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["summary"]["step"]["episodes"], 128);
    assert_eq!(value["summary"]["step"]["samples_per_call"], 384);
    assert_eq!(value["plan"]["seats"][0]["seat"], "search/answerer");
    assert_eq!(value["plan"]["config"]["task"]["group_size"], 8);
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

#[test]
fn the_memory_of_an_optimizer_is_planned() {
    let worker = |kind: &str| {
        let file = format!("[models.tiny]\npath = \"builtin:tiny\"\noptim.kind = {kind:?}\n");
        plan_of(&text(&file)).summary().workers[0].clone()
    };
    let (whole, eight, muon) = (worker("adamw"), worker("adamw8bit"), worker("muon"));
    let n = whole.trainable_parameters;
    assert_eq!((whole.moment_bytes, muon.moment_bytes), (8 * n, 8 * n));
    assert_eq!(eight.moment_bytes, 2 * n + 8 * n.div_ceil(256));
    assert_eq!(eight.trained_bytes, 4 * n);
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let shape = crate::files::HfConfig::load(&files).unwrap();
    let work = crate::plan::muon_bytes(&shape);
    assert_eq!(muon.activation_bytes, whole.activation_bytes.max(work));
    assert!(work > 0 && eight.activation_bytes == whole.activation_bytes);
}
