# Announces a reply of four gigabytes.
import os
def solve(x):
    os.write(3, b"\xff\xff\xff\xff")
    while True:
        os.write(3, b"x" * 65536)
