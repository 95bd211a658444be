//! Ends of tests and candidates, and the values that cross between them: exceptions, exits, and `unittest`.

use super::*;

/// Forms of the pairs that end silently if the candidate can end a loop.
const SILENT: [&str; 16] = [
    "assert all(map(right, pairs))",
    "assert all(right(pair) for pair in pairs)",
    "assert not any(map(wrong, pairs))",
    "for each in map(right, pairs): assert each",
    "for each in map(right, iter(pairs)):\n    if not each: raise ValueError",
    "assert not list(filter(wrong, pairs))",
    "assert next(filter(wrong, pairs), None) is None",
    "assert sum(map(wrong, pairs)) == 0",
    "assert set(map(right, pairs)) <= {True}",
    "import itertools\nassert all(itertools.starmap(lambda x, y: candidate(x) == y, pairs))",
    "import itertools\nassert not list(itertools.filterfalse(right, pairs))",
    "for x, y in zip(map(lambda pair: candidate(pair[0]), pairs), (5, 11)): assert x == y",
    "for x, y in zip((5, 11), map(lambda pair: candidate(pair[0]), pairs)): assert x == y",
    "
class Each:
    def __init__(self): self.pairs = iter(pairs)
    def __iter__(self): return self
    def __next__(self): return right(next(self.pairs))
assert all(list(Each()))",
    "
def each():
    yield from map(right, pairs)
assert all(each())",
    "
import asyncio
class Each:
    def __init__(self): self.pairs = list(pairs)
    def __aiter__(self): return self
    async def __anext__(self):
        if not self.pairs: raise StopAsyncIteration
        return right(self.pairs.pop())
async def ask():
    async for each in Each(): assert each
asyncio.run(ask())",
];

/// Setup code of each form.
const PAIRS: &str = "
pairs = [(2, 5), (3, 11)]
def right(pair): return candidate(pair[0]) == pair[1]
def wrong(pair): return candidate(pair[0]) != pair[1]
";

/// Returns the report on tests that are statements.
fn held(source: &str, tests: &[&str]) -> Option<Result<ExamReport, SandboxError>> {
    let tests: Vec<ExamTest> =
        tests.iter().map(|code| ExamTest::Code { code: (*code).to_owned() }).collect();
    let exam = Exam { source, entry: "f", setup: PAIRS, tests: &tests, ..Exam::default() };
    Some(sandbox()?.examine(&exam, &ProgramLimits::default()))
}

#[test]
fn no_exception_of_a_candidate_passes_a_test_in_silence() {
    let raises = |what: &str| format!("def f(x):\n    raise {what}");
    let kinds = [
        "StopIteration",
        "StopIteration(True)",
        "StopAsyncIteration",
        "GeneratorExit",
        "KeyboardInterrupt",
        "SystemExit(0)",
        "MemoryError",
        "type('StopIteration', (Exception,), {})",
        "type('Quiet', (StopIteration,), {})",
        "__import__('unittest').SkipTest",
        "__import__('asyncio').CancelledError",
    ];
    let mut sources: Vec<String> = kinds.iter().map(|kind| raises(kind)).collect();
    sources
        .extend(kinds.map(|kind| format!("def f(x):\n    if x == 2: return 5\n    raise {kind}")));
    sources.push("import os\ndef f(x):\n    os._exit(0)".to_owned());
    sources.push("def f(x):\n    next(iter([]))".to_owned());
    for source in sources {
        let Some(report) = held(&source, &SILENT) else { return };
        let report = report.unwrap();
        assert_eq!((report.points, report.of), (0, SILENT.len() as u32), "{source}\n{report:?}");
    }
    let right = "def f(x):\n    return {2: 5, 3: 11}[x]";
    let report = held(right, &SILENT).unwrap().unwrap();
    assert!(report.passed(), "{report:?}");
}

#[test]
fn what_ends_a_loop_is_an_error_by_its_name() {
    let Some(report) = held("def f(x):\n    next(iter([]))", &["f(1)"]) else { return };
    assert_eq!(report.unwrap().failure.unwrap().text, "RuntimeError: StopIteration: ");
    let report = held("def f(x):\n    exit(3)", &["try:\n    f(1)\nexcept Exception:\n    pass"]);
    assert_eq!(report.unwrap().unwrap().failure.unwrap().text, "SystemExit: 3");
}

#[test]
fn a_candidate_that_ends_its_process_is_wrong_whatever_tests_catch() {
    let tests = [
        "try:\n    f(0)\nexcept Exception:\n    pass\nelse:\n    raise AssertionError",
        "try:\n    f(0)\nexcept:\n    pass",
        "try:\n    f(0)\nexcept BaseException:\n    pass",
        "import contextlib\nwith contextlib.suppress(BaseException):\n    f(0)",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        with self.assertRaises(BaseException): f(0)",
        "import sys\ntry:\n    f(0)\nexcept BaseException:\n    sys.exit(0)",
        "try:\n    f(0)\nfinally:\n    __import__('os')._exit(0)",
    ];
    let sources = [
        "import os\ndef f(x):\n    os._exit(0)",
        "import os\ndef f(x):\n    os.close(3)",
        "import os\ndef f(x):\n    os.write(3, b'\\0\\0\\0\\2{}')\n    return 1",
        "import os\nos._exit(0)",
        "exit()",
    ];
    for source in sources {
        for test in tests {
            let Some(report) = held(source, &[test, "assert True"]) else { return };
            let report = report.unwrap();
            assert!(report.points == 0 && !report.passed(), "{source}\n{test}\n{report:?}");
        }
    }
    // Such a test expects an exception.
    let raises = held("def f(x):\n    raise KeyError", &tests[..5]).unwrap().unwrap();
    assert!(raises.passed(), "{raises:?}");
}

#[test]
fn tests_that_end_their_own_process_are_nobodys_failure() {
    let ends = [
        "import sys\nassert f(2) == 5\nsys.exit(0)",
        "import sys\nassert f(2) == 5\nsys.exit()",
        "assert f(2) == 5\nraise SystemExit",
        "assert f(2) == 5\nexit()",
        "assert f(2) == 5\nquit(0)",
        "import os\nassert f(2) == 5\nos._exit(0)",
        "import os\ntry:\n    assert f(2) == 5\nfinally:\n    os._exit(0)",
        "import sys\nsys.exit(1)",
        "raise KeyboardInterrupt",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        f(2); exit(0)",
    ];
    for source in ["def f(x):\n    return 5", "def f(x):\n    raise ValueError"] {
        for end in ends {
            let Some(report) = held(source, &[end]) else { return };
            match (report, source.contains("raise") && !end.contains("finally")) {
                (Err(SandboxError::Tests(why)), _) => {
                    assert!(why.starts_with("they end their own process by "), "{why}");
                }
                // The test had failed before.
                (Ok(report), true) => assert_eq!(report.points, 0, "{end}"),
                (other, _) => panic!("{end}: {other:?}"),
            }
        }
    }
    // A test may report its result as an exit status.
    let judges = "import sys\nif f(2) != 5:\n    sys.exit('wrong')";
    assert!(held("def f(x):\n    return 5", &[judges]).unwrap().unwrap().passed());
    let report = held("def f(x):\n    return 6", &[judges]).unwrap().unwrap();
    assert_eq!(report.failure.unwrap().text, "AssertionError: the test ends by SystemExit: wrong");
    let check = "def check(candidate):\n    assert candidate(2) == 5\n    exit()";
    let tests = [ExamTest::Check { check: check.to_owned() }];
    let exam = Exam {
        source: "def f(x):\n    return 5",
        entry: "f",
        setup: "",
        tests: &tests,
        ..Exam::default()
    };
    let error =
        sandbox().unwrap().examine(&exam, &ProgramLimits::default()).unwrap_err().to_string();
    let wanted = "the tests could not be run: they end their own process by SystemExit";
    assert_eq!(error, wanted);
}

#[test]
fn cases_of_unittest_are_run_and_count_whoever_runs_them() {
    let class = "
import unittest
class Pairs(unittest.TestCase):
    def test_two(self):
        self.assertEqual(f(2), 5)
    def test_three(self):
        for x in (3, 4):
            with self.subTest(x=x):
                self.assertEqual(candidate(x), 11)
    @unittest.skip('not yet')
    def test_later(self):
        self.fail()
    @unittest.expectedFailure
    def test_other(self):
        self.assertEqual(f(2), 6)
";
    let run =
        "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Pairs))";
    for end in [
        "unittest.main()",
        "unittest.main(exit=False)",
        "unittest.main(argv=[''], verbosity=2, exit=False)",
        "if __name__ == '__main__':\n    unittest.main()",
        "assert unittest.main(exit=False).result.wasSuccessful()",
        "import sys\nfrom unittest import main\nmain(module=sys.modules[__name__])",
        run,
        "",
    ] {
        let code = format!("{class}{end}\n");
        let Some(report) = held("def f(x):\n    return 5 if x == 2 else 11", &[&code]) else {
            return;
        };
        assert_eq!(report.as_ref().unwrap().points, 1, "{end}: {report:?}");
        for wrong in ["5", "11", "6 if x == 2 else 11", "5 if x == 2 else x * 4 - 1", "None"] {
            let report = held(&format!("def f(x):\n    return {wrong}"), &[&code]);
            let report = report.unwrap().unwrap();
            assert!(report.points == 0 && !report.passed(), "{end}: {wrong}: {report:?}");
        }
    }
    let report = held("def f(x):\n    return 7", &[&format!("{class}unittest.main()")]);
    let text = report.unwrap().unwrap().failure.unwrap().text;
    assert_eq!(text, "AssertionError: 7 != 11");
    // In parts, each of which is a test.
    let report = held(
        "def f(x):\n    return 5 if x == 2 else 11",
        &[class, "unittest.main()", "assert f(2) == 5"],
    );
    assert_eq!(report.unwrap().unwrap().points, 3);
    for none in [
        "import unittest\nunittest.main()",
        "import unittest\n@unittest.skip('')\nclass T(unittest.TestCase):\n    def test(self): f(2)",
    ] {
        let error = held("def f(x):\n    return 5", &[none]).unwrap().unwrap_err().to_string();
        assert!(error.ends_with("`unittest` finds no case to run"), "{none}: {error}");
    }
}

#[test]
fn tests_that_can_judge_nobody_are_nobodys_failure() {
    let source = "def f(x):\n    return 5";
    for (test, wanted) in [
        ("assert True", "they never call `f`"),
        ("def test_f():\n    assert f(2) == 6", "they never call `f`"),
        ("assert g(2) == 5", "they never call `f`: NameError: name 'g' is not defined"),
        ("assert f(range(3)) == 5", "they pass a value of type range, which is no plain data"),
        (
            "try:\n    f(lambda: 0)\nexcept Exception:\n    pass",
            "they pass a value of type function",
        ),
    ] {
        let Some(report) = held(source, &[test]) else { return };
        let error = report.unwrap_err().to_string();
        assert!(error.contains(wanted), "{test}: {error}");
    }
}

#[test]
fn a_text_that_no_report_can_hold_is_reported() {
    for what in ["raise ValueError('\\ud800')", "return '\\udfff'"] {
        let source = format!("def f(x):\n    {what}");
        let tests = [
            ExamTest::Code { code: "assert f(1) == 2, f(1)".to_owned() },
            ExamTest::Call { arguments: vec![1.into()], expected: 2.into(), alternative: None },
        ];
        let exam =
            Exam { source: &source, entry: "f", setup: "", tests: &tests, ..Exam::default() };
        let Some(sandbox) = sandbox() else { return };
        let report = sandbox.examine(&exam, &ProgramLimits::default()).unwrap();
        assert_eq!((report.points, report.of), (0, 2));
        let text = report.failure.unwrap().text;
        assert!(text.contains("\\ud"), "{text}");
    }
}
