# Reads and sets resource limits of other processes.
import ctypes, os
libc = ctypes.CDLL(None)
old, new = (ctypes.c_ulong * 2)(), (ctypes.c_ulong * 2)(0, 0)
for who in (VICTIM, os.getppid(), 1):
    for which in range(16):
        if who not in (0, os.getpid()) and (libc.syscall(302, who, which, None, old) >= 0 or libc.syscall(302, who, which, new, None) >= 0):
            print("ESCAPED", who, which)
libc.syscall.argtypes = [ctypes.c_long] * 4
if libc.syscall(160, 7, 0, 0) >= 0:
    print("ESCAPED setrlimit")
def solve(x):
    return None
