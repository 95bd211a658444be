"""Measures a peer and maverl in turn, and prints rows of the table that compares them.

    python pairs.py trl train M f32 --rounds 3 --threads 2 --maverl target/release/maverl

Each round runs `bench.py` of the peer, then `maverl bench`, each in a process of its own: the speed of many machines drifts, and a
ratio of two neighbours hardly does. The figures are medians of the rounds. The ratio is how many times as fast maverl is: the
median of the rounds' ratios. The arguments but `--rounds`, `--maverl` and `--python` are those of `bench.py`.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Names of parts that have another one in `maverl bench`, and of types.
PARTS = {"matmul": "kernels", "bandwidth": "kernels"}
DTYPES = {"autocast": "bf16"}
# Parts that `maverl bench` does not have.
ALONE = {"long"}
# Processors that others may keep busy without spoiling a measurement.
QUIET = 0.15
COLUMNS = ["work", "peer", "maverl", "ratio", "ratio of each pair", "peak memory, peer and maverl"]


def arguments():
    """Returns the arguments of the command line, and those for `bench.py` alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=["trl", "vllm", "llama-cpp"])
    parser.add_argument("part")
    parser.add_argument("size", nargs="?", default="S")
    parser.add_argument("dtype", nargs="?", default="f32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--maverl", default="maverl", help="program [default: the one on PATH]")
    parser.add_argument("--python", type=Path, help="Python with the peer [default: the one that `just peers` makes]")
    args, others = parser.parse_known_args()
    if args.part in ALONE:
        parser.error(f"`maverl bench` has no part `{args.part}`: measure the peer alone, with `bench.py`")
    return args, others


def commands(args, others):
    """Returns the commands of both sides."""
    python = args.python or HERE / f".venv-{args.peer}/bin/python"
    both = ["--threads", str(args.threads), "--repeats", str(args.repeats)]
    dtype = DTYPES.get(args.dtype, args.dtype)
    ours = [args.maverl, "bench", PARTS.get(args.part, args.part), "--size", args.size, "--dtype", dtype, *both, "--json"]
    return [[python, HERE / "bench.py", args.peer, args.part, args.size, args.dtype, *both, *others], ours]


def measure(name, command):
    """Runs one side, and returns its report."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"`{' '.join(map(str, command))}` ended with {done.returncode}")
    report = json.loads(done.stdout.splitlines()[-1])
    noise = report["other_cores"]
    warning = ", too many: measure again" if noise > QUIET else ""
    print(f"{name}: {noise:.2f} processors busy with others{warning}", file=sys.stderr)
    return report


def figures(report):
    """Returns the figures of a report by what they measure, without how many tokens of a tree were computed."""
    return {re.sub(r", \d+ of \d+ tokens", "", figure["what"]): figure for figure in report["figures"]}


def digits(value):
    """Formats a number with three significant digits, or all of a whole number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def row(args, what, rounds):
    """Returns the cells of a figure. `rounds` are the reports of both sides, round by round."""
    pairs = [[figures(report)[what] for report in sides] for sides in rounds]
    unit = pairs[0][0]["unit"]
    peer, ours = ([pair[side]["median"] for pair in pairs] for side in range(2))
    # Of times, the smaller one is faster.
    ratios = [b / a if "/s" in unit or "/min" in unit else a / b for a, b in zip(peer, ours)]
    peaks = [statistics.median(sides[side]["peak_bytes"] for sides in rounds) / 2**20 for side in range(2)]
    return [
        f"{args.part} {args.size}, {args.dtype}, {what}, {unit}",
        digits(statistics.median(peer)),
        digits(statistics.median(ours)),
        f"{statistics.median(ratios):.2f}",
        ", ".join(f"{ratio:.2f}" for ratio in ratios),
        f"{peaks[0]:.0f} and {peaks[1]:.0f} MiB",
    ]


def main():
    args, others = arguments()
    rounds = []
    for number in range(1, args.rounds + 1):
        sides = zip([args.peer, "maverl"], commands(args, others))
        rounds.append([measure(f"round {number}, {name}", command) for name, command in sides])
    theirs, ours = rounds[0]
    packages = ", ".join(f"{package} {number}" for package, number in theirs["versions"].items())
    print(f"{packages} ({theirs['simd']}); maverl ({ours['simd']}); {args.threads} threads\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for what in figures(theirs):
        if what in figures(ours):
            print(f"| {' | '.join(row(args, what, rounds))} |")


if __name__ == "__main__":
    main()
