# Raises what ends an asynchronous loop in silence.
def solve(x):
    raise StopAsyncIteration(x)
