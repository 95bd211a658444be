//! Files of `maverl launch`, read by the programs for which they are: `tests/python/launch_files.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use maverl_tests::lab::{Ended, Lab};

use super::launching::{launch, programs};
use crate::lab;

/// Arguments of `maverl launch` for files with few fields, with all, and with words that need quotes.
const JOBS: [&str; 12] = [
    "slurm run.toml",
    "slurm run.toml --nodes 2 --gpus 8 --time 4:00:00 --partition gpu",
    "slurm run.toml --set task.split=a'b\"$HOME`id` --out runs/$(HOME)",
    "slurm hybrid.toml --ranks 4 --nodes 2",
    "skypilot run.toml --volume data",
    "skypilot run.toml --nodes 2 --gpus 8 --gpu H100 --image org/maverl:1 --volume data",
    "skypilot hybrid.toml --volume data --mount /mnt/data --name yes --out runs/$HOME --set task.split=yes:#",
    "jobset run.toml --volume data",
    "jobset hybrid.toml --nodes 2 --gpus 8 --image org/maverl:1 --volume 0123 --set task.split=a'b\"$HOME --out runs/$(HOME)",
    "mpijob run.toml --volume data",
    "mpijob run.toml --nodes 2 --gpus 8 --image org/maverl:1 --volume data",
    "mpijob hybrid.toml --ranks 4 --nodes 2 --volume yes --set task.split=a'b\"$HOME --out runs/$(HOME)",
];

/// Returns the Python of the tests, first one with SkyPilot. Without one, says that the test is skipped.
fn python() -> Option<PathBuf> {
    let given = std::env::var_os("MAVERL_TEST_PYTHON").map(PathBuf::from);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let pythons = [given, Some(tests.join(".venv-launch/bin/python")), Some("python3".into())];
    let works = |python: &PathBuf, program: &str| {
        Command::new(python).args(["-c", program]).output().is_ok_and(|out| out.status.success())
    };
    let finds = "import importlib.util, sys; sys.exit(importlib.util.find_spec('sky') is None)";
    let pythons: Vec<PathBuf> = pythons.into_iter().flatten().collect();
    let found = [finds, ""].iter().find_map(|program| pythons.iter().find(|p| works(p, program)));
    if found.is_none() {
        println!("skipped: there is no Python here");
    }
    found.cloned()
}

/// Writes the file of each job, and returns their names.
fn write_files(lab: &Lab, path: &str) -> Vec<String> {
    lab.hybrid();
    let write = |(n, args): (usize, &&str)| {
        let (system, _) = args.split_once(' ').unwrap();
        let name = format!("{system}-{n}.{}", if system == "slurm" { "sbatch" } else { "yaml" });
        lab.write(&name, &launch(lab, path, args));
        name
    };
    JOBS.iter().enumerate().map(write).collect()
}

#[test]
fn the_programs_of_clusters_accept_what_launch_prints() {
    let Some(python) = python() else { return };
    let lab = lab();
    let files = write_files(&lab, &programs(&lab));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/launch_files.py");
    let mut command = Command::new(python);
    command.arg(script).args(&files).current_dir(lab.path("")).env("HOME", lab.path("home"));
    let ended = Ended::of(&command.output().unwrap());
    println!("{}", ended.stdout);
    ended.succeeded();
}
