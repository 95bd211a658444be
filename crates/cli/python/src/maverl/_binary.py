"""The program ``maverl``: where it is, and how it is called."""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from typing import IO, Any, Dict, Iterator, List, Sequence

from ._error import Error

VARIABLE = "MAVERL_BINARY"
"""Environment variable with the path of another program, such as one built from source."""


def find_binary() -> str:
    """Returns the path of the program: that of the variable, or the one that was installed with this package."""
    name = "maverl" + (sysconfig.get_config_var("EXE") or "")
    given = os.environ.get(VARIABLE)
    if given:
        return _checked(given)
    for folder in _script_folders():
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return _executable(path, f"install the package again, or set {VARIABLE} to the path of another program")
    raise Error(f"there is no program `{name}` beside {sys.executable}; run `pip install maverl`, or set {VARIABLE} to its path")


def _checked(path: str) -> str:
    if not os.path.isfile(path):
        raise Error(f"{VARIABLE} is `{path}`, which is no file; set it to the path of the program `maverl`")
    return _executable(os.path.abspath(path), f"`chmod +x` it, or set {VARIABLE} to the path of the program `maverl`")


def _executable(path: str, remedy: str) -> str:
    if not os.access(path, os.X_OK):
        raise Error(f"`{path}` may not be executed; {remedy}")
    return path


def _script_folders() -> Iterator[str]:
    """Returns the folders into which installers write programs: of the environment, of `--user`, and beside a `--target`."""
    yield sysconfig.get_path("scripts")
    user = "nt_user" if os.name == "nt" else "posix_user"
    if user in sysconfig.get_scheme_names():
        yield sysconfig.get_path("scripts", scheme=user)
    package = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(os.path.dirname(package), "bin")


def run_binary(args: Sequence[str]) -> str:
    """Runs a command to its end, and returns what it printed. Raises `Error` with its message if it fails."""
    command = [find_binary(), *args]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise failure(done.stderr.decode("utf-8", "replace"), done.returncode)
    return done.stdout.decode("utf-8")


def stream_json(args: Sequence[str]) -> Iterator[Dict[str, Any]]:
    """Runs a command that prints JSON lines, and yields each when it is there. Leaving the loop ends the command."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([find_binary(), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        try:
            assert child.stdout is not None
            for line in child.stdout:
                yield json.loads(line)
        except BaseException:
            child.kill()
            raise
        finally:
            _close(child)
        if child.returncode != 0:
            raise failure(_content(errors), child.returncode)


def _close(child: "subprocess.Popen[bytes]") -> None:
    if child.stdout is not None:
        child.stdout.close()
    child.wait()


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def failure(printed: str, code: int) -> Error:
    """Returns the error of a program that has printed this and ended with this code."""
    lines = printed.rstrip().splitlines()
    message = "\n".join(_message_lines(lines))
    if message.startswith("error: "):
        message = message[len("error: ") :]
    if code < 0:
        ended = f"signal {-code} ended the program"
        message = f"{ended}: {message}" if message else ended
    return Error(message or f"the program ended with code {code}", code)


def _message_lines(lines: List[str]) -> List[str]:
    """Returns the lines from the last message of an error on; without one, the last ten."""
    starts = [i for i, line in enumerate(lines) if line.startswith("error: ")]
    return lines[starts[-1] :] if starts else lines[-10:]
