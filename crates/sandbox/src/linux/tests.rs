#![allow(clippy::unwrap_used)]

mod ends;
mod honest;
mod hostile;
mod humaneval;
mod warm;

use std::sync::OnceLock;

use super::*;
use crate::{Ending, ExamTest};

/// Returns one sandbox for all tests, with every layer of this machine.
fn sandbox() -> Option<&'static Sandbox> {
    static SANDBOX: OnceLock<Option<Sandbox>> = OnceLock::new();
    let made = SANDBOX.get_or_init(|| match Sandbox::new("python3", false) {
        Ok(sandbox) => {
            for missing in sandbox.missing_layers() {
                eprintln!("this machine lacks {missing}");
            }
            Some(sandbox)
        }
        Err(error @ SandboxError::Lacking { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    });
    made.as_ref()
}

/// Returns the stride through the cases of a test: `n` in the first tier, 1 in the second (`MAVERL_FULL`).
fn stride(n: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { n }
}

#[test]
fn strict_mode_refuses_what_is_lacking() {
    let Some(sandbox) = sandbox() else { return };
    match (sandbox.missing_layers(), Sandbox::new("python3", true)) {
        ([], strict) => assert!(strict.is_ok()),
        (missing, strict) => {
            let error = strict.unwrap_err().to_string();
            assert!(error.contains(&missing[0].to_string()), "{error}");
            assert!(error.contains("strict mode"), "{error}");
        }
    }
    let lacking = |root: Option<Root>, landlock, filter| {
        let python = PythonInterpreter::find("python3").unwrap();
        let missing =
            vec![MissingLayer { layer: ProtectionLayer::Seccomp, why: "made up".to_owned() }];
        let warm = Err(String::new());
        Sandbox { python, filter, landlock, root, asking: None, bounded: false, missing, warm }
            .check_protection(false)
    };
    let paths = &sandbox.python.paths;
    let error = lacking(Root::new(paths).ok(), None, None).unwrap_err().to_string();
    assert!(error.contains("without seccomp there is no sandbox"), "{error}");
    let error = lacking(None, None, CallFilter::new().ok()).unwrap_err().to_string();
    assert!(error.contains("one of namespaces and Landlock"), "{error}");
    assert!(lacking(Root::new(paths).ok(), None, CallFilter::new().ok()).is_ok());
}

fn run(source: &str, stdin: &str) -> Option<Output> {
    Some(sandbox()?.run(source, stdin.as_bytes(), &ProgramLimits::default()).unwrap())
}

fn check(source: &str, entry: &str, test: &str) -> Option<ExamReport> {
    let tests = [ExamTest::Check { check: test.to_owned() }];
    let exam = Exam { source, entry, setup: "", tests: &tests, ..Exam::default() };
    Some(sandbox()?.examine(&exam, &ProgramLimits::default()).unwrap())
}

#[test]
fn a_program_reads_its_input_and_writes_its_output() {
    let Some(output) = run("import sys\nprint(sum(map(int, sys.stdin.read().split())))", "1 2\n39")
    else {
        return;
    };
    assert_eq!(output.stdout, b"42\n", "{output:?}");
    assert!(output.succeeded());
    let long = "x".repeat(400_000);
    let output = run("print(len(input()))", &long).unwrap();
    assert_eq!(output.stdout, b"400000\n");
    let failed = run("def f():\n    return missing\nf()", "").unwrap();
    let text = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.ending, Ending::Exited(1));
    assert!(text.contains("line 2, in f") && text.contains("return missing"), "{text}");
    assert!(!text.contains("<string>"), "{text}");
}

#[test]
fn threads_and_files_of_its_own_are_there() {
    let source = "
import tempfile, threading
total = []
threads = [threading.Thread(target=total.append, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
with tempfile.TemporaryDirectory() as d:
    open(d + '/a', 'w').write('x')
    print(open(d + '/a').read(), sorted(total))";
    let Some(sandbox) = sandbox() else { return };
    if sandbox.root.is_none() {
        eprintln!("skipped: without namespaces there is no /tmp");
        return;
    }
    let output = sandbox.run(source, b"", &ProgramLimits::default()).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x [0, 1, 2, 3]\n", "{output:?}");
}

#[test]
fn values_cross_as_they_are() {
    let source = "def same(x, y=None):\n    return x\n";
    let test = "
def check(f):
    values = [None, True, 1, -2**70, 1.0, 1.5e300, float('inf'), 'a\\ud800\\u00e9\\0', b'\\xff', 1+2j, [], (), (1,), {1, (2, 3)},
              frozenset('a'), {1: 'a', 'b': {(): [None]}}, [[(1, [2])]]]
    for value in values:
        found = f(value, y=[1])
        assert found == value and type(found) is type(value)
    assert f(float('nan')) != 0
";
    let Some(report) = check(source, "same", test) else { return };
    assert_eq!((report.points, report.of, report.failure), (3, 3, None));
}

#[test]
fn every_assertion_counts_and_so_does_the_end() {
    let test = "
def check(candidate):
    assert candidate(1) == 1
    for i in range(3):
        assert candidate(i) == i * i
    assert candidate(3) == 9
    candidate('x')
    assert candidate(5) == 25
";
    let Some(report) = check("def f(x):\n    return x * x if x < 2 else 9", "f", test) else {
        return;
    };
    // Correct: the first and the third. Wrong: the second, the unreached assertion, and the end.
    assert_eq!((report.points, report.of), (2, 5));
    assert_eq!(report.failure.unwrap().text, "AssertionError");
}

#[test]
fn an_exception_is_raised_where_the_test_expects_it() {
    let test = "
def check(f):
    try:
        f(0)
    except ZeroDivisionError as error:
        assert str(error) == 'division by zero'
    else:
        assert False
";
    let Some(report) = check("def f(x):\n    return 1 / x", "f", test) else { return };
    assert!(report.passed(), "{report:?}");
}

#[test]
fn tests_that_are_broken_are_nobodys_failure() {
    let Some(sandbox) = sandbox() else { return };
    for broken in ["import no_such_module\ndef check(f):\n    pass", "def check(f)"] {
        let tests = [ExamTest::Check { check: broken.to_owned() }];
        let exam = Exam {
            source: "def f():\n    pass",
            entry: "f",
            setup: "",
            tests: &tests,
            ..Exam::default()
        };
        let error = sandbox.examine(&exam, &ProgramLimits::default()).unwrap_err();
        assert!(matches!(error, SandboxError::Tests(_)), "{error}");
    }
}

#[test]
fn an_interpreter_that_is_none_is_named() {
    let error = Sandbox::new("/nonexistent/python", false).unwrap_err().to_string();
    assert!(
        error.starts_with("`/nonexistent/python` is no usable Python interpreter: "),
        "{error}"
    );
    let error = Sandbox::new("true", false).unwrap_err().to_string();
    assert!(error.contains("no usable Python interpreter"), "{error}");
}

#[test]
fn without_landlock_the_warning_says_that_other_programs_can_be_executed() {
    let Ok(python) = PythonInterpreter::find("python3") else { return };
    let missing =
        vec![MissingLayer { layer: ProtectionLayer::Landlock, why: "made up".to_owned() }];
    let (root, landlock) = (Root::new(&python.paths).ok(), None);
    let (filter, asking, bounded, warm) = (None, None, false, Err("made up".to_owned()));
    let sandbox = Sandbox { python, filter, landlock, root, asking, bounded, missing, warm };
    let warnings = sandbox.protection_gaps();
    assert!(
        warnings[0]
            .starts_with("lacks Landlock (made up): a program can execute others of the machine"),
        "{warnings:?}"
    );
    assert!(warnings[1].starts_with("cannot fork an interpreter (made up): "), "{warnings:?}");
}
