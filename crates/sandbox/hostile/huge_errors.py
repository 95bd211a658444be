# Writes errors without end.
import sys
while True:
    sys.stderr.write("x" * 1000000)
def solve(x):
    return None
