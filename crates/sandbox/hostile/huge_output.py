# Writes without end.
import sys
while True:
    sys.stdout.write("x" * 1000000)
def solve(x):
    return None
