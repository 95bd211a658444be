#![allow(clippy::unwrap_used)]

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Given {
    #[command(flatten)]
    launch: LaunchArgs,
}

/// Returns what is printed for these words after `maverl launch`, or the problems.
fn printed(words: &str) -> Result<String, String> {
    let words = ["launch"].into_iter().chain(words.split(' '));
    let Given { launch: args } = Given::try_parse_from(words).map_err(|error| error.to_string())?;
    let job = Job::new(&args).map_err(|Failure(message)| message)?;
    match job.problems() {
        problems if problems.is_empty() => Ok(fill_template(args.system.template(), &job.values())),
        problems => Err(problems.join("\n")),
    }
}

#[test]
fn a_file_has_a_value_in_each_field_and_no_line_for_what_is_not_given() {
    let systems = [
        "slurm example:single",
        "slurm example:single --nodes 2 --gpus 8 --time 4:00:00 --partition gpu",
        "skypilot example:single --volume data",
        "skypilot example:single --gpus 8 --gpu H100 --image org/maverl:1 --volume data",
        "jobset example:single --volume data",
        "jobset example:single --gpus 8 --volume data",
        "mpijob example:single --ranks 4 --nodes 2 --volume data",
    ];
    for system in systems {
        let text = printed(system).unwrap();
        assert!(!text.contains("{{"), "{system}: {text}");
        assert!(text.contains("example:single --out runs/single"), "{system}: {text}");
        let has_gpus = text.contains("gpu") || text.contains("H100");
        assert_eq!(has_gpus, system.contains("gpus"), "{system}: {text}");
    }
    let eight = printed("jobset example:single --gpus 8 --volume data").unwrap();
    assert!(eight.contains("--ranks-per-node 8") && eight.contains("nvidia.com/gpu: 8"), "{eight}");
}

#[test]
fn the_settings_of_the_command_are_those_of_the_run() {
    let text = printed("slurm example:single --set task.group_size=2 --seed 7").unwrap();
    assert!(
        text.contains("set -- example:single --set task.group_size=2 --seed=7 --out"),
        "{text}"
    );
    assert!(text.contains("set -- --resume runs/single"), "{text}");
}

#[test]
fn every_reason_why_a_job_could_not_train_is_named_at_once() {
    for (words, expected) in [
        ("slurm", &["a job needs a configuration"][..]),
        (
            "slurm example:single --ranks 7 --nodes 2",
            &["`--ranks 7` cannot be divided among 2 machines"],
        ),
        (
            "slurm example:single --set runtime.device=\"cuda\"",
            &["`runtime.device`", "give `--gpus N`"],
        ),
        (
            "slurm example:single --set runtime.device=\"cuda\" --gpus 2 --ranks-per-node 4",
            &["has 4 ranks and `--gpus 2`"],
        ),
        ("slurm example:single --volume data", &["`--volume` has no effect with slurm"]),
        (
            "jobset example:single --partition gpu",
            &["`--partition` has no effect with jobset", "jobset needs `--volume NAME`"],
        ),
        ("skypilot example:single --gpus 8 --volume data", &["`--gpu H100`"]),
        ("slurm example:single --name My_Job", &["the job cannot be called `My_Job`"]),
        (
            "jobset example:single --volume data --mount data",
            &["`--mount data` is not a path from the root"],
        ),
        (
            "jobset example:single --volume data --out /runs/mine",
            &["`/runs/mine` is not below `/data`"],
        ),
        (
            "jobset example:single --volume data --set models.tiny.path=\"../models/qwen\"",
            &["model: `../models/qwen` is not below `/data`"],
        ),
        ("slurm example:single --time 1;2", &["expected letters, digits"]),
        ("slurm example:single --out runs/a\u{200c}b", &["is not shown"]),
    ] {
        let said = printed(words).unwrap_err();
        for part in expected {
            assert!(said.contains(part), "{words}: {said}");
        }
    }
}

#[test]
fn words_mean_themselves_to_shells_and_to_kubernetes() {
    let words = "--volume data --out runs/$(HOME)/{{resume}}";
    let pods = printed(&format!("jobset example:single {words}")).unwrap();
    assert!(pods.contains("--out 'runs/$$(HOME)/{{resume}}'; fi"), "{pods}");
    let machines = printed(&format!("skypilot example:single {words}")).unwrap();
    assert!(machines.contains("--out 'runs/$(HOME)/{{resume}}'; fi"), "{machines}");
    assert!(machines.contains("name: \"single\""), "{machines}");
}

#[test]
fn stages_are_resumed_by_the_command_that_began_them() {
    let job = printed("mpijob example:verifier/stages --ranks 2 --volume data").unwrap();
    let begin = "set -- example:verifier/stages --out runs/stages --set 'dist.transport=\"mpi\"'";
    assert_eq!(job.matches(begin).count(), 2, "{job}");
}

#[test]
fn stages_may_be_yaml_and_have_the_settings_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("hybrid.yaml", "stages:\n  - sft.yaml\n  - rl.toml\n");
    write("sft.yaml", "runtime:\n  device: \"cuda\"\n");
    write("rl.toml", "steps = 2\n");
    let stages = dir.path().join("hybrid.yaml").display().to_string();
    let said = printed(&format!("slurm {stages}")).unwrap_err();
    assert!(said.contains("sft.yaml: `runtime.device` is a GPU"), "{said}");
    assert!(!said.contains("rl.toml"), "{said}");
    let said = printed(&format!("slurm {stages} --set runtime.device=\"cuda\"")).unwrap_err();
    assert!(said.contains("rl.toml: `runtime.device` is a GPU"), "{said}");
    assert!(printed(&format!("slurm {stages} --gpus 1")).unwrap().contains("hybrid.yaml --out"));
    write("rl.toml", "stepz = 2\n");
    write("sft.yaml", "seedz: 2\n");
    let said = printed(&format!("slurm {stages} --gpus 1")).unwrap_err();
    assert!(said.contains("`stepz`") && said.contains("`seedz`"), "{said}");
}

#[test]
fn a_path_below_the_volume_is_on_it_wherever_it_is_written_from() {
    let words = "jobset example:single --volume data --out /data/team/../runs/mine";
    assert!(printed(words).unwrap().contains("--resume /data/team/../runs/mine"));
}

#[test]
fn names_of_jobs_are_those_that_clusters_accept() {
    let names = ["search_orchestra", "Run.V2", "9lives", "---", ""].map(job_name);
    assert_eq!(names, ["search-orchestra", "run-v2", "lives", "maverl", "maverl"]);
    assert_eq!(job_name(&"a".repeat(100)).len(), LONGEST_NAME);
}
