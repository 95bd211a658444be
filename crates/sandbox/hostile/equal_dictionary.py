# Returns dictionaries that never end, or hold themselves.
class Endless(dict):
    def items(self):
        while True:
            yield 1, 1
itself = {}
itself[1] = itself
around = []
around.append(around)
def solve(x):
    return (itself, around, Endless())[x % 3]
