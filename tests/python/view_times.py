"""Makes a run of many episodes from a run, and measures `maverl view` on it.

    python3 tests/python/view_times.py runs/first /tmp/large --episodes 100000 --binary target/release/maverl

The last step of the run is repeated. Prints a table of seconds, and the resident memory of the server.
"""

import argparse
import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

FILES = ["config.toml", "resolved.toml", "provenance.json", "plan.json", "summary.json", "manifest.json"]
PARTS = ["rollouts/step-{:06}.jsonl.zst", "samples/step-{:06}.jsonl.zst", "clock/step-{:06}.jsonl.zst"]


def lines(path):
    return [json.loads(line) for line in path.open()]


def repeat(run, out, episodes):
    """Writes a run with the last step of another, as often as needed. Returns the number of steps and of its episodes."""
    rows = [row for row in lines(run / "episodes.jsonl") if row["stage"] == "train"]
    last = max(row["step"] for row in rows)
    step_rows = [row for row in rows if row["step"] == last]
    steps = -(-episodes // len(step_rows))
    shutil.copytree(run / "tokenizers", out / "tokenizers")
    shutil.copytree(run / "evaluations", out / "evaluations")
    for file in FILES:
        shutil.copy(run / file, out / file)
    for part in ["rollouts", "samples", "clock"]:
        (out / part).mkdir()
    numbers = {}
    for name in ["metrics.jsonl", "timing.jsonl", "spans.jsonl"]:
        numbers[name] = [row for row in lines(run / name) if row["step"] == last][0]
    files = {name: (out / name).open("w") for name in [*numbers, "episodes.jsonl"]}
    for step in range(1, steps + 1):
        for part in PARTS:
            (out / part.format(step)).hardlink_to((run / part.format(last)).resolve())
        for row in step_rows:
            files["episodes.jsonl"].write(json.dumps({**row, "step": step}) + "\n")
        for name, row in numbers.items():
            files[name].write(json.dumps({**row, "step": step}) + "\n")
    for file in files.values():
        file.close()
    return steps, len(step_rows)


class Pages:
    """The pages of a run, served by a binary."""

    def __init__(self, binary, run):
        began = time.perf_counter()
        self.server = subprocess.Popen([binary, "view", run], stdout=subprocess.PIPE, text=True)
        self.url = self.server.stdout.readline().strip()
        self.started = time.perf_counter() - began

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as answer:
            return answer.read()

    def seconds(self, path):
        began = time.perf_counter()
        size = len(self.get(path))
        return time.perf_counter() - began, size

    def first_line(self, path):
        """Seconds until the first line of an answer."""
        began = time.perf_counter()
        with urllib.request.urlopen(self.url + path) as answer:
            size = len(answer.readline())
        return time.perf_counter() - began, size

    def memory(self):
        """Resident memory in MiB, and the most that there was."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return [int(re.search(rf"{name}:\s+(\d+)", status).group(1)) / 1024 for name in ["VmRSS", "VmHWM"]]

    def assets(self):
        """Bytes of the page and of everything that it loads."""
        names, seen = ["", "style.css", "main.js"], {}
        while names:
            name = names.pop()
            if name not in seen:
                seen[name] = self.get(name)
                names += re.findall(r'from "\./([a-z_]+\.js)"', seen[name].decode())
        return sum(map(len, seen.values())), len(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--binary", default="maverl")
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    steps, each = repeat(args.run, args.out, args.episodes)
    pages = Pages(args.binary, args.out)
    try:
        bytes_, files = pages.assets()
        rollouts = sum(path.stat().st_size for path in (args.out / "rollouts").iterdir())
        print(f"{steps * each} episodes in {steps} steps, {rollouts:,} bytes of rollouts; assets: {bytes_} bytes in {files} files")
        middle = steps // 2
        cases = [
            ("address printed", None),
            ("open: the overview", "api/runs/0"),
            ("all metrics", "api/runs/0/series"),
            ("first page of episodes", "api/runs/0/episodes?stage=train&limit=50"),
            ("the same, sorted by reward", "api/runs/0/episodes?stage=train&sort=-reward&limit=50"),
            ("last page", f"api/runs/0/episodes?stage=train&offset={steps * each - 50}&limit=50"),
            ("one episode", f"api/runs/0/episodes/train/{middle}/{each // 2}"),
            ("one turn in tokens", f"api/runs/0/episodes/train/{middle}/{each // 2}/turns/0/tokens"),
            ("groups of a step", f"api/runs/0/groups/{middle}"),
            ("groups of 200 steps", "api/runs/0/groups"),
            ("seats of the first and last steps", "api/runs/0/team"),
            ("their replies", "api/runs/0/replies"),
            ("text search in a step", f"api/runs/0/search?q=no+such+words&stage=train&step={middle}"),
            ("text search in all episodes", "api/runs/0/search?q=no+such+words&stage=train"),
        ]
        for name, path in cases:
            seconds, size = (pages.started, 0) if path is None else pages.seconds(path)
            print(f"| {name} | {seconds:.3f} s | {size:,} bytes |", flush=True)
        words = "api/runs/0/search?q=e&stage=train"
        for name, measured in [("text search that finds 500", pages.seconds), ("the first of them", pages.first_line)]:
            seconds, size = measured(words)
            print(f"| {name} | {seconds:.3f} s | {size:,} bytes |", flush=True)
        now, most = pages.memory()
        print(f"resident memory: {now:.0f} MiB, at most {most:.0f} MiB")
    finally:
        pages.server.terminate()


if __name__ == "__main__":
    main()
