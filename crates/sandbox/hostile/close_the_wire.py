# Closes its connection and goes on.
import os
os.close(3)
while True:
    pass
def solve(x):
    return None
