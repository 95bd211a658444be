# Starts threads that share no descriptors, to have a limit each.
import ctypes, mmap
code = bytes.fromhex("b838000000 4831d2 4d31d2 4d31c0 0f05 85c0 7401 c3 b8ca000000 4889e7 31f6 31d2 4d31d2 0f05 ebed")
libc = ctypes.CDLL(None)
libc.syscall(9999)
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
start = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
stacks = mmap.mmap(-1, 4096 * 8)
top = ctypes.addressof(ctypes.c_char.from_buffer(stacks))
# Without descriptors, without the directory, without semaphores, in other namespaces, traced, with I/O of its own.
for number, flags in enumerate((0x50B00, 0x50D00, 0x10F00, 0x50F00 | 0x2000000, 0x50F00 | 0x8000000, 0x50F00 | 0x2000, 0x50F00 | 0x80000000, 0x50F00 | 0x4000)):
    if start(flags, top + 4096 * number + 4080) >= 0:
        print("ESCAPED", hex(flags))
def solve(x):
    return None
