# Raises subclasses of what ends loops, under other names, and groups of them.
class Quiet(StopIteration): pass
class Exit(SystemExit): pass
class Base(BaseException): pass
class Both(StopIteration, ValueError): pass
kinds = [Quiet, Exit, Base, Both]
def solve(x):
    if x == 2 and "ExceptionGroup" in dir(__builtins__):
        raise BaseExceptionGroup("all", [StopIteration(), SystemExit()])
    raise kinds[x % 4](0)
