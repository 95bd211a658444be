# Sends a value of a million levels.
import os
def solve(x):
    data = b'{"value": ' + b"[" * 1000000 + b"]" * 1000000 + b"}"
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(3, data):]
