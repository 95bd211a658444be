"""Tests of the Python package: `python package_tests.py [CLASS..]`, in a directory with `run.toml`.

`PYTHONPATH` has the package, `MAVERL_BINARY` the program. The tests need no package beside it; those of other packages are skipped
with a reason where these are missing.
"""

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import maverl
from maverl import _follow, _process, _settings, worker

ENDLESS = {"steps": 100_000, "algorithm.max_flat_steps": 100_000, "checkpoint.every": 100_000, "eval.tasks": 2}


def has(*packages):
    return unittest.skipUnless(
        all(importlib.util.find_spec(package) for package in packages), f"there is no {' or '.join(packages)} here"
    )


def lines_of(run, file="metrics.jsonl"):
    return [json.loads(line) for line in (run.path / file).read_text().splitlines()]


def wait_until(what, holds, seconds=600):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


def steps_of(path):
    try:
        return (path / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


class Case(unittest.TestCase):
    """A directory for the runs of each test."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())) if hasattr(self, "enterContext") else self._folder()

    def _folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Path(folder.name)

    def train(self, name="run", settings=None, **options):
        return maverl.train("run.toml", settings or {}, out=self.folder / name, quiet=True, **options)

    def script(self, text, **options):
        """Starts Python with a script, which has the run directory as `out`."""
        text = f"import maverl\nout = {str(self.folder / 'run')!r}\nendless = {ENDLESS!r}\n" + textwrap.dedent(text)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", text], preexec_fn=hear_interrupts, **pipes, **options)


def hear_interrupts():
    """Lets a new process be interrupted, also if this one was started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Training(Case):
    def test_a_run_is_followed_while_it_trains_and_is_that_of_the_command_line(self):
        run = self.train()
        rows, seen_running = [], []
        for row in run.follow(interval=0.01):
            rows.append(row)
            seen_running.append(run.is_running)
        self.assertTrue(seen_running[0])
        self.assertEqual(rows, lines_of(run))
        self.assertEqual([row["step"] for row in rows], [0, 1, 2, 3, 4, 4])
        self.assertTrue(run.summary["complete"])
        self.assertFalse(run.is_running)
        again = self.folder / "again"
        command = [os.environ["MAVERL_BINARY"], "train", "run.toml", "--out", str(again)]
        subprocess.run(command, check=True, capture_output=True)
        self.assertEqual((again / "metrics.jsonl").read_bytes(), (run.path / "metrics.jsonl").read_bytes())

    def test_a_run_that_another_process_trains_is_followed_too(self):
        script = self.script("maverl.train('run.toml', out=out, quiet=True)")
        wait_until("the run", lambda: steps_of(self.folder / "run") > 0)
        run = maverl.Run(self.folder / "run")
        if run.is_running:
            with self.assertRaisesRegex(maverl.Error, "another process trains"):
                run.stop()
        rows = list(run.wait().follow())
        self.assertEqual([row["step"] for row in rows], [0, 1, 2, 3, 4, 4])
        self.assertEqual(script.wait(), 0)
        script.communicate()

    def test_the_problems_of_a_configuration_are_the_message_of_the_error(self):
        with self.assertRaises(maverl.Error) as raised:
            self.train(settings={"stepz": 3, "task.data": "nothing.jsonl"})
        self.assertEqual(raised.exception.code, 1)
        message = str(raised.exception)
        self.assertTrue(message.startswith("2 problems in the configuration"), message)
        self.assertIn("unknown key `stepz`", message)
        self.assertIn("nothing.jsonl", message)
        self.assertFalse((self.folder / "run").exists())
        self.train("first", {"steps": 1}).wait()
        with self.assertRaisesRegex(maverl.Error, "not empty"):
            self.train("first")
        with self.assertRaisesRegex(maverl.Error, "is not a run directory"):
            maverl.Run(self.folder)
        with self.assertRaisesRegex(maverl.Error, "MAVERL_BINARY is `/no/maverl`"):
            with mock.patch.dict(os.environ, {"MAVERL_BINARY": "/no/maverl"}):
                self.train("second")

    def test_stages_are_refused_and_nothing_of_them_goes_on(self):
        (self.folder / "stages.toml").write_text(f"stages = [{json.dumps(os.path.abspath('run.toml'))}]\n")
        with self.assertRaisesRegex(maverl.Error, "has stages"):
            maverl.train(self.folder / "stages.toml", out=self.folder / "run", quiet=True)

    def test_settings_are_values_of_toml(self):
        odd = 'a "b" \\ \x7f \x01 é 🦀\n\ttab'
        settings = {
            "steps": 1,
            "eval.tasks": 2,
            "sampling": {"temperature": 0.5, "stop": [odd, "]"]},
            "models": {"tiny": {"optim": {"lr": 1e-30}, "path": Path("model")}},
            "record.clock": False,
        }
        run = self.train(settings=settings).wait()
        written = (run.path / "resolved.toml").read_text()
        try:
            import tomllib
        except ImportError:
            self.skipTest("this Python reads no TOML")
        written = tomllib.loads(written)
        self.assertEqual(written["sampling"]["stop"], [odd, "]"])
        self.assertEqual(written["sampling"]["temperature"], 0.5)
        self.assertEqual(written["models"]["tiny"]["optim"]["lr"], 1e-30)
        self.assertIs(written["record"]["clock"], False)
        for value in (None, {1, 2}, [None]):
            with self.assertRaisesRegex(maverl.Error, "write a text, number"):
                _settings.set_arguments({"seed": value})
        inline = _settings.set_arguments({"a": [{"x y": float("inf"), "b": [float("-inf")]}], "c": {}})
        self.assertEqual(inline, ["--set", 'a=[{"x y" = inf, b = [-inf]}]', "--set", "c={}"])

    def test_keys_may_be_numbers_and_values_those_of_numpy(self):
        class Scalar:
            """Stands in for a number or an array of NumPy."""

            def __init__(self, value):
                self.value = value

            def tolist(self):
                return self.value

        seats = _settings.set_arguments({"agents": {"debate/debater": {"seats": {1: {"x": {2: Scalar(0.5)}}}}}})
        self.assertEqual(seats, ["--set", 'agents."debate/debater".seats.1.x.2=0.5'])
        listed = _settings.set_arguments({"a": Scalar([1, True]), "b": [{3: Scalar("c")}]})
        self.assertEqual(listed, ["--set", "a=[1, true]", "--set", 'b=[{3 = "c"}]'])
        for settings, place in (({"a": {"b": {None: 1}}}, "None in `a.b`"), ({(1,): 1}, r"\(1,\) is"), ({"a": [{True: 1}]}, "True in `a`")):
            with self.assertRaisesRegex(maverl.Error, f"the key {place}.*; write the name of a key"):
                _settings.set_arguments(settings)

    def test_a_program_that_may_not_be_executed_is_named(self):
        program = self.folder / "program"
        program.write_text("#!/bin/sh\n")
        with mock.patch.dict(os.environ, {"MAVERL_BINARY": str(program)}):
            with self.assertRaisesRegex(maverl.Error, "program` may not be executed; `chmod \\+x` it, or set MAVERL_BINARY"):
                self.train()


class Ends(Case):
    """A run ends with the Python that started it."""

    def stopped(self):
        """Waits until the run was stopped in order, and returns it."""
        run = maverl.Run(self.folder / "run")
        wait_until("the end of the run", lambda: not run.is_running)
        self.assertIs(run.summary["complete"], False)
        last = run.summary["steps"]
        self.assertTrue((run.path / f"checkpoints/step-{last:06}").is_dir())
        return run

    def test_a_stopped_run_goes_on_with_the_same_bits_and_no_row_comes_twice(self):
        whole = self.train("whole", {"steps": 6, "eval.tasks": 2}).wait()
        run = self.train("run", {"steps": 6, "eval.tasks": 2, "checkpoint.every": 6})
        rows = []
        follower = threading.Thread(target=lambda: rows.extend(run.follow(interval=0.01)))
        wait_until("a step", lambda: steps_of(run.path) > 1)
        run.stop()
        self.assertIs(run.summary["complete"], False)
        follower.start()
        run.resume(quiet=True).wait()
        follower.join()
        self.assertTrue(run.summary["complete"])
        self.assertEqual(lines_of(run), lines_of(whole))
        rest = lines_of(run)[len(rows) :]
        self.assertEqual(rows + rest, lines_of(whole))
        more = run.resume({"steps": 8}, quiet=True).wait()
        self.assertEqual(more.summary["steps"], 8)
        self.assertTrue(run.resume(quiet=True).wait().summary["complete"])
        with self.assertRaisesRegex(maverl.Error, "task.group_size"):
            run.resume({"task.group_size": 3}, quiet=True)

    def test_an_interrupt_reaches_python_alone_and_stops_the_run_in_order(self):
        script = self.script(
            """
            run = maverl.train('run.toml', endless, out=out, quiet=True)
            for row in run.follow():
                print(row['step'], flush=True)
            """,
            start_new_session=True,
        )
        for wanted in ("0\n", "1\n", "2\n"):
            self.assertEqual(script.stdout.readline(), wanted)
        # As a terminal does: to the whole group of processes.
        os.killpg(script.pid, signal.SIGINT)
        _, errors = script.communicate()
        self.assertIn("KeyboardInterrupt", errors)
        self.assertFalse(maverl.Run(self.folder / "run").is_running)
        self.stopped()

    def test_a_killed_python_leaves_no_run_behind(self):
        script = self.script(
            """
            run = maverl.train('run.toml', endless, out=out, quiet=True)
            for row in run.follow():
                print(row['step'], flush=True)
            """
        )
        for wanted in ("0\n", "1\n"):
            self.assertEqual(script.stdout.readline(), wanted)
        script.kill()
        script.communicate()
        self.stopped()

    def test_a_fork_of_python_neither_ends_nor_keeps_a_run(self):
        script = self.script(
            """
            import os, sys, time
            run = maverl.train('run.toml', endless, out=out, quiet=True)
            if os.fork() == 0:
                sys.exit()
            os.wait()
            if os.fork() == 0:
                os.close(1), os.close(2)
                time.sleep(1000)
                sys.exit()
            next(run.follow())
            print(run.is_running, flush=True)
            time.sleep(1000)
            """,
            start_new_session=True,
        )
        self.assertEqual(script.stdout.readline(), "True\n")
        script.kill()
        script.communicate()
        self.stopped()
        os.killpg(script.pid, signal.SIGKILL)

    def test_a_finished_script_waits_for_its_run_and_a_failed_one_stops_it(self):
        script = self.script("maverl.train('run.toml', out=out)")
        _, errors = script.communicate()
        self.assertEqual(script.returncode, 0, errors)
        self.assertIn("run directory: ", errors)
        self.assertIn("the run goes on", errors)
        self.assertTrue(maverl.Run(self.folder / "run").summary["complete"])
        failed = self.script("out += '-2'\nmaverl.train('run.toml', endless, out=out, quiet=True)\n1 / 0")
        _, errors = failed.communicate()
        self.assertIn("ZeroDivisionError", errors)
        self.assertIs(maverl.Run(self.folder / "run-2").summary["complete"], False)
        failed = self.script("import sys\nout += '-3'\nmaverl.train('run.toml', endless, out=out, quiet=True)\nsys.exit('the data is wrong')")
        _, errors = failed.communicate()
        self.assertEqual((failed.returncode, errors), (1, "the data is wrong\n"))
        self.assertIs(maverl.Run(self.folder / "run-3").summary["complete"], False)
        exited = self.script("import sys\nout += '-4'\nmaverl.train('run.toml', out=out, quiet=True)\nsys.exit(0)")
        exited.communicate()
        self.assertTrue(maverl.Run(self.folder / "run-4").summary["complete"])

    def test_a_killed_run_is_an_error_and_goes_on_from_its_checkpoint(self):
        run = self.train(settings={**ENDLESS, "checkpoint.every": 1})
        with self.assertRaisesRegex(maverl.Error, "signal 9 ended the program") as raised:
            for row in run.follow(interval=0.01):
                if row["step"] == 2:
                    run._process._child.kill()
        self.assertEqual(raised.exception.code, -9)
        with self.assertRaises(maverl.Error):
            run.wait()
        self.assertFalse(run.is_running)
        self.assertTrue(run.resume({"steps": 4}, quiet=True).wait().summary["complete"])

    def test_ranks_end_with_python_too(self):
        script = self.script(
            """
            run = maverl.train('run.toml', endless, out=out, quiet=True, ranks_per_node=2)
            for row in run.follow():
                print(row['step'], flush=True)
            """
        )
        self.assertEqual(script.stdout.readline(), "0\n")
        script.kill()
        script.communicate()
        self.stopped()

    def test_a_child_of_the_program_that_outlives_it_does_not_hold_python_up(self):
        program = self.folder / "program"
        program.write_text("#!/bin/sh\nsleep 1000 &\necho $!\necho 'error: it is broken' >&2\nexit 3\n")
        program.chmod(0o755)
        with mock.patch.dict(os.environ, {"MAVERL_BINARY": str(program)}):
            process = _process.Process([], quiet=True, is_awaited=True)
        child = int(process.wait_for_line(*"123456789"))
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.assertTrue(process.wait())
        self.assertEqual((str(process.error()), process.error().code), ("it is broken", 3))

    def test_a_wait_has_a_limit(self):
        run = self.train(settings=ENDLESS)
        with self.assertRaises(TimeoutError):
            run.wait(timeout=0.1)
        with self.assertRaisesRegex(maverl.Error, "`stop` it first"):
            run.resume()
        run.stop()
        self.assertEqual(_process._running, set())


class Following(Case):
    """The reader of a file that grows, and that a resume cuts."""

    def test_every_row_comes_once_whatever_happens_to_the_file(self):
        file = self.folder / "metrics.jsonl"
        reader = _follow.MetricsReader(self.folder)
        read = lambda: [row["step"] for row in reader.new_rows()]
        self.assertEqual(read(), [])
        rows = [json.dumps({"step": n, "value": "x" * n}) + "\n" for n in range(9)]
        file.write_text("".join(rows[:3]) + rows[3][:5])
        self.assertEqual(read(), [0, 1, 2])
        file.write_text("".join(rows[:4]))
        self.assertEqual(read(), [3])
        file.write_text(rows[0])
        self.assertEqual(read(), [])
        file.write_text("".join(rows[:3]))
        self.assertEqual(read(), [])
        file.write_text("".join(rows[:6]))
        self.assertEqual(read(), [4, 5])
        # Other bytes, as with another number of ranks.
        other = [row.replace("x", "yy") for row in rows]
        file.write_text("".join(other[:8]))
        self.assertEqual(read(), [6, 7])


class Reading(Case):
    def setUp(self):
        super().setUp()
        self.run_ = self.train(settings={"steps": 2}).wait()

    def test_episodes_are_those_of_the_run(self):
        run = self.run_
        rows = [row for row in lines_of(run, "episodes.jsonl") if row["stage"] == "train"]
        episodes = list(run.episodes())
        self.assertEqual(len(episodes), 2 * 2 * 4)
        for episode, row in zip(episodes, rows):
            self.assertEqual((episode["step"], episode["task"]["id"], episode["index"]), (row["step"], row["task"], row["index"]))
            sampled = [turn["tokens"] for turn in episode["turns"]]
            self.assertEqual(sum(len(tokens["completion"]) for tokens in sampled), row["tokens"])
            self.assertTrue(all(len(tokens["completion"]) == len(tokens["logprobs"]) for tokens in sampled))
            self.assertEqual(episode["answer"], row["answer"])
            self.assertEqual(episode["outcome"]["scored"]["solved"], row["solved"])
        self.assertEqual(list(run.episodes(2)), episodes[8:])
        number = mock.Mock(spec=["__index__"], __index__=lambda self: 2)
        self.assertEqual(list(run.episodes(number)), episodes[8:])
        self.assertEqual(list(run.episodes((1, 2))), episodes)
        next(run.episodes())  # and no more: the program ends
        with self.assertRaisesRegex(maverl.Error, "has not done these steps"):
            list(run.episodes(step=3))
        with self.assertRaisesRegex(maverl.Error, "the first and the last"):
            run.episodes(step=(1, 2, 3))

    def test_a_missing_package_is_named_with_what_works_without_it(self):
        for package, call in [
            ("pandas", lambda: self.run_.metrics()),
            ("polars", lambda: self.run_.metrics("polars")),
            ("datasets", lambda: self.run_.dataset("sft")),
        ]:
            with mock.patch.dict(sys.modules, {package: None}):
                with self.assertRaisesRegex(maverl.Error, f"pip install {package}"):
                    call()
        with self.assertRaisesRegex(maverl.Error, "write 'pandas', 'polars' or None"):
            self.run_.metrics("arrow")

    @has("pandas")
    def test_pandas_has_every_value(self):
        frame, rows = self.run_.metrics(), lines_of(self.run_)
        self.assertEqual(frame.to_dict("records") != [], True)
        for got, row in zip(frame.to_dict("records"), rows):
            self.assertEqual({name: value for name, value in got.items() if value == value}, row)
        self.assertEqual(len(frame), len(rows))
        self.assertEqual(str(frame["step"].dtype), "int64")

    @has("polars")
    def test_polars_has_every_value(self):
        frame, rows = self.run_.metrics("polars"), lines_of(self.run_)
        for got, row in zip(frame.iter_rows(named=True), rows):
            self.assertEqual({name: value for name, value in got.items() if value is not None}, row)
        self.assertEqual(frame.height, len(rows))

    @has("datasets")
    def test_a_data_set_has_the_rows_of_collect(self):
        out = self.folder / "rows"
        command = [os.environ["MAVERL_BINARY"], "collect", "--from", str(self.run_.path), "--as", "sft", "--no-errors", "--out", out]
        subprocess.run(command, check=True, capture_output=True)
        rows = [json.loads(line) for line in (out / "sft.jsonl").read_text().splitlines()]
        data = self.run_.dataset("sft", no_errors=True)
        self.assertEqual([row["messages"] for row in data], [row["messages"] for row in rows])
        self.assertEqual([json.loads(row["maverl"]) for row in data], [row["maverl"] for row in rows])
        kept = self.run_.dataset("sft", out=self.folder / "kept", seat=["duo/closer"], solved=False)
        self.assertTrue((self.folder / "kept/provenance.json").is_file())
        self.assertEqual({json.loads(row["maverl"])["seat"] for row in kept}, {"duo/closer"})
        with self.assertRaisesRegex(maverl.Error, "invalid value 'sfd'"):
            self.run_.dataset("sfd")


class Serving(Case):
    BODY = {"model": "tiny", "messages": [{"role": "user", "content": "question?"}], "max_tokens": 4, "seed": 1}

    def ask(self, server, key):
        headers = {"Authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(self.BODY).encode(), headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return json.load(answer)

    def test_a_run_is_served_until_the_end_of_the_block(self):
        run = self.train(settings={"steps": 2, "checkpoint.every": 1}).wait()
        with maverl.serve(run, checkpoint=[2, 1]) as server:
            self.assertEqual(server.models(), ["tiny", "tiny@2", "tiny@1"])
            answer = self.ask(server, server.key)
            self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.ask(server, "another")
            self.assertEqual(refused.exception.code, 401)
            self.assertNotIn(server.key, repr(server))
        with self.assertRaises(urllib.error.URLError):
            self.ask(server, server.key)
        with self.assertRaisesRegex(maverl.Error, "9"):
            maverl.serve(run, checkpoint=9)
        with self.assertRaisesRegex(maverl.Error, "`checkpoint` is of a run"):
            maverl.serve("model", checkpoint="best")

    def test_a_server_ends_with_python(self):
        for end in ("", "1 / 0", "import os; os.kill(os.getpid(), 9)"):
            script = self.script(f"server = maverl.serve('model')\nprint(server.url, flush=True)\n{end}")
            url, _ = script.communicate()

            def is_gone():
                try:
                    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url.strip()}/health").close()
                    return False
                except urllib.error.HTTPError:
                    return False
                except OSError as error:
                    # Others, such as a reset connection, are of a server that is ending.
                    return isinstance(getattr(error, "reason", None), ConnectionRefusedError)

            self.assertTrue(url.startswith("http://"))
            wait_until("the end of the server", is_gone)

    @has("openai")
    def test_the_client_of_openai_has_address_and_key(self):
        with mock.patch.dict(os.environ, {"HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1"}):
            with maverl.serve("model") as server:
                body = {**self.BODY, "model": "model"}
                answer = server.openai().chat.completions.create(**body)
        self.assertEqual(answer.choices[0].message.role, "assistant")


class Gateway(ThreadingHTTPServer):
    """A stand-in for the gateway of a run: it gives out episodes, keeps what programs say, and refuses the paths of `refusals`."""

    def __init__(self, episodes=3):
        super().__init__(("127.0.0.1", 0), GatewayHandler)
        self.left, self.said, self.refusals = episodes, [], {}
        self.root = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def describe(self, number):
        return {
            "protocol": 1, "id": f"episode-{number}", "seed": str(2**63 + number), "models": ["solver"], "turns": 0, "api_key": "mv-1",
            "task": {"id": "t", "source": "s", "question": f"question {number}", "data": {}},
            "base_url": f"{self.root}/episodes/episode-{number}/v1",
        }  # fmt: skip

    def answer(self, path, key, body):
        if path == "/claim":
            if key != "Bearer right":
                return 401, {"error": {"code": "invalid_api_key", "message": "the request has no key of a worker"}}
            if self.left == 0:
                return 410, {"error": {"code": "run_over", "message": "the run is over"}}
            self.left -= 1
            return 200, {"episodes": [self.describe(self.left)]}
        end = path.rsplit("/", 1)[1]
        self.said.append((path.replace("/episodes/", ""), body))
        if end in self.refusals:
            status, code = self.refusals[end]
            return status, {"error": {"code": code, "message": "no"}}
        return 200, {"text": "seen", "done": False, "tools": [], "closed": []}


class GatewayHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        status, answer = self.server.answer(self.path, self.headers["authorization"], json.loads(body or "{}"))
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

    def log_message(self, *_):
        pass


class Worker(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway()
        self.addCleanup(self.gateway.server_close)
        self.addCleanup(self.gateway.shutdown)

    def run_worker(self, play, key="right", root=None):
        variables = {"MAVERL_GATEWAY_URL": root or self.gateway.root, "MAVERL_GATEWAY_KEY": key}
        with mock.patch.dict(os.environ, variables):
            worker.run(play)
        return self.gateway.said

    def test_a_worker_plays_every_episode_until_the_run_is_over(self):
        seen = []

        def play(episode):
            seen.append((episode.seed, episode.task["question"], episode.models, episode.url))
            return episode.act("look")["text"] if len(seen) == 1 else {"answer": 4, "metrics": {"tries": 2}}

        said = self.run_worker(play)
        url = f"{self.gateway.root}/episodes/episode-2"
        self.assertEqual(seen[0], (2**63 + 2, "question 2", ["solver"], url))
        self.assertEqual(
            said,
            [
                ("episode-2/act", {"text": "look"}),
                ("episode-2/finish", {"answer": "seen"}),
                ("episode-1/finish", {"answer": 4, "metrics": {"tries": 2}}),
                ("episode-0/finish", {"answer": 4, "metrics": {"tries": 2}}),
            ],
        )

    def test_an_async_function_plays_too_and_uses_the_environment(self):
        async def play(episode):
            episode.heartbeat()
            episode.tools()
            episode.act({"tool": "add", "arguments": {"a": 1}})
            episode.add_reward("style", 0.5)
            episode.add_reward("short", 1.0, {"seat": "solver"})

        self.gateway.left = 1
        self.assertEqual(
            self.run_worker(play),
            [
                ("/heartbeat", {"episodes": ["episode-0"]}),
                ("episode-0/tools", {}),
                ("episode-0/act", {"name": "add", "arguments": {"a": 1}}),
                ("episode-0/parts", {"name": "style", "value": 0.5, "of": "episode"}),
                ("episode-0/parts", {"name": "short", "value": 1.0, "of": {"seat": "solver"}}),
                ("episode-0/finish", {"answer": None}),
            ],
        )

    def test_what_a_policy_has_done_ends_an_episode_in_order_and_a_bug_ends_the_process(self):
        errors = [
            worker.Malformed("no answer", "chatcmpl-1"),
            worker.Malformed("no tags"),
            ValueError("a client says: context_length_exceeded"),
        ]

        def play(episode):
            raise errors[self.gateway.left]

        self.assertEqual(
            self.run_worker(play),
            [
                ("episode-2/finish", {"answer": None}),
                ("episode-1/fail", {"by": "policy", "message": "no tags"}),
                ("episode-0/fail", {"by": "policy", "message": "no answer", "completion": "chatcmpl-1"}),
            ],
        )
        self.gateway.left = 2
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            self.run_worker(lambda episode: 1 / 0)
        self.assertEqual(self.gateway.left, 1)
        with self.assertRaisesRegex(maverl.Error, "`play` returned list; return the answer as a text"):
            self.run_worker(lambda episode: ["4"])

    def test_an_episode_that_is_over_is_left_and_other_refusals_are_errors(self):
        self.gateway.refusals = {"act": (409, "episode_closed"), "finish": (409, "episode_closed")}
        self.run_worker(lambda episode: episode.act("look")["text"])
        self.run_worker(lambda episode: "late")
        self.gateway.left, self.gateway.refusals = 1, {"act": (400, "invalid_action")}
        with self.assertRaisesRegex(worker.Refused, "status 400: invalid_action: no") as raised:
            self.run_worker(lambda episode: episode.act("look")["text"])
        self.assertEqual((raised.exception.status, raised.exception.code), (400, None))

    def test_a_worker_without_a_run_says_what_it_needs(self):
        with self.assertRaisesRegex(worker.Refused, "401: invalid_api_key"):
            self.run_worker(lambda episode: "4", key="wrong")
        with self.assertRaisesRegex(maverl.Error, "MAVERL_GATEWAY_KEY is not set"):
            self.run_worker(lambda episode: "4", key="")
        with self.assertRaisesRegex(maverl.Error, "there is no run at http://127.0.0.1:1"):
            self.run_worker(lambda episode: "4", root="http://127.0.0.1:1")
        with mock.patch("sys.stdin", io.StringIO("hello")), self.assertRaisesRegex(maverl.Error, "no episode on standard input"):
            worker.run(lambda episode: "4")
        # The end of a run may close its connections before it says that it is over.
        claims = iter([{"episodes": []}, ConnectionResetError()])
        with mock.patch.object(worker, "_post", side_effect=claims):
            self.run_worker(lambda episode: "4")

    def test_a_program_of_one_episode_reads_it_from_its_input(self):
        line = json.dumps(self.gateway.describe(7))
        with mock.patch("sys.stdin", io.StringIO(line + "\n")):
            worker.run(lambda episode: episode.heartbeat() or "4")
        self.assertEqual(self.gateway.said, [("episode-7/finish", {"answer": "4"})])

    @has("openai", "anthropic")
    def test_the_clients_of_an_episode_have_its_address_and_key(self):
        episode = worker.Episode(self.gateway.describe(7))
        openai, anthropic = episode.openai(), episode.anthropic(max_retries=0)
        self.assertEqual((str(openai.base_url), openai.api_key), (episode.base_url + "/", "mv-1"))
        self.assertEqual((str(anthropic.base_url).rstrip("/"), anthropic.auth_token), (episode.url, "mv-1"))
        self.assertEqual(anthropic.auth_headers, {"Authorization": "Bearer mv-1"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
