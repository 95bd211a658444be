# Interrupts while it is defined.
raise KeyboardInterrupt
def solve(x):
    return None
