# Asks for signals by every way to set O_ASYNC.
import ctypes, fcntl, os
libc = ctypes.CDLL(None)
O_ASYNC = 0o20000
ours, theirs = os.pipe()
for descriptor in (0, 1, 2, 3, ours, theirs):
    for flags in (O_ASYNC, O_ASYNC | os.O_NONBLOCK, O_ASYNC | os.O_APPEND, -1):
        if libc.fcntl(descriptor, fcntl.F_SETFL, flags) >= 0:
            print("ESCAPED", descriptor, flags)
    if libc.ioctl(descriptor, 0x5452, ctypes.byref(ctypes.c_int(1))) >= 0:
        print("ESCAPED ioctl", descriptor)
    if libc.fcntl(descriptor, fcntl.F_GETFL) & O_ASYNC:
        print("ESCAPED flag", descriptor)
def solve(x):
    return None
