# Returns sets whose items all have one hash.
def solve(x):
    return {i * (2 ** 61 - 1) for i in range(3000)}
