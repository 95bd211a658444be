"""Plays an episode with Claude Code, which is asked in a directory of its own (docs/src/programs.md).

Its end says how the episode ends: 65 after a refusal because of a limit or a full context, 75 after another error.
"""

import json
import subprocess
import sys

FLAGS = ["--tools", "Bash,Read,Edit", "--system-prompt", "You are a coding agent.", "--output-format", "json"]


def main():
    question = json.loads(sys.stdin.readline())["task"]["question"]
    command = ["claude", "-p", question, *FLAGS]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"claude ended with {done.returncode}: {done.stderr}")
    if said.get("is_error"):
        print(said.get("result"), file=sys.stderr)
        # The gateway refuses a limit and a full context with 400.
        return 65 if said.get("api_error_status") == 400 else 75
    print(json.dumps({"answer": said["result"], "metrics": {"turns": said.get("num_turns", 0)}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
