"""A program that runs beside this process, as a run or a server.

It ends in order when this process ends, however that ends: its standard input is a pipe from here, and the program stops when the
pipe does. It has a process group of its own, so Ctrl-C in a terminal or a notebook reaches Python alone.
"""

import atexit
import collections
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any, Deque, List, Mapping, NoReturn, Optional, Sequence, Set

from ._binary import failure, find_binary
from ._error import Error

STOPPED = 130
"""Exit code of a run that was asked to stop, and has stopped."""
LONGEST_READ = 2.0
"""Seconds for which outputs are read after the end of a program, if a child of it has them open."""
KEPT_LINES = 400
"""Number of printed lines that are kept for the message of an error."""


class Process:
    """A running program."""

    def __init__(
        self, args: Sequence[str], *, quiet: bool, is_awaited: bool, env: Optional[Mapping[str, str]] = None
    ) -> None:
        self.is_awaited = is_awaited
        """True if a script that has come to its end waits for the program, as for a run; a server is stopped."""
        self._lines: Deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._errors: Deque[str] = collections.deque(maxlen=KEPT_LINES)
        """Lines of standard error, which has the message of an error."""
        self._changed = threading.Condition()
        self._open_outputs = 2
        self._ended_at: Optional[float] = None
        self._quiet = quiet
        # The variable says that the program stops when its standard input ends.
        variables = {**os.environ, **(env or {}), "MAVERL_STARTED_BY": str(os.getpid())}
        self._child = subprocess.Popen(
            [find_binary(), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            start_new_session=True,
        )
        _running.add(self)
        for output, lines in ((self._child.stdout, self._lines), (self._child.stderr, self._errors)):
            # A daemon, so that it still reads while the exit of this process waits for the program.
            threading.Thread(target=self._read, args=(output, lines), name="maverl", daemon=True).start()

    def _read(self, output: IO[bytes], lines: Deque[str]) -> None:
        """Reads what the program prints until it ends, and shows it."""
        with output:
            for line in output:
                self._add_line(line.decode("utf-8", "replace").rstrip("\r\n"), lines)
        with self._changed:
            self._open_outputs -= 1
            self._changed.notify_all()

    def _add_line(self, line: str, lines: Deque[str]) -> None:
        with self._changed:
            lines.append(line)
            self._changed.notify_all()
        if not self._quiet:
            self._quiet = not _show_line(line)

    def wait_for_line(self, *starts: str) -> Optional[str]:
        """Waits until the program prints a line that begins with one of these, and returns it; ``None`` if it ends before, with
        success. Raises `Error` if it fails.
        """
        with self._changed:
            while True:
                for line in (*self._lines, *self._errors):
                    if line.startswith(starts):
                        return line
                if self._is_over():
                    break
                self._changed.wait(0.2)
        self.wait()
        error = self.error()
        if error is not None:
            raise error
        return None

    @property
    def code(self) -> Optional[int]:
        """Exit code; ``None`` while the program runs."""
        return self._child.poll()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the program has ended and all that it printed is read; returns false after a time-out in seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            # In short waits: an interrupt does not end a long one on every system.
            while not self._is_over():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(0.2 if left is None else min(left, 0.2))
        self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()
        _running.discard(self)
        return True

    def _is_over(self) -> bool:
        """Returns true if the program has ended and all that it printed is read. Its own children may have its outputs for longer."""
        if not self._open_outputs:
            return True
        if self._ended_at is None and self._child.poll() is not None:
            self._ended_at = time.monotonic()
        return self._ended_at is not None and time.monotonic() - self._ended_at > LONGEST_READ

    def error(self) -> Optional[Error]:
        """Returns the failure of a program that has ended."""
        code = self.code
        if code in (None, 0, STOPPED):
            return None
        assert code is not None
        with self._changed:
            return failure("\n".join(self._errors), code)

    def stop(self) -> None:
        """Asks the program to stop in order: a run finishes its step, a server its requests. A second time ends it at once."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)

    def stop_and_wait(self) -> None:
        """Stops the program in order, and waits for its end. Ctrl-C while waiting ends it at once."""
        self.stop()
        self.wait_interruptible()

    def wait_interruptible(self) -> None:
        """Waits for the end. Each Ctrl-C while waiting is passed on: the first stops the program in order, if nothing did before."""
        while True:
            try:
                self.wait()
                return
            except KeyboardInterrupt:
                self.stop()

    def abandon(self) -> None:
        """Closes this process's end of the pipe."""
        if self._child.stdin is not None:
            self._child.stdin.close()


def _show_line(line: str) -> bool:
    """Prints a line on standard error; returns false if that is closed."""
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return False
    return True


_running: Set[Process] = set()
"""Programs that this process has started and that have not ended."""
_exits: List[object] = []
"""Arguments of `sys.exit` in the main thread. The interpreter does not tell them to functions at its exit."""
_exit = sys.exit


def _noted_exit(status: Any = None) -> NoReturn:
    """Does what `sys.exit` does, and notes the argument."""
    if threading.current_thread() is threading.main_thread():
        _exits.append(status)
    _exit(status)


def _is_finished_script() -> bool:
    """Returns true if this process is a script that has come to its end, not one that failed or was interrupted, nor a session."""
    has_failed = hasattr(sys, "last_type") or any(status not in (None, 0) for status in _exits[-1:])
    return not (has_failed or hasattr(sys, "ps1") or sys.flags.interactive)


def _end_running() -> None:
    """Waits for what is still running at the exit of a finished script; stops it in order at any other exit."""
    is_finished = _is_finished_script()
    for process in list(_running):
        if not (is_finished and process.is_awaited):
            process.stop()
        elif process.code is None:
            _show_line("maverl: the run goes on; Ctrl-C stops it after its step")
    for process in list(_running):
        process.wait_interruptible()


def _forget_running() -> None:
    """Leaves the programs to the parent of a fork: an open copy of a pipe would hide the end of the parent."""
    for process in _running:
        process.abandon()
    _running.clear()


setattr(sys, "exit", _noted_exit)
atexit.register(_end_running)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_running)
