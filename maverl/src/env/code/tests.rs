#![allow(clippy::unwrap_used)]

use std::path::Path;

use maverl_sandbox::{ExamTest, ProgramLimits, SandboxError};
use serde_json::{Map, Value, json};

use super::*;
use crate::builtin;
use crate::env::{Environment, Session};
use crate::task::{Action, Task, TaskList};

fn task(data: Value) -> Task {
    let Value::Object(data) = data else { panic!("{data} is no object") };
    let (id, source) = ("1".to_owned(), "test".to_owned());
    Task { id, source, question: "Write f.".to_owned(), data }
}

/// Returns a judge, unless this machine has no sandbox.
fn judge(every: bool) -> Option<Judge> {
    match Judge::new("python3", false, ProgramLimits::default(), every) {
        Ok(judge) => Some(judge),
        Err(error @ (SandboxError::Lacking { .. } | SandboxError::Unsupported)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_last_complete_block_is_the_program() {
    for (reply, wanted) in [
        ("def f(): pass", Some("def f(): pass")),
        ("Like this:\n```python\nx = 1\n```\nor\n```py\nx = 2\n```\nso", Some("x = 2\n")),
        ("```\nx = 1\n```\nand\n```python\nx =", Some("x = 1\n")),
        ("<think>\n```python\nx = 1\n```\n</think>\n\n```python\nx = 2\n```", Some("x = 2\n")),
        ("```python\nx = '''\n  ü```\n'''\n```", Some("x = '''\n  ü```\n'''\n")),
        (" \n ", None),
        ("<think>x</think>", None),
        ("```python\n\n```", None),
    ] {
        assert_eq!(program(reply), wanted, "{reply}");
    }
}

#[test]
fn rows_of_every_form_are_understood() {
    let calls = |data| match Problem::read(&task(data)).unwrap() {
        Problem { entry: Some(entry), hidden: Tests::Calls(tests), .. } => (entry, tests),
        other => panic!("{other:?}"),
    };
    let code = |code: &str| ExamTest::Code { code: code.to_owned() };
    let call = |x: i64, y: i64| ExamTest::Call {
        arguments: vec![json!(x)],
        expected: json!(y),
        alternative: None,
    };
    let mbpp = json!({"test_list": ["assert g(1) == 2"], "code": "import re\ndef h(x):\n    pass\ndef g(x):\n    return x + 1"});
    assert_eq!(calls(mbpp), ("g".to_owned(), vec![code("assert g(1) == 2")]));
    let other = json!({"test_list": ["assert h(1) == 2"], "code": "def h(x):\n    return g(x)\ndef g(x):\n    return x + 1"});
    assert_eq!(calls(other), ("h".to_owned(), vec![code("assert h(1) == 2")]));
    let bare =
        json!({"test_list": ["assert math.isclose(f(1), 2)"], "test_imports": ["import math"]});
    assert_eq!(calls(bare).0, "f");
    let own = json!({"entry_point": "f", "tests": [{"arguments": [1], "expected": 2}]});
    assert_eq!(calls(own), ("f".to_owned(), vec![call(1, 2)]));
    let verl = json!({"answers": ["{\"fn_name\": \"f\", \"inputs\": [[1], \"2\"], \"outputs\": [2, \"3\"]}"]});
    assert_eq!(calls(verl), ("f".to_owned(), vec![call(1, 2), call(2, 3)]));
    let listed = json!({"fn_name": "f", "inputs": [[1], [1], "1"], "outputs": [[2], [], "[2]"]});
    let alternatives = calls(listed).1.into_iter().map(|test| match test {
        ExamTest::Call { alternative, .. } => alternative,
        other => panic!("{other:?}"),
    });
    assert_eq!(alternatives.collect::<Vec<_>>(), [Some(json!(2)), None, None]);
    let apps = task(
        json!({"input_output": "{\"inputs\": [\"1\\n\", [\"2\", \"3\"]], \"outputs\": [\"1\", \"5\"]}"}),
    );
    let Tests::Streams(streams) = Problem::read(&apps).unwrap().hidden else { panic!() };
    assert_eq!(streams[1], Stream { input: "2\n3".to_owned(), output: "5".to_owned() });
    let prompt = "def f(x):\n    \"\"\"Adds.\n    >>> f(1)\n    2\n    >>> f(y)\n    something\n    \"\"\"\n";
    let humaneval = Task {
        question: prompt.to_owned(),
        ..task(json!({"test": "def check(c): pass", "entry_point": "f"}))
    };
    let problem = Problem::read(&humaneval).unwrap();
    assert_eq!((&*problem.prefix, &*problem.setup), (prompt, prompt));
    assert_eq!(problem.public, Tests::Calls(vec![code("assert f(1) == 2")]));
    for (data, wanted) in [
        (json!({}), "nothing to judge a program by"),
        (json!({"tests": ["assert 1"]}), "give its row an `entry_point`"),
        (json!({"tests": ["assert f(g(1))"]}), "its tests call `f` and `g`, and one function is"),
        (
            json!({"tests": ["assert f()"], "test_imports": [1]}),
            "`test_imports` is [1]; write Python",
        ),
        (json!({"tests": [], "entry_point": "f"}), "`tests` is empty"),
        (json!({"tests": [1], "entry_point": "f"}), "`tests` has 1"),
        (json!({"inputs": ["1"], "outputs": []}), "1 `inputs` and 0 `outputs`"),
        (json!({"inputs": [1], "outputs": ["1"]}), "1 is neither text nor a list of lines"),
    ] {
        let error = Problem::read(&task(data)).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn tests_of_mbpp_have_their_imports() {
    let Some(judge) = judge(true) else { return };
    let row = |imports: Value| {
        json!({
            "code": "import math\ndef volume(r):\n    return 4 / 3 * math.pi * r ** 3",
            "test_imports": imports,
            "test_setup_code": "near = 0.001",
            "test_list": ["assert math.isclose(volume(10), 4188.79, rel_tol=near)"],
        })
    };
    for imports in [json!(["import math"]), json!("import math")] {
        let problem = Problem::read(&task(row(imports))).unwrap();
        let own = "import math as m\ndef volume(r): return 4 / 3 * m.pi * r ** 3";
        assert!(judge.judge(&problem, own).unwrap().passed());
        assert!(!judge.judge(&problem, "def volume(r): return r").unwrap().passed());
    }
    // If the row has no imports of its own, the imports of its solution that the tests use are shared with them.
    let shared = Problem::read(&task(row(json!([])))).unwrap();
    assert_eq!(shared.setup, "near = 0.001\nimport math");
}

#[test]
fn an_output_of_apps_may_stand_in_a_list_of_its_own() {
    let Some(judge) = judge(true) else { return };
    let data = json!({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2], [[3, 4]]]});
    let problem = Problem::read(&task(data)).unwrap();
    let points = |reply: &str| judge.judge(&problem, reply).unwrap().points;
    assert_eq!(points("def f(x): return 2 if x == 1 else (3, 4)"), 2);
    assert_eq!(points("def f(x): return [2] if x == 1 else [[3, 4]]"), 2);
    assert_eq!(points("def f(x): return [[2]] if x == 1 else 3"), 0);
    // In maverl's own form a list stays a list.
    let own = json!({"entry_point": "f", "tests": [{"arguments": [1], "expected": [2]}]});
    let problem = Problem::read(&task(own)).unwrap();
    assert!(!judge.judge(&problem, "def f(x): return 2").unwrap().passed());
}

#[test]
fn streams_are_compared_line_by_line() {
    let Some(judge) = judge(true) else { return };
    let data = json!({"inputs": ["1 2\n", "3 4", "5 6"], "outputs": ["3\n", "7", "11"]});
    let problem = Problem::read(&task(data)).unwrap();
    let verdict = |reply: &str| judge.judge(&problem, reply).unwrap();
    let right = verdict("```python\nprint(sum(map(int, input().split())), ' ')\nprint()\n```");
    assert!(right.passed(), "{right:?}");
    let cheap = verdict("print(3)");
    assert_eq!((cheap.reason, cheap.points, cheap.of), (Reason::Wrong, 1, 3));
    assert!(cheap.detail.contains("it writes\n3\nand must write\n7"), "{}", cheap.detail);
    let looping =
        ProgramLimits { wall: std::time::Duration::from_millis(300), ..ProgramLimits::default() };
    let hasty = Judge::new("python3", false, looping, false).unwrap();
    assert_eq!(hasty.judge(&problem, "while True: pass").unwrap().reason, Reason::Limit);
    assert_eq!(verdict("").reason, Reason::Nothing);
}

#[test]
fn an_answer_is_what_the_program_writes_or_the_reply_marks() {
    let Some(judge) = judge(false) else { return };
    let gsm8k = Problem::read(&task(json!({"answers": ["6 * 7 = 42\n#### 42"]}))).unwrap();
    let tiny = "def simple_math_problem():\n    \"\"\"Six by seven.\"\"\"\n    return 6 * 7";
    let tiny = Problem::read(&task(json!({"code": tiny}))).unwrap();
    for problem in [&gsm8k, &tiny] {
        let reason = |reply: &str| judge.judge(problem, reply).unwrap().reason;
        for right in [
            "\\boxed{42}",
            "```python\nprint('so')\nprint(21 * 2)\n```",
            "```python\ndef solution():\n    return 42.0\n```",
        ] {
            assert_eq!(reason(right), Reason::Passed, "{right}");
        }
        for bare in ["print(21 * 2)", "<think>print(1)</think>def solution():\n    return 42"] {
            assert_eq!(reason(bare), Reason::Passed, "{bare}");
        }
        assert_eq!(reason("print(41)"), Reason::Wrong);
        assert_eq!(reason("print(41)  # \\boxed{42}"), Reason::Passed, "it is marked");
        assert_eq!(reason("It must be 42 cups."), Reason::Nothing);
        assert_eq!(reason("42"), Reason::Nothing);
        assert_eq!(reason("\\boxed{41}"), Reason::Wrong);
        assert_eq!(reason("```python\nprint(41, 42)\n```\n\\boxed{42}"), Reason::Wrong);
        assert_eq!(reason("```python\nprint(1 / 0)\n```"), Reason::Wrong);
        assert_eq!(reason("```python\npass\n```"), Reason::Nothing);
    }
    let broken = json!({"code": "def simple_math_problem():\n    return missing"});
    let error = judge.judge(&Problem::read(&task(broken)).unwrap(), "\\boxed{1}").unwrap_err();
    assert!(error.to_string().contains("its `code` exited with status 1"), "{error}");
}

#[test]
fn what_is_not_there_is_said_once() {
    let Some(judge) = judge(false) else { return };
    let answer = Problem::read(&task(json!({"answers": ["42"]}))).unwrap();
    let calls = json!({"tests": ["assert f(1) == 1"], "entry_point": "f"});
    let calls = Problem::read(&task(calls)).unwrap();
    for (problem, reply, wanted) in [
        (&calls, "", "there is no program"),
        (&answer, " ", "there is no program"),
        (&answer, "It must be 42 cups.", "there is no program, and no answer is marked"),
        (&answer, "```\npass\n```", "the program writes no answer"),
        (&answer, "\\boxed{41}", "it fails a test: the answer is \"41\""),
        (&calls, "f = int", "it passes every test"),
    ] {
        assert_eq!(judge.judge(problem, reply).unwrap().text(), wanted, "{reply}");
    }
}

fn started(partial: bool) -> Option<CodeEnvironment> {
    let mut code = CodeEnvironment { partial, ..CodeEnvironment::default() };
    judge(false)?;
    code.start(Path::new("")).unwrap();
    Some(code)
}

fn session(task: Task) -> Session {
    Session { task, seed: 0, actions: 1, state: Value::Null }
}

#[tokio::test]
async fn the_world_pays_for_hidden_tests_and_tells_of_public_ones() {
    let (Some(code), Some(partial)) = (started(false), started(true)) else { return };
    let data = json!({
        "entry_point": "f",
        "public_tests": ["assert f(1) == 1"],
        "tests": ["assert f(21) == 441", "assert f(2) == 4", "assert f(0) == 0"],
    });
    let mut session = session(task(data));
    for (program, reward, share) in [
        ("def f(x): return x * x", 1.0, 1.0),
        ("def f(x): return 2 * x", 0.0, 2.0 / 3.0),
        ("def f(x): return {1: 1}[x]", 0.0, 0.0),
        ("def g(x): return x", 0.0, 0.0),
        ("def f(x:", 0.0, 0.0),
        ("", 0.0, 0.0),
    ] {
        let score = Environment::score(&code, &session, Some(program)).await.unwrap();
        assert_eq!((score.reward, score.solved), (reward, reward == 1.0), "{program}");
        assert_eq!(score.metrics["tests_passed"], json!(share), "{program}");
        assert_eq!(
            Environment::score(&partial, &session, Some(program)).await.unwrap().reward,
            share,
            "{program}"
        );
        let action = Action::Text(program.to_owned());
        let seen = Environment::act(&code, &mut session, action).await.unwrap().text;
        for secret in ["441", "21", "f(2)", "f(0)"] {
            assert!(!seen.contains(secret), "{seen}");
        }
    }
    assert_eq!(Environment::score(&code, &session, None).await.unwrap().reward, 0.0);
    let mut seen = async |program: &str| {
        let action = Action::Text(program.to_owned());
        Environment::act(&code, &mut session, action).await.unwrap().text
    };
    assert_eq!(seen("def f(x): return x").await, "the program passes all 1 public tests");
    let failed = seen("def f(x): return x + 1").await;
    assert_eq!(failed, "the program fails\ntest 1: AssertionError");
    let failed = seen("def f(x): return x + y").await;
    assert_eq!(failed, "the program fails\ntest 1: NameError: name 'y' is not defined");
}

#[tokio::test]
async fn a_verdict_blocks_no_thread_of_the_runtime() {
    let Some(code) = started(false) else { return };
    let data = json!({"entry_point": "f", "tests": ["assert f() == 1"]});
    let session = session(task(data));
    let slow = "import time\ntime.sleep(0.5)\ndef f(): return 1";
    let mut ticks = 0;
    let verdict = Environment::score(&code, &session, Some(slow));
    tokio::pin!(verdict);
    let score = loop {
        tokio::select! {
            score = &mut verdict => break score.unwrap(),
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => ticks += 1,
        }
    };
    assert!(score.solved && ticks >= 10, "{ticks}");
}

#[test]
fn options_that_cannot_be_met_are_named() {
    let look = |code: CodeEnvironment| {
        code.validate(Path::new(""), &TaskList::default()).unwrap_err().to_string()
    };
    let default = CodeEnvironment::default;
    let error = look(CodeEnvironment { python: "/no/python".to_owned(), ..default() });
    assert!(error.starts_with("`python`: `/no/python` is no usable Python"), "{error}");
    assert!(look(CodeEnvironment { seconds: 0.0, ..default() }).starts_with("`seconds` is 0"));
    assert!(look(CodeEnvironment { memory_mib: 1, ..default() }).starts_with("`memory_mib` is 1"));
    let error = default().report(&[task(json!({}))]).unwrap_err().to_string();
    assert!(error.starts_with("the task `1` of `test`: nothing to judge"), "{error}");
}

#[test]
fn tests_that_are_no_python_are_refused_before_a_run() {
    let Some(code) = started(false) else { return };
    let tests = |test: &str| json!({"entry_point": "f", "tests": ["assert f(1) == 1", test]});
    let good = [
        tests("import math\nassert f(2) == math.floor(2.5)"),
        tests("try:\n    import no_such_module\nexcept ImportError:\n    pass"),
        json!({"entry_point": "f", "test": "def check(f):\n    assert f(1)"}),
        json!({"entry_point": "f", "tests": ["assert f(1)"], "setup": "def g(x):"}),
        json!({"inputs": ["("], "outputs": ["("]}),
    ];
    let numbered = |rows: &[Value]| -> Vec<Task> {
        let ids = (1..).map(|id: usize| id.to_string());
        ids.zip(rows).map(|(id, row)| Task { id, ..task(row.clone()) }).collect()
    };
    assert_eq!(code.report(&numbered(&good)).unwrap(), None);
    let public = json!({"entry_point": "f", "tests": ["assert f(1)"], "public_tests": ["f("]});
    let mut bad = vec![
        tests("assert f( ==2"),
        good[0].clone(),
        json!({"entry_point": "f", "test": "x = 1"}),
        json!({"entry_point": "f", "tests": ["assert f(1)"], "setup": "import no_such_module"}),
        json!({"code": "def simple_math_problem():\nreturn"}),
        public,
    ];
    let wanted = [
        "the task `1` of `test`: SyntaxError: ",
        "; the task `3` of `test`: `test` defines no function `check`",
        "; the task `4` of `test`: there is no module `no_such_module` in the sandbox",
        "; the task `5` of `test`: IndentationError: ",
        "; the task `6` of `test`: SyntaxError: ",
    ];
    bad.extend((0..2).map(|_| tests("f(")));
    let tasks = numbered(&bad);
    let look = code.validate(Path::new(""), &tasks.iter().collect()).unwrap_err().to_string();
    let note = code.report(&tasks).unwrap_err().to_string();
    for error in [look, note] {
        assert!(error.starts_with("7 of 8 tasks have tests that cannot be run: "), "{error}");
        assert!(wanted.iter().all(|wanted| error.contains(wanted)), "{error}");
        assert!(error.ends_with("; and 2 more"), "{error}");
    }
}

#[test]
fn tests_that_no_program_can_pass_are_told_before_a_run() {
    let Some(code) = started(false) else { return };
    let tests = |test: &str| json!({"entry_point": "f", "tests": ["import math as m", test]});
    let good = [
        "assert m.isclose(f(1), 1) and all(x == candidate(y) for x, y in [(1, 2)])",
        "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == __name__",
        "def near(a, *b, c=1, **d): return (a, b, c, d)\nassert near(f(1))",
        "match f(1):\n    case {'a': x, **rest}: assert x and rest\n    case [*y]: assert y",
        "from math import *\nassert isclose(f(1), 1)",
    ];
    let rows: Vec<Task> = good.iter().map(|test| task(tests(test))).collect();
    assert_eq!(code.report(&rows).unwrap(), None);
    let bad = [task(tests("assert math.isclose(f(1), 1)")), task(tests("assert f([Pair(1, 2)])"))];
    let wanted = "the tests of 2 of 7 tasks use names that nothing defines, so that no program can pass them: the task `1` \
                  of `test`: `math`; the task `1` of `test`: `Pair`";
    assert_eq!(code.report(&[&rows[..], &bad].concat()).unwrap().unwrap(), wanted);
}

#[test]
fn tests_that_end_their_own_process_are_refused_before_a_run_and_ungraded_in_one() {
    let Some(code) = started(false) else { return };
    let tests = |test: &str| json!({"entry_point": "f", "tests": [test]});
    let certain = [
        "import sys\nassert f(1) == 1\nsys.exit(0)",
        "from sys import exit as leave\nleave()",
        "assert f(1) == 1\nraise SystemExit",
        "import os\nassert f(1) == 1\nos._exit(0)",
        "def main():\n    assert f(1) == 1\n    quit()\nmain()",
    ];
    for test in certain {
        let task = task(tests(test));
        let error = code.report(&[task]).unwrap_err().to_string();
        let wanted = "1 of 1 tasks have tests that cannot be run: the task `1` of `test`: its tests end their own process on line ";
        assert!(error.starts_with(wanted), "{test}: {error}");
    }
    let check = "def check(candidate):\n    assert candidate(1) == 1\n    exit(0)";
    let check = task(json!({"entry_point": "f", "test": check}));
    let error = code.report(&[check]).unwrap_err().to_string();
    assert!(error.contains("on line 3: `exit(0)`; leave that out"), "{error}");
    // Code that is unreachable, caught or ambiguous is left to the run.
    let Some(judge) = judge(false) else { return };
    for (test, right) in [
        ("import sys\nif f(1) != 1:\n    sys.exit(1)", Some(true)),
        (
            "import sys\ntry:\n    sys.exit(f(1))\nexcept SystemExit as end:\n    assert end.code == 1",
            Some(true),
        ),
        ("def quit(): pass\nassert f(1) == 1\nquit()", Some(true)),
        (
            "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(1), 1)\nunittest.main()",
            Some(true),
        ),
        ("import sys\nif f(1) == 1:\n    sys.exit(0)", None),
    ] {
        let task = task(tests(test));
        assert_eq!(code.report(std::slice::from_ref(&task)).unwrap(), None, "{test}");
        let problem = Problem::read(&task).unwrap();
        let verdict = judge.judge(&problem, "def f(x): return x");
        assert_eq!(verdict.as_ref().ok().map(CodeVerdict::passed), right, "{test}: {verdict:?}");
        if right.is_some() {
            let wrong = judge.judge(&problem, "import os\ndef f(x): os._exit(0)").unwrap();
            assert!(!wrong.passed(), "{test}: {wrong:?}");
        }
    }
}

#[test]
fn solutions_of_the_built_in_world_pass_and_constants_do_not() {
    let Some(judge) = judge(false) else { return };
    let test = builtin::code::problems().into_iter().find(|(split, _)| *split == "test").unwrap().1;
    // A few of each level; all are generated in the same way.
    for task in test.iter().take(24) {
        let problem = Problem::read(task).unwrap();
        let solution = task.data["solution"].as_str().unwrap();
        for verdict in [judge.judge(&problem, solution), judge.attempt(&problem, solution)] {
            let verdict = verdict.unwrap();
            assert!(verdict.passed(), "{}\n{solution}\n{verdict:?}", task.question);
        }
        // The examples that the question shows.
        let table: Map<String, Value> = task.data["public_tests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|test| (test["arguments"][0].to_string(), test["expected"].clone()))
            .collect();
        let cheat = format!(
            "import json\ndef f(x):\n    return {}[json.dumps(x, separators=(',', ':'))]",
            json!(table)
        );
        assert!(judge.attempt(&problem, &cheat).unwrap().passed());
        assert!(!judge.judge(&problem, &cheat).unwrap().passed());
    }
}

/// Returns the verdict on a program by a row.
fn verdict_of(judge: &Judge, row: Value, program: &str) -> CodeVerdict {
    judge.judge(&Problem::read(&task(row)).unwrap(), program).unwrap()
}

#[test]
fn programs_of_contests_may_leave_out_the_usual_imports() {
    let Some(judge) = judge(true) else { return };
    let method = |body: &str| {
        format!(
            "```python
class Solution:
{body}
```"
        )
    };
    for (body, arguments, output) in [
        (
            "    def f(self, x: List[int], y: int) -> List[int]:
        return [0, 1]",
            json!([[2, 7], 9]),
            json!([0, 1]),
        ),
        (
            "    def f(self, x: Dict[str, int]) -> Optional[int]:
        return 1",
            json!([{}]),
            json!(1),
        ),
        (
            "    def f(self, x):
        return Counter(x).most_common(1)[0][0]",
            json!([[1, 1, 2]]),
            json!(1),
        ),
        (
            "    @cache
    def f(self, x):
        return 1",
            json!([3]),
            json!(1),
        ),
        (
            "    @lru_cache(None)
    def f(self, x):
        return gcd(x, 4)",
            json!([6]),
            json!(2),
        ),
        (
            "    def f(self, x):
        d = defaultdict(int)
        d[x] += 1
        return inf > d[x]",
            json!([6]),
            json!(true),
        ),
        (
            "    def f(self, x):
        h = []
        heappush(h, x)
        return heappop(h)",
            json!([6]),
            json!(6),
        ),
        (
            "    def f(self, x):
        return bisect_left(x, 2) + len(deque(x))",
            json!([[1, 2]]),
            json!(3),
        ),
        (
            "    def f(self, x):
        return pow(x, 3, 5)",
            json!([2]),
            json!(3),
        ),
        (
            "    def f(self, x):
        return reduce(xor, accumulate(x)) + pow(2, 3, 5)",
            json!([[1, 2]]),
            json!(5),
        ),
        (
            "    def f(self, x):
        return math.comb(x, 2) + len(list(itertools.permutations(range(3))))",
            json!([4]),
            json!(12),
        ),
        (
            "    def f(self, x):
        return re.sub('a', 'b', x) + string.digits[:1]",
            json!(["a"]),
            json!("b0"),
        ),
    ] {
        let row = json!({"inputs": [arguments], "outputs": [output], "fn_name": "f"});
        let verdict = verdict_of(&judge, row, &method(body));
        assert!(verdict.passed(), "{body}: {verdict:?}");
    }
    let row = json!({"inputs": ["3 4"], "outputs": ["5.0"]});
    let program = "a, b = map(int, sys.stdin.read().split())
print(sqrt(a * a + b * b))";
    assert!(verdict_of(&judge, row, program).passed());
    // Rows of other forms are run as their tests are published.
    let row = json!({"tests": ["assert f(4) == 2"], "entry_point": "f"});
    let verdict = verdict_of(
        &judge,
        row,
        "def f(x):
    return sqrt(x)",
    );
    assert!(verdict.detail.contains("NameError"), "{verdict:?}");
}

#[test]
fn numbers_of_a_program_may_miss_by_the_tolerance_of_the_task() {
    let Some(judge) = judge(true) else { return };
    let pair = |more: Value, output: &str| {
        let mut row = json!({"inputs": ["1"], "outputs": ["0.333333333
"]});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        verdict_of(&judge, row, &format!("print({output:?})")).passed()
    };
    assert!(pair(json!({"tolerance": 1e-6}), "0.3333333") && pair(json!({}), "0.333333333"));
    assert!(!pair(json!({}), "0.3333333") && !pair(json!({"tolerance": null}), "0.3333333"));
    assert!(
        !pair(json!({"tolerance": 1e-6}), "0.33333") && pair(json!({"tolerance": 0.01}), "0.33")
    );
    assert!(!pair(json!({"tolerance": 0}), "0.3333333"));
    let stated = "Its absolute or relative error must not exceed $10^{-6}$.";
    let mut asked = task(json!({"inputs": ["1"], "outputs": ["0.333333333
"]}));
    asked.question = stated.to_owned();
    let problem = Problem::read(&asked).unwrap();
    assert!(judge.judge(&problem, "print(1 / 3)").unwrap().passed());
    assert!(!judge.judge(&problem, "print(0.3334)").unwrap().passed());
    let called = |output: Value, returned: &str| {
        let row = json!({"inputs": [[1]], "outputs": [output], "fn_name": "f", "tolerance": 1e-5});
        verdict_of(
            &judge,
            row,
            &format!(
                "def f(x):
    return {returned}"
            ),
        )
        .passed()
    };
    assert!(called(json!(0.5), "0.500001") && called(json!([1.5, 2]), "[1.500001, 2.0]"));
    assert!(called(json!({"a": 0.1}), "{'a': 0.1 + 1e-9}") && called(json!(1e6), "1e6 + 1"));
    assert!(!called(json!(0.5), "0.51") && !called(json!(100_000), "100001"));
    assert!(!called(json!(0.5), "'0.5'") && !called(json!(0.5), "float('nan')"));
    assert!(!called(json!([1.5, 2.5]), "[1.5]") && !called(json!(1.0), "float('inf')"));
    for wrong in [json!("1e-6"), json!(-1), json!(2), json!(true)] {
        let error =
            Problem::read(&task(json!({"answers": ["1"], "tolerance": wrong}))).unwrap_err();
        assert!(error.starts_with("`tolerance` is ") && error.contains("1e-6"), "{error}");
    }
}

#[test]
fn a_program_may_write_as_much_as_its_task_expects() {
    let Some(judge) = judge(true) else { return };
    let long = "12345678\n".repeat(300_000);
    let row = json!({"inputs": [""], "outputs": [long]});
    let once = "print('12345678\\n' * 300000)";
    assert!(verdict_of(&judge, row.clone(), once).passed());
    let verdict = verdict_of(&judge, row, &format!("while True:\n    {once}"));
    assert_eq!(verdict.reason, Reason::Limit, "{verdict:?}");
}

#[test]
fn a_verdict_does_not_depend_on_chance() {
    let Some(judge) = judge(true) else { return };
    let programs = [
        "import random\nprint(random.randint(0, 1))",
        "import random\nprint(random.getrandbits(1))",
        "import random\nprint(int(random.random() < 0.5))",
        "import random\nprint(random.choice([0, 1]))",
        "import random\nnumbers = [0, 1]\nrandom.shuffle(numbers)\nprint(numbers[0])",
        "import random\nprint(random.sample(range(2), 1)[0])",
        "import random\nprint(int(random.gauss(0, 1) > 0))",
        "import random\nrandom.setstate(random.getstate())\nprint(random.randrange(2))",
        "from random import *\nprint(choices([0, 1])[0])",
        "import statistics\nprint(int(statistics.NormalDist().samples(1)[0] > 0))",
        "print(hash('a') % 2)",
        "print(hash((b'a', frozenset({'a', 'b'}))) % 2)",
        "print(int(next(iter({'a', 'b', 'c'})) == 'a'))",
        "print(int(list({'ab', 'cd'} | {'ef'})[0] == 'cd'))",
        "import datetime\nprint(hash(datetime.date(2024, 5, 6)) % 2)",
    ];
    let row = json!({"inputs": ["1\n"], "outputs": ["1\n"]});
    for program in programs {
        let verdict = || verdict_of(&judge, row.clone(), program);
        let first = verdict();
        for _ in 0..7 {
            assert_eq!(verdict(), first, "{program}");
        }
    }
}
