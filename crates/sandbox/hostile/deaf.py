# Ignores every signal it can, and computes without end.
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
def solve(x):
    return None
