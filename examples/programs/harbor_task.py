"""Task directories of the Harbor format, and the rules of their rewards (docs/src/harbor.md).

    NAME/task.toml   instruction.md   environment/Dockerfile   tests/test.sh   solution/solve.sh

Files of a task are written by others: links are not followed, and sizes are bounded.
"""

import json
import math
import os
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

# Most bytes of a file that is read as a whole, and of a file of rewards.
MOST_BYTES, MOST_REWARD = 1 << 20, 1 << 16
NETWORKS = ("public", "no-network", "allowlist")


class TaskError(Exception):
    """A task directory that cannot be played, with everything that is wrong with it."""


class RewardError(Exception):
    """Tests that gave no reward. The episode is unscored."""


@dataclass
class HarborTask:
    """A task that can be played."""

    name: str
    path: Path
    instruction: str
    agent_s: float
    verifier_s: float
    verifier_env: dict = field(default_factory=dict)
    solution_env: dict = field(default_factory=dict)
    env: dict = field(default_factory=dict)
    user: str | None = None
    verifier_user: str | None = None
    image: str | None = None
    build_s: float = 600.0
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    workdir: str | None = None
    public: bool = False


def read_file(path, most=MOST_BYTES):
    """Returns the text of a regular file; a link is none. Raises OSError or ValueError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content.decode()


class TomlReader:
    """Reads keys of `task.toml` and collects what is wrong with them."""

    def __init__(self, table):
        self.table, self.problems = table, []

    def value(self, key, kinds, needed, default=None):
        """Returns the value of a key such as `agent.timeout_sec`, or the default if it is missing."""
        found = self.table
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            return default
        if not isinstance(found, kinds) or isinstance(found, bool) and bool not in kinds:
            self.problems.append(f"`{key}` is {found!r}; {needed}")
            return default
        return found

    def text(self, key):
        return self.value(key, (str,), "a text is needed")

    def number(self, key, default=None):
        found = self.value(key, (int, float), "a number is needed", default)
        if found is not None and not (math.isfinite(found) and found > 0):
            self.problems.append(f"`{key}` is {found!r}; a number above 0 is needed")
            return default
        return found

    def variables(self, key):
        """Returns a table of variables. One that would be taken from this machine is refused."""
        table = self.value(key, (dict,), "a table of texts is needed", {})
        for name, value in table.items():
            if not isinstance(value, str) or "${" in value:
                self.problems.append(f"`{key}.{name}` is {value!r}; write a text without variables of this machine")
        return table

    def refuse(self, key, reason):
        found = self.value(key, (object,), "")
        if found not in (None, [], {}, 0, False):
            self.problems.append(f"`{key}` is not supported: {reason}")


def read_table(path):
    try:
        return tomllib.loads(read_file(path))
    except FileNotFoundError:
        raise TaskError(f"{path.parent}: there is no `task.toml`") from None
    except (OSError, ValueError) as error:
        raise TaskError(f"{path}: {error}") from None


def read_task(path):
    """Reads a task directory. Raises TaskError with all problems."""
    keys = TomlReader(read_table(path / "task.toml"))
    for key, reason in [
        ("steps", "tasks of several steps"),
        ("environment.gpus", "GPUs"),
        ("environment.mcp_servers", "servers of tools"),
        ("environment.healthcheck", "services that must be healthy first"),
    ]:
        keys.refuse(key, reason)
    mode = keys.text("verifier.environment_mode")
    if mode not in (None, "shared"):
        keys.problems.append(f"`verifier.environment_mode` is {mode!r}; tests run where the agent worked (\"shared\")")
    network = keys.text("environment.network_mode")
    if network not in (None, *NETWORKS):
        keys.problems.append(f"`environment.network_mode` is {network!r}; one of {', '.join(NETWORKS)} is needed")
    instruction = ""
    try:
        instruction = read_file(path / "instruction.md")
        if not instruction.strip():
            keys.problems.append("`instruction.md` is empty")
    except (OSError, ValueError) as error:
        keys.problems.append(f"`instruction.md` cannot be read: {error}")
    for name in ["tests/test.sh"]:
        if not is_plain_file(path / name):
            keys.problems.append(f"there is no file `{name}`")
    if (path / "environment/docker-compose.yaml").exists():
        keys.problems.append("`environment/docker-compose.yaml` is not supported: tasks of several containers")
    image = keys.text("environment.docker_image")
    if image is None and not is_plain_file(path / "environment/Dockerfile"):
        keys.problems.append("there is neither `environment/Dockerfile` nor `environment.docker_image`")
    task = HarborTask(
        name=path.name,
        path=path,
        instruction=instruction,
        agent_s=keys.number("agent.timeout_sec", 600.0),
        verifier_s=keys.number("verifier.timeout_sec", 600.0),
        verifier_env=keys.variables("verifier.env"),
        solution_env=keys.variables("solution.env"),
        env=keys.variables("environment.env"),
        user=user_name(keys, "agent.user"),
        verifier_user=user_name(keys, "verifier.user"),
        image=image,
        build_s=keys.number("environment.build_timeout_sec", 600.0),
        cpus=keys.number("environment.cpus"),
        memory_mb=keys.number("environment.memory_mb"),
        storage_mb=keys.number("environment.storage_mb"),
        workdir=keys.text("environment.workdir"),
        public=network == "public",
    )
    if keys.problems:
        raise TaskError(f"{path}: " + "; ".join(keys.problems))
    return task


def user_name(keys, key):
    found = keys.value(key, (str, int), "the name or the number of a user is needed")
    return None if found is None else str(found)


def is_plain_file(path):
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read_tasks(root):
    """Reads the tasks below a directory by their names: those of its directories that have a `task.toml`."""
    if is_plain_file(root / "task.toml"):
        return {root.name: read_task(root)}
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        raise TaskError(f"{root}: {error}") from None
    tasks, problems = {}, []
    for name in names:
        if not os.path.lexists(root / name / "task.toml"):
            continue
        try:
            tasks[name] = read_task(root / name)
        except TaskError as error:
            problems.append(str(error))
    if problems:
        raise TaskError("\n".join(problems))
    if not tasks:
        raise TaskError(f"{root}: there is no directory with a `task.toml`")
    return tasks


def finite(value):
    """Returns true for a finite number, which true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def read_reward(file):
    """Returns the reward of tests and their other numbers. `file(name)` is the path of a file in `/logs/verifier`.

    `reward.json`, an object of finite numbers, comes before `reward.txt`, one finite number. A file that is missing, empty or no such
    number is an error, not 0.
    """
    for name, parse in [("reward.json", parse_object), ("reward.txt", parse_number)]:
        path = file(name)
        if not os.path.lexists(path):
            continue
        try:
            text = read_file(path, MOST_REWARD)
        except (OSError, ValueError) as error:
            raise RewardError(f"`{name}` cannot be read: {error}") from None
        if not text.strip():
            raise RewardError(f"`{name}` is empty")
        return parse(name, text)
    raise RewardError("the tests wrote neither `reward.json` nor `reward.txt`")


def parse_object(name, text):
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RewardError(f"`{name}` is not JSON: {error}") from None
    if not isinstance(found, dict) or not found or not all(finite(value) for value in found.values()):
        raise RewardError(f"`{name}` is no object of finite numbers")
    if "reward" not in found and len(found) > 1:
        raise RewardError(f"`{name}` has several numbers and no `reward`")
    key = "reward" if "reward" in found else next(iter(found))
    return float(found[key]), {other: value for other, value in found.items() if other != key}


def parse_number(name, text):
    try:
        number = float(text)
    except ValueError:
        raise RewardError(f"`{name}` is no number: {text.strip()[:40]!r}") from None
    if not math.isfinite(number):
        raise RewardError(f"`{name}` is {number}, which is not finite")
    return number, {}
