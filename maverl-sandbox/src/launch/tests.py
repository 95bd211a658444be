# Runs the tests of a task. The candidate is in another process: what comes from there is read as data, never run.
import ast
import builtins
import json
import os
import sys

WIRE = 3
LONGEST = 4 << 20
DEEPEST = 100


calls = 0


class Gone(Exception):
    """The candidate's process has ended, or does not speak as it should."""


class Broken(Exception):
    """The tests fail before any candidate is called."""


def exactly(size):
    parts = bytearray()
    while len(parts) < size:
        part = os.read(WIRE, size - len(parts))
        if not part:
            raise Gone("the candidate's process has ended")
        parts += part
    return bytes(parts)


def receive():
    size = int.from_bytes(exactly(4), "big")
    if size > LONGEST:
        raise Gone("the candidate returns too much")
    try:
        reply = json.loads(exactly(size))
    except (ValueError, RecursionError):
        raise Gone("the candidate's process sends something unreadable") from None
    if type(reply) is not dict or len(reply) != 1:
        raise Gone("the candidate's process sends something unreadable")
    return reply


def send(message):
    data = json.dumps(message).encode()
    data = len(data).to_bytes(4, "big") + data
    try:
        while data:
            data = data[os.write(WIRE, data) :]
    except OSError:
        raise Gone("the candidate's process has ended") from None


def encode(value):
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    if kind is int:
        return value if -(2**53) < value < 2**53 else {"int": hex(value)}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind in (bytes, bytearray):
        return {"bytes": value.hex()}
    if kind is list:
        return [encode(item) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    raise TypeError(f"the test passes a value of type {kind.__name__}, which is no plain data")


def decode(value, depth=0):
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if type(value) is list:
        return [decode(item, depth + 1) for item in value]
    if type(value) is not dict:
        return value
    ((kind, inner),) = value.items()
    if kind == "int":
        return int(inner, 16)
    if kind == "complex":
        real, imaginary = inner
        return complex(float(real), float(imaginary))
    if kind == "bytes":
        return bytes.fromhex(inner)
    if kind == "dict":
        return {decode(key, depth + 1): decode(item, depth + 1) for key, item in inner}
    kinds = {"tuple": tuple, "set": set, "frozenset": frozenset}
    return kinds[kind]([decode(item, depth + 1) for item in inner])


def plain(reply):
    try:
        return decode(reply["value"])
    except Exception:
        raise Gone("the candidate's process sends something unreadable") from None


def raised(reply):
    """What the candidate raised, as an exception of the same name if that is a built-in one."""
    what = reply.get("raise")
    if type(what) is not list or [type(part) for part in what] != [str, str]:
        raise Gone("the candidate's process sends something unreadable")
    name, text = what
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:
            pass
    return RuntimeError(f"{name}: {text}")


def candidate(*arguments, **named):
    global calls
    calls += 1
    send({
        "arguments": [encode(value) for value in arguments],
        "named": [[name, encode(value)] for name, value in named.items()],
    })
    reply = receive()
    if "value" in reply:
        return plain(reply)
    raise raised(reply)


class Sites(ast.NodeTransformer):
    """Makes every assertion of a test count for itself instead of ending the test."""

    def __init__(self):
        self.count = 0

    def visit_Assert(self, node):
        site, self.count = self.count, self.count + 1
        text = f"try:\n pass\nexcept __Gone__: raise\nexcept Exception as __e__: __site__({site}, __e__)\nelse: __site__({site}, None)"
        (attempt,) = ast.parse(text).body
        attempt.body = [node]
        return ast.fix_missing_locations(ast.copy_location(attempt, node))


def describe(error):
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def check(code, entry, space):
    """A test with a function `check`: one point for every assertion, and one for reaching the end."""
    sites = Sites()
    try:
        tree = sites.visit(ast.parse(code))
    except SyntaxError as error:
        raise Broken(describe(error)) from None
    outcomes = {}

    def site(number, error):
        if outcomes.get(number) is None:
            outcomes[number] = error

    space.update(__site__=site, __Gone__=Gone)
    ended = None
    try:
        exec(compile(tree, "test.py", "exec"), space)
        space[entry] = candidate
        space["check"](candidate)
    except Exception as error:
        if not calls:
            raise Broken(describe(error)) from None
        ended = error
    right = [number for number, error in outcomes.items() if error is None]
    wrong = [error for error in outcomes.values() if error is not None] + ([ended] if ended else [])
    if not wrong:
        return sites.count + 1, sites.count + 1, ""
    return len(right), sites.count + 1, describe(wrong[0])


def listed(value):
    """JSON knows no tuples; a list stands for both."""
    if type(value) in (list, tuple):
        return [listed(item) for item in value]
    return value


def examine(unit, entry, space):
    """The points of a test, how many it has, and what is wrong."""
    global calls
    calls = 0
    if "check" in unit:
        return check(unit["check"], entry, space)
    try:
        if "code" in unit:
            try:
                code = compile(unit["code"], "test.py", "exec")
            except SyntaxError as error:
                raise Broken(describe(error)) from None
            exec(code, space)
        else:
            found = candidate(*unit["arguments"])
            wanted = [unit[key] for key in ("expected", "alternative") if key in unit]
            assert listed(found) in wanted, f"it returns {found!r}"[:200]
    except Broken:
        raise
    except Exception as error:
        return 0, 1, describe(error)
    return 1, 1, ""


def prepare(setup, entry):
    """What the task's own code defines; a beginning of a function is given a body."""
    space = {"__name__": "tests", "__builtins__": builtins}
    try:
        try:
            code = compile(setup, "task.py", "exec")
        except SyntaxError:
            code = compile(setup + "\n    pass\n", "task.py", "exec")
        exec(code, space)
    except Exception as error:
        raise Broken(describe(error)) from None
    space.update({entry: candidate, "candidate": candidate})
    return space


def main():
    exam = json.load(sys.stdin)
    # What tests print is no report.
    report = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path[:] = [entry for entry in sys.path if entry]
    try:
        hold(exam, report)
    except Broken as error:
        report.write(json.dumps({"broken": str(error)}) + "\n")


def hold(exam, report):
    entry = exam["entry"]
    space = prepare(exam["setup"], entry)
    try:
        send({"source": exam["source"], "entry": entry})
        reply = receive()
        if "value" not in reply:
            raise raised(reply)
    except Exception as error:
        report.write(json.dumps({"undefined": describe(error)}) + "\n")
        return
    for unit in exam["tests"]:
        points, total, text = examine(unit, entry, space)
        report.write(json.dumps({"points": points, "of": total, "text": text[:500]}) + "\n")
    report.write(json.dumps({"end": True}) + "\n")


main()
