# Runs the tests of a task. The candidate is in another process: what comes from there is read as data, never run.
import ast
import json
import os

WIRE = 3
LONGEST = 4 << 20
DEEPEST = 100


# Whether the candidate was called: in this test, and in any.
calls = 0
called = False
# Why the candidate is gone, whatever the tests made of it.
lost = None
# `unittest`, if the tests use it.
cases = None


class Gone(BaseException):
    """The candidate's process has ended, or does not speak as it should."""

    def __init__(self, text):
        global lost
        super().__init__(text)
        lost = lost or self


class Ended(BaseException):
    """The candidate raised what is no `Exception`, as `sys.exit` does; what catches exceptions does not catch it."""


class Quit(BaseException):
    """The tests call `os._exit`."""


class Broken(BaseException):
    """The tests can judge no candidate."""


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
    raise Broken(f"they pass a value of type {kind.__name__}, which is no plain data")


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
    """What the candidate raised, as an exception of the same name if that is a built-in one.

    What ends a loop in silence would have the tests pass over the rest; it is a `RuntimeError`, as out of a generator.
    """
    what = reply.get("raise")
    if type(what) is not list or [type(part) for part in what] != [str, str]:
        return Gone("the candidate's process sends something unreadable")
    name, text = what
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        if not issubclass(kind, Exception):
            return Ended(f"{name}: {text}" if text else name)
        if not issubclass(kind, (StopIteration, StopAsyncIteration)):
            try:
                return kind(text)
            except TypeError:
                pass
    return RuntimeError(f"{name}: {text}")


def candidate(*arguments, **named):
    global calls, called
    call = {
        "arguments": [encode(value) for value in arguments],
        "named": [[name, encode(value)] for name, value in named.items()],
    }
    calls, called = calls + 1, True
    send(call)
    reply = receive()
    if "value" in reply:
        return plain(reply)
    raise raised(reply)


class Sites(ast.NodeTransformer):
    """Makes every assertion of a test count for itself instead of ending the test."""

    TEXT = """
try:
    pass
except (Exception, __Ended__) as __e__:
    __site__({0}, __e__)
except BaseException as __e__:
    __site__({0}, __e__)
    raise
else:
    __site__({0}, None)
"""

    def __init__(self):
        self.count = 0

    def visit_Assert(self, node):
        site, self.count = self.count, self.count + 1
        (attempt,) = ast.parse(self.TEXT.format(site)).body
        attempt.body = [node]
        return ast.fix_missing_locations(ast.copy_location(attempt, node))


def describe(error):
    text = str(error)
    if not text:
        text = type(error).__name__
    elif not isinstance(error, (Ended, Broken)):
        text = f"{type(error).__name__}: {text}"
    # Half a character is none in a report.
    return text.encode("utf-8", "backslashreplace").decode()


class Cases:
    """`unittest` in tests. What fails counts, whoever runs it and whatever becomes of the result; cases that nobody runs
    are run; `unittest.main()` runs them too, and does not end the process."""

    def __init__(self, space):
        import unittest

        self.unittest, self.space = unittest, space
        self.old, self.ran, self.wrong = set(), set(), []
        self.note("startTest", lambda case: self.ran.add(type(case)))
        self.note("addError", lambda case, error: self.wrong.append(error[1]))
        self.note("addFailure", lambda case, error: self.wrong.append(error[1]))
        self.note("addSubTest", lambda case, part, error: error and self.wrong.append(error[1]))
        success = AssertionError("it succeeds unexpectedly")
        self.note("addUnexpectedSuccess", lambda case: self.wrong.append(success))
        unittest.main = unittest.TestProgram = self.main

    def note(self, name, noted):
        original = getattr(self.unittest.TestResult, name)

        def method(result, *rest):
            noted(*rest)
            return original(result, *rest)

        setattr(self.unittest.TestResult, name, method)

    def kinds(self):
        """Classes of the tests that have cases."""
        names = self.unittest.defaultTestLoader.getTestCaseNames
        kinds = [kind for kind in self.space.values() if isinstance(kind, type)]
        kinds = [kind for kind in kinds if issubclass(kind, self.unittest.TestCase)]
        return [kind for kind in kinds if kind.__module__ == "tests" and names(kind)]

    def run(self, kinds):
        load = self.unittest.defaultTestLoader.loadTestsFromTestCase
        self.result = self.unittest.TestResult()
        self.unittest.TestSuite(map(load, kinds)).run(self.result)
        if self.result.testsRun == len(self.result.skipped):
            raise Broken("`unittest` finds no case to run")

    def main(self, *rest, **named):
        self.run(self.kinds())
        return self

    def begin(self):
        """Before a test: what is there is not its own."""
        self.old.update(self.kinds())
        self.ran.clear()
        self.wrong.clear()

    def end(self):
        """After a test: runs what it has left, and raises what was wrong first."""
        left = [kind for kind in self.kinds() if kind not in self.old | self.ran]
        if left:
            self.run(left)
        for error in self.wrong:
            raise error


def perform(code, space, then):
    """Runs the code of a test, then what comes then, and its cases. Raises what is wrong: `Broken` if that is the test."""
    try:
        if cases:
            cases.begin()
        exec(code, space)
        then()
        if cases:
            cases.end()
    except (Exception, Ended, Broken):
        raise
    except BaseException as error:
        raise exited(error) from None
    finally:
        if lost:
            raise lost


def exited(error):
    """What it means that a test ends its process. With a status that is not 0, once it has called the candidate, it says
    that the candidate is wrong; else nobody knows what it says."""
    status = error.code if isinstance(error, SystemExit) else error.args[0] if error.args else 1
    how = f"os._exit({status})" if isinstance(error, Quit) else describe(error)
    if calls and status not in (None, 0):
        return AssertionError(f"the test ends by {how}")
    return Broken(f"they end their own process by {how}")


def quit(status):
    raise Quit(status)


def compiled(code):
    try:
        return compile(code, "test.py", "exec")
    except SyntaxError as error:
        raise Broken(describe(error)) from None


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
            outcomes[number] = lost or error

    def then():
        space[entry] = candidate
        space["check"](candidate)

    space.update(__site__=site, __Ended__=Ended)
    ended = None
    try:
        perform(compiled(tree), space, then)
    except (Exception, Ended, Gone) as error:
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


def near(found, wanted, tolerance):
    """True if two values are equal, where numbers that are not both whole may differ by the tolerance: as a share of the
    wanted one if that is above 1."""
    if type(found) is list and type(wanted) is list:
        pairs = zip(found, wanted)
        return len(found) == len(wanted) and all(near(*pair, tolerance) for pair in pairs)
    if type(found) is dict and type(wanted) is dict:
        return found.keys() == wanted.keys() and all(near(found[key], wanted[key], tolerance) for key in wanted)
    kinds = {type(found), type(wanted)}
    if not tolerance or float not in kinds or not kinds <= {int, float}:
        return found == wanted
    difference = abs(found - wanted)
    return found == wanted or difference < float("inf") and difference <= tolerance * max(1, abs(wanted))


def examine(unit, exam, space):
    """The points of a test, how many it has, and what is wrong."""
    global calls
    calls = 0
    if "check" in unit:
        return check(unit["check"], exam["entry"], space)
    try:
        if "code" in unit:
            perform(compiled(unit["code"]), space, lambda: None)
        else:
            found = candidate(*unit["arguments"])
            wanted = [unit[key] for key in ("expected", "alternative") if key in unit]
            tolerance = exam["tolerance"] or 0
            right = any(near(listed(found), value, tolerance) for value in wanted)
            assert right, f"it returns {found!r}"[:200]
    except (Exception, Ended, Gone) as error:
        return 0, 1, describe(error)
    return 1, 1, ""


def prepare(exam):
    """What the task's own code defines; a beginning of a function is given a body."""
    global cases
    setup, entry = exam["setup"], exam["entry"]
    module = sys.modules["tests"] = type(sys)("tests")
    space = module.__dict__
    codes = [setup] + [unit.get("check") or unit.get("code") or "" for unit in exam["tests"]]
    if any("unittest" in code for code in codes):
        cases = Cases(space)
    try:
        try:
            code = compile(setup, "task.py", "exec")
        except SyntaxError:
            code = compile(setup + "\n    pass\n", "task.py", "exec")
        exec(code, space)
    except Exception as error:
        raise Broken(describe(error)) from None
    except BaseException as error:
        raise exited(error) from None
    space.update({entry: candidate, "candidate": candidate})
    return space


def main():
    exam = json.load(sys.stdin)
    # What tests print is no report.
    report = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    settle(exam["seed"])
    leave, os._exit = os._exit, quit
    try:
        hold(exam, report)
    except Broken as error:
        report.write(json.dumps({"broken": describe(error)}) + "\n")
    report.flush()
    # The report is all that counts.
    leave(0)


def hold(exam, report):
    space = prepare(exam)
    try:
        send({key: exam[key] for key in ("source", "entry", "preamble", "seed")})
        reply = receive()
        if "value" not in reply:
            raise raised(reply)
    except (Exception, Ended, Gone) as error:
        report.write(json.dumps({"undefined": describe(error)}) + "\n")
        return
    wrong = ""
    for unit in exam["tests"]:
        points, total, text = examine(unit, exam, space)
        wrong = wrong or text
        report.write(json.dumps({"points": points, "of": total, "text": text[:500]}) + "\n")
    if exam["tests"] and not called:
        raise Broken(f"they never call `{exam['entry']}`" + (f": {wrong}" if wrong else ""))
    report.write(json.dumps({"end": True}) + "\n")
