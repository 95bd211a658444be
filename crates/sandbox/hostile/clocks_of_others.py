# Reads and waits for the processor time of other processes, and sets clocks.
import ctypes, os
libc = ctypes.CDLL(None)
time = (ctypes.c_long * 2)(0, 1)
buffer = ctypes.create_string_buffer(256)
for who in (VICTIM, os.getppid(), 1, 2):
    if who == os.getpid():
        continue
    for kind in (0, 1, 2):
        clock = (~who << 3) | kind
        for call in ((228, clock, time), (229, clock, time), (230, clock, 0, time, None)):
            if libc.syscall(*call) >= 0:
                print("ESCAPED", who, call[0])
for call in ((227, 0, time), (305, 0, buffer), (159, buffer), (164, time, None)):
    if libc.syscall(*call) >= 0:
        print("ESCAPED", call)
def solve(x):
    return None
