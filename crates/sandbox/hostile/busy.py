# Computes without end.
while True:
    pass
def solve(x):
    return None
