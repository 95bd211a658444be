# Sends what is no reply.
import os
junk = [b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x01\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x0b{\"value\": {}"]
def solve(x):
    os.write(3, junk[x % 4])
