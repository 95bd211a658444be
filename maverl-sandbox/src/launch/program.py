# Runs one program: its text comes through descriptor 3, its input and output are the usual ones.
import builtins
import os
import sys


def read_all(descriptor):
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    # It stays open, at its end: no descriptor of the program's own gets its number.
    return b"".join(parts).decode()


def run(source):
    name = "program.py"
    sys.path[:] = [entry for entry in sys.path if entry]
    sys.argv = [name]
    # Without `site`, which looks for what the user has installed, nobody defines them.
    builtins.exit = builtins.quit = sys.exit
    main = type(sys)("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    try:
        exec(compile(source, name, "exec"), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        import linecache
        import traceback

        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        traceback.print_exception(type(error), error, error.__traceback__.tb_next)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


run(read_all(3))
