//! The programs in `hostile/`: what each tries is said in its first line. A program that gets what it must not get prints
//! `ESCAPED`; each defines a candidate that would be wrong, or cheats.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rayon::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    wall: Duration::from_millis(1000),
    cpu: Duration::from_millis(1000),
    memory: 256 << 20,
    output: 1 << 20,
    files: 16 << 20,
    threads: 16,
};

/// How much later than its limit a program may end on a busy machine.
const GRACE: Duration = Duration::from_millis(2000);

/// Five values and no pattern: nothing but the right function gives them. What is `expected` is there to be found.
const TEST: &str = "
expected = 1234
def check(candidate):
    expected = [(2, 5), (3, 11), (5, 29), (8, 71), (12, 155)]
    for x, y in expected:
        assert candidate(x) == y
    assert candidate(100) == 10099
";

fn programs() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let named = |path: PathBuf| {
        let source = fs::read_to_string(&path).unwrap();
        (path.file_stem().unwrap().to_string_lossy().into_owned(), source)
    };
    let here = |(_, source): &(String, String)| {
        // Numbers of system calls are those of one processor type.
        cfg!(target_arch = "x86_64") || !source.contains("libc.syscall(")
    };
    paths.into_iter().map(named).filter(here).collect()
}

/// What is wrong with how a program was held; empty if nothing is.
fn problems(sandbox: &Sandbox, name: &str, source: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let begin = Instant::now();
    let tests = [Test::Check { check: TEST.to_owned() }];
    let exam = Exam { source, entry: "solve", setup: "", tests: &tests };
    match sandbox.examine(&exam, &LIMITS) {
        Ok(report) if report.points == 0 && !report.passed() => {}
        other => problems.push(format!("{name}: judged {other:?}")),
    }
    let judged = begin.elapsed();
    let output = match sandbox.run(source, b"", &LIMITS) {
        Ok(output) => output,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let ran = begin.elapsed() - judged;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if line.starts_with("ESCAPED") {
            problems.push(format!("{name}: {line}"));
        }
    }
    if output.stdout.len() > LIMITS.output || output.stderr.len() > LIMITS.output {
        problems.push(format!("{name}: too much output was kept"));
    }
    for (what, time) in [("judging", judged), ("running", ran)] {
        if time > LIMITS.wall + GRACE {
            problems.push(format!("{name}: {what} took {time:?}"));
        }
    }
    problems
}

/// Children of this process, whether they run or wait to be waited for.
fn children() -> BTreeSet<String> {
    let me = std::process::id().to_string();
    let stats = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let ours = stats.filter(|stat| {
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        after.split_whitespace().nth(1) == Some(&me)
    });
    ours.collect()
}

/// Files that a program left where it could.
fn left_behind() -> Vec<PathBuf> {
    let home = std::env::var("HOME").unwrap_or_default();
    let places =
        ["/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/mnt", "/usr", "/usr/lib", "/etc", &home];
    let names = ["maverl-escaped", "big", "sparse", "link0", "hard"];
    let paths = places.iter().flat_map(|place| names.map(|name| Path::new(place).join(name)));
    paths.filter(|path| path.symlink_metadata().is_ok()).collect()
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// Runs every program, and looks at the machine afterwards.
fn held(sandbox: &Sandbox, programs: &[(String, String)]) -> Vec<String> {
    let (files, mounted) = (left_behind(), mounts());
    let mut problems: Vec<String> =
        programs.par_iter().flat_map(|(name, source)| problems(sandbox, name, source)).collect();
    if left_behind() != files {
        problems.push(format!("files are left: {:?}", left_behind()));
    }
    if mounts() != mounted {
        problems.push("mounts are left".to_owned());
    }
    problems
}

/// One test, so that no other thread has children meanwhile: with all layers, and with each of two left out.
#[test]
fn hostile_programs_get_nothing_and_leave_nothing() {
    let Some(full) = sandbox() else { return };
    let programs = programs();
    assert!(programs.len() >= 40 || !cfg!(target_arch = "x86_64"), "{}", programs.len());
    let begin = Instant::now();
    let mut wrong = held(full, &programs);
    let whole = begin.elapsed();
    let with = |root, landlock| Sandbox {
        python: Python::find("python3").unwrap(),
        filter: Filter::new().ok(),
        landlock,
        root,
        missing: Vec::new(),
    };
    let paths = &full.python.paths;
    // What ends by its limits does so in the same way; the others are quick.
    let quick: Vec<(String, String)> = programs
        .iter()
        .filter(|(_, source)| !source.contains("while True") && !source.contains("sleep"))
        .cloned()
        .collect();
    let prefixed = |layer: &str, problems: Vec<String>| -> Vec<String> {
        problems.iter().map(|problem| format!("without {layer}: {problem}")).collect()
    };
    if full.landlock.is_some() {
        let alone = with(None, Landlock::new(paths).ok());
        wrong.extend(prefixed("namespaces", held(&alone, &quick)));
    }
    if full.root.is_some() {
        let alone = with(Root::new(paths).ok(), None);
        wrong.extend(prefixed("Landlock", held(&alone, &quick)));
    }
    println!(
        "{} programs in {:.1} s with all layers, {:.1} s in all",
        programs.len(),
        whole.as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The process namespace alone: whatever a program starts ends with it.
#[test]
fn a_process_takes_its_descendants_with_it() {
    let Some(full) = sandbox() else { return };
    if full.root.is_none() {
        eprintln!("skipped: this machine lacks namespaces");
        return;
    }
    let open = Sandbox {
        python: Python::find("python3").unwrap(),
        filter: None,
        landlock: None,
        root: Root::new(&full.python.paths).ok(),
        missing: Vec::new(),
    };
    let source = "
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv('/proc/self/exe', ['x']) if os.path.exists('/proc/self/exe') else time.sleep(1000)
    os._exit(0)
os.wait()
print('left one behind')
";
    let output = open.run(source, b"", &LIMITS).unwrap();
    assert_eq!(output.stdout, b"left one behind\n", "{output:?}");
}

#[test]
fn nothing_outlives_a_panic_or_a_kill_of_its_parent() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import time\nprint('up', flush=True)\ntime.sleep(1000)";
    let started = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (near, far) = wire().unwrap();
            let mut program = sandbox.start(PROGRAM, &[], far, &LIMITS).unwrap();
            program.feed(near, source.as_bytes()).unwrap();
            // Never dropped: the thread ends, and what it started must end with it.
            let process = program.number();
            std::mem::forget(program);
            process
        });
        thread.join().unwrap()
    });
    let path = format!("/proc/{started}/stat");
    let state = || fs::read_to_string(&path).ok()?.rsplit_once(") ")?.1.chars().next();
    for _ in 0..200 {
        if matches!(state(), None | Some('Z')) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("process {started} outlives the thread that started it: {:?}", children());
}
