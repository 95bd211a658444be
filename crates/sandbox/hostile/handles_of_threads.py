# Makes a thread with a handle, and opens, signals and reads processes by handles.
import ctypes, os
libc = ctypes.CDLL(None)
buffer = ctypes.create_string_buffer(256)
handle = ctypes.c_int(-1)
thread = 0x10000 | 0x800 | 0x100 | 0x200 | 0x400 | 0x40000
for flags in (thread | 0x1000, 0x1000, 0x1000 | 17, thread | 0x80, thread | 0x10000000, thread | 0x40000000, thread | 0x20000, thread & ~0x400, thread & ~0x200, thread & ~0x40000, thread | 17):
    if libc.syscall(56, flags, None, ctypes.byref(handle), None, 0) >= 0:
        print("ESCAPED clone", hex(flags))
for who in (VICTIM, os.getppid(), os.getpid(), 1):
    for call in ((434, who, 0), (434, who, 0x80), (424, who, 9, None, 0), (438, who, 0, 0), (247, 3, who, buffer, 0)):
        if libc.syscall(*call) >= 0:
            print("ESCAPED", call)
def solve(x):
    return None
