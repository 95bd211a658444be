"""Worker of maverl: calls the functions of a file of Python. Requests and answers are lines of JSON.

The channel is moved away from the standard streams, so that what the file prints is a log and no answer.
"""

import asyncio
import functools
import importlib.machinery
import importlib.util
import inspect
import json
import math
import os
import random
import sys
import threading
import time
import traceback


def open_channel():
    """Returns the streams of requests and answers. Standard output becomes standard error, which is the log."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return requests, answers


def end_with_parent(parent):
    """Ends the process and its children when the process that started it has ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, 9)


def load_file(path):
    """Imports a file of any name."""
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def describe(error, path):
    """Returns the line of the file in which an error was raised, and the error. Its traceback goes to the log."""
    traceback.print_exception(type(error), error, error.__traceback__)
    sys.stderr.flush()
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"line {error.lineno}: {text}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"line {frames[-1].lineno}, in `{frames[-1].name}`: {text}" if frames else text


def seed_random(seed):
    """Seeds the generators of the standard library, and of NumPy if the file uses it."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)


def quote(names):
    return ", ".join(f"`{name}`" for name in names) or "none"


def show(value):
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def finite_number(value, what="returned"):
    """Returns a number, of any type that is one, as a float; raises `Wrong`, which says what it was."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise Wrong(f"{what} {show(value)}, which is no number")
    number = float(value)
    if not math.isfinite(number):
        raise Wrong(f"{what} {number}, which is not finite")
    return number


def parameters_of(function):
    """Returns the parameters that a function must have, those that it accepts, and whether it accepts any others."""
    found = inspect.signature(function).parameters.values()
    named = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY, p.POSITIONAL_ONLY)]
    required = [p.name for p in named if p.default is p.empty]
    return required, [p.name for p in named], any(p.kind == p.VAR_KEYWORD for p in found)


def serve(path, start):
    """Answers requests with the handler that `start` returns, until there are no more."""
    requests, answers = open_channel()
    threading.Thread(target=end_with_parent, args=(int(sys.argv[1]),), daemon=True).start()

    def answer(value):
        answers.write(json.dumps(value, allow_nan=False) + "\n")
        answers.flush()

    try:
        handle, greeting = start(path)
    except BaseException as error:
        answer({"error": str(error) if isinstance(error, Unusable) else describe(error, path)})
        return
    answer(greeting)
    for line in requests:
        answer(handle(json.loads(line)))
        sys.stdout.flush()


class Wrong(Exception):
    """A result that is no result."""


class Unusable(Exception):
    """Reason that a file cannot be used, in words for the user."""
