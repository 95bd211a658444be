# Ends itself by a signal when it is asked.
import os, signal
def solve(x):
    try:
        os.abort()
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
