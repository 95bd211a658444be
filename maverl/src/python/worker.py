"""Worker of maverl: calls the functions of a file of Python. Requests and answers are lines of JSON with equal numbers.

The channel is moved away from the standard streams, so that what the file prints is a log and no answer. A process that the file
forks has no channel.
"""

import asyncio
import copy
import functools
import importlib.machinery
import importlib.util
import inspect
import json
import math
import os
import random
import select
import sys
import threading
import traceback
import types


def open_channel():
    """Returns the streams of requests and answers. Standard output becomes standard error, which is the log."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="\n")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)

    def leave_channel():
        os.dup2(null, requests.fileno())
        os.dup2(null, answers.fileno())

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=leave_channel)
    return requests, answers


def end_with_input(requests):
    """Ends the process and its children when the process that sends requests has ended, also while a function runs."""
    if not hasattr(select, "poll"):
        return  # Windows: the end of the input is seen between two requests
    watched = select.poll()
    watched.register(requests.fileno(), select.POLLHUP)
    while not watched.poll(500):
        pass
    os.killpg(0, 9)


def load_file(path):
    """Imports a file of any name. What it draws at its start is the same in every process."""
    seed_random(0)
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def describe(error, path):
    """Returns the line of the file in which an error was raised, and the error. Its traceback goes to the log."""
    try:
        with os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace") as log:
            traceback.print_exception(type(error), error, error.__traceback__, file=log)
    except OSError:
        pass  # the file has closed the log
    try:
        said = str(error)
    except BaseException:
        said = "it has no text"
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"line {error.lineno}: {text}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"line {frames[-1].lineno}, in `{frames[-1].name}`: {text}" if frames else text


class NumpyImport:
    """Finder of modules that seeds NumPy's generator when a function imports NumPy for the first time."""

    seed = 0

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == "numpy.random" else None
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_seed(module):
                load(module)
                module.seed(cls.seed)

            spec.loader.exec_module = load_and_seed
        return spec


sys.meta_path.insert(0, NumpyImport)


def numpy_random():
    """Returns the module of NumPy's generator, if it is imported."""
    module = sys.modules.get("numpy.random")
    return module if hasattr(module, "get_state") else None


def seed_random(seed):
    """Seeds the generators of the standard library, and of NumPy if the file uses it."""
    random.seed(seed)
    NumpyImport.seed = seed & 0xFFFFFFFF
    if numpy_random() is not None:
        numpy_random().seed(NumpyImport.seed)


def random_states():
    """Returns the states of the generators."""
    return random.getstate(), numpy_random() and numpy_random().get_state(), NumpyImport.seed


def set_random_states(states):
    """Sets the states of the generators. NumPy's may have been imported after they were taken."""
    own, numpy, NumpyImport.seed = states
    random.setstate(own)
    if numpy is not None:
        numpy_random().set_state(numpy)
    elif numpy_random() is not None:
        numpy_random().seed(NumpyImport.seed)


def quote(names):
    return ", ".join(f"`{name}`" for name in names) or "none"


def show(value):
    try:
        text = repr(value)
    except BaseException:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def finite_number(value, what="returned"):
    """Returns a number, of any type that is one, as a float; raises `Wrong`, which says what it was."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise Wrong(f"{what} {show(value)}, which is no number")
    number = float(value)
    if not math.isfinite(number):
        raise Wrong(f"{what} {number}, which is not finite")
    return number


def copied(value):
    """Returns a copy of JSON."""
    return json.loads(json.dumps(value))


def parameters_of(function):
    """Returns the parameters that a function must have, those that it accepts, and whether it accepts any others."""
    found = inspect.signature(function).parameters.values()
    named = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY, p.POSITIONAL_ONLY)]
    required = [p.name for p in named if p.default is p.empty]
    return required, [p.name for p in named], any(p.kind == p.VAR_KEYWORD for p in found)


def serve(path, start):
    """Answers requests with the handler that `start` returns, until there are no more."""
    process = os.getpid()
    requests, answers = open_channel()
    threading.Thread(target=end_with_input, args=(requests,), daemon=True).start()

    def answer(number, value):
        if os.getpid() != process:
            os._exit(0)  # a fork of the file's function that has returned
        answers.write(json.dumps({"n": number, **value}, allow_nan=False, ensure_ascii=False) + "\n")
        answers.flush()

    try:
        handle, greeting = start(path)
    except BaseException as error:
        answer(0, {"error": str(error) if isinstance(error, Unusable) else describe(error, path)})
        return
    answer(0, greeting)
    for line in requests:
        request = json.loads(line)
        answer(request["n"], handle(request))
        flush_log()


def flush_log():
    """Writes what the file printed, unless it closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


class Wrong(Exception):
    """A result that is no result."""


class Unusable(Exception):
    """Reason that a file cannot be used, in words for the user."""
