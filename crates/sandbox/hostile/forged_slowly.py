# Answers a byte at a time.
import os, time
def solve(x):
    for byte in b"\0\0\0\x0c" + b'{"value": 1}':
        os.write(3, bytes([byte]))
        time.sleep(0.1)
