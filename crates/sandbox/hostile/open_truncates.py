# Empties files that it may only read, by opening them.
import ctypes, os
libc = ctypes.CDLL(None)
for path in (OUTSIDE, "/dev/null"):
    for flags in (os.O_RDONLY | os.O_TRUNC, os.O_TRUNC | 3, os.O_TRUNC | os.O_CREAT, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC | os.O_NONBLOCK):
        for call in ((2, path.encode(), flags, 0), (257, -100, path.encode(), flags, 0)):
            if libc.syscall(*call) >= 0 and path == OUTSIDE:
                print("ESCAPED", call)
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY | os.O_TRUNC, 0, 0)
    if libc.syscall(437, -100, path.encode(), how, 24) >= 0:
        print("ESCAPED openat2")
def solve(x):
    return None
