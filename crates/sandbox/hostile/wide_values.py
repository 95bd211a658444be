# Returns as much as may cross.
def solve(x):
    return ["x" * 1000] * 3000
