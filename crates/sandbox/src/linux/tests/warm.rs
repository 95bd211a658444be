//! Forks of a waiting interpreter: they begin as a new interpreter does, share nothing, and end with their parent.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::hostile::with;
use super::*;

/// Prints what a program may notice of its interpreter: modules, depth of calls, names, numbers, and descriptors.
const PROBE: &str = "
import sys
modules = sorted(sys.modules)
def depth():
    try:
        return 1 + depth()
    except RecursionError:
        return 1
import gc, os, random
descriptors = []
for number in range(64):
    try:
        os.fstat(number)
        descriptors.append(number)
    except OSError:
        pass
seen = [modules, depth(), sys.argv, dict(os.environ), os.getcwd(), hash('a'), random.random(), descriptors, sys.flags[:],
        sys.path, os.getuid(), os.getpid(), gc.isenabled(), gc.get_threshold(),
        sys.stdout.line_buffering, sys.stdin.encoding, sys.stdout.errors, sorted(vars(sys.modules['__main__']))[:3]]
";

/// Returns sandboxes with the layers of this machine: one forks an interpreter, and one starts an interpreter each time.
fn both() -> Option<[Sandbox; 2]> {
    let full = sandbox()?;
    let like = |forks: bool| {
        let root = full.root.as_ref().and_then(|_| Root::new(&full.python.paths).ok());
        let landlock = full.landlock.as_ref().and_then(|_| Landlock::new(&full.python).ok());
        let mut sandbox = with(full, root, landlock);
        if !forks {
            sandbox.warm = Err("not wanted".to_owned());
        }
        sandbox
    };
    Some([like(true), like(false)])
}

#[test]
fn programs_of_this_machine_run_in_forks() {
    let Some(full) = sandbox() else { return };
    assert!(full.warm.is_ok(), "{:?}", full.protection_gaps());
}

#[test]
fn a_fork_begins_as_a_new_interpreter_does() {
    let Some([warm, cold]) = both() else { return };
    let program = format!("{PROBE}\nprint(seen)");
    let [forked, started] = [&warm, &cold].map(|sandbox| {
        let output = sandbox.run(&program, b"input", &ProgramLimits::default()).unwrap();
        assert!(output.succeeded(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    });
    assert_eq!(forked, started);
    // The process of a candidate, and that of its tests.
    let candidate = format!("{PROBE}\nprint(seen, flush=True)\ndef f():\n    return 1");
    let tests =
        [ExamTest::Code { code: format!("{PROBE}\nprint(seen, flush=True)\nassert f() == 1") }];
    let exam = Exam { source: &candidate, entry: "f", tests: &tests, ..Exam::default() };
    let [forked, started] = [&warm, &cold].map(|sandbox| {
        let [tests, candidate] = sandbox.examine_outputs(&exam, &ProgramLimits::default()).unwrap();
        assert!(ExamReport::from_outputs(&exam, &tests, &candidate).unwrap().passed(), "{tests:?}");
        [tests.stderr, candidate.stdout].map(|text| String::from_utf8(text).unwrap())
    });
    assert!(forked.iter().all(|text| text.contains("'sys'")), "{forked:?}");
    assert_eq!(forked, started);
}

#[test]
fn a_module_that_the_waiting_interpreter_uses_is_a_new_one_in_a_fork() {
    let Some([warm, _]) = both() else { return };
    let source = "
import sys
print([name in sys.modules for name in ('ctypes', '_ctypes', '_socket', 'gc')])
import ctypes, gc, socket, struct, threading
print(ctypes.c_long(3).value, ctypes.CDLL(None).abs(-4), gc.isenabled(), len(socket.socketpair()), struct.pack('<h', 1))
thread = threading.Thread(target=lambda: print(threading.get_native_id(), threading.main_thread().ident is None))
thread.start()
thread.join()
print(threading.main_thread() is threading.current_thread(), threading.active_count())";
    let output = warm.run(source, b"", &ProgramLimits::default()).unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let [modules, values, thread, main] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{output:?}")
    };
    assert_eq!(modules, "[False, False, False, False]");
    assert_eq!(values, "3 4 True 2 b'\\x01\\x00'");
    assert!(thread.ends_with(" False"), "{thread}");
    assert_eq!(main, "True 1");
}

#[test]
fn a_fork_sees_nothing_of_the_programs_before() {
    let Some([warm, _]) = both() else { return };
    let wicked = "
import builtins, gc, json, os, random, sys
builtins.secret = random.secret = sys.secret = 'left'
random.random = lambda: 2
sys.modules['json'] = None
os.environ['SECRET'] = 'left'
for found in gc.get_objects():
    if isinstance(found, dict) and len(found) > 3:
        try:
            found['secret'] = 'left'
        except Exception:
            pass
os.path.exists('/tmp') and open('/tmp/secret', 'w').write('left')
sys.stdout.write('done')
sys.stdout.flush()
os._exit(0)";
    let honest = "
import builtins, gc, json, os, random, sys
print(json.dumps(hasattr(builtins, 'secret') or hasattr(random, 'secret') or hasattr(sys, 'secret')), random.random() < 1,
      os.environ.get('SECRET'), os.path.exists('/tmp/secret'), 'left' + '!' in str(gc.get_objects()))";
    for _ in 0..3 {
        let output = warm.run(wicked, b"left!", &ProgramLimits::default()).unwrap();
        assert_eq!(output.stdout, b"done", "{output:?}");
        let output = warm.run(honest, b"", &ProgramLimits::default()).unwrap();
        assert_eq!(output.stdout, b"false True None False False\n", "{output:?}");
    }
}

/// Programs whose end does something, beside those that end quietly.
const ENDS: [&str; 18] = [
    "print(1)",
    "import collections, dataclasses, enum, functools, json, re, typing\nprint(1)",
    "class A:\n  def __del__(self): print('removed')\na = A()",
    "class A:\n  __slots__ = ()\n  def __del__(self): print('removed')\na = A()",
    "class A:\n  def __del__(self): print('removed')\na = A()\na.a = a",
    "def g():\n  try:\n    yield 1\n  finally:\n    print('closed')\nh = g()\nnext(h)",
    "f = open(1, 'w', closefd=False)\nf.write('text')",
    "f = open('/dev/stdout', 'w')\nf.write('text')",
    "import atexit\natexit.register(print, 'exit')",
    "import weakref\nclass A: pass\na = A()\nr = weakref.ref(a, lambda r: print('gone'))",
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "import _thread, time\n_thread.start_new_thread(time.sleep, (60,))\nprint(1)",
    "import io, sys\nsys.stdout = io.StringIO()\nprint(1)",
    "import sys\nclass Out:\n  def write(self, text): self.text = text\n  def flush(self): sys.__stdout__.write('flushed')\nsys.stdout = Out()\nprint(1)",
    "import sys\nsys.stdout.close()",
    "import sys\nclass A:\n  def __del__(self): print('removed')\na = A()\nsys.exit(3)",
    "exit()",
    "import os\nos.close(1)\nprint(1)",
];

#[test]
fn a_fork_ends_as_a_new_interpreter_does() {
    let Some([warm, cold]) = both() else { return };
    for source in ENDS {
        let [forked, started] = [&warm, &cold].map(|sandbox| {
            let output = sandbox.run(source, b"", &ProgramLimits::default()).unwrap();
            (output.ending, String::from_utf8(output.stdout).unwrap())
        });
        assert_eq!(forked, started, "{source}");
    }
}

#[test]
fn an_interpreter_that_has_ended_is_replaced() {
    let Some([warm, _]) = both() else { return };
    let Ok(pool) = &warm.warm else { panic!("{:?}", warm.warm) };
    let run = || warm.run("print(1)", b"", &ProgramLimits::default()).unwrap().stdout;
    assert_eq!(run(), b"1\n");
    let first = pool.number_of(Launcher::Program).unwrap();
    assert_eq!(run(), b"1\n");
    assert_eq!(pool.number_of(Launcher::Program), Some(first));
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    // The system closes its end of the connection when it ends, which is soon.
    let outputs = (0..1000).map(|_| warm.run("print(1)", b"", &ProgramLimits::default()));
    let replaced = outputs.filter_map(Result::ok).find(|output| {
        assert_eq!(output.stdout, b"1\n");
        pool.number_of(Launcher::Program) != Some(first)
    });
    assert!(replaced.is_some());
}

#[test]
fn an_interpreter_that_cannot_wait_says_why() {
    let Some([warm, _]) = both() else { return };
    let mut python = warm.python.clone();
    python.executable = c"/nonexistent/python".to_owned();
    let pool = WarmPool::new(&python).unwrap();
    let (_near, far) = create_connection().unwrap();
    let confinement = Confinement::default();
    let error = pool.begin_process(Launcher::Program, &confinement, far).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
}

/// Variable of the process that the next test kills.
const KILLED: &str = "KILLED_WITH_A_PROGRAM";

/// The part of the next test that another process runs: it starts a program, and is killed.
#[test]
fn waits_with_a_program() {
    if std::env::var_os(KILLED).is_none() {
        return;
    }
    let sandbox = sandbox().unwrap();
    let (near, far) = create_connection().unwrap();
    let limits =
        ProgramLimits { wall: std::time::Duration::from_secs(600), ..ProgramLimits::default() };
    let mut program = sandbox.start_program(Launcher::Program, &[], far, &limits).unwrap();
    let source = launcher_input("", "import time\ntime.sleep(600)", 0);
    program.feed_input(near, source.as_bytes()).unwrap();
    println!("\nprogram {}", program.number());
    let _ = watch_processes([program], Instant::now() + limits.wall);
}

#[test]
fn a_program_ends_with_the_process_that_runs_it_even_if_that_is_killed() {
    if sandbox().is_none() {
        return;
    }
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "--exact", "linux::tests::warm::waits_with_a_program"])
        .env(KILLED, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let program =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("program ")?.parse().ok());
    let program: i32 = program.unwrap();
    assert!(!has_ended(program));
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!((0..60_000).any(|_| has_ended(program)), "process {program} outlives its parent");
}

/// Returns true if a process has ended; if not, waits for 10 ms.
pub(super) fn has_ended(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, after)| after.chars().next());
    let ended = matches!(state, None | Some('Z' | 'X'));
    if !ended {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    ended
}
