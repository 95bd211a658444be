# Raises what ends a loop in silence.
def solve(x):
    raise StopIteration(x)
