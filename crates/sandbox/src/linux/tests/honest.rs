//! Harmless programs: the features of the standard library that they need work, and refused features fail as
//! documented.

use std::path::Path;

use super::*;

/// Returns the output of a program that must succeed.
fn printed(sandbox: &Sandbox, source: &str) -> String {
    let output = sandbox.run(source, b"", &ProgramLimits::default()).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.succeeded(), "{source}\n{:?}\n{}", output.ending, text(&output.stderr));
    text(&output.stdout)
}

/// Returns the sandboxes for all interpreters of this machine, one per version.
fn sandboxes() -> Vec<Sandbox> {
    let known = ["python3.8", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13"];
    let home = std::env::var("HOME").unwrap_or_default();
    let installed = Path::new(&home).join(".pyenv/versions");
    let installed = std::fs::read_dir(installed).into_iter().flatten().flatten();
    let mut commands: Vec<String> =
        installed.map(|entry| entry.path().join("bin/python3").display().to_string()).collect();
    commands.extend(known.map(str::to_owned));
    commands.sort();
    commands.push("python3".to_owned());
    commands.iter().filter_map(|command| Sandbox::new(command, false).ok()).collect()
}

#[test]
fn asyncio_runs_with_tasks_threads_and_timeouts() {
    let source = "
import asyncio, socket, sys
async def double(x):
    await asyncio.sleep(0.01)
    return x * 2
async def late():
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.05)
    except asyncio.TimeoutError:
        return 'late'
async def both_ways():
    near, far = socket.socketpair()
    far.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=near)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(far, b'x' * 100000)
    writer.write(b'y')
    return len(await reader.readexactly(100000)), await loop.sock_recv(far, 1)
async def main():
    print(await asyncio.gather(*[double(x) for x in range(4)]), await late(), await both_ways())
    print(await asyncio.get_running_loop().run_in_executor(None, sum, [1, 2]))
asyncio.run(main())
";
    for sandbox in sandboxes() {
        let said = printed(&sandbox, source);
        assert_eq!(said, "[0, 2, 4, 6] late (100000, b'y')\n3\n", "{:?}", sandbox.python.name);
    }
}

#[test]
fn a_candidate_may_use_asyncio_as_tests_may() {
    let source = "import asyncio\nasync def twice(x):\n    return x * 2\ndef f(x):\n    return asyncio.run(twice(x))";
    let test = "
import asyncio
def check(candidate):
    async def ask():
        return candidate(3)
    assert asyncio.run(ask()) == 6
";
    let Some(report) = check(source, "f", test) else { return };
    assert!(report.passed(), "{report:?}");
}

#[test]
fn devices_of_nothing_and_of_randomness_are_there() {
    let source = "
import os, random, secrets, subprocess
open(os.devnull, 'w').write('x')
open('/dev/null', 'ab').write(b'x')
print(open(os.devnull).read() == '', open('/dev/zero', 'rb').read(2))
print([len(open(path, 'rb').read(8)) for path in ('/dev/urandom', '/dev/random')])
print(len(os.urandom(4)), secrets.randbelow(1), random.SystemRandom().random() < 1, random.Random(0).random())
print([os.path.exists('/dev/' + name) for name in ('null', 'zero', 'mem', 'tty', 'shm')])
";
    let Some(full) = sandbox() else { return };
    let lines = "True b'\\x00\\x00'\n[8, 8]\n4 0 True 0.8444218515250481\n";
    let said = printed(full, source);
    assert!(said.starts_with(lines), "{said}");
    if full.root.is_some() {
        assert!(said.ends_with("[True, True, False, False, False]\n"), "{said}");
    }
    let landlock = Landlock::new(&full.python).ok();
    if full.landlock.is_some() {
        let alone = hostile::with(full, None, landlock);
        assert!(printed(&alone, source).starts_with(lines));
    }
}

#[test]
fn files_of_its_own_are_made_locked_flushed_and_shared_by_connections() {
    let source = "
import fcntl, mmap, os, shelve, sqlite3, tempfile
with tempfile.TemporaryDirectory() as place:
    with open(place + '/f', 'w+') as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        file.write('x' * 5000)
        file.flush()
        os.fsync(file.fileno())
        fcntl.lockf(file, fcntl.LOCK_UN)
        file.truncate(4096)
        print(mmap.mmap(file.fileno(), 4096)[:1])
    open(place + '/f', 'w').close()
    print(os.path.getsize(place + '/f'))
    os.rename(place + '/f', place + '/g')
    os.unlink(place + '/g')
    first, second = sqlite3.connect(place + '/db'), sqlite3.connect(place + '/db')
    first.execute('create table t (x)')
    for number, connection in enumerate((first, second, first)):
        connection.execute('insert into t values (?)', (number,))
        connection.commit()
    print(second.execute('select x from t').fetchall())
for kind in (tempfile.TemporaryFile, tempfile.NamedTemporaryFile, tempfile.SpooledTemporaryFile):
    with kind() as file:
        file.write(b'x')
";
    let Some(full) = sandbox().filter(|full| full.root.is_some()) else { return };
    assert_eq!(printed(full, source), "b'x'\n0\n[(0,), (1,), (2,)]\n");
}

#[test]
fn threads_come_and_go_up_to_the_limit() {
    let source = "
import threading, time, queue
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda x: x * x, range(100))))
done = []
for number in range(300):
    thread = threading.Thread(target=done.append, args=(number,))
    thread.start()
    thread.join()
print(len(done))
def nested():
    thread = threading.Thread(target=done.append, args=(0,))
    thread.start()
    thread.join()
threads = [threading.Thread(target=nested) for _ in range(5)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(done))
time.sleep(0.05)
gate = threading.Event()
started = 1
try:
    while started < 100:
        threading.Thread(target=gate.wait).start()
        started += 1
except RuntimeError as error:
    print(started, error)
gate.set()
";
    let Some(full) = sandbox() else { return };
    // Each thread needs address space for a stack and a heap.
    let limits = ProgramLimits { memory: 8 << 30, ..ProgramLimits::default() };
    let output = full.run(source, b"", &limits).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "328350\n300\n305\n16 can't start new thread\n", "{output:?}");
}

#[test]
fn processes_sockets_and_signals_are_refused_with_an_error_that_can_be_caught() {
    let source = "
import multiprocessing, os, signal, socket, subprocess
works = [lambda: subprocess.run(['true']), lambda: os.fork(), lambda: os.system('true') and os.fork(),
         lambda: multiprocessing.Process(target=print).start(), lambda: multiprocessing.Pool(1),
         lambda: socket.socket(), lambda: socket.create_server(('', 0)), lambda: os.kill(os.getpid(), 0)]
for work in works:
    try:
        work()
        print('no error')
    except OSError as error:
        pass
print('all refused')
";
    let Some(full) = sandbox() else { return };
    assert_eq!(printed(full, source), "all refused\n");
}

#[test]
fn exit_and_quit_end_a_program_as_they_do_everywhere() {
    let Some(full) = sandbox() else { return };
    for end in ["exit()", "quit()", "exit(0)", "import sys; sys.exit()", "raise SystemExit"] {
        assert_eq!(printed(full, &format!("print(1)\n{end}\nprint(2)")), "1\n", "{end}");
    }
    let output = full.run("exit(3)", b"", &ProgramLimits::default()).unwrap();
    assert_eq!(output.ending, Ending::Exited(3));
}

#[test]
fn a_traceback_is_told_by_every_version() {
    for sandbox in sandboxes() {
        let output = sandbox.run("def f():\n    return 1 / 0\nf()", b"", &ProgramLimits::default());
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim_end().lines().last().unwrap_or_default();
        assert_eq!(said, "ZeroDivisionError: division by zero", "{:?}", sandbox.python.name);
    }
}

#[test]
fn random_numbers_depend_on_the_input_alone_in_every_version() {
    let source = "
import random, statistics
from random import randint
print(random.random(), randint(0, 10**9), random.sample(range(99), 5), statistics.NormalDist().samples(2))
";
    for sandbox in sandboxes() {
        let printed = |input: &[u8]| {
            let output = sandbox.run(source, input, &ProgramLimits::default()).unwrap();
            assert!(output.succeeded(), "{output:?}");
            output.stdout
        };
        assert_eq!(printed(b"1"), printed(b"1"), "{:?}", sandbox.python.name);
        assert_ne!(printed(b"1"), printed(b"2"), "{:?}", sandbox.python.name);
    }
    let Some(full) = sandbox() else { return };
    let drawn = |test: &str| {
        let source = "import random
def f(wanted):
    drawn = random.random()
    assert drawn == wanted, drawn
";
        let tests = [ExamTest::Code { code: test.to_owned() }];
        let exam = Exam { source, entry: "f", tests: &tests, ..Exam::default() };
        full.examine(&exam, &ProgramLimits::default()).unwrap().failure.unwrap().text
    };
    // The test has a generator of its own with the same seed.
    let text = drawn("f(2)");
    assert!(text.starts_with("AssertionError: 0.") && text == drawn("f(2)"), "{text}");
    assert_ne!(text, drawn("f(3)"));
    let report = check(
        "import random
def f():
    return random.random()",
        "f",
        "import random
def check(f):
    assert f() == random.random()",
    );
    assert!(report.unwrap().passed());
}

#[test]
fn long_numbers_are_written_and_read_in_every_version() {
    let source =
        "print(len(str(10**5000)), int('9' * 5000) % 7, len(f'{3**20000}'), len(repr(10**4300)))";
    for sandbox in sandboxes() {
        assert_eq!(
            printed(&sandbox, source),
            "5001 1 9543 4301
",
            "{:?}",
            sandbox.python.name
        );
    }
    let source = "def f(n):
    return len(str(10**n)) + len(str(int('1' * n)))";
    let Some(report) = check(
        source,
        "f",
        "def check(f):
    assert f(5000) == 10001 == len(str(10**10000))",
    ) else {
        return;
    };
    assert!(report.passed(), "{report:?}");
}

#[test]
fn standard_streams_have_their_usual_paths() {
    let Some(full) = sandbox() else { return };
    for source in [
        "print(open('/dev/stdin').read().split())",
        "print(open('/dev/stdin', 'rb').read().decode().split())",
        "with open('/dev/stdin', 'r', encoding='utf-8') as file:
    print(file.read().split())
print(end='')",
        "import pathlib
print(pathlib.Path('/dev/stdin').read_text().split())",
        "import io
print(io.open('/dev/stdin').read().split())",
        "import fileinput
print([word for line in fileinput.input('/dev/stdin') for word in line.split()])",
        "import sys
sys.stdin = open('/dev/stdin')
print(input().split() + input().split())",
        "print([word for line in open('/dev/stdin') for word in line.split()])",
        "print(open(0).read().split())",
        "words = open('/dev/stdin').read().split()
open('/dev/stdout', 'w').write(f'{words}\\n')",
        "import codecs
print(codecs.open('/dev/stdin').read().split())",
    ] {
        let output = full
            .run(
                source,
                b"a b
c
",
                &ProgramLimits::default(),
            )
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            text,
            "['a', 'b', 'c']
",
            "{source}
{output:?}"
        );
    }
    let output = full.run(
        "open('/dev/stdin', 'w')
open('/dev/stdim')",
        b"",
        &ProgramLimits::default(),
    );
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.trim_end().ends_with("No such file or directory: '/dev/stdim'"), "{text}");
}

#[test]
fn a_preamble_runs_before_programs_that_lack_names_alone() {
    let Some(full) = sandbox() else { return };
    let preamble = "from math import *
from typing import *
print('preamble')
";
    for (source, ran) in [
        ("print(sqrt(4) > 1)", true),
        (
            "def f(x: List[int]): pass
print(True)",
            true,
        ),
        (
            "class A:
    def f(self) -> Optional[int]:
        return inf
print(True)",
            true,
        ),
        ("print((lambda: floor(1.5))() == 1)", true),
        (
            "from __future__ import annotations
print(sqrt(4) > 1)",
            true,
        ),
        ("print(True)", false),
        (
            "from math import sqrt
print(sqrt(4) > 1)",
            false,
        ),
        (
            "def sqrt(x): return x
print(sqrt(4) > 1)",
            false,
        ),
        (
            "def f():
    global g
    g = 1
f()
print(g == 1)",
            false,
        ),
        (
            "import math as m
print([m.sqrt(x) for x in [1]] == [1.0])",
            false,
        ),
        (
            "try:
    pass
except ValueError as error:
    pass
print(__name__ == '__main__')",
            false,
        ),
    ] {
        let output = full.run_after(preamble, source, b"", &ProgramLimits::default()).unwrap();
        let wanted = if ran {
            "preamble
True
"
        } else {
            "True
"
        };
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            wanted,
            "{source}
{output:?}"
        );
    }
    let output = full.run_after(
        preamble,
        "x = sqrt(4)
missing",
        b"",
        &ProgramLimits::default(),
    );
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.contains("line 2, in <module>") && text.contains("NameError"), "{text}");
    let output = full
        .run_after(
            preamble,
            "x = (
",
            b"",
            &ProgramLimits::default(),
        )
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("SyntaxError"), "{output:?}");
}
