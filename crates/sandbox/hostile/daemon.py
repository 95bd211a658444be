# Forks twice and stays behind in a session of its own.
import os, time
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
    print("ESCAPED")
except OSError:
    pass
try:
    os.setsid()
    print("ESCAPED")
except OSError:
    pass
def solve(x):
    return None
