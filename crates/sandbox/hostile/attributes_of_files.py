# Reads and writes extended attributes.
import ctypes, os
libc = ctypes.CDLL(None)
buffer = ctypes.create_string_buffer(4096)
for path in (OUTSIDE, OUTSIDE_DIR, os.__file__):
    name = path.encode()
    calls = [(188, name, b"user.x", b"1", 1, 0), (189, name, b"user.x", b"1", 1, 0), (191, name, b"security.capability", buffer, 4096), (194, name, buffer, 4096), (197, name, b"user.x"), (463, -100, name, 0, b"user.x", buffer, 24), (464, -100, name, 0, b"user.x", buffer, 24)]
    try:
        descriptor = os.open(path, os.O_RDONLY)
        calls += [(190, descriptor, b"user.x", b"1", 1, 0), (193, descriptor, b"user.x", buffer, 4096), (196, descriptor, buffer, 4096), (199, descriptor, b"user.x"), (468, descriptor, b"", 0x1000, buffer, 24)]
    except OSError:
        pass
    for call in calls:
        if libc.syscall(*call) >= 0:
            print("ESCAPED", call)
def solve(x):
    return None
