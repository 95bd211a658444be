# Changes flags of inodes, freezes file systems, clones and encrypts files.
import ctypes, os
libc = ctypes.CDLL(None)
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
buffer = ctypes.create_string_buffer(4096)
for path in (OUTSIDE, OUTSIDE_DIR, os.__file__, "/", "/tmp"):
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        continue
    for request in (0x40086602, 0x80086601, 0x401C5820, 0x801C581F, 0xC0045877, 0xC0045878, 0xC0185879, 0x40049409, 0xC020660B, 0x800C6613, 0xC0096616, 0x6685, 0x80111500, 0xC0406617):
        if libc.ioctl(descriptor, request, buffer) >= 0:
            print("ESCAPED", path, hex(request))
def solve(x):
    return None
