# Takes a second for every answer.
import time
def solve(x):
    time.sleep(1)
    return 0
