# Changes priorities, processors and schedulers of others, and its own.
import ctypes, os
libc = ctypes.CDLL(None)
one = (ctypes.c_ulong * 16)(1)
attributes = (ctypes.c_uint32 * 16)(48, 3)
for who in (VICTIM, os.getppid(), 1, 0):
    calls = [(141, 0, who, 19), (141, 1, who, 19), (141, 2, 0, 19), (203, who, 8, one), (144, who, 3, one), (142, who, one), (314, who, attributes, 0), (251, 1, who, 3 << 13), (251, 2, who, 3 << 13), (315, who, attributes, 48, 0), (140, 0, who), (252, 1, who)]
    for call in calls:
        if libc.syscall(*call) >= 0:
            print("ESCAPED", call)
def solve(x):
    return None
