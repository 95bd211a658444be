//! Damaged files of a run directory: the run resumes with the same results, or the error names the file.

use std::fs;
use std::path::Path;

use maverl::rng::SplitMix64;
use maverl_tests::lab::{Run, train_args};

use crate::lab;

/// Returns the number of damages; overridden by `MAVERL_FUZZ_CASES`.
fn cases() -> usize {
    std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(10)
}

const SET: [&str; 3] = ["steps=2", "checkpoint.every=1", "eval.every=1"];

/// Returns every file below a directory, by its path in it.
fn files(dir: &Path, part: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir.join(part)).unwrap() {
        let name = part.join(entry.unwrap().file_name());
        if dir.join(&name).is_dir() {
            found.extend(files(dir, &name))
        } else {
            found.push(name.to_string_lossy().into_owned())
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from, Path::new("")) {
        fs::create_dir_all(to.join(&file).parent().unwrap()).unwrap();
        fs::copy(from.join(&file), to.join(&file)).unwrap();
    }
}

/// Damages a file, and returns a description.
fn damage(path: &Path, draw: &mut SplitMix64) -> String {
    let mut bytes = fs::read(path).unwrap();
    let how = match draw.index(4) {
        0 => {
            fs::remove_file(path).unwrap();
            return "removed".to_owned();
        }
        1 if !bytes.is_empty() => {
            bytes.truncate(draw.index(bytes.len()));
            format!("cut to {} bytes", bytes.len())
        }
        2 if !bytes.is_empty() => {
            let (at, bit) = (draw.index(bytes.len()), draw.index(8));
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        _ => {
            bytes.extend_from_slice(b"0\n");
            "added to".to_owned()
        }
    };
    fs::write(path, bytes).unwrap();
    how
}

/// Returns the step of the checkpoint that a file belongs to, unless it is the newest one.
fn older_step(all: &[String], file: &str) -> Option<String> {
    let step = |file: &str| -> Option<u64> {
        file.strip_prefix("checkpoints/step-")?.split('/').next()?.parse().ok()
    };
    let newest = all.iter().filter_map(|file| step(file)).max()?;
    step(file).filter(|step| *step < newest).map(|step| step.to_string())
}

#[test]
fn a_damaged_file_of_a_run_is_named_or_makes_no_difference() {
    let lab = lab();
    let whole = lab.train("whole", &[&["steps=3"], &SET[1..]].concat());
    lab.train("complete", &SET);
    // Killed after the second step's files were written, before its checkpoint.
    let killed = [&SET[..], &["environment.delay_ms=60"]].concat();
    let mut child = lab.command(&train_args("killed", &killed)).spawn().unwrap();
    let run = Run(lab.path("killed"));
    maverl_tests::lab::wait_until("the first checkpoint", || {
        run.0.join("checkpoints/step-000001").exists()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let killed_whole = [&killed[1..], &["steps=3"]].concat();
    let baselines = [whole, lab.train("killed-whole", &killed_whole)];
    let (mut draw, mut refused) = (SplitMix64::new(3), 0);
    for case in 0..cases() {
        let which = draw.index(2);
        let from = lab.path(["complete", "killed"][which]);
        let all = files(&from, Path::new(""));
        // Equally many damages for each kind of file, whatever the number of such files.
        let kinds: std::collections::BTreeSet<String> =
            all.iter().map(|file| file.replace(|c: char| c.is_ascii_digit(), "")).collect();
        let kind = kinds.iter().nth(draw.index(kinds.len())).unwrap();
        let of_kind = |file: &&String| file.replace(|c: char| c.is_ascii_digit(), "") == *kind;
        let of_kind: Vec<&String> = all.iter().filter(of_kind).collect();
        let file = of_kind[draw.index(of_kind.len())];
        let run = Run(lab.path("damaged"));
        copy(&from, &run.0);
        let how = damage(&run.0.join(file), &mut draw);
        let what =
            format!("case {case}: `{file}` of a {} run {how}", ["complete", "killed"][which]);
        let ended = lab.run(&["train", "--resume", "damaged", "--steps", "3"]);
        match ended.code {
            Some(0) => {
                println!("{what}: no difference");
                if let Some(step) = older_step(&all, file)
                    && run.0.join(file).parent().is_some_and(Path::is_dir)
                {
                    // An older checkpoint is verified when it is used. One that was removed, as there are enough
                    // newer ones, is not.
                    let eval = ["eval", "--run", "damaged", "--checkpoint", &step];
                    lab.run(&eval).failed().says(&[file.as_str()]);
                    fs::copy(from.join(file), run.0.join(file)).unwrap();
                }
                run.equals(&baselines[which]);
            }
            _ => {
                let ended = ended.failed();
                let named = ended.stderr.contains(file.as_str())
                    || (file == "manifest.json" && ended.stderr.contains("not a run directory"));
                assert!(named, "{what}: {ended}");
                refused += 1;
            }
        }
        fs::remove_dir_all(&run.0).unwrap();
    }
    println!("{refused} of {} refused by name, the others equal to the byte", cases());
}
