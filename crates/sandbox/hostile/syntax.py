# Is no program.
def solve(x:
