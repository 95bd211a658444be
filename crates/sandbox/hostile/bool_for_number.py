# Returns true and minus nothing.
def solve(x):
    return [True, False, -0.0, 0][x % 4]
