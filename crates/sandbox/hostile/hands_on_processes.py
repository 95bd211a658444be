# Advises, reaps, compares and reads other processes.
import ctypes, os
libc = ctypes.CDLL(None)
buffer = ctypes.create_string_buffer(4096)
for who in (VICTIM, os.getppid(), 1):
    for call in ((440, who, buffer, 1, 20, 0), (448, who, 0), (312, who, os.getpid(), 2, 0, 0), (274, who, buffer, buffer), (256, who, 64, buffer, buffer), (279, who, 1, buffer, None, buffer, 0), (101, 16, who, 0, 0), (101, 0x4206, who, 0, 0), (310, who, buffer, 1, buffer, 1, 0), (311, who, buffer, 1, buffer, 1, 0), (272, 0x40000000), (308, 3, 0)):
        if who != os.getpid() and libc.syscall(*call) >= 0:
            print("ESCAPED", call)
def solve(x):
    return None
