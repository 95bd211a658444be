//! Runs with damaged files: they resume with the same results, or the error names the file.

use super::*;
use crate::rng::SplitMix64;

/// Returns the number of damages: 100 in the first tier, 400 in the second (`MAVERL_FULL`); overridden by `MAVERL_FUZZ_CASES`.
fn cases() -> u64 {
    let set = std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok());
    set.unwrap_or(if std::env::var_os("MAVERL_FULL").is_some() { 400 } else { 100 })
}

/// Returns every file below a directory, by its path in it.
fn files(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for path in entries(dir).unwrap() {
        if path.is_dir() {
            files.extend(self::files(&path).iter().map(|f| format!("{}/{f}", name(&path))))
        } else {
            files.push(name(&path))
        }
    }
    files
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        fs::create_dir_all(to.join(&file).parent().unwrap()).unwrap();
        fs::copy(from.join(&file), to.join(&file)).unwrap();
    }
    for part in ["rollouts", "evaluations", "checkpoints"] {
        fs::create_dir_all(to.join(part)).unwrap();
    }
}

/// Damages a file, and returns a description.
fn damage(path: &Path, draw: &mut SplitMix64) -> String {
    let mut bytes = fs::read(path).unwrap();
    match draw.index(6) {
        0 => {
            fs::remove_file(path).unwrap();
            return "removed".to_owned();
        }
        1 => {
            let length = draw.index(bytes.len().max(1));
            bytes.truncate(length);
            fs::write(path, bytes).unwrap();
            return format!("cut to {length} bytes");
        }
        2 => bytes.extend_from_slice(b"{}\n"),
        // A digit of a number that stays valid.
        3 if bytes.iter().any(u8::is_ascii_digit) => {
            let digits: Vec<usize> =
                (0..bytes.len()).filter(|&at| bytes[at].is_ascii_digit()).collect();
            let at = digits[draw.index(digits.len())];
            bytes[at] = b'0' + (bytes[at] - b'0' + 1 + draw.index(9) as u8) % 10;
            fs::write(path, bytes).unwrap();
            return format!("digit {at} changed");
        }
        _ if bytes.is_empty() => bytes.push(b'x'),
        _ => {
            let at = draw.index(bytes.len());
            bytes[at] ^= 1 << draw.index(8);
            fs::write(path, bytes).unwrap();
            return format!("bit of byte {at} flipped");
        }
    }
    fs::write(path, bytes).unwrap();
    "added to".to_owned()
}

/// Runs in different states: complete, killed between checkpoints, stopped.
async fn standing(home: &Path) -> Vec<std::path::PathBuf> {
    let complete = home.join("complete");
    train(RunLocation::New(complete.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    let stopped = home.join("stopped");
    let mut work = Stirring::new(u32::MAX);
    work.interrupt.0 = 5;
    train(RunLocation::New(stopped.clone()), 7, work).await.unwrap();
    let mut all = vec![complete, stopped];
    for fuse in [3, 9, 15, 19] {
        let killed = home.join(format!("killed-{fuse}"));
        train(RunLocation::New(killed.clone()), 7, Stirring::new(fuse)).await.unwrap_err();
        all.push(killed);
    }
    all
}

#[tokio::test]
async fn a_damaged_file_is_named_or_makes_no_difference() {
    let home = home();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 10, Stirring::new(u32::MAX)).await.unwrap();
    let expected = outcome(&whole);
    let runs = standing(home.path()).await;
    let mut draw = SplitMix64::new(11);
    let (mut refused, mut equal) = (0, 0);
    for case in 0..cases() {
        let run = &runs[draw.index(runs.len())];
        let all = files(run);
        let file = &all[draw.index(all.len())];
        let dir = home.path().join("damaged");
        copy(run, &dir);
        let how = damage(&dir.join(file), &mut draw);
        let what = format!("case {case}: `{file}` of `{}` {how}", name(run));
        match train(RunLocation::Resume(dir.clone()), 10, Stirring::new(u32::MAX)).await {
            Ok(_) => {
                assert_eq!(outcome(&dir), expected, "{what}");
                equal += 1;
            }
            Err(error) => {
                let error = error.to_string();
                // The error names the file, or the directory if the file identifies it.
                let named = error.contains(&*dir.join(file).to_string_lossy())
                    || (file == MANIFEST && error.contains("not a run directory"))
                    || (file.ends_with("/manifest.json") && error.contains(file.as_str()));
                assert!(named, "{what}: {error}");
                refused += 1;
            }
        }
        fs::remove_dir_all(&dir).unwrap();
    }
    println!("{refused} refused by name, {equal} equal to the byte");
    assert!(refused > equal && equal > 0, "{refused} refused, {equal} equal");
}

#[tokio::test]
async fn a_finished_run_with_altered_files_is_not_gone_on_with_and_all_of_them_are_named() {
    let home = home();
    let dir = home.path().join("a");
    train(RunLocation::New(dir.clone()), 3, Stirring::new(u32::MAX)).await.unwrap();
    let alter = |file: &str| {
        let path = dir.join(file);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    };
    for file in ["rollouts/step-000002.jsonl.zst", "evaluations/before.json", "timing.jsonl"] {
        alter(file);
    }
    for steps in [3, 7] {
        let error = train(RunLocation::Resume(dir.clone()), steps, Stirring::new(u32::MAX)).await;
        let error = error.unwrap_err().to_string();
        let names = ["step-000002.jsonl.zst", "before.json"];
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
        assert_eq!(error.matches("checksum").count(), 3, "{error}");
    }
}
