# Raises a text that no report can hold, so that the report may end before its end.
def solve(x):
    raise ValueError("\udcff\ud800" * 100)
