# Returns numbers too long to be written.
def solve(x):
    return 10 ** 200000 + x
