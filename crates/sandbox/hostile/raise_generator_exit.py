# Raises what closes a generator in silence.
def solve(x):
    raise GeneratorExit
