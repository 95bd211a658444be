# Changes modes and owners of files it owns.
import ctypes, os
libc = ctypes.CDLL(None)
for path in (OUTSIDE, OUTSIDE_DIR, os.__file__):
    name = path.encode()
    calls = [(90, name, 0o4777), (268, -100, name, 0o4777), (452, -100, name, 0o4777, 0), (92, name, 0, 0), (94, name, 0, 0), (260, -100, name, 0, 0, 0)]
    for flags in (os.O_RDONLY, os.O_PATH):
        try:
            descriptor = os.open(path, flags)
        except OSError:
            continue
        calls += [(91, descriptor, 0o4777), (93, descriptor, 0, 0), (452, descriptor, b"", 0o4777, 0x1000), (260, descriptor, b"", 0, 0, 0x1000)]
    for call in calls:
        if libc.syscall(*call) >= 0:
            print("ESCAPED", call)
def solve(x):
    return None
