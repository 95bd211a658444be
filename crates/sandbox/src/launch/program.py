# Runs one program: seed, preamble and text come through descriptor 3, its input and output are the usual ones.
import io
import os

# A program sees no `/proc`, where these lead.
STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def read_all(descriptor):
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    # It stays open, at its end: no descriptor of the program's own gets its number.
    return b"".join(parts)


def with_streams(original):
    def open(file, *rest, **named):
        path = file if isinstance(file, (int, bytes)) else os.fspath(file)
        if path in STREAMS:
            file, named["closefd"] = STREAMS[path], False
        return original(file, *rest, **named)

    return open


def run(text):
    head, text = text.split(b"\n", 1)
    seed, length = map(int, head.split())
    preamble, source = text[:length].decode(), text[length:].decode()
    name = "program.py"
    settle(seed)
    io.open = builtins.open = with_streams(io.open)
    sys.argv = [name]
    main = type(sys)("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    try:
        execute(preamble, source, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        import linecache
        import traceback

        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        traceback.print_exception(type(error), error, error.__traceback__.tb_next.tb_next)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


run(read_all(3))
