# Sleeps.
import time
time.sleep(1000)
def solve(x):
    return None
