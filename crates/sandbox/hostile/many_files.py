# Makes files for as long as it can.
count = 0
try:
    for count in range(100000):
        open(f"/tmp/{count}", "w").close()
except OSError:
    pass
if count > 5000:
    print("ESCAPED", count)
def solve(x):
    return None
