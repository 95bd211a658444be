# Takes all of its stack.
import sys
sys.setrecursionlimit(10 ** 9)
def down(x):
    return down(x + 1) + eval("down(x)")
down(0)
def solve(x):
    return None
