# Writes a file without end, then many.
written = 0
try:
    with open("/tmp/big", "wb") as file:
        while True:
            written += file.write(b"x" * 1000000)
except OSError:
    pass
if written > 64 << 20:
    print("ESCAPED", written)
def solve(x):
    return None
