# Leaves children that nobody waits for.
import os
for _ in range(50):
    try:
        if os.fork() == 0:
            os._exit(0)
        print("ESCAPED")
    except OSError:
        pass
def solve(x):
    return None
