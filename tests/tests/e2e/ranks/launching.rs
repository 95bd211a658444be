//! Ranks that `--ranks-per-node` starts, and the files of `maverl launch`.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use maverl_tests::lab::{Ended, Lab, Run, train_args, wait_until};
use maverl_tests::port::PortLease;

use super::{Launched, SET, signal, train};
use crate::lab;

/// Settings of the runs that files of clusters start.
const VARIABLES: [(&str, &str); 2] =
    [("MAVERL_RUNTIME__THREADS", "1"), ("MAVERL_ALGORITHM__MAX_FLAT_STEPS", "100000")];

/// Stands in for Slurm: two ranks of a step on this machine, to which it passes SIGTERM.
const SRUN: &str = r#"#!/bin/sh
shift
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & first=$!
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & second=$!
asked=
trap 'asked=1; kill -TERM $first $second' TERM
wait $first; code=$?
[ -z "$asked" ] || { wait $first; code=$?; }
wait $second
exit $code
"#;

/// Writes a program into the directory `bin`.
fn write_program(lab: &Lab, name: &str, text: &str) {
    lab.write(&format!("bin/{name}"), text);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(lab.path("bin").join(name), mode).unwrap();
}

/// Returns a search path that begins with programs: `maverl`, and stand-ins for those of clusters.
pub(super) fn programs(lab: &Lab) -> String {
    let bin = lab.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_team"), bin.join("maverl")).unwrap();
    write_program(lab, "mpirun", "#!/bin/sh\nprintf '%s\\n' \"$*\"\n");
    write_program(lab, "srun", SRUN);
    write_program(lab, "scontrol", "#!/bin/sh\necho \"$*\" >> requeued\n");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// Returns what `maverl launch` prints.
pub(super) fn launch(lab: &Lab, path: &str, args: &str) -> String {
    let mut command = Command::new("maverl");
    command.arg("launch").args(args.split(' ')).env("PATH", path).current_dir(lab.path(""));
    Ended::of(&command.output().unwrap()).succeeded().stdout
}

/// Returns the block of a YAML file below a line that ends with a bar.
fn script(text: &str) -> String {
    let block = text.split_once(": |\n").or_else(|| text.split_once("- |\n")).unwrap().1;
    let deep = block.len() - block.trim_start().len();
    let lines =
        block.lines().take_while(|line| line.len() > deep && line[..deep].trim().is_empty());
    lines.map(|line| format!("{}\n", &line[deep..])).collect()
}

/// Returns a shell that runs a script as a machine of a cluster does.
fn shell(lab: &Lab, path: &str, script: &str) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).current_dir(lab.path("")).env("PATH", path).envs(VARIABLES);
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
fn the_examples_of_clusters_are_what_launch_prints() {
    let lab = lab();
    let path = programs(&lab);
    for (file, args) in [
        (
            "slurm.sbatch",
            "slurm run.toml --out runs/mine --name maverl --nodes 2 --gpus 8 --time 4:00:00",
        ),
        (
            "skypilot.yaml",
            "skypilot run.toml --out runs/mine --name maverl --nodes 2 --gpus 8 --gpu H100 --volume maverl",
        ),
        ("jobset.yaml", "jobset run.toml --out runs/mine --name maverl --nodes 4 --volume maverl"),
        (
            "mpijob.yaml",
            "mpijob run.toml --out runs/mine --name maverl --nodes 2 --ranks 4 --volume maverl",
        ),
    ] {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(file);
        let printed = launch(&lab, &path, args);
        if std::env::var_os("MAVERL_RECORD").is_some() {
            std::fs::write(&kept, &printed).unwrap();
        }
        let kept = std::fs::read_to_string(&kept).unwrap();
        assert!(
            kept == printed,
            "examples/{file} is not what `maverl launch {args}` prints (MAVERL_RECORD=1 writes it):\n{printed}"
        );
    }
}

#[test]
fn ranks_of_one_command_train_as_those_of_a_launcher() {
    let lab = lab();
    let launched = train(&lab, "launched", 2, &SET);
    let mut args = train_args("own", &SET);
    args.extend(["--ranks-per-node", "2"]);
    lab.run(&args).succeeded();
    let own = Run(lab.path("own"));
    assert_eq!(own.json("provenance.json")["ranks"], 2);
    assert_eq!(own.bytes("metrics.jsonl"), launched.bytes("metrics.jsonl"));
}

#[test]
fn a_signal_to_the_command_stops_its_ranks_in_order() {
    let lab = lab();
    let long = [&SET[..], &["steps=100000", "algorithm.max_flat_steps=100000"]].concat();
    let mut command = lab.command(&train_args("run", &long));
    command.args(["--ranks-per-node", "2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let metrics = lab.path("run/metrics.jsonl");
    wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
    signal(&child, "-TERM");
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let steps = Run(lab.path("run")).steps().len();
    let resumed = format!("steps={}", steps + 1);
    lab.run(&["train", "--resume", "run", "--set", &resumed, "--ranks-per-node", "2"]).succeeded();
}

#[test]
fn ranks_stop_in_order_when_the_command_that_started_them_is_killed() {
    let lab = lab();
    let long = [&SET[..], &["steps=100000", "algorithm.max_flat_steps=100000"]].concat();
    let mut command = lab.command(&train_args("run", &long));
    command.args(["--ranks-per-node", "2"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let [metrics, summary] =
        ["metrics.jsonl", "summary.json"].map(|file| lab.path("run").join(file));
    wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
    signal(&child, "-KILL");
    child.wait().unwrap();
    wait_until("the summary of the stopped run", || summary.exists());
}

#[test]
fn a_rank_that_fails_ends_the_command_with_its_error() {
    let lab = lab();
    // A directory that is no run.
    std::fs::create_dir(lab.path("run")).unwrap();
    lab.write("run/notes.txt", "mine");
    let mut args = train_args("run", &SET);
    args.extend(["--ranks-per-node", "2"]);
    lab.run(&args).failed().says(&["rank 0: ", "rank 1: rank 0 (", "ended the run: "]);
}

#[test]
fn a_wrong_configuration_is_reported_once_and_not_by_each_rank() {
    let lab = lab();
    lab.hybrid();
    let wrong = ["--ranks-per-node", "3", "--set", "task.data=\"nowhere.jsonl\""];
    for command in [
        &["train", "run.toml"][..],
        &["train", "run.toml", "--seeds", "0..2"],
        &["train", "hybrid.toml", "--set", "stepz=3"],
    ] {
        let ended = lab.run(&[command, &wrong].concat()).failed();
        assert_eq!(ended.stderr.matches("error: ").count(), 1, "{ended}");
        assert!(!ended.stderr.contains("rank "), "{ended}");
    }
    assert!(!lab.path("runs").exists());
}

#[test]
fn a_job_of_slurm_that_is_stopped_is_queued_again_and_resumes() {
    let lab = lab();
    let path = programs(&lab);
    let batch = launch(&lab, &path, "slurm run.toml --out runs/mine --nodes 2 --set steps=100000");
    let metrics = lab.path("runs/mine/metrics.jsonl");
    let written = || metrics.metadata().map_or(0, |file| file.len());
    for job in ["4711", "4712"] {
        let before = written();
        let child = shell(&lab, &path, &batch).env("SLURM_JOB_ID", job).spawn().unwrap();
        wait_until("a step", || written() > before);
        signal(&child, "-TERM");
        let ended = Ended::of(&child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    }
    let steps = Run(lab.path("runs/mine")).steps();
    assert!(steps.iter().zip(1..).all(|(row, step)| row["step"] == step), "{steps:?}");
    let queued = std::fs::read_to_string(lab.path("requeued")).unwrap();
    assert_eq!(queued, "requeue 4711\nrequeue 4712\n");
}

#[test]
fn two_machines_of_skypilot_train_as_four_ranks_of_a_launcher() {
    let lab = lab();
    let path = programs(&lab);
    let mount = lab.path("");
    let args = format!(
        "skypilot run.toml --set steps=3 --out runs/mine --nodes 2 --ranks-per-node 2 --volume data --mount {}",
        mount.display()
    );
    let script = script(&launch(&lab, &path, args.trim_end_matches('/')));
    let lease = PortLease::take();
    let start = |node: &str| {
        let mut shell = shell(&lab, &path, &script);
        shell.env("SKYPILOT_NODE_RANK", node).env("SKYPILOT_NUM_NODES", "2");
        shell
            .env("SKYPILOT_NODE_IPS", "127.0.0.1\n127.0.0.1")
            .env("SKYPILOT_NUM_GPUS_PER_NODE", "0");
        shell.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", lease.port.to_string());
        shell.spawn().unwrap()
    };
    let children = ["0", "1"].map(start).into();
    for ended in (Launched { children, port: None }).end() {
        ended.succeeded();
    }
    let mine = Run(lab.path("runs/mine"));
    assert_eq!(mine.json("provenance.json")["ranks"], 4);
    let launched = train(
        &lab,
        "launched",
        4,
        &["steps=3", "runtime.threads=1", "algorithm.max_flat_steps=100000"],
    );
    assert_eq!(mine.bytes("metrics.jsonl"), launched.bytes("metrics.jsonl"));
}

#[test]
fn the_script_of_the_job_set_starts_ranks_by_the_variables_of_kubernetes() {
    let lab = lab();
    let path = programs(&lab);
    let args = "jobset run.toml --set steps=3 --out runs/mine --nodes 2 --volume data";
    let script = script(&launch(&lab, &path, args));
    let lease = PortLease::take();
    let port = lease.port.to_string();
    let start = |rank: usize| {
        let mut shell = shell(&lab, &path, &script);
        shell.env("JOB_COMPLETION_INDEX", rank.to_string()).env("MAVERL_RANKS", "2");
        shell.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        shell.spawn().unwrap()
    };
    let children = (0..2).map(start).collect();
    for ended in (Launched { children, port: Some(lease) }).end() {
        ended.succeeded();
    }
    assert_eq!(Run(lab.path("runs/mine")).json("provenance.json")["ranks"], 2);
    assert!(script.contains("--resume runs/mine"), "{script}");
}

#[test]
fn the_script_of_the_job_of_the_mpi_operator_begins_a_run_over_mpi_and_resumes_it() {
    let lab = lab();
    let path = programs(&lab);
    let args = "mpijob run.toml --out runs/mine --nodes 2 --ranks 4 --volume data";
    let script = script(&launch(&lab, &path, args));
    let printed = || Ended::of(&shell(&lab, &path, &script).output().unwrap()).succeeded().stdout;
    let launch = "-n 4 --bind-to none maverl train";
    let begun = "run.toml --out runs/mine --set dist.transport=\"mpi\"";
    assert_eq!(printed(), format!("{launch} {begun}\n"));
    std::fs::create_dir_all(lab.path("runs/mine")).unwrap();
    assert_eq!(printed(), format!("{launch} --resume runs/mine\n"));
}
