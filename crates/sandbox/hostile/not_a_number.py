# Returns numbers that compare with nothing.
def solve(x):
    return [float("nan"), float("inf"), -float("inf"), complex("nan")][x % 4]
