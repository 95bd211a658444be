"""Recomputes the quantities of credit of claims from the recorded episodes and samples alone.

    python3 tests/python/recompute_claims.py runs/claims/mixers-separate
    python3 tests/python/recompute_claims.py runs/claims/*

Uses none of maverl's code: it reads `metrics.jsonl`, `rollouts` and `samples` of each finished run (with `zstd` on the PATH),
and compares with `claims.json`. Contributions are recomputed from the words of the answer, by the rules of the games.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

WORDS = (
    "red blue green gray iron salt milk wood wool lamp fish cup tin q0 q1 q2 q3 user assistant go".split()
)
MISSING = "?"
TOLERANCE = 1e-9


def class_of(word):
    return WORDS.index(word) % 4 if word in WORDS else None


def success(game, words):
    """Returns the success of a team by the words of its players."""
    right = [class_of(word) == player % 4 for player, word in enumerate(words)]
    if game == "share":
        return sum(right) / len(words)
    if game == "first":
        return float(right[0])
    classes = {class_of(word) for word in words}
    return float(len(classes) == 1 and None not in classes)


def contribution(game, words, player):
    without = words[:player] + [MISSING] + words[player + 1 :]
    return success(game, words) - success(game, without)


def lines(path):
    """Returns the rows of a file of compressed JSON lines."""
    done = subprocess.run(["zstd", "-dc", str(path)], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def episodes(path):
    """Returns the episodes of a step: the words of the answer, and the seat of each turn."""
    found = []
    for line in lines(path):
        if "episode" in line:
            found.append(((line["episode"]["answer"] or "").split(), []))
        elif "turn" in line:
            found[-1][1].append(line["turn"]["turn"]["seat"])
    return found


def updated_steps(run):
    """Returns the numbers of the steps that updated a policy."""
    steps = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        updated = any(key.startswith("policy/") and key.endswith("/grad_norm") for key in row)
        if "rollout/episodes" in row and updated:
            steps.append(row["step"])
    return steps


def seats_of_step(run, step, game):
    """Returns the advantages and contributions of a step, by seat. Seats outside of word games have no contributions."""
    name = f"step-{step:06}.jsonl.zst"
    played = episodes(run / "rollouts" / name)
    found = {}
    for line in lines(run / "samples" / name):
        if "sample" not in line:
            continue
        sample = line["sample"]
        words, seats = played[sample["episode"]]
        agent, _, index = seats[sample["turn"]].partition("#")
        advantage = sample.get("taught", sample["advantage"]) * sample.get("factor", 1.0)
        share = contribution(game, words, int(index)) if agent == "games/player" else None
        found.setdefault((agent, index), []).append((advantage, share))
    return found


def mean(values):
    return math.fsum(values) / len(values) if values else None


def correlation(pairs):
    """Returns Pearson's correlation; None without contributions, or if one side does not vary."""
    if any(share is None for _, share in pairs):
        return None
    if any(max(side) - min(side) <= 1e-9 for side in zip(*pairs)):
        return None
    means = [mean(side) for side in zip(*pairs)]
    centered = [(a - means[0], b - means[1]) for a, b in pairs]
    product = math.fsum(a * b for a, b in centered)
    return product / math.sqrt(math.fsum(a * a for a, _ in centered) * math.fsum(b * b for _, b in centered))


def game_of(run):
    """Returns the rule of a run's game by its settings."""
    settings = json.loads((run / "claims.json").read_text())["given"]["set"]
    for setting in (setting for part in settings for setting in part):
        if setting.startswith("environment.game="):
            return setting.split('"')[1]
    return "share"


def recompute(run):
    """Returns the quantities of a run: means over its steps and seats."""
    game = game_of(run)
    turns = [turns for step in updated_steps(run) for turns in seats_of_step(run, step, game).values()]
    correlations = [correlation(pairs) for pairs in turns]
    return {
        "correlation": mean([r for r in correlations if r is not None]),
        "bias": mean([abs(mean([advantage for advantage, _ in pairs])) for pairs in turns]),
    }


def differs(ours, theirs):
    if ours is None or theirs is None:
        return ours is not theirs
    return abs(ours - theirs) > TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="+", type=Path, help="directory of a claim's runs")
    files = [file for claim in parser.parse_args().claims for file in sorted(claim.glob("*/claims.json"))]
    compared = wrong = 0
    for file in files:
        recorded = json.loads(file.read_text()).get("credit", {})
        if all(recorded.get(name) is None for name in ("correlation", "bias")):
            continue
        found = recompute(file.parent)
        bad = [name for name in found if differs(found[name], recorded.get(name))]
        text = ", ".join(f"{name} {value if value is None else round(value, 6)}" for name, value in found.items())
        print(f"{file.parent}: {text}" + (f"; recorded {recorded}" if bad else ""))
        compared, wrong = compared + 1, wrong + (1 if bad else 0)
    if wrong or not compared:
        sys.exit(f"{wrong} of {compared} runs differ from their records")
    print(f"{compared} runs agree with their records")


main()
