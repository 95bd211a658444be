# Doubles a list.
held = [0]
while True:
    held += held
def solve(x):
    return None
