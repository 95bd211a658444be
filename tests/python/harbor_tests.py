"""Tests of examples/programs/harbor_env.py and the files beside it: tasks, rewards, containers. `python harbor_tests.py`.

Those of containers are skipped where bubblewrap may not make namespaces, or where no daemon of Docker answers.
"""

import json
import os
import socket
import stat
import sys
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS, EXAMPLES = ROOT / "examples/programs", ROOT / "tests/fixtures/harbor"
sys.path.insert(0, str(PROGRAMS))

import harbor_env  # noqa: E402
from harbor_sandbox import SandboxError, has_bwrap, has_docker, open_sandbox, read_dockerfile  # noqa: E402
from harbor_task import RewardError, TaskError, read_reward, read_task, read_tasks  # noqa: E402

TASK = '[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n'
DOCKERFILE = "FROM debian:12-slim\nWORKDIR /app\n"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def make(self, tests="echo 1 > /logs/verifier/reward.txt", solution="true", table=TASK, dockerfile=DOCKERFILE, files=()):
        """Writes a task directory."""
        path = Path(tempfile.mkdtemp(dir=self.dir))
        for name, text in [
            ("task.toml", table),
            ("instruction.md", "Do it."),
            ("environment/Dockerfile", dockerfile),
            ("tests/test.sh", f"#!/bin/bash\n{tests}\n"),
            ("solution/solve.sh", f"#!/bin/bash\n{solution}\n"),
            *files,
        ]:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
        return path


class Tasks(Case):
    def test_task_directories_are_read(self):
        tasks = read_tasks(EXAMPLES)
        self.assertEqual(list(tasks), ["count-words", "fix-script", "sort-names"])
        self.assertEqual((tasks["sort-names"].agent_s, tasks["sort-names"].memory_mb), (120, 2048))
        self.assertIn("/app/text.txt", tasks["count-words"].instruction)

    def test_what_is_wrong_with_a_task_is_said_all_at_once(self):
        table = (
            'steps = [{name = "a"}]\n[agent]\ntimeout_sec = -1\n[verifier]\nenvironment_mode = "separate"\n'
            '[verifier.env]\nKEY = "${OPENAI_API_KEY}"\n[environment]\ngpus = 1\nnetwork_mode = "some"\nmemory_mb = true\n'
        )
        path = self.make(table=table)
        (path / "instruction.md").unlink()
        (path / "tests/test.sh").unlink()
        with self.assertRaises(TaskError) as caught:
            read_task(path)
        for part in [
            "`steps` is not supported",
            "`agent.timeout_sec` is -1",
            "`verifier.environment_mode` is 'separate'",
            "`verifier.env.KEY` is '${OPENAI_API_KEY}'",
            "`environment.gpus` is not supported",
            "`environment.network_mode` is 'some'",
            "`environment.memory_mb` is True",
            "`instruction.md` cannot be read",
            "there is no file `tests/test.sh`",
        ]:
            self.assertIn(part, str(caught.exception))

    def test_a_link_to_a_file_of_this_machine_is_not_read(self):
        for name in ["instruction.md", "task.toml", "tests/test.sh"]:
            path = self.make()
            (path / name).unlink()
            (path / name).symlink_to("/etc/passwd")
            with self.assertRaises(TaskError, msg=name):
                read_task(path)
        path = self.make()
        (path / "instruction.md").unlink()
        os.mkfifo(path / "instruction.md")
        with self.assertRaises(TaskError):
            read_task(path)

    def test_a_dockerfile_is_read_with_comments_and_continued_lines(self):
        text = "# first\nFROM a\n  # inner\nENV A=1 \\\n  B=2\ncopy x y\n"
        self.assertEqual(list(read_dockerfile(text)), [("FROM", "a"), ("ENV", "A=1    B=2"), ("COPY", "x y")])


class Rewards(Case):
    def read(self, **files):
        for path in self.dir.iterdir():
            path.unlink()
        for name, text in files.items():
            (self.dir / name.replace("_", ".")).write_text(text)
        return read_reward(lambda name: self.dir / name)

    def test_the_object_comes_before_the_number(self):
        self.assertEqual(self.read(reward_txt="0.25\n"), (0.25, {}))
        self.assertEqual(self.read(reward_txt="1", reward_json='{"reward": 0.5, "lines": 3}'), (0.5, {"lines": 3}))
        self.assertEqual(self.read(reward_json='{"accuracy": 1}'), (1.0, {}))

    def test_a_reward_that_is_none_is_an_error_and_not_0(self):
        for files, expected in [
            ({}, "neither"),
            ({"reward_txt": " \n"}, "is empty"),
            ({"reward_txt": "nan"}, "is not finite"),
            ({"reward_txt": "inf"}, "is not finite"),
            ({"reward_txt": "one"}, "is no number"),
            ({"reward_txt": "1" * 70000}, "more than"),
            ({"reward_json": "{}", "reward_txt": "1"}, "no object of finite numbers"),
            ({"reward_json": '{"reward": NaN}'}, "no object of finite numbers"),
            ({"reward_json": '{"reward": true}'}, "no object of finite numbers"),
            ({"reward_json": '{"a": 1, "b": 2}'}, "several numbers"),
            ({"reward_json": "[" * 30000}, "is not JSON"),
        ]:
            with self.assertRaises(RewardError) as caught:
                self.read(**files)
            self.assertIn(expected, str(caught.exception))

    def test_a_link_in_the_place_of_a_reward_is_not_followed(self):
        (self.dir / "number").write_text("1")
        (self.dir / "reward.txt").symlink_to(self.dir / "number")
        with self.assertRaises(RewardError):
            read_reward(lambda name: self.dir / name)


class Containers(Case):
    """Tests of both kinds of containers; a subclass names the kind."""

    kind = None

    def play(self, path, agent="oracle"):
        return harbor_env.solve(read_task(path), agent, SimpleNamespace(kind=self.kind, network=False))


class Bwrap(Containers):
    kind = "bwrap"

    def setUp(self):
        super().setUp()
        if not has_bwrap():
            print("skipped: `bwrap` is not there, or may not make namespaces")
            self.skipTest("no bubblewrap")

    def test_solutions_solve_their_tasks_and_nothing_solves_none(self):
        for name, task in read_tasks(EXAMPLES).items():
            arguments = SimpleNamespace(kind=self.kind, network=False)
            solved, _ = harbor_env.solve(task, "oracle", arguments)
            nothing, _ = harbor_env.solve(task, "nop", arguments)
            print(f"{name}: oracle {solved}, nop {nothing}")
            self.assertEqual(solved, 1.0, name)
            self.assertLess(nothing, 1.0, name)
            self.assertEqual(nothing == 0.0, name != "fix-script", name)

    def test_tests_without_a_reward_are_an_error(self):
        for tests, expected in [("true", "neither"), ("echo nan > /logs/verifier/reward.txt", "not finite")]:
            with self.assertRaises(RewardError) as caught:
                self.play(self.make(tests=tests))
            self.assertIn(expected, str(caught.exception))
        late = self.make(tests="sleep 60", table="[verifier]\ntimeout_sec = 1\n")
        with self.assertRaises(RewardError) as caught:
            self.play(late)
        self.assertIn("longer than 1 s", str(caught.exception))

    def test_a_reward_that_the_agent_wrote_before_does_not_count(self):
        solution = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; mkdir /app/logs; ln -s /logs/verifier /app/v"
        with self.assertRaises(RewardError) as caught:
            self.play(self.make(tests="true", solution=solution))
        self.assertIn("neither", str(caught.exception))

    def test_the_agent_does_not_see_the_tests(self):
        solution = "ls /tests /solution /logs > /app/seen 2>&1; true"
        tests = 'if grep -q test.sh /app/seen; then echo 0; else echo 1; fi > /logs/verifier/reward.txt'
        self.assertEqual(self.play(self.make(tests=tests, solution=solution)), (1.0, {}))

    def test_files_and_variables_of_a_dockerfile_are_there(self):
        dockerfile = 'FROM x\nENV A="b c" \\\n    D=e\nWORKDIR /work/deep\nCOPY one two/ data/\nCOPY . /srv/all\nCMD ["x"]\n'
        files = [("environment/one", "1"), ("environment/two/inner", "2")]
        tests = (
            '[ "$A-$D-$PWD" = "b c-e-/work/deep" ] && [ "$(cat data/one data/inner /srv/all/two/inner)" = 122 ] '
            "&& echo 1 > /logs/verifier/reward.txt"
        )
        self.assertEqual(self.play(self.make(tests=tests, dockerfile=dockerfile, files=files)), (1.0, {}))

    def test_what_needs_docker_is_refused_by_its_line(self):
        for dockerfile, expected in [
            ("FROM x\nRUN apt-get install -y gcc\n", "`RUN apt-get install -y gcc` needs Docker"),
            ("FROM a AS b\nFROM c\n", "several stages"),
            ("FROM x\nUSER nobody\n", "`USER nobody` needs Docker"),
            ("FROM x\nCOPY --from=b /x /y\n", "needs Docker"),
            ("FROM x\nCOPY nothing /app/\n", "no such file"),
            ("FROM x\nCOPY ../task.toml /app/\n", "no such file"),
            ("FROM x\nCOPY out/task.toml /app/\n", "no such file"),
            ("FROM x\nCOPY one /etc/cron.d/one\n", "cannot have files at '/etc/cron.d/one'"),
            ("FROM x\nCOPY one /app/../../usr/bin/one\n", "cannot have files at '/usr/bin/one'"),
            ("FROM x\nWORKDIR /app\nCOPY out link\nCOPY one link/one\n", "leads through a file or a link"),
            ("FROM x\nCOPY two /srv\nCOPY one /srv/x/one\n", "leads through a file or a link"),
        ]:
            path = self.make(dockerfile=dockerfile, files=[("environment/one", "1")])
            (path / "environment/out").symlink_to("..")
            (path / "environment/two").mkdir()
            (path / "environment/two/x").symlink_to(self.dir)
            with self.assertRaises(SandboxError) as caught:
                self.play(path)
            self.assertIn(expected, str(caught.exception))
        self.assertEqual([path.name for path in self.dir.rglob("one") if "environment" not in path.parts], [])

    def test_a_hostile_task_escapes_nothing(self):
        secret = self.dir / "secret"
        secret.write_text("hidden")
        before = sorted(os.listdir("/"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(0.2)
            attempts = f"""
                exec 2> /dev/null
                cat {secret} && echo file
                (exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]}) && echo network
                touch /usr/bin/maverl-was-here && echo usr
                touch /maverl-was-here && echo root
                mount -t tmpfs none /usr && echo mount
                mount -o remount,rw /usr && echo remount
                unshare -U true && unshare -Um true && mknod /app/disk b 8 0 && echo node
                kill -9 {os.getpid()} && echo kill
                [ -d /proc/{os.getpid()}/root/work ] && echo proc
                [ -n "$MAVERL_GATEWAY_KEY" ] && echo key
                (sleep 300; touch /app/later) &
                ln -s {secret} /app/link; ln -s / /app/all
                mkfifo /app/pipe; mkdir -m 0 /app/closed
                true
            """
            os.environ["MAVERL_GATEWAY_KEY"] = "mv-secret"
            self.addCleanup(os.environ.pop, "MAVERL_GATEWAY_KEY")
            tests = f"""
                ({attempts}) > /logs/verifier/found
                cp /app/stolen /logs/verifier/stolen 2> /dev/null
                rm -rf /logs/verifier; rmdir /logs/verifier; ln -s {self.dir} /logs/verifier
                mkdir -p /logs/verifier
                ln -s {secret} /logs/verifier/reward.json
            """
            path = self.make(tests=tests, solution=f"({attempts}) > /app/found")
            task = read_task(path)
            with open_sandbox(task, self.kind, False) as sandbox:
                sandbox.add_solution()
                done = sandbox.run(["/solution/solve.sh"], 20)
                self.assertFalse(done.late, done)
                self.assertEqual((sandbox.dir / "root/app/found").read_text(), "")
                with self.assertRaises(RewardError):
                    harbor_env.judge(task, sandbox)
                place = sandbox.dir
            self.assertFalse(place.exists(), "the directories of the episode are removed")
            with self.assertRaises(TimeoutError):
                listener.accept()
        self.assertEqual(sorted(os.listdir("/")), before)
        self.assertFalse(Path("/usr/bin/maverl-was-here").exists())
        self.assertEqual(secret.read_text(), "hidden")

    def test_output_without_end_and_programs_without_end_are_bounded(self):
        task = read_task(self.make())
        with open_sandbox(task, self.kind, False) as sandbox:
            done = sandbox.run(["sh", "-c", "yes maverl"], 1)
            self.assertTrue(done.late and len(done.text) == 1 << 16)
            done = sandbox.run(["sh", "-c", "(sleep 1000 & sleep 1000 &) ; echo started"], 20)
            self.assertEqual((done.late, done.text), (False, "started\n"))

    def test_a_model_works_in_the_container_through_its_calls(self):
        said = [
            {"tool_calls": [call("bash", '{"command": "wc -w < text.txt > count.txt; cat count.txt"}'), call("fly", "{}")]},
            {"content": "done"},
        ]
        asked = []

        class Gateway(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked.append((self.path, self.headers["authorization"], body))
                message = {"role": "assistant", "content": None, **said[len(asked) - 1]}
                answer = json.dumps({"choices": [{"message": message}]}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Gateway)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}/episodes/e/v1"
        episode = {"base_url": url, "api_key": "mv-1", "models": ["agent"]}
        arguments = SimpleNamespace(kind=self.kind, network=False, turns=5)
        ended = harbor_env.play(read_tasks(EXAMPLES)["count-words"], episode, arguments)
        self.assertEqual(ended, ("/finish", {"reward": 1.0, "metrics": {}}))
        path, key, last = asked[1]
        self.assertEqual((path, key), ("/episodes/e/v1/chat/completions", "Bearer mv-1"))
        texts = [message["content"] for message in last["messages"] if message["role"] == "tool"]
        self.assertEqual(texts, ["19\n\n[exit code 0]", 'write {"command": ".."} for the tool `bash`'])
        path = self.make(tests="true")
        asked.clear()
        said[:] = [{"content": "nothing"}]
        ended = harbor_env.play(read_task(path), episode, arguments)
        self.assertEqual(ended[0], "/fail")
        self.assertIn("neither", ended[1]["message"])


def call(name, arguments):
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


class Docker(Containers):
    kind = "docker"

    def test_solutions_solve_their_tasks_and_nothing_solves_none(self):
        if not has_docker():
            print("skipped: no daemon of Docker answers")
            self.skipTest("no Docker")
        for name, task in read_tasks(EXAMPLES).items():
            arguments = SimpleNamespace(kind=self.kind, network=False)
            self.assertEqual(harbor_env.solve(task, "oracle", arguments)[0], 1.0, name)
            self.assertLess(harbor_env.solve(task, "nop", arguments)[0], 1.0, name)

    def test_a_container_is_started_without_a_network_and_removed(self):
        """A program in the place of `docker` records how it is called."""
        log, bin_dir = self.dir / "log", self.dir / "bin"
        bin_dir.mkdir()
        script = bin_dir / "docker"
        script.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *head*reward.txt) echo 0.5;; *head*) exit 1;; esac\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        path, os.environ["PATH"] = os.environ["PATH"], f"{bin_dir}:{os.environ['PATH']}"
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        table = TASK + '[environment]\ncpus = 2\nmemory_mb = 512\nnetwork_mode = "public"\n[environment.env]\nA = "b"\n'
        self.assertEqual(self.play(self.make(table=table)), (0.5, {}))
        lines = log.read_text().splitlines()
        self.assertRegex(lines[0], "^build --quiet --tag maverl-harbor:[0-9a-f]{24} .*/environment$")
        for part in ["--network none", "--pids-limit", "--cpus 2", "--memory 512m", "--env A=b", "no-new-privileges"]:
            self.assertIn(part, lines[1])
        order = [next(i for i, line in enumerate(lines) if part in line) for part in
                 ["/solution/solve.sh", "rm -rf /tests", "rm -rf /logs/verifier", "test-stdout.txt /tests/test.sh", "rm --force"]]
        self.assertEqual(order, sorted(order))
        self.assertEqual(order[-1], len(lines) - 1)


if __name__ == "__main__":
    unittest.main()
