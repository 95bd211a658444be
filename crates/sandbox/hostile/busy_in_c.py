# Computes without end where no signal handler of Python's runs.
10 ** 10 ** 10 % 7
def solve(x):
    return None
