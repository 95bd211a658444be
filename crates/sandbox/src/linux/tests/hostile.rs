//! Runs the programs in `hostile/`. The first line of each describes its attack. A program that succeeds prints
//! `ESCAPED`; each defines a candidate that is wrong, or cheats.

mod outside;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rayon::prelude::*;

use self::outside::Outside;
use super::*;

const LIMITS: ProgramLimits = ProgramLimits {
    wall: Duration::from_millis(1000),
    cpu: Duration::from_millis(1000),
    memory: 256 << 20,
    output: 1 << 20,
    files: 16 << 20,
    threads: 16,
};

/// The delay after its limit within which a program must end: a busy machine cannot miss it, and programs without an end do.
const GRACE: Duration = Duration::from_secs(120);

/// Five values without a pattern: only the right function returns them. `expected` is present as bait.
const TEST: &str = "
expected = 1234
def check(candidate):
    expected = [(2, 5), (3, 11), (5, 29), (8, 71), (12, 155)]
    for x, y in expected:
        assert candidate(x) == y
    assert candidate(100) == 10099
";

/// Name and source.
type Program = (String, String);

fn programs() -> Vec<Program> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let named = |path: PathBuf| {
        let source = fs::read_to_string(&path).unwrap();
        (path.file_stem().unwrap().to_string_lossy().into_owned(), source)
    };
    let here = |(_, source): &Program| {
        // Numbers of system calls are specific to the processor type.
        cfg!(target_arch = "x86_64") || !source.contains("libc.syscall(")
    };
    paths.into_iter().map(named).filter(here).collect()
}

/// The same pairs, in a form that ends silently if the candidate can end a loop.
const LAZY: &str = "
pairs = [(2, 5), (3, 11), (5, 29), (8, 71), (12, 155), (100, 10099)]
assert all(map(lambda pair: candidate(pair[0]) == pair[1], pairs))
";

/// The same pairs, in a `unittest`.
const CASES: &str = "
import unittest
class Pairs(unittest.TestCase):
    def test_pairs(self):
        for x, y in [(2, 5), (3, 11), (5, 29), (8, 71), (12, 155), (100, 10099)]:
            self.assertEqual(candidate(x), y)
unittest.main()
";

fn tests() -> Vec<ExamTest> {
    let code = |code: &str| ExamTest::Code { code: code.to_owned() };
    vec![ExamTest::Check { check: TEST.to_owned() }, code(LAZY), code(CASES)]
}

/// Runs a program as a candidate, and returns the failures of its containment.
fn judged(sandbox: &Sandbox, name: &str, source: &str) -> Vec<String> {
    let (begin, tests) = (Instant::now(), tests());
    let exam = Exam { source, entry: "solve", setup: "", tests: &tests, ..Exam::default() };
    let [tests, candidate] = match sandbox.examine_outputs(&exam, &LIMITS) {
        Ok(outputs) => outputs,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let mut problems = match ExamReport::from_outputs(&exam, &tests, &candidate) {
        Ok(report) if report.points == 0 && !report.passed() => Vec::new(),
        other => vec![format!("{name}: judged {other:?}")],
    };
    problems.extend(kept(name, "judging", &candidate, begin.elapsed()));
    problems
}

/// Runs a program alone, and returns the failures of its containment.
fn ran(sandbox: &Sandbox, name: &str, source: &str) -> Vec<String> {
    let begin = Instant::now();
    match sandbox.run(source, b"", &LIMITS) {
        Ok(output) => kept(name, "running", &output, begin.elapsed()),
        Err(error) => vec![format!("{name}: {error}")],
    }
}

/// Returns the problems with a program's leftovers and its time.
fn kept(name: &str, what: &str, output: &Output, time: Duration) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stdout);
    let escaped = said.lines().filter(|line| line.starts_with("ESCAPED")).take(3);
    let mut problems: Vec<String> = escaped.map(|line| format!("{name}: {what}: {line}")).collect();
    if output.stdout.len() > LIMITS.output || output.stderr.len() > LIMITS.output {
        problems.push(format!("{name}: {what}: too much output was kept"));
    }
    if time > LIMITS.wall + GRACE {
        problems.push(format!("{name}: {what} took {time:?}"));
    }
    problems
}

/// Returns the state of each child of a process, running or zombie, from the system.
fn children_stats(parent: &str) -> Vec<String> {
    let stats = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let ours = stats.filter(|stat| {
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        after.split_whitespace().nth(1) == Some(parent)
    });
    ours.collect()
}

/// Returns the files that a program left in writable places.
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

/// A way to run a hostile program.
type Way = fn(&Sandbox, &str, &str) -> Vec<String>;

/// Runs every program, and inspects the machine afterwards.
fn held(
    sandbox: &Sandbox,
    outside: &mut Outside,
    programs: &[Program],
    ways: &[Way],
) -> Vec<String> {
    let (files, mounted) = (left_behind(), mounts());
    let told: Vec<Program> =
        programs.iter().map(|(name, source)| (name.clone(), outside.told(source))).collect();
    let mut problems: Vec<String> = outside.beside(sandbox, || {
        let each = |(name, source): &Program| -> Vec<String> {
            ways.iter().flat_map(|way| way(sandbox, name, source)).collect()
        };
        told.par_iter().flat_map(each).collect()
    });
    if left_behind() != files {
        problems.push(format!("files are left: {:?}", left_behind()));
    }
    if mounts() != mounted {
        problems.push("mounts are left".to_owned());
    }
    problems
}

/// Creates a variant of a sandbox with these layers in addition to seccomp and the thread count.
pub(super) fn with(like: &Sandbox, root: Option<Root>, landlock: Option<Landlock>) -> Sandbox {
    Sandbox {
        python: like.python.clone(),
        filter: CallFilter::new().ok(),
        landlock,
        bounded: like.bounded && root.is_some(),
        root,
        asking: like.asking.as_ref().map(|_| NotifyingFilter::new()),
        missing: Vec::new(),
        warm: WarmPool::new(&like.python).map_err(|error| error.to_string()),
    }
}

/// Returns the sandboxes with subsets of the layers, by name. Every one has seccomp.
fn sandboxes(full: &Sandbox, outside: &Outside) -> Vec<(String, Sandbox)> {
    let mut like = with(full, None, None);
    like.python.paths.insert(outside.directory.clone());
    let python = &like.python;
    let root = || full.root.as_ref().and_then(|_| Root::new(&python.paths).ok());
    let landlock = || full.landlock.as_ref().and_then(|_| Landlock::new(python).ok());
    let named = |name: &str, root, landlock| (name.to_owned(), with(&like, root, landlock));
    let mut sandboxes = vec![named("all layers", root(), landlock())];
    if root().is_some() && landlock().is_some() {
        sandboxes.push(named("no Landlock", root(), None));
        sandboxes.push(named("no namespaces", None, landlock()));
    }
    if landlock().is_some() {
        // The versions of kernels 6.10, 6.2, 5.19 and 5.13.
        for abi in [5, 3, 2, 1] {
            let landlock = Landlock::of_abi(python, abi).ok();
            sandboxes.push(named(&format!("no namespaces, Landlock ABI {abi}"), None, landlock));
        }
    }
    sandboxes
}

/// A single test, so that no other thread has children meanwhile.
#[test]
fn hostile_programs_get_nothing_and_leave_nothing() {
    let Some(full) = sandbox() else { return };
    let programs = programs();
    assert!(programs.len() >= 122 || !cfg!(target_arch = "x86_64"), "{}", programs.len());
    // Programs that end by their limits behave the same with all layers.
    let endless = |source: &str| source.contains("while True") || source.contains("sleep(1");
    let quick: Vec<Program> =
        programs.iter().filter(|(_, source)| !endless(source)).cloned().collect();
    let mut outside = Outside::new();
    let mut wrong = Vec::new();
    // With all layers, every program is judged in the first tier. The rest is sampled there.
    let sample: Vec<Program> = quick.into_iter().step_by(stride(8)).collect();
    for (number, (name, sandbox)) in sandboxes(full, &outside).iter().enumerate() {
        let begin = Instant::now();
        let (programs, ways): (&[Program], &[Way]) = match number {
            0 if stride(2) == 2 => (&programs, &[judged]),
            0 => (&programs, &[judged, ran]),
            1 | 2 => (&sample, &[judged, ran]),
            _ => (&sample, &[ran]),
        };
        let problems = held(sandbox, &mut outside, programs, ways);
        let (n, seconds) = (programs.len(), begin.elapsed().as_secs_f64());
        println!("{name}: {n} programs in {seconds:.1} s, {} problems", problems.len());
        wrong.extend(problems.iter().map(|problem| format!("{name}: {problem}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tests the process namespace alone: the descendants of a program end with it.
#[test]
fn a_process_takes_its_descendants_with_it() {
    let Some(full) = sandbox() else { return };
    if full.root.is_none() {
        eprintln!("skipped: this machine lacks namespaces");
        return;
    }
    let open = Sandbox {
        python: PythonInterpreter::find("python3").unwrap(),
        filter: None,
        landlock: None,
        root: Root::new(&full.python.paths).ok(),
        asking: None,
        bounded: false,
        missing: Vec::new(),
        warm: Err(String::new()),
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
fn no_program_outlives_its_thread_or_its_sandbox() {
    let Some(full) = sandbox() else { return };
    let source = launcher_input("", "import time\ntime.sleep(1000)", 0);
    for forks in [true, false] {
        let landlock = full.landlock.as_ref().and_then(|_| Landlock::new(&full.python).ok());
        let root = full.root.as_ref().and_then(|_| Root::new(&full.python.paths).ok());
        let mut sandbox = with(full, root, landlock);
        if !forks {
            sandbox.warm = Err(String::new());
        }
        let source = source.clone();
        // The program belongs to this thread, or a fork to the thread of the sandbox, which end.
        let thread = std::thread::spawn(move || {
            let (near, far) = create_connection().unwrap();
            let mut program = sandbox.start_program(Launcher::Program, &[], far, &LIMITS).unwrap();
            program.feed_input(near, source.as_bytes()).unwrap();
            let process = program.number();
            // Never dropped: its process must end without it.
            std::mem::forget(program);
            process
        });
        let started = thread.join().unwrap();
        assert!(
            (0..60_000).any(|_| super::warm::has_ended(started)),
            "process {started} outlives the thread that it belongs to: {:?}",
            children_stats(&std::process::id().to_string())
        );
    }
}
